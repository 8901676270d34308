/*
 * What the benchmark moves: memory in slots of equal size, each slot's bytes a function of (seed, slot
 * number), so that any slot can be checked with the seed alone.
 */
#ifndef WEFT_TOOLS_PATTERN_H
#define WEFT_TOOLS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a destination slot should hold, when it is not the number of the source slot last written to it. */
#define CMD_SLOT_UNTOUCHED UINT32_MAX       /* nothing was ever written: zeroes */
#define CMD_SLOT_UNKNOWN   (UINT32_MAX - 1) /* an operation on it failed: anything */
#define CMD_SLOT_MAX       (UINT32_MAX - 2)

void cmd_pattern_fill(void *to, uint64_t bytes, uint64_t seed, uint64_t slot);
/* A part of it: offset is a multiple of 8. */
void cmd_pattern_fill_part(void *to, uint64_t offset, uint64_t bytes, uint64_t seed, uint64_t slot);
/* The offset of the first byte that is not right, or bytes when all are. */
uint64_t cmd_pattern_check(const void *from, uint64_t bytes, uint64_t seed, uint64_t slot);

struct cmd_verdict {
	uint64_t checked, wrong, unknown;  /* slots, or messages */
	uint64_t first_slot, first_offset; /* of the first wrong one */
	uint64_t first_expected;           /* the source slot it should hold */
	uint8_t wanted, found;
};
/* Checks every byte of count slots against map; the slots' numbers start at first. */
void cmd_pattern_verify(const void *memory, uint64_t slot_bytes, uint64_t seed, const uint32_t *map, uint64_t first,
			uint64_t count, struct cmd_verdict *verdict);
/* The same for one message or slot with expected content; counts it. */
bool cmd_pattern_verify_one(const void *from, uint64_t bytes, uint64_t seed, uint64_t expected, uint64_t number,
			    struct cmd_verdict *verdict);
/* The same for a part of a slot, whose offset is a multiple of 8; the caller counts the slot as checked, and stops at what is wrong. */
bool cmd_pattern_verify_part(const void *from, uint64_t offset, uint64_t bytes, uint64_t seed, uint64_t expected,
			     uint64_t number, struct cmd_verdict *verdict);

#endif
