/* A worker alone: mere heartbeats leave it as it was, anything else is news. */
#include "worker/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#define LIMIT_S 30
#define WARM    64 /* turns after which the clock has been read again */

enum { SIGN, NEWS };

static struct wf_worker worker;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static uint64_t turns, noted_turn, notes, news_ns; /* as of the last turn */

static int on_start(void *context)
{
	return 0;
}

static void on_note(void *context, const struct wf_item *note)
{
	if (note->word[0] == SIGN)
		worker.faint++;
	pthread_mutex_lock(&lock);
	notes++;
	noted_turn = turns;
	pthread_mutex_unlock(&lock);
}

static int on_turn(void *context, uint64_t now_ns)
{
	pthread_mutex_lock(&lock);
	turns++;
	news_ns = worker.news_ns;
	pthread_cond_signal(&turned);
	pthread_mutex_unlock(&lock);
	return 0;
}

static bool on_no(void *context)
{
	return false;
}

static void on_stop(void *context)
{
}

static const struct wf_worker_ops ops = {
	.start = on_start, .note = on_note, .turn = on_turn, .in_flight = on_no, .can_sleep = on_no, .stop = on_stop
};

/* Returns when the worker last had news, a few turns after it has read a note or, before any note, after a while. */
static uint64_t news_after(uint64_t note)
{
	struct timespec limit;
	uint64_t seen;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += LIMIT_S;
	pthread_mutex_lock(&lock);
	while (notes < note || turns < (note ? noted_turn + 3 : WARM))
		assert_int_equal(pthread_cond_timedwait(&turned, &lock, &limit), 0);
	seen = news_ns;
	pthread_mutex_unlock(&lock);
	return seen;
}

static void post(uint64_t kind)
{
	struct wf_item note = { { kind } };

	assert_true(wf_worker_post(&worker, &note));
}

static void signs_of_life_are_no_news(void **state)
{
	uint64_t opened;

	assert_int_equal(wf_worker_open(&worker, &ops, NULL, 64, -1, true), 0);
	opened = news_after(0);
	post(SIGN);
	assert_true(news_after(1) == opened);
	post(NEWS);
	assert_true(news_after(2) > opened);
	assert_int_equal(wf_worker_stop(&worker, &(struct wf_worker_limits){ LIMIT_S * UINT64_C(1000000000),
									     LIMIT_S * UINT64_C(1000000000) }),
			 0);
	wf_worker_close(&worker);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(signs_of_life_are_no_news) };

	return cmocka_run_group_tests_name("worker", tests, NULL, NULL);
}
