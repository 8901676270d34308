/* Peers that are replaced, added again and removed: by several threads at once, and after they were down. */
#include "support/peer.h"
#include "support/rest.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#define ROUNDS  3000
#define THREADS 4
#define TRIES   10

static struct pair pair;
static struct blob strangers[2]; /* engines that once existed */

static int open_all(void **state)
{
	struct weft_config config = side_config();

	for (int i = 0; i < 2; i++) {
		struct side side;

		assert_status(side_open(&side, &config), 0);
		address_of(side.engine, &strangers[i]);
		assert_status(side_close(&side), 0);
	}
	config.heartbeat_ns = 50 * MS;
	config.peer_limit_ns = 2 * S;
	pair_open(&pair, &config, NULL, 4096);
	return 0;
}

static int close_all(void **state)
{
	pair_close(&pair);
	return 0;
}

/* ---- by several threads at once ---- */

static void *meddler(void *argument)
{
	uint64_t seed = (uintptr_t)argument;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t first = random_next(&seed) % 2;
		weft_peer peer;
		int error;

		/* Others may remove it meanwhile: this finds it, or makes it anew. */
		error = weft_peer_add(pair.here.engine, strangers[first].data, strangers[first].bytes, NULL, &peer);
		if (error)
			return "adding";
		if (random_next(&seed) % 2) {
			error =
			    weft_peer_replace(pair.here.engine, peer, strangers[!first].data, strangers[!first].bytes);
			if (error && error != -ENOENT && error != -EALREADY)
				return "replacing";
		}
		error = random_next(&seed) % 4 ? weft_peer_remove(pair.here.engine, peer) : 0;
		if (error && error != -ENOENT)
			return "removing";
	}
	return NULL;
}

/* A removed peer is not found again, by an add or by a hello. */
static void several_threads(void **state)
{
	pthread_t thread[THREADS];
	struct weft_peer_info info;
	weft_peer peer;
	void *wrong;

	if (!strcmp(transport->provider, "shm"))
		skip(); /* libfabric 1.17 spins for an endpoint that was closed */
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, meddler, (void *)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &wrong);
		if (wrong)
			fail_msg("%s failed", (char *)wrong);
	}
	for (int i = 0; i < 2; i++) {
		assert_status(weft_peer_add(pair.here.engine, strangers[i].data, strangers[i].bytes, NULL, &peer), 0);
		assert_status(weft_peer_info(pair.here.engine, peer, &info, sizeof(info)), 0);
		assert_status(weft_peer_remove(pair.here.engine, peer), 0);
		assert_status(weft_peer_info(pair.here.engine, peer, &info, sizeof(info)), -ENOENT);
	}
}

/* ---- submitting right after ---- */

/* On a slow machine the peer may have been down before, and come back: events of that are still there. */
static void until_down(void)
{
	struct weft_event event;
	int error;

	do {
		assert_int_equal(side_wait_peer(&pair.here, WEFT_EVENT_PEER_DOWN, pair.peer, LIMIT, &event), 0);
		weft_event_release(&event);
		error = weft_send(pair.here.engine, pair.peer, 1, "lost", 4, NULL, NULL);
	} while (!error);
	assert_status(error, -EHOSTDOWN);
}

static int replace_and_send(void)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 7 };

	assert_status(weft_peer_replace(pair.here.engine, pair.peer, pair.there.address.data, pair.there.address.bytes),
		      0);
	assert_status(weft_send(pair.here.engine, pair.peer, 5, "hello", 5, &op, NULL), 0);
	return end_of(&pair.here, 7);
}

/* The handle works at once, not only after a worker's turn. */
static void send_after_replace(void **state)
{
	struct weft_config config = side_config();
	struct peer_event event;

	for (int i = 0; i < 3; i++) {
		int status, tries = 0;

		peer_kill(&pair.there);
		until_down();
		peer_start(&pair.there, &config);
		/* A peer that does not answer in time is given up: its process may be slow, but not every time. */
		do
			status = replace_and_send();
		while (status == -EHOSTDOWN && ++tries < TRIES);
		assert_status(status, 0);
		peer_wait(&pair.there, WEFT_EVENT_MESSAGE, 5, &event);
	}
}

/* The same for a peer that is added again after it was given up: it was only stopped. */
static void send_after_adding_again(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 8 };
	struct peer_event event;
	weft_peer peer;

	stop_at_rest(pair.there.pid);
	until_down();
	assert_status(weft_peer_add(pair.here.engine, pair.there.address.data, pair.there.address.bytes, NULL, &peer),
		      0);
	assert_true(peer == pair.peer);
	assert_status(weft_send(pair.here.engine, pair.peer, 6, "hello", 5, &op, NULL), 0);
	kill(pair.there.pid, SIGCONT);
	/* If it comes back slowly, it was given up once more: that is no refusal. */
	if (end_of(&pair.here, 8) == 0)
		peer_wait(&pair.there, WEFT_EVENT_MESSAGE, 6, &event);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_threads),
		cmocka_unit_test(send_after_replace),
		cmocka_unit_test(send_after_adding_again),
	};

	return cmocka_run_group_tests_name("replaced, added again, removed", tests, open_all, close_all);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
