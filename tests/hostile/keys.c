/* Memory accessed by a stranger that knows only the address, or beyond what a descriptor allows. */
#include "hostile/attacks.h"
#include "hostile/world.h"

#include <errno.h>
#include <string.h>

/* What a stranger would try first: small numbers, handles, the largest ones, neighbours of a known key. */
static uint32_t guess(const struct wf_wire_region *known, uint64_t *keys)
{
	uint32_t count = 0;

	for (uint64_t i = 0; i < 8; i++) {
		keys[count++] = i;
		keys[count++] = UINT64_MAX - i;
		keys[count++] = UINT64_C(1) << 32 | i;
		keys[count++] = (i + 1) << 32 | 1;
	}
	for (uint64_t i = 1; known && i < 4; i++) {
		keys[count++] = known->key[0].key + i;
		keys[count++] = known->key[0].key - i;
	}
	return count;
}

/* Simulated NICs choose keys themselves, as real ones do: there a guess may succeed (docs/SECURITY.md). */
static void try_all(bool write)
{
	weft_region own;
	char memory[4096];
	uint64_t keys[64];
	struct wf_wire_region known, victim = descriptor_of(world.open_region);
	uint32_t count;

	if (!world_is("tcp"))
		skip();
	assert_int_equal(weft_region_register(world.victim.engine, memory, sizeof(memory), WEFT_REMOTE_WRITE, &own), 0);
	known = descriptor_of(own);
	count = guess(&known, keys);
	memset(world.stranger.data, 0xee, 4096);
	for (uint32_t i = 0; i < count; i++)
		if (!(write ? raw_write(&world.stranger, keys[i], victim.key[0].base, 64)
			    : raw_read(&world.stranger, keys[i], victim.key[0].base, 64)))
			fail_msg("key %#llx was good", (unsigned long long)keys[i]);
	assert_int_equal(weft_region_close(world.victim.engine, own), 0);
	memory_is_untouched();
	friend_works();
}

void write_with_a_guessed_key(void **state)
{
	try_all(true);
}

void read_with_a_guessed_key(void **state)
{
	try_all(false);
}

/* One region after another: one key says nothing about the next. */
void keys_do_not_repeat(void **state)
{
	enum { COUNT = 64 };
	uint64_t key[COUNT];
	char memory[64];

	if (!world_is("tcp"))
		skip();
	for (int i = 0; i < COUNT; i++) {
		weft_region region;

		assert_int_equal(
		    weft_region_register(world.victim.engine, memory, sizeof(memory), WEFT_REMOTE_READ, &region), 0);
		key[i] = descriptor_of(region).key[0].key;
		for (int j = 0; j < i; j++)
			assert_true((uint32_t)(key[i] ^ key[j]) && (key[i] ^ key[j]) >> 32);
		assert_int_equal(weft_region_close(world.victim.engine, region), 0);
	}
}

/* The descriptor is known, but allows only writing. */
void read_what_may_only_be_written(void **state)
{
	struct wf_wire_region closed = descriptor_of(world.closed_region);

	if (!raw_read(&world.stranger, closed.key[0].key, closed.key[0].base, 64))
		fail_msg("it was read");
	memory_is_untouched();
	friend_works();
}

/* Immediates without a key, of empty and other writes: only real writes are counted. */
void count_what_was_not_written(void **state)
{
	struct wf_wire_region open = descriptor_of(world.open_region);
	struct weft_op op = { .size = sizeof(op), .queue = world.victim.queue, .tag = 1, .timeout_ns = WEFT_FOREVER };
	struct weft_event event;
	weft_transfer expect;

	assert_int_equal(weft_expect(world.victim.engine, 0, 7, 1, &op, &expect), 0);
	for (uint64_t i = 0; i < 8; i++)
		raw_write_immediate(&world.stranger, i / 2, open.key[0].base, i % 2 ? 64 : 0, 7);
	memory_is_untouched();
	friend_works();
	assert_int_equal(weft_transfer_cancel(world.victim.engine, expect), 0); /* it had not ended */
	assert_true(victim_sees(WEFT_EVENT_COUNTED, LIMIT, &event));
	assert_int_equal(event.status, -ECANCELED);
	weft_event_release(&event);
}
