/*
 * pages: raw's job (same options, same pages in the same order, same check) done by weft, so that the two differ only
 * in the engine. With --adjacent neighbouring pages follow each other, which an engine may join.
 */
#include "fab.h"
#include "raw.h"
#include "weft.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FLIGHT = 16, PAGES = 64, EVENTS = 64, BLOB = 65536 };

struct side {
	const struct raw_options *options;
	weft_engine *engine;
	weft_queue *queue;
	weft_region region;
	weft_peer peer;
	weft_remote remote;
	char *memory;
	uint64_t slots, ended, submitted;
	uint32_t *from, *to;
	uint8_t blob[BLOB];
};

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "pages: %s: %s\n", what, weft_strerror(rc));
	exit(1);
}

static void tell(int fd, const void *data, size_t bytes)
{
	if (write(fd, data, bytes) != (ssize_t)bytes)
		check(-EPIPE, "telling the other side");
}

static void hear(int fd, void *data, size_t bytes)
{
	for (size_t got = 0; got < bytes;) {
		ssize_t n = read(fd, (char *)data + got, bytes - got);

		if (n <= 0)
			check(-ECONNABORTED, "hearing from the other side");
		got += (size_t)n;
	}
}

static bool pending(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	return poll(&ready, 1, 0) > 0;
}

static void tell_blob(struct side *side, int fd, int (*get)(struct side *side, size_t *bytes))
{
	size_t bytes = sizeof side->blob;

	check(get(side, &bytes), "describing this side");
	tell(fd, &bytes, sizeof bytes);
	tell(fd, side->blob, bytes);
}

static size_t hear_blob(struct side *side, int fd)
{
	size_t bytes;

	hear(fd, &bytes, sizeof bytes);
	if (bytes > sizeof side->blob)
		check(-EPROTO, "hearing from the other side");
	hear(fd, side->blob, bytes);
	return bytes;
}

static int get_address(struct side *side, size_t *bytes)
{
	return weft_engine_address(side->engine, side->blob, bytes);
}

static int get_region(struct side *side, size_t *bytes)
{
	return weft_region_export(side->engine, side->region, side->blob, bytes);
}

static uint64_t mark(uint64_t page)
{
	return (page + 1) * 0x9e3779b97f4a7c15u;
}

static struct side *open_side(const struct raw_options *options, bool target)
{
	struct side *side = calloc(1, sizeof *side);
	struct weft_config config = WEFT_CONFIG_INIT;
	uint64_t step = options->page_bytes, bytes = options->region_bytes;

	if (!side)
		check(-ENOMEM, "memory");
	side->options = options;
	side->slots = bytes / step;
	side->from = malloc(side->slots * sizeof *side->from);
	side->to = malloc(side->slots * sizeof *side->to);
	side->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!side->from || !side->to || side->memory == MAP_FAILED)
		check(-ENOMEM, "memory");
	madvise(side->memory, bytes, MADV_HUGEPAGE);
	memset(side->memory, target ? 0 : 1, bytes);
	fab_shuffle(side->from, options->adjacent ? 0 : side->slots, 1);
	fab_shuffle(side->to, options->adjacent ? 0 : side->slots, 2);
	for (uint64_t i = 0; options->adjacent && i < side->slots; i++)
		side->from[i] = side->to[i] = (uint32_t)i;
	for (uint64_t i = 0; !target && step >= 8 && i < side->slots; i++) {
		uint64_t value = mark(i);

		memcpy(side->memory + i * step, &value, sizeof value);
		memcpy(side->memory + (i + 1) * step - sizeof value, &value, sizeof value);
	}
	config.provider = options->provider;
	if (!strcmp(options->provider, "tcp"))
		config.rails = "127.0.0.1";
	config.flags = options->manual ? WEFT_MANUAL_PROGRESS : 0;
	config.max_workers = 1;
	check(weft_engine_open(&config, &side->engine, NULL, 0), "weft_engine_open");
	check(weft_queue_open(side->engine, WEFT_QUEUE_LISTEN, &side->queue), "weft_queue_open");
	check(weft_region_register(side->engine, side->memory, bytes, target ? WEFT_REMOTE_WRITE : 0, &side->region),
	      "weft_region_register");
	return side;
}

static void close_side(struct side *side)
{
	check(weft_engine_close(side->engine), "weft_engine_close");
	munmap(side->memory, side->options->region_bytes);
	free(side->from);
	free(side->to);
	free(side);
}

static int take(struct side *side)
{
	struct weft_event event[EVENTS];
	int got;

	if (side->options->manual) {
		check(weft_engine_progress(side->engine), "weft_engine_progress");
		got = weft_queue_poll(side->queue, event, sizeof(*event), EVENTS);
	} else {
		got = weft_queue_wait(side->queue, event, sizeof(*event), EVENTS, WEFT_MILLISECOND);
	}
	check(got, "the queue");
	for (int i = 0; i < got; i++) {
		if (event[i].type == WEFT_EVENT_END) {
			check(event[i].status, "a transfer");
			side->ended++;
		}
		weft_event_release(&event[i]);
	}
	return got;
}

/* Measures from nothing in flight to nothing in flight. Returns ns. */
static uint64_t run(struct side *side, uint64_t duration_ns)
{
	uint64_t start = now_ns(), at = 0, count = side->slots < PAGES ? side->slots : PAGES;
	struct weft_op op = { .size = sizeof(op), .queue = side->queue, .timeout_ns = 30 * WEFT_SECOND };
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = side->options->page_bytes,
					  .count = count,
					  .from = side->region,
					  .to = side->remote };
	bool stop = false;

	side->ended = side->submitted = 0;
	while (!stop || side->ended < side->submitted) {
		while (!stop && side->submitted - side->ended < FLIGHT) {
			pages.from_index = side->from + at;
			pages.to_index = side->to + at;
			check(weft_write_pages(side->engine, &pages, &op, NULL), "weft_write_pages");
			side->submitted++;
			at = at + 2 * count <= side->slots ? at + count : 0;
		}
		take(side);
		stop = now_ns() - start >= duration_ns;
	}
	return now_ns() - start;
}

void raw_drive(const struct raw_options *options, int fd, struct raw_result *result)
{
	struct side *side = open_side(options, false);
	struct weft_peer_info info = { 0 };
	uint64_t verdict[2], cpu, deadline;
	size_t bytes;

	raw_side(options, 0);
	bytes = hear_blob(side, fd);
	check(weft_peer_add(side->engine, side->blob, bytes, NULL, &side->peer), "weft_peer_add");
	bytes = hear_blob(side, fd);
	check(weft_remote_import(side->engine, side->peer, side->blob, bytes, &side->remote), "import");
	deadline = now_ns() + 10 * WEFT_SECOND;
	while (!info.up) {
		take(side);
		check(weft_peer_info(side->engine, side->peer, &info, sizeof(info)), "weft_peer_info");
		check(now_ns() > deadline ? -ETIMEDOUT : 0, "waiting for the peer");
	}
	run(side, 200 * WEFT_MILLISECOND);
	tell(fd, "", 1);
	cpu = cpu_ns();
	result->seconds = (double)run(side, (uint64_t)(options->seconds * 1e9)) / 1e9;
	result->cpu_s = (double)(cpu_ns() - cpu) / 1e9;
	result->pages = side->ended * (side->slots < PAGES ? side->slots : PAGES);
	result->bytes = result->pages * options->page_bytes;
	snprintf(result->provider, sizeof result->provider, "%s", options->provider);
	result->rails = 1;
	tell(fd, &result->pages, sizeof result->pages);
	hear(fd, verdict, sizeof verdict);
	if (verdict[0]) {
		fprintf(stderr, "pages: %llu pages arrived wrong\n", (unsigned long long)verdict[0]);
		exit(1);
	}
	result->cpu_s += (double)verdict[1] / 1e9;
	result->verified = true;
	close_side(side);
}

static uint64_t count_wrong(struct side *side, uint64_t pages)
{
	uint64_t step = side->options->page_bytes, wrong = 0;

	for (uint64_t k = 0; step >= 8 && k < side->slots && k < pages; k++) {
		uint64_t value = mark(side->from[k]);
		const char *page = side->memory + side->to[k] * step;

		wrong += memcmp(page, &value, sizeof value) || memcmp(page + step - 8, &value, sizeof value);
	}
	return wrong;
}

void raw_target(const struct raw_options *options, int fd)
{
	struct side *side = open_side(options, true);
	uint64_t verdict[2], pages, cpu;
	char start;

	raw_side(options, 1);
	tell_blob(side, fd, get_address);
	tell_blob(side, fd, get_region);
	while (!pending(fd))
		take(side);
	hear(fd, &start, 1);
	cpu = cpu_ns();
	for (unsigned turn = 0; turn % 256 || !pending(fd); turn += side->options->manual ? 1 : 256)
		take(side);
	hear(fd, &pages, sizeof pages);
	verdict[1] = cpu_ns() - cpu;
	verdict[0] = options->sim ? 0 : count_wrong(side, pages);
	tell(fd, verdict, sizeof verdict);
	close_side(side);
}
