/* Scatter: many writes to several peers that end as one; a fenced notification reaches every named peer. */
#include "support/peer.h"

#include <pthread.h>
#include <stdatomic.h>

#define BYTES (4u << 20)
#define PEERS 3

static struct pair pair;         /* the first peer */
static struct peer other[PEERS]; /* 1 and up: the others */
static weft_peer handle[PEERS];
static uint64_t number[PEERS];
static weft_remote remote[PEERS];

static struct peer *peer_at(int i)
{
	return i ? &other[i] : &pair.there;
}

static int open_all(void **state)
{
	struct weft_config config = side_config();

	pair_open(&pair, NULL, NULL, BYTES);
	handle[0] = pair.peer;
	number[0] = pair.number;
	remote[0] = pair.remote;
	for (int i = 1; i < PEERS; i++) {
		struct weft_event event;
		struct blob descriptor;

		peer_start(&other[i], &config);
		number[i] = peer_region(&other[i], BYTES, WEFT_REMOTE_WRITE, &descriptor);
		assert_status(
		    weft_peer_add(pair.here.engine, other[i].address.data, other[i].address.bytes, NULL, &handle[i]),
		    0);
		assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_UP, handle[i], LIMIT, &event), 0);
		remote[i] = import(&pair.here, handle[i], &descriptor);
	}
	return 0;
}

static int close_all(void **state)
{
	for (int i = 1; i < PEERS; i++)
		peer_stop(&other[i]);
	pair_close(&pair);
	return 0;
}

static void several_peers(void **state)
{
	enum { PARTS = 60, SIZE = 30011 };
	struct weft_write part[PARTS];
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 1 };
	struct weft_event event;

	pattern_fill(pair.memory, PARTS * SIZE, 1, 0);
	for (uint64_t i = 0; i < PARTS; i++)
		part[i] = (struct weft_write){ sizeof(struct weft_write),    pair.region, i * SIZE, remote[i % PEERS],
					       i / PEERS * SIZE + i % PEERS, SIZE };
	assert_status(weft_scatter(pair.here.engine, part, PARTS, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_END, 1, &event);
	assert_status(event.status, 0);
	assert_int_equal(event.bytes, PARTS * SIZE);
	weft_event_release(&event);
	for (uint64_t i = 0; i < PARTS; i++)
		peer_check_at(peer_at((int)(i % PEERS)), number[i % PEERS], i / PEERS * SIZE + i % PEERS, SIZE, 1,
			      i * SIZE);
}

static void every_peer_is_told(void **state)
{
	struct weft_write part[2 * PEERS];
	struct weft_op op = { .size = sizeof(op),
			      .queue = pair.here.queue,
			      .tag = 2,
			      .notify = WEFT_NOTIFY_FENCED,
			      .notify_tag = 222,
			      .notify_payload = "done",
			      .notify_bytes = 4 };

	pattern_fill(pair.memory, 1u << 20, 2, 0);
	for (uint64_t i = 0; i < 2 * PEERS; i++)
		part[i] = (struct weft_write){ sizeof(struct weft_write), pair.region, i * 100000,
					       remote[i % PEERS],         i * 100000,  100000 };
	assert_status(weft_scatter(pair.here.engine, part, 2 * PEERS, &op, NULL), 0);
	for (int i = 0; i < PEERS; i++) {
		struct peer_event event;

		peer_wait(peer_at(i), WEFT_EVENT_NOTIFY, 222, &event);
		assert_int_equal(event.bytes, 4);
		assert_memory_equal(event.data, "done", 4);
		for (uint64_t j = (uint64_t)i; j < 2 * PEERS; j += PEERS)
			peer_check_at(peer_at(i), number[i], j * 100000, 100000, 2, j * 100000);
		/* Once per peer, not once per part. */
		assert_int_equal(peer_wait_try(peer_at(i), WEFT_EVENT_NOTIFY, 222, 20 * MS, &event), -ETIME);
	}
	assert_status(end_of(&pair.here, 2), 0);
}

static void nothing(void **state)
{
	struct weft_write part[3];
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 3 };

	assert_status(weft_scatter(pair.here.engine, NULL, 0, &op, NULL), 0);
	assert_status(end_of(&pair.here, 3), 0);
	for (int i = 0; i < 3; i++)
		part[i] = (struct weft_write){ sizeof(struct weft_write), pair.region, 0, remote[i], 0, 0 };
	op.tag = 4;
	assert_status(weft_scatter(pair.here.engine, part, 3, &op, NULL), 0);
	assert_status(end_of(&pair.here, 4), 0);
}

/* One bad part, and nothing starts. */
static void all_or_nothing(void **state)
{
	struct weft_write part[2] = { { sizeof(struct weft_write), pair.region, 0, remote[0], 0, 4096 },
				      { sizeof(struct weft_write), pair.region, 0, remote[1], BYTES, 1 } };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 5 };
	struct weft_event event;

	peer_fill(&pair.there, pair.number, 0, 4096, 5);
	assert_status(weft_scatter(pair.here.engine, part, 2, &op, NULL), -ERANGE);
	part[1] = (struct weft_write){ sizeof(struct weft_write), pair.region, 0, 12345, 0, 1 };
	assert_status(weft_scatter(pair.here.engine, part, 2, &op, NULL), -ENOENT);
	assert_int_equal(side_wait(&pair.here, WEFT_EVENT_END, 5, 20 * MS, &event), -ETIME);
	peer_check(&pair.there, pair.number, 0, 4096, 5);
}

static void small_and_many(void **state)
{
	enum { PARTS = 3000, SIZE = 64 };
	static struct weft_write part[PARTS];
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 6 };

	pattern_fill(pair.memory, PARTS * SIZE, 6, 0);
	for (uint64_t i = 0; i < PARTS; i++) /* backwards, so that neighbours do not lie in order */
		part[i] =
		    (struct weft_write){ sizeof(struct weft_write), pair.region, (PARTS - 1 - i) * SIZE, remote[i % 2],
					 (PARTS - 1 - i) * SIZE,    SIZE };
	assert_status(weft_scatter(pair.here.engine, part, PARTS, &op, NULL), 0);
	assert_status(end_of(&pair.here, 6), 0);
	for (uint64_t i = 0; i < PARTS; i++)
		peer_check_at(peer_at((int)(i % 2)), number[i % 2], (PARTS - 1 - i) * SIZE, SIZE, 6,
			      (PARTS - 1 - i) * SIZE);
}

static _Atomic weft_transfer just_ended;
static atomic_bool done;

static void *cancel_again(void *none)
{
	while (!atomic_load(&done))
		if (weft_transfer_cancel(pair.here.engine, atomic_load(&just_ended)) != -ENOENT)
			return "a scatter that has ended was cancelled";
	return NULL;
}

static weft_transfer scatter_well(uint64_t tag)
{
	struct weft_write part[PEERS];
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = tag };
	weft_transfer transfer = 0;

	for (int i = 0; i < PEERS; i++)
		part[i] = (struct weft_write){ sizeof(struct weft_write), pair.region, 0, remote[i], 0, 100 };
	assert_status(weft_scatter(pair.here.engine, part, PEERS, &op, &transfer), 0);
	assert_status(end_of(&pair.here, tag), 0);
	return transfer;
}

/* Someone cancels a scatter that has just ended while its slot goes to others, most of which are refused: none of
 * them is affected. */
static void cancelled_late(void **state)
{
	struct weft_write part[2] = { { sizeof(struct weft_write), pair.region, 0, remote[0], 0, 100 },
				      { sizeof(struct weft_write), pair.region, 0, 0, 0, 100 } };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 1 };
	struct weft_event event;
	pthread_t thread;
	void *wrong = NULL;

	atomic_store(&just_ended, scatter_well(1000));
	assert_int_equal(pthread_create(&thread, NULL, cancel_again, NULL), 0);
	for (uint64_t i = 0; i < 1500; i++) {
		for (int refused = 0; refused < 5; refused++)
			assert_status(weft_scatter(pair.here.engine, part, 2, &op, NULL), -ENOENT);
		atomic_store(&just_ended, scatter_well(2000 + i));
	}
	atomic_store(&done, true);
	pthread_join(thread, &wrong);
	if (wrong)
		fail_msg("%s", (char *)wrong);
	assert_int_equal(weft_queue_poll(pair.here.queue, &event, sizeof(event), 1), 0); /* nothing ended twice */
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_peers),  cmocka_unit_test(every_peer_is_told),
		cmocka_unit_test(nothing),        cmocka_unit_test(all_or_nothing),
		cmocka_unit_test(small_and_many), cmocka_unit_test(cancelled_late),
	};

	return cmocka_run_group_tests_name("scatter", tests, open_all, close_all);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
