/* End-to-end checksums: a correct transfer is announced and done, a wrong one is neither, and the engine goes on. */
#include "support/fixture.h"

#include <string.h>

#define BYTES (8u << 20)

const uint64_t pair_bytes = BYTES;

static struct weft_op checked(uint64_t tag)
{
	return (struct weft_op){ .size = sizeof(struct weft_op),
				 .queue = pair.here.queue,
				 .tag = tag,
				 .notify = WEFT_NOTIFY_FENCED,
				 .notify_tag = tag,
				 .notify_payload = "sum",
				 .notify_bytes = 3,
				 .flags = WEFT_CHECKSUM };
}

static void told(uint64_t tag)
{
	struct peer_event event;

	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, tag, &event);
	assert_status(event.status, 0);
	assert_int_equal(event.bytes, 3);
	assert_memory_equal(event.data, "sum", 3);
	assert_status(end_of(&pair.here, tag), 0);
}

/* The end came with the verdict, so a notification that was not delivered by now never is. */
static void not_told(uint64_t tag)
{
	struct weft_event end;
	struct peer_event event;

	wait_for_event(&pair.here, WEFT_EVENT_END, tag, &end);
	assert_status(end.status, -EBADMSG);
	assert_non_null(end.error);
	assert_true(end.quiescent);
	weft_event_release(&end);
	assert_int_equal(peer_wait_try(&pair.there, WEFT_EVENT_NOTIFY, tag, 0, &event), -ETIME);
}

static void ranges(void **state)
{
	static const uint64_t size[] = { 0, 1, 255, 4096, 65537, (3u << 20) + 7, BYTES };

	for (uint64_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, size[i] };
		struct weft_op op = checked(10 + i);

		pattern_fill(pair.memory, size[i], i, 0);
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
		told(10 + i);
		peer_check(&pair.there, pair.number, 0, size[i], i);
	}
}

/* Pages with and without lists, strides, offsets, pages smaller than a piece and larger than one. */
static void pages_of_every_kind(void **state)
{
	static uint32_t from[500], to[500];
	struct weft_write_pages kinds[] = {
		{ .size = sizeof(struct weft_write_pages),
		  .page_bytes = 64,
		  .count = 500,
		  .from_index = from,
		  .to_index = to },
		{ .size = sizeof(struct weft_write_pages),
		  .page_bytes = 4096,
		  .count = 500,
		  .to_index = to,
		  .to_stride = 8192,
		  .to_offset = 11 },
		{ .size = sizeof(struct weft_write_pages),
		  .page_bytes = 4096,
		  .count = 500,
		  .from_index = from,
		  .to_offset = 4096 },
		{ .size = sizeof(struct weft_write_pages),
		  .page_bytes = 1000,
		  .count = 300,
		  .from_stride = 1024,
		  .to_stride = 3000 },
		{ .size = sizeof(struct weft_write_pages), .page_bytes = (3u << 20) + 5, .count = 2 },
		{ .size = sizeof(struct weft_write_pages), .page_bytes = 4096, .count = 0, .to_index = to },
	};

	for (uint32_t i = 0; i < 500; i++) {
		from[i] = i * 11 % 500;
		to[i] = i * 7 % 500;
	}
	pattern_fill(pair.memory, BYTES, 2, 0);
	for (uint64_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct weft_op op = checked(100 + i);

		kinds[i].from = pair.region;
		kinds[i].to = pair.remote;
		assert_status(weft_write_pages(pair.here.engine, &kinds[i], &op, NULL), 0);
		told(100 + i);
	}
}

/* Ranges that lie anywhere, one of them empty, in one notification. */
static void scattered(void **state)
{
	enum { PARTS = 40, SIZE = 50021 };
	struct weft_write part[PARTS];
	struct weft_op op = checked(200);

	pattern_fill(pair.memory, PARTS * SIZE, 3, 0);
	for (uint64_t i = 0; i < PARTS; i++)
		part[i] = (struct weft_write){ sizeof(struct weft_write), pair.region,         i * SIZE, pair.remote,
					       (PARTS - 1 - i) * SIZE,    i % 9 ? SIZE - i : 0 };
	assert_status(weft_scatter(pair.here.engine, part, PARTS, &op, NULL), 0);
	told(200);
}

/* Two different pages to one place: whichever stays, the receiver does not hold what was sent. */
static void what_differs_is_told_to_nobody(void **state)
{
	static const uint32_t twice[] = { 5, 5 }, once[] = { 5, 6 };
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = 4096,
					  .count = 2,
					  .from = pair.region,
					  .to = pair.remote,
					  .to_index = twice };
	struct weft_write both[] = { { sizeof(struct weft_write), pair.region, 0, pair.remote, 0, 300000 },
				     { sizeof(struct weft_write), pair.region, 300000, pair.remote, 299999, 300000 } };
	struct weft_op op = checked(300);

	pattern_fill(pair.memory, 600000, 4, 0);
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	not_told(300);
	op = checked(301);
	assert_status(weft_scatter(pair.here.engine, both, 2, &op, NULL), 0);
	not_told(301);
	pages.to_index = once;
	op = checked(302);
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	told(302);
}

/* Large and small at once: all are judged, and none waits until another's verdict is sent. */
static void many_at_once(void **state)
{
	enum { COUNT = 200, SIZE = 40000 };

	pattern_fill(pair.memory, COUNT * SIZE, 5, 0);
	for (uint64_t i = 0; i < COUNT; i++) {
		struct weft_write write = { sizeof(write), pair.region, i * SIZE,
					    pair.remote,   i * SIZE,    i % 3 ? SIZE : 1 };
		struct weft_op op = checked(1000 + i);

		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	}
	for (uint64_t i = 0; i < COUNT; i++)
		told(1000 + i);
}

/* All the receiver's transfers wait for something that does not come: its verdicts need none. */
static void verdicts_need_no_room(void **state)
{
	struct weft_config there = side_config();
	struct weft_write write;
	struct weft_op op;
	struct pair full;

	there.max_transfers = 4;
	pair_open(&full, NULL, &there, 65536);
	for (uint64_t i = 0; i < there.max_transfers; i++)
		peer_tell(&full.there, COMMAND_EXPECT, 70 + i, 1, 70 + i);
	write = (struct weft_write){ sizeof(struct weft_write), full.region, 0, full.remote, 0, 65536 };
	op = checked(1);
	op.queue = full.here.queue;
	assert_status(weft_write(full.here.engine, &write, &op, NULL), 0);
	assert_status(end_of(&full.here, 1), 0);
	pair_close(&full);
}

static void refused(void **state)
{
	static uint32_t index[1200000];
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 4096 };
	struct weft_read read = { sizeof(read), pair.remote, 0, pair.region, 0, 4096 };
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = 1,
					  .count = 1200000,
					  .from = pair.region,
					  .to = pair.remote,
					  .to_index = index };
	struct weft_op op = checked(400);

	assert_status(weft_read(pair.here.engine, &read, &op, NULL), -EINVAL);
	assert_status(weft_send(pair.here.engine, pair.peer, 0, "x", 1, &op, NULL), -EINVAL);
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), -EMSGSIZE);
	pages = (struct weft_write_pages){ .size = sizeof(struct weft_write_pages),
					   .page_bytes = 4096,
					   .count = 2,
					   .from = pair.region,
					   .to = pair.remote,
					   .to_stride = 1024 };
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), -EINVAL);
	op.notify = WEFT_NOTIFY_NOTHING;
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), -EINVAL);
	op.notify = WEFT_NOTIFY_COUNTED;
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), -EINVAL);
	op = checked(401);
	op.flags = 2;
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), -EINVAL);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges),       cmocka_unit_test(pages_of_every_kind),
		cmocka_unit_test(scattered),    cmocka_unit_test(what_differs_is_told_to_nobody),
		cmocka_unit_test(many_at_once), cmocka_unit_test(verdicts_need_no_room),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests_name("checksum", tests, pair_setup, pair_teardown);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
