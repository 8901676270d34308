/*
 * Notes between workers: what a worker tells its own group runs later in the same turn and never inside the call that tells
 * it; none is lost or overtaken, however many there are; a note told twice before it is heard is heard once; a worker that
 * sleeps is woken; what a group counts for group 0 waits until that has a turn. Real engines on simulated NICs, asked from their own workers.
 */
#include "engine/core/control.h"
#include "engine/core/engine.h"
#include "engine/move/completions.h"
#include "engine/move/counts.h"
#include "engine/move/reset.h"
#include "engine/ops/transfer.h"
#include "support/sims.h"

#include <sched.h>

enum { MANY = 2000, EARLY = 4096, BYTES = 4096, TRIES = 200 };

static struct sim sim, *const all[] = { &sim };
static _Atomic uint64_t ran, late;
static uint64_t order[MANY];

static void open_engine(const char *spec, uint32_t groups, uint32_t flags)
{
	struct weft_config config = sim_config();
	struct weft_engine_info info;

	config.max_workers = groups;
	config.flags = flags;
	sim_open(&sim, "a", spec, &config, BYTES);
	assert_int_equal(weft_engine_info(sim.engine, &info, sizeof(info)), 0);
	assert_int_equal(info.groups, groups);
	atomic_store(&ran, 0);
	atomic_store(&late, 0);
}

static int close_engine(void **state)
{
	sim_close(&sim);
	return 0;
}

static int heard(struct wf_group *group, void *context)
{
	uint64_t at = atomic_fetch_add(&ran, 1);

	if (context && at < MANY)
		order[at] = (uint64_t)((uint64_t *)context - order);
	return 0;
}

static void all_heard(struct wf_group *group, void *context)
{
	atomic_fetch_add(&late, 1);
}

/* On the worker. Failures are counted: an assertion belongs on the test's own thread. */
static int tell_many(struct wf_group *group, void *context)
{
	int wrong = 0;

	for (uint64_t i = 0; i < MANY; i++) {
		wrong += wf_engine_control_later(group, heard, all_heard, &order[i]) != 0;
		wrong += atomic_load(&ran) != 0;
	}
	return wrong;
}

static void own_notes_wait_and_keep_their_order(void **state)
{
	uint64_t before;

	open_engine("null,nics=1", 1, WEFT_MANUAL_PROGRESS);
	assert_int_equal(wf_engine_control(sim.engine, tell_many, NULL, NULL), 0);
	assert_int_equal(atomic_load(&ran), 0);
	sims_turn(all, 1);
	before = atomic_load(&ran);
	assert_in_range(before, 1, MANY - 1); /* a turn has an end, whatever is told */
	SIMS_UNTIL(all, 1, atomic_load(&ran) == MANY);
	assert_int_equal(atomic_load(&late), MANY);
	for (uint64_t i = 0; i < MANY; i++)
		assert_int_equal(order[i], i);
}

static void notes_left_at_close_are_freed(void **state)
{
	open_engine("null,nics=1", 1, WEFT_MANUAL_PROGRESS);
	assert_int_equal(wf_engine_control(sim.engine, tell_many, NULL, NULL), 0);
	/* Closing gives the engine turns, and frees what they do not get to: a sanitizer sees what is left. */
}

/* A stop that is meant for an earlier life of the slot: hearing of it changes nothing. */
static int tell_twice(struct wf_group *group, void *context)
{
	struct wf_note *note = &wf_transfer_at(group->engine, 0)->failed_note;
	bool *told = context;

	told[0] = wf_note_tell_value(group, group, note, 0);
	told[1] = wf_note_tell_value(group, group, note, 0);
	return 0;
}

static void told_twice_is_heard_once(void **state)
{
	open_engine("null,nics=1", 1, WEFT_MANUAL_PROGRESS);
	for (int i = 0; i < 3; i++) {
		bool told[2] = { false, true };

		assert_int_equal(wf_engine_control(sim.engine, tell_twice, NULL, told), 0);
		assert_true(told[0]);
		assert_false(told[1]);
		sims_turn(all, 1);
	}
}

static int tell_everybody(struct wf_group *group, void *context)
{
	return group->index ? 0 : wf_engine_control_later(group, heard, all_heard, NULL);
}

/* Between workers with threads of their own, which sleep in between. */
static void sleepers_are_woken(void **state)
{
	open_engine("p6-b200,nics=2", 2, 0);
	for (uint64_t i = 1; i <= TRIES; i++) {
		uint64_t limit = now_ns() + LIMIT;

		assert_int_equal(wf_engine_control(sim.engine, tell_everybody, NULL, NULL), 0);
		while (atomic_load(&late) < i) {
			sims_in_time(limit);
			sched_yield();
		}
		assert_int_equal(atomic_load(&ran), 2 * i);
	}
}

/* As group 1's worker that reads completions while group 0 has no turn: each immediate is another, and comes twice. */
static int count_many(struct wf_group *group, void *context)
{
	uint32_t immediate = 0;

	if (!group->index)
		return 0;
	for (; immediate < EARLY && wf_completions_may_read(group); immediate++) {
		wf_counts_add(group, immediate);
		wf_counts_add(group, immediate);
		wf_counts_tell(group);
	}
	return (int)immediate;
}

/* A group goes on however long group 0 is away, as long as group 0 can remember what came; and all of it is counted in the end. */
static void counts_wait_for_group_0(void **state)
{
	struct weft_op op = { .size = sizeof(op), .tag = 1 };

	open_engine("p6-b200,nics=2", 2, WEFT_MANUAL_PROGRESS);
	op.queue = sim.queue;
	assert_int_equal(wf_engine_control(sim.engine, count_many, NULL, NULL), EARLY);
	for (uint32_t immediate = 0; immediate < EARLY; immediate++) {
		struct weft_event event;

		assert_int_equal(weft_expect(sim.engine, 0, immediate, 2, &op, NULL), 0);
		assert_int_equal(weft_queue_wait(sim.queue, &event, sizeof(event), 1, LIMIT), 1);
		assert_int_equal(event.type, WEFT_EVENT_COUNTED);
		assert_int_equal(event.status, 0);
		weft_event_release(&event);
	}
}

/* Group 1's list is full when its rail closes the outgoing endpoint: nobody can read yet what completed there. */
static int reset_without_room(struct wf_group *group, void *context)
{
	struct wf_seat *seat = &group->seat[0];

	if (!group->index)
		return 0;
	for (uint32_t immediate = 0; wf_completions_may_read(group); immediate++)
		wf_counts_add(group, immediate);
	wf_counts_tell(group);
	for (uint32_t immediate = 0; wf_completions_may_read(group); immediate++)
		wf_counts_add(group, immediate);
	wf_reset_ask_quietly(seat);
	wf_reset_if_due(seat);
	return seat->away;
}

/* The rail is not used again before that was read. */
static void drained_before_it_reopens(void **state)
{
	struct wf_seat *seat;

	open_engine("p6-b200,nics=2", 2, WEFT_MANUAL_PROGRESS);
	seat = &sim.engine->group[1].seat[0];
	assert_int_equal(wf_engine_control(sim.engine, reset_without_room, NULL, NULL), WF_AWAY_CLOSING);
	assert_int_equal(atomic_load(&seat->up), 0);
	SIMS_UNTIL(all, 1, atomic_load(&seat->up));
	assert_int_equal(seat->away, WF_HERE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(own_notes_wait_and_keep_their_order, close_engine),
		cmocka_unit_test_teardown(notes_left_at_close_are_freed, close_engine),
		cmocka_unit_test_teardown(told_twice_is_heard_once, close_engine),
		cmocka_unit_test_teardown(sleepers_are_woken, close_engine),
		cmocka_unit_test_teardown(counts_wait_for_group_0, close_engine),
		cmocka_unit_test_teardown(drained_before_it_reopens, close_engine),
	};

	return cmocka_run_group_tests_name("notes", tests, sims_set_up, sims_tear_down);
}
