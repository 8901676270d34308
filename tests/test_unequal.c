/* Unequal numbers of rails: one against four, in both directions, with data, reads, messages and notifications. */
#include "support/peer.h"

#include <string.h>

#define BYTES (6u << 20)

static void exercise(uint32_t here_rails, uint32_t there_rails)
{
	static const char *const rails[] = { "", "127.0.0.1", "127.0.0.1,127.0.0.2", "127.0.0.2,127.0.0.3,127.0.0.4",
					     "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4" };
	struct weft_config here = side_config(), there = side_config();
	struct weft_op op = { .size = sizeof(op), .notify = WEFT_NOTIFY_FENCED, .notify_tag = 44 };
	struct weft_peer_info info;
	struct peer_event told;
	struct pair pair;
	struct blob ours;
	weft_remote back;

	here.rails = rails[here_rails];
	there.rails = rails[there_rails];
	pair_open(&pair, &here, &there, BYTES);
	assert_status(weft_peer_info(pair.here.engine, pair.peer, &info, sizeof(info)), 0);
	assert_int_equal(info.rails, there_rails);
	pattern_fill(pair.memory, BYTES, 1, 0);
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, BYTES };

	op.queue = pair.here.queue;
	op.tag = 4;
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 44, &told);
	peer_check(&pair.there, pair.number, 0, BYTES, 1);
	assert_status(end_of(&pair.here, 4), 0);

	/* All rails of the larger side take part, even if the other side has only one. */
	for (uint32_t i = 0; i < here_rails; i++) {
		struct weft_rail_info rail;

		for (int tries = 0; tries < 20; tries++)
			assert_status(pair_write(&pair, 0, 0, BYTES), 0);
		assert_status(weft_rail_info(pair.here.engine, i, &rail, sizeof(rail)), 0);
		assert_true(rail.bytes > 0);
	}

	/* And back: they write to us, we read from them. */
	export_of(pair.here.engine, pair.region, &ours);
	back = peer_do(&pair.there,
		       &(struct command){ .code = COMMAND_IMPORT, .bytes = (uint32_t)ours.bytes, .arg = { pair.back } },
		       ours.data);
	landed_fill(pair.memory, BYTES, 3, 0);
	peer_fill(&pair.there, pair.number, 0, BYTES, 2);
	peer_tell(&pair.there, COMMAND_WRITE, pair.number, 0, back, 0, BYTES, 5, 55);
	struct weft_event event;

	wait_for_event(&pair.here, WEFT_EVENT_NOTIFY, 55, &event);
	weft_event_release(&event);
	assert_int_equal(pattern_differs(pair.memory, BYTES, 2, 0), BYTES);
	memset(pair.memory, 0, BYTES);
	struct weft_read read = { sizeof(read), pair.remote, 0, pair.region, 0, BYTES };

	op.notify = WEFT_NOTIFY_NOTHING;
	op.tag = 6;
	assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
	assert_status(end_of(&pair.here, 6), 0);
	assert_int_equal(pattern_differs(pair.memory, BYTES, 2, 0), BYTES);
	pair_close(&pair);
}

static void one_against_four(void **state)
{
	exercise(1, 4);
}

static void four_against_one(void **state)
{
	exercise(4, 1);
}

static void two_against_three(void **state)
{
	exercise(2, 3);
}

static void three_against_two(void **state)
{
	exercise(3, 2);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_against_four),
		cmocka_unit_test(four_against_one),
		cmocka_unit_test(two_against_three),
		cmocka_unit_test(three_against_two),
	};

	return cmocka_run_group_tests_name("unequal rails", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
