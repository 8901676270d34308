/* Messages: every size, order kept, many in flight, a receiver that does not read for a while. */
#include "support/peer.h"

#include <stdlib.h>

#define MAX_MESSAGE (4u << 20) /* the default */

static struct pair pair;
static uint8_t *buffer;

static int open_pair(void **state)
{
	buffer = malloc(MAX_MESSAGE + 1);
	pair_open(&pair, NULL, NULL, 4096);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	free(buffer);
	return 0;
}

/* Sends bytes that follow from the receiver's tag; tries again when everything is in flight. */
static void send_one(uint64_t receiver_tag, uint64_t bytes, uint64_t tag)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = tag };
	uint64_t deadline = now_ns() + LIMIT;
	int error;

	pattern_fill(buffer, bytes, receiver_tag, 0);
	while ((error = weft_send(pair.here.engine, pair.peer, receiver_tag, buffer, bytes, &op, NULL)) == -EAGAIN) {
		assert_true(now_ns() < deadline);
		side_gather(&pair.here);
	}
	assert_status(error, 0);
}

static void sizes(void **state)
{
	static const uint64_t size[] = { 0,    1,    64,    8087,  8088,           8089,
					 4096, 8192, 65536, 81920, (1u << 20) + 1, MAX_MESSAGE };

	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		struct peer_event event;

		send_one(500 + i, size[i], i);
		peer_wait(&pair.there, WEFT_EVENT_MESSAGE, ANY_TAG, &event);
		assert_int_equal(event.tag, 500 + i);
		assert_int_equal(event.bytes, size[i]);
		assert_true(event.peer == pair.back);
		assert_int_equal(pattern_differs(event.data, event.bytes, 500 + i, 0), event.bytes);
		assert_status(end_of(&pair.here, i), 0);
	}
}

static void too_large(void **state)
{
	assert_status(weft_send(pair.here.engine, pair.peer, 1, buffer, MAX_MESSAGE + 1, NULL, NULL), -EMSGSIZE);
	assert_status(weft_send(pair.here.engine, pair.peer, 1, NULL, 1, NULL, NULL), -EINVAL);
}

static void thousand_in_order(void **state)
{
	enum { COUNT = 1000 };

	for (uint64_t i = 0; i < COUNT; i++)
		send_one(10000 + i, i % 200, i);
	assert_int_equal(peer_tell(&pair.there, COMMAND_DRAIN, 10000, COUNT, LIMIT), COUNT);
	for (uint64_t i = 0; i < COUNT; i++)
		assert_status(end_of(&pair.here, i), 0);
}

/* Small and large messages interleaved still arrive in the order sent. */
static void mixed_in_order(void **state)
{
	enum { COUNT = 120 };

	for (uint64_t i = 0; i < COUNT; i++)
		send_one(20000 + i, i % 3 ? i * 100 : i * 3000, i);
	assert_int_equal(peer_tell(&pair.there, COMMAND_DRAIN, 20000, COUNT, LIMIT), COUNT);
	for (uint64_t i = 0; i < COUNT; i++)
		assert_status(end_of(&pair.here, i), 0);
}

/* More than a peer's window, to a receiver that reads nothing: held back here, and nothing is lost. */
static void unread(void **state)
{
	enum { COUNT = 40 };
	struct weft_event event;
	uint64_t ended = 0;

	for (uint64_t i = 0; i < COUNT; i++)
		send_one(30000 + i, 1u << 20, i);
	while (!side_wait(&pair.here, WEFT_EVENT_END, ANY_TAG, 300 * MS, &event)) {
		assert_status(event.status, 0);
		weft_event_release(&event);
		ended++;
	}
	assert_true(ended < COUNT); /* 40 MiB do not fit in the peer's 8 MiB */
	assert_int_equal(peer_tell(&pair.there, COMMAND_DRAIN, 30000, COUNT, LIMIT), COUNT);
	for (; ended < COUNT; ended++) {
		wait_for_event(&pair.here, WEFT_EVENT_END, ANY_TAG, &event);
		assert_status(event.status, 0);
		weft_event_release(&event);
	}
}

/* While a receiver reads no messages, writes to it still pass. */
static void writes_pass_messages(void **state)
{
	enum { COUNT = 30 };

	for (uint64_t i = 0; i < COUNT; i++)
		send_one(40000 + i, 1u << 20, i);
	pattern_fill(pair.memory, 4096, 8, 0);
	assert_status(pair_write(&pair, 0, 0, 4096), 0);
	peer_check(&pair.there, pair.number, 0, 4096, 8);
	assert_int_equal(peer_tell(&pair.there, COMMAND_DRAIN, 40000, COUNT, LIMIT), COUNT);
	for (uint64_t i = 0; i < COUNT; i++)
		assert_status(end_of(&pair.here, i), 0);
}

static void both_ways(void **state)
{
	enum { COUNT = 200 };

	for (uint64_t i = 0; i < COUNT; i++) {
		send_one(50000 + i, 3000, i);
		peer_tell(&pair.there, COMMAND_SEND, pair.back, 60000 + i, 5000, i);
	}
	for (uint64_t i = 0; i < COUNT; i++) {
		struct weft_event event;

		wait_for_event(&pair.here, WEFT_EVENT_MESSAGE, ANY_TAG, &event);
		assert_int_equal(event.tag, 60000 + i);
		assert_int_equal(event.bytes, 5000);
		assert_int_equal(pattern_differs(event.data, 5000, event.tag, 0), 5000);
		weft_event_release(&event);
	}
	assert_int_equal(peer_tell(&pair.there, COMMAND_DRAIN, 50000, COUNT, LIMIT), COUNT);
	for (uint64_t i = 0; i < COUNT; i++)
		assert_status(end_of(&pair.here, i), 0);
}

/* A message that was never sent, because the peer does not read, holds nothing after its deadline: others are
 * served. */
static void never_read(void **state)
{
	struct weft_config here = side_config(), there = side_config();
	struct weft_op op = { .size = sizeof(op), .tag = 3, .timeout_ns = 100 * MS };
	struct weft_engine_info info = { .transfers_in_flight = 1 };
	uint64_t timed_out = 0, deadline = now_ns() + LIMIT;
	struct pair deaf;

	here.max_transfers = 16;
	there.peer_window = 16 * 8192;
	there.max_message = 65536;
	pair_open(&deaf, &here, &there, 4096);
	op.queue = deaf.here.queue;
	while (timed_out < 3 * here.max_transfers && now_ns() < deadline) {
		struct weft_event event;

		while (!weft_send(deaf.here.engine, deaf.peer, 1, "x", 1, &op, NULL))
			;
		wait_for_event(&deaf.here, WEFT_EVENT_END, 3, &event);
		timed_out += event.status == -ETIMEDOUT;
		weft_event_release(&event);
	}
	assert_true(timed_out >= 3 * here.max_transfers);
	while (info.transfers_in_flight && now_ns() < deadline) {
		side_gather(&deaf.here);
		assert_status(weft_engine_info(deaf.here.engine, &info, sizeof(info)), 0);
	}
	assert_int_equal(info.transfers_in_flight, 0);
	assert_status(pair_write(&deaf, 0, 0, 4096), 0);
	pair_close(&deaf);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),          cmocka_unit_test(too_large),  cmocka_unit_test(thousand_in_order),
		cmocka_unit_test(mixed_in_order), cmocka_unit_test(unread),     cmocka_unit_test(writes_pass_messages),
		cmocka_unit_test(both_ways),      cmocka_unit_test(never_read),
	};

	return cmocka_run_group_tests_name("send", tests, open_pair, close_pair);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
