/* Small things every test needs: time, contents made from a seed, what this process uses. */
#ifndef TEST_UTIL_H
#define TEST_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

/* How long a test waits for what must happen: only a failure ever takes so long. */
#define LIMIT (20 * S)

uint64_t now_ns(void);

/* Byte i of a pattern depends on the seed and on i alone, so that a range can be checked piece by piece. */
void pattern_fill(void *memory, uint64_t bytes, uint64_t seed, uint64_t start);
/* The first byte that is not as filled, or bytes when all are. */
uint64_t pattern_differs(const void *memory, uint64_t bytes, uint64_t seed, uint64_t start);
/* The same for memory that another process writes, and says so by means that ThreadSanitizer cannot see. */
#if defined(__SANITIZE_THREAD__)
#define NOT_JUDGED __attribute__((no_sanitize_thread))
#else
#define NOT_JUDGED
#endif
void landed_fill(void *memory, uint64_t bytes, uint64_t seed, uint64_t start);
uint64_t landed_differs(const void *memory, uint64_t bytes, uint64_t seed, uint64_t start);
uint64_t random_next(uint64_t *state);

/* What memory may grow by in a test that checks it stays flat: a leak of a few KiB a round is more. The
 * sanitizers keep back what is freed, and have their own way of finding leaks. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLAT_BYTES (512u << 20)
#else
#define FLAT_BYTES (3u << 20)
#endif
uint64_t rss_bytes(void);
int open_fds(void);
bool thread_sleeps(int thread); /* by its number, gettid(); 0: it has none yet */
#endif
