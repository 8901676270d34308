/*
 * What submitting costs the caller: a paged write of one page and one of 100,000, over shared memory between two
 * processes. Submitting is promised to be O(1) apart from copying the indices, which the caller may reuse at once; so
 * the copy is measured separately and subtracted. Nothing here passes or fails.
 *
 * The rest is small against the copy, so both are measured alike: CPU time of the calling thread, in turn; the lists
 * recently read, as by a caller that made them; the destination last read by another thread, as the engine's memory is
 * by its worker; and that worker asleep. The copy is the faster one of memcpy() and a loop. The difference is taken per
 * round; results are medians.
 *
 * usage: submit [--json] [--pages N] [--rounds N] [--transfers N]
 */
#include "other.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE       64u
#define ROUNDS_MAX 10000

struct setup {
	uint32_t pages;
	int rounds;
	weft_engine *engine;
	weft_queue *queue;
	weft_region region;
	weft_remote remote;
	uint32_t *from, *to, *copy;
	sem_t copied, read; /* to and from the thread that reads the copy */
};

static int by_size(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int64_t median(int64_t *sample, int count)
{
	qsort(sample, (size_t)count, sizeof(*sample), by_size);
	return sample[count / 2];
}

/* Neighbouring pages: the transfer itself, which is not measured, then ends soon. */
static void fill(uint32_t *index, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		index[i] = i;
}

static void look_at(const uint32_t *index, uint64_t count)
{
	uint32_t sum = 0;

	for (uint64_t i = 0; i < count; i++)
		sum += index[i];
	__asm__ volatile("" : : "r"(sum));
}

/* The same state before every sample: the worker goes to sleep, and the lists are read. */
static void prepare(struct setup *setup)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	look_at(setup->from, setup->pages);
	look_at(setup->to, setup->pages);
}

/* Submits one write, measures the call, then waits for its end. */
static int submit(struct setup *setup, uint32_t count, int64_t *ret_ns)
{
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = PAGE,
					  .count = count,
					  .from = setup->region,
					  .from_index = setup->from,
					  .to = setup->remote,
					  .to_index = setup->to };
	struct weft_op op = { .size = sizeof(op), .queue = setup->queue, .tag = 1 };
	struct weft_event event;
	uint64_t before;
	int error;

	prepare(setup);
	before = thread_cpu_ns();
	error = weft_write_pages(setup->engine, &pages, &op, NULL);
	*ret_ns = (int64_t)(thread_cpu_ns() - before);
	if (error)
		return error;
	do {
		int got = weft_queue_wait(setup->queue, &event, sizeof(event), 1, 20 * WEFT_SECOND);

		if (got != 1)
			return got < 0 ? got : -ETIMEDOUT;
		error = event.status;
		weft_event_release(&event);
	} while (event.type != WEFT_EVENT_END);
	return error;
}

/* The thread that reads the copy, in place of a worker. */
static void *read_copies(void *argument)
{
	struct setup *setup = argument;

	for (;;) {
		while (sem_wait(&setup->copied))
			;
		look_at(setup->copy, 2 * (uint64_t)setup->pages);
		sem_post(&setup->read);
	}
	return NULL;
}

/* A loop like the engine's, without its check: on some CPUs memcpy() is slower for such sizes. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&              \
    !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("avx2", "default"), optimize("no-tree-loop-distribute-patterns")))
#endif
static void
copy_by_loop(uint32_t *restrict copy, const uint32_t *restrict index, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		copy[i] = index[i];
}

static int64_t copy_indices(struct setup *setup, bool loop)
{
	uint32_t *second = setup->copy + setup->pages;
	size_t bytes = setup->pages * sizeof(uint32_t);
	uint64_t before;
	int64_t cost;

	prepare(setup);
	before = thread_cpu_ns();
	if (loop) {
		copy_by_loop(setup->copy, setup->from, setup->pages);
		copy_by_loop(second, setup->to, setup->pages);
	} else {
		memcpy(setup->copy, setup->from, bytes);
		memcpy(second, setup->to, bytes);
	}
	__asm__ volatile("" : : "r"(setup->copy) : "memory");
	cost = (int64_t)(thread_cpu_ns() - before);
	sem_post(&setup->copied);
	while (sem_wait(&setup->read))
		;
	return cost;
}

struct result {
	int64_t one_ns, many_ns, memcpy_ns, loop_ns, rest_ns, first_ns;
};

struct samples {
	int64_t one[ROUNDS_MAX], many[ROUNDS_MAX];
	int64_t copy[2][ROUNDS_MAX], rest[2][ROUNDS_MAX]; /* by memcpy() and by a loop, in alternating rounds */
};

static void sum_up(struct samples *samples, int rounds, struct result *result)
{
	int half = rounds / 2;

	result->one_ns = median(samples->one, rounds);
	result->many_ns = median(samples->many, rounds);
	result->memcpy_ns = median(samples->copy[0], half);
	result->loop_ns = median(samples->copy[1], half);
	result->rest_ns = median(samples->rest[result->loop_ns < result->memcpy_ns], half);
}

/* Each is done twice per round and measured the second time, so that the destination was last written equally long
 * ago for the call and for the copy: one large transfer. */
static int measure(struct setup *setup, struct result *result)
{
	static struct samples samples;
	int64_t unused;
	int error = submit(setup, setup->pages, &result->first_ns);

	for (int i = -4; !error && i < setup->rounds; i++) {
		int at = i < 0 ? 0 : i, half = at / 2;
		bool loop = i & 1;

		if ((error = submit(setup, 1, &samples.one[at])) || (error = submit(setup, setup->pages, &unused)))
			break;
		copy_indices(setup, loop);
		if ((error = submit(setup, setup->pages, &samples.many[at])))
			break;
		samples.copy[loop][half] = copy_indices(setup, loop);
		samples.rest[loop][half] = samples.many[at] - samples.copy[loop][half];
	}
	if (!error)
		sum_up(&samples, setup->rounds, result);
	return error;
}

static void report(const struct setup *setup, const struct result *result, bool json)
{
	double ratio = (double)(result->rest_ns > 0 ? result->rest_ns : 0) / (double)result->one_ns;

	if (json) {
		printf("{\"pages\": %u, \"rounds\": %d, \"one_page_ns\": %lld, \"many_pages_ns\": %lld, "
		       "\"memcpy_ns\": %lld, "
		       "\"loop_ns\": %lld, \"rest_ns\": %lld, \"first_many_ns\": %lld, \"ratio\": %.2f}\n",
		       setup->pages, setup->rounds, (long long)result->one_ns, (long long)result->many_ns,
		       (long long)result->memcpy_ns, (long long)result->loop_ns, (long long)result->rest_ns,
		       (long long)result->first_ns, ratio);
		return;
	}
	printf("submitting a paged write, the caller's processor time (medians of %d rounds)\n", setup->rounds);
	printf("  1 page           %10.2f us\n", (double)result->one_ns / 1e3);
	printf("  %-7u pages    %10.2f us   the first of them %.2f us\n", setup->pages, (double)result->many_ns / 1e3,
	       (double)result->first_ns / 1e3);
	printf("  copying indices  %10.2f us   by memcpy() %.2f us\n", (double)result->loop_ns / 1e3,
	       (double)result->memcpy_ns / 1e3);
	printf("  without the copy %10.2f us   %.2f times one page (the faster copy taken off round by round)\n",
	       (double)result->rest_ns / 1e3, ratio);
}

static int open_here(struct setup *setup, const struct weft_config *config, struct other *other)
{
	uint64_t bytes = (uint64_t)setup->pages * PAGE;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t reader; /* lives until the process ends */
	weft_peer peer;
	int error;

	setup->from = malloc(setup->pages * sizeof(uint32_t));
	setup->to = malloc(setup->pages * sizeof(uint32_t));
	setup->copy = calloc(2 * (size_t)setup->pages, sizeof(uint32_t));
	if (memory == MAP_FAILED || !setup->from || !setup->to || !setup->copy)
		return -ENOMEM;
	sem_init(&setup->copied, 0, 0);
	sem_init(&setup->read, 0, 0);
	if ((error = pthread_create(&reader, NULL, read_copies, setup)))
		return -error;
	fill(setup->from, setup->pages);
	fill(setup->to, setup->pages);
	if ((error = weft_engine_open(config, &setup->engine, NULL, 0)) ||
	    (error = weft_queue_open(setup->engine, WEFT_QUEUE_LISTEN, &setup->queue)) ||
	    (error = weft_region_register(setup->engine, memory, bytes, 0, &setup->region)))
		return error;
	return other_connect(other, setup->engine, setup->queue, &peer, &setup->remote);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },         { "pages", required_argument, NULL, 'p' },
		{ "rounds", required_argument, NULL, 'r' }, { "transfers", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },         { NULL, 0, NULL, 0 },
	};
	struct weft_config config = WEFT_CONFIG_INIT;
	static struct setup setup = { .pages = 100000, .rounds = 800 };
	static struct other other;
	struct result result = { 0 };
	bool json = false;
	int option, error;

	config.provider = "shm";
	while ((option = getopt_long(argc, argv, "jp:r:t:h", options, NULL)) != -1) {
		if (option == 'j')
			json = true;
		else if (option == 'p' && atoi(optarg) > 0)
			setup.pages = (uint32_t)atoi(optarg);
		else if (option == 'r' && atoi(optarg) > 1 && atoi(optarg) <= ROUNDS_MAX)
			setup.rounds = atoi(optarg) / 2 * 2;
		else if (option == 't' && atoi(optarg) > 0)
			config.max_transfers = (uint32_t)atoi(optarg);
		else {
			fprintf(stderr, "usage: submit [--json] [--pages N] [--rounds N] [--transfers N]\n");
			return 2;
		}
	}
	error = other_start(&other, &config, (uint64_t)setup.pages * PAGE);
	if (!error)
		error = open_here(&setup, &config, &other);
	if (!error)
		error = measure(&setup, &result);
	if (error)
		fprintf(stderr, "submit: %s\n", weft_strerror(error));
	else
		report(&setup, &result, json);
	weft_engine_close(setup.engine);
	other_stop(&other);
	return error ? 1 : 0;
}
