/*
 * Immediates that nobody reads: a peer that stands still has limited room in each completion queue, and immediates that
 * do not fit are lost. Writers use what they were granted, wait, and go on when it has read. Engines without threads on
 * simulated NICs that take no time: an engine without a turn reads nothing, and one with enough turns has done all it
 * will.
 */
#include "rail/rail.h"
#include "support/sims.h"

#include <stdio.h>

enum { WRITERS = 36, WIDE = 6, WIDE_RAILS = 32, BYTES = 1 << 20, PAGE = 8, STILL = 100, IMMEDIATE = 7 };

static struct sim reader, writer[WRITERS];
static uint64_t room = WF_IMMEDIATES_ROOM; /* of the reader's queue */

static struct weft_config manual(void)
{
	struct weft_config config = sim_config();

	config.flags = WEFT_MANUAL_PROGRESS;
	config.max_transfers = 16;
	config.message_frames = 8;
	return config;
}

static int open_reader(void **state)
{
	struct weft_config config = manual();

	config.message_frames = 512; /* everybody's greetings and questions wait for it at once */
	sims_set_up(state);
	sim_open(&reader, "reader", "null,nics=1", &config, BYTES);
	return 0;
}

static int close_reader(void **state)
{
	sim_close(&reader);
	return sims_tear_down(state);
}

static weft_remote join(struct sim *sim, uint32_t rails)
{
	struct weft_config config = manual();
	struct sim *const both[] = { &reader, sim };
	char spec[32];
	weft_remote remote;
	weft_peer peer;

	snprintf(spec, sizeof(spec), "null,nics=%u", rails);
	sim_open(sim, "writer", spec, &config, BYTES);
	peer = sim_add(sim, &reader, &remote);
	SIMS_UNTIL(both, 2, sim_paths(sim, peer) == rails);
	return remote;
}

static void write_counted(struct sim *sim, weft_remote remote, uint64_t count)
{
	struct weft_write_pages pages = {
		.size = sizeof(pages), .page_bytes = PAGE, .count = count, .from = sim->region, .to = remote
	};
	struct weft_op op = { .size = sizeof(op),
			      .queue = sim->queue,
			      .timeout_ns = WEFT_FOREVER,
			      .notify = WEFT_NOTIFY_COUNTED,
			      .immediate = IMMEDIATE };

	assert_int_equal(weft_write_pages(sim->engine, &pages, &op, NULL), 0);
}

static uint64_t written_by(const struct sim *sim)
{
	struct weft_rail_info rail;
	struct weft_engine_info info;
	uint64_t writes = 0;

	assert_int_equal(weft_engine_info(sim->engine, &info, sizeof(info)), 0);
	for (uint32_t i = 0; i < info.rails; i++) {
		assert_int_equal(weft_rail_info(sim->engine, i, &rail, sizeof(rail)), 0);
		writes += rail.writes;
	}
	return writes;
}

/* Gives turns until many in a row have posted nothing; returns how many writes there were. */
static uint64_t write_until_it_waits(struct sim *sim)
{
	uint64_t before = written_by(sim), last = before;

	for (uint32_t still = 0; still < STILL; still++) {
		sims_turn(&sim, 1);
		if (written_by(sim) != last)
			still = 0;
		last = written_by(sim);
	}
	return last - before;
}

static void expect(uint64_t count)
{
	struct weft_op op = { .size = sizeof(op), .queue = reader.queue, .timeout_ns = WEFT_FOREVER };

	assert_int_equal(weft_expect(reader.engine, 0, IMMEDIATE, count, &op, NULL), 0);
}

/* Now the reader gets its turns: everything is counted, and everybody's write is done. */
static void all_is_counted(uint32_t writers)
{
	struct sim *all[WRITERS + 1] = { &reader };
	struct weft_event event;

	for (uint32_t i = 0; i < writers; i++)
		all[i + 1] = &writer[i];
	sims_event(all, writers + 1, reader.queue, WEFT_EVENT_COUNTED, &event);
	assert_int_equal(event.status, 0);
	weft_event_release(&event);
	for (uint32_t i = 0; i < writers; i++) {
		sims_event(all, writers + 1, writer[i].queue, WEFT_EVENT_END, &event);
		assert_int_equal(event.status, 0);
		weft_event_release(&event);
	}
}

static uint64_t peers(void)
{
	struct weft_engine_info info;

	assert_int_equal(weft_engine_info(reader.engine, &info, sizeof(info)), 0);
	return info.peers;
}

/* They say goodbye, and the reader takes their grants back. */
static void leave(uint32_t writers)
{
	struct sim *const alone[] = { &reader };

	while (writers--) {
		sim_close(&writer[writers]);
		SIMS_UNTIL(alone, 1, peers() == writers);
	}
}

static void join_and_write(uint32_t writers, uint32_t rails, uint64_t count)
{
	uint64_t unread = 0;
	weft_remote remote[WRITERS];

	for (uint32_t i = 0; i < writers; i++)
		remote[i] = join(&writer[i], rails);
	for (uint32_t i = 0; i < writers; i++) {
		uint64_t written;

		write_counted(&writer[i], remote[i], count);
		written = write_until_it_waits(&writer[i]);
		assert_true(written > 0 && written < count);
		unread += written;
	}
	assert_true(unread <= room);
	expect(writers * count);
	all_is_counted(writers);
}

static void one_writer(void **state)
{
	join_and_write(1, 1, 10000);
	leave(1);
}

static void many_writers(void **state)
{
	join_and_write(WRITERS, 1, 200);
	leave(WRITERS);
}

/* Each path of a peer with many rails ends in the only rail. */
static void many_rails(void **state)
{
	join_and_write(WIDE, WIDE_RAILS, 1000);
	leave(WIDE);
}

/* The grants of writers that have left are available again. */
static void grants_come_back(void **state)
{
	uint64_t granted[2];

	for (int round = 0; round < 2; round++) {
		write_counted(&writer[0], join(&writer[0], 1), 5000);
		granted[round] = write_until_it_waits(&writer[0]);
		expect(5000);
		all_is_counted(1);
		leave(1);
		for (uint32_t i = 0; !round && i < WRITERS; i++)
			join(&writer[i], 1);
		if (!round)
			leave(WRITERS);
	}
	assert_int_equal(granted[0], granted[1]);
}

/* The NIC's queue has less room than was asked for: it is shared out in smaller parts. */
static void small_queue(void **state)
{
	struct weft_config config = manual();

	sim_close(&reader);
	config.message_frames = 256;
	sim_open(&reader, "reader", "null,nics=1,tx=64,cq=1024", &config, BYTES);
	room = 1024 - 2 * 64 - 256;
	join_and_write(WRITERS, 1, 200);
	leave(WRITERS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_writer),       cmocka_unit_test(many_writers), cmocka_unit_test(many_rails),
		cmocka_unit_test(grants_come_back), cmocka_unit_test(small_queue),
	};

	return cmocka_run_group_tests_name("grants", tests, open_reader, close_reader);
}
