/*
 * One engine with simulated NICs, a peer of this host and one that only NICs reach, all at once; and a third that moves from one to
 * the other, replaced while writes to all three are under way. Engines have their threads.
 */
#include "support/sims.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SPEC  "p5,nics=2,copy=full,rate=inf,latency=5us"
#define BYTES (1u << 20)
#define PIECE (256u << 10)
#define DEPTH 8u

struct target {
	struct sim sim;
	weft_peer peer;
	weft_remote remote;
	uint32_t in_flight;
	uint64_t done, failed;
	bool moves; /* what is under way then may fail */
};

enum { NEAR, FAR, MOVER, TARGETS };

static struct sim us;
static struct target target[TARGETS];

static void open_one(struct sim *sim, const char *name, bool local)
{
	struct weft_config config = sim_config();

	config.flags = local ? WEFT_WITH_LOCAL : 0;
	sim_open(sim, name, SPEC, &config, BYTES);
}

static uint64_t carried_by(bool local)
{
	struct weft_rail_info info;
	uint64_t bytes = 0;

	for (uint32_t i = 0; !weft_rail_info(us.engine, i, &info, sizeof(info)); i++)
		if (!strcmp(info.provider, "local") == local)
			bytes += info.bytes;
	return bytes;
}

static bool is_local(const struct target *to)
{
	struct weft_peer_info info;

	assert_int_equal(weft_peer_info(us.engine, to->peer, &info, sizeof(info)), 0);
	return info.up && info.local;
}

/* ---- traffic ---- */

static void submit(struct target *to)
{
	uint64_t at = (to->done + to->failed + to->in_flight) * PIECE % BYTES;
	struct weft_write write = { sizeof(write), us.region, at, to->remote, at, PIECE };
	struct weft_op op = {
		.size = sizeof(op), .queue = us.queue, .tag = 1 + (uint64_t)(to - target), .timeout_ns = WEFT_FOREVER
	};
	int error = weft_write(us.engine, &write, &op, NULL);

	if (error && !to->moves)
		fail_msg("a write to target %d: %s", (int)(to - target), weft_strerror(error));
	to->in_flight += !error;
}

static void take(const struct weft_event *event)
{
	struct target *to;

	if (event->type != WEFT_EVENT_END)
		return;
	assert_true(event->tag >= 1 && event->tag <= TARGETS);
	to = &target[event->tag - 1];
	assert_true(to->in_flight > 0);
	if (event->status && !to->moves)
		fail_msg("a write to target %d ended: %s", (int)(to - target), weft_strerror(event->status));
	to->in_flight--;
	to->done += !event->status;
	to->failed += event->status != 0;
}

/* Keeps writes to all targets of the mask under way. */
static void pump(uint32_t mask)
{
	struct weft_event event[16];
	int got;

	for (int i = 0; i < TARGETS; i++)
		for (uint32_t free = DEPTH - target[i].in_flight; mask & 1u << i && free; free--)
			submit(&target[i]);
	got = weft_queue_wait(us.queue, event, sizeof(event[0]), 16, MS);
	for (int i = 0; i < got; i++) {
		take(&event[i]);
		weft_event_release(&event[i]);
	}
}

#define PUMP_UNTIL(mask, holds)                                                                                        \
	do {                                                                                                           \
		uint64_t until_ns = now_ns() + LIMIT;                                                                  \
                                                                                                                       \
		while (!(holds)) {                                                                                     \
			assert_true(now_ns() < until_ns);                                                              \
			pump(mask);                                                                                    \
		}                                                                                                      \
	} while (0)

static void drain(void)
{
	PUMP_UNTIL(0, !target[NEAR].in_flight && !target[FAR].in_flight && !target[MOVER].in_flight);
}

/* Alone, so that the rails' counters tell which way it went. */
static void goes_by(struct target *to, bool local, uint64_t seed)
{
	uint64_t before = carried_by(local), other = carried_by(!local), done;

	drain();
	pattern_fill(us.memory, BYTES, seed, 0);
	done = to->done;
	PUMP_UNTIL(1u << (to - target), to->done >= done + 16);
	drain();
	assert_int_equal(pattern_differs(to->sim.memory, BYTES, seed, 0), BYTES);
	assert_true(carried_by(local) - before >= 16 * PIECE);
	assert_true(carried_by(!local) - other < 16 * PIECE / 2); /* greetings, heartbeats */
}

/* ---- the tests ---- */

static void add(struct target *to, const char *name, bool local)
{
	open_one(&to->sim, name, local);
	to->peer = sim_add(&us, &to->sim, &to->remote);
}

static int open_all(void **state)
{
	memset(target, 0, sizeof(target));
	open_one(&us, "us", true);
	add(&target[NEAR], "near", true);
	add(&target[FAR], "far", false);
	add(&target[MOVER], "mover", true);
	PUMP_UNTIL(0, is_local(&target[NEAR]) && is_local(&target[MOVER]) && sim_paths(&us, target[FAR].peer));
	return 0;
}

static int close_all(void **state)
{
	sim_close(&us);
	for (int i = 0; i < TARGETS; i++)
		sim_close(&target[i].sim);
	return 0;
}

static void both_at_once(void **state)
{
	uint64_t near = carried_by(true), far = carried_by(false);

	PUMP_UNTIL(1u << NEAR | 1u << FAR, target[NEAR].done >= 200 && target[FAR].done >= 200);
	drain();
	assert_true(carried_by(true) - near >= target[NEAR].done * PIECE);
	assert_true(carried_by(false) - far >= target[FAR].done * PIECE);
	goes_by(&target[NEAR], true, 1);
	goes_by(&target[FAR], false, 2);
	assert_false(is_local(&target[FAR]));
}

/* The new engine takes the old one's place as a peer while the old one lives, or after it has closed. */
static void move(bool local, bool closed)
{
	struct target *mover = &target[MOVER];
	struct sim old = mover->sim;
	weft_remote gone = mover->remote;
	char blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);
	int status;

	mover->moves = true;
	open_one(&mover->sim, "moved", local);
	if (closed)
		sim_close(&old);
	pump(7);
	assert_int_equal(weft_engine_address(mover->sim.engine, blob, &bytes), 0);
	assert_int_equal(weft_peer_replace(us.engine, mover->peer, blob, bytes), 0);
	pump(7);
	bytes = sizeof(blob);
	assert_int_equal(weft_region_export(mover->sim.engine, mover->sim.region, blob, &bytes), 0);
	assert_int_equal(weft_remote_import(us.engine, mover->peer, blob, bytes, &mover->remote), 0);
	PUMP_UNTIL(7, (status = weft_remote_close(us.engine, gone)) != -EBUSY); /* writes to it have still to end */
	assert_int_equal(status, 0);
	if (!closed)
		sim_close(&old);
}

static void moves_under_traffic(void **state)
{
	for (uint32_t round = 0; round < 6; round++) {
		uint64_t near = target[NEAR].done, far = target[FAR].done, done;
		bool local = round % 2;

		PUMP_UNTIL(7, target[NEAR].done > near && target[FAR].done > far && target[MOVER].in_flight);
		move(local, round / 2 % 2);
		done = target[MOVER].done;
		PUMP_UNTIL(7, target[MOVER].done >= done + 4 * DEPTH && is_local(&target[MOVER]) == local);
		target[MOVER].moves = false; /* from here on nothing fails */
		drain();
		goes_by(&target[MOVER], local, 10 + round);
	}
	assert_int_equal(target[NEAR].failed + target[FAR].failed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(both_at_once, open_all, close_all),
		cmocka_unit_test_setup_teardown(moves_under_traffic, open_all, close_all),
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	return cmocka_run_group_tests_name("mixed", tests, sims_set_up, sims_tear_down);
}
