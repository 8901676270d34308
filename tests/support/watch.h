/*
 * How late this machine wakes threads: a thread on each CPU naps and notes by how much it overslept, and the
 * kernel says how long our threads waited for a CPU. By that a machine that is overloaded is told from a
 * library that is late. Any thread.
 */
#ifndef TEST_WATCH_H
#define TEST_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

void watch_start(void);
void watch_stop(void);
uint64_t watch_lateness(uint64_t since_ns); /* worst delay of a sleeping thread since, in ns */
uint64_t watch_waited(uint64_t since_ns);   /* the most that threads of ours waited for a CPU since, summed up */
uint64_t watch_excuse(uint64_t since_ns);   /* by how much a deadline may be missed for it */
/* A delay is known only when it is over: waits until every watcher has noted what went on until now, for a
 * second at most. */
void watch_settle(void);
/* Whether `at_ns` is later than allowed_ns after since_ns by more than the machine's delays since then
 * explain. Settles before it says so. */
bool watch_is_late(uint64_t since_ns, uint64_t at_ns, uint64_t allowed_ns);
/* The most a thread of another process has waited for a CPU since it was started. */
uint64_t watch_process(pid_t pid);
#endif
