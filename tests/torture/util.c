/* Time, random numbers, patterns, and a watchdog that measures how late this machine wakes its threads. Any
 * thread. */
#include "torture.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUCKET_NS UINT64_C(50000000)
#define BUCKETS	  4096

static _Atomic uint64_t lateness[BUCKETS];
static _Atomic int watching;
static pthread_t watcher;

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

static void *watch(void *unused)
{
	struct timespec nap = { .tv_nsec = 1000000 };

	while (atomic_load(&watching)) {
		uint64_t before = now_ns(), after, late;

		nanosleep(&nap, NULL);
		after = now_ns();
		late = after - before - (uint64_t)nap.tv_nsec;
		/* A delay counts for every bucket it covers; each bucket is emptied before its time comes. */
		for (uint64_t at = before / BUCKET_NS; at <= after / BUCKET_NS; at++) {
			if (late > atomic_load(&lateness[at % BUCKETS]))
				atomic_store(&lateness[at % BUCKETS], late);
			atomic_store(&lateness[(at + 1) % BUCKETS], 0);
		}
	}
	return NULL;
}

void watch_start(void)
{
	atomic_store(&watching, 1);
	pthread_create(&watcher, NULL, watch, NULL);
}

void watch_stop(void)
{
	atomic_store(&watching, 0);
	pthread_join(watcher, NULL);
}

uint64_t watch_lateness(uint64_t since_ns)
{
	uint64_t last = now_ns() / BUCKET_NS, first = since_ns / BUCKET_NS, worst = 0;

	if (last - first >= BUCKETS)
		first = last - BUCKETS + 1;
	for (; first <= last; first++) {
		uint64_t late = atomic_load(&lateness[first % BUCKETS]);

		worst = late > worst ? late : worst;
	}
	return worst;
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
