/*
 * What submitting costs the caller: a paged write of one page and one of 100,000, over shared memory between
 * two processes. Submitting is promised to be O(1) but for copying the indices, which are the caller's again
 * at once; so the copy is measured by itself and taken off. Medians; nothing here passes or fails.
 *
 * usage: submit [--json] [--pages N] [--rounds N] [--transfers N]
 */
#include "other.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 64u

struct setup {
	uint32_t pages;
	int rounds;
	weft_engine *engine;
	weft_queue *queue;
	weft_region region;
	weft_remote remote;
	uint32_t *from, *to, *copy;
};

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static uint64_t median(uint64_t *sample, int count)
{
	qsort(sample, (size_t)count, sizeof(*sample), by_size);
	return sample[count / 2];
}

static void shuffle(uint32_t *index, uint32_t count, uint64_t seed)
{
	for (uint32_t i = 0; i < count; i++)
		index[i] = i;
	for (uint32_t i = count; i > 1; i--) {
		uint32_t other, kept = index[i - 1];

		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
		other = (uint32_t)((seed >> 33) % i);
		index[i - 1] = index[other];
		index[other] = kept;
	}
}

/* One write: how long the call took, after which its end is waited for. */
static int submit(struct setup *setup, uint32_t count, uint64_t *ret_ns)
{
	struct weft_pages pages = { .page_bytes = PAGE,
				    .count = count,
				    .from = setup->region,
				    .from_index = setup->from,
				    .to = setup->remote,
				    .to_index = setup->to };
	struct weft_op op = { .queue = setup->queue, .tag = 1 };
	uint64_t before = bench_now_ns();
	int error = weft_write_pages(setup->engine, &pages, &op, NULL);
	struct weft_event event;

	*ret_ns = bench_now_ns() - before;
	if (error)
		return error;
	do {
		int got = weft_queue_wait(setup->queue, &event, 1, 20 * WEFT_SECOND);

		if (got != 1)
			return got < 0 ? got : -ETIMEDOUT;
		error = event.status;
		weft_event_release(&event);
	} while (event.type != WEFT_EVENT_END);
	return error;
}

static uint64_t copy_indices(struct setup *setup, uint32_t count)
{
	uint64_t before = bench_now_ns();

	memcpy(setup->copy, setup->from, count * sizeof(uint32_t));
	memcpy(setup->copy + count, setup->to, count * sizeof(uint32_t));
	/* As the engine must: whoever reads the copy next is another thread. */
	__asm__ volatile("" : : "r"(setup->copy) : "memory");
	return bench_now_ns() - before;
}

struct result {
	uint64_t one_ns, many_ns, copy_ns, first_ns;
};

static int measure(struct setup *setup, struct result *result)
{
	uint64_t *one = calloc((size_t)setup->rounds, sizeof(*one)),
		 *many = calloc((size_t)setup->rounds, sizeof(*many));
	uint64_t *copy = calloc((size_t)setup->rounds, sizeof(*copy)), unused;
	int error = one && many && copy ? submit(setup, setup->pages, &result->first_ns) : -ENOMEM;

	for (int i = 0; !error && i < 20; i++)
		if (!(error = submit(setup, 1, &unused)))
			error = submit(setup, setup->pages, &unused);
	for (int i = 0; !error && i < setup->rounds; i++) {
		/* Both the call and the copy come right after a large transfer, so that neither finds the
		 * indices warmer. */
		if (!(error = submit(setup, 1, &one[i])) && !(error = submit(setup, setup->pages, &unused)) &&
		    !(error = submit(setup, setup->pages, &many[i])))
			copy[i] = copy_indices(setup, setup->pages);
	}
	if (!error) {
		result->one_ns = median(one, setup->rounds);
		result->many_ns = median(many, setup->rounds);
		result->copy_ns = median(copy, setup->rounds);
	}
	free(one);
	free(many);
	free(copy);
	return error;
}

static void report(const struct setup *setup, const struct result *result, bool json)
{
	int64_t rest = (int64_t)result->many_ns - (int64_t)result->copy_ns;
	double ratio = (double)(rest > 0 ? rest : 0) / (double)result->one_ns;

	if (json) {
		printf("{\"pages\": %u, \"rounds\": %d, \"one_page_ns\": %llu, \"many_pages_ns\": %llu, "
		       "\"copy_ns\": %llu, "
		       "\"first_many_ns\": %llu, \"ratio\": %.2f}\n",
		       setup->pages, setup->rounds, (unsigned long long)result->one_ns,
		       (unsigned long long)result->many_ns, (unsigned long long)result->copy_ns,
		       (unsigned long long)result->first_ns, ratio);
		return;
	}
	printf("submitting a paged write, the caller's time (medians of %d)\n", setup->rounds);
	printf("  1 page           %10.2f us\n", (double)result->one_ns / 1e3);
	printf("  %-7u pages    %10.2f us   the first of them %.2f us\n", setup->pages,
	       (double)result->many_ns / 1e3, (double)result->first_ns / 1e3);
	printf("  copying indices  %10.2f us\n", (double)result->copy_ns / 1e3);
	printf("  without the copy %10.2f us   %.2f times one page\n", (double)rest / 1e3, ratio);
}

static int open_here(struct setup *setup, const struct weft_config *config, struct other *other)
{
	uint64_t bytes = (uint64_t)setup->pages * PAGE;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	weft_peer peer;
	int error;

	setup->from = malloc(setup->pages * sizeof(uint32_t));
	setup->to = malloc(setup->pages * sizeof(uint32_t));
	setup->copy = calloc(2 * (size_t)setup->pages, sizeof(uint32_t));
	if (memory == MAP_FAILED || !setup->from || !setup->to || !setup->copy)
		return -ENOMEM;
	shuffle(setup->from, setup->pages, 1);
	shuffle(setup->to, setup->pages, 2);
	if ((error = weft_open(config, &setup->engine)) ||
	    (error = weft_queue_open(setup->engine, &setup->queue)) ||
	    (error = weft_region_register(setup->engine, memory, bytes, 0, &setup->region)))
		return error;
	return other_connect(other, setup->engine, setup->queue, &peer, &setup->remote);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },	    { "pages", required_argument, NULL, 'p' },
		{ "rounds", required_argument, NULL, 'r' }, { "transfers", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },	    { NULL, 0, NULL, 0 },
	};
	struct weft_config config = WEFT_CONFIG_INIT;
	struct setup setup = { .pages = 100000, .rounds = 51 };
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
		else if (option == 'r' && atoi(optarg) > 0)
			setup.rounds = atoi(optarg);
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
	weft_close(setup.engine);
	other_stop(&other);
	return error ? 1 : 0;
}
