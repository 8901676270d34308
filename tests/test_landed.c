/*
 * A write that ended as done has landed: the test looks at its bytes at the very moment of its end. Engines of this
 * process without threads; the receiver gets far fewer turns than the sender, so that an early completion shows. The
 * second part has a third engine, which comes late to what was taken back from it: that must not end what goes to others.
 */
#include "support/peer.h"

#include <stdlib.h>

enum { OPS = 400, SLOT = 16384, IN_FLIGHT = 4, TURNS = 32, ROUNDS = 6, PER_ROUND = 12 };
#define TAKEN_BACK_NS (150 * WEFT_MILLISECOND) /* long enough for a stopped write that nobody looks at */

static const uint64_t sizes[] = { 1, 8, 64, 200, 522, 4095, 4096, 4097, SLOT };
static struct side here, there;
static uint8_t *from, *to;
static weft_peer peer;
static weft_region source;
static weft_remote remote;
static weft_transfer transfer[OPS];

static uint64_t size_of(uint64_t op)
{
	return sizes[op % (sizeof(sizes) / sizeof(sizes[0]))];
}

static int open_both(void **state)
{
	struct weft_config config = side_config();
	struct blob address, descriptor;
	weft_region target;

	config.flags = WEFT_MANUAL_PROGRESS;
	assert_status(side_open(&here, &config), 0);
	assert_status(side_open(&there, &config), 0);
	from = calloc(OPS, SLOT);
	to = calloc(OPS, SLOT);
	assert_true(from && to);
	assert_status(weft_region_register(here.engine, from, OPS * SLOT, 0, &source), 0);
	assert_status(weft_region_register(there.engine, to, OPS * SLOT, WEFT_REMOTE_WRITE, &target), 0);
	address_of(there.engine, &address);
	export_of(there.engine, target, &descriptor);
	assert_status(weft_peer_add(here.engine, address.data, address.bytes, NULL, &peer), 0);
	remote = import(&here, peer, &descriptor);
	return 0;
}

/* Each side must have forgotten the other before it closes: shm writes into the memory of both (docs/decisions/07). */
static void part(weft_peer whom, struct side *side)
{
	uint64_t deadline = now_ns() + LIMIT;
	struct weft_event event = { 0 };

	assert_status(weft_peer_remove(here.engine, whom), 0);
	while (event.type != WEFT_EVENT_PEER_DOWN) {
		assert_true(weft_engine_progress(here.engine) >= 0 && weft_engine_progress(side->engine) >= 0);
		if (weft_queue_poll(side->queue, &event, sizeof(event), 1) == 1)
			weft_event_release(&event);
		assert_true(now_ns() < deadline);
	}
}

static int close_both(void **state)
{
	part(peer, &there);
	assert_status(side_close(&here), 0);
	assert_status(side_close(&there), 0);
	free(from);
	free(to);
	return 0;
}

static void submit(uint64_t i)
{
	struct weft_write write = { sizeof(write), source, i * SLOT, remote, i * SLOT, size_of(i) };
	struct weft_op op = { .size = sizeof(op), .queue = here.queue, .tag = i, .timeout_ns = WEFT_FOREVER };

	pattern_fill(from + i * SLOT, size_of(i), i + 1, 0);
	assert_status(weft_write(here.engine, &write, &op, &transfer[i]), 0);
}

/* Waits for the next end; the receiver gets a turn only when the sender alone gets no further. */
static void next_end(struct weft_event *event)
{
	uint64_t deadline = now_ns() + LIMIT;

	for (;;) {
		for (int turn = 0; turn < TURNS; turn++) {
			assert_true(weft_engine_progress(here.engine) >= 0);
			while (weft_queue_poll(here.queue, event, sizeof(*event), 1) == 1) {
				if (event->type == WEFT_EVENT_END)
					return;
				weft_event_release(event);
			}
		}
		assert_true(weft_engine_progress(there.engine) >= 0);
		assert_true(now_ns() < deadline);
	}
}

static void when_it_ends(void **state)
{
	uint64_t begun = 0, ended = 0, done = 0;

	while (ended < OPS) {
		struct weft_event event;
		uint64_t i, bytes;

		while (begun < OPS && begun - ended < IN_FLIGHT) {
			submit(begun);
			/* Now and then one is cancelled at once, and may still have gone. */
			if (begun % 7 == 3)
				weft_transfer_cancel(here.engine, transfer[begun]);
			begun++;
		}
		next_end(&event);
		ended++;
		i = event.tag;
		bytes = size_of(i);
		if (event.status) {
			assert_status(event.status, -ECANCELED);
			assert_int_equal(i % 7, 3);
		} else if (landed_differs(to + i * SLOT, bytes, i + 1, 0) != bytes) {
			fail_msg("write %d of %d bytes ended as done before its bytes were there", (int)i, (int)bytes);
		} else {
			done++;
		}
		weft_event_release(&event);
	}
	assert_true(done >= OPS - OPS / 7 - 1);
}

/* ---- a receiver that comes late ---- */

static struct side late;
static weft_peer late_peer;
static weft_remote late_remote;
static uint8_t *late_to;
static bool reopened;

static int open_late(void **state)
{
	struct weft_config config = side_config();
	struct blob address, descriptor;
	weft_region target;
	int failed = open_both(state);

	config.flags = WEFT_MANUAL_PROGRESS;
	assert_status(side_open(&late, &config), 0);
	late_to = calloc(1, SLOT);
	assert_true(!failed && late_to);
	assert_status(weft_region_register(late.engine, late_to, SLOT, WEFT_REMOTE_WRITE, &target), 0);
	address_of(late.engine, &address);
	export_of(late.engine, target, &descriptor);
	assert_status(weft_peer_add(here.engine, address.data, address.bytes, NULL, &late_peer), 0);
	late_remote = import(&here, late_peer, &descriptor);
	return 0;
}

static int close_late(void **state)
{
	part(late_peer, &late);
	assert_status(side_close(&late), 0);
	free(late_to);
	return close_both(state);
}

/* Gives a side some turns. Returns whether the write has ended, and then its status. */
static bool turns(struct side *side, uint64_t tag, int *ret_status)
{
	struct weft_event event;
	bool ended = false;

	for (int turn = 0; turn < TURNS; turn++)
		assert_true(weft_engine_progress(side->engine) >= 0);
	while (weft_queue_poll(here.queue, &event, sizeof(event), 1) == 1) {
		reopened |= event.type == WEFT_EVENT_RAIL_UP;
		if (event.type == WEFT_EVENT_END && event.tag == tag) {
			ended = true;
			*ret_status = event.status;
		}
		weft_event_release(&event);
	}
	return ended;
}

/* From the same slot of `from` for all; the seed is the tag. */
static void submit_to(weft_remote to_remote, uint64_t tag, uint64_t bytes)
{
	struct weft_write write = { sizeof(write), source, 0, to_remote, 0, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = here.queue, .tag = tag, .timeout_ns = WEFT_FOREVER };

	pattern_fill(from, SLOT, tag, 0);
	assert_status(weft_write(here.engine, &write, &op, &transfer[0]), 0);
}

static void write_and_wait(struct side *side, weft_remote to_remote, uint64_t tag)
{
	uint64_t deadline = now_ns() + LIMIT;
	int status = 0;

	submit_to(to_remote, tag, 200);
	while (!turns(&here, tag, &status) && !turns(side, tag, &status))
		assert_true(now_ns() < deadline);
	assert_status(status, 0);
}

/* A write that the late one does not look at is cancelled, and taken back by closing what it was posted on. */
static void leave_one_behind(uint64_t tag)
{
	uint64_t deadline = now_ns() + TAKEN_BACK_NS;
	int status = 0;
	bool ended;

	reopened = false;
	submit_to(late_remote, tag, 200);
	ended = turns(&here, tag, &status);
	weft_transfer_cancel(here.engine, transfer[0]);
	while (!reopened && now_ns() < deadline)
		ended |= turns(&here, tag, &status);
	for (deadline = now_ns() + LIMIT; !ended; ended = turns(&here, tag, &status))
		assert_true(now_ns() < deadline);
	assert_true(!status || status == -ECANCELED);
}

/* Nothing that the late one does now is an answer to what goes to the other. */
static void when_another_comes_late(void **state)
{
	uint64_t tag = 1000;

	for (int round = 0; round < ROUNDS; round++) {
		write_and_wait(&late, late_remote, tag++);
		leave_one_behind(tag++);
		write_and_wait(&there, remote, tag++);
		for (int i = 0; i < PER_ROUND; i++, tag++) {
			uint64_t bytes = sizes[(uint64_t)i % (sizeof(sizes) / sizeof(sizes[0]))];
			uint64_t deadline = now_ns() + LIMIT;
			int status = 0;
			bool ended;

			submit_to(remote, tag, bytes);
			ended = turns(&here, tag, &status) || turns(&late, tag, &status) || turns(&here, tag, &status);
			if (ended && landed_differs(to, bytes, tag, 0) != bytes)
				fail_msg("round %d, write %d of %d bytes ended as done before its bytes were there",
					 round, i, (int)bytes);
			for (; !ended; ended = turns(&there, tag, &status) || turns(&here, tag, &status))
				assert_true(now_ns() < deadline);
			assert_status(status, 0);
			assert_int_equal(landed_differs(to, bytes, tag, 0), bytes);
		}
	}
}

static int run(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(when_it_ends, open_both, close_both),
					    cmocka_unit_test_setup_teardown(when_another_comes_late, open_late,
									    close_late) };

	return cmocka_run_group_tests_name("landed", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
