/* Time, random numbers, patterns, and a watchdog that measures how late this machine wakes its threads. Any
 * thread. */
#include "torture.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUCKET_NS UINT64_C(50000000)
#define WATCHERS  16
#define BUCKETS	  4096

static _Atomic uint64_t lateness[BUCKETS];
static _Atomic int watching;
static pthread_t watcher[WATCHERS];
static uint32_t watchers;

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

/* Lateness only grows while its bucket is current: several watchers write, the first one empties the next
 * bucket. */
static void note_lateness(uint64_t bucket, uint64_t late)
{
	uint64_t seen = atomic_load(&lateness[bucket % BUCKETS]);

	while (late > seen && !atomic_compare_exchange_weak(&lateness[bucket % BUCKETS], &seen, late))
		;
}

/* One for each CPU, on it: engines pin their workers. */
static void *watch(void *argument)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	uintptr_t cpu = (uintptr_t)argument;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);

	while (atomic_load(&watching)) {
		uint64_t before = now_ns(), after, late;

		nanosleep(&nap, NULL);
		after = now_ns();
		late = after - before - (uint64_t)nap.tv_nsec;
		/* A delay counts for every bucket it covers. Buckets come round after minutes: well before
		 * that one is emptied. */
		for (uint64_t at = before / BUCKET_NS; at <= after / BUCKET_NS; at++)
			note_lateness(at, late);
		if (!cpu)
			atomic_store(&lateness[(after / BUCKET_NS + BUCKETS / 2) % BUCKETS], 0);
	}
	return NULL;
}

void watch_start(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	atomic_store(&watching, 1);
	watchers = cpus < 1 ? 1 : cpus > WATCHERS ? WATCHERS : (uint32_t)cpus;
	for (uintptr_t i = 0; i < watchers; i++)
		pthread_create(&watcher[i], NULL, watch, (void *)i);
}

void watch_stop(void)
{
	atomic_store(&watching, 0);
	for (uint32_t i = 0; i < watchers; i++)
		pthread_join(watcher[i], NULL);
}

uint64_t watch_lateness(uint64_t since_ns)
{
	uint64_t last = now_ns() / BUCKET_NS, first = since_ns / BUCKET_NS, worst = 0;

	if (last - first >= BUCKETS / 2)
		first = last - BUCKETS / 2 + 1;
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
