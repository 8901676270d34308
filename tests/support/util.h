/* Small things that every test needs: time, contents made from a seed, what this process uses. */
#ifndef TEST_UTIL_H
#define TEST_UTIL_H

#include "support/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

/* How many times slower than a host this machine is: TEST_SLOWER, for emulated ones; else 1. */
uint64_t slower(void);
/* How long a test waits for what must happen. Only a failure ever takes this long. */
#define LIMIT (20 * S * slower())

/* Byte i of a pattern depends only on the seed and on i, so that a range can be checked piece by piece. */
void pattern_fill(void *memory, uint64_t bytes, uint64_t seed, uint64_t start);
/* Returns the first byte that is not as filled, or bytes if all are. */
uint64_t pattern_differs(const void *memory, uint64_t bytes, uint64_t seed, uint64_t start);
/* The same for memory that another process writes and announces by means that ThreadSanitizer cannot see. */
#if defined(__SANITIZE_THREAD__)
#define NOT_JUDGED __attribute__((no_sanitize_thread))
#else
#define NOT_JUDGED
#endif
void landed_fill(void *memory, uint64_t bytes, uint64_t seed, uint64_t start);
uint64_t landed_differs(const void *memory, uint64_t bytes, uint64_t seed, uint64_t start);
uint64_t random_next(uint64_t *state);

/* How much memory may grow in a test that checks that it stays flat: a leak of a few KiB per round is more. The
 * sanitizers hold back freed memory, and have their own way of finding leaks. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLAT_BYTES (512u << 20)
#else
#define FLAT_BYTES (3u << 20)
#endif
uint64_t rss_bytes(void);
int open_fds(void);
bool thread_sleeps(int thread); /* by its gettid() number; 0: it has none yet */
#endif
