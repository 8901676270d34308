/* Random picks of free slots by swapping in a permutation. */
#include "slots.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* xorshift64*: good enough to spread pages, cheap enough for millions a second. */
static uint32_t next_below(struct cmd_slots *slots, uint32_t limit)
{
	uint64_t x = slots->random;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	slots->random = x;
	uint32_t high = (uint32_t)((x * UINT64_C(0x2545f4914f6cdd1d)) >> 32);
	return (uint32_t)(((uint64_t)high * limit) >> 32);
}

int cmd_slots_open(struct cmd_slots *slots, uint32_t total, uint64_t seed)
{
	*slots = (struct cmd_slots){ .total = total, .free = total };
	slots->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	if (!slots->random)
		slots->random = 1; /* zero is the one state xorshift never leaves */
	slots->order = malloc(total * sizeof *slots->order);
	slots->place = malloc(total * sizeof *slots->place);
	if (!slots->order || !slots->place) {
		cmd_slots_close(slots);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < total; i++)
		slots->order[i] = slots->place[i] = i;
	return 0;
}

void cmd_slots_close(struct cmd_slots *slots)
{
	free(slots->order);
	free(slots->place);
	slots->order = slots->place = NULL;
}

static void swap(struct cmd_slots *slots, uint32_t a, uint32_t b)
{
	uint32_t slot_a = slots->order[a], slot_b = slots->order[b];
	slots->order[a] = slot_b;
	slots->order[b] = slot_a;
	slots->place[slot_b] = a;
	slots->place[slot_a] = b;
}

uint32_t cmd_slots_take(struct cmd_slots *slots)
{
	assert(slots->free > 0);
	swap(slots, next_below(slots, slots->free), slots->free - 1);
	return slots->order[--slots->free];
}

void cmd_slots_give(struct cmd_slots *slots, uint32_t slot)
{
	assert(slot < slots->total && slots->place[slot] >= slots->free);
	swap(slots, slots->place[slot], slots->free++);
}

uint32_t cmd_slots_any(struct cmd_slots *slots)
{
	return next_below(slots, slots->total);
}
