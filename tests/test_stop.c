/*
 * Operations that cannot go on: cancelled, or ended by their deadline. The peer is a manual engine that makes no
 * progress while told to be quiet, so that operations stay in flight.
 */
#include "support/peer.h"

#include <string.h>

#define BYTES       (32u << 20)
#define SPARE_BYTES (1u << 20) /* behind them: no stopped write targets it, so nothing lands there late */

static struct pair pair;

/* Each test has a pair of its own: a stopped write of one cannot land in the next. */
static int open_pair(void **state)
{
	struct weft_config there = side_config();

	there.flags = WEFT_MANUAL_PROGRESS;
	pair_open(&pair, NULL, &there, BYTES + SPARE_BYTES);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	return 0;
}

static void quiet(bool on)
{
	peer_tell(&pair.there, COMMAND_QUIET, on);
}

static weft_transfer begin_write(uint64_t tag, uint64_t bytes, uint64_t timeout_ns)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = tag, .timeout_ns = timeout_ns };
	weft_transfer transfer = 0;

	assert_status(weft_write(pair.here.engine, &write, &op, &transfer), 0);
	return transfer;
}

static weft_transfer begin_call(uint64_t tag, uint64_t timeout_ns)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = tag, .timeout_ns = timeout_ns };
	weft_transfer transfer = 0;

	assert_status(weft_call(pair.here.engine, pair.peer, tag, "?", 1, &op, &transfer), 0);
	return transfer;
}

static int reply_of(uint64_t tag)
{
	struct weft_event event;

	wait_for_event(&pair.here, WEFT_EVENT_REPLY, tag, &event);
	weft_event_release(&event);
	return event.status;
}

/* Over RDMA and shared memory a large write needs no help from the peer's process: it may land while the peer is silent. */
static void assert_stopped(int status, int why)
{
	if (status || !transport_is_one_sided())
		assert_status(status, why);
}

/* After everything below, a write still works and its contents are right. It goes where no stopped write went,
 * because a write that ended without quiescence may land on top of a later one. */
static void still_works(uint64_t seed)
{
	pattern_fill(pair.memory + BYTES, SPARE_BYTES, seed, 0);
	assert_status(pair_write(&pair, BYTES, BYTES, SPARE_BYTES), 0);
	peer_check(&pair.there, pair.number, BYTES, SPARE_BYTES, seed);
}

static void cancel_one(void **state)
{
	weft_transfer stuck, other;
	int cancelled, status;

	quiet(true);
	stuck = begin_write(1, BYTES, WEFT_FOREVER);
	other = begin_call(2, WEFT_FOREVER);
	cancelled = weft_transfer_cancel(pair.here.engine, stuck);
	assert_status(weft_transfer_cancel(pair.here.engine, stuck), -ENOENT);
	status = end_of(&pair.here, 1);
	assert_stopped(status, -ECANCELED);
	assert_true(cancelled == 0 || (cancelled == -ENOENT && !status)); /* 0: it may still have ended first */
	assert_status(weft_transfer_cancel(pair.here.engine, stuck), -ENOENT);
	assert_status(weft_transfer_cancel(pair.here.engine, other), 0);
	assert_status(weft_transfer_cancel(pair.here.engine, other), -ENOENT);
	assert_status(reply_of(2), -ECANCELED);
	quiet(false);
	still_works(1);
}

static void cancel_what_ended(void **state)
{
	weft_transfer transfer = begin_write(3, 4096, 0);

	assert_status(end_of(&pair.here, 3), 0);
	assert_status(weft_transfer_cancel(pair.here.engine, transfer), -ENOENT);
	assert_status(weft_transfer_cancel(pair.here.engine, 0), -ENOENT);
	assert_status(weft_transfer_cancel(pair.here.engine, UINT64_MAX), -ENOENT);
	/* The slot's next user is not hit by the old number. */
	for (uint64_t i = 0; i < 2000; i++) {
		begin_write(10 + i, 64, 0);
		assert_status(weft_transfer_cancel(pair.here.engine, transfer), -ENOENT);
		assert_status(end_of(&pair.here, 10 + i), 0);
	}
}

static void cancel_peer(void **state)
{
	quiet(true);
	for (uint64_t i = 0; i < 20; i++)
		begin_write(100 + i, 2u << 20, WEFT_FOREVER);
	for (uint64_t i = 0; i < 20; i++)
		begin_call(200 + i, WEFT_FOREVER);
	assert_status(weft_peer_cancel(pair.here.engine, pair.peer), 0);
	for (uint64_t i = 0; i < 20; i++)
		assert_stopped(end_of(&pair.here, 100 + i), -ECANCELED);
	for (uint64_t i = 0; i < 20; i++)
		assert_status(reply_of(200 + i), -ECANCELED);
	assert_status(weft_peer_cancel(pair.here.engine, pair.peer), 0); /* nothing left to cancel */
	assert_status(weft_peer_cancel(pair.here.engine, 0), -ENOENT);
	quiet(false);
	still_works(2);
}

/* Cancelled at every moment of its life: it ends exactly once, well or cancelled, and the contents of those that
 * ended well are there (checked for as long as nothing may still land late). */
static void cancel_races(void **state)
{
	bool settled = true;

	for (uint64_t i = 0; i < 300; i++) {
		weft_transfer transfer;
		uint64_t bytes = i % 3 ? 70000 : 3000000, spin = now_ns() + i % 50 * 20000;
		struct weft_event event;
		int error;

		pattern_fill(pair.memory, bytes, 1000 + i, 0);
		transfer = begin_write(1000 + i, bytes, 0);
		while (now_ns() < spin)
			;
		error = weft_transfer_cancel(pair.here.engine, transfer);
		wait_for_event(&pair.here, WEFT_EVENT_END, 1000 + i, &event);
		assert_true(error == 0 || error == -ENOENT);
		assert_true(event.status == 0 || (event.status == -ECANCELED && !error));
		settled = settled && event.quiescent;
		if (!event.status && settled)
			peer_check(&pair.there, pair.number, 0, bytes, 1000 + i);
		weft_event_release(&event);
		/* Nothing ends twice. On a busy machine a rail may have been reopened to get a piece back:
		 * news, not ends. */
		while (weft_queue_poll(pair.here.queue, &event, sizeof(event), 1) == 1) {
			assert_true(event.type == WEFT_EVENT_RAIL_DOWN || event.type == WEFT_EVENT_RAIL_UP);
			weft_event_release(&event);
		}
	}
}

static void cancel_scatter_and_expect(void **state)
{
	struct weft_write part[2] = { { sizeof(struct weft_write), pair.region, 0, pair.remote, 0, 8u << 20 },
				      { sizeof(struct weft_write), pair.region, 0, pair.remote, 8u << 20, 8u << 20 } };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 5, .timeout_ns = WEFT_FOREVER };
	weft_transfer transfer;
	struct weft_event event;
	int status;

	quiet(true);
	assert_status(weft_scatter(pair.here.engine, part, 2, &op, &transfer), 0);
	status = weft_transfer_cancel(pair.here.engine, transfer);
	assert_true(!status || status == -ENOENT);
	assert_stopped(end_of(&pair.here, 5), -ECANCELED);
	assert_status(weft_transfer_cancel(pair.here.engine, transfer), -ENOENT);
	op.tag = 6;
	assert_status(weft_expect(pair.here.engine, 0, 77, 1, &op, &transfer), 0);
	assert_status(weft_transfer_cancel(pair.here.engine, transfer), 0);
	wait_for_event(&pair.here, WEFT_EVENT_COUNTED, 6, &event);
	assert_status(event.status, -ECANCELED);
	weft_event_release(&event);
	op.tag = 7;
	assert_status(weft_barrier(pair.here.engine, &pair.peer, 1, 99, &op, &transfer), 0);
	assert_status(weft_transfer_cancel(pair.here.engine, transfer), 0);
	assert_status(end_of(&pair.here, 7), -ECANCELED);
	quiet(false);
	still_works(3);
}

/* Every kind of operation against a silent peer ends by its deadline. */
static void deadlines(void **state)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, BYTES };
	struct weft_read read = { sizeof(read), pair.remote, 0, pair.region, 0, 1u << 20 };
	struct weft_write_pages pages = {
		.size = sizeof(pages), .page_bytes = 65536, .count = 400, .from = pair.region, .to = pair.remote
	};
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .timeout_ns = 150 * MS };
	struct weft_event event;
	uint8_t *large = (uint8_t *)pair.memory;

	quiet(true);
	op.tag = 20;
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	op.tag = 21;
	assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
	op.tag = 22;
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	op.tag = 23;
	assert_status(weft_scatter(pair.here.engine, &write, 1, &op, NULL), 0);
	op.tag = 24;
	assert_status(weft_send(pair.here.engine, pair.peer, 0, large, 4u << 20, &op, NULL), 0);
	op.tag = 25;
	assert_status(weft_barrier(pair.here.engine, &pair.peer, 1, 5, &op, NULL), 0);
	op.tag = 26;
	assert_status(weft_expect(pair.here.engine, 0, 5, 1, &op, NULL), 0);
	begin_call(27, 150 * MS);
	for (uint64_t tag = 20; tag <= 25; tag++) {
		wait_for_event(&pair.here, WEFT_EVENT_END, tag, &event);
		if (tag < 24)
			assert_stopped(event.status, -ETIMEDOUT);
		else
			assert_status(event.status, -ETIMEDOUT);
		if (!event.status)
			continue;
		assert_non_null(event.error);
		assert_true(event.error->text[0] != 0);
		assert_true(event.error->scope != WEFT_SCOPE_NONE);
		weft_event_release(&event);
	}
	wait_for_event(&pair.here, WEFT_EVENT_COUNTED, 26, &event);
	assert_status(event.status, -ETIMEDOUT);
	weft_event_release(&event);
	assert_status(reply_of(27), -ETIMEDOUT);
	quiet(false);
	still_works(4);
}

/* The promise about memory: once a stopped write is said to be quiescent, nothing more of it lands. */
static void quiescent_after_a_stop(void **state)
{
	struct weft_event event;

	peer_fill(&pair.there, pair.number, 0, BYTES, 50);
	pattern_fill(pair.memory, BYTES, 51, 0);
	quiet(true);
	begin_write(30, BYTES, 100 * MS);
	wait_for_event(&pair.here, WEFT_EVENT_END, 30, &event);
	assert_stopped(event.status, -ETIMEDOUT);
	weft_event_release(&event);
	if (!event.status || !event.quiescent) { /* it landed, or the provider cannot promise it, and says so */
		quiet(false);
		return;
	}
	/* We may reuse the source: what we put there now must never show at the peer. */
	pattern_fill(pair.memory, BYTES, 52, 0);
	quiet(false);
	assert_status(pair_write(&pair, 0, 0, 1), 0); /* a round trip: everything under way has arrived */
	for (uint64_t at = 1; at + 4096 <= BYTES; at += 4096) {
		uint64_t old = peer_tell(&pair.there, COMMAND_DIFFERS, pair.number, at, 64, 50, at);
		uint64_t sent = peer_tell(&pair.there, COMMAND_DIFFERS, pair.number, at, 64, 51, at);

		assert_true(old == 64 || sent == 64);
	}
	still_works(5);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(cancel_one, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(cancel_what_ended, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(cancel_peer, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(cancel_races, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(cancel_scatter_and_expect, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(deadlines, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(quiescent_after_a_stop, open_pair, close_pair),
	};

	return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
