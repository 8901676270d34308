/*
 * Peers that die: killed mid-transfer, killed while idle, never there at all, silent, and started again. Everything
 * ends within the peer limit, and another peer is served all the while.
 */
#include "support/peer.h"
#include "support/rest.h"
#include "support/watch.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define BYTES (32u << 20)
#define SPARE (31u << 20) /* from here on no write is given up: over tcp its bytes may land late */

static struct pair pair; /* the one that dies */
static struct peer witness;
static weft_peer witness_peer;
static weft_remote witness_remote;
static uint64_t witness_number;

static struct weft_config quick(void)
{
	struct weft_config config = side_config();

	config.heartbeat_ns = 100 * MS;
	config.peer_limit_ns = S;
	config.rail_limit_ns = 500 * MS;
	return config;
}

static int open_all(void **state)
{
	struct weft_config config = quick();
	struct weft_event event;
	struct blob descriptor;

	watch_start();
	pair_open(&pair, &config, &config, BYTES);
	peer_start(&witness, &config);
	witness_number = peer_region(&witness, BYTES, WEFT_REMOTE_WRITE, &descriptor);
	assert_status(weft_peer_add(pair.here.engine, witness.address.data, witness.address.bytes, NULL, &witness_peer),
		      0);
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_UP, witness_peer, LIMIT, &event), 0);
	witness_remote = import(&pair.here, witness_peer, &descriptor);
	return 0;
}

static int close_all(void **state)
{
	peer_kill(&pair.there);
	peer_kill(&witness);
	pair_close(&pair);
	watch_stop();
	return 0;
}

static void write_to(weft_remote remote, uint64_t tag, uint64_t bytes)
{
	struct weft_write write = { sizeof(write), pair.region, 0, remote, 0, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = tag, .timeout_ns = WEFT_FOREVER };

	assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
}

static void served(uint64_t tag)
{
	pattern_fill(pair.memory, 1u << 20, tag, 0);
	write_to(witness_remote, tag, 1u << 20);
	assert_status(end_of(&pair.here, tag), 0);
	peer_check(&witness, witness_number, 0, 1u << 20, tag);
}

static void comes_back(void)
{
	struct weft_config config = quick();
	struct blob stale = pair.descriptor;
	struct weft_event event;
	weft_remote old = pair.remote, none;

	peer_start(&pair.there, &config);
	pair.number = peer_region(&pair.there, BYTES, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, &pair.descriptor);
	assert_status(weft_peer_replace(pair.here.engine, pair.peer, pair.there.address.data, pair.there.address.bytes),
		      0);
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_UP, pair.peer, LIMIT, &event), 0);
	assert_status(weft_remote_import(pair.here.engine, pair.peer, stale.data, stale.bytes, &none), -ESTALE);
	pair.remote = old;
	assert_status(pair_write(&pair, 0, 0, 100), -ESTALE);
	assert_status(weft_remote_close(pair.here.engine, old), 0);
	pair.remote = import(&pair.here, pair.peer, &pair.descriptor);
	pattern_fill(pair.memory, 3000000, 4242, 0);
	assert_status(pair_write(&pair, 0, 0, 3000000), 0);
	peer_check(&pair.there, pair.number, 0, 3000000, 4242);
}

static void is_down(void)
{
	struct weft_event event;

	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_DOWN, pair.peer, LIMIT, &event), 0);
	assert_status(event.status, -EHOSTDOWN);
	assert_non_null(event.error);
	assert_int_equal(event.error->scope, WEFT_SCOPE_PEER);
	assert_true(event.error->text[0] != 0);
	weft_event_release(&event);
}

/* The peer is killed with every kind of operation under way. */
static void killed_at_work(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .timeout_ns = WEFT_FOREVER };
	struct weft_read read = { sizeof(read), pair.remote, 0, pair.region, 0, BYTES };
	struct weft_event event;
	uint64_t limit = quick().peer_limit_ns, start, end;

	for (uint64_t i = 0; i < 30; i++)
		write_to(pair.remote, 100 + i, BYTES);
	op.tag = 130;
	assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
	op.tag = 131;
	assert_status(weft_barrier(pair.here.engine, &pair.peer, 1, 1, &op, NULL), 0);
	op.tag = 132;
	assert_status(weft_call(pair.here.engine, pair.peer, 1, "?", 1, &op, NULL), 0);
	peer_kill(&pair.there);
	start = now_ns();
	for (uint64_t tag = 100; tag <= 131; tag++) {
		wait_for_event(&pair.here, WEFT_EVENT_END, tag, &event);
		/* Transfers may end before the kill; the barrier, which the peer never enters, does not. */
		if (event.status || tag == 131) {
			assert_status(event.status, -EHOSTDOWN);
			assert_non_null(event.error);
		}
		weft_event_release(&event);
	}
	wait_for_event(&pair.here, WEFT_EVENT_REPLY, 132, &event);
	assert_status(event.status, -EHOSTDOWN);
	weft_event_release(&event);
	/* The limit, and as much again for a busy machine. */
	end = now_ns();
	if (watch_is_late(start, end, 3 * limit))
		fail_msg("it took %.1f s", (double)(end - start) / 1e9);
	is_down();
	served(140);
	/* Refused, or accepted and ended: nothing hangs. */
	op.tag = 141;
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 100 };
	int status = weft_write(pair.here.engine, &write, &op, NULL);

	assert_status(status ? status : end_of(&pair.here, 141), -EHOSTDOWN);
	comes_back();
	served(142);
}

static void killed_while_idle(void **state)
{
	peer_kill(&pair.there);
	is_down();
	served(200);
	comes_back();
}

/* Stopped, not dead: no provider notices, but the heartbeat does. The peer comes back when it continues. */
static void stopped(void **state)
{
	struct weft_event event;
	uint64_t deadline = now_ns() + LIMIT;
	int status;

	stop_at_rest(pair.there.pid);
	write_to(pair.remote, 300, SPARE);
	write_to(pair.remote, 301, 10);
	for (uint64_t tag = 300; tag <= 301; tag++) {
		status = end_of(&pair.here, tag);
		/* There a write needs no help from the other process. */
		if (status || !transport_is_one_sided())
			assert_status(status, -EHOSTDOWN);
	}
	is_down();
	served(302);
	kill(pair.there.pid, SIGCONT);
	/* The same incarnation: its imported memory stays valid, and works when the peer is up again. */
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_UP, pair.peer, LIMIT, &event), 0);
	pattern_fill(pair.memory, 100000, 303, 0);
	do
		status = pair_write(&pair, 0, SPARE, 100000);
	while (status == -EHOSTDOWN && now_ns() < deadline);
	assert_status(status, 0);
	peer_check(&pair.there, pair.number, SPARE, 100000, 303);
}

/* An address where nobody answers: operations end, the engine goes on. */
static void never_there(void **state)
{
	struct weft_config config = quick();
	struct weft_event event;
	struct peer ghost;
	weft_peer peer;
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 400, .timeout_ns = WEFT_FOREVER };
	uint64_t start;
	int status;

	peer_start(&ghost, &config);
	peer_kill(&ghost);
	assert_status(weft_peer_add(pair.here.engine, ghost.address.data, ghost.address.bytes, NULL, &peer), 0);
	status = weft_send(pair.here.engine, peer, 1, "hello", 5, &op, NULL);
	assert_status(status ? status : end_of(&pair.here, 400), -EHOSTDOWN);
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_DOWN, peer, LIMIT, &event), 0);
	weft_event_release(&event);
	served(401);
	/* An operation with a deadline before the peer limit ends by its deadline, unless the machine lets both pass
	 * at once. */
	assert_status(weft_peer_remove(pair.here.engine, peer), 0);
	start = now_ns();
	assert_status(weft_peer_add(pair.here.engine, ghost.address.data, ghost.address.bytes, NULL, &peer), 0);
	op.tag = 402;
	op.timeout_ns = 100 * MS;
	status = weft_send(pair.here.engine, peer, 1, "hello", 5, &op, NULL);
	status = status ? status : end_of(&pair.here, 402);
	if (status != -EHOSTDOWN || watch_is_late(start, now_ns(), 2 * op.timeout_ns))
		assert_status(status, -ETIMEDOUT);
	assert_status(weft_peer_remove(pair.here.engine, peer), 0);
}

/* A peer that closes its engine says so: down at once, not after the limit. */
static void closes(void **state)
{
	peer_tell(&pair.there, COMMAND_CLOSE, 0);
	is_down();
	peer_kill(&pair.there);
	comes_back();
	served(500);
}

/* Again and again, with writes always under way. */
static void killed_again_and_again(void **state)
{
	for (uint64_t round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < 10; i++)
			write_to(pair.remote, 600 + i, 4u << 20);
		write_to(witness_remote, 620, 4u << 20);
		peer_kill(&pair.there);
		for (uint64_t i = 0; i < 10; i++) {
			int status = end_of(&pair.here, 600 + i);

			assert_true(status == 0 || status == -EHOSTDOWN);
		}
		assert_status(end_of(&pair.here, 620), 0);
		comes_back();
	}
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_at_work), cmocka_unit_test(killed_while_idle),
		cmocka_unit_test(stopped),        cmocka_unit_test(never_there),
		cmocka_unit_test(closes),         cmocka_unit_test(killed_again_and_again),
	};

	return cmocka_run_group_tests_name("death", tests, open_all, close_all);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
