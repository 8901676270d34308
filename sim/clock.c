/*
 * Finds out once whether the TSC can be trusted and how fast it runs. Called from fi_prov_ini.
 */
#include "clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

int sim_clock_tsc;
double sim_ticks_per_ns = 1;

#if defined(__x86_64__)
/* Takes the pair (ns, ticks) of one instant: the narrowest of several tries, since preemption in between would
 * falsify it. */
static void sample(uint64_t *ret_ns, uint64_t *ret_ticks)
{
	uint64_t narrowest = UINT64_MAX;

	for (int i = 0; i < 32; i++) {
		uint64_t before = __builtin_ia32_rdtsc(), ns = sim_clock_ns(), after = __builtin_ia32_rdtsc();

		if (after - before < narrowest) {
			narrowest = after - before;
			*ret_ns = ns;
			*ret_ticks = before + (after - before) / 2;
		}
	}
}
#endif

void sim_clock_start(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;
	uint64_t ns = 0, ticks = 0, ns_end = 0, ticks_end = 0;

	/* CPUID 0x80000007 EDX bit 8: the TSC runs at one rate in every power state. */
	if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & (1u << 8)))
		return;
	sample(&ns, &ticks);
	while (sim_clock_ns() - ns < 5000000)
		;
	sample(&ns_end, &ticks_end);
	sim_ticks_per_ns = (double)(ticks_end - ticks) / (double)(ns_end - ns);
	sim_clock_tsc = 1;
#endif
}
