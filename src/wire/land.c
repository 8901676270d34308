/* Packing and reading what is said about landing; land.h says what that is. */
#include "wire/land.h"
#include "wire/cursor.h"

#include <errno.h>

#define PAGE_NUMBER 4u

void wf_land_pack(const struct wf_land *land, const uint32_t *pages, void *buffer)
{
	struct wf_cursor cursor = { .at = buffer, .left = wf_land_bytes(land) };

	wf_put_uint(&cursor, land->kind, 1);
	wf_put_uint(&cursor, land->read, 1);
	wf_put_uint(&cursor, land->tail_bytes != 0, 1);
	wf_put_uint(&cursor, (uint32_t)land->status, 4);
	wf_put_uint(&cursor, land->immediate, 4);
	wf_put_uint(&cursor, land->immediates, 4);
	wf_put_uint(&cursor, land->count, 4);
	wf_put_uint(&cursor, land->region, 8);
	wf_put_uint(&cursor, land->proof, 8);
	wf_put_uint(&cursor, land->at, 8);
	wf_put_uint(&cursor, land->offset, 8);
	wf_put_uint(&cursor, land->stride, 8);
	wf_put_uint(&cursor, land->bytes, 8);
	for (uint32_t i = 0; pages && i < land->count; i++)
		wf_put_uint(&cursor, pages[i], PAGE_NUMBER);
	if (!pages)
		wf_put(&cursor, land->tail, land->tail_bytes);
}

static bool is_right(const struct wf_land *land)
{
	if (land->status > 0 || land->status == INT32_MIN)
		return false;
	switch (land->kind) {
	case WF_LAND_ASK:
	case WF_LAND_DONE:
		return !land->tail_bytes;
	case WF_LAND_ROOM:
		return !land->status == (land->tail_bytes != 0);
	case WF_LAND_MOVE:
		return land->count && land->count <= WF_LAND_PAGES && land->immediates <= land->count &&
		       !(land->read && land->immediates) &&
		       (!land->tail_bytes || land->tail_bytes == (uint64_t)land->count * PAGE_NUMBER);
	default:
		return false;
	}
}

int wf_land_unpack(const void *buffer, size_t bytes, struct wf_land *ret_land)
{
	struct wf_cursor cursor = { .at = (uint8_t *)(uintptr_t)buffer, .left = bytes };
	uint64_t read, tail;

	*ret_land = (struct wf_land){ .kind = (uint8_t)wf_get_uint(&cursor, 1) };
	read = wf_get_uint(&cursor, 1);
	tail = wf_get_uint(&cursor, 1);
	ret_land->status = (int32_t)(uint32_t)wf_get_uint(&cursor, 4);
	ret_land->immediate = (uint32_t)wf_get_uint(&cursor, 4);
	ret_land->immediates = (uint32_t)wf_get_uint(&cursor, 4);
	ret_land->count = (uint32_t)wf_get_uint(&cursor, 4);
	ret_land->region = wf_get_uint(&cursor, 8);
	ret_land->proof = wf_get_uint(&cursor, 8);
	ret_land->at = wf_get_uint(&cursor, 8);
	ret_land->offset = wf_get_uint(&cursor, 8);
	ret_land->stride = wf_get_uint(&cursor, 8);
	ret_land->bytes = wf_get_uint(&cursor, 8);
	if (cursor.bad || read > 1 || tail > 1 || (tail != 0) != (cursor.left != 0) || cursor.left > UINT32_MAX)
		return -EPROTO;
	ret_land->read = read;
	ret_land->tail = tail ? cursor.at : NULL;
	ret_land->tail_bytes = (uint32_t)cursor.left;
	return is_right(ret_land) ? 0 : -EPROTO;
}

uint32_t wf_land_page(const struct wf_land *land, uint32_t i)
{
	struct wf_cursor cursor = { .left = PAGE_NUMBER };

	if (!land->tail)
		return i;
	cursor.at = (uint8_t *)(uintptr_t)land->tail + (size_t)i * PAGE_NUMBER;
	return (uint32_t)wf_get_uint(&cursor, PAGE_NUMBER);
}

bool wf_land_fits(const struct wf_land *land, uint64_t room, uint64_t region)
{
	uint64_t total, last, largest = land->count - 1;

	for (uint32_t i = 0; land->tail && i < land->count; i++) {
		uint64_t page = wf_land_page(land, i);

		largest = !i || page > largest ? page : largest;
	}
	return !__builtin_mul_overflow(land->count, land->bytes, &total) && land->at <= room &&
	       total <= room - land->at && !__builtin_mul_overflow(largest, land->stride, &last) &&
	       !__builtin_add_overflow(last, land->offset, &last) && land->bytes <= region &&
	       last <= region - land->bytes;
}
