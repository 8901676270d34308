/* The victim holds slots until we acknowledge what it says to us, and we never do: others must still get their
 * answers. */
#include "hostile/attacks.h"
#include "hostile/world.h"

#include <errno.h>

#define CALLS   1100 /* more than the victim has slots for replies */
#define AT_ONCE 64
#define NAMES   12
#define REGIONS 1100

struct answered {
	uint32_t calls, accepted, refused;
};

static void answer_calls(struct answered *answered)
{
	struct weft_event event;

	while (weft_queue_poll(world.victim.queue, &event, sizeof(event), 1) == 1) {
		if (event.type == WEFT_EVENT_CALL) {
			int error = weft_reply(world.victim.engine, event.peer, event.call, 0, "yes", 3, NULL, NULL);

			assert_true(!error || error == -EAGAIN);
			answered->calls++;
			answered->accepted += !error;
			answered->refused += error != 0;
		}
		weft_event_release(&event);
	}
}

static void wait_for_calls(struct answered *answered, uint32_t calls)
{
	uint64_t limit = now_ns() + LIMIT;
	struct wf_frame *frame;

	while (answered->calls < calls) {
		if (now_ns() >= limit)
			fail_msg("%u of %u calls came", answered->calls, calls);
		raw_receive(&world.stranger, MS, &frame);
		answer_calls(answered);
	}
}

/* Makes that many calls; the application answers all of them, and no answer is acknowledged. */
static struct answered call_in_silence(struct raw_link *link, uint32_t calls)
{
	struct answered answered = { 0 };

	for (uint32_t i = 0; i < calls; i++) {
		assert_true(raw_message(&world.stranger, link, WF_MESSAGE_CALL, i + 1, "?", 1));
		answer_calls(&answered);
		if (i % AT_ONCE == AT_ONCE - 1) /* the victim need not accept more than its window */
			wait_for_calls(&answered, i + 1);
	}
	wait_for_calls(&answered, calls);
	return answered;
}

/* One stranger. Nobody else is refused what it is refused. */
void never_acknowledge_replies(void **state)
{
	struct raw_link link = { 0 };
	struct answered answered;

	assert_true(raw_connect(&world.stranger, &link));
	answered = call_in_silence(&link, CALLS);
	assert_in_range(answered.accepted, 1, 128);
	assert_int_equal(answered.accepted + answered.refused, CALLS);
	friend_works();
	friend_works();
}

/* Many names, each with a share of its own: they must not use up all slots together. */
void never_acknowledge_under_many_names(void **state)
{
	uint32_t accepted = 0;

	for (uint64_t i = 0; i < NAMES; i++) {
		struct raw_link link = { 0 };

		world.stranger.address.incarnation++;
		assert_true(raw_connect(&world.stranger, &link));
		accepted += call_in_silence(&link, 150).accepted;
	}
	assert_in_range(accepted, 1, 512);
	friend_works();
	friend_works();
}

/* What the victim's engine itself tells its peers uses no slots of replies. */
void never_acknowledge_revocations(void **state)
{
	static char memory[4096];
	struct raw_link link = { 0 };

	assert_true(raw_connect(&world.stranger, &link));
	for (int i = 0; i < REGIONS; i++) {
		weft_region region;

		assert_int_equal(
		    weft_region_register(world.victim.engine, memory, sizeof(memory), WEFT_REMOTE_WRITE, &region), 0);
		assert_int_equal(weft_region_revoke(world.victim.engine, region), 0);
		assert_int_equal(weft_region_close(world.victim.engine, region), 0);
	}
	friend_works();
	friend_works();
}

/* A call that waits for its word has a number, which can be guessed from those before it. */
void answer_a_call_that_waits(void **state)
{
	static const uint8_t types[] = { WF_MESSAGE_REPLY, WF_MESSAGE_VERDICT, WF_MESSAGE_BARRIER };
	static uint64_t word;
	struct weft_op op = { .size = sizeof(op), .flags = WEFT_KEEP_END, .timeout_ns = WEFT_FOREVER };
	uint64_t limit = now_ns() + LIMIT;
	struct raw_link link = { 0 };
	struct weft_event event;
	struct wf_frame *frame;
	weft_transfer call;

	__atomic_store_n(&word, 0, __ATOMIC_RELEASE);
	op.start_word = &word;
	op.start_value = 1;
	assert_true(raw_connect(&world.stranger, &link));
	assert_int_equal(weft_call(world.victim.engine, link.handle, 1, "?", 1, &op, &call), 0);
	for (size_t i = 0; i < sizeof(types); i++)
		assert_true(raw_message(&world.stranger, &link, types[i], call, "!", 1));
	assert_true(raw_message(&world.stranger, &link, WF_MESSAGE_SEND, 0, "!", 1));
	assert_true(victim_sees(WEFT_EVENT_MESSAGE, LIMIT, &event)); /* it has read the others */
	weft_event_release(&event);
	assert_int_equal(weft_transfer_wait(world.victim.engine, call, 0, &event, sizeof(event)), -ETIMEDOUT);
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	do
		assert_true(now_ns() < limit);
	while (!raw_hear(&world.stranger, &link, LIMIT, &frame) || frame->type != WF_MESSAGE_CALL);
	assert_true(frame->subject == call);
	assert_true(raw_message(&world.stranger, &link, WF_MESSAGE_REPLY, call, "!", 1));
	assert_int_equal(weft_transfer_wait(world.victim.engine, call, LIMIT, &event, sizeof(event)), 0);
	assert_int_equal(event.status, 0);
	weft_event_release(&event);
}
