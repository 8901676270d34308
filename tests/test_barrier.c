/* Barriers between three engines in three processes. */
#include "support/peer.h"

static struct pair pair; /* this side and the first */
static struct peer third;
static weft_peer all[2];      /* as we see them */
static weft_peer at_first[2]; /* this side and the third, as the first sees them */
static weft_peer at_third[2]; /* this side and the first, as the third sees them */

static int open_all(void **state)
{
	struct weft_config config = side_config();
	struct weft_event event;
	struct blob ours;

	pair_open(&pair, NULL, NULL, 4096);
	peer_start(&third, &config);
	address_of(pair.here.engine, &ours);
	all[0] = pair.peer;
	assert_status(weft_peer_add(pair.here.engine, third.address.data, third.address.bytes, NULL, &all[1]), 0);
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_UP, all[1], LIMIT, &event), 0);
	at_first[0] = pair.back;
	at_first[1] = peer_add(&pair.there, &third.address);
	at_third[0] = peer_add(&third, &ours);
	at_third[1] = peer_add(&third, &pair.there.address);
	return 0;
}

static int close_all(void **state)
{
	peer_stop(&third);
	pair_close(&pair);
	return 0;
}

static void enter(struct peer *peer, const weft_peer *peers, uint32_t count, uint64_t id, uint64_t tag)
{
	struct command command = { .code = COMMAND_BARRIER,
				   .bytes = count * (uint32_t)sizeof(*peers),
				   .arg = { id, tag } };

	peer_do(peer, &command, peers);
}

static void enter_here(uint32_t count, uint64_t id, uint64_t tag, uint64_t timeout_ns)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = tag, .timeout_ns = timeout_ns };

	assert_status(weft_barrier(pair.here.engine, all, count, id, &op, NULL), 0);
}

static void ended_at(struct peer *peer, uint64_t tag)
{
	struct peer_event event;

	peer_wait(peer, WEFT_EVENT_END, tag, &event);
	assert_status(event.status, 0);
}

static void nobody_leaves_early(void **state)
{
	struct peer_event event;
	struct weft_event here;

	enter_here(2, 1, 10, 0);
	enter(&pair.there, at_first, 2, 1, 11);
	assert_int_equal(side_wait(&pair.here, WEFT_EVENT_END, 10, 100 * MS, &here), -ETIME);
	assert_int_equal(peer_wait_try(&pair.there, WEFT_EVENT_END, 11, 50 * MS, &event), -ETIME);
	enter(&third, at_third, 2, 1, 12);
	assert_status(end_of(&pair.here, 10), 0);
	ended_at(&pair.there, 11);
	ended_at(&third, 12);
}

static void again_and_again(void **state)
{
	for (uint64_t id = 100; id < 150; id++) {
		enter(&third, at_third, 2, id, id);
		enter_here(2, id, id, 0);
		enter(&pair.there, at_first, 2, id, id);
		assert_status(end_of(&pair.here, id), 0);
		ended_at(&pair.there, id);
		ended_at(&third, id);
	}
}

/* The same id used again before the slow ones have seen the end of the first. */
static void same_id(void **state)
{
	for (uint64_t round = 0; round < 20; round++) {
		enter(&pair.there, at_first, 1, 7, 300 + round);
		enter_here(1, 7, 300 + round, 0);
		assert_status(end_of(&pair.here, 300 + round), 0);
	}
	for (uint64_t round = 0; round < 20; round++)
		ended_at(&pair.there, 300 + round);
}

static void ids_do_not_mix(void **state)
{
	struct weft_event event;

	enter_here(1, 21, 21, 0);
	enter_here(1, 22, 22, 0);
	enter(&pair.there, at_first, 1, 22, 22);
	assert_status(end_of(&pair.here, 22), 0);
	assert_int_equal(side_wait(&pair.here, WEFT_EVENT_END, 21, 50 * MS, &event), -ETIME);
	enter(&pair.there, at_first, 1, 21, 21);
	assert_status(end_of(&pair.here, 21), 0);
	ended_at(&pair.there, 21);
	ended_at(&pair.there, 22);
}

static void alone(void **state)
{
	enter_here(0, 5, 5, 0);
	assert_status(end_of(&pair.here, 5), 0);
}

static void deadline(void **state)
{
	enter_here(2, 31, 31, 100 * MS);
	assert_status(end_of(&pair.here, 31), -ETIMEDOUT);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_leaves_early), cmocka_unit_test(again_and_again), cmocka_unit_test(same_id),
		cmocka_unit_test(ids_do_not_mix),      cmocka_unit_test(alone),           cmocka_unit_test(deadline),
	};

	return cmocka_run_group_tests_name("barrier", tests, open_all, close_all);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
