/* Operations that wait for a word and end before it comes: deadlines, cancels, peers that go, memory that goes, engines that close. */
#include "support/words.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#define BYTES (4u << 20)

static struct pair pair;

static int open_pair(void **state)
{
	pair_open(&pair, NULL, NULL, BYTES);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	return 0;
}

static void check_unstarted(enum kind kind, weft_transfer transfer, int status)
{
	assert_status(ended(&pair, transfer), status);
	assert_true(load(&end_word) == 70 + WEFT_WORD_FAILED);
	store(&start_word, 7); /* too late */
	let_time_pass(&pair);
	if (kind < SEND)
		check_target(&pair, kind, 400 + kind);
}

static void the_deadline_comes_first(void **state)
{
	static const uint64_t timeouts[] = { 1, 20 * WEFT_MILLISECOND };

	for (int i = 0; i < 2; i++)
		for (enum kind kind = 0; kind < KINDS; kind++) {
			struct weft_op op = waiting_op();
			weft_transfer transfer;

			op.timeout_ns = timeouts[i];
			fill_target(&pair, kind, 400 + kind);
			make_source(&pair, kind, 500 + kind);
			assert_status(submit(&pair, kind, &op, &transfer), 0);
			check_unstarted(kind, transfer, -ETIMEDOUT);
		}
}

static void a_cancel_comes_first(void **state)
{
	for (int i = 0; i < 3; i++)
		for (enum kind kind = 0; kind < KINDS; kind++) {
			struct weft_op op = waiting_op();
			weft_transfer transfer;

			fill_target(&pair, kind, 400 + kind);
			make_source(&pair, kind, 500 + kind);
			assert_status(submit(&pair, kind, &op, &transfer), 0);
			if (i) /* else at once */
				let_time_pass(&pair);
			if (i < 2)
				assert_status(weft_transfer_cancel(pair.here.engine, transfer), 0);
			else
				assert_status(weft_peer_cancel(pair.here.engine, pair.peer), 0);
			check_unstarted(kind, transfer, -ECANCELED);
		}
}

/* A cancel or a deadline that races with the word: one of both ends each, once, and the word says which. */
static void racing(void **state)
{
	for (uint32_t i = 0; i < 300; i++) {
		struct weft_op op = waiting_op();
		weft_transfer transfer;
		int status;

		op.timeout_ns = i % 3 ? WEFT_FOREVER : (i + 1) * WEFT_MICROSECOND;
		assert_status(submit(&pair, (enum kind)(i % SEND), &op, &transfer), 0);
		for (uint32_t spin = 0; spin < i % 50; spin++)
			sched_yield();
		store(&start_word, 7);
		if (i % 3 == 1)
			weft_transfer_cancel(pair.here.engine, transfer);
		status = ended(&pair, transfer);
		assert_true(!status || status == (i % 3 ? -ECANCELED : -ETIMEDOUT));
		assert_true(load(&end_word) == (status ? 70 + WEFT_WORD_FAILED : 70));
	}
}

static void all_kinds_wait(weft_transfer *transfers, uint64_t *ends)
{
	struct weft_op op = waiting_op();

	for (enum kind kind = 0; kind < KINDS; kind++) {
		ends[kind] = 0;
		op.end_word = &ends[kind];
		assert_status(submit(&pair, kind, &op, &transfers[kind]), 0);
	}
}

static void all_ended(const weft_transfer *transfers, const uint64_t *ends, int status)
{
	for (enum kind kind = 0; kind < KINDS; kind++) {
		assert_status(ended(&pair, transfers[kind]), status);
		assert_true(load(&ends[kind]) == 70 + WEFT_WORD_FAILED);
	}
	store(&start_word, 7);
}

static void the_peer_is_replaced(void **state)
{
	struct weft_config config = side_config();
	weft_transfer transfers[KINDS];
	uint64_t ends[KINDS];
	struct peer second;

	pair_open(&pair, NULL, NULL, BYTES);
	peer_start(&second, &config);
	all_kinds_wait(transfers, ends);
	assert_status(weft_peer_replace(pair.here.engine, pair.peer, second.address.data, second.address.bytes), 0);
	all_ended(transfers, ends, -EHOSTDOWN);
	peer_stop(&second);
	pair_close(&pair);
}

static void the_peer_is_removed(void **state)
{
	weft_transfer transfers[KINDS];
	uint64_t ends[KINDS];

	pair_open(&pair, NULL, NULL, BYTES);
	all_kinds_wait(transfers, ends);
	assert_status(weft_peer_remove(pair.here.engine, pair.peer), 0);
	all_ended(transfers, ends, -ECANCELED);
	pair_close(&pair);
}

static void the_peer_is_killed(void **state)
{
	struct weft_config config = side_config();
	weft_transfer transfers[KINDS];
	uint64_t ends[KINDS];

	config.heartbeat_ns = 50 * MS;
	config.peer_limit_ns = 2 * S;
	pair_open(&pair, &config, NULL, BYTES);
	all_kinds_wait(transfers, ends);
	peer_kill(&pair.there);
	all_ended(transfers, ends, -EHOSTDOWN);
	pair_close(&pair);
}

/* No event can be taken any more, but a stream that waits for an end word goes on. */
static void the_engine_closes(void **state)
{
	struct weft_op op;
	uint64_t ends[KINDS] = { 0 };

	pair_open(&pair, NULL, NULL, BYTES);
	op = waiting_op();
	op.flags = 0;
	for (enum kind kind = 0; kind < KINDS; kind++) {
		op.end_word = &ends[kind];
		assert_status(submit(&pair, kind, &op, NULL), 0);
	}
	fill_target(&pair, WRITE, 400);
	assert_status(side_close(&pair.here), 0);
	for (enum kind kind = 0; kind < KINDS; kind++)
		assert_true(load(&ends[kind]) == 70 + WEFT_WORD_FAILED);
	check_target(&pair, WRITE, 400);
	peer_stop(&pair.there);
	side_memory_free(pair.memory);
}

/* The region that an operation waits to write to may go meanwhile: its owner does not wait for us, and nothing lands. */
static void what_waits_for_memory_that_goes(void **state)
{
	struct weft_op op = waiting_op();
	struct blob descriptor;
	weft_transfer transfer;
	uint64_t number = peer_region(&pair.there, PAGE, WEFT_REMOTE_WRITE, &descriptor);
	weft_remote remote = import(&pair.here, pair.peer, &descriptor);
	struct weft_write write = { sizeof(write), pair.region, 0, remote, 0, PAGE };
	int status;

	if (!strcmp(transport->provider, "shm"))
		skip(); /* libfabric 1.17's checks no keys */
	peer_fill(&pair.there, number, 0, PAGE, 6);
	assert_status(weft_write(pair.here.engine, &write, &op, &transfer), 0);
	assert_status(weft_region_close(pair.here.engine, pair.region), -EBUSY);
	let_time_pass(&pair);
	peer_tell(&pair.there, COMMAND_REVOKE, number);
	store(&start_word, 7);
	status = ended(&pair, transfer);
	assert_true(status == -ESTALE || status == -EREMOTEIO || status == -EIO);
	peer_check(&pair.there, number, 0, PAGE, 6);
}

static int run(void)
{
	const struct CMUnitTest together[] = {
		cmocka_unit_test(the_deadline_comes_first),
		cmocka_unit_test(a_cancel_comes_first),
		cmocka_unit_test(racing),
		cmocka_unit_test(what_waits_for_memory_that_goes),
	};
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(the_peer_is_replaced),
		cmocka_unit_test(the_peer_is_removed),
		cmocka_unit_test(the_peer_is_killed),
		cmocka_unit_test(the_engine_closes),
	};
	int failed = cmocka_run_group_tests_name("words that come too late", together, open_pair, close_pair);

	return failed + cmocka_run_group_tests_name("the peer or the engine goes first", alone, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
