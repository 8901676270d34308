/* Time, random numbers, patterns, and what the process uses. Any thread. */
#include "torture.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * WEFT_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t random_next(struct random *random)
{
	uint64_t x = random->state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint32_t random_below(struct random *random, uint32_t below)
{
	return below ? (uint32_t)((random_next(random) >> 32) * below >> 32) : 0;
}

bool random_chance(struct random *random, uint32_t percent)
{
	return random_below(random, 100) < percent;
}

static uint64_t word_at(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed + i) * UINT64_C(0x9e3779b97f4a7c15);

	return x ^ x >> 29;
}

void pattern_fill(uint8_t *to, uint64_t bytes, uint64_t seed)
{
	uint64_t i = 0, word;

	for (; i + 8 <= bytes; i += 8) {
		word = word_at(seed, i);
		memcpy(to + i, &word, 8);
	}
	word = word_at(seed, i);
	memcpy(to + i, &word, bytes - i);
}

bool pattern_is(const uint8_t *at, uint64_t bytes, uint64_t seed)
{
	uint64_t i = 0, word;

	for (; i + 8 <= bytes; i += 8) {
		word = word_at(seed, i);
		if (memcmp(at + i, &word, 8))
			return false;
	}
	word = word_at(seed, i);
	return !memcmp(at + i, &word, bytes - i);
}

uint64_t rss_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long size = 0, resident = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%lu %lu", &size, &resident) != 2)
		resident = 0;
	fclose(file);
	return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint32_t open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

void list_threads(void)
{
	static const char *const files[] = { "schedstat", "syscall", "wchan" };
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/task");

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		fprintf(stderr, "  thread %s:", entry->d_name);
		for (int i = 0; i < 3; i++) {
			char path[80], text[128] = "";
			FILE *file;

			snprintf(path, sizeof(path), "/proc/self/task/%.20s/%s", entry->d_name, files[i]);
			file = fopen(path, "r");
			if (file && !fgets(text, sizeof(text), file))
				text[0] = 0;
			if (file)
				fclose(file);
			text[strcspn(text, "\n")] = 0;
			fprintf(stderr, " %s;", text);
		}
		fprintf(stderr, "\n");
	}
	if (dir)
		closedir(dir);
}

void nap_ms(uint32_t ms)
{
	struct timespec nap = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&nap, NULL);
}
