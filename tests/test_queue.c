/* Queues: poll, wait with a timeout, the descriptor, several queues, several threads on either end. */
#include "support/fixture.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#define BYTES (4u << 20)

const uint64_t pair_bytes = BYTES;

static int begin_write(weft_queue *queue, uint64_t tag, uint64_t bytes)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = queue, .tag = tag };

	return weft_write(pair.here.engine, &write, &op, NULL);
}

static weft_queue *open_queue(void)
{
	weft_queue *queue = NULL;

	assert_status(weft_queue_open(pair.here.engine, 0, &queue), 0);
	assert_non_null(queue);
	return queue;
}

static void poll_and_wait(void **state)
{
	weft_queue *queue = open_queue();
	struct weft_event event[4];
	uint64_t deadline = now_ns() + LIMIT, before;
	int got;

	assert_int_equal(weft_queue_poll(queue, event, sizeof(*event), 4), 0);
	before = now_ns();
	assert_int_equal(weft_queue_wait(queue, event, sizeof(*event), 4, 30 * MS), 0);
	assert_true(now_ns() - before >= 30 * MS); /* a timeout is never early */
	assert_int_equal(weft_queue_wait(queue, event, sizeof(*event), 4, 0), 0);
	assert_status(begin_write(queue, 1, 100), 0);
	while (!(got = weft_queue_poll(queue, event, sizeof(*event), 4)))
		assert_true(now_ns() < deadline);
	assert_int_equal(got, 1);
	assert_int_equal(event[0].tag, 1);
	/* At most as many as asked for; the rest stays. */
	for (uint64_t i = 0; i < 10; i++)
		assert_status(begin_write(queue, 10 + i, 100), 0);
	for (int taken = 0; taken < 10; taken += got) {
		got = weft_queue_wait(queue, event, sizeof(*event), 4, LIMIT);
		assert_in_range(got, 1, 4);
	}
	assert_int_equal(weft_queue_poll(queue, event, sizeof(*event), 4), 0);
	assert_status(weft_queue_close(queue), 0);
}

/* Each end goes to the queue its operation named. */
static void several_queues(void **state)
{
	weft_queue *queue[5];

	for (int q = 0; q < 5; q++)
		queue[q] = open_queue();
	for (uint64_t i = 0; i < 100; i++)
		assert_status(begin_write(queue[i % 5], i, 5000), 0);
	for (uint64_t q = 0; q < 5; q++) {
		struct weft_event event;

		for (int i = 0; i < 20; i++) {
			assert_int_equal(weft_queue_wait(queue[q], &event, sizeof(event), 1, LIMIT), 1);
			assert_int_equal(event.type, WEFT_EVENT_END);
			assert_int_equal(event.tag % 5, q);
			weft_event_release(&event);
		}
		assert_int_equal(weft_queue_poll(queue[q], &event, sizeof(event), 1), 0);
		assert_status(weft_queue_close(queue[q]), 0);
	}
}

/* Messages go to the current listening queue. */
static void listening(void **state)
{
	weft_queue *queue = open_queue();
	struct weft_event event;

	assert_status(weft_queue_listen(queue), 0);
	peer_tell(&pair.there, COMMAND_SEND, pair.back, 5, 10, 5);
	assert_int_equal(weft_queue_wait(queue, &event, sizeof(event), 1, LIMIT), 1);
	assert_int_equal(event.type, WEFT_EVENT_MESSAGE);
	assert_int_equal(event.tag, 5);
	weft_event_release(&event);
	assert_status(weft_queue_close(queue), -EBUSY);
	assert_status(weft_queue_listen(pair.here.queue), 0);
	peer_tell(&pair.there, COMMAND_SEND, pair.back, 6, 10, 6);
	wait_for_event(&pair.here, WEFT_EVENT_MESSAGE, 6, &event);
	weft_event_release(&event);
	assert_int_equal(weft_queue_poll(queue, &event, sizeof(event), 1), 0);
	assert_status(weft_queue_close(queue), 0);
}

static bool readable(int fd, uint64_t limit_ns)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };

	return poll(&poller, 1, (int)(limit_ns / MS)) == 1 && (poller.revents & POLLIN);
}

static void drain(weft_queue *queue, int *taken)
{
	struct weft_event event[7];
	int got;

	while ((got = weft_queue_poll(queue, event, sizeof(*event), 7)) > 0)
		*taken += got;
	assert_int_equal(got, 0);
}

/* A wake-up may come after its event was already taken: one poll that finds nothing clears it. */
static void settles(weft_queue *queue, int fd)
{
	uint64_t deadline = now_ns() + LIMIT;
	int none = 0;

	while (readable(fd, 0)) {
		drain(queue, &none);
		assert_int_equal(none, 0);
		assert_true(now_ns() < deadline);
	}
}

/* Readable while events wait, not before and not for long after; no wake-up is ever missed. */
static void descriptor(void **state)
{
	weft_queue *queue = open_queue();
	int fd = weft_queue_fd(queue), taken = 0;

	assert_true(fd >= 0);
	assert_false(readable(fd, 0));
	for (uint64_t i = 0; i < 500; i++) {
		int burst = (int)(i % 7) + 1, before = taken;

		for (int b = 0; b < burst; b++)
			assert_status(begin_write(queue, i, 64), 0);
		while (taken < before + burst) {
			assert_true(readable(fd, LIMIT));
			drain(queue, &taken);
		}
		assert_int_equal(taken, before + burst);
		settles(queue, fd);
	}
	/* Opened late, when events are already there. */
	assert_status(weft_queue_close(queue), 0);
	queue = open_queue();
	assert_status(begin_write(queue, 1, 64), 0);
	assert_status(pair_write(&pair, 0, 0, 64), 0);
	assert_true(readable(weft_queue_fd(queue), LIMIT));
	taken = 0;
	drain(queue, &taken);
	assert_int_equal(taken, 1);
	assert_status(weft_queue_close(queue), 0);
}

#define PER_THREAD 1500
#define THREADS    4

static weft_queue *shared;
static _Atomic int failures;
static _Atomic uint8_t seen[THREADS * PER_THREAD];
static _Atomic uint32_t total;

static void *produce(void *arg)
{
	uint64_t me = (uintptr_t)arg, deadline = now_ns() + 3 * LIMIT;

	for (uint64_t i = 0; i < PER_THREAD; i++) {
		int error;

		while ((error = begin_write(shared, me * PER_THREAD + i, 256)) == -EAGAIN && now_ns() < deadline)
			sched_yield();
		if (error) {
			atomic_fetch_add(&failures, 1);
			return NULL;
		}
	}
	return NULL;
}

static void *consume(void *arg)
{
	uint64_t deadline = now_ns() + 3 * LIMIT;

	while (atomic_load(&total) < THREADS * PER_THREAD && now_ns() < deadline) {
		struct weft_event event[16];
		int got = weft_queue_wait(shared, event, sizeof(*event), 16, 50 * MS);

		if (got < 0)
			atomic_fetch_add(&failures, 1);
		for (int i = 0; i < got; i++) {
			if (event[i].status || event[i].tag >= THREADS * PER_THREAD ||
			    atomic_fetch_add(&seen[event[i].tag], 1))
				atomic_fetch_add(&failures, 1);
			weft_event_release(&event[i]);
			atomic_fetch_add(&total, 1);
		}
	}
	return NULL;
}

/* Four submit, three take: each end is seen exactly once. */
static void threads(void **state)
{
	pthread_t producer[THREADS], consumer[3];
	struct weft_event event;

	shared = open_queue();
	for (uintptr_t i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&consumer[i], NULL, consume, (void *)i), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&producer[i], NULL, produce, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(producer[i], NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(consumer[i], NULL);
	assert_int_equal(atomic_load(&failures), 0);
	assert_int_equal(atomic_load(&total), THREADS * PER_THREAD);
	for (int i = 0; i < THREADS * PER_THREAD; i++)
		assert_int_equal(atomic_load(&seen[i]), 1);
	assert_int_equal(weft_queue_poll(shared, &event, sizeof(event), 1), 0);
	assert_status(weft_queue_close(shared), 0);
}

/* ---- two threads wait, one is busy with what it got ---- */

static sem_t free_again;
static _Atomic int sleeper[2];
static _Atomic uint64_t heard[3];

static void *wait_then_work(void *arg)
{
	struct weft_event event;

	atomic_store(&sleeper[(uintptr_t)arg], gettid());
	if (weft_queue_wait(shared, &event, sizeof(event), 1, LIMIT) != 1 || event.tag > 2)
		return NULL;
	atomic_store(&heard[event.tag], 1);
	weft_event_release(&event);
	if (event.tag == 1) /* at work until the other thread has heard the second */
		sem_wait(&free_again);
	return NULL;
}

/* The thread that takes the first event leaves the other asleep: that one must still hear of the second. */
static void a_waiter_for_each(void **state)
{
	uint64_t deadline = now_ns() + LIMIT;
	pthread_t thread[2];

	shared = open_queue();
	sem_init(&free_again, 0, 0);
	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, wait_then_work, (void *)i), 0);
	while (!(thread_sleeps(sleeper[0]) && thread_sleeps(sleeper[1])) && now_ns() < deadline)
		sched_yield();
	assert_status(begin_write(shared, 1, 64), 0);
	while (!atomic_load(&heard[1]) && now_ns() < deadline)
		sched_yield();
	assert_status(begin_write(shared, 2, 64), 0);
	while (!atomic_load(&heard[2]) && now_ns() < deadline)
		sched_yield();
	assert_int_equal(atomic_load(&heard[2]), 1);
	sem_post(&free_again);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	sem_destroy(&free_again);
	assert_status(weft_queue_close(shared), 0);
}

static void *register_and_close(void *arg)
{
	static _Thread_local char memory[4096];

	for (int i = 0; i < 100; i++) {
		weft_region region;

		if (weft_region_register(pair.here.engine, memory, sizeof(memory), WEFT_REMOTE_WRITE, &region) ||
		    weft_region_close(pair.here.engine, region))
			atomic_fetch_add(&failures, 1);
	}
	return NULL;
}

static void *open_and_close(void *arg)
{
	for (int i = 0; i < 200; i++) {
		struct weft_event event;
		weft_queue *queue;

		if (weft_queue_open(pair.here.engine, 0, &queue) || begin_write(queue, 1, 32) ||
		    weft_queue_wait(queue, &event, sizeof(event), 1, LIMIT) != 1 || weft_queue_close(queue))
			atomic_fetch_add(&failures, 1);
	}
	return NULL;
}

/* Other calls while traffic runs: regions and queues come and go from several threads. */
static void calls_from_threads(void **state)
{
	void *(*work[])(void *) = { register_and_close, register_and_close, open_and_close, open_and_close };
	pthread_t thread[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, work[i], NULL), 0);
	for (int i = 0; i < 100; i++)
		assert_status(pair_write(&pair, 0, 0, 70000), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(atomic_load(&failures), 0);
}

static void in_use(void **state)
{
	weft_queue *queue = open_queue();
	struct weft_op op = { .size = sizeof(op), .queue = queue, .tag = 1, .timeout_ns = WEFT_FOREVER };
	weft_transfer expected;
	struct weft_event event;

	assert_status(weft_expect(pair.here.engine, 0, 4711, 1, &op, &expected), 0);
	assert_status(weft_queue_close(queue), -EBUSY);
	assert_status(weft_transfer_cancel(pair.here.engine, expected), 0);
	assert_int_equal(weft_queue_wait(queue, &event, sizeof(event), 1, LIMIT), 1);
	assert_status(event.status, -ECANCELED);
	weft_event_release(&event);
	assert_status(weft_queue_close(queue), 0);
	assert_status(weft_queue_close(NULL), 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(poll_and_wait),
		cmocka_unit_test(several_queues),
		cmocka_unit_test(listening),
		cmocka_unit_test(descriptor),
		cmocka_unit_test(threads),
		cmocka_unit_test(a_waiter_for_each),
		cmocka_unit_test(calls_from_threads),
		cmocka_unit_test(in_use),
	};

	return cmocka_run_group_tests_name("queue", tests, pair_setup, pair_teardown);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
