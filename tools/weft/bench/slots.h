/*
 * Which slots of the destination are free, and picks among them at random places: no slot twice until it is
 * given back. So no two operations in flight ever write one slot, and the last writer of each is known.
 *
 * Whole lists are copied, because at 20 million pages a second a page may not cost more than a nanosecond or
 * two. The order is shuffled once; later rounds follow the order in which operations end.
 */
#ifndef WEFT_TOOLS_SLOTS_H
#define WEFT_TOOLS_SLOTS_H

#include <stdint.h>

struct cmd_slots {
	uint32_t total, free, front, source;
	uint32_t *ring;    /* of total: free slots from front on */
	uint32_t *sources; /* a permutation */
};

int cmd_slots_open(struct cmd_slots *slots, uint32_t total, uint64_t seed);
void cmd_slots_close(struct cmd_slots *slots);
/* The caller knows that this many are free. */
void cmd_slots_take(struct cmd_slots *slots, uint32_t *list, uint32_t count);
void cmd_slots_give(struct cmd_slots *slots, const uint32_t *list, uint32_t count);
/* The next of a shuffled order over all slots, taken or not; count is at most total. */
void cmd_slots_sources(struct cmd_slots *slots, uint32_t *list, uint32_t count);

#endif
