/*
 * How soon a word starts an operation: from a thread's store to the first and only piece of a write in the peer's memory, and to
 * its end word, after the operation has waited for some time; and what waiting costs. Two engines in this process, over the local
 * rail, where a piece that is posted has landed. "one thread" is the engine's own share: the thread that stores the word turns the
 * engine, so that neither another core nor the scheduler takes part. Nothing here passes or fails.
 *
 * usage: word [--rounds N] [--provider NAME]
 */
#include "../tests/support/clock.h"
#include "weft.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES  UINT64_C(65536)
#define PIECE  64 /* bytes of a write */
#define ROUNDS 100000
#define MANY   1000

struct side {
	weft_engine *engine;
	weft_queue *queue;
	weft_region region;
	void *memory;
};

static uint64_t word, others[MANY];

static void must(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "word: %s: %s\n", what, weft_strerror(error));
	exit(1);
}

static void open_side(struct side *side, const char *provider, uint32_t flags)
{
	struct weft_config config = WEFT_CONFIG_INIT;

	config.provider = provider;
	config.max_transfers = 4 * MANY;
	config.flags = flags;
	must(weft_engine_open(&config, &side->engine, NULL, 0), "weft_engine_open");
	must(weft_queue_open(side->engine, WEFT_QUEUE_LISTEN, &side->queue), "weft_queue_open");
	must(weft_memory_alloc(side->engine, BYTES, NULL, &side->memory), "weft_memory_alloc");
	must(weft_region_register(side->engine, side->memory, BYTES, WEFT_REMOTE_WRITE, &side->region),
	     "weft_region_register");
}

static weft_remote connect_to(struct side *here, struct side *there)
{
	char blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);
	weft_remote remote;
	weft_peer peer;

	must(weft_engine_address(there->engine, blob, &bytes), "weft_engine_address");
	must(weft_peer_add(here->engine, blob, bytes, NULL, &peer), "weft_peer_add");
	bytes = sizeof(blob);
	must(weft_region_export(there->engine, there->region, blob, &bytes), "weft_region_export");
	must(weft_remote_import(here->engine, peer, blob, bytes, &remote), "weft_remote_import");
	return remote;
}

static void pause_for(uint64_t ns)
{
	struct timespec time = { .tv_sec = (time_t)(ns / WEFT_SECOND), .tv_nsec = (long)(ns % WEFT_SECOND) };

	nanosleep(&time, NULL);
}

static uint64_t load(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

struct setup {
	struct side here, there;
	bool manual; /* here */
	weft_remote remote;
	uint64_t value, end_word;
	uint64_t landed_ns[ROUNDS], ended_ns[ROUNDS];
};

/* Submits a write, lets it wait, stores its word, and measures. */
static void round_of(struct setup *setup, uint64_t wait_ns, uint64_t *ret_landed, uint64_t *ret_ended)
{
	struct weft_write write = { sizeof(write), setup->here.region, 0, setup->remote, 0, PIECE };
	uint64_t *source = setup->here.memory, *target = setup->there.memory, start;
	struct weft_op op = { .size = sizeof(op), .start_word = &word, .end_word = &setup->end_word };

	op.start_value = op.end_value = ++setup->value;
	must(weft_write(setup->here.engine, &write, &op, NULL), "weft_write");
	if (setup->manual)
		for (int turn = 0; turn < 20; turn++)
			weft_engine_progress(setup->here.engine);
	else
		pause_for(wait_ns);
	source[0] = setup->value;
	start = now_ns();
	__atomic_store_n(&word, setup->value, __ATOMIC_RELEASE);
	while (load(target) != setup->value)
		if (setup->manual)
			weft_engine_progress(setup->here.engine);
	*ret_landed = now_ns() - start;
	while (load(&setup->end_word) != setup->value)
		if (setup->manual)
			weft_engine_progress(setup->here.engine);
	*ret_ended = now_ns() - start;
}

static void measure(struct setup *setup, const char *name, uint64_t wait_ns, uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds; i++)
		round_of(setup, wait_ns, &setup->landed_ns[i], &setup->ended_ns[i]);
	qsort(setup->landed_ns, rounds, sizeof(setup->landed_ns[0]), by_size);
	qsort(setup->ended_ns, rounds, sizeof(setup->ended_ns[0]), by_size);
	printf("%-28s %10.1f %10.1f %10.1f %10.1f %10.1f %8u\n", name, (double)setup->landed_ns[0] / 1e3,
	       (double)setup->landed_ns[rounds / 2] / 1e3, (double)setup->landed_ns[(uint64_t)rounds * 99 / 100] / 1e3,
	       (double)setup->ended_ns[rounds / 2] / 1e3, (double)setup->ended_ns[(uint64_t)rounds * 99 / 100] / 1e3,
	       rounds);
	fflush(stdout);
}

/* What the process uses while an operation waits for a word that does not come. */
static void measure_cpu(struct setup *setup, uint64_t after_ns, uint64_t for_ns)
{
	uint64_t cpu, start;

	pause_for(after_ns);
	start = now_ns();
	cpu = cpu_ns();
	pause_for(for_ns);
	printf("%6.3f s after it was submitted, for %.3f s: %6.1f %% of a core\n", (double)after_ns / 1e9,
	       (double)for_ns / 1e9, 100 * (double)(cpu_ns() - cpu) / (double)(now_ns() - start));
	fflush(stdout);
}

static void wait_for_nothing(struct setup *setup, const uint64_t *at)
{
	struct weft_write write = { sizeof(write), setup->here.region, 0, setup->remote, 0, PIECE };
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER, .start_word = at };

	op.start_value = load(at) + 1000000;
	must(weft_write(setup->here.engine, &write, &op, NULL), "weft_write");
}

static void wait_for_many(struct setup *setup)
{
	for (uint32_t i = 0; i < MANY; i++)
		wait_for_nothing(setup, &others[i]);
}

/* Opens our engine and connects it; the first rounds are not measured. */
static void begin(struct setup *setup, const char *provider, uint32_t flags)
{
	uint64_t unused;

	open_side(&setup->here, provider, flags);
	setup->manual = flags & WEFT_MANUAL_PROGRESS;
	setup->remote = connect_to(&setup->here, &setup->there);
	for (int i = 0; i < 100; i++)
		round_of(setup, 0, &unused, &unused);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "rounds", required_argument, NULL, 'r' },
						 { "provider", required_argument, NULL, 'p' },
						 { NULL, 0, NULL, 0 } };
	static struct setup setup;
	const char *provider = "local";
	uint32_t rounds = 2000;
	int option;

	while ((option = getopt_long(argc, argv, "r:p:", options, NULL)) != -1) {
		if (option == 'r' && atoi(optarg) > 0 && atoi(optarg) <= ROUNDS) {
			rounds = (uint32_t)atoi(optarg);
		} else if (option == 'p') {
			provider = optarg;
		} else {
			fprintf(stderr, "usage: word [--rounds N] [--provider NAME]\n");
			return 2;
		}
	}
	open_side(&setup.there, provider, 0);
	printf("us from the store of a word, %s\n%-28s %10s %10s %10s %10s %10s %8s\n", provider, "it has waited for",
	       "least", "landed p50", "p99", "ended p50", "p99", "rounds");
	begin(&setup, provider, WEFT_MANUAL_PROGRESS);
	measure(&setup, "20 turns, one thread", 0, rounds);
	wait_for_many(&setup);
	measure(&setup, "the same, 1000 words beside", 0, rounds);
	weft_engine_close(setup.here.engine);
	begin(&setup, provider, 0);
	measure(&setup, "100 us", 100 * WEFT_MICROSECOND, rounds);
	measure(&setup, "10 ms", 10 * WEFT_MILLISECOND, rounds / 20 + 1);
	measure(&setup, "100 ms", 100 * WEFT_MILLISECOND, rounds / 100 + 1);
	measure(&setup, "2 s", 2 * WEFT_SECOND, 5);
	wait_for_many(&setup);
	measure(&setup, "100 us, 1000 words beside", 100 * WEFT_MICROSECOND, rounds);
	weft_engine_close(setup.here.engine);
	begin(&setup, provider, 0);
	printf("an operation waits for a word that does not come\n");
	wait_for_nothing(&setup, &others[0]);
	measure_cpu(&setup, 0, 15 * WEFT_MILLISECOND);
	measure_cpu(&setup, 20 * WEFT_MILLISECOND, 50 * WEFT_MILLISECOND);
	measure_cpu(&setup, 2 * WEFT_SECOND, 2 * WEFT_SECOND);
	weft_engine_close(setup.here.engine);
	weft_engine_close(setup.there.engine);
	return 0;
}
