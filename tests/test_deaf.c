/*
 * Messages that a NIC gives up on, over a provider that numbers them (EFA): it delivers none that come later from the same
 * endpoint to the same one. weft then sends from another endpoint, and never from a new address: if links fail on both hosts at
 * once, both would have one that nobody knows. Engines without threads on simulated NICs.
 */
#include "support/sims.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 4096, RAILS = 2 };

static struct sim a, b, *const both[] = { &a, &b };

struct address {
	size_t bytes;
	char blob[WEFT_BLOB_MAX];
};

static struct address address_of(const struct sim *sim)
{
	struct address address = { .bytes = WEFT_BLOB_MAX };

	assert_int_equal(weft_engine_address(sim->engine, address.blob, &address.bytes), 0);
	return address;
}

static void assert_same(const struct address *before, const struct sim *sim)
{
	struct address now = address_of(sim);

	assert_int_equal(now.bytes, before->bytes);
	assert_memory_equal(now.blob, before->blob, now.bytes);
}

static uint64_t errors_of(const struct sim *sim, uint32_t rail)
{
	struct weft_rail_info info;

	assert_int_equal(weft_rail_info(sim->engine, rail, &info, sizeof(info)), 0);
	return info.errors;
}

static bool all_failed(const struct sim *sim, const uint64_t before[RAILS])
{
	for (uint32_t i = 0; i < RAILS; i++)
		if (errors_of(sim, i) < before[i] + 2) /* a message and a hello */
			return false;
	return true;
}

static void send(const struct sim *sim, weft_peer peer)
{
	struct weft_op op = { .size = sizeof(op), .queue = sim->queue, .timeout_ns = WEFT_FOREVER };

	assert_int_equal(weft_send(sim->engine, peer, 1, "x", 1, &op, NULL), 0);
}

static void expect_end(const struct sim *sim)
{
	struct weft_event event;

	sims_event(both, 2, sim->queue, WEFT_EVENT_END, &event);
	assert_int_equal(event.status, 0);
	weft_event_release(&event);
}

static void open_two(int rails, uint64_t peer_limit_ns)
{
	struct weft_config config = sim_config();
	char spec[64];

	snprintf(spec, sizeof(spec), "p5,nics=%d,as=efa,handshake=0", rails);
	config.provider = "efa";
	config.flags = WEFT_MANUAL_PROGRESS;
	config.peer_limit_ns = peer_limit_ns;
	config.heartbeat_ns = 250 * MS;
	config.rail_limit_ns = 1 * S;
	sim_open(&a, "a", spec, &config, BYTES);
	sim_open(&b, "b", spec, &config, BYTES);
}

static int close_two(void **state)
{
	sim_mend(-1);
	sim_close(&a);
	sim_close(&b);
	return 0;
}

static void meet(uint32_t rails, weft_peer *to_b, weft_peer *to_a)
{
	weft_remote remote;

	*to_b = sim_add(&a, &b, &remote);
	*to_a = sim_add(&b, &a, &remote);
	SIMS_UNTIL(both, 2, sim_paths(&a, *to_b) == rails && sim_paths(&b, *to_a) == rails);
}

/* Every message of both sides fails on every rail for a while: each end of each pair is deaf to the other's published one. */
static void lose_messages(weft_peer to_b, weft_peer to_a)
{
	uint64_t before_a[RAILS], before_b[RAILS];

	for (uint32_t i = 0; i < RAILS; i++) {
		before_a[i] = errors_of(&a, i);
		before_b[i] = errors_of(&b, i);
	}
	sim_fault("op=send,fault=error:13");
	send(&a, to_b);
	send(&b, to_a);
	SIMS_UNTIL(both, 2, all_failed(&a, before_a) && all_failed(&b, before_b));
	sim_mend(-1);
	expect_end(&a);
	expect_end(&b);
	SIMS_UNTIL(both, 2, sim_paths(&a, to_b) == RAILS && sim_paths(&b, to_a) == RAILS);
}

static void both_keep_their_addresses(void **state)
{
	struct address of_a, of_b;
	weft_peer to_b, to_a;

	open_two(RAILS, 60 * S);
	meet(RAILS, &to_b, &to_a);
	of_a = address_of(&a);
	of_b = address_of(&b);
	lose_messages(to_b, to_a);
	assert_same(&of_a, &a);
	assert_same(&of_b, &b);
}

/* What an endpoint has lost stays lost when the application forgets the peer. */
static void peer_added_again_is_reached(void **state)
{
	weft_peer to_b, to_a;
	weft_remote remote;

	open_two(RAILS, 60 * S);
	meet(RAILS, &to_b, &to_a);
	lose_messages(to_b, to_a);
	assert_int_equal(weft_peer_remove(a.engine, to_b), 0);
	to_b = sim_add(&a, &b, &remote);
	send(&a, to_b);
	expect_end(&a);
	SIMS_UNTIL(both, 2, sim_paths(&a, to_b) == RAILS && sim_paths(&b, to_a) == RAILS);
	send(&b, to_a);
	expect_end(&b);
}

/* A failure that does not say which message failed: only that nothing is acknowledged shows it. */
static void loss_that_nothing_names_is_noticed(void **state)
{
	weft_peer to_b, to_a;

	open_two(1, 60 * S);
	meet(1, &to_b, &to_a);
	sim_fault("host=a,op=send,count=1,fault=anonymous:9");
	send(&a, to_b);
	expect_end(&a);
	send(&b, to_a);
	expect_end(&b);
}

static uint64_t reopened(const struct sim *sim)
{
	struct weft_rail_info info;

	assert_int_equal(weft_rail_info(sim->engine, 0, &info, sizeof(info)), 0);
	return info.reopened;
}

/* A peer to which messages fail, and that greets us as often as it likes, has us reopen the endpoint that others use as well: soon at
 * first, then seldom. */
static void rails_are_reopened_seldom(void **state)
{
	weft_peer to_b, to_a;
	uint64_t until;

	open_two(1, 60 * S);
	meet(1, &to_b, &to_a);
	sim_fault("host=a,op=send,fault=error:13");
	for (until = now_ns() + 6 * S; now_ns() < until;) {
		sims_turn(both, 2);
		assert_int_equal(weft_peer_remove(b.engine, to_a), 0); /* so that it says hello again, soon */
		to_a = sim_add(&b, &a, &(weft_remote){ 0 });
		for (uint64_t next = now_ns() + 100 * MS; now_ns() < next;)
			sims_turn(both, 2);
	}
	assert_in_range(reopened(&a), 1, 10);
	sim_mend(-1);
	SIMS_UNTIL(both, 2, sim_paths(&a, to_b) == 1 && sim_paths(&b, to_a) == 1);
	send(&a, to_b);
	expect_end(&a);
}

static uint64_t peers_of(const struct sim *sim)
{
	struct weft_engine_info info;

	assert_int_equal(weft_engine_info(sim->engine, &info, sizeof(info)), 0);
	return info.peers;
}

/* The status of a message's end. A peer that was given up is added again. */
static int try_to_send(void)
{
	struct weft_op op = { .size = sizeof(op), .queue = b.queue, .timeout_ns = 1 * S };
	struct weft_event event;
	weft_remote remote;
	int status;

	if (weft_send(b.engine, sim_add(&b, &a, &remote), 1, "x", 1, &op, NULL))
		return -EHOSTDOWN;
	sims_event(both, 2, b.queue, WEFT_EVENT_END, &event);
	status = event.status;
	weft_event_release(&event);
	return status;
}

/* A peer that was never added here is forgotten when it falls silent. Then it is a newcomer, which must be challenged; by the only pair of
 * rails that there is. */
static void forgotten_peer_is_let_in_again(void **state)
{
	weft_remote remote;
	int fault;

	open_two(1, 1 * S);
	sim_add(&b, &a, &remote);
	SIMS_UNTIL(both, 2, peers_of(&a) == 1);
	SIMS_UNTIL(both, 2, !try_to_send());
	fault = sim_fault("op=send,fault=error:13");
	SIMS_UNTIL(both, 2, peers_of(&a) == 0 && sim_struck(fault) > 0);
	sim_mend(-1);
	SIMS_UNTIL(both, 2, !try_to_send());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(both_keep_their_addresses, close_two),
		cmocka_unit_test_teardown(peer_added_again_is_reached, close_two),
		cmocka_unit_test_teardown(loss_that_nothing_names_is_noticed, close_two),
		cmocka_unit_test_teardown(rails_are_reopened_seldom, close_two),
		cmocka_unit_test_teardown(forgotten_peer_is_let_in_again, close_two),
	};

	return cmocka_run_group_tests(tests, sims_set_up, sims_tear_down);
}
