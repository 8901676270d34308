/* Reads: sizes, odd offsets, many at once, both directions at the same time. */
#include "support/fixture.h"

#include <string.h>

#define BYTES (8u << 20)

const uint64_t pair_bytes = BYTES;

static void read_and_check(uint64_t from, uint64_t to, uint64_t bytes, uint64_t seed)
{
	struct weft_read read = { sizeof(read), pair.remote, from, pair.region, to, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = seed };
	struct weft_event event;

	peer_fill(&pair.there, pair.number, from, bytes, seed);
	memset(pair.memory, 0x5a, BYTES);
	assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_END, seed, &event);
	assert_status(event.status, 0);
	assert_int_equal(event.bytes, bytes);
	weft_event_release(&event);
	assert_int_equal(pattern_differs(pair.memory + to, bytes, seed, 0), bytes);
	for (uint64_t i = 1; i <= 64; i++) {
		if (to >= i)
			assert_int_equal(pair.memory[to - i], 0x5a);
		if (to + bytes + i <= BYTES)
			assert_int_equal(pair.memory[to + bytes + i - 1], 0x5a);
	}
}

static void sizes(void **state)
{
	static const uint64_t size[] = { 0, 1, 8, 4095, 4096, 65536, 65537, (3u << 20) + 7 };

	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		read_and_check(4096, 8192, size[i], 1 + i);
		read_and_check(4099, 65, size[i], 100 + i);
	}
	read_and_check(0, 0, BYTES, 200);
}

static void many_at_once(void **state)
{
	enum { COUNT = 300, SIZE = 12289 };

	peer_fill(&pair.there, pair.number, 0, COUNT * SIZE, 3);
	memset(pair.memory, 0, BYTES);
	for (uint64_t i = 0; i < COUNT; i++) {
		struct weft_read read = { sizeof(read), pair.remote, i * SIZE, pair.region, i * SIZE, SIZE };
		struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 1000 + i };

		assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
	}
	for (uint64_t i = 0; i < COUNT; i++)
		assert_status(end_of(&pair.here, 1000 + i), 0);
	assert_int_equal(pattern_differs(pair.memory, COUNT * SIZE, 3, 0), COUNT * SIZE);
}

/* A fenced notification on a read: the owner learns that its memory was read. */
static void owner_is_told(void **state)
{
	struct weft_read read = { sizeof(read), pair.remote, 0, pair.region, 0, 100000 };
	struct weft_op op = { .size = sizeof(op),
			      .queue = pair.here.queue,
			      .tag = 4,
			      .notify = WEFT_NOTIFY_FENCED,
			      .notify_tag = 44,
			      .notify_payload = "read",
			      .notify_bytes = 4 };
	struct peer_event event;

	peer_fill(&pair.there, pair.number, 0, 100000, 4);
	assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 44, &event);
	assert_memory_equal(event.data, "read", 4);
	assert_status(end_of(&pair.here, 4), 0);
	/* The next test makes the peer write here, and nothing in this process orders that after this look. */
	assert_int_equal(landed_differs(pair.memory, 100000, 4, 0), 100000);
	op.notify = WEFT_NOTIFY_COUNTED;
	assert_status(weft_read(pair.here.engine, &read, &op, NULL), -EINVAL);
}

/* We read and write while the peer writes to us. */
static void both_directions(void **state)
{
	enum { SIZE = 1 << 20, ROUNDS = 20 };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue };
	struct command rounds = { .code = COMMAND_ROUNDS };
	struct answer answer;
	struct blob ours;

	export_of(pair.here.engine, pair.region, &ours);
	rounds.arg[0] =
	    peer_do(&pair.there,
		    &(struct command){ .code = COMMAND_IMPORT, .bytes = (uint32_t)ours.bytes, .arg = { pair.back } },
		    ours.data);
	rounds.arg[1] = pair.number;
	rounds.arg[2] = SIZE;
	rounds.arg[3] = ROUNDS;
	peer_fill(&pair.there, pair.number, 0, 2 * SIZE, 5);
	pattern_fill(pair.memory + 3 * SIZE, SIZE, 6, 0);
	peer_begin(&pair.there, &rounds, NULL); /* their 0… to our 0… */
	for (uint64_t i = 0; i < ROUNDS; i++) {
		struct weft_read read = { sizeof(read), pair.remote, SIZE, pair.region, SIZE, SIZE };
		struct weft_write write = { sizeof(write), pair.region, 3 * SIZE, pair.remote, 4 * SIZE, SIZE };

		op.tag = 100 + 2 * i;
		assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
		op.tag++;
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	}
	for (uint64_t i = 0; i < 2 * ROUNDS; i++)
		assert_status(end_of(&pair.here, 100 + i), 0);
	assert_status(peer_end(&pair.there, &answer), 0);
	assert_int_equal(answer.value[0], ROUNDS);
	assert_int_equal(landed_differs(pair.memory, SIZE, 5, 0), SIZE);
	assert_int_equal(pattern_differs(pair.memory + SIZE, SIZE, 5, SIZE), SIZE);
	peer_check(&pair.there, pair.number, 4 * SIZE, SIZE, 6);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),
		cmocka_unit_test(many_at_once),
		cmocka_unit_test(owner_is_told),
		cmocka_unit_test(both_directions),
	};

	return cmocka_run_group_tests_name("read", tests, pair_setup, pair_teardown);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
