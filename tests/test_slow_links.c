/*
 * Slow links and gone peers: neither is a failure of a rail. Deadlines shorter than a link's latency make every rail on
 * both sides take pieces back, and the engines still find each other; a large write on a slow link and twenty peers
 * that share one are waited for; a gone peer, whose NIC swallows hellos, costs the others nothing. Engines with threads
 * on simulated NICs.
 */
#include "support/sims.h"

#include <errno.h>
#include <string.h>

enum { PEERS = 20 };

static struct weft_config quick_limits(void)
{
	struct weft_config config = sim_config();

	config.heartbeat_ns = 100 * MS;
	config.peer_limit_ns = 20 * S; /* a slow machine must not look like a dead peer */
	config.rail_limit_ns = 200 * MS;
	return config;
}

static uint64_t reopened(const struct sim *sim)
{
	struct weft_rail_info rail;
	struct weft_engine_info info;
	uint64_t least = UINT64_MAX;

	assert_int_equal(weft_engine_info(sim->engine, &info, sizeof(info)), 0);
	for (uint32_t i = 0; i < info.rails; i++) {
		assert_int_equal(weft_rail_info(sim->engine, i, &rail, sizeof(rail)), 0);
		least = rail.reopened < least ? rail.reopened : least;
	}
	return least;
}

static void write_to(struct sim *sim, weft_remote remote, uint64_t bytes, uint64_t timeout_ns, uint32_t immediate)
{
	/* To the end of the other's memory: where both write, that is not where it writes from. */
	struct weft_write write = { .size = sizeof(write),
				    .from = sim->region,
				    .to = remote,
				    .to_offset = sim->bytes - bytes,
				    .bytes = bytes };
	struct weft_op op = { .size = sizeof(op), .queue = sim->queue, .timeout_ns = timeout_ns };

	if (immediate) {
		op.notify = WEFT_NOTIFY_COUNTED;
		op.immediate = immediate;
	}
	assert_int_equal(weft_write(sim->engine, &write, &op, NULL), 0);
}

/* Waits for the next end of an operation; skips other events. */
static int next_end(struct sim *sim)
{
	uint64_t until_ns = now_ns() + 2 * LIMIT;
	struct weft_event event;
	int status;

	do {
		sims_in_time(until_ns);
		if (weft_queue_wait(sim->queue, &event, sizeof(event), 1, 100 * MS) != 1)
			event.type = WEFT_EVENT_NONE;
		else
			weft_event_release(&event);
		status = event.status;
	} while (event.type != WEFT_EVENT_END);
	return status;
}

struct pair {
	struct sim sim[2];
	weft_remote remote[2];
	weft_peer peer[2];
	char address[2][WEFT_BLOB_MAX];
	size_t bytes[2];
};

static void open_pair(struct pair *pair, const char *spec)
{
	struct weft_config config = quick_limits();
	struct weft_event event;
	uint64_t until_ns;

	config.rail_limit_ns = 5 * S; /* longer than any latency */
	for (int i = 0; i < 2; i++) {
		sim_open(&pair->sim[i], i ? "b" : "a", spec, &config, 2 << 20);
		pair->bytes[i] = WEFT_BLOB_MAX;
		assert_int_equal(weft_engine_address(pair->sim[i].engine, pair->address[i], &pair->bytes[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pair->peer[i] = sim_add(&pair->sim[i], &pair->sim[!i], &pair->remote[i]);
	until_ns = now_ns() + 2 * LIMIT;
	while (sim_paths(&pair->sim[0], pair->peer[0]) < 2 || sim_paths(&pair->sim[1], pair->peer[1]) < 2) {
		sims_in_time(until_ns);
		if (weft_queue_wait(pair->sim[0].queue, &event, sizeof(event), 1, 10 * MS) ==
		    1) /* peers that come up */
			weft_event_release(&event);
	}
}

static void both_write_in_vain(struct pair *pair)
{
	for (int i = 0; i < 2; i++)
		write_to(&pair->sim[i], pair->remote[i], 1 << 20, 100 * MS, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(next_end(&pair->sim[i]), -ETIMEDOUT);
}

/* Nobody needs to be told a new address, because there is none. */
static void both_go_on(struct pair *pair)
{
	char after[WEFT_BLOB_MAX];
	size_t bytes = sizeof(after);

	for (int i = 0; i < 2; i++) {
		write_to(&pair->sim[i], pair->remote[i], 1 << 19, WEFT_FOREVER, 0);
		assert_int_equal(next_end(&pair->sim[i]), 0);
		bytes = sizeof(after);
		assert_int_equal(weft_engine_address(pair->sim[i].engine, after, &bytes), 0);
		assert_int_equal(bytes, pair->bytes[i]);
		assert_memory_equal(after, pair->address[i], bytes);
	}
	for (int i = 0; i < 2; i++)
		sim_close(&pair->sim[i]);
}

static void deadlines_shorter_than_the_latency(void **state)
{
	struct pair pair;

	open_pair(&pair, "p5,nics=2,latency=250ms,rate=inf");
	for (int i = 0; i < 8; i++)
		both_write_in_vain(&pair);
	both_go_on(&pair);
}

/* Until each rail of both sides has taken pieces back more than once. */
static void every_rail_of_both_takes_pieces_back(void **state)
{
	struct pair pair;
	uint64_t until_ns;
	int rule;

	open_pair(&pair, "p5,nics=2,rate=inf");
	until_ns = now_ns() + 2 * LIMIT;
	rule = sim_fault("op=write,fault=drop");
	while (reopened(&pair.sim[0]) < 2 || reopened(&pair.sim[1]) < 2) {
		sims_in_time(until_ns);
		both_write_in_vain(&pair);
	}
	sim_mend(rule);
	both_go_on(&pair);
}

/* One operation that takes many times the rail's limit, with no sign of life before its end. */
static void large_counted_write(const char *spec, uint64_t bytes)
{
	struct weft_config config = quick_limits();
	struct sim a, b;
	weft_remote remote;

	sim_open(&a, "a", spec, &config, bytes);
	sim_open(&b, "b", spec, &config, bytes);
	sim_add(&a, &b, &remote);
	write_to(&a, remote, bytes, 60 * S, 1);
	assert_int_equal(next_end(&a), 0);
	assert_int_equal(reopened(&a), 0);
	sim_close(&a);
	sim_close(&b);
}

static void a_large_counted_write(void **state)
{
	large_counted_write("p5,nics=1,rate=400M", 64 << 20);
}

/* Slower than the rate that is assumed for an unknown rail. */
static void a_counted_write_by_a_crawling_link(void **state)
{
	large_counted_write("p5,nics=1,rate=40M", 16 << 20);
}

static void many_peers_share_a_slow_link(void **state)
{
	struct weft_config config = quick_limits();
	struct sim a, other[PEERS];
	weft_remote remote[PEERS];

	config.message_frames = 16;
	sim_open(&a, "a", "p5,nics=1,rate=100M", &config, 1 << 20);
	for (int i = 0; i < PEERS; i++) {
		sim_open(&other[i], "other", "p5,nics=1,rate=100M", &config, 1 << 20);
		sim_add(&a, &other[i], &remote[i]);
	}
	for (int i = 0; i < PEERS; i++)
		write_to(&a, remote[i], 1 << 20, 60 * S, 0);
	for (int i = 0; i < PEERS; i++)
		assert_int_equal(next_end(&a), 0);
	assert_int_equal(reopened(&a), 0);
	for (int i = 0; i < PEERS; i++)
		sim_close(&other[i]);
	sim_close(&a);
}

/* What is sent to it never leaves the NIC and never fails; for ten times the rail's limit. */
static void a_peer_that_is_gone(void **state)
{
	struct weft_config config = quick_limits();
	struct sim a, b, gone;
	weft_remote remote, nothing;
	uint64_t until_ns;
	int rule;

	sim_open(&a, "a", "verbs,nics=1,unresponsive=never", &config, 1 << 20);
	sim_open(&b, "b", "verbs,nics=1", &config, 1 << 20);
	sim_open(&gone, "gone", "verbs,nics=1", &config, 1 << 20);
	rule = sim_fault("host=a,peer=gone,fault=drop");
	sim_add(&a, &b, &remote);
	sim_add(&a, &gone, &nothing);
	for (until_ns = now_ns() + 10 * config.rail_limit_ns; now_ns() < until_ns || sim_struck(rule) < 2;) {
		sims_in_time(until_ns + LIMIT);
		write_to(&a, remote, 4096, WEFT_FOREVER, 1);
		assert_int_equal(next_end(&a), 0);
	}
	assert_int_equal(reopened(&a), 0);
	sim_mend(rule);
	sim_close(&a);
	sim_close(&b);
	sim_close(&gone);
}

/* Hellos to it go on and never leave the NIC, which says nothing about the rail. */
static void a_peer_that_stays_gone(void **state)
{
	struct weft_config config = quick_limits();
	struct sim a, gone;
	weft_remote nothing;
	struct weft_event event;
	int rule;

	config.peer_limit_ns = 300 * MS;
	sim_open(&a, "a", "verbs,nics=1,unresponsive=never", &config, 1 << 20);
	sim_open(&gone, "gone", "verbs,nics=1", &config, 1 << 20);
	rule = sim_fault("host=a,peer=gone,fault=drop");
	sim_add(&a, &gone, &nothing);
	for (uint64_t until_ns = now_ns() + LIMIT; sim_struck(rule) < 8;) {
		sims_in_time(until_ns);
		if (weft_queue_wait(a.queue, &event, sizeof(event), 1, 100 * MS) != 1)
			continue;
		assert_true(event.type != WEFT_EVENT_RAIL_DOWN);
		weft_event_release(&event);
	}
	assert_int_equal(reopened(&a), 0);
	sim_mend(rule);
	sim_close(&a);
	sim_close(&gone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deadlines_shorter_than_the_latency),
		cmocka_unit_test(every_rail_of_both_takes_pieces_back),
		cmocka_unit_test(a_large_counted_write),
		cmocka_unit_test(many_peers_share_a_slow_link),
		cmocka_unit_test(a_counted_write_by_a_crawling_link),
		cmocka_unit_test(a_peer_that_is_gone),
		cmocka_unit_test(a_peer_that_stays_gone),
	};

	return cmocka_run_group_tests_name("slow-links", tests, sims_set_up, sims_tear_down);
}
