/* The timer wheel, on the test's own clock: never early, never lost, any order, many laps. */
#include "base/time.h"
#include "worker/timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#define COUNT 2000

struct one {
	struct wf_timer timer;
	uint64_t due, fired_ns;
	int fired;
};

static struct wf_timers timers;
static struct one all[COUNT];
static uint64_t seed;

static uint64_t random_below(uint64_t limit)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (seed >> 24) % limit;
}

static void on_fire(struct wf_timer *timer, uint64_t now)
{
	struct one *one = wf_container(timer, struct one, timer);

	one->fired++;
	one->fired_ns = now;
	assert_false(wf_link_linked(&timer->link));
}

static void start(uint64_t now)
{
	memset(all, 0, sizeof(all));
	wf_timers_init(&timers, now);
	for (int i = 0; i < COUNT; i++)
		wf_timer_init(&all[i].timer, on_fire);
}

static void set(struct one *one, uint64_t due)
{
	one->due = due;
	wf_timer_set(&timers, &one->timer, due);
}

static void in_order_and_in_time(void **state)
{
	uint64_t now = 7 * WF_S + 123;

	start(now);
	for (int i = 0; i < COUNT; i++)
		set(&all[i], now + random_below(5 * WF_S));
	assert_int_equal(timers.count, COUNT);
	/* Turns have uneven lengths; each timer fires in the first turn that is two ticks past its deadline. */
	for (uint64_t end = now + 6 * WF_S; now < end; now += random_below(3 * WF_MS)) {
		wf_timers_run(&timers, now);
		for (int i = 0; i < COUNT; i++) {
			assert_true(!all[i].fired || all[i].fired_ns >= all[i].due);
			assert_true(all[i].fired || all[i].due + 2 * WF_MS > now);
			assert_true(all[i].fired <= 1);
		}
	}
	assert_int_equal(timers.count, 0);
	assert_true(wf_timers_next(&timers) == WF_NEVER);
}

/* next() is never later than the tick of the earliest deadline, so that a sleeper is always in time. */
static void next_is_not_late(void **state)
{
	uint64_t now = 99 * WF_S;

	for (int round = 0; round < 200; round++) {
		uint64_t earliest = WF_NEVER;

		start(now);
		for (int i = 0; i < 5; i++) {
			set(&all[i], now + random_below(20 * WF_S));
			earliest = all[i].due < earliest ? all[i].due : earliest;
		}
		assert_true(wf_timers_next(&timers) <= earliest + WF_MS);
		/* Following it leads to the earliest deadline within one lap's number of looks. */
		for (int looks = 0; !timers.count || timers.count == 5; looks++) {
			uint64_t next = wf_timers_next(&timers);

			assert_true(looks < 100);
			now = next > now ? next : now + WF_MS;
			wf_timers_run(&timers, now);
		}
		assert_true(now <= earliest + 2 * WF_MS + WF_MS);
		now += 100;
	}
}

static void cleared_and_set_again(void **state)
{
	uint64_t now = WF_S;

	start(now);
	set(&all[0], now + 10 * WF_MS);
	set(&all[1], now + 10 * WF_MS);
	set(&all[2], now + 10 * WF_MS);
	wf_timer_clear(&timers, &all[0].timer);
	wf_timer_clear(&timers, &all[0].timer);
	set(&all[1], now + 50 * WF_MS); /* later */
	set(&all[2], WF_NEVER);
	assert_int_equal(timers.count, 1);
	assert_int_equal(wf_timers_run(&timers, now + 20 * WF_MS), 0);
	set(&all[1], now + 30 * WF_MS); /* earlier */
	assert_int_equal(wf_timers_run(&timers, now + 32 * WF_MS), 1);
	assert_int_equal(all[1].fired, 1);
	assert_int_equal(all[0].fired + all[2].fired, 0);
	set(&all[3], now); /* already past */
	assert_int_equal(wf_timers_run(&timers, now + 34 * WF_MS), 1);
}

static int chain;
static void on_chain(struct wf_timer *timer, uint64_t now)
{
	chain++;
	wf_timer_set(&timers, timer, chain % 2 ? now : now + 3 * WF_MS);
}

/* A timer that sets itself again, even for now, does not hold the turn for ever. */
static void sets_itself(void **state)
{
	struct wf_timer timer;

	start(WF_S);
	wf_timer_init(&timer, on_chain);
	wf_timer_set(&timers, &timer, WF_S);
	for (uint64_t now = WF_S; now < WF_S + 300 * WF_MS; now += WF_MS)
		wf_timers_run(&timers, now);
	assert_in_range(chain, 60, 310);
	wf_timer_clear(&timers, &timer);
	assert_int_equal(timers.count, 0);
}

/* The process was stopped for an hour: everything due fires in the next turns, nothing twice, and no turn fires them all. */
static void after_a_long_pause(void **state)
{
	uint64_t now = WF_S;
	int fired, sum = 0;

	start(now);
	for (int i = 0; i < COUNT; i++)
		set(&all[i], now + random_below(1800 * WF_S));
	while ((fired = wf_timers_run(&timers, now + 3600 * WF_S)) > 0) {
		assert_true(fired <= COUNT / 2);
		sum += fired;
	}
	assert_int_equal(sum, COUNT);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(all[i].fired, 1);
	set(&all[0], now + 3600 * WF_S + 5 * WF_MS);
	assert_int_equal(wf_timers_run(&timers, now + 3600 * WF_S + 10 * WF_MS), 1);
}

/* Deadlines many laps away, set and reset at any time, and turns that stop for up to three laps: none early, none
 * late. */
static void far_away(void **state)
{
	uint64_t now = 5 * WF_S + 77;

	start(now);
	for (uint64_t end = now + 400 * WF_S; now < end;
	     now += random_below(random_below(50) ? 20 * WF_MS : 3 * WF_S)) {
		struct one *one = &all[random_below(200)];

		wf_timers_run(&timers, now);
		for (int i = 0; i < 200; i++) {
			assert_true(!all[i].fired || (all[i].fired == 1 && all[i].fired_ns >= all[i].due));
			assert_true(all[i].fired || !all[i].due || all[i].due + 2 * WF_MS > now);
		}
		one->fired = 0;
		set(one, now + random_below(random_below(4) ? 3 * WF_S : 200 * WF_S));
		assert_true(wf_timers_next(&timers) <= one->due + WF_MS);
	}
	wf_timers_run(&timers, now + 201 * WF_S);
	assert_int_equal(timers.count, 0);
}

/* A timer cleared by another that fires in the same turn does not fire. */
static struct one *victim;
static void on_clear(struct wf_timer *timer, uint64_t now)
{
	wf_timer_clear(&timers, &victim->timer);
}

static void cleared_while_firing(void **state)
{
	struct wf_timer killer;

	start(WF_S);
	victim = &all[0];
	wf_timer_init(&killer, on_clear);
	wf_timer_set(&timers, &killer, WF_S + 5 * WF_MS);
	set(&all[0], WF_S + 5 * WF_MS);
	assert_int_equal(wf_timers_run(&timers, WF_S + 10 * WF_MS), 1);
	assert_int_equal(all[0].fired, 0);
	assert_int_equal(timers.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_order_and_in_time),
		cmocka_unit_test(next_is_not_late),
		cmocka_unit_test(cleared_and_set_again),
		cmocka_unit_test(sets_itself),
		cmocka_unit_test(far_away),
		cmocka_unit_test(after_a_long_pause),
		cmocka_unit_test(cleared_while_firing),
	};

	return cmocka_run_group_tests_name("timer", tests, NULL, NULL);
}
