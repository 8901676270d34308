/* Contiguous writes: sizes around every limit, odd offsets, many at once, neighbours untouched. */
#include "support/fixture.h"

#include <string.h>

#define BYTES (8u << 20)

const uint64_t pair_bytes = BYTES;

/* Writes with a guard on either side and checks that exactly the range changed. */
static void write_and_check(uint64_t from, uint64_t to, uint64_t bytes, uint64_t seed)
{
	const uint64_t guard = 64;

	peer_fill(&pair.there, pair.number, to - guard, bytes + 2 * guard, ~seed);
	pattern_fill(pair.memory + from, bytes, seed, 0);
	assert_status(pair_write(&pair, from, to, bytes), 0);
	peer_check(&pair.there, pair.number, to, bytes, seed);
	peer_check(&pair.there, pair.number, to - guard, guard, ~seed);
	peer_check_at(&pair.there, pair.number, to + bytes, guard, ~seed, guard + bytes);
}

static void sizes(void **state)
{
	static const uint64_t size[] = { 1, 7, 8, 63, 4095, 4096, 4097, 65535, 65536, 65537, 1u << 20, (3u << 20) + 7 };

	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++)
		write_and_check(4096, 8192, size[i], i + 1);
}

static void odd_offsets(void **state)
{
	static const uint64_t size[] = { 1, 3, 4095, 70001, (1u << 20) + 1 };

	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		write_and_check(1, 65, size[i], 100 + i);
		write_and_check(4097, 12289, size[i], 200 + i);
		write_and_check(BYTES - size[i], 999, size[i], 300 + i);
	}
}

static void whole_region(void **state)
{
	pattern_fill(pair.memory, BYTES, 5, 0);
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	peer_check(&pair.there, pair.number, 0, BYTES, 5);
}

static void nothing(void **state)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 0 };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 7 };
	struct weft_event event;

	peer_fill(&pair.there, pair.number, 0, 64, 9);
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_END, 7, &event);
	assert_int_equal(event.status, 0);
	assert_int_equal(event.bytes, 0);
	weft_event_release(&event);
	peer_check(&pair.there, pair.number, 0, 64, 9);
	/* At the very end of both regions zero bytes are still inside. */
	assert_status(pair_write(&pair, BYTES, BYTES, 0), 0);
}

static void end_says_all(void **state)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 123456 };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = UINT64_C(0xfedcba9876543210) };
	weft_transfer transfer = 0;
	struct weft_event event;

	assert_status(weft_write(pair.here.engine, &write, &op, &transfer), 0);
	assert_true(transfer != 0);
	wait_for_event(&pair.here, WEFT_EVENT_END, op.tag, &event);
	assert_int_equal(event.status, 0);
	assert_true(event.quiescent);
	assert_true(event.transfer == transfer);
	assert_true(event.peer == pair.peer);
	assert_int_equal(event.bytes, 123456);
	weft_event_release(&event);
}

/* Many in flight, each its own range: every end comes once and every byte is there. */
static void many_at_once(void **state)
{
	enum { COUNT = 500, SIZE = 9001 };
	uint8_t seen[COUNT] = { 0 };

	pattern_fill(pair.memory, COUNT * SIZE, 77, 0);
	for (uint64_t i = 0; i < COUNT; i++) {
		struct weft_write write = { sizeof(write), pair.region, i * SIZE, pair.remote, i * SIZE, SIZE };
		struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 1000 + i };

		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	}
	for (int i = 0; i < COUNT; i++) {
		struct weft_event event;

		wait_for_event(&pair.here, WEFT_EVENT_END, ANY_TAG, &event);
		assert_status(event.status, 0);
		assert_in_range(event.tag, 1000, 1000 + COUNT - 1);
		assert_int_equal(seen[event.tag - 1000]++, 0);
		weft_event_release(&event);
	}
	peer_check(&pair.there, pair.number, 0, COUNT * SIZE, 77);
}

/* Nobody asked for the end: the data still goes, and the slot is free again. */
static void without_an_end(void **state)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 4096 };
	uint64_t deadline = now_ns() + LIMIT;
	struct weft_engine_info info;

	pattern_fill(pair.memory, 4096, 55, 0);
	assert_status(weft_write(pair.here.engine, &write, NULL, NULL), 0);
	do {
		assert_status(weft_engine_info(pair.here.engine, &info, sizeof(info)), 0);
		assert_true(now_ns() < deadline);
	} while (info.transfers_in_flight);
	peer_check(&pair.there, pair.number, 0, 4096, 55);
}

static void rails_share(void **state)
{
	uint64_t before[4] = { 0 };
	struct weft_rail_info info;

	for (uint32_t i = 0; i < transport->count; i++) {
		assert_status(weft_rail_info(pair.here.engine, i, &info, sizeof(info)), 0);
		assert_string_equal(info.provider, transport->provider);
		before[i] = info.bytes;
	}
	assert_status(weft_rail_info(pair.here.engine, transport->count, &info, sizeof(info)), -ENOENT);
	for (int i = 0; i < 8; i++)
		assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	for (uint32_t i = 0; i < transport->count; i++) {
		assert_status(weft_rail_info(pair.here.engine, i, &info, sizeof(info)), 0);
		assert_int_equal(info.state, WEFT_RAIL_UP);
		assert_true(info.bytes > before[i]);
		assert_int_equal(info.errors, 0);
	}
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),          cmocka_unit_test(odd_offsets),  cmocka_unit_test(whole_region),
		cmocka_unit_test(nothing),        cmocka_unit_test(end_says_all), cmocka_unit_test(many_at_once),
		cmocka_unit_test(without_an_end), cmocka_unit_test(rails_share),
	};

	return cmocka_run_group_tests_name("write", tests, pair_setup, pair_teardown);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
