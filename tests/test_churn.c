/* Peers that come and go a thousand times under traffic: every operation ends, and memory and descriptors
 * stay flat. */
#include "support/peer.h"

#include <string.h>

#define BYTES  (1u << 20)
#define ROUNDS 1000

static struct pair pair; /* the steady peer, written to all the time */
static struct peer other;
static struct blob other_descriptor;
static uint64_t other_number;
static uint64_t steady_begun, steady_ended;

static int open_all(void **state)
{
	struct weft_config config = side_config();

	pair_open(&pair, NULL, NULL, BYTES);
	peer_start(&other, &config);
	other_number = peer_region(&other, BYTES, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, &other_descriptor);
	return 0;
}

static int close_all(void **state)
{
	peer_kill(&other);
	pair_close(&pair);
	return 0;
}

/* Eight writes to the steady peer are always under way. */
static void steady_traffic(bool more)
{
	struct weft_event event;

	while (more && steady_begun - steady_ended < 8) {
		struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 30000 };
		struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = UINT64_C(1) << 50 };

		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
		steady_begun++;
	}
	while (steady_begun != steady_ended &&
	       !side_wait(&pair.here, WEFT_EVENT_END, UINT64_C(1) << 50, more ? 0 : LIMIT, &event)) {
		assert_status(event.status, 0);
		weft_event_release(&event);
		steady_ended++;
	}
}

/* Drops events of peers that are gone; events of the steady peer are of one kind only. */
static void drop_news(void)
{
	struct weft_event event;

	while (!side_wait(&pair.here, WEFT_EVENT_PEER_UP, ANY_TAG, 0, &event) ||
	       !side_wait(&pair.here, WEFT_EVENT_PEER_DOWN, ANY_TAG, 0, &event)) {
		assert_true(event.peer != pair.peer);
		weft_event_release(&event);
	}
}

/* Returns 0, or that the peer is known to be down. */
static int begin_write(const struct weft_write *write, const struct weft_op *op)
{
	int error = weft_write(pair.here.engine, write, op, NULL);

	assert_true(error == 0 || error == -EHOSTDOWN);
	return error;
}

/* Adds, writes (waiting for the end in most rounds, removing the peer under it in others), removes. */
static void one_round(uint64_t i)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = i };
	weft_peer peer;
	struct weft_write write = { sizeof(write), pair.region, 0, 0, 0, i % 5 ? 4096 : 200000 };
	int refused, status;

	assert_status(weft_peer_add(pair.here.engine, other.address.data, other.address.bytes, NULL, &peer), 0);
	write.to = import(&pair.here, peer, &other_descriptor);
	/* The other side may still be saying goodbye for the previous round: then the write ends with that, or is
	 * refused. */
	refused = begin_write(&write, &op);
	steady_traffic(true);
	if (i % 4 && !refused) {
		status = end_of(&pair.here, i);
		assert_true(status == 0 || status == -EHOSTDOWN);
	}
	assert_status(weft_peer_remove(pair.here.engine, peer), 0);
	assert_status(weft_peer_remove(pair.here.engine, peer), -ENOENT);
	if (i % 4 == 0 && !refused) {
		status = end_of(&pair.here, i);
		assert_true(status == 0 || status == -ECANCELED || status == -EHOSTDOWN);
	}
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), -ENOENT);
	assert_status(weft_remote_close(pair.here.engine, write.to), 0);
	drop_news();
}

/* EFA's provider takes its buffers in turn, so for a long time a process touches new ones. */
static uint64_t flat_bytes(void)
{
	return strcmp(transport->provider, "efa") ? FLAT_BYTES : 16 * FLAT_BYTES;
}

static void assert_flat(const char *what, uint64_t before, uint64_t after, uint64_t allowed)
{
	if (after > before + allowed)
		fail_msg("%s grew from %llu to %llu", what, (unsigned long long)before, (unsigned long long)after);
}

static void added_and_removed(void **state)
{
	uint64_t warm = ROUNDS / 5, rss = 0, other_rss = 0;
	uint64_t deadline;
	int fds = 0, other_fds = 0;
	struct answer answer;
	struct weft_engine_info info;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		if (i == warm) {
			rss = rss_bytes();
			fds = open_fds();
			assert_status(peer_try(&other, &(struct command){ .code = COMMAND_USAGE }, NULL, &answer), 0);
			other_rss = answer.value[0];
			other_fds = (int)answer.value[1];
		}
		one_round(i);
	}
	steady_traffic(false);
	deadline = now_ns() + LIMIT;
	assert_flat("memory", rss, rss_bytes(), flat_bytes());
	/* Connections of gone peers close when either side gets to it. */
	do {
		assert_status(peer_try(&other, &(struct command){ .code = COMMAND_USAGE }, NULL, &answer), 0);
		assert_status(weft_engine_info(pair.here.engine, &info, sizeof(info)), 0);
	} while ((open_fds() > fds + 8 || answer.value[1] > (uint64_t)other_fds + 8 || info.peers > 2 ||
		  info.transfers_in_flight) &&
		 now_ns() < deadline);
	assert_flat("descriptors", (uint64_t)fds, (uint64_t)open_fds(), 8);
	assert_flat("the peer's memory", other_rss, answer.value[0], flat_bytes());
	assert_flat("the peer's descriptors", (uint64_t)other_fds, answer.value[1], 8);
	assert_in_range(info.peers, 1, 2);
	assert_int_equal(info.transfers_in_flight, 0);
}

/* One handle, replaced by the same address again and again: it keeps working, and imports go stale only when the
 * incarnation changes. */
static void replaced_by_itself(void **state)
{
	weft_peer peer;
	uint64_t rss = 0;

	assert_status(weft_peer_add(pair.here.engine, other.address.data, other.address.bytes, NULL, &peer), 0);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 5000 + i };
		struct weft_write write = { sizeof(write), pair.region, 0, 0, 0, 10000 };
		int refused, status;

		if (i == ROUNDS / 5)
			rss = rss_bytes();
		assert_status(weft_peer_replace(pair.here.engine, peer, other.address.data, other.address.bytes), 0);
		write.to = import(&pair.here, peer, &other_descriptor);
		refused = begin_write(&write, &op);
		steady_traffic(true);
		if (i % 3 == 0) /* ended by the next replacement, or well before */
			assert_status(
			    weft_peer_replace(pair.here.engine, peer, other.address.data, other.address.bytes), 0);
		status = refused ? refused : end_of(&pair.here, op.tag);
		assert_true(status == 0 || status == -EHOSTDOWN);
		assert_status(weft_remote_close(pair.here.engine, write.to), 0);
		drop_news();
	}
	steady_traffic(false);
	assert_flat("memory", rss, rss_bytes(), flat_bytes());
	assert_status(weft_peer_remove(pair.here.engine, peer), 0);
}

/* The peer process itself dies and returns under the same handle. */
static void replaced_by_another(void **state)
{
	struct weft_config config = side_config();
	weft_peer peer;

	assert_status(weft_peer_add(pair.here.engine, other.address.data, other.address.bytes, NULL, &peer), 0);
	for (uint64_t i = 0; i < 10; i++) {
		weft_remote old = import(&pair.here, peer, &other_descriptor), remote;
		struct blob stale = other_descriptor;
		struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 8000 + i };
		struct weft_write write = { sizeof(write), pair.region, 0, old, 0, 50000 };

		peer_kill(&other);
		peer_start(&other, &config);
		other_number = peer_region(&other, BYTES, WEFT_REMOTE_WRITE, &other_descriptor);
		assert_status(weft_peer_replace(pair.here.engine, peer, other.address.data, other.address.bytes), 0);
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), -ESTALE);
		assert_status(weft_remote_import(pair.here.engine, peer, stale.data, stale.bytes, &remote), -ESTALE);
		write.to = import(&pair.here, peer, &other_descriptor);
		pattern_fill(pair.memory, 50000, i, 0);
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
		steady_traffic(true);
		assert_status(end_of(&pair.here, op.tag), 0);
		peer_check(&other, other_number, 0, 50000, i);
		assert_status(weft_remote_close(pair.here.engine, old), 0);
		assert_status(weft_remote_close(pair.here.engine, write.to), 0);
	}
	steady_traffic(false);
	assert_status(weft_peer_remove(pair.here.engine, peer), 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(added_and_removed),
		cmocka_unit_test(replaced_by_itself),
		cmocka_unit_test(replaced_by_another),
	};

	return cmocka_run_group_tests_name("churn", tests, open_all, close_all);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
