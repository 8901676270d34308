/*
 * A peer's death over tcp is noticed when its sockets close: long before the peer limit, which is out of reach here,
 * idle or at work. A peer that is only stopped is not taken for dead.
 */
#include "support/peer.h"
#include "support/rest.h"

#include <signal.h>
#include <string.h>

#define BYTES (8u << 20)

static struct pair pair;

static struct weft_config patient(void)
{
	struct weft_config config = side_config();

	config.heartbeat_ns = 500 * MS;
	config.peer_limit_ns = 60 * S; /* three times as long as the test waits for anything */
	config.rail_limit_ns = 60 * S;
	return config;
}

static int open_pair(void **state)
{
	struct weft_config config = patient();

	pair_open(&pair, &config, &config, BYTES);
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	return 0;
}

static int close_pair(void **state)
{
	peer_kill(&pair.there);
	pair_close(&pair);
	return 0;
}

static void is_down(void)
{
	struct weft_event event;

	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_DOWN, pair.peer, LIMIT, &event), 0);
	assert_status(event.status, -EHOSTDOWN);
	assert_non_null(strstr(event.error->text, "nobody listens"));
	weft_event_release(&event);
}

static void idle(void **state)
{
	peer_kill(&pair.there);
	is_down();
}

static void at_work(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .timeout_ns = WEFT_FOREVER };
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, BYTES };
	struct weft_event event;

	for (op.tag = 1; op.tag <= 20; op.tag++)
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	assert_status(weft_call(pair.here.engine, pair.peer, 1, "?", 1, &op, NULL), 0);
	peer_kill(&pair.there);
	for (uint64_t tag = 1; tag <= 20; tag++) {
		int status = end_of(&pair.here, tag);

		if (status) /* a few were done before */
			assert_status(status, -EHOSTDOWN);
	}
	wait_for_event(&pair.here, WEFT_EVENT_REPLY, 21, &event);
	assert_status(event.status, -EHOSTDOWN);
	weft_event_release(&event);
	is_down();
}

/* Several heartbeats without an answer: its kernel accepts connections all the while. */
static void only_stopped(void **state)
{
	struct weft_event event;

	stop_at_rest(pair.there.pid);
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_DOWN, pair.peer, 3 * S, &event), -ETIME);
	kill(pair.there.pid, SIGCONT);
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_DOWN, pair.peer, 0, &event), -ETIME);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(idle, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(at_work, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(only_stopped, open_pair, close_pair),
	};

	return cmocka_run_group_tests_name("gone", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
