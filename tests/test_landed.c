/*
 * A write that ended as done has landed: the test looks at its bytes at the very moment of its end. Two engines of this
 * process without threads; the receiver gets far fewer turns than the sender, so that an early completion shows.
 */
#include "support/peer.h"

#include <stdlib.h>

enum { OPS = 400, SLOT = 16384, IN_FLIGHT = 4, TURNS = 32 };

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
static int close_both(void **state)
{
	uint64_t deadline = now_ns() + LIMIT;
	struct weft_event event = { 0 };

	assert_status(weft_peer_remove(here.engine, peer), 0);
	while (event.type != WEFT_EVENT_PEER_DOWN) {
		assert_true(weft_engine_progress(here.engine) >= 0 && weft_engine_progress(there.engine) >= 0);
		if (weft_queue_poll(there.queue, &event, sizeof(event), 1) == 1)
			weft_event_release(&event);
		assert_true(now_ns() < deadline);
	}
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

static int run(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(when_it_ends) };

	return cmocka_run_group_tests_name("landed", tests, open_both, close_both);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
