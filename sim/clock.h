/*
 * Time in ticks: the invariant TSC where the CPU has one, else nanoseconds of CLOCK_MONOTONIC. All times that
 * processes share are raw ticks, so each process calibrating for itself does no harm (rates differ by ppm).
 */
#ifndef SIM_CLOCK_H
#define SIM_CLOCK_H

#include <stdint.h>
#include <time.h>

extern int sim_clock_tsc; /* set once by sim_clock_start, before any thread of ours */
extern double sim_ticks_per_ns;

void sim_clock_start(void);

static inline uint64_t sim_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t sim_ticks(void)
{
#if defined(__x86_64__)
	if (__builtin_expect(sim_clock_tsc, 1))
		return __builtin_ia32_rdtsc();
#endif
	return sim_clock_ns();
}

static inline uint64_t sim_ticks_of_ns(uint64_t ns)
{
	return ns == UINT64_MAX ? UINT64_MAX : (uint64_t)((double)ns * sim_ticks_per_ns + 0.5);
}

static inline void sim_spin(uint64_t ticks)
{
	uint64_t end = sim_ticks() + ticks;

	while (sim_ticks() < end)
		;
}

#endif
