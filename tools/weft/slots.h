/*
 * Which slots of the destination are free, and random picks among them: O(1) a pick and a return, no slot
 * twice until it is given back. So no two operations in flight ever write one slot, and the last writer of
 * each is known.
 */
#ifndef WEFT_TOOLS_SLOTS_H
#define WEFT_TOOLS_SLOTS_H

#include <stdint.h>

struct cmd_slots {
	uint32_t total, free;
	uint32_t *order; /* a permutation: the free ones first */
	uint32_t *place; /* where in order each slot is */
	uint64_t random;
};

int cmd_slots_open(struct cmd_slots *slots, uint32_t total, uint64_t seed);
void cmd_slots_close(struct cmd_slots *slots);
/* The caller knows that one is free. */
uint32_t cmd_slots_take(struct cmd_slots *slots);
void cmd_slots_give(struct cmd_slots *slots, uint32_t slot);
/* Any number below total, taken or not. */
uint32_t cmd_slots_any(struct cmd_slots *slots);

#endif
