/* What is said about landing, by one who has no business there: rooms and copies asked for, of memory that is no card's, and nonsense. */
#include "hostile/attacks.h"
#include "hostile/world.h"
#include "wire/land.h"

#include <errno.h>
#include <string.h>

/* Returns the status that the victim answers with. */
static int said_to(struct raw_link *link, const struct wf_land *land)
{
	static uint64_t subject = 7;
	uint64_t limit = now_ns() + LIMIT;
	struct wf_frame *frame;
	struct wf_land answer;
	uint8_t packed[256];

	wf_land_pack(land, NULL, packed);
	assert_true(
	    raw_message(&world.stranger, link, WF_MESSAGE_LAND, ++subject, packed, (uint32_t)wf_land_bytes(land)));
	while (now_ns() < limit)
		if (raw_hear(&world.stranger, link, LIMIT, &frame) && frame->type == WF_MESSAGE_LAND &&
		    frame->subject == subject) {
			assert_int_equal(wf_land_unpack(frame->payload, frame->payload_bytes, &answer), 0);
			return answer.status;
		}
	fail_msg("no answer came");
	return 0;
}

/* With a right descriptor, but of memory that is no card's; with a wrong one; and without a room. */
void ask_for_rooms_and_copies(void **state)
{
	struct wf_wire_region region = descriptor_of(world.closed_region);
	struct wf_land land = { .kind = WF_LAND_ASK, .region = region.region, .proof = region.proof };
	struct raw_link link = { 0 };

	assert_true(raw_connect(&world.stranger, &link));
	assert_int_equal(said_to(&link, &land), -ESTALE);
	land.proof++;
	assert_int_equal(said_to(&link, &land), -ESTALE);
	land = (struct wf_land){ .kind = WF_LAND_MOVE, .region = region.region, .proof = region.proof, .count = 1 };
	for (int i = 0; i < 4; i++) {
		land.bytes = i & 1 ? UINT64_MAX : 64;
		land.read = i & 2;
		assert_true(said_to(&link, &land) < 0);
	}
	/* Answers to what nobody asked mean nothing. */
	land = (struct wf_land){ .kind = WF_LAND_DONE };
	for (int kind = WF_LAND_ROOM; kind <= WF_LAND_DONE; kind += WF_LAND_DONE - WF_LAND_ROOM) {
		uint8_t packed[256];

		land.kind = (uint8_t)kind;
		land.status = kind == WF_LAND_ROOM ? -EAGAIN : 0;
		wf_land_pack(&land, NULL, packed);
		assert_true(
		    raw_message(&world.stranger, &link, WF_MESSAGE_LAND, 8, packed, (uint32_t)wf_land_bytes(&land)));
	}
	memory_is_untouched();
	friend_works();
}

void say_nonsense_about_landing(void **state)
{
	struct raw_link link = { 0 };
	uint8_t nonsense[100];

	assert_true(raw_connect(&world.stranger, &link));
	memset(nonsense, 0x5a, sizeof(nonsense));
	assert_true(raw_message(&world.stranger, &link, WF_MESSAGE_LAND, 1, nonsense, sizeof(nonsense)));
	memory_is_untouched();
	friend_works();
}
