/*
 * Stopping a process where it does no harm. libfabric 1.17's shared memory has a spin lock in each process's
 * segment; whoever is stopped or killed within it holds up everybody who sends to it, inside libfabric
 * (docs/decisions/07). Nothing can be promised then, so tests do not judge it.
 */
#ifndef WEFT_TESTS_REST_H
#define WEFT_TESTS_REST_H

#include <sys/types.h>

/* Over shm while each of its threads is inside a system call. It has stopped, or is dead, when this returns. */
void stop_at_rest(pid_t pid);

#endif
