/*
 * Memory of cards over simulated NICs that reach it themselves, between two processes on the fake driver: in every direction and
 * kind of operation; what each operation's end and the counters say of the way; rails that refuse, WEFT_REQUIRE_DIRECT there, freed
 * memory, and the flush before anybody is told.
 */
#include "support/cards.h"
#include "support/sims.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the end says of the way, with these flags. */
static int way_of(weft_region from, weft_remote to, uint64_t bytes, uint32_t flags, uint64_t *ret_ways, char *text,
		  size_t room)
{
	struct weft_write write = { sizeof(write), from, 0, to, 0, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags, .flags = flags };
	struct weft_event event;
	int status = weft_write(pair.here.engine, &write, &op, NULL);

	*ret_ways = 0;
	if (status)
		return status;
	wait_for_event(&pair.here, WEFT_EVENT_END, op.tag, &event);
	*ret_ways = event.ways;
	if (text)
		snprintf(text, room, "%s", event.error ? event.error->text : "");
	weft_event_release(&event);
	return event.status;
}

static uint64_t direct_bytes(void)
{
	struct weft_rail_info info;
	uint64_t bytes = 0;

	for (uint32_t i = 0; !weft_rail_info(pair.here.engine, i, &info, sizeof(info)); i++) {
		bytes += info.direct_bytes;
		assert_int_equal(info.card_bytes, 0); /* nothing passed through chunks */
	}
	return bytes;
}

/* Descriptors are taken from libfabric 1.20 on. */
static bool by_descriptor(void)
{
	return strstr(getenv("SIMFAB"), "hmem=dmabuf");
}

static bool not_here(void)
{
	struct weft_engine_info info;
	unsigned major = 0, minor = 0;

	assert_status(weft_engine_info(pair.here.engine, &info, sizeof(info)), 0);
	sscanf(info.libfabric, "%u.%u", &major, &minor);
	return by_descriptor() && major == 1 && minor < 20;
}

/* ---- what is carried ---- */

static void cards_reach_each_other(void **state)
{
	struct here here;
	uint64_t number, before, ways;
	weft_remote there;

	if (not_here())
		skip();
	here = card_here(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	before = direct_bytes();
	fill_card(here.memory, BYTES, 5);
	assert_status(write_to(here.region, 100, there, 300, BYTES - 300), 0);
	peer_check_at(&pair.there, number, 300, BYTES - 300, 5, 100);
	peer_fill(&pair.there, number, 0, BYTES, 6);
	assert_status(read_from(there, 7, here.region, 1000, BYTES - 2000), 0);
	check_card(here.memory + 1000, BYTES - 2000, 6, 7);
	assert_status(write_to(here.region, 0, there, 0, 0), 0);
	assert_true(direct_bytes() - before >= 2 * BYTES - 2300);
	assert_status(way_of(here.region, there, BYTES, WEFT_REQUIRE_DIRECT, &ways, NULL, 0), 0);
	assert_int_equal(ways, WEFT_WAY_DIRECT);
	assert_int_equal(fake_cuda_counts().descriptors > 0, by_descriptor());
	assert_int_equal(card_control(WRONG, 0), 0);
	assert_status(weft_remote_close(pair.here.engine, there), 0);
	peer_tell(&pair.there, COMMAND_REGION_CLOSE, number);
	card_here_free(&here);
}

static void cards_and_the_cpu(void **state)
{
	struct here here;
	uint64_t number, ways;
	weft_remote there;

	if (not_here())
		skip();
	here = card_here(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	fill_card(here.memory, BYTES, 1);
	assert_status(write_to(here.region, 11, pair.remote, 22, BYTES - 22), 0);
	peer_check_at(&pair.there, pair.number, 22, BYTES - 22, 1, 11);
	peer_fill(&pair.there, pair.number, 0, BYTES, 2);
	assert_status(read_from(pair.remote, 33, here.region, 0, BYTES - 33), 0);
	check_card(here.memory, BYTES - 33, 2, 33);
	pattern_fill(pair.memory, BYTES, 3, 0);
	assert_status(write_to(pair.region, 5, there, 6, BYTES - 6), 0);
	peer_check_at(&pair.there, number, 6, BYTES - 6, 3, 5);
	peer_fill(&pair.there, number, 0, BYTES, 4);
	assert_status(read_from(there, 1, pair.region, 0, BYTES - 1), 0);
	assert_int_equal(pattern_differs(pair.memory, BYTES - 1, 4, 1), BYTES - 1);
	assert_status(way_of(pair.region, there, 4096, 0, &ways, NULL, 0), 0);
	assert_int_equal(ways, WEFT_WAY_DIRECT);
	assert_status(way_of(here.region, pair.remote, 4096, WEFT_REQUIRE_DIRECT, &ways, NULL, 0), 0);
	assert_int_equal(ways, WEFT_WAY_DIRECT);
	assert_status(way_of(pair.region, pair.remote, 4096, WEFT_REQUIRE_DIRECT, &ways, NULL, 0), 0);
	assert_int_equal(ways, WEFT_WAY_HOST);
	card_here_free(&here);
}

static void pages_of_all_sizes(void **state)
{
	static const uint64_t sizes[] = { 100, 4096, 65536, 1 << 20 };
	struct here here, host = { pair.memory, pair.region };
	uint64_t number;
	weft_remote there;

	if (not_here())
		skip();
	here = card_here(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	for (int i = 0; i < 4; i++) {
		if (sizes[i] == 100) /* forty thousand copies, one by one: once is enough */
			continue;
		for (int read = 0; read < 2; read++) {
			try_pages(&here, there, number, sizes[i], read);
			try_pages(&here, pair.remote, pair.number, sizes[i], read);
			try_pages(&host, there, number, sizes[i], read);
		}
	}
	assert_int_equal(fake_cuda_counts().launches, 0); /* no kernel gathers them: the NICs do */
	card_here_free(&here);
}

/* A scatter of both kinds of memory, a fenced and a counted notification; and a card that must be told what NICs wrote. */
static void operations_of_every_kind(void **state)
{
	struct here here;
	uint64_t number, flushes;
	weft_remote there;
	struct peer_event event;
	struct weft_event end;
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };

	if (not_here())
		skip();
	here = card_here(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	struct weft_write parts[] = { { sizeof(parts[0]), here.region, 0, there, 5000, 3000 },
				      { sizeof(parts[0]), pair.region, 0, there, 100000, 200000 },
				      { sizeof(parts[0]), pair.region, 0, pair.remote, 7, 1000 } };
	struct weft_write whole = { sizeof(whole), here.region, 0, there, 0, 600000 };

	pattern_fill(pair.memory, BYTES, 8, 0);
	fill_card(here.memory, BYTES, 9);
	assert_status(weft_scatter(pair.here.engine, parts, 3, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_END, op.tag, &end);
	assert_status(end.status, 0);
	assert_int_equal(end.ways, WEFT_WAY_DIRECT | WEFT_WAY_HOST);
	weft_event_release(&end);
	peer_check_at(&pair.there, number, 5000, 3000, 9, 0);
	peer_check_at(&pair.there, number, 100000, 200000, 8, 0);
	peer_check_at(&pair.there, pair.number, 7, 1000, 8, 0);
	flushes = peer_tell(&pair.there, COMMAND_CARD, FLUSHES, 0);
	op.notify = WEFT_NOTIFY_FENCED;
	op.notify_tag = 77;
	op.tag = ++tags;
	assert_status(weft_write(pair.here.engine, &whole, &op, NULL), 0);
	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 77, &event);
	assert_status(event.status, 0);
	assert_true(peer_tell(&pair.there, COMMAND_CARD, FLUSHES, 0) > flushes);
	peer_check_at(&pair.there, number, 0, 600000, 9, 0);
	assert_status(end_of(&pair.here, op.tag), 0);
	flushes = peer_tell(&pair.there, COMMAND_CARD, FLUSHES, 0);
	peer_tell(&pair.there, COMMAND_EXPECT, 123, 1, 78);
	op.notify = WEFT_NOTIFY_COUNTED;
	op.immediate = 123;
	op.tag = ++tags;
	assert_status(weft_write(pair.here.engine, &whole, &op, NULL), 0); /* more than a chunk in one piece */
	assert_status(end_of(&pair.here, op.tag), 0);
	peer_wait(&pair.there, WEFT_EVENT_COUNTED, 78, &event);
	assert_true(peer_tell(&pair.there, COMMAND_CARD, FLUSHES, 0) > flushes);
	flushes = fake_cuda_counts().flushes;
	assert_status(read_from(there, 0, here.region, 0, 4096), 0);
	assert_true(fake_cuda_counts().flushes > flushes);
	card_here_free(&here);
}

/* ---- what is refused ---- */

/* Virtual memory has no handle that simulated NICs could open: they refuse it, and it passes through chunks. */
static void refused_memory_passes_through_chunks(void **state)
{
	struct here here = card_here_only(FAKE_VIRTUAL, BYTES);
	char text[256];
	uint64_t ways;

	fill_card(here.memory, BYTES, 3);
	assert_status(way_of(here.region, pair.remote, BYTES, 0, &ways, NULL, 0), 0);
	assert_int_equal(ways, WEFT_WAY_STAGED);
	peer_check(&pair.there, pair.number, 0, BYTES, 3);
	assert_status(way_of(here.region, pair.remote, BYTES, WEFT_REQUIRE_DIRECT, &ways, text, sizeof(text)),
		      -EOPNOTSUPP);
	assert_int_equal(ways, 0);
	assert_non_null(strstr(text, "WEFT_REQUIRE_DIRECT"));
	assert_non_null(strstr(text, "registering it there: "));
	card_here_free(&here);
}

static uint64_t owners_copies(void)
{
	return peer_tell(&pair.there, COMMAND_CARD, COPIES, 0);
}

/* One peer has memory that its NICs gave a key of, and memory that they refused. To the first bytes go directly, or from our chunks, and its
 * owner does nothing. To the second they go through its room, and its card copies them on. */
static void what_has_no_key_lands(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };
	struct here here, staged;
	uint64_t keyed_number, number, copies, ways;
	weft_remote keyed, roomed;
	struct weft_event end;
	char text[256];

	if (not_here())
		skip();
	here = card_here(FAKE_PLAIN, BYTES);
	staged = card_here_only(FAKE_VIRTUAL, BYTES);
	keyed = card_there(FAKE_PLAIN, BYTES, &keyed_number);
	roomed = card_there(FAKE_VIRTUAL, BYTES, &number);
	fill_card(here.memory, BYTES, 1);
	fill_card(staged.memory, BYTES, 2);
	pattern_fill(pair.memory, BYTES, 3, 0);
	struct {
		weft_region region;
		uint64_t seed, ways;
	} near[] = { { here.region, 1, WEFT_WAY_DIRECT },
		     { staged.region, 2, WEFT_WAY_STAGED },
		     { pair.region, 3, WEFT_WAY_DIRECT } };

	for (int i = 0; i < 3; i++) {
		copies = owners_copies();
		assert_status(way_of(near[i].region, keyed, BYTES, 0, &ways, NULL, 0), 0);
		assert_int_equal(ways, near[i].ways);
		assert_int_equal(owners_copies(), copies);
		peer_check(&pair.there, keyed_number, 0, BYTES, near[i].seed);
		assert_status(way_of(near[i].region, roomed, BYTES, 0, &ways, NULL, 0), 0);
		assert_int_equal(ways, WEFT_WAY_STAGED);
		assert_true(owners_copies() > copies);
		peer_check(&pair.there, number, 0, BYTES, near[i].seed);
		peer_fill(&pair.there, number, 0, BYTES, 7);
		assert_status(read_from(roomed, 5, near[i].region, 0, BYTES - 5), 0);
		assert_status(write_to(near[i].region, 0, pair.remote, 0, BYTES - 5), 0);
		peer_check_at(&pair.there, pair.number, 0, BYTES - 5, 7, 5);
	}
	/* Both in one operation; and the flag lets it have neither then. */
	struct weft_write parts[] = { { sizeof(parts[0]), here.region, 0, keyed, 5000, 700000 },
				      { sizeof(parts[0]), here.region, 9, roomed, 1000, 700000 } };

	fill_card(here.memory, BYTES, 8);
	assert_status(weft_scatter(pair.here.engine, parts, 2, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_END, op.tag, &end);
	assert_status(end.status, 0);
	assert_int_equal(end.ways, WEFT_WAY_DIRECT | WEFT_WAY_STAGED);
	weft_event_release(&end);
	peer_check_at(&pair.there, keyed_number, 5000, 700000, 8, 0);
	peer_check_at(&pair.there, number, 1000, 700000, 8, 9);
	assert_status(way_of(here.region, keyed, BYTES, WEFT_REQUIRE_DIRECT, &ways, NULL, 0), 0);
	copies = owners_copies();
	assert_status(way_of(here.region, roomed, BYTES, WEFT_REQUIRE_DIRECT, &ways, text, sizeof(text)), -EOPNOTSUPP);
	assert_int_equal(ways, 0);
	assert_non_null(strstr(text, "none of its NICs gave a key"));
	op.tag = ++tags;
	op.flags = WEFT_REQUIRE_DIRECT;
	assert_status(weft_scatter(pair.here.engine, parts, 2, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_END, op.tag, &end);
	assert_status(end.status, -EOPNOTSUPP);
	assert_non_null(strstr(end.error->text, "none of its NICs gave a key"));
	assert_int_equal(end.ways, 0);
	weft_event_release(&end);
	assert_int_equal(owners_copies(), copies);
	card_here_free(&staged);
	card_here_free(&here);
}

/* NICs that reach no card. */
static void rails_without_hmem(void **state)
{
	char sim[300], kept[256], text[256];
	struct here here;
	weft_remote there;
	uint64_t number, ways;

	snprintf(kept, sizeof(kept), "%s", getenv("SIMFAB"));
	snprintf(sim, sizeof(sim), "%s,hmem=off", kept);
	setenv("SIMFAB", sim, 1);
	pair_open(&pair, NULL, NULL, BYTES);
	setenv("SIMFAB", kept, 1);
	here = card_here_only(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	fill_card(here.memory, BYTES, 3);
	assert_status(way_of(here.region, pair.remote, BYTES, 0, &ways, NULL, 0), 0);
	assert_int_equal(ways, WEFT_WAY_STAGED);
	peer_check(&pair.there, pair.number, 0, BYTES, 3);
	assert_status(way_of(here.region, pair.remote, BYTES, WEFT_REQUIRE_DIRECT, &ways, text, sizeof(text)),
		      -EOPNOTSUPP);
	assert_non_null(strstr(text, "does not offer FI_HMEM"));
	assert_status(way_of(pair.region, there, BYTES, WEFT_REQUIRE_DIRECT, &ways, text, sizeof(text)), -EOPNOTSUPP);
	assert_non_null(strstr(text, "none of its NICs gave a key"));
	assert_status(way_of(here.region, there, BYTES, 0, &ways, NULL, 0), 0);
	assert_int_equal(ways, WEFT_WAY_STAGED);
	peer_check(&pair.there, number, 0, BYTES, 3);
	/* A message has no memory that the flag could be about. */
	assert_status(weft_send(pair.here.engine, pair.peer, 1, "x", 1,
				&(struct weft_op){ .size = sizeof(struct weft_op), .flags = WEFT_REQUIRE_DIRECT },
				NULL),
		      -EINVAL);
	card_here_free(&here);
}

static void freed_memory_is_stale(void **state)
{
	struct here here;
	uint64_t number, ways;
	weft_remote there;

	if (not_here())
		skip();
	here = card_here(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	assert_status(way_of(here.region, there, BYTES, WEFT_REQUIRE_DIRECT, &ways, NULL, 0), 0);
	fake_cuda_free(here.memory);
	assert_status(write_to(here.region, 0, pair.remote, 0, 100), -ESTALE);
	here.memory = fake_cuda_alloc(0, BYTES, FAKE_PLAIN); /* perhaps at the same place */
	assert_status(write_to(here.region, 0, pair.remote, 0, 100), -ESTALE);
	card_here_free(&here);
}

/* Closed and revoked memory is reached by nobody any more; its owner goes on. */
static void rights_are_taken_back(void **state)
{
	struct here here;

	if (not_here())
		skip();
	here = card_here(FAKE_PLAIN, BYTES);
	fill_card(here.memory, BYTES, 7);
	for (int revoke = 0; revoke < 2; revoke++) {
		uint64_t number, ways;
		weft_remote there = card_there(FAKE_PLAIN, BYTES, &number);

		assert_status(way_of(here.region, there, 4096, WEFT_REQUIRE_DIRECT, &ways, NULL, 0), 0);
		peer_tell(&pair.there, revoke ? COMMAND_REVOKE : COMMAND_REGION_CLOSE, number);
		assert_true(write_to(here.region, 0, there, 0, 4096) < 0);
		assert_status(weft_remote_close(pair.here.engine, there), 0);
	}
	assert_status(weft_region_revoke(pair.here.engine, here.region), 0);
	assert_status(write_to(here.region, 0, pair.remote, 0, BYTES), 0);
	peer_check(&pair.there, pair.number, 0, BYTES, 7);
	card_here_free(&here);
}

/* A peer of this host is reached over the local rail where there is one: no NIC, and so not directly. */
static void peers_of_this_host(void **state)
{
	struct weft_config config = side_config();
	struct here here;
	uint64_t number, ways;
	weft_remote there;
	char text[256];

	config.flags = WEFT_WITH_LOCAL;
	pair_open(&pair, &config, &config, BYTES);
	here = card_here(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	fill_card(here.memory, BYTES, 2);
	assert_status(way_of(here.region, there, BYTES, 0, &ways, NULL, 0), 0);
	assert_int_equal(ways, WEFT_WAY_LOCAL);
	peer_check(&pair.there, number, 0, BYTES, 2);
	assert_status(way_of(here.region, there, BYTES, WEFT_REQUIRE_DIRECT, &ways, text, sizeof(text)), -EOPNOTSUPP);
	assert_non_null(strstr(text, "of this host"));
	card_here_free(&here);
}

/* Writes that fail on one rail go over the other, which moves the card's memory as well. */
static void another_rail_goes_on(void **state)
{
	char sim[300], kept[256];
	struct here here;
	uint64_t number, ways;
	weft_remote there;
	int fault;

	assert_int_equal(sims_set_up(NULL), 0);
	snprintf(kept, sizeof(kept), "%s", getenv("SIMFAB"));
	snprintf(sim, sizeof(sim), "%s,control=/tmp/weft-sims-%d", kept, (int)getpid());
	setenv("SIMFAB", sim, 1);
	pair_open(&pair, NULL, NULL, BYTES);
	setenv("SIMFAB", kept, 1);
	if (not_here()) {
		sims_tear_down(NULL);
		skip();
	}
	here = card_here(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	fill_card(here.memory, BYTES, 4);
	fault = sim_fault("nic=0,op=write,count=2,fault=error:9");
	assert_status(way_of(here.region, there, BYTES, WEFT_REQUIRE_DIRECT, &ways, NULL, 0), 0);
	assert_int_equal(ways, WEFT_WAY_DIRECT);
	assert_true(sim_struck(fault) > 0);
	peer_check(&pair.there, number, 0, BYTES, 4);
	sim_mend(-1);
	card_here_free(&here);
	assert_int_equal(sims_tear_down(NULL), 0);
}

static void a_peer_dies(void **state)
{
	struct here here;
	uint64_t number;
	weft_remote there;
	int status;

	if (not_here())
		skip();
	here = card_here(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	assert_status(write_to(here.region, 0, there, 0, 4096), 0);
	peer_kill(&pair.there);
	begin_write(here.region, there, BYTES, 2 * S);
	status = end_of(&pair.here, tags);
	assert_true(status == -EHOSTDOWN || status == -ETIMEDOUT || status == -EREMOTEIO || status == -ENETDOWN);
	card_here_free(&here);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(cards_reach_each_other, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(cards_and_the_cpu, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(pages_of_all_sizes, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(operations_of_every_kind, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(refused_memory_passes_through_chunks, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(what_has_no_key_lands, open_pair, close_pair),
		cmocka_unit_test_teardown(rails_without_hmem, close_pair),
		cmocka_unit_test_setup_teardown(freed_memory_is_stale, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(rights_are_taken_back, open_pair, close_pair),
		cmocka_unit_test_teardown(peers_of_this_host, close_pair),
		cmocka_unit_test_teardown(another_rail_goes_on, close_pair),
		cmocka_unit_test_setup_teardown(a_peer_dies, open_pair, close_pair),
	};

	return cmocka_run_group_tests_name("direct", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
