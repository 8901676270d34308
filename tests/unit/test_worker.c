/* A worker whose rails have no descriptor: what only shows that a peer lives leaves it as fast asleep as it was. */
#include "base/time.h"
#include "worker/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <time.h>

#define SIGN 1
#define NEWS 2

static struct wf_worker worker;
static _Atomic int turns, notes;

static int on_start(void *context)
{
	return 0;
}

static void on_note(void *context, const struct wf_item *note)
{
	atomic_fetch_add(&notes, 1);
	if (note->word[0] == SIGN)
		worker.faint++;
}

static int on_turn(void *context, uint64_t now_ns)
{
	atomic_fetch_add(&turns, 1);
	return 0;
}

static bool on_no(void *context)
{
	return false;
}

static void on_stop(void *context)
{
}

static const struct wf_worker_ops ops = { .start = on_start,
					  .note = on_note,
					  .turn = on_turn,
					  .in_flight = on_no,
					  .can_sleep = on_no,
					  .stop = on_stop };

static void sleep_ms(int ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&time, NULL);
}

static int turns_of(uint64_t kind, int count)
{
	struct wf_item note = { { kind } };
	int before = atomic_load(&turns);

	for (int i = 0; i < count; i++) {
		assert_true(wf_worker_post(&worker, &note));
		sleep_ms(20);
	}
	return atomic_load(&turns) - before;
}

static void signs_of_life_wake_it_once(void **state)
{
	int turned;

	assert_int_equal(wf_worker_open(&worker, &ops, NULL, 64, -1, true), 0);
	sleep_ms(1000);
	/* Naps are 10 ms by now: a turn for each of them and for each note makes some 75, and on a slow machine fewer, or 100 more
	 * for each second that this thread does not run. Were it to look closely after each note, a hundred thousand. */
	turned = turns_of(SIGN, 25);
	assert_true(turned < 500);
	/* News it does look after: 20 ms of ever longer naps are 20 turns at the least, on a machine that lets it. */
	for (int i = 0; i < 20 && (turned = turns_of(NEWS, 5)) < 75; i++)
		;
	assert_true(turned >= 75);
	wf_worker_stop(&worker);
	assert_true(atomic_load(&notes) >= 25);
	wf_worker_close(&worker);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(signs_of_life_wake_it_once) };

	return cmocka_run_group_tests_name("worker", tests, NULL, NULL);
}
