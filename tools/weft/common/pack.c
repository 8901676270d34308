/* Little-endian packing for the control connection. */
#include "pack.h"

#include <endian.h>
#include <string.h>

void cmd_pack_start(struct cmd_pack *pack, void *to, size_t room)
{
	*pack = (struct cmd_pack){ .at = to, .room = room };
}

void cmd_pack_bytes(struct cmd_pack *pack, const void *from, size_t bytes)
{
	if (pack->failed || pack->room - pack->used < bytes) {
		pack->failed = true;
		return;
	}
	if (bytes)
		memcpy(pack->at + pack->used, from, bytes);
	pack->used += bytes;
}

void cmd_pack_u64(struct cmd_pack *pack, uint64_t value)
{
	value = htole64(value);
	cmd_pack_bytes(pack, &value, sizeof value);
}

void cmd_pack_u32(struct cmd_pack *pack, uint32_t value)
{
	value = htole32(value);
	cmd_pack_bytes(pack, &value, sizeof value);
}

void cmd_pack_text(struct cmd_pack *pack, const char *text)
{
	size_t length = strlen(text);
	cmd_pack_u32(pack, (uint32_t)length);
	cmd_pack_bytes(pack, text, length);
}

void cmd_unpack_start(struct cmd_unpack *unpack, const void *from, size_t bytes)
{
	*unpack = (struct cmd_unpack){ .at = from, .bytes = bytes };
}

void cmd_unpack_bytes(struct cmd_unpack *unpack, void *to, size_t bytes)
{
	if (unpack->failed || unpack->bytes - unpack->used < bytes) {
		unpack->failed = true;
		memset(to, 0, bytes);
		return;
	}
	if (bytes)
		memcpy(to, unpack->at + unpack->used, bytes);
	unpack->used += bytes;
}

uint64_t cmd_unpack_u64(struct cmd_unpack *unpack)
{
	uint64_t value;
	cmd_unpack_bytes(unpack, &value, sizeof value);
	return le64toh(value);
}

uint32_t cmd_unpack_u32(struct cmd_unpack *unpack)
{
	uint32_t value;
	cmd_unpack_bytes(unpack, &value, sizeof value);
	return le32toh(value);
}

void cmd_unpack_text(struct cmd_unpack *unpack, char *to, size_t room)
{
	uint32_t length = cmd_unpack_u32(unpack);

	to[0] = '\0';
	if (length >= room)
		unpack->failed = true;
	if (unpack->failed)
		return;
	cmd_unpack_bytes(unpack, to, length);
	to[unpack->failed ? 0 : length] = '\0';
	for (uint32_t i = 0; i < length && !unpack->failed; i++) {
		/* It may end up on a terminal. */
		if ((unsigned char)to[i] < ' ' || to[i] == 0x7f) {
			unpack->failed = true;
			to[0] = '\0';
		}
	}
}

bool cmd_unpack_done(const struct cmd_unpack *unpack)
{
	return !unpack->failed && unpack->used == unpack->bytes;
}
