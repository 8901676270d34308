/*
 * Numbers and strings into bytes and back, little-endian, for the control connection. Writing past the room
 * and reading past the end are remembered and reported once, at the end, so callers check one place.
 */
#ifndef WEFT_TOOLS_PACK_H
#define WEFT_TOOLS_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cmd_pack {
	uint8_t *at;
	size_t used, room;
	bool failed;
};
struct cmd_unpack {
	const uint8_t *at;
	size_t used, bytes;
	bool failed;
};

void cmd_pack_start(struct cmd_pack *pack, void *to, size_t room);
void cmd_pack_u64(struct cmd_pack *pack, uint64_t value);
void cmd_pack_u32(struct cmd_pack *pack, uint32_t value);
void cmd_pack_bytes(struct cmd_pack *pack, const void *from, size_t bytes);
void cmd_pack_text(struct cmd_pack *pack, const char *text); /* its length first */

void cmd_unpack_start(struct cmd_unpack *unpack, const void *from, size_t bytes);
uint64_t cmd_unpack_u64(struct cmd_unpack *unpack);
uint32_t cmd_unpack_u32(struct cmd_unpack *unpack);
void cmd_unpack_bytes(struct cmd_unpack *unpack, void *to, size_t bytes);
/* Refuses what does not fit with its terminator, and text with a NUL or a control character in it. */
void cmd_unpack_text(struct cmd_unpack *unpack, char *to, size_t room);
/* Everything was there and nothing is left over. */
bool cmd_unpack_done(const struct cmd_unpack *unpack);

#endif
