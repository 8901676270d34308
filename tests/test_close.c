/* Opening and closing: configurations, a full ring, closing with work in flight, waiters, and nothing left
 * behind. */
#include "support/peer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTES (16u << 20)

static void config_sizes(void **state)
{
	struct weft_config config = side_config();
	struct {
		struct weft_config config;
		uint64_t later;
	} newer = { .config = config };
	weft_engine *engine = NULL;

	/* A program built against an older header passes a smaller size. */
	config.size = offsetof(struct weft_config, avoid);
	assert_status(weft_engine_open(&config, &engine, NULL, 0), 0);
	assert_status(weft_engine_close(engine), 0);
	engine = NULL;
	/* One built against a newer header hands in more: good as long as we need not know what it is. */
	newer.config.size = sizeof(newer);
	assert_status(weft_engine_open(&newer.config, &engine, NULL, 0), 0);
	assert_status(weft_engine_close(engine), 0);
	engine = NULL;
	newer.later = 1;
	assert_status(weft_engine_open(&newer.config, &engine, NULL, 0), -E2BIG);
	config.size = SIZE_MAX;
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -EINVAL);
	config.size = 0;
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -EINVAL);
	config.size = sizeof(size_t) - 1;
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -EINVAL);
	assert_null(engine);
}

static void unknown_things(void **state)
{
	struct weft_config config = side_config();
	weft_engine *engine = NULL;

	config.provider = "no-such-provider";
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -ENOPROTOOPT);
	config = side_config();
	config.rails = "no-such-nic";
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -ENODEV);
	config.provider = "tcp";
	config.rails = "127.0.0.1,no-such-nic";
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -ENODEV);
	config.rails = "192.0.2.77";
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -ENODEV);
	assert_null(engine);
}

static void take_line(void *context, enum weft_log_level level, const char *text)
{
	if (level == WEFT_LOG_ERROR)
		snprintf(context, 256, "%s", text);
}

/* The function that decides an error logs it: which provider, which NIC. */
static void refusals_are_explained(void **state)
{
	struct weft_config config = side_config();
	weft_engine *engine = NULL;
	char line[256] = "";

	config.log = take_line;
	config.log_context = line;
	config.provider = "no-such-provider";
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -ENOPROTOOPT);
	assert_non_null(strstr(line, "no-such-provider"));
	config.provider = "tcp";
	config.rails = "no-such-nic";
	line[0] = 0;
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -ENODEV);
	assert_non_null(strstr(line, "no-such-nic"));
}

static void limits_on_rails(void **state)
{
	struct weft_config config = side_config();
	struct weft_engine_info info;
	struct side side;

	config.max_rails = 1;
	assert_status(side_open(&side, &config), 0);
	assert_status(weft_engine_info(side.engine, &info, sizeof(info)), 0);
	assert_int_equal(info.rails, 1);
	assert_string_equal(info.provider, transport->provider);
	assert_true(info.memory_bytes > 0);
	assert_true(info.incarnation != 0);
	assert_status(side_close(&side), 0);
}

/* -EAGAIN means only that max_transfers are out. Taking events makes room. */
static void full_ring(void **state)
{
	struct weft_config here = side_config(), there = side_config();
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER };
	struct pair pair;
	uint64_t accepted = 0;
	int error;

	here.max_transfers = 8;
	there.flags = WEFT_MANUAL_PROGRESS;
	pair_open(&pair, &here, &there, BYTES);
	op.queue = pair.here.queue;
	peer_tell(&pair.there, COMMAND_QUIET, 1);
	while (!(error = weft_send(pair.here.engine, pair.peer, accepted, &accepted, 8, &op, NULL)))
		assert_true(++accepted <= 1024);
	assert_status(error, -EAGAIN);
	assert_true(accepted >= 8);
	assert_status(weft_send(pair.here.engine, pair.peer, 0, NULL, 0, &op, NULL), -EAGAIN);
	peer_tell(&pair.there, COMMAND_QUIET, 0);
	for (uint64_t i = 0; i < accepted; i++)
		assert_status(end_of(&pair.here, 0), 0);
	assert_status(weft_send(pair.here.engine, pair.peer, accepted, NULL, 0, &op, NULL), 0);
	assert_status(end_of(&pair.here, 0), 0);
	pair_close(&pair);
}

#define EACH 50 /* operations of each kind */

/* Closing with everything under way and a peer that makes no progress: bounded, and nothing is left. The memory that
 * a read fills is used by no other read, and not sent. */
static void close_with_work(void **state)
{
	struct weft_config there = side_config();
	int fds = open_fds();
	uint64_t start;

	there.flags = WEFT_MANUAL_PROGRESS;
	for (int round = 0; round < 3; round++) {
		struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER };
		struct pair pair;

		pair_open(&pair, NULL, &there, BYTES);
		struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, BYTES / 2 };

		op.queue = pair.here.queue;
		if (round)
			peer_tell(&pair.there, COMMAND_QUIET, 1);
		for (uint64_t i = 0; i < EACH; i++) {
			uint64_t own = BYTES / 2 + i * (BYTES / 2 / EACH);
			struct weft_read read = { sizeof(read), pair.remote, own, pair.region, own, BYTES / 2 / EACH };

			op.tag = i;
			assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
			assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
			assert_status(weft_send(pair.here.engine, pair.peer, i, pair.memory, 10000, &op, NULL), 0);
			assert_status(weft_call(pair.here.engine, pair.peer, i, NULL, 0, &op, NULL), 0);
		}
		assert_status(weft_expect(pair.here.engine, 0, 1, 1, &op, NULL), 0);
		start = now_ns();
		assert_status(side_close(&pair.here), 0);
		if (now_ns() - start > 10 * S)
			fail_msg("closing took %.1f s", (double)(now_ns() - start) / 1e9);
		peer_kill(&pair.there);
		side_memory_free(pair.memory);
	}
	assert_int_equal(open_fds(), fds);
}

struct waiter {
	weft_queue *queue;
	_Atomic int thread; /* its number; 0: not started yet */
	int status;
};

static void *wait_on(void *arg)
{
	struct waiter *waiter = arg;
	struct weft_event event;

	atomic_store(&waiter->thread, gettid());
	waiter->status = weft_queue_wait(waiter->queue, &event, sizeof(event), 1, LIMIT);
	return NULL;
}

/* Waiters on any queue of the engine return when it closes, and take nothing with them: the close ends the expectation. */
static void waiters_return(void **state)
{
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER };
	struct weft_config config = side_config();

	for (int round = 0; round < 20; round++) {
		struct waiter waiter[3] = { 0 };
		pthread_t thread[3];
		struct side side;

		assert_status(side_open(&side, &config), 0);
		op.queue = side.queue;
		assert_status(weft_expect(side.engine, 0, 1, 1, &op, NULL), 0);
		for (int i = 0; i < 3; i++) {
			waiter[i].queue = side.queue;
			assert_int_equal(pthread_create(&thread[i], NULL, wait_on, &waiter[i]), 0);
		}
		/* No call may begin after the close has begun: all must be inside, and can sleep nowhere else on the
		 * way. */
		for (int i = 0; i < 3; i++)
			while (!thread_sleeps(atomic_load(&waiter[i].thread)))
				sched_yield();
		assert_status(side_close(&side), 0);
		for (int i = 0; i < 3; i++) {
			pthread_join(thread[i], NULL);
			assert_status(waiter[i].status, -ESHUTDOWN);
		}
	}
}

/* Opened and closed a hundred times: descriptors and memory as before. */
static void again_and_again(void **state)
{
	struct weft_config config = side_config();
	uint64_t rss = 0;
	int fds = 0;

	for (int i = 0; i < 60; i++) {
		struct side side;

		if (i == 20) {
			rss = rss_bytes();
			fds = open_fds();
		}
		assert_status(side_open(&side, &config), 0);
		assert_status(side_close(&side), 0);
	}
	assert_int_equal(open_fds(), fds);
	if (rss_bytes() > rss + 2 * FLAT_BYTES)
		fail_msg("memory grew from %llu to %llu", (unsigned long long)rss, (unsigned long long)rss_bytes());
}

/* Both ends close at the same time with traffic both ways. */
static void both_close(void **state)
{
	for (int round = 0; round < 5; round++) {
		struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER };
		struct answer answer;
		struct pair pair;

		pair_open(&pair, NULL, NULL, BYTES);
		op.queue = pair.here.queue;
		for (uint64_t i = 0; i < 100; i++) {
			struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 100000 };

			assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
			assert_status(weft_send(pair.here.engine, pair.peer, i, pair.memory, 5000, &op, NULL), 0);
		}
		peer_begin(&pair.there, &(struct command){ .code = COMMAND_CLOSE }, NULL);
		assert_status(side_close(&pair.here), 0);
		assert_status(peer_end(&pair.there, &answer), 0);
		assert_true(answer.value[0] < 10 * S);
		peer_kill(&pair.there);
		side_memory_free(pair.memory);
	}
}

#define OWED_NS (200 * MS) /* how long closing waits until what it owes has arrived */

/* The peer answers and closes at once; then it closes upon a checked write's notification. Both answers still
 * arrive, unless closing waited for them in vain; a machine that delays threads for that long does not do so each
 * time. */
static void what_is_owed_arrives(void **state)
{
	int in_vain = 0;

	for (int round = 0; round < 10; round++) {
		struct weft_op op = { .size = sizeof(op), .tag = 1 };
		struct weft_event event;
		struct peer_event seen;
		struct answer answer;
		struct pair pair;

		pair_open(&pair, NULL, NULL, BYTES);
		op.queue = pair.here.queue;
		if (round % 2) {
			assert_status(weft_call(pair.here.engine, pair.peer, 9, "hello", 5, &op, NULL), 0);
			peer_wait(&pair.there, WEFT_EVENT_CALL, 9, &seen);
			peer_begin(
			    &pair.there,
			    &(struct command){ .code = COMMAND_REPLY, .bytes = 5, .arg = { seen.peer, seen.call, 0 } },
			    "there");
		} else {
			struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 100000 };

			op.notify = WEFT_NOTIFY_FENCED;
			op.notify_tag = 9;
			op.flags = WEFT_CHECKSUM;
			assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
			peer_begin(&pair.there,
				   &(struct command){ .code = COMMAND_WAIT, .arg = { WEFT_EVENT_NOTIFY, 9, LIMIT } },
				   NULL);
		}
		peer_begin(&pair.there, &(struct command){ .code = COMMAND_CLOSE }, NULL);
		assert_status(peer_end(&pair.there, &answer), 0);
		assert_status(peer_end(&pair.there, &answer), 0);
		wait_for_event(&pair.here, round % 2 ? WEFT_EVENT_REPLY : WEFT_EVENT_END, 1, &event);
		if (event.status && answer.value[0] >= OWED_NS)
			in_vain++;
		else
			assert_status(event.status, 0);
		weft_event_release(&event);
		assert_status(side_close(&pair.here), 0);
		peer_kill(&pair.there);
		side_memory_free(pair.memory);
	}
	assert_true(in_vain < 5);
}

static int nic_seen(void *context, const struct weft_nic *nic)
{
	assert_non_null(nic->name);
	assert_non_null(nic->provider);
	++*(int *)context;
	return 0;
}

static void nics_are_listed(void **state)
{
	struct weft_config config = side_config();
	int count = 0;

	assert_status(weft_nic_each(&config, nic_seen, &count), 0);
	assert_true(count >= 1);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(config_sizes),
		cmocka_unit_test(unknown_things),
		cmocka_unit_test(refusals_are_explained),
		cmocka_unit_test(limits_on_rails),
		cmocka_unit_test(full_ring),
		cmocka_unit_test(close_with_work),
		cmocka_unit_test(waiters_return),
		cmocka_unit_test(again_and_again),
		cmocka_unit_test(both_close),
		cmocka_unit_test(what_is_owed_arrives),
		cmocka_unit_test(nics_are_listed),
	};

	return cmocka_run_group_tests_name("close", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
