/*
 * What weft's threads and the application's threads leave alone: the wall clock, which may be set at any time; signals,
 * which are the application's; and a thread that is cancelled while it waits. This program has its own clock_gettime(),
 * with a wall clock two minutes behind the kernel's.
 */
#include "support/peer.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 50

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int error = (int)syscall(SYS_clock_gettime, clock, ret);

	if (!error && clock == CLOCK_REALTIME)
		ret->tv_sec -= 120;
	return error;
}

static struct side side;

static int open_side(void **state)
{
	struct weft_config config = side_config();

	assert_status(side_open(&side, &config), 0);
	return 0;
}

static int close_side(void **state)
{
	alarm(60); /* ends the program if it does not return */
	assert_status(side_close(&side), 0);
	alarm(0);
	return 0;
}

/* Registrations wait for the worker by a clock that nobody sets. */
static void wall_clock_behind(void **state)
{
	static char memory[4096];

	for (int i = 0; i < ROUNDS; i++) {
		weft_region region;

		assert_status(weft_region_register(side.engine, memory, sizeof(memory), WEFT_REMOTE_WRITE, &region), 0);
		assert_status(weft_region_close(side.engine, region), 0);
	}
}

static _Atomic pid_t handled_by;

static void on_signal(int number)
{
	atomic_store(&handled_by, gettid());
}

/* All our own threads block the signal: it must wait until one of them does not. */
static void signals_are_ours(void **state)
{
	struct sigaction action = { .sa_handler = on_signal }, before;
	sigset_t one, old;
	weft_region region;
	static char memory[4096];

	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &one, &old), 0);
	assert_int_equal(kill(getpid(), SIGUSR1), 0);
	/* Each worker has had a turn since: one that would take the signal has done so. */
	assert_status(weft_region_register(side.engine, memory, sizeof(memory), 0, &region), 0);
	assert_status(weft_region_close(side.engine, region), 0);
	assert_int_equal(atomic_load(&handled_by), 0);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
	assert_int_equal(atomic_load(&handled_by), gettid());
	assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

static _Atomic pid_t waiter_number;

static void *wait_for_ever(void *queue)
{
	struct weft_event event;

	atomic_store(&waiter_number, gettid());
	weft_queue_wait(queue, &event, sizeof(event), 1, WEFT_FOREVER);
	return NULL;
}

static void cancel_a_waiter(weft_queue *queue)
{
	uint64_t limit = now_ns() + LIMIT;
	pthread_t thread;
	void *result;

	atomic_store(&waiter_number, 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, queue), 0);
	while (!thread_sleeps(atomic_load(&waiter_number)))
		assert_true(now_ns() < limit);
	assert_int_equal(pthread_cancel(thread), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_true(result == PTHREAD_CANCELED);
}

/* Nobody waits there any more: the queue can be used and closed, and so can the engine (close_side). */
static void cancelled_while_waiting(void **state)
{
	struct weft_op op = { .size = sizeof(op) };
	struct weft_event event;
	weft_queue *other;

	assert_status(weft_queue_open(side.engine, 0, &other), 0);
	for (int i = 0; i < 5; i++)
		cancel_a_waiter(other);
	op.queue = other;
	assert_status(weft_expect(side.engine, 0, 1, 0, &op, NULL), 0);
	assert_int_equal(weft_queue_wait(other, &event, sizeof(event), 1, LIMIT), 1);
	weft_event_release(&event);
	alarm(60);
	assert_status(weft_queue_close(other), 0);
	alarm(0);
	cancel_a_waiter(side.queue);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wall_clock_behind),
		cmocka_unit_test(signals_are_ours),
		cmocka_unit_test(cancelled_while_waiting),
	};

	return cmocka_run_group_tests_name("threads, signals, clocks", tests, open_side, close_side);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
