/* Measures how late this machine wakes threads; watch.h says what for. */
#include "support/clock.h"
#include "support/watch.h"
#include "weft.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BUCKET_NS   UINT64_C(50000000)
#define THREADS     512
#define WATCHERS    16
#define BUCKETS     4096
#define LATE_FACTOR 6 /* threads that only sleep are the least delayed */
#define WAIT_FACTOR 2 /* two threads take part in an end */
#define NAP_NS      UINT64_C(1000000)
#define SETTLE_NS   WEFT_SECOND /* a watcher that has not looked by then is delayed itself, and counts as that */

static _Atomic uint64_t lateness[BUCKETS]; /* the worst within a bucket's time */
static _Atomic uint64_t delays[BUCKETS];   /* the most that one of our threads waited for a CPU in it */
static _Atomic int watching;
static pthread_t watcher[WATCHERS];
static _Atomic uint64_t asleep_ns[WATCHERS]; /* since when each naps; 0: it does not */
static uint32_t watchers;

/* When the last recorded nap of each watcher and the last look at the run queues began. Under the lock. */
static uint64_t napped_ns[WATCHERS], sampled_ns;
static pthread_mutex_t noted_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t noted;

/* Lateness only grows while its bucket is current: several watchers write, and the first one empties the next
 * bucket. */
static void note_lateness(uint64_t bucket, uint64_t late)
{
	uint64_t seen = atomic_load(&lateness[bucket % BUCKETS]);

	while (late > seen && !atomic_compare_exchange_weak(&lateness[bucket % BUCKETS], &seen, late))
		;
}

/* How long our threads stood in the run queue: a busy thread waits far longer for its CPU than one that mostly
 * sleeps. */
static uint64_t run_delay(const char *process, const char *task)
{
	char path[80];
	unsigned long long ran = 0, waited = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%.20s/task/%.20s/schedstat", process, task);
	file = fopen(path, "r");
	if (file && fscanf(file, "%llu %llu", &ran, &waited) != 2)
		waited = 0;
	if (file)
		fclose(file);
	return waited;
}

static void sample_run_delays(uint64_t bucket)
{
	static struct {
		long task;
		uint64_t waited;
	} seen[THREADS];
	uint64_t worst = 0, waited;
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/task");

	while (dir && (entry = readdir(dir))) {
		long task = atol(entry->d_name);
		uint64_t before = seen[task % THREADS].task == task ? seen[task % THREADS].waited : 0;

		if (!task)
			continue;
		waited = run_delay("self", entry->d_name);
		/* Less than before: it has ended just now, or another thread has its number. */
		if (waited >= before && waited - before > worst)
			worst = waited - before;
		seen[task % THREADS].task = task;
		seen[task % THREADS].waited = waited;
	}
	if (dir)
		closedir(dir);
	atomic_store(&delays[bucket % BUCKETS], worst);
}

/* Also wakes the threads that wait for it. */
static void note(uint64_t *what, uint64_t began_ns)
{
	pthread_mutex_lock(&noted_lock);
	*what = began_ns;
	pthread_cond_broadcast(&noted);
	pthread_mutex_unlock(&noted_lock);
}

/* One watcher per CPU, pinned to it, because engines pin their workers. */
static void *watch(void *argument)
{
	struct timespec nap = { .tv_nsec = NAP_NS };
	uintptr_t cpu = (uintptr_t)argument;
	uint64_t sampled = now_ns() / BUCKET_NS;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);

	while (atomic_load(&watching)) {
		uint64_t before = now_ns(), after, late;

		atomic_store(&asleep_ns[cpu], before);
		nanosleep(&nap, NULL);
		after = now_ns();
		late = after - before - NAP_NS;
		/* A delay counts for every bucket that it covers. Buckets are reused after minutes, and emptied well
		 * before. */
		for (uint64_t at = before / BUCKET_NS; at <= after / BUCKET_NS; at++)
			note_lateness(at, late);
		atomic_store(&asleep_ns[cpu], 0);
		note(&napped_ns[cpu], before);
		if (!cpu && after / BUCKET_NS != sampled) {
			sample_run_delays(sampled = after / BUCKET_NS);
			note(&sampled_ns, after);
		}
		if (!cpu)
			atomic_store(&lateness[(after / BUCKET_NS + BUCKETS / 2) % BUCKETS], 0);
	}
	return NULL;
}

void watch_start(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&noted, &monotonic);
	pthread_condattr_destroy(&monotonic);
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
	watchers = 0;
	pthread_cond_destroy(&noted);
}

static bool all_noted_since(uint64_t since_ns)
{
	bool all = sampled_ns >= since_ns;

	for (uint32_t i = 0; i < watchers; i++)
		all &= napped_ns[i] >= since_ns;
	return all;
}

void watch_settle(void)
{
	uint64_t since_ns = now_ns(), limit_ns = since_ns + SETTLE_NS;
	struct timespec limit = { (time_t)(limit_ns / WEFT_SECOND), (long)(limit_ns % WEFT_SECOND) };
	int error = 0;

	pthread_mutex_lock(&noted_lock);
	while (watchers && !error && !all_noted_since(since_ns))
		error = pthread_cond_timedwait(&noted, &noted_lock, &limit);
	pthread_mutex_unlock(&noted_lock);
}

/* How much the watchers that should be awake have overslept up to now. */
static uint64_t oversleeping(uint64_t now)
{
	uint64_t worst = 0;

	for (uint32_t i = 0; i < watchers; i++) {
		uint64_t since = atomic_load(&asleep_ns[i]);

		if (since && since + NAP_NS < now && now - since - NAP_NS > worst)
			worst = now - since - NAP_NS;
	}
	return worst;
}

uint64_t watch_lateness(uint64_t since_ns)
{
	uint64_t now = now_ns(), last = now / BUCKET_NS, first = since_ns / BUCKET_NS;
	uint64_t worst = oversleeping(now);

	if (last - first >= BUCKETS / 2)
		first = last - BUCKETS / 2 + 1;
	for (; first <= last; first++) {
		uint64_t late = atomic_load(&lateness[first % BUCKETS]);

		worst = late > worst ? late : worst;
	}
	return worst;
}

uint64_t watch_waited(uint64_t since_ns)
{
	uint64_t last = now_ns() / BUCKET_NS, first = since_ns / BUCKET_NS, sum = 0;

	if (last - first >= BUCKETS / 2)
		first = last - BUCKETS / 2 + 1;
	for (; first <= last; first++)
		sum += atomic_load(&delays[first % BUCKETS]);
	return sum;
}

uint64_t watch_excuse(uint64_t since_ns)
{
	return LATE_FACTOR * watch_lateness(since_ns) + WAIT_FACTOR * watch_waited(since_ns);
}

bool watch_is_late(uint64_t since_ns, uint64_t at_ns, uint64_t allowed_ns)
{
	if (at_ns < since_ns || at_ns - since_ns <= allowed_ns)
		return false;
	watch_settle();
	return at_ns - since_ns > allowed_ns + watch_excuse(since_ns);
}

uint64_t watch_process(pid_t pid)
{
	char process[24], path[64];
	uint64_t worst = 0;
	struct dirent *entry;
	DIR *dir;

	snprintf(process, sizeof(process), "%d", (int)pid);
	snprintf(path, sizeof(path), "/proc/%s/task", process);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		uint64_t waited = entry->d_name[0] == '.' ? 0 : run_delay(process, entry->d_name);

		worst = waited > worst ? waited : worst;
	}
	if (dir)
		closedir(dir);
	return worst;
}
