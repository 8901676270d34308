/*
 * Credit that does not arrive. The receiver has read, and the frame that says so is swallowed, refused or fails;
 * nothing else on its way would carry the credit, and the sender has more to send. Two engines without threads on
 * simulated NICs.
 */
#include "support/sims.h"

#include <errno.h>

enum { MESSAGES = 100, WINDOW = 16, STEPS = 4 /* one frame each */, FRAME = 8192, BYTES = 65536, ENOUGH = 64 };

#define NEVER (3600 * S)

static struct sim sender, receiver, *const both[] = { &sender, &receiver }, *const receiver_only[] = { &receiver };
static weft_peer peer, back;
static weft_remote remote, remote_back;
static uint32_t ended, arrived;
static bool moving; /* writes follow one another, both ways */

static void open_both(uint64_t heartbeat_ns)
{
	struct weft_config config = sim_config();

	config.flags = WEFT_MANUAL_PROGRESS;
	config.heartbeat_ns = heartbeat_ns;
	config.peer_limit_ns = config.peer_limit_ns < heartbeat_ns ? 2 * heartbeat_ns : config.peer_limit_ns;
	config.peer_window = WINDOW * FRAME;
	config.max_message = 4096;
	sim_open(&sender, "sender", "p5,nics=1", &config, BYTES);
	sim_open(&receiver, "receiver", "p5,nics=1", &config, BYTES);
	peer = sim_add(&sender, &receiver, &remote);
	back = sim_add(&receiver, &sender, &remote_back);
	SIMS_UNTIL(both, 2, sim_paths(&sender, peer) && sim_paths(&receiver, back));
	ended = arrived = 0;
	moving = false;
}

static void close_both(void)
{
	moving = false;
	sim_close(&sender);
	sim_close(&receiver);
}

static void write_one(const struct sim *from, weft_remote to)
{
	struct weft_write write = { .size = sizeof(write), .from = from->region, .to = to, .bytes = 4096 };
	struct weft_op op = { .size = sizeof(op), .queue = from->queue, .tag = MESSAGES, .timeout_ns = WEFT_FOREVER };

	assert_int_equal(weft_write(from->engine, &write, &op, NULL), 0);
}

static void take_sender(void)
{
	struct weft_event event;

	while (weft_queue_poll(sender.queue, &event, sizeof(event), 1) == 1) {
		assert_int_not_equal(event.type, WEFT_EVENT_PEER_DOWN);
		if (event.type == WEFT_EVENT_END && event.tag == MESSAGES && moving)
			write_one(&sender, remote);
		if (event.type == WEFT_EVENT_END && event.tag < MESSAGES) {
			assert_int_equal(event.status, 0);
			ended++;
		}
		weft_event_release(&event);
	}
}

/* Reads: released events count as consumed. */
static void take_receiver(void)
{
	struct weft_event event;

	while (weft_queue_poll(receiver.queue, &event, sizeof(event), 1) == 1) {
		assert_int_not_equal(event.type, WEFT_EVENT_PEER_DOWN);
		if (event.type == WEFT_EVENT_END && moving)
			write_one(&receiver, remote_back);
		if (event.type == WEFT_EVENT_MESSAGE)
			assert_int_equal(event.tag, arrived++);
		weft_event_release(&event);
	}
}

/* As many messages arrive as the receiver has room for; nobody reads them yet. */
static void fill_window(void)
{
	for (uint32_t i = 0; i < MESSAGES; i++) {
		struct weft_op op = { .size = sizeof(op), .queue = sender.queue, .tag = i, .timeout_ns = WEFT_FOREVER };

		assert_int_equal(weft_send(sender.engine, peer, i, "m", 1, &op, NULL), 0);
	}
	SIMS_UNTIL(both, 2, (take_sender(), ended == WINDOW));
}

/* The receiver reads everything and says so in several frames, which all meet the fault. */
static void read_in_vain(int fault, uint64_t at_least)
{
	take_receiver();
	assert_int_equal(arrived, WINDOW);
	for (int turns = 0; turns < ENOUGH; turns++)
		sims_turn(receiver_only, 1);
	assert_true(sim_struck(fault) >= at_least);
	sim_mend(fault);
	take_sender();
	assert_int_equal(ended, WINDOW);
}

static void all_arrive(void)
{
	SIMS_UNTIL(both, 2, (take_sender(), take_receiver(), ended == MESSAGES && arrived == MESSAGES));
}

/* Both are idle: the sender pings, and the answer carries the credit again. */
static void lost_while_idle(void **state)
{
	open_both(100 * MS);
	fill_window();
	read_in_vain(sim_fault("host=receiver,op=send,fault=drop"), STEPS);
	all_arrive();
	close_both();
}

/* Both write without a pause, so neither pings to see whether the other lives: the sender asks because it waits for
 * credit. */
static void lost_while_both_write(void **state)
{
	open_both(300 * MS);
	fill_window();
	moving = true;
	write_one(&sender, remote);
	write_one(&receiver, remote_back);
	read_in_vain(sim_fault("host=receiver,op=send,fault=drop"), STEPS);
	all_arrive();
	close_both();
}

/* No room for the frame: it is still owed, and goes in the next turn. No heartbeat helps. */
static void no_room(void **state)
{
	open_both(NEVER);
	fill_window();
	read_in_vain(sim_fault("host=receiver,op=send,fault=eagain:1000"), STEPS);
	all_arrive();
	close_both();
}

/* The only path fails with it: it goes when the path is back. */
static void no_path(void **state)
{
	open_both(NEVER);
	fill_window();
	read_in_vain(sim_fault("host=receiver,op=send,fault=refuse:%d", EIO), 1);
	all_arrive();
	close_both();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost_while_idle),
		cmocka_unit_test(lost_while_both_write),
		cmocka_unit_test(no_room),
		cmocka_unit_test(no_path),
	};

	return cmocka_run_group_tests_name("credit", tests, sims_set_up, sims_tear_down);
}
