/*
 * piece: what an engine costs per 64 KiB piece above the bare loop, over simulated NICs that take no time and copy
 * nothing. One process holds both sides and one thread drives them; the measured part does not touch the receiving
 * side. The work is counted, not timed, so that valgrind's instruction counts repeat: scripts/piece-cost runs this with
 * two lengths and takes the difference.
 */
#include "fab.h"
#include "sim/setup.h"
#include "weft.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 1024, EVENTS = 64, HOUR = 3600 };

struct options {
	const char *sim;
	bool raw, json, call;
	uint64_t pieces, page_bytes, pages, depth, workers; /* 0 workers: this thread drives */
};

struct pair {
	weft_engine *near, *far;
	weft_queue *queue, *far_queue;
	weft_peer peer;
	weft_region from, target;
	weft_remote to;
	char *memory;
	uint64_t bytes;
	uint32_t *from_index, *to_index;
};

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "piece: %s: %s\n", what, weft_strerror(rc));
	exit(1);
}

static weft_engine *open_engine(uint32_t workers)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	weft_engine *engine;

	config.provider = "simfab";
	config.flags = workers ? 0 : WEFT_MANUAL_PROGRESS;
	config.max_workers = workers;
	/* Under valgrind minutes pass and the far side is not driven, so no heartbeat may expire. */
	config.heartbeat_ns = config.peer_limit_ns = config.rail_limit_ns = HOUR * WEFT_SECOND;
	config.timeout_ns = HOUR * WEFT_SECOND;
	check(weft_engine_open(&config, &engine, NULL, 0), "weft_engine_open");
	return engine;
}

static void join(struct pair *pair, const struct options *options)
{
	static uint8_t blob[65536];
	uint64_t deadline = now_ns() + 60 * WEFT_SECOND;
	struct weft_peer_info info = { 0 };
	struct weft_engine_info engine;
	struct weft_event event;
	size_t bytes = sizeof blob;

	check(weft_engine_address(pair->far, blob, &bytes), "weft_engine_address");
	check(weft_peer_add(pair->near, blob, bytes, NULL, &pair->peer), "weft_peer_add");
	bytes = sizeof blob;
	check(weft_region_export(pair->far, pair->target, blob, &bytes), "weft_region_export");
	check(weft_remote_import(pair->near, pair->peer, blob, bytes, &pair->to), "weft_remote_import");
	check(weft_engine_info(pair->near, &engine, sizeof(engine)), "weft_engine_info");
	/* Waits for every path, not only the first: the rest of opening must not be counted, and the far side rests
	 * later. */
	for (uint64_t turn = 0; info.paths < engine.rails || turn < 20000; turn++) {
		if (!options->workers)
			weft_engine_progress(pair->near);
		weft_engine_progress(pair->far);
		while (weft_queue_poll(pair->queue, &event, sizeof(event), 1) > 0 ||
		       weft_queue_poll(pair->far_queue, &event, sizeof(event), 1) > 0)
			weft_event_release(&event);
		check(weft_peer_info(pair->near, pair->peer, &info, sizeof(info)), "weft_peer_info");
		check(now_ns() > deadline ? -ETIMEDOUT : 0, "waiting for the peer");
	}
}

static void open_pair(struct pair *pair, const struct options *options)
{
	pair->bytes = SLOTS * options->page_bytes;
	pair->memory = mmap(NULL, 2 * pair->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pair->memory == MAP_FAILED)
		check(-ENOMEM, "memory");
	pair->near = open_engine((uint32_t)options->workers);
	pair->far = open_engine(0);
	check(weft_queue_open(pair->near, WEFT_QUEUE_LISTEN, &pair->queue), "weft_queue_open");
	check(weft_queue_open(pair->far, WEFT_QUEUE_LISTEN, &pair->far_queue), "weft_queue_open");
	check(weft_region_register(pair->near, pair->memory, pair->bytes, 0, &pair->from), "register");
	check(
	    weft_region_register(pair->far, pair->memory + pair->bytes, pair->bytes, WEFT_REMOTE_WRITE, &pair->target),
	    "register");
	join(pair, options);
}

static void close_pair(struct pair *pair)
{
	check(weft_engine_close(pair->near), "weft_engine_close");
	check(weft_engine_close(pair->far), "weft_engine_close");
	munmap(pair->memory, 2 * pair->bytes);
}

/* Returns ns from the first submission to the last end taken. */
static uint64_t run_weft(struct pair *pair, const struct options *options, uint64_t transfers)
{
	uint64_t submitted = 0, ended = 0, start = now_ns();
	struct weft_op op = { .size = sizeof(op), .queue = pair->queue };
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = options->page_bytes,
					  .count = options->pages,
					  .from = pair->from,
					  .to = pair->to };
	struct weft_event event[EVENTS];

	while (ended < transfers) {
		while (submitted < transfers && submitted - ended < options->depth) {
			uint64_t at = submitted * options->pages % (SLOTS - options->pages + 1);

			pages.from_index = pair->from_index + at;
			pages.to_index = pair->to_index + at;
			check(weft_write_pages(pair->near, &pages, &op, NULL), "weft_write_pages");
			submitted++;
		}
		if (!options->workers)
			weft_engine_progress(pair->near);
		int got = options->workers
			      ? weft_queue_wait(pair->queue, event, sizeof(*event), EVENTS, WEFT_MILLISECOND)
			      : weft_queue_poll(pair->queue, event, sizeof(*event), EVENTS);
		check(got, "weft_queue_poll");
		for (int i = 0; i < got; i++) {
			ended += event[i].type == WEFT_EVENT_END;
			check(event[i].type == WEFT_EVENT_END ? event[i].status : 0, "a transfer");
			weft_event_release(&event[i]);
		}
	}
	return now_ns() - start;
}

/* scripts/piece-cost counts these two functions and what they call, nothing of opening and closing. */
__attribute__((noinline)) static uint64_t counted_weft(struct pair *pair, const struct options *options)
{
	return run_weft(pair, options, options->pieces / options->pages);
}

__attribute__((noinline)) static uint64_t counted_raw(struct fab_load *load)
{
	uint64_t start = now_ns();

	while (load->left || fab_busy(load->fab))
		fab_turn(load);
	return now_ns() - start;
}

static uint64_t measure_weft(const struct options *options, uint32_t *from, uint32_t *to)
{
	struct pair pair = { .from_index = from, .to_index = to };
	uint64_t ns;

	open_pair(&pair, options);
	run_weft(&pair, options, 4 * options->depth);
	ns = counted_weft(&pair, options);
	close_pair(&pair);
	return ns;
}

static uint64_t measure_raw(const struct options *options, uint32_t *from, uint32_t *to)
{
	static struct fab near, far;
	static struct fab_card card;
	struct fab_load load = { .fab = &near,
				 .page_bytes = options->page_bytes,
				 .from = from,
				 .to = to,
				 .count = SLOTS,
				 .depth = 32,
				 .batch = 16,
				 .iovs = 1 };
	uint64_t ns;

	fab_open(&near, "simfab", SLOTS * options->page_bytes, false);
	fab_open(&far, "simfab", SLOTS * options->page_bytes, false);
	fab_card(&far, &card);
	fab_meet(&near, &card);
	fab_warm(&load);
	load.left = options->pieces;
	ns = counted_raw(&load);
	fab_close(&near);
	fab_close(&far);
	return ns;
}

/* Sends a 64-byte message there and back, driving both sides in turn: nothing ever waits. */
static uint64_t run_calls(struct pair *pair, uint64_t calls)
{
	uint64_t start = now_ns();
	struct weft_op op = { .size = sizeof(op), .queue = pair->queue };
	struct weft_event event;
	char data[64] = { 0 };

	for (uint64_t i = 0; i < calls; i++) {
		check(weft_call(pair->near, pair->peer, i, data, sizeof data, &op, NULL), "weft_call");
		for (bool ended = false; !ended;) {
			weft_engine_progress(pair->near);
			weft_engine_progress(pair->far);
			while (weft_queue_poll(pair->far_queue, &event, sizeof(event), 1) > 0) {
				if (event.type == WEFT_EVENT_CALL)
					check(weft_reply(pair->far, event.peer, event.call, 0, event.data, event.bytes,
							 NULL, NULL),
					      "weft_reply");
				weft_event_release(&event);
			}
			weft_engine_progress(pair->far);
			weft_engine_progress(pair->near);
			while (weft_queue_poll(pair->queue, &event, sizeof(event), 1) > 0) {
				ended |= event.type == WEFT_EVENT_REPLY;
				check(event.type == WEFT_EVENT_REPLY ? event.status : 0, "a call");
				weft_event_release(&event);
			}
		}
	}
	return now_ns() - start;
}

/* The part that is counted under valgrind, as with pieces. */
__attribute__((noinline)) static uint64_t counted_calls(struct pair *pair, uint64_t calls)
{
	return run_calls(pair, calls);
}

static uint64_t measure_calls(const struct options *options)
{
	struct pair pair = { 0 };
	uint64_t ns;

	open_pair(&pair, options);
	run_calls(&pair, 1000);
	ns = counted_calls(&pair, options->pieces);
	close_pair(&pair);
	return ns;
}

static uint64_t measure_raw_calls(const struct options *options)
{
	static struct fab near, far;
	static struct fab_card card;
	uint64_t start;
	int slot;

	fab_open(&near, "simfab", SLOTS * options->page_bytes, false);
	fab_open(&far, "simfab", SLOTS * options->page_bytes, false);
	fab_card(&far, &card);
	fab_meet(&near, &card);
	fab_card(&near, &card);
	fab_meet(&far, &card);
	for (unsigned i = 0; i < FAB_RECEIVES; i++) {
		fab_receive(&near, i);
		fab_receive(&far, i);
	}
	start = now_ns();
	for (uint64_t i = 0; i < options->pieces; i++) {
		fab_send(&near, 64);
		while ((slot = fab_arrived(&far)) < 0)
			;
		fab_send(&far, 64);
		fab_receive(&far, (unsigned)slot);
		while ((slot = fab_arrived(&near)) < 0)
			;
		fab_receive(&near, (unsigned)slot);
	}
	start = now_ns() - start;
	fab_close(&near);
	fab_close(&far);
	return start;
}

static int parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = { { "raw", 0, 0, 'r' },       { "sim", 1, 0, 's' },
					       { "pieces", 1, 0, 'n' },    { "pages", 1, 0, 'p' },
					       { "page-size", 1, 0, 'b' }, { "json", 0, 0, 'j' },
					       { "call", 0, 0, 'c' },      { "depth", 1, 0, 'd' },
					       { "workers", 1, 0, 'w' },   { 0 } };
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'r')
			options->raw = true;
		else if (c == 's')
			options->sim = optarg;
		else if (c == 'n')
			options->pieces = strtoull(optarg, NULL, 0);
		else if (c == 'w')
			options->workers = strtoull(optarg, NULL, 0);
		else if (c == 'd')
			options->depth = strtoull(optarg, NULL, 0);
		else if (c == 'p')
			options->pages = strtoull(optarg, NULL, 0);
		else if (c == 'b')
			options->page_bytes = strtoull(optarg, NULL, 0);
		else if (c == 'c')
			options->call = true;
		else if (c == 'j')
			options->json = true;
		else
			return -1;
	}
	return optind == argc && options->pages && options->depth && options->pages <= SLOTS && options->page_bytes
		   ? 0
		   : -1;
}

int main(int argc, char **argv)
{
	struct options options = {
		.sim = "null,copy=none", .pieces = 1000000, .pages = 64, .depth = 16, .page_bytes = 65536
	};
	static uint32_t from[SLOTS], to[SLOTS];
	char why[256];

	if (parse(argc, argv, &options) < 0) {
		fputs("Usage: piece [--call] [--raw] [--workers N] [--sim SPEC] [--pieces N] [--pages N] "
		      "[--depth N] "
		      "[--page-size N] "
		      "[--json]\n",
		      stderr);
		return 2;
	}
	if (wf_sim_setup(options.sim, why, sizeof why)) {
		fprintf(stderr, "piece: %s\n", why);
		return 1;
	}
	alarm(300);
	options.pieces -= options.pieces % options.pages;
	fab_shuffle(from, SLOTS, 1);
	fab_shuffle(to, SLOTS, 2);
	uint64_t ns = options.call  ? (options.raw ? measure_raw_calls(&options) : measure_calls(&options))
		      : options.raw ? measure_raw(&options, from, to)
				    : measure_weft(&options, from, to);
	double each = options.pieces ? (double)ns / (double)options.pieces : 0;
	if (options.json)
		printf("{\"tool\": \"%s\", \"sim\": \"%s\", \"pieces\": %" PRIu64
		       ", \"ns\": %.1f, \"gbps\": %.1f, \"simulated\": true}\n",
		       options.raw ? "raw" : "weft", options.sim, options.pieces, each,
		       each > 0 ? (double)options.page_bytes * 8 / each : 0);
	else
		printf("%s over simulated NICs (%s): %.1f ns a %s\n", options.raw ? "raw" : "weft", options.sim, each,
		       options.call ? "call" : "piece");
	return 0;
}
