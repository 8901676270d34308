/*
 * Late stops: the transfer they were for has ended and its slot has another user, which must not notice. Workers send
 * such a stop when they lose their CPU at the wrong moment; here it is put into their inboxes by hand, so this test
 * looks inside the engine. Two groups of one simulated rail each, without threads.
 */
#include "engine/core/engine.h"
#include "engine/peer/peer.h"
#include "engine/ops/transfer.h"
#include "support/sims.h"

#include <errno.h>

enum { BYTES = 24 << 20, GROUPS = 2 };

static struct sim here, there, *const both[] = { &here, &there };
static weft_peer peer;
static weft_remote remote;

static int open_both(void **state)
{
	struct weft_config config = sim_config();

	sims_set_up(state);
	config.flags = WEFT_MANUAL_PROGRESS;
	config.max_workers = GROUPS;
	sim_open(&here, "a", "p6-b200,nics=2,rate=1G", &config, BYTES);
	sim_open(&there, "b", "p6-b200,nics=2,rate=1G", &config, BYTES);
	assert_int_equal(here.engine->groups, GROUPS);
	peer = sim_add(&here, &there, &remote);
	SIMS_UNTIL(both, 2, sim_paths(&here, peer) == GROUPS);
	return 0;
}

static int close_both(void **state)
{
	sim_close(&here);
	sim_close(&there);
	return sims_tear_down(state);
}

static uint64_t carried_by(uint32_t rail)
{
	struct weft_rail_info info;

	assert_int_equal(weft_rail_info(here.engine, rail, &info, sizeof(info)), 0);
	return info.bytes;
}

/* Until each group has a part of it under way: far less than all, because a rail has at most a megabyte in flight. */
static weft_transfer begin_write(uint64_t seed)
{
	struct weft_write write = { .size = sizeof(write), .from = here.region, .to = remote, .bytes = BYTES };
	struct weft_op op = { .size = sizeof(op), .queue = here.queue, .tag = seed, .timeout_ns = WEFT_FOREVER };
	uint64_t before[GROUPS] = { carried_by(0), carried_by(1) };
	weft_transfer id;

	pattern_fill(here.memory, BYTES, seed, 0);
	assert_int_equal(weft_write(here.engine, &write, &op, &id), 0);
	SIMS_UNTIL(both, 2, carried_by(0) > before[0] && carried_by(1) > before[1]);
	return id;
}

static void wait_for_end(struct weft_event *event)
{
	sims_event(both, 2, here.queue, WEFT_EVENT_END, event);
	weft_event_release(event); /* what it points to; the rest stays */
}

/* Returns the transfer that follows a cancelled one in its slot, with parts in both groups; ret_old: the slot's old
 * number. */
static struct wf_transfer *next_user(uint64_t seed, weft_transfer *ret_old)
{
	struct weft_event event;
	struct wf_transfer *transfer;
	weft_transfer id;

	*ret_old = begin_write(seed + 1);
	assert_int_equal(weft_transfer_cancel(here.engine, *ret_old), 0);
	wait_for_end(&event);
	assert_int_equal(event.status, -ECANCELED);
	id = begin_write(seed);
	transfer = wf_transfer_find(here.engine, id);
	assert_non_null(transfer);
	assert_ptr_equal(transfer, wf_pool_at(&here.engine->transfers, (uint32_t)*ret_old - 1));
	assert_true(id != *ret_old);
	for (uint32_t g = 0; g < GROUPS; g++)
		assert_true(transfer->part[g].alive);
	return transfer;
}

static void ends_whole(uint64_t seed)
{
	struct weft_event event;

	wait_for_end(&event);
	assert_int_equal(event.tag, seed);
	assert_int_equal(event.status, 0);
	assert_int_equal(event.bytes, BYTES);
	assert_int_equal(pattern_differs(there.memory, BYTES, seed, 0), BYTES);
}

static void for_a_part(void **state)
{
	for (uint32_t g = 0; g < GROUPS; g++) {
		weft_transfer old;
		struct wf_transfer *transfer = next_user(10 + 10 * g, &old);

		assert_true(wf_group_post(&here.engine->group[g], WF_NOTE_PART_STOP, transfer, old));
		ends_whole(10 + 10 * g);
	}
}

static void for_the_whole(void **state)
{
	weft_transfer old;
	struct wf_transfer *transfer = next_user(30, &old);

	assert_true(wf_group_post(transfer->peer->home, WF_NOTE_STOP, transfer, old));
	ends_whole(30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(for_a_part),
		cmocka_unit_test(for_the_whole),
	};

	return cmocka_run_group_tests_name("stale", tests, open_both, close_both);
}
