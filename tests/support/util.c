/* Time, patterns, and what the process uses; util.h has the meaning. */
#include "support/util.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

uint64_t slower(void)
{
	const char *text = getenv("TEST_SLOWER");
	uint64_t times = text ? strtoull(text, NULL, 10) : 1;

	return times ? times : 1;
}

uint64_t random_next(uint64_t *state)
{
	return mix(*state += GOLDEN);
}

/* Cheap, because torture fills and checks gigabytes; mixed, because neighbouring seeds must not give shifted patterns. */
static uint64_t word_at(uint64_t mixed_seed, uint64_t index)
{
	uint64_t x = (mixed_seed + index) * GOLDEN;

	return x ^ x >> 29;
}

void pattern_fill(void *memory, uint64_t bytes, uint64_t seed, uint64_t start)
{
	uint8_t *to = memory;
	const uint64_t mixed = mix(seed + GOLDEN);

	for (uint64_t i = 0; i < bytes;) {
		uint64_t at = start + i, word = word_at(mixed, at / 8), skip = at % 8;
		uint64_t take = 8 - skip < bytes - i ? 8 - skip : bytes - i;

		memcpy(to + i, (uint8_t *)&word + skip, take);
		i += take;
	}
}

uint64_t pattern_differs(const void *memory, uint64_t bytes, uint64_t seed, uint64_t start)
{
	const uint8_t *from = memory;
	const uint64_t mixed = mix(seed + GOLDEN);

	for (uint64_t i = 0; i < bytes;) {
		uint64_t at = start + i, word = word_at(mixed, at / 8), skip = at % 8;
		uint64_t take = 8 - skip < bytes - i ? 8 - skip : bytes - i;

		if (memcmp(from + i, (uint8_t *)&word + skip, take)) {
			while (from[i] == ((uint8_t *)&word)[skip])
				i++, skip++;
			return i;
		}
		i += take;
	}
	return bytes;
}

/* Byte by byte: memcpy() and memcmp() would still report to ThreadSanitizer. */
NOT_JUDGED void landed_fill(void *memory, uint64_t bytes, uint64_t seed, uint64_t start)
{
	volatile uint8_t *to = memory;
	const uint64_t mixed = mix(seed + GOLDEN);

	for (uint64_t i = 0; i < bytes;) {
		uint64_t word = word_at(mixed, (start + i) / 8);

		do {
			to[i] = (uint8_t)(word >> 8 * ((start + i) % 8));
		} while (++i < bytes && (start + i) % 8);
	}
}

NOT_JUDGED uint64_t landed_differs(const void *memory, uint64_t bytes, uint64_t seed, uint64_t start)
{
	const volatile uint8_t *from = memory;
	const uint64_t mixed = mix(seed + GOLDEN);

	for (uint64_t i = 0; i < bytes;) {
		uint64_t word = word_at(mixed, (start + i) / 8);

		do {
			if (from[i] != (uint8_t)(word >> 8 * ((start + i) % 8)))
				return i;
		} while (++i < bytes && (start + i) % 8);
	}
	return bytes;
}

uint64_t rss_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long long size = 0, resident = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%llu %llu", &size, &resident) != 2)
		resident = 0;
	fclose(file);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool thread_sleeps(int thread)
{
	char path[64], text[512] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = thread ? fopen(path, "r") : NULL;
	if (!file)
		return false;
	if (!fgets(text, sizeof(text), file))
		text[0] = 0;
	fclose(file);
	return strstr(text, ") S ");
}

int open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count - 3; /* ".", ".." and the directory itself */
}
