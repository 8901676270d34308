/*
 * Rails whose first contact with a peer takes long, as over verbs and tcp: posts say "try again" until it is made. That is not
 * the peer's silence, so pairs stay as they are and the peer's limit does not run. Engines on simulated NICs.
 */
#include "support/sims.h"

#include <unistd.h>

enum { BYTES = 1 << 16, RAILS = 4 };

static struct sim here, there;
static weft_remote remote;
static weft_peer peer;

static void open_both(const char *spec, const struct weft_config *config)
{
	sim_open(&here, "a", spec, config, BYTES);
	sim_open(&there, "b", spec, config, BYTES);
	peer = sim_add(&here, &there, &remote);
}

static int close_both(void **state)
{
	sim_mend(-1);
	sim_close(&here);
	sim_close(&there);
	return 0;
}

/* The next event of a peer, which is here in time. */
static enum weft_event_type what_happens(void)
{
	uint64_t limit = now_ns() + LIMIT;
	struct weft_event event;

	for (;;) {
		sims_in_time(limit);
		if (weft_queue_wait(here.queue, &event, sizeof(event), 1, S) != 1)
			continue;
		weft_event_release(&event);
		if (event.type == WEFT_EVENT_PEER_UP || event.type == WEFT_EVENT_PEER_DOWN)
			return event.type;
	}
}

static enum weft_path_state path_state(uint32_t rail, uint32_t their_rail)
{
	struct weft_path_info info;

	assert_int_equal(weft_path_info(here.engine, peer, rail, their_rail, &info, sizeof(info)), 0);
	return info.state;
}

/* Each rail of the peer is asked by its own partner only: nobody has opened a connection across. */
static void pairs_stay_while_they_connect(void **state)
{
	struct weft_config config = sim_config();

	open_both("p5,nics=4,personality=verbs,handshake=300ms,handshake_depth=0", &config);
	for (uint64_t limit = now_ns() + LIMIT; sim_paths(&here, peer) < RAILS; usleep(1000))
		sims_in_time(limit);
	for (uint32_t i = 0; i < RAILS; i++)
		for (uint32_t j = 0; j < RAILS; j++)
			assert_int_equal(path_state(i, j), i == j ? WEFT_PATH_UP : WEFT_PATH_UNUSED);
}

/* Connecting takes two thirds of the limit on either side, one after the other: only what comes after a hello has left counts. */
static void limit_begins_with_the_first_hello(void **state)
{
	struct weft_config config = sim_config();
	weft_remote back;

	config.heartbeat_ns = 200 * MS;
	config.peer_limit_ns = 4 * S;
	open_both("p5,nics=1,personality=verbs,handshake=2700ms,handshake_depth=0", &config);
	sim_add(&there, &here, &back); /* a stranger would have less time */
	assert_int_equal(what_happens(), WEFT_EVENT_PEER_UP);
}

/* Each rail's first post takes long inside the provider. Between two of them the worker sees to everything else. */
static void one_slow_post_per_turn(void **state)
{
	struct weft_config config = sim_config();
	struct sim *const both[] = { &here, &there };
	uint64_t before = 0;
	int stall;

	config.flags |= WEFT_MANUAL_PROGRESS;
	open_both("p5,nics=4,personality=verbs", &config);
	stall = sim_fault("host=a,op=send,count=4,fault=stall:20ms");
	for (uint64_t limit = now_ns() + LIMIT; sim_paths(&here, peer) < RAILS;) {
		sims_in_time(limit);
		sims_turn(both, 2);
		assert_in_range(sim_struck(stall), before, before + 1);
		before = sim_struck(stall);
	}
	assert_int_equal(before, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(pairs_stay_while_they_connect, close_both),
		cmocka_unit_test_teardown(one_slow_post_per_turn, close_both),
		cmocka_unit_test_teardown(limit_begins_with_the_first_hello, close_both),
	};

	return cmocka_run_group_tests_name("connecting", tests, sims_set_up, sims_tear_down);
}
