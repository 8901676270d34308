/* Waiting for one operation beside the queues: its end comes once, to one waiter, whatever it was and however it ended. */
#include "engine/core/engine.h"
#include "support/peer.h"

#include <pthread.h>
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

static struct weft_op kept(uint64_t tag)
{
	return (struct weft_op){ .size = sizeof(struct weft_op), .tag = tag, .flags = WEFT_KEEP_END };
}

static int wait_for(weft_transfer transfer, uint64_t timeout_ns, struct weft_event *event)
{
	return weft_transfer_wait(pair.here.engine, transfer, timeout_ns, event, sizeof(*event));
}

static void a_write(void **state)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, BYTES };
	struct weft_op op = kept(5);
	struct weft_event event;
	weft_transfer transfer;

	pattern_fill(pair.memory, BYTES, 1, 0);
	assert_status(weft_write(pair.here.engine, &write, &op, &transfer), 0);
	assert_status(wait_for(transfer, LIMIT, &event), 0);
	assert_int_equal(event.type, WEFT_EVENT_END);
	assert_status(event.status, 0);
	assert_true(event.tag == 5 && event.transfer == transfer && event.peer == pair.peer);
	assert_int_equal(event.bytes, BYTES);
	weft_event_release(&event);
	peer_check(&pair.there, pair.number, 0, BYTES, 1);
	assert_status(wait_for(transfer, 0, &event), -ENOENT); /* taken */
	op.queue = pair.here.queue;
	assert_status(weft_write(pair.here.engine, &write, &op, &transfer), -EINVAL);
	op.queue = NULL;
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), -EINVAL); /* nobody could wait for it */
}

/* Its reply is its end, and stays until it is released. */
static void a_call(void **state)
{
	struct weft_op op = kept(6);
	struct command serve = { .code = COMMAND_SERVE, .arg = { 1, 0, LIMIT } };
	struct weft_event event;
	struct answer answer;
	weft_transfer transfer;

	peer_begin(&pair.there, &serve, NULL);
	assert_status(weft_call(pair.here.engine, pair.peer, 9, "question", 8, &op, &transfer), 0);
	assert_status(wait_for(transfer, LIMIT, &event), 0);
	assert_int_equal(event.type, WEFT_EVENT_REPLY);
	assert_status(event.status, 0);
	assert_int_equal(event.bytes, 8);
	assert_memory_equal(event.data, "question", 8);
	assert_true(event.tag == 6 && event.transfer == transfer);
	weft_event_release(&event);
	assert_status(peer_end(&pair.there, &answer), 0);
}

/* The wait's time passes, and the operation goes on: it is cancelled, and ends so. */
static void not_yet(void **state)
{
	struct weft_op op = kept(7);
	struct weft_event event;
	weft_transfer transfer;

	op.timeout_ns = WEFT_FOREVER;
	assert_status(weft_expect(pair.here.engine, 0, 77, 1, &op, &transfer), 0);
	assert_status(wait_for(transfer, 0, &event), -ETIMEDOUT);
	assert_status(wait_for(transfer, 20 * MS, &event), -ETIMEDOUT);
	assert_status(weft_transfer_cancel(pair.here.engine, transfer), 0);
	assert_status(wait_for(transfer, LIMIT, &event), 0);
	assert_status(event.status, -ECANCELED);
	weft_event_release(&event);
	assert_status(wait_for(transfer, LIMIT, &event), -ENOENT);
	assert_status(wait_for(12345, LIMIT, &event), -ENOENT);
}

/* A failure comes with its words. */
static void its_error(void **state)
{
	struct weft_op op = kept(8);
	struct weft_event event;
	weft_transfer transfer;

	op.timeout_ns = 20 * MS;
	assert_status(weft_expect(pair.here.engine, 0, 78, 1, &op, &transfer), 0);
	assert_status(wait_for(transfer, LIMIT, &event), 0);
	assert_status(event.status, -ETIMEDOUT);
	assert_non_null(event.error);
	assert_true(event.error->text[0]);
	weft_event_release(&event);
	assert_null(event.error);
}

/* A scatter ends as one; an end that nobody takes goes with the engine (the sanitizer's leak check is the witness). */
static void a_scatter_and_one_left(void **state)
{
	struct weft_write parts[2] = { { sizeof(parts[0]), pair.region, 0, pair.remote, 0, 4096 },
				       { sizeof(parts[0]), pair.region, 4096, pair.remote, 8192, 4096 } };
	struct weft_op op = kept(9);
	struct weft_event event;
	weft_transfer transfer;

	assert_status(weft_scatter(pair.here.engine, parts, 2, &op, &transfer), 0);
	assert_status(wait_for(transfer, LIMIT, &event), 0);
	assert_status(event.status, 0);
	assert_int_equal(event.bytes, 8192);
	weft_event_release(&event);
	op.timeout_ns = MS;
	assert_status(weft_expect(pair.here.engine, 0, 79, 1, &op, &transfer), 0);
}

struct waiter {
	weft_transfer transfer;
	_Atomic int *taken;
	int wrong;
};

static void *wait_too(void *context)
{
	struct waiter *waiter = context;
	struct weft_event event;
	int status = wait_for(waiter->transfer, LIMIT, &event);

	if (!status) {
		atomic_fetch_add(waiter->taken, 1);
		waiter->wrong = event.status;
		weft_event_release(&event);
	} else if (status != -ENOENT) {
		waiter->wrong = status;
	}
	return NULL;
}

/* Many operations, each waited for by four threads: one of them gets the end. Queues meanwhile get what is theirs. */
static void one_of_many_waiters(void **state)
{
	enum { ROUNDS = 50, WAITERS = 4 };

	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct weft_op op = kept(round), queued = { .size = sizeof(queued), .queue = pair.here.queue };
		struct waiter waiter[WAITERS] = { 0 };
		pthread_t thread[WAITERS];
		_Atomic int taken = 0;
		weft_transfer transfer;

		queued.tag = 5000 + round;
		assert_status(weft_send(pair.here.engine, pair.peer, 1, "x", 1, &op, &transfer), 0);
		assert_status(weft_send(pair.here.engine, pair.peer, 1, "y", 1, &queued, NULL), 0);
		for (int i = 0; i < WAITERS; i++) {
			waiter[i] = (struct waiter){ .transfer = transfer, .taken = &taken };
			assert_int_equal(pthread_create(&thread[i], NULL, wait_too, &waiter[i]), 0);
		}
		for (int i = 0; i < WAITERS; i++) {
			pthread_join(thread[i], NULL);
			assert_status(waiter[i].wrong, 0);
		}
		assert_int_equal(taken, 1);
		assert_status(end_of(&pair.here, queued.tag), 0);
	}
}

static void *wait_for_ever(void *context)
{
	struct waiter *waiter = context;
	struct weft_event event;

	waiter->wrong = wait_for(waiter->transfer, WEFT_FOREVER, &event);
	if (!waiter->wrong)
		weft_event_release(&event);
	return NULL;
}

/* The engine closes while a thread waits: the operation is cancelled, and the thread gets that or is told. */
static void closing(void **state)
{
	struct weft_op op = kept(1);
	struct waiter waiter = { 0 };
	pthread_t thread;

	op.timeout_ns = WEFT_FOREVER;
	assert_status(weft_expect(pair.here.engine, 0, 80, 1, &op, &waiter.transfer), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &waiter), 0);
	while (!atomic_load(&pair.here.engine->kept_waiters)) /* it may not come too late */
		sched_yield();
	pair_close(&pair);
	pthread_join(thread, NULL);
	assert_true(waiter.wrong == 0 || waiter.wrong == -ESHUTDOWN);
	pair_open(&pair, NULL, NULL, BYTES);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write),
		cmocka_unit_test(a_call),
		cmocka_unit_test(not_yet),
		cmocka_unit_test(its_error),
		cmocka_unit_test(a_scatter_and_one_left),
		cmocka_unit_test(one_of_many_waiters),
		cmocka_unit_test(closing),
	};

	return cmocka_run_group_tests_name("wait one", tests, open_pair, close_pair);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
