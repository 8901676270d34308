/* Slot contents: 8-byte words, each a multiply-xor hash of (seed, slot, place), several gigabytes a second.
 */
#include "pattern.h"

#include <endian.h>
#include <string.h>

/* What is checked was written by a NIC, or by a provider's thread that stands in for one. The peer's word
 * says that it is there, over a connection ThreadSanitizer cannot follow. */
#define LANDED __attribute__((no_sanitize("thread")))

static uint64_t mix(uint64_t x)
{
	x ^= x >> 32;
	x *= UINT64_C(0xd6e8feb86659fd93);
	x ^= x >> 32;
	return x;
}

static uint64_t key_of(uint64_t seed, uint64_t slot)
{
	return mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) ^ ((slot + 1) * UINT64_C(0xff51afd7ed558ccd)));
}

static uint64_t word_at(uint64_t key, uint64_t place)
{
	/* Little-endian on every host: two hosts of different kinds must agree. */
	return htole64(mix(key + place * UINT64_C(0x9e3779b97f4a7c15)));
}

void cmd_pattern_fill_part(void *to, uint64_t offset, uint64_t bytes, uint64_t seed, uint64_t slot)
{
	uint64_t key = key_of(seed, slot), first = offset / 8, words = bytes / 8, word;
	uint8_t *at = to;

	for (uint64_t i = 0; i < words; i++, at += 8) {
		word = word_at(key, first + i);
		memcpy(at, &word, 8);
	}
	word = word_at(key, first + words);
	memcpy(at, &word, bytes % 8);
}

void cmd_pattern_fill(void *to, uint64_t bytes, uint64_t seed, uint64_t slot)
{
	cmd_pattern_fill_part(to, 0, bytes, seed, slot);
}

/* The place in the part of the first byte that is not right, or bytes. */
LANDED static uint64_t check_part(const uint8_t *memory, uint64_t offset, uint64_t bytes, uint64_t seed, uint64_t slot)
{
	uint64_t key = key_of(seed, slot), first = offset / 8, words = bytes / 8, place = 0;

	for (; place < words; place++) {
		uint64_t word = word_at(key, first + place), found;
		memcpy(&found, memory + place * 8, 8);
		if (found != word)
			break;
	}
	for (uint64_t at = place * 8; at < bytes; at++) {
		uint64_t word = word_at(key, first + at / 8);
		uint8_t wanted[8];
		memcpy(wanted, &word, 8);
		if (memory[at] != wanted[at % 8])
			return at;
	}
	return bytes;
}

uint64_t cmd_pattern_check(const void *from, uint64_t bytes, uint64_t seed, uint64_t slot)
{
	return check_part(from, 0, bytes, seed, slot);
}

static uint8_t byte_at(uint64_t seed, uint64_t slot, uint64_t offset)
{
	uint64_t word = word_at(key_of(seed, slot), offset / 8);
	uint8_t bytes[8];
	memcpy(bytes, &word, 8);
	return bytes[offset % 8];
}

LANDED static uint64_t check_zeroes(const uint8_t *from, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++) {
		if (from[i])
			return i;
	}
	return bytes;
}

LANDED bool cmd_pattern_verify_part(const void *from, uint64_t offset, uint64_t bytes, uint64_t seed, uint64_t expected,
				    uint64_t number, struct cmd_verdict *verdict)
{
	bool untouched = expected == CMD_SLOT_UNTOUCHED;
	uint64_t at = untouched ? check_zeroes(from, bytes) : check_part(from, offset, bytes, seed, expected);

	if (at == bytes)
		return true;
	if (!verdict->wrong++) {
		verdict->first_slot = number;
		verdict->first_offset = offset + at;
		verdict->first_expected = expected;
		verdict->wanted = untouched ? 0 : byte_at(seed, expected, offset + at);
		verdict->found = ((const uint8_t *)from)[at];
	}
	return false;
}

bool cmd_pattern_verify_one(const void *from, uint64_t bytes, uint64_t seed, uint64_t expected, uint64_t number,
			    struct cmd_verdict *verdict)
{
	verdict->checked++;
	return cmd_pattern_verify_part(from, 0, bytes, seed, expected, number, verdict);
}

void cmd_pattern_verify(const void *memory, uint64_t slot_bytes, uint64_t seed, const uint32_t *map, uint64_t first,
			uint64_t count, struct cmd_verdict *verdict)
{
	const uint8_t *at = memory;
	for (uint64_t i = 0; i < count; i++, at += slot_bytes) {
		if (map[i] == CMD_SLOT_UNKNOWN)
			verdict->unknown++;
		else
			cmd_pattern_verify_one(at, slot_bytes, seed, map[i], first + i, verdict);
	}
}
