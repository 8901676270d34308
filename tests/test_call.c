/* Calls and replies: contents both ways, the application's status, a deadline nobody meets, many at once. */
#include "support/peer.h"

#include <string.h>

#include <stdlib.h>

static struct pair pair;
static uint8_t *buffer;

static int open_pair(void **state)
{
	buffer = malloc(4u << 20);
	pair_open(&pair, NULL, NULL, 4096);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	free(buffer);
	return 0;
}

static void call(uint64_t receiver_tag, uint64_t bytes, uint64_t tag, uint64_t timeout_ns)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = tag, .timeout_ns = timeout_ns };

	pattern_fill(buffer, bytes, receiver_tag, 0);
	assert_status(weft_call(pair.here.engine, pair.peer, receiver_tag, buffer, bytes, &op, NULL), 0);
}

static void echoes(void **state)
{
	static const uint64_t size[] = { 0, 1, 100, 8088, 8089, 200000, 4u << 20 };

	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		struct weft_event event;

		call(700 + i, size[i], i, 0);
		assert_int_equal(peer_tell(&pair.there, COMMAND_SERVE, 1, 0, LIMIT), 1);
		wait_for_event(&pair.here, WEFT_EVENT_REPLY, i, &event);
		assert_status(event.status, 0);
		assert_int_equal(event.bytes, size[i]);
		assert_true(event.peer == pair.peer);
		assert_int_equal(pattern_differs(event.data, event.bytes, 700 + i, 0), event.bytes);
		weft_event_release(&event);
	}
}

static void status_comes_back(void **state)
{
	struct weft_event event;

	call(1, 10, 1, 0);
	peer_tell(&pair.there, COMMAND_SERVE, 1, (uint64_t)(int64_t)-EDOM, LIMIT);
	wait_for_event(&pair.here, WEFT_EVENT_REPLY, 1, &event);
	assert_int_equal(event.status, -EDOM);
	assert_int_equal(event.bytes, 10);
	weft_event_release(&event);
}

/* The caller's event says what the callee saw. */
static void callee_sees_it(void **state)
{
	struct peer_event seen;
	struct weft_event event;

	call(4242, 33, 2, 0);
	peer_wait(&pair.there, WEFT_EVENT_CALL, 4242, &seen);
	assert_int_equal(seen.bytes, 33);
	assert_int_equal(pattern_differs(seen.data, 33, 4242, 0), 33);
	peer_do(&pair.there, &(struct command){ .code = COMMAND_REPLY, .bytes = 5, .arg = { seen.peer, seen.call, 0 } },
		"hello");
	wait_for_event(&pair.here, WEFT_EVENT_REPLY, 2, &event);
	assert_int_equal(event.bytes, 5);
	assert_memory_equal(event.data, "hello", 5);
	weft_event_release(&event);
}

/* Calls until one has reached the peer before its deadline passed: on a busy machine that takes more than one. */
static void call_in_vain(struct peer_event *ret_late)
{
	uint64_t timeout_ns = 100 * MS;
	struct weft_event event;
	int missed;

	do {
		call(5, 100, 5, timeout_ns);
		wait_for_event(&pair.here, WEFT_EVENT_REPLY, 5, &event);
		assert_status(event.status, -ETIMEDOUT);
		weft_event_release(&event);
		missed = peer_wait_try(&pair.there, WEFT_EVENT_CALL, 5, timeout_ns, ret_late);
		timeout_ns *= 2;
		assert_true(timeout_ns < LIMIT);
	} while (missed);
}

/* Nobody replies in time; the late reply is dropped, and is not mistaken for the reply to the next call. */
static void nobody_replies(void **state)
{
	struct peer_event late, seen;
	struct weft_event event;

	call_in_vain(&late);
	call(6, 10, 6, 0);
	peer_do(&pair.there, &(struct command){ .code = COMMAND_REPLY, .bytes = 4, .arg = { late.peer, late.call, 0 } },
		"late");
	peer_wait(&pair.there, WEFT_EVENT_CALL, 6, &seen);
	peer_do(&pair.there,
		&(struct command){ .code = COMMAND_REPLY, .bytes = 10, .arg = { seen.peer, seen.call, 0 } }, seen.data);
	wait_for_event(&pair.here, WEFT_EVENT_REPLY, ANY_TAG, &event);
	assert_int_equal(event.tag, 6);
	assert_int_equal(event.bytes, 10);
	assert_int_equal(pattern_differs(event.data, 10, 6, 0), 10);
	weft_event_release(&event);
	assert_int_equal(side_wait(&pair.here, WEFT_EVENT_REPLY, ANY_TAG, 50 * MS, &event), -ETIME);
}

static void concurrent(void **state)
{
	enum { COUNT = 200 };
	uint8_t seen[COUNT] = { 0 };

	for (uint64_t i = 0; i < COUNT; i++)
		call(1000 + i, 50 + i * 20, 1000 + i, 0);
	assert_int_equal(peer_tell(&pair.there, COMMAND_SERVE, COUNT, 0, LIMIT), COUNT);
	for (int i = 0; i < COUNT; i++) {
		struct weft_event event;

		wait_for_event(&pair.here, WEFT_EVENT_REPLY, ANY_TAG, &event);
		assert_status(event.status, 0);
		assert_in_range(event.tag, 1000, 1000 + COUNT - 1);
		assert_int_equal(seen[event.tag - 1000]++, 0);
		assert_int_equal(event.bytes, 50 + (event.tag - 1000) * 20);
		assert_int_equal(pattern_differs(event.data, event.bytes, event.tag, 0), event.bytes);
		weft_event_release(&event);
	}
}

/* Answered in another order than asked. */
static void out_of_order(void **state)
{
	enum { COUNT = 8 };
	struct peer_event seen[COUNT];

	for (uint64_t i = 0; i < COUNT; i++)
		call(2000 + i, 4, 2000 + i, 0);
	for (uint64_t i = 0; i < COUNT; i++)
		peer_wait(&pair.there, WEFT_EVENT_CALL, 2000 + i, &seen[i]);
	for (int i = COUNT - 1; i >= 0; i--) {
		struct weft_event event;
		uint32_t number = (uint32_t)i;

		peer_do(&pair.there,
			&(struct command){
			    .code = COMMAND_REPLY, .bytes = sizeof(number), .arg = { seen[i].peer, seen[i].call, 0 } },
			&number);
		wait_for_event(&pair.here, WEFT_EVENT_REPLY, ANY_TAG, &event);
		assert_int_equal(event.tag, 2000 + i);
		assert_memory_equal(event.data, &number, sizeof(number));
		weft_event_release(&event);
	}
}

static void bad_replies(void **state)
{
	assert_status(weft_reply(pair.here.engine, pair.peer, 1, 5, NULL, 0, NULL, NULL), -EINVAL);
	assert_status(weft_reply(pair.here.engine, pair.peer + (UINT64_C(1) << 40), 1, 0, NULL, 0, NULL, NULL),
		      -ENOENT);
	/* A number nobody called with: accepted, dropped at the other end, and all goes on. */
	assert_status(weft_reply(pair.here.engine, pair.peer, UINT64_C(0x1234500000001), 0, "x", 1, NULL, NULL), 0);
	call(1, 1, 99, 0);
	peer_tell(&pair.there, COMMAND_SERVE, 1, 0, LIMIT);
	struct weft_event event;

	wait_for_event(&pair.here, WEFT_EVENT_REPLY, 99, &event);
	weft_event_release(&event);
}

/* ---- both ways, with every slot taken by a call ---- */

#define FULL 16

struct end {
	struct side side;
	weft_peer other;
	uint32_t replied, served;
};

static void fill_with_calls(struct end *end)
{
	struct weft_op op = { .size = sizeof(op), .queue = end->side.queue, .timeout_ns = 60 * S };

	for (op.tag = 0; op.tag < FULL; op.tag++)
		assert_status(weft_call(end->side.engine, end->other, 1, "question", 8, &op, NULL), 0);
	assert_status(weft_call(end->side.engine, end->other, 1, "question", 8, &op, NULL), -EAGAIN);
}

static void take_one(struct end *end)
{
	struct weft_event event;

	if (weft_queue_wait(end->side.queue, &event, sizeof(event), 1, 10 * MS) != 1)
		return;
	if (event.type == WEFT_EVENT_CALL) {
		assert_status(weft_reply(end->side.engine, event.peer, event.call, 0, "answer", 6, NULL, NULL), 0);
		end->served++;
	} else if (event.type == WEFT_EVENT_REPLY) {
		assert_status(event.status, 0);
		end->replied++;
	}
	weft_event_release(&event);
}

/* Replies have slots of their own: neither side waits for the other's calls to time out. */
static void both_ways_full(void **state)
{
	struct weft_config config = side_config();
	struct end end[2] = { 0 };
	uint64_t limit;

	if (!strcmp(transport->provider, "shm"))
		skip(); /* two engines in one process are too much for libfabric's shm at times */
	config.max_transfers = FULL;
	for (int i = 0; i < 2; i++)
		assert_status(side_open(&end[i].side, &config), 0);
	for (int i = 0; i < 2; i++) {
		struct blob address;

		address_of(end[!i].side.engine, &address);
		assert_status(weft_peer_add(end[i].side.engine, address.data, address.bytes, NULL, &end[i].other), 0);
	}
	for (int i = 0; i < 2; i++)
		fill_with_calls(&end[i]);
	limit = now_ns() + LIMIT;
	while (end[0].replied < FULL || end[1].replied < FULL) {
		assert_true(now_ns() < limit);
		take_one(&end[0]);
		take_one(&end[1]);
	}
	assert_int_equal(end[0].served + end[1].served, 2 * FULL);
	for (int i = 0; i < 2; i++)
		assert_status(side_close(&end[i].side), 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(echoes),         cmocka_unit_test(status_comes_back), cmocka_unit_test(callee_sees_it),
		cmocka_unit_test(nobody_replies), cmocka_unit_test(concurrent),        cmocka_unit_test(out_of_order),
		cmocka_unit_test(bad_replies),    cmocka_unit_test(both_ways_full),
	};

	return cmocka_run_group_tests_name("call", tests, open_pair, close_pair);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
