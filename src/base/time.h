/* Time as weft uses it: nanoseconds of the monotonic clock. Any thread. */
#ifndef WF_BASE_TIME_H
#define WF_BASE_TIME_H

#include <stdint.h>
#include <time.h>

#define WF_NEVER UINT64_MAX
#define WF_US    UINT64_C(1000)
#define WF_MS    UINT64_C(1000000)
#define WF_S     UINT64_C(1000000000)

static inline uint64_t wf_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * WF_S + (uint64_t)ts.tv_nsec;
}

/* A deadline that cannot wrap: a timeout of UINT64_MAX is never. */
static inline uint64_t wf_deadline(uint64_t now_ns, uint64_t timeout_ns)
{
	return timeout_ns > WF_NEVER - now_ns ? WF_NEVER : now_ns + timeout_ns;
}
#endif
