/*
 * Stops a process where that does no harm. libfabric 1.17's shared memory has a spin lock in each process's segment; a
 * process that is stopped or killed while holding it blocks everybody who sends to it, inside libfabric
 * (docs/decisions/07). Nothing can be promised then, so tests do not judge it.
 */
#ifndef WEFT_TESTS_REST_H
#define WEFT_TESTS_REST_H

#include <sys/types.h>

/* Over shm it waits until each thread is inside a system call. The process is stopped or dead when this returns. */
void stop_at_rest(pid_t pid);

#endif
