/* Reads and writes little-endian fields with bounds checks. A cursor that goes bad stays bad. */
#ifndef WF_WIRE_CURSOR_H
#define WF_WIRE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct wf_cursor {
	uint8_t *at;
	size_t left;
	size_t used; /* also counts what did not fit, so that a writer learns the size needed */
	bool bad;
};

static inline void wf_put(struct wf_cursor *cursor, const void *data, size_t bytes)
{
	cursor->used += bytes;
	if (bytes > cursor->left) {
		cursor->bad = true;
		cursor->left = 0;
		return;
	}
	if (bytes)
		memcpy(cursor->at, data, bytes);
	cursor->at += bytes;
	cursor->left -= bytes;
}

static inline void wf_put_uint(struct wf_cursor *cursor, uint64_t value, size_t bytes)
{
	uint8_t field[8];

	for (size_t i = 0; i < bytes; i++)
		field[i] = (uint8_t)(value >> (8 * i));
	wf_put(cursor, field, bytes);
}

static inline void wf_get(struct wf_cursor *cursor, void *data, size_t bytes)
{
	if (bytes > cursor->left) {
		cursor->bad = true;
		cursor->left = 0;
		memset(data, 0, bytes);
		return;
	}
	memcpy(data, cursor->at, bytes);
	cursor->at += bytes;
	cursor->left -= bytes;
	cursor->used += bytes;
}

static inline uint64_t wf_get_uint(struct wf_cursor *cursor, size_t bytes)
{
	uint8_t field[8];
	uint64_t value = 0;

	wf_get(cursor, field, bytes);
	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t)field[i] << (8 * i);
	return value;
}

/* Reads a text of at most room - 1 bytes, preceded by its length. Texts with a zero or control byte inside are bad. */
static inline void wf_get_text(struct wf_cursor *cursor, char *text, size_t room)
{
	size_t bytes = wf_get_uint(cursor, 1);

	if (bytes >= room) {
		cursor->bad = true;
		cursor->left = 0;
		bytes = 0;
	}
	wf_get(cursor, text, bytes);
	text[bytes] = 0;
	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e)
			cursor->bad = true;
}

static inline void wf_put_text(struct wf_cursor *cursor, const char *text)
{
	size_t bytes = strlen(text);

	wf_put_uint(cursor, bytes, 1);
	wf_put(cursor, text, bytes);
}
#endif
