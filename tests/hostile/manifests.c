/* Questions about memory disguised as manifests, which say what a checked write wrote. */
#include "hostile/attacks.h"
#include "hostile/world.h"
#include "wire/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Returns the verdict on a manifest. */
static int verdict_on(struct raw_link *link, const struct wf_manifest *manifest)
{
	static uint64_t call = 77;
	uint64_t limit = now_ns() + LIMIT;
	struct wf_frame *frame;
	uint8_t packed[256];

	wf_manifest_pack(manifest, packed);
	assert_true(raw_message(&world.stranger, link, WF_MESSAGE_MANIFEST, ++call, packed,
				(uint32_t)wf_manifest_bytes(manifest)));
	while (now_ns() < limit)
		if (raw_hear(&world.stranger, link, LIMIT, &frame) && frame->type == WF_MESSAGE_VERDICT &&
		    frame->subject == call)
			return frame->status;
	fail_msg("no verdict came");
	return 0;
}

/* Returns the verdict on "you have these bytes there". */
static int ask(struct raw_link *link, struct wf_manifest_range at, const void *bytes)
{
	struct wf_manifest manifest = { .unit_bytes = WF_MANIFEST_UNIT, .count = 1, .list = &at };

	manifest.sum = wf_manifest_hash(bytes, at.bytes, 0);
	return verdict_on(link, &manifest);
}

/* True and false claims get the same answer, which is not a writer's; nobody is notified. */
static void learns_nothing(struct raw_link *link, struct wf_manifest_range at)
{
	struct weft_event event;
	char lie[64];
	int status = ask(link, at, world.closed + at.offset);

	memset(lie, 0x55, sizeof(lie));
	assert_int_equal(ask(link, at, lie), status);
	assert_true(status != 0 && status != -EBADMSG);
	assert_false(victim_sees(WEFT_EVENT_NOTIFY, 0, &event));
}

static struct wf_manifest_range range_of(const struct wf_wire_region *region, uint64_t offset, uint64_t bytes)
{
	return (struct wf_manifest_range){
		.region = region->region, .proof = region->proof, .offset = offset, .bytes = bytes
	};
}

/* The handle is easily guessed, but worth nothing without the descriptor. Asking byte by byte would be enough. */
void ask_what_memory_holds(void **state)
{
	struct wf_wire_region region = descriptor_of(world.closed_region);
	struct raw_link link = { 0 };

	assert_true(raw_connect(&world.stranger, &link));
	region.proof++;
	learns_nothing(&link, range_of(&region, 0, 1));
	learns_nothing(&link, range_of(&region, 100, 64));
	region.proof = 0;
	learns_nothing(&link, range_of(&region, 0, 1));
	memory_is_untouched();
	friend_works();
}

/* With the descriptor, but after the right was revoked; or beyond the region's end; or of memory that nobody may
 * write. */
void ask_about_memory_that_was_revoked(void **state)
{
	struct wf_wire_region region = descriptor_of(world.closed_region);
	struct raw_link link = { 0 };
	struct weft_event event;

	assert_true(raw_connect(&world.stranger, &link));
	assert_int_equal(ask(&link, range_of(&region, 0, 64), world.closed), 0);
	assert_true(victim_sees(WEFT_EVENT_NOTIFY, LIMIT, &event));
	weft_event_release(&event);
	learns_nothing(&link, range_of(&region, WORLD_BYTES - 32, 64));
	learns_nothing(&link, range_of(&region, UINT64_MAX - 31, 64));
	assert_int_equal(weft_region_revoke(world.victim.engine, world.closed_region), 0);
	learns_nothing(&link, range_of(&region, 0, 64));
	friend_works();
}

/* Returns the verdict on a notification that is to store a word. */
static int store_word(struct raw_link *link, const struct wf_wire_region *region, uint64_t offset)
{
	struct wf_manifest manifest = { .unit_bytes = 1, .has_word = true, .word_value = UINT64_C(0x6861636b65642121) };

	manifest.word = range_of(region, offset, 8);
	return verdict_on(link, &manifest);
}

/* The victim stores words by itself: no key protects its memory, only what it checks. */
void store_words_where_they_may_not_be(void **state)
{
	static const uint64_t outside[] = { WORLD_BYTES - 7, WORLD_BYTES - 4,   WORLD_BYTES, UINT64_MAX - 7,
					    UINT64_MAX,      UINT64_C(1) << 63, 1,           4,
					    WORLD_BYTES - 9 };
	struct wf_wire_region region = descriptor_of(world.closed_region), other = region;
	char *read_only = calloc(1, WORLD_BYTES);
	struct raw_link link = { 0 };
	struct weft_event event;
	weft_region handle;
	uint64_t got;

	assert_true(raw_connect(&world.stranger, &link));
	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
		assert_int_not_equal(store_word(&link, &region, outside[i]), 0);
	other.proof++;
	assert_int_not_equal(store_word(&link, &other, 0), 0);
	other.proof = 0;
	assert_int_not_equal(store_word(&link, &other, 0), 0);
	other = region;
	for (uint64_t guess = 0; guess < 16; guess++) { /* other regions' handles with this one's proof */
		other.region = region.region ^ (guess + 1);
		assert_int_not_equal(store_word(&link, &other, 8 * guess), 0);
	}
	assert_non_null(read_only);
	assert_int_equal(weft_region_register(world.victim.engine, read_only, WORLD_BYTES, WEFT_REMOTE_READ, &handle),
			 0);
	other = descriptor_of(handle);
	assert_int_not_equal(store_word(&link, &other, 0), 0);
	memcpy(&got, read_only, sizeof(got));
	assert_true(got == 0);
	memory_is_untouched();
	assert_false(victim_sees(WEFT_EVENT_NOTIFY, 0, &event));
	/* With all that it takes it is stored, and then no more. */
	memcpy(&got, world.closed + 64, sizeof(got));
	assert_int_equal(store_word(&link, &region, 64), 0);
	assert_true(victim_sees(WEFT_EVENT_NOTIFY, LIMIT, &event));
	weft_event_release(&event);
	assert_memory_equal(world.closed + 64, "!!dekcah", 8);
	memcpy(world.closed + 64, &got, sizeof(got));
	assert_int_equal(weft_region_revoke(world.victim.engine, world.closed_region), 0);
	assert_int_not_equal(store_word(&link, &region, 64), 0);
	assert_int_equal(weft_region_close(world.victim.engine, world.closed_region), 0);
	assert_int_not_equal(store_word(&link, &region, 64), 0);
	assert_memory_equal(world.closed + 64, &got, sizeof(got));
	assert_int_equal(weft_region_close(world.victim.engine, handle), 0);
	free(read_only);
}

static weft_region give_much(uint64_t bytes, void **ret_memory)
{
	weft_region region;

	*ret_memory = calloc(1, bytes); /* never touched: at most one page of it exists */
	assert_non_null(*ret_memory);
	assert_int_equal(weft_region_register(world.victim.engine, *ret_memory, bytes, WEFT_REMOTE_WRITE, &region), 0);
	return region;
}

static void friend_writes_checked(void)
{
	struct weft_write write = { sizeof(write), world.source_region, 0, world.to_open, 0, 4096 };
	struct weft_op op = { .size = sizeof(op),
			      .queue = world.friend.queue,
			      .tag = 4711,
			      .timeout_ns = LIMIT,
			      .notify = WEFT_NOTIFY_FENCED,
			      .flags = WEFT_CHECKSUM };
	struct weft_event event;
	uint64_t limit = now_ns() + LIMIT;

	pattern_fill(world.source, WORLD_BYTES, 1, 0);
	assert_int_equal(weft_write(world.friend.engine, &write, &op, NULL), 0);
	do {
		assert_true(now_ns() < limit);
		event.tag = 0;
		if (weft_queue_poll(world.friend.queue, &event, sizeof(event), 1) == 1)
			weft_event_release(&event);
	} while (event.tag != 4711);
	assert_int_equal(event.status, 0);
}

/* A peer that may write asks for far more than it could have written: it waits only for itself. */
void have_much_checked(void **state)
{
	enum { COUNT = 200 };
	const uint64_t bytes = 512u << 20;
	void *memory;
	struct wf_wire_region region = descriptor_of(give_much(bytes, &memory));
	struct wf_manifest_range at = range_of(&region, 0, bytes);
	struct wf_manifest manifest = { .unit_bytes = WF_MANIFEST_UNIT, .count = 1, .list = &at };
	struct raw_link link = { 0 };
	struct wf_frame *frame;
	uint8_t packed[256];
	uint32_t verdicts = 0;
	uint64_t limit_ns;

	assert_true(raw_connect(&world.stranger, &link));
	wf_manifest_pack(&manifest, packed);
	/* On a full machine the victim may be too slow to receive: sends the same message again. */
	limit_ns = now_ns() + LIMIT;
	for (uint64_t i = 0; i < COUNT; i++)
		while (!raw_message(&world.stranger, &link, WF_MESSAGE_MANIFEST, i, packed,
				    (uint32_t)wf_manifest_bytes(&manifest)))
			assert_true(now_ns() < limit_ns);
	for (int i = 0; i < 20; i++)
		friend_writes_checked();
	while (raw_hear(&world.stranger, &link, 0, &frame))
		verdicts += frame->type == WF_MESSAGE_VERDICT;
	assert_true(verdicts < COUNT);
	friend_works();
	assert_int_equal(weft_engine_close(world.victim.engine), 0); /* nothing of it is finished first */
	world.victim.engine = NULL;
	free(memory);
}
