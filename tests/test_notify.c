/* Telling the receiver: fenced (the contents are there when the event is) and counted (before and after the writes). */
#include "support/peer.h"

#include <string.h>

#define BYTES (8u << 20)

static struct pair pair;
static weft_remote back; /* our region, as the peer imported it */

static int open_pair(void **state)
{
	struct blob ours;

	pair_open(&pair, NULL, NULL, BYTES);
	export_of(pair.here.engine, pair.region, &ours);
	back = peer_do(&pair.there,
		       &(struct command){ .code = COMMAND_IMPORT, .bytes = (uint32_t)ours.bytes, .arg = { pair.back } },
		       ours.data);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	return 0;
}

/* The peer writes to us: the test looks at the contents the moment it has the notification. */
static void data_before_the_word(void **state)
{
	static const uint64_t size[] = { 0, 1, 4096, 100001, (3u << 20) + 7, BYTES };

	for (uint64_t i = 0; i < 6 * sizeof(size) / sizeof(size[0]); i++) {
		uint64_t bytes = size[i % (sizeof(size) / sizeof(size[0]))];
		struct peer_event ended;
		struct weft_event event;

		landed_fill(pair.memory, bytes, ~i, 0);
		peer_fill(&pair.there, pair.number, 0, bytes, 1000 + i);
		peer_tell(&pair.there, COMMAND_WRITE, pair.number, 0, back, 0, bytes, i, 5000 + i);
		wait_for_event(&pair.here, WEFT_EVENT_NOTIFY, 5000 + i, &event);
		assert_int_equal(landed_differs(pair.memory, bytes, 1000 + i, 0), bytes);
		assert_true(event.peer == pair.peer);
		assert_int_equal(event.bytes, 0);
		weft_event_release(&event);
		peer_wait(&pair.there, WEFT_EVENT_END, i, &ended);
		assert_status(ended.status, 0);
	}
}

static void payloads(void **state)
{
	uint8_t payload[WEFT_NOTIFY_MAX + 1];
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 10000 };
	struct weft_op op = {
		.size = sizeof(op), .queue = pair.here.queue, .notify = WEFT_NOTIFY_FENCED, .notify_payload = payload
	};
	struct peer_event event;

	for (uint64_t bytes = 0; bytes <= WEFT_NOTIFY_MAX; bytes += bytes < 4 ? 1 : 12) {
		op.tag = op.notify_tag = 100 + bytes;
		op.notify_bytes = bytes;
		pattern_fill(payload, bytes, bytes, 0);
		pattern_fill(pair.memory, 10000, 200 + bytes, 0);
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
		memset(payload, 0xee, sizeof(payload)); /* it was copied */
		peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 100 + bytes, &event);
		assert_int_equal(event.bytes, bytes);
		assert_int_equal(pattern_differs(event.data, bytes, bytes, 0), bytes);
		peer_check(&pair.there, pair.number, 0, 10000, 200 + bytes);
		assert_status(end_of(&pair.here, op.tag), 0);
	}
	op.notify_bytes = WEFT_NOTIFY_MAX + 1;
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), -EINVAL);
	op.notify_bytes = 1;
	op.notify_payload = NULL;
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), -EINVAL);
	op.notify_bytes = 0;
	op.notify = (enum weft_notify)17; /* of a release to come, perhaps */
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), -EOPNOTSUPP);
}

/* Each of many arrives exactly once. */
static void exactly_once(void **state)
{
	enum { COUNT = 400 };
	struct weft_op op = { .size = sizeof(op), .notify = WEFT_NOTIFY_FENCED };
	struct peer_event event;

	pattern_fill(pair.memory, COUNT * 512, 3, 0);
	for (uint64_t i = 0; i < COUNT; i++) {
		struct weft_write write = { sizeof(write), pair.region, i * 512, pair.remote, i * 512, 512 };

		op.notify_tag = 10000 + i;
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	}
	for (uint64_t i = 0; i < COUNT; i++)
		peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 10000 + i, &event);
	assert_int_equal(peer_wait_try(&pair.there, WEFT_EVENT_NOTIFY, ANY_TAG, 50 * MS, &event), -ETIME);
	peer_check(&pair.there, pair.number, 0, COUNT * 512, 3);
}

static void pages_fenced(void **state)
{
	static uint32_t index[2000];
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = 1024,
					  .count = 2000,
					  .from = pair.region,
					  .to = pair.remote,
					  .to_index = index };
	struct weft_op op = {
		.size = sizeof(op), .queue = pair.here.queue, .tag = 4, .notify = WEFT_NOTIFY_FENCED, .notify_tag = 44
	};
	struct peer_event event;

	for (uint32_t i = 0; i < 2000; i++) {
		index[i] = (i * 7) % 2000;
		pattern_fill(pair.memory + i * 1024, 1024, 4, index[i] * UINT64_C(1024));
	}
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 44, &event);
	peer_check(&pair.there, pair.number, 0, 2000 * 1024, 4);
	assert_status(end_of(&pair.here, 4), 0);
}

static void counted_at(struct peer *peer, uint64_t tag)
{
	struct peer_event event;

	peer_wait(peer, WEFT_EVENT_COUNTED, tag, &event);
	assert_status(event.status, 0);
}

static void write_counted(uint32_t immediate, uint64_t count, uint64_t size, uint64_t seed)
{
	pattern_fill(pair.memory, count * size, seed, 0);
	for (uint64_t i = 0; i < count; i++) {
		struct weft_write write = { sizeof(write), pair.region, i * size, pair.remote, i * size, size };
		struct weft_op op = { .size = sizeof(op),
				      .queue = pair.here.queue,
				      .tag = seed,
				      .notify = WEFT_NOTIFY_COUNTED,
				      .immediate = immediate };

		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	}
}

static void ends(uint64_t tag, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		assert_status(end_of(&pair.here, tag), 0);
}

static void expected_before(void **state)
{
	peer_tell(&pair.there, COMMAND_EXPECT, 5, 100, 55);
	write_counted(5, 100, 20000, 5);
	counted_at(&pair.there, 55);
	peer_check(&pair.there, pair.number, 0, 100 * 20000, 5);
	ends(5, 100);
}

/* Writes that landed before the call count; then half before and half after. */
static void expected_after(void **state)
{
	struct peer_event event;

	write_counted(6, 50, 3000, 6);
	ends(6, 50);
	peer_tell(&pair.there, COMMAND_EXPECT, 6, 50, 66);
	counted_at(&pair.there, 66);
	write_counted(7, 30, 3000, 7);
	ends(7, 30);
	peer_tell(&pair.there, COMMAND_EXPECT, 7, 60, 77);
	assert_int_equal(peer_wait_try(&pair.there, WEFT_EVENT_COUNTED, 77, 50 * MS, &event), -ETIME);
	write_counted(7, 30, 3000, 7);
	counted_at(&pair.there, 77);
	ends(7, 30);
	peer_check(&pair.there, pair.number, 0, 30 * 3000, 7);
}

/* More landed than expected: the rest counts for the next expectation. Other immediates do not. */
static void the_rest_counts(void **state)
{
	struct peer_event event;

	write_counted(8, 10, 100, 8);
	write_counted(9, 1, 100, 9);
	ends(8, 10);
	ends(9, 1);
	peer_tell(&pair.there, COMMAND_EXPECT, 8, 4, 81);
	counted_at(&pair.there, 81);
	peer_tell(&pair.there, COMMAND_EXPECT, 8, 6, 82);
	counted_at(&pair.there, 82);
	peer_tell(&pair.there, COMMAND_EXPECT, 8, 1, 83);
	assert_int_equal(peer_wait_try(&pair.there, WEFT_EVENT_COUNTED, 83, 50 * MS, &event), -ETIME);
	write_counted(8, 1, 100, 8);
	counted_at(&pair.there, 83);
	ends(8, 1);
	peer_tell(&pair.there, COMMAND_EXPECT, 9, 1, 91);
	counted_at(&pair.there, 91);
}

/* An immediate is a message of its own: it needs no bytes. */
static void nothing_counts_too(void **state)
{
	struct weft_write empty[] = { { sizeof(struct weft_write), pair.region, 0, pair.remote, 0, 0 },
				      { sizeof(struct weft_write), pair.region, 0, pair.remote, 64, 100 },
				      { sizeof(struct weft_write), pair.region, 4096, pair.remote, 4096, 0 } };
	struct weft_op op = {
		.size = sizeof(op), .queue = pair.here.queue, .tag = 12, .notify = WEFT_NOTIFY_COUNTED, .immediate = 12
	};

	if (!strcmp(transport->provider, "shm")) { /* libfabric's shm cannot; weft says so before anything starts */
		assert_status(weft_write(pair.here.engine, empty, &op, NULL), -EOPNOTSUPP);
		assert_status(weft_scatter(pair.here.engine, empty, 3, &op, NULL), -EOPNOTSUPP);
		return;
	}
	peer_tell(&pair.there, COMMAND_EXPECT, 12, 5, 121);
	write_counted(12, 2, 0, 12);
	ends(12, 2);
	assert_status(weft_scatter(pair.here.engine, empty, 3, &op, NULL), 0);
	counted_at(&pair.there, 121);
	ends(12, 1);
}

/* A paged write counts once per page, coalesced or not; a zero count is met at once. */
static void pages_counted(void **state)
{
	struct weft_write_pages pages = {
		.size = sizeof(pages), .page_bytes = 4096, .count = 300, .from = pair.region, .to = pair.remote
	};
	struct weft_op op = {
		.size = sizeof(op), .queue = pair.here.queue, .tag = 10, .notify = WEFT_NOTIFY_COUNTED, .immediate = 10
	};
	struct peer_event event;

	pattern_fill(pair.memory, 300 * 4096, 10, 0);
	peer_tell(&pair.there, COMMAND_EXPECT, 10, 300, 101);
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	counted_at(&pair.there, 101);
	peer_check(&pair.there, pair.number, 0, 300 * 4096, 10);
	assert_status(end_of(&pair.here, 10), 0);
	peer_tell(&pair.there, COMMAND_EXPECT, 10, 1, 102);
	assert_int_equal(peer_wait_try(&pair.there, WEFT_EVENT_COUNTED, 102, 50 * MS, &event), -ETIME);
	peer_tell(&pair.there, COMMAND_EXPECT, 11, 0, 103);
	counted_at(&pair.there, 103);
	write_counted(10, 1, 10, 1);
	counted_at(&pair.there, 102);
	ends(1, 1);
}

static void one_expectation_at_a_time(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 12, .timeout_ns = WEFT_FOREVER };
	weft_transfer first;
	struct weft_event event;
	int second;

	assert_status(weft_expect(pair.here.engine, 0, 12, 1, &op, &first), 0);
	op.tag = 13;
	op.timeout_ns = 10 * S;
	second = weft_expect(pair.here.engine, 0, 12, 1, &op, NULL);
	if (!second) {
		wait_for_event(&pair.here, WEFT_EVENT_COUNTED, 13, &event);
		second = event.status;
		weft_event_release(&event);
	}
	assert_status(second, -EBUSY);
	assert_status(weft_transfer_cancel(pair.here.engine, first), 0);
	wait_for_event(&pair.here, WEFT_EVENT_COUNTED, 12, &event);
	assert_status(event.status, -ECANCELED);
	weft_event_release(&event);
}

/* Many that nobody ever expects leave room for the rest: the latest still count, and so do later ones. */
static void nobody_expects_them(void **state)
{
	enum { FIRST = 1 << 20, MANY = 5000, AT_ONCE = 50 };
	struct peer_event event;

	for (uint32_t i = 0; i < MANY; i += AT_ONCE) {
		for (uint32_t j = 0; j < AT_ONCE; j++)
			write_counted(FIRST + i + j, 1, 8, 20);
		ends(20, AT_ONCE);
	}
	peer_tell(&pair.there, COMMAND_EXPECT, FIRST + MANY - 1, 1, 201);
	counted_at(&pair.there, 201);
	peer_tell(&pair.there, COMMAND_EXPECT, FIRST, 1, 202); /* forgotten: it waits for one more */
	assert_int_equal(peer_wait_try(&pair.there, WEFT_EVENT_COUNTED, 202, 50 * MS, &event), -ETIME);
	write_counted(FIRST, 1, 8, 21);
	ends(21, 1);
	counted_at(&pair.there, 202);
	peer_tell(&pair.there, COMMAND_EXPECT, 30, 3, 203);
	write_counted(30, 3, 8, 22);
	ends(22, 3);
	counted_at(&pair.there, 203);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_before_the_word), cmocka_unit_test(payloads),
		cmocka_unit_test(exactly_once),         cmocka_unit_test(pages_fenced),
		cmocka_unit_test(expected_before),      cmocka_unit_test(expected_after),
		cmocka_unit_test(the_rest_counts),      cmocka_unit_test(nothing_counts_too),
		cmocka_unit_test(pages_counted),        cmocka_unit_test(one_expectation_at_a_time),
		cmocka_unit_test(nobody_expects_them),
	};

	return cmocka_run_group_tests_name("notify", tests, open_pair, close_pair);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
