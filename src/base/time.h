/* Time as weft uses it: nanoseconds of the monotonic clock. Any thread. */
#ifndef WF_BASE_TIME_H
#define WF_BASE_TIME_H

#include <stdint.h>
#include <time.h>

#define WF_NEVER UINT64_MAX
#define WF_US    UINT64_C(1000)
#define WF_MS    UINT64_C(1000000)
#define WF_S     UINT64_C(1000000000)

static inline uint64_t wf_clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * WF_S + (uint64_t)ts.tv_nsec;
}

static inline uint64_t wf_now_ns(void)
{
	return wf_clock_ns(CLOCK_MONOTONIC);
}

/* The same clock as of the kernel's last tick, up to 10 ms ago, at a fifth of the price. */
static inline uint64_t wf_tick_ns(void)
{
	return wf_clock_ns(CLOCK_MONOTONIC_COARSE);
}

/* Computes a deadline that cannot wrap: a timeout of UINT64_MAX means never. */
static inline uint64_t wf_deadline(uint64_t now_ns, uint64_t timeout_ns)
{
	return timeout_ns > WF_NEVER - now_ns ? WF_NEVER : now_ns + timeout_ns;
}
#endif
