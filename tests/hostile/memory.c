/* Memory that the victim holds for a peer: unread messages, messages that never become whole, claims. */
#include "hostile/attacks.h"
#include "hostile/world.h"

#include <malloc.h>
#include <string.h>

enum { WINDOW = 32 * WF_FRAME_BYTES, MESSAGE = 8 * WF_FRAME_BYTES };

int small_window(void **state)
{
	world_victim.peer_window = WINDOW;
	world_victim.max_message = MESSAGE;
	return world_open(state);
}

/* Returns how many one-frame messages the victim accepts until it acknowledges no more. */
static uint64_t fill(struct raw_link *link)
{
	static uint8_t payload[WF_FRAME_PAYLOAD];
	struct wf_frame *frame;

	/* Sends more than it allows, so that some must be asked for again. */
	for (uint64_t i = 0; i < 2 * WINDOW / WF_FRAME_BYTES; i++)
		if (!raw_message(&world.stranger, link, WF_MESSAGE_SEND, 0, payload, sizeof(payload)))
			break;
	while (raw_hear(&world.stranger, link, 20 * MS, &frame))
		;
	return link->acked;
}

static uint64_t messages_of_the_stranger(void)
{
	struct weft_event event;
	uint64_t count = 0;

	while (victim_sees(WEFT_EVENT_MESSAGE, 100 * MS, &event)) {
		count += event.peer != world.friend_at_victim;
		weft_event_release(&event);
	}
	return count;
}

/* A new epoch brings no new window while the old messages lie unread. */
void fill_the_window_again_and_again(void **state)
{
	struct raw_link link = { 0 };
	uint64_t taken = 0;

	for (uint32_t epoch = 1; epoch <= 6; epoch++) {
		link = (struct raw_link){ .epoch = epoch };
		assert_true(raw_connect(&world.stranger, &link));
		taken += fill(&link);
	}
	assert_in_range(taken, 1, WINDOW / WF_FRAME_BYTES);
	assert_in_range(messages_of_the_stranger(), taken, WINDOW / WF_FRAME_BYTES);
	/* Once the messages are read, the window is there again. */
	link = (struct raw_link){ .epoch = 7 };
	assert_true(raw_connect(&world.stranger, &link));
	assert_in_range(fill(&link), 1, WINDOW / WF_FRAME_BYTES);
	friend_works();
}

/* A stranger leaves silently and comes back under another name. All strangers together have 32 windows. */
void leave_much_unread(void **state)
{
	uint64_t taken = 0;

	for (uint32_t i = 0; i < 40; i++) {
		struct raw_link link = { 0 };
		struct wf_frame bye;

		world.stranger.address.incarnation++;
		if (!raw_connect(&world.stranger, &link))
			continue;
		taken += fill(&link);
		bye = raw_frame(&world.stranger, &link, WF_FRAME_BYE);
		raw_send(&world.stranger, &bye, NULL);
	}
	assert_in_range(taken, 32, 33 * WINDOW / WF_FRAME_BYTES);
	messages_of_the_stranger();
	friend_works();
}

void send_more_than_a_message(void **state)
{
	static uint8_t payload[WF_FRAME_PAYLOAD];
	struct raw_link link = { 0 };
	const uint64_t total = 2 * MESSAGE;

	assert_true(raw_connect(&world.stranger, &link));
	assert_int_equal(link.max_message, MESSAGE);
	for (uint64_t i = 0; i < wf_frames_of(total); i++) {
		struct wf_frame frame = raw_frame(&world.stranger, &link, WF_FRAME_MESSAGE);
		uint64_t left = total - i * WF_FRAME_PAYLOAD;

		frame.type = WF_MESSAGE_SEND;
		frame.seq = i;
		frame.total = total;
		frame.payload_bytes = (uint32_t)(left < WF_FRAME_PAYLOAD ? left : WF_FRAME_PAYLOAD);
		if (!raw_send(&world.stranger, &frame, payload))
			break;
	}
	assert_int_equal(messages_of_the_stranger(), 0);
	friend_works();
}

/* Returns 0 where a sanitizer's allocator does not say. */
static uint64_t heap_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* One frame each of large overlapping messages: the victim makes no more room than may come. */
void claim_much_with_little(void **state)
{
	static uint8_t payload[WF_FRAME_PAYLOAD];
	struct raw_link link = { 0 };
	uint64_t before;

	assert_true(raw_connect(&world.stranger, &link));
	before = heap_bytes();
	for (int round = 0; round < 3; round++)
		for (uint64_t i = WINDOW / WF_FRAME_BYTES - 1; i; i--) {
			struct wf_frame frame = raw_frame(&world.stranger, &link, WF_FRAME_MESSAGE);

			frame.type = WF_MESSAGE_SEND;
			frame.seq = frame.first = i;
			frame.total = MESSAGE;
			frame.payload_bytes = WF_FRAME_PAYLOAD;
			assert_true(raw_send(&world.stranger, &frame, payload));
		}
	friend_works(); /* ensures that all of it was read */
	assert_true(heap_bytes() < before + WINDOW + 2 * MESSAGE);
}

/* Numbers that a peer may name: each is believed only as far as it is possible, or ends the connection and nothing
 * else. */
void lie_about_acknowledgements(void **state)
{
	static const struct {
		uint64_t ack, credit, seq, first, total;
	} lies[] = {
		{ UINT64_MAX, 0, 0, 0, 1 },
		{ 1, UINT64_MAX, 0, 0, 1 },
		{ 0, UINT64_MAX, UINT64_MAX, UINT64_MAX, 1 },
		{ 0, 0, 1u << 20, 1u << 20, 1 },
		{ 0, 0, 5, 0, 6 * WF_FRAME_PAYLOAD },
	};

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct raw_link link = { 0 };
		struct wf_frame frame;
		uint8_t payload[WF_FRAME_PAYLOAD] = { 0 };

		world.stranger.address.incarnation++;
		assert_true(raw_connect(&world.stranger, &link));
		frame = raw_frame(&world.stranger, &link, WF_FRAME_MESSAGE);
		frame.type = WF_MESSAGE_SEND;
		frame.ack = lies[i].ack;
		frame.credit = lies[i].credit;
		frame.seq = lies[i].seq;
		frame.first = lies[i].first;
		frame.total = lies[i].total;
		frame.payload_bytes = (uint32_t)(lies[i].total < WF_FRAME_PAYLOAD ? lies[i].total : WF_FRAME_PAYLOAD);
		assert_true(raw_send(&world.stranger, &frame, payload));
		friend_works();
	}
}
