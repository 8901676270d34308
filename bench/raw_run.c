/* raw's two sides: one writes and measures, the other is written to and checks. */
#include "raw.h"
#include "fab.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARM_NS UINT64_C(200000000)
/* Two sides that both sleep when the other is late keep each other late: a round trip spins longer before it sleeps. */
#define PATIENT_NS UINT64_C(2000000)
enum { LOOK = 64, SAMPLES = 1 << 20 };

struct side {
	const struct raw_options *options;
	struct fab fab;
	uint64_t slots;
	uint32_t *from, *to; /* page k goes from from[k] to to[k], in this order, over and over */
};

/* The target's report at the end. */
struct verdict {
	uint64_t wrong, cpu_ns;
	bool checked;
};

static void tell(int fd, const void *data, size_t bytes)
{
	if (write(fd, data, bytes) != (ssize_t)bytes)
		fab_check(-FI_ECONNABORTED, "telling the other side");
}

static void hear(int fd, void *data, size_t bytes)
{
	for (size_t got = 0; got < bytes;) {
		ssize_t n = read(fd, (char *)data + got, bytes - got);

		if (n <= 0)
			fab_check(-FI_ECONNABORTED, "hearing from the other side");
		got += (size_t)n;
	}
}

static bool pending(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	return poll(&ready, 1, 0) > 0;
}

static uint64_t mark(uint64_t page)
{
	return (page + 1) * 0x9e3779b97f4a7c15u;
}

static void open_side(struct side *side, const struct raw_options *options, int fd, bool target)
{
	struct fab_card *card = calloc(1, sizeof *card);
	uint64_t step = options->page_bytes;

	side->options = options;
	side->slots = options->region_bytes / step;
	side->from = malloc(side->slots * sizeof *side->from);
	side->to = malloc(side->slots * sizeof *side->to);
	if (!card || !side->from || !side->to)
		fab_check(-FI_ENOMEM, "memory");
	fab_shuffle(side->from, options->adjacent ? 0 : side->slots, 1);
	fab_shuffle(side->to, options->adjacent ? 0 : side->slots, 2);
	for (uint64_t i = 0; options->adjacent && i < side->slots; i++)
		side->from[i] = side->to[i] = (uint32_t)i;
	fab_open(&side->fab, options->provider, options->region_bytes, options->waits);
	memset(side->fab.memory, target ? 0 : 1, options->region_bytes);
	for (uint64_t i = 0; !target && step >= 8 && i < side->slots; i++) {
		uint64_t value = mark(i);

		memcpy(side->fab.memory + i * step, &value, sizeof value);
		memcpy(side->fab.memory + (i + 1) * step - sizeof value, &value, sizeof value);
	}
	fab_card(&side->fab, card);
	tell(fd, card, sizeof *card);
	hear(fd, card, sizeof *card);
	fab_meet(&side->fab, card);
	for (unsigned i = 0; options->pingpong && i < FAB_RECEIVES; i++)
		fab_receive(&side->fab, i);
	/* Nobody starts before both can receive. */
	tell(fd, "", 1);
	hear(fd, card, 1);
	free(card);
}

static void close_side(struct side *side)
{
	fab_close(&side->fab);
	free(side->from);
	free(side->to);
}

/* Measures from nothing in flight to nothing in flight, so that every posted page was delivered. Returns ns. */
static uint64_t run_pages(struct fab_load *load, uint64_t duration_ns)
{
	uint64_t start = now_ns(), seen = 0;
	struct fab_idle idle = { 0 };

	load->posted = 0;
	load->left = UINT64_MAX;
	for (;;) {
		uint64_t done = fab_turn(load);

		fab_rest(load->fab, &idle, !done);
		seen += done;
		if (seen < LOOK && idle.turns < LOOK)
			continue;
		seen = 0;
		if (now_ns() - start >= duration_ns)
			break;
	}
	load->left = 0;
	while (fab_busy(load->fab))
		fab_rest(load->fab, &idle, !fab_turn(load));
	return now_ns() - start;
}

static void drive_pages(struct side *side, int fd, struct raw_result *result)
{
	const struct raw_options *options = side->options;
	uint64_t depth = options->depth < side->fab.queue_ops ? options->depth : side->fab.queue_ops;
	struct fab_load load = { .fab = &side->fab,
				 .page_bytes = options->page_bytes,
				 .from = side->from,
				 .to = side->to,
				 .count = side->slots,
				 .depth = (unsigned)depth,
				 .batch = options->batch,
				 .iovs = options->iovs };

	/* At most half of the depth waits for its batch, or the rail runs dry. */
	if (load.batch > (load.depth + 1) / 2)
		load.batch = (load.depth + 1) / 2;
	fab_warm(&load);
	run_pages(&load, WARM_NS);
	load.next = 0; /* the marks are checked from the first page on */
	tell(fd, "", 1);
	uint64_t cpu = cpu_ns();
	result->seconds = (double)run_pages(&load, (uint64_t)(options->seconds * 1e9)) / 1e9;
	result->cpu_s = (double)(cpu_ns() - cpu) / 1e9;
	result->pages = load.posted;
	result->bytes = result->pages * options->page_bytes;
}

static int ascending(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return left < right ? -1 : left > right;
}

static void drive_pingpong(struct side *side, struct raw_result *result)
{
	const struct raw_options *options = side->options;
	uint32_t *samples = malloc(SAMPLES * sizeof *samples);
	uint64_t before = now_ns(), now = before, warm = before + WARM_NS, count = 0;
	uint64_t end = warm + (uint64_t)(options->seconds * 1e9);
	struct fab_idle idle = { .spin_ns = PATIENT_NS };
	int slot = -1;

	if (!samples)
		fab_check(-FI_ENOMEM, "memory");
	while (now < end && count < SAMPLES) {
		fab_send(&side->fab, options->page_bytes);
		if (slot >= 0) /* while the peer is at work */
			fab_receive(&side->fab, (unsigned)slot);
		while ((slot = fab_arrived(&side->fab)) < 0)
			fab_rest(&side->fab, &idle, true);
		idle.turns = 0;
		now = now_ns();
		if (before >= warm)
			samples[count++] = now - before > UINT32_MAX ? UINT32_MAX : (uint32_t)(now - before);
		before = now;
	}
	qsort(samples, count, sizeof *samples, ascending);
	result->pages = count;
	result->bytes = count * options->page_bytes;
	result->seconds = (double)(now - warm) / 1e9;
	result->p50_us = count ? samples[count / 2] / 1e3 : 0;
	result->p99_us = count ? samples[count * 99 / 100] / 1e3 : 0;
	free(samples);
}

void raw_drive(const struct raw_options *options, int fd, struct raw_result *result)
{
	struct side *side = calloc(1, sizeof *side);
	struct verdict verdict;

	if (!side)
		fab_check(-FI_ENOMEM, "memory");
	raw_side(options, 0);
	open_side(side, options, fd, false);
	snprintf(result->provider, sizeof result->provider, "%s", side->fab.provider);
	result->rails = side->fab.rails;
	result->line_bps = side->fab.line_bps;
	if (options->pingpong)
		drive_pingpong(side, result);
	else
		drive_pages(side, fd, result);
	tell(fd, &result->pages, sizeof result->pages);
	hear(fd, &verdict, sizeof verdict);
	if (verdict.wrong && verdict.checked) {
		fprintf(stderr, "raw: %llu pages arrived wrong\n", (unsigned long long)verdict.wrong);
		exit(1);
	}
	result->verified = verdict.checked;
	result->cpu_s += (double)verdict.cpu_ns / 1e9;
	close_side(side);
	free(side);
}

/* Each place is always written from the same page, so its marks are known; only the first lap may be incomplete. */
static uint64_t count_wrong(struct side *side, uint64_t pages)
{
	uint64_t step = side->options->page_bytes, wrong = 0;

	for (uint64_t k = 0; k < side->slots && k < pages; k++) {
		uint64_t value = mark(side->from[k]);
		const char *page = side->fab.memory + side->to[k] * step;

		wrong += memcmp(page, &value, sizeof value) || memcmp(page + step - 8, &value, sizeof value);
	}
	return wrong;
}

/* Serves until a message arrives. */
static void attend(struct side *side, int fd)
{
	struct fab_idle idle = { .spin_ns = side->options->pingpong ? PATIENT_NS : 0 };
	int slot;

	for (uint64_t turn = 0; turn % 256 || !pending(fd); turn++) {
		if (!side->options->pingpong) {
			fab_rest(&side->fab, &idle, !fab_attend(&side->fab));
		} else if ((slot = fab_arrived(&side->fab)) >= 0) {
			fab_send(&side->fab, side->options->page_bytes);
			fab_receive(&side->fab, (unsigned)slot);
			idle.turns = 0;
		} else {
			fab_rest(&side->fab, &idle, true);
		}
	}
}

void raw_target(const struct raw_options *options, int fd)
{
	struct side *side = calloc(1, sizeof *side);
	struct verdict verdict = { 0 };
	uint64_t pages, cpu = 0;
	char start;

	if (!side)
		fab_check(-FI_ENOMEM, "memory");
	raw_side(options, 1);
	open_side(side, options, fd, true);
	if (!options->pingpong) {
		attend(side, fd); /* the warm-up */
		hear(fd, &start, 1);
		cpu = cpu_ns();
	}
	attend(side, fd);
	hear(fd, &pages, sizeof pages);
	verdict.cpu_ns = cpu_ns() - cpu;
	/* Simulated NICs that copy nothing, or only edges, leave nothing to check. */
	verdict.checked = !options->pingpong && options->page_bytes >= 8 && !options->sim;
	if (verdict.checked)
		verdict.wrong = count_wrong(side, pages);
	tell(fd, &verdict, sizeof verdict);
	close_side(side);
	free(side);
}
