/*
 * How late this machine wakes threads: a thread on each CPU naps and records by how much it overslept, and the kernel
 * says how long our threads waited for a CPU. That separates an overloaded machine from a late library. Any thread.
 */
#ifndef TEST_WATCH_H
#define TEST_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

void watch_start(void);
void watch_stop(void);
uint64_t watch_lateness(uint64_t since_ns); /* worst delay of a sleeping thread since, in ns */
uint64_t watch_waited(uint64_t since_ns);   /* the most that our threads waited for a CPU since, summed up */
uint64_t watch_excuse(uint64_t since_ns);   /* by how much a deadline may be missed because of it */
/* A delay is known only when it is over: waits until every watcher has recorded everything up to now, for a second
 * at most. */
void watch_settle(void);
/* Returns whether `at_ns` is later than allowed_ns after since_ns by more than the machine's delays since then
 * explain. Settles before it says so. */
bool watch_is_late(uint64_t since_ns, uint64_t at_ns, uint64_t allowed_ns);
/* Returns the longest time that a thread of another process has waited for a CPU since its start. */
uint64_t watch_process(pid_t pid);
#endif
