/* The benchmark's memory, mapped, zeroed and touched before anything is timed; and its use of the CPU. */
#include "bench.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static int map_own(struct bench_memory *memory, uint64_t bytes)
{
	memory->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory->base == MAP_FAILED) {
		memory->base = NULL;
		return -ENOMEM;
	}
	madvise(memory->base, bytes, MADV_HUGEPAGE);
	return 0;
}

int bench_memory_open(struct bench_memory *memory, weft_engine *engine, uint64_t bytes, bool own)
{
	int rc = own ? map_own(memory, bytes) : weft_memory_alloc(engine, bytes, NULL, &memory->base);

	if (rc < 0)
		return rc;
	memory->bytes = bytes;
	memory->own = own;
	memset(memory->base, 0, bytes);
	return 0;
}

void bench_memory_close(struct bench_memory *memory)
{
	if (memory->own && memory->base)
		munmap(memory->base, memory->bytes);
	memory->base = NULL;
}

uint64_t bench_memory_limit(void)
{
	unsigned long long kilobytes = 0;
	char line[128];
	FILE *file = fopen("/proc/meminfo", "re");

	if (!file)
		return UINT64_MAX;
	while (fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %llu kB", &kilobytes) != 1)
		;
	fclose(file);
	return kilobytes ? kilobytes * 1024 / 8 * 3 : UINT64_MAX;
}

uint64_t bench_cpu_ns(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	uint64_t seconds = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec);
	uint64_t microseconds = (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	return seconds * 1000000000 + microseconds * 1000;
}

void bench_idle(uint32_t *idle, bool nothing)
{
	enum { PATIENCE = 512 };
	*idle = nothing ? *idle + 1 : 0;
	if (*idle > PATIENCE)
		sched_yield();
}
