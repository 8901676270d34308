/* Engines without threads on both sides, and several engines in one process. */
#include "support/peer.h"
#include "support/rest.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES (4u << 20)

static struct pair pair;

static int open_manual(void **state)
{
	struct weft_config config = side_config();

	config.flags = WEFT_MANUAL_PROGRESS;
	pair_open(&pair, &config, &config, BYTES);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	return 0;
}

static void no_threads(void **state)
{
	struct weft_engine_info info;

	assert_status(weft_engine_info(pair.here.engine, &info, sizeof(info)), 0);
	assert_int_equal(info.workers, 0);
	assert_int_equal(info.rails, transport->count);
}

static void writes(void **state)
{
	pattern_fill(pair.memory, BYTES, 1, 0);
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	peer_check(&pair.there, pair.number, 0, BYTES, 1);
}

/* Progress by weft_engine_progress() and poll alone, without a wait. */
static void own_loop(void **state)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 1, 300000 };
	struct weft_op op = {
		.size = sizeof(op), .queue = pair.here.queue, .tag = 2, .notify = WEFT_NOTIFY_FENCED, .notify_tag = 22
	};
	uint64_t deadline = now_ns() + LIMIT;
	struct weft_event event;
	struct answer answer;
	int got;

	pattern_fill(pair.memory, 300000, 2, 0);
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	/* The peer waits meanwhile, and drives its own engine. */
	peer_begin(&pair.there, &(struct command){ .code = COMMAND_WAIT, .arg = { WEFT_EVENT_NOTIFY, 22, LIMIT } },
		   NULL);
	while (!(got = weft_queue_poll(pair.here.queue, &event, sizeof(event), 1))) {
		assert_true(weft_engine_progress(pair.here.engine) >= 0);
		assert_true(now_ns() < deadline);
	}
	assert_int_equal(got, 1);
	assert_int_equal(event.tag, 2);
	assert_status(event.status, 0);
	weft_event_release(&event);
	assert_status(peer_end(&pair.there, &answer), 0);
	peer_check(&pair.there, pair.number, 1, 300000, 2);
}

/* What is expected after a cancel is not cancelled by it, though both wait for the same turn. */
static void expected_after_a_cancel(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 31, .timeout_ns = WEFT_FOREVER };
	weft_transfer transfer;
	struct weft_event event;

	assert_status(weft_peer_cancel(pair.here.engine, pair.peer), 0);
	assert_status(weft_expect(pair.here.engine, pair.peer, 77, 1, &op, &transfer), 0);
	for (int turn = 0; turn < 50; turn++)
		assert_true(weft_engine_progress(pair.here.engine) >= 0);
	assert_int_equal(weft_queue_poll(pair.here.queue, &event, sizeof(event), 1), 0);
	assert_status(weft_peer_cancel(pair.here.engine, pair.peer), 0);
	assert_int_equal(weft_queue_wait(pair.here.queue, &event, sizeof(event), 1, LIMIT), 1);
	assert_int_equal(event.tag, 31);
	assert_status(event.status, -ECANCELED);
	weft_event_release(&event);
}

static void messages(void **state)
{
	struct command drain = { .code = COMMAND_DRAIN, .arg = { 100, 200, LIMIT } };
	uint8_t data[20000];
	struct answer answer;

	peer_begin(&pair.there, &drain, NULL);
	for (uint64_t i = 0; i < 200; i++) {
		struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = i };

		pattern_fill(data, i * 100, 100 + i, 0);
		assert_status(weft_send(pair.here.engine, pair.peer, 100 + i, data, i * 100, &op, NULL), 0);
	}
	for (uint64_t i = 0; i < 200; i++)
		assert_status(end_of(&pair.here, i), 0);
	assert_status(peer_end(&pair.there, &answer), 0);
	assert_int_equal(answer.value[0], 200);
}

#define CALLS 50

/* The slot of a call whose reply was taken is free for the next call at once, without a turn in between. */
static void one_slot(void **state)
{
	struct weft_config config = side_config();
	struct pair narrow;
	struct answer answer;

	config.flags = WEFT_MANUAL_PROGRESS;
	config.max_transfers = 1;
	pair_open(&narrow, &config, &config, 4096);
	peer_begin(&narrow.there, &(struct command){ .code = COMMAND_SERVE, .arg = { CALLS, 0, LIMIT } }, NULL);
	for (uint64_t i = 0; i < CALLS; i++) {
		struct weft_op op = { .size = sizeof(op), .queue = narrow.here.queue, .tag = i };
		struct weft_event event;

		assert_status(weft_call(narrow.here.engine, narrow.peer, 600 + i, &i, sizeof(i), &op, NULL), 0);
		assert_status(weft_call(narrow.here.engine, narrow.peer, 0, NULL, 0, &op, NULL), -EAGAIN);
		wait_for_event(&narrow.here, WEFT_EVENT_REPLY, i, &event);
		assert_status(event.status, 0);
		assert_memory_equal(event.data, &i, sizeof(i));
		weft_event_release(&event);
	}
	assert_status(peer_end(&narrow.there, &answer), 0);
	pair_close(&narrow);
}

#define SENT 2000

static void *send_many(void *unused)
{
	for (uint64_t i = 0; i < SENT; i++) {
		struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = i };
		uint64_t deadline = now_ns() + LIMIT;
		uint8_t data[100];
		int status;

		pattern_fill(data, sizeof(data), 5000 + i, 0);
		while ((status = weft_send(pair.here.engine, pair.peer, 5000 + i, data, sizeof(data), &op, NULL)) ==
			   -EAGAIN &&
		       now_ns() < deadline)
			sched_yield();
		if (status)
			return "a message was refused";
	}
	return NULL;
}

/* One thread drives the engine, another sends: neither blocks the other, and the order holds. */
static void sender_beside_progress(void **state)
{
	struct command drain = { .code = COMMAND_DRAIN, .arg = { 5000, SENT, LIMIT } };
	uint64_t deadline = now_ns() + LIMIT, ends = 0;
	struct weft_event event;
	struct answer answer;
	pthread_t sender;
	void *wrong;

	peer_begin(&pair.there, &drain, NULL);
	assert_int_equal(pthread_create(&sender, NULL, send_many, NULL), 0);
	while (ends < SENT) {
		assert_true(weft_engine_progress(pair.here.engine) >= 0);
		if (weft_queue_poll(pair.here.queue, &event, sizeof(event), 1) == 1) {
			assert_status(event.status, 0);
			ends += event.type == WEFT_EVENT_END;
			weft_event_release(&event);
		}
		assert_true(now_ns() < deadline);
	}
	assert_int_equal(pthread_join(sender, &wrong), 0);
	assert_null(wrong);
	assert_status(peer_end(&pair.there, &answer), 0);
	assert_int_equal(answer.value[0], SENT);
}

/* A peer's message stays ours to read and to release after the peer is gone. */
static void message_of_a_removed_peer(void **state)
{
	struct weft_config config = side_config();
	struct weft_event event;
	struct pair other;

	config.flags = WEFT_MANUAL_PROGRESS;
	pair_open(&other, &config, &config, 4096);
	peer_begin(&other.there, &(struct command){ .code = COMMAND_SEND, .arg = { other.back, 321, 3000, 1 } }, NULL);
	wait_for_event(&other.here, WEFT_EVENT_MESSAGE, 321, &event);
	assert_status(peer_end(&other.there, &(struct answer){ 0 }), 0);
	assert_status(weft_peer_remove(other.here.engine, other.peer), 0);
	for (int turn = 0; turn < 100; turn++) /* the peer goes by notes */
		assert_true(weft_engine_progress(other.here.engine) >= 0);
	assert_int_equal(event.bytes, 3000);
	assert_int_equal(pattern_differs(event.data, 3000, 321, 0), 3000);
	weft_event_release(&event);
	pair_close(&other);
}

static void deadline_without_a_thread(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 5, .timeout_ns = 50 * MS };
	struct weft_event event;

	peer_tell(&pair.there, COMMAND_QUIET, 1);
	assert_status(weft_call(pair.here.engine, pair.peer, 5, NULL, 0, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_REPLY, 5, &event);
	assert_status(event.status, -ETIMEDOUT);
	weft_event_release(&event);
	peer_tell(&pair.there, COMMAND_QUIET, 0);
}

/* An application whose turns are further apart than the heartbeat: each time it may be that the peer's signs of life were only
 * not read yet. A peer that stays silent is given up all the same. */
static void always_late(void **state)
{
	const struct timespec pause = { .tv_nsec = 40 * MS };
	struct weft_config config = side_config();
	uint64_t deadline = now_ns() + LIMIT;
	struct weft_event event = { 0 };
	struct pair late;

	config.flags = WEFT_MANUAL_PROGRESS;
	config.heartbeat_ns = 10 * MS;
	config.peer_limit_ns = 400 * MS;
	pair_open(&late, &config, NULL, 4096);
	stop_at_rest(late.there.pid);
	while (event.type != WEFT_EVENT_PEER_DOWN && now_ns() < deadline) {
		assert_true(weft_engine_progress(late.here.engine) >= 0);
		if (weft_queue_poll(late.here.queue, &event, sizeof(event), 1) == 1)
			weft_event_release(&event);
		nanosleep(&pause, NULL);
	}
	assert_int_equal(event.type, WEFT_EVENT_PEER_DOWN);
	kill(late.there.pid, SIGCONT);
	pair_close(&late);
}

/* ---- several engines in this process ---- */

#define ENGINES 3

static void progress_is_refused(void **state)
{
	struct weft_config config = side_config();
	struct side side;

	assert_status(side_open(&side, &config), 0);
	assert_status(weft_engine_progress(side.engine), -EINVAL);
	assert_status(weft_engine_progress(NULL), -EINVAL);
	assert_status(side_close(&side), 0);
}

/* Three engines, each writing to the next, all in this process. */
static void engines_in_one_process(void **state)
{
	struct weft_config config = side_config();
	struct side side[ENGINES];
	char *memory[ENGINES];
	weft_region region[ENGINES];
	struct blob address[ENGINES], descriptor[ENGINES];

	/* libfabric 1.17's shm shares mappings between them, and may touch what one has closed (docs/decisions/07). */
	if (!strcmp(transport->provider, "shm"))
		skip();
	for (int i = 0; i < ENGINES; i++) {
		assert_status(side_open(&side[i], &config), 0);
		memory[i] = calloc(2, 100000);
		assert_status(weft_region_register(side[i].engine, memory[i], 200000, WEFT_REMOTE_WRITE, &region[i]),
			      0);
		address_of(side[i].engine, &address[i]);
		export_of(side[i].engine, region[i], &descriptor[i]);
	}
	for (int i = 0; i < ENGINES; i++) {
		int next = (i + 1) % ENGINES;
		struct weft_op op = { .size = sizeof(op),
				      .queue = side[i].queue,
				      .tag = 9,
				      .notify = WEFT_NOTIFY_FENCED,
				      .notify_tag = 90 };
		struct weft_write write = { sizeof(write), region[i], 0, 0, 100000, 100000 };
		weft_peer peer;

		assert_status(weft_peer_add(side[i].engine, address[next].data, address[next].bytes, NULL, &peer), 0);
		write.to = import(&side[i], peer, &descriptor[next]);
		pattern_fill(memory[i], 100000, (uint64_t)i, 0);
		assert_status(weft_write(side[i].engine, &write, &op, NULL), 0);
	}
	for (int i = 0; i < ENGINES; i++) {
		int before = (i + ENGINES - 1) % ENGINES;
		struct weft_event event;

		wait_for_event(&side[i], WEFT_EVENT_NOTIFY, 90, &event);
		weft_event_release(&event);
		assert_int_equal(pattern_differs(memory[i] + 100000, 100000, (uint64_t)before, 0), 100000);
		assert_status(end_of(&side[i], 9), 0);
	}
	for (int i = 0; i < ENGINES; i++) {
		assert_status(side_close(&side[i]), 0);
		free(memory[i]);
	}
}

/* To itself: an engine may be its own peer. */
static void its_own_peer(void **state)
{
	struct weft_config config = side_config();
	char *memory = calloc(2, 50000);
	struct weft_op op = { .size = sizeof(op), .tag = 1 };
	struct blob address, descriptor;
	weft_region region;
	struct side side;
	weft_peer peer;

	assert_status(side_open(&side, &config), 0);
	assert_status(weft_region_register(side.engine, memory, 100000, WEFT_REMOTE_WRITE, &region), 0);
	address_of(side.engine, &address);
	export_of(side.engine, region, &descriptor);
	assert_status(weft_peer_add(side.engine, address.data, address.bytes, NULL, &peer), 0);
	struct weft_write write = { sizeof(write), region, 0, import(&side, peer, &descriptor), 50000, 50000 };

	op.queue = side.queue;
	pattern_fill(memory, 50000, 3, 0);
	assert_status(weft_write(side.engine, &write, &op, NULL), 0);
	assert_status(end_of(&side, 1), 0);
	assert_int_equal(pattern_differs(memory + 50000, 50000, 3, 0), 50000);
	assert_status(side_close(&side), 0);
	free(memory);
}

static bool outlived;

/* Somebody has cancelled this thread already: whatever it calls would end it at the first cancellation point. */
static void *drive_cancelled(void *state)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, BYTES };
	struct weft_op op = { .size = sizeof(op), .flags = WEFT_KEEP_END };
	struct weft_event event;
	weft_transfer transfer;
	int *status = state;

	pthread_cancel(pthread_self());
	*status = weft_write(pair.here.engine, &write, &op, &transfer);
	if (!*status)
		*status = weft_transfer_wait(pair.here.engine, transfer, LIMIT, &event, sizeof(event));
	if (!*status)
		*status = event.status;
	for (int i = 0; i < 100 && *status >= 0; i++)
		*status = weft_engine_progress(pair.here.engine);
	outlived = true;
	pthread_testcancel();
	return NULL;
}

/* A provider's calls are cancellation points. A worker that ended in one would leave its group to nobody. */
static void cancelled_in_a_turn(void **state)
{
	int status = -EINPROGRESS;
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, drive_cancelled, &status), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_true(outlived);
	assert_true(status >= 0);
	assert_true(result == PTHREAD_CANCELED); /* weft leaves the thread as cancellable as it was */
	writes(state);
}

static int run(void)
{
	const struct CMUnitTest manual[] = {
		cmocka_unit_test(no_threads),
		cmocka_unit_test(writes),
		cmocka_unit_test(own_loop),
		cmocka_unit_test(expected_after_a_cancel),
		cmocka_unit_test(messages),
		cmocka_unit_test(one_slot),
		cmocka_unit_test(sender_beside_progress),
		cmocka_unit_test(message_of_a_removed_peer),
		cmocka_unit_test(deadline_without_a_thread),
		cmocka_unit_test(always_late),
		cmocka_unit_test(cancelled_in_a_turn),
	};
	const struct CMUnitTest engines[] = {
		cmocka_unit_test(progress_is_refused),
		cmocka_unit_test(engines_in_one_process),
		cmocka_unit_test(its_own_peer),
	};
	int failed = cmocka_run_group_tests_name("manual progress", manual, open_manual, close_pair);

	return failed + cmocka_run_group_tests_name("several engines", engines, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
