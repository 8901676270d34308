/* Free slots in a ring that was shuffled once: taken in front, given back behind. */
#include "slots.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* xorshift64*: good enough to spread pages. */
static uint32_t next_below(uint64_t *state, uint32_t limit)
{
	uint64_t x = *state;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	uint32_t high = (uint32_t)((x * UINT64_C(0x2545f4914f6cdd1d)) >> 32);
	return (uint32_t)(((uint64_t)high * limit) >> 32);
}

static uint32_t *shuffled(uint32_t total, uint64_t *state)
{
	uint32_t *order = malloc(total * sizeof *order);

	for (uint32_t i = 0; order && i < total; i++) {
		uint32_t at = next_below(state, i + 1);
		order[i] = order[at];
		order[at] = i;
	}
	return order;
}

int cmd_slots_open(struct cmd_slots *slots, uint32_t total, uint64_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	if (!state)
		state = 1; /* zero is the one state xorshift never leaves */
	*slots = (struct cmd_slots){ .total = total, .free = total };
	slots->ring = shuffled(total, &state);
	slots->sources = shuffled(total, &state);
	if (slots->ring && slots->sources)
		return 0;
	cmd_slots_close(slots);
	return -ENOMEM;
}

void cmd_slots_close(struct cmd_slots *slots)
{
	free(slots->ring);
	free(slots->sources);
	slots->ring = slots->sources = NULL;
}

/* How many of count lie before the end of a ring of total, from at on. */
static uint32_t before_end(uint32_t at, uint32_t count, uint32_t total)
{
	return count < total - at ? count : total - at;
}

static void copy_out(const uint32_t *ring, uint32_t at, uint32_t total, uint32_t *list, uint32_t count)
{
	uint32_t part = before_end(at, count, total);

	memcpy(list, ring + at, part * sizeof *list);
	memcpy(list + part, ring, (count - part) * sizeof *list);
}

static uint32_t advanced(uint32_t at, uint32_t count, uint32_t total)
{
	return count < total - at ? at + count : count - (total - at);
}

void cmd_slots_take(struct cmd_slots *slots, uint32_t *list, uint32_t count)
{
	assert(count <= slots->free);
	copy_out(slots->ring, slots->front, slots->total, list, count);
	slots->front = advanced(slots->front, count, slots->total);
	slots->free -= count;
}

void cmd_slots_give(struct cmd_slots *slots, const uint32_t *list, uint32_t count)
{
	uint32_t back = advanced(slots->front, slots->free, slots->total);
	uint32_t part = before_end(back, count, slots->total);

	assert(count <= slots->total - slots->free);
	memcpy(slots->ring + back, list, part * sizeof *list);
	memcpy(slots->ring, list + part, (count - part) * sizeof *list);
	slots->free += count;
}

void cmd_slots_sources(struct cmd_slots *slots, uint32_t *list, uint32_t count)
{
	assert(count <= slots->total);
	copy_out(slots->sources, slots->source, slots->total, list, count);
	slots->source = advanced(slots->source, count, slots->total);
}
