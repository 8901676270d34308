/* Packs and unpacks address and region blobs. Everything read here may be hostile; blob.h has the shapes. */
#include "wire/blob.h"
#include "wire/cursor.h"

#include <errno.h>
#include <stdbool.h>
#include <xxhash.h>

/* magic:4 kind:1 version:1 reserved:2 total:4 checksum:8, then the body the checksum covers */
#define HEADER       20
#define VERSION      2
#define MAGIC        UINT32_C(0x54464557) /* "WEFT" */
#define KIND_ADDRESS 'A'
#define KIND_REGION  'R'

static void begin(struct wf_cursor *cursor, void *blob, size_t room)
{
	uint8_t zero[HEADER] = { 0 };

	*cursor = (struct wf_cursor){ .at = blob, .left = room };
	wf_put(cursor, zero, sizeof(zero));
}

static int finish(struct wf_cursor *cursor, void *blob, size_t *bytes, char kind)
{
	struct wf_cursor header = { .at = blob, .left = HEADER };
	size_t total = cursor->used;

	*bytes = total;
	if (cursor->bad)
		return -ENOBUFS;
	wf_put_uint(&header, MAGIC, 4);
	wf_put_uint(&header, (uint8_t)kind, 1);
	wf_put_uint(&header, VERSION, 1);
	wf_put_uint(&header, 0, 2);
	wf_put_uint(&header, total, 4);
	wf_put_uint(&header, XXH3_64bits((char *)blob + HEADER, total - HEADER), 8);
	return 0;
}

int wf_blob_pack_address(const struct wf_wire_address *address, void *blob, size_t *bytes)
{
	struct wf_cursor cursor;

	begin(&cursor, blob, *bytes);
	wf_put_uint(&cursor, address->incarnation, 8);
	wf_put_uint(&cursor, address->revision, 4);
	wf_put_uint(&cursor, address->count, 1);
	for (uint32_t i = 0; i < address->count; i++) {
		const struct wf_wire_rail *rail = &address->rail[i];

		wf_put_text(&cursor, rail->provider);
		wf_put_text(&cursor, rail->name);
		wf_put_uint(&cursor, rail->address_format, 4);
		wf_put_uint(&cursor, rail->link_bps, 8);
		wf_put_uint(&cursor, rail->serial, 4);
		wf_put_uint(&cursor, rail->looks, 1);
		wf_put_uint(&cursor, rail->address_bytes, 1);
		wf_put(&cursor, rail->address, rail->address_bytes);
	}
	return finish(&cursor, blob, bytes, KIND_ADDRESS);
}

int wf_blob_pack_region(const struct wf_wire_region *region, void *blob, size_t *bytes)
{
	struct wf_cursor cursor;

	begin(&cursor, blob, *bytes);
	wf_put_uint(&cursor, region->incarnation, 8);
	wf_put_uint(&cursor, region->region, 8);
	wf_put_uint(&cursor, region->proof, 8);
	wf_put_uint(&cursor, region->bytes, 8);
	wf_put_uint(&cursor, region->access, 4);
	wf_put_uint(&cursor, region->count, 1);
	for (uint32_t i = 0; i < region->count; i++) {
		wf_put_uint(&cursor, region->key[i].rail, 1);
		wf_put_uint(&cursor, region->key[i].key, 8);
		wf_put_uint(&cursor, region->key[i].base, 8);
	}
	return finish(&cursor, blob, bytes, KIND_REGION);
}

/* Checks the envelope and leaves the cursor at the body. */
static int open_blob(struct wf_cursor *cursor, const void *blob, size_t bytes, char kind)
{
	uint64_t total, sum, version;

	if (!blob)
		return -EINVAL;
	*cursor = (struct wf_cursor){ .at = (uint8_t *)(uintptr_t)blob, .left = bytes };
	if (wf_get_uint(cursor, 4) != MAGIC || wf_get_uint(cursor, 1) != (uint8_t)kind)
		return -EPROTO;
	version = wf_get_uint(cursor, 1);
	wf_get_uint(cursor, 2);
	total = wf_get_uint(cursor, 4);
	sum = wf_get_uint(cursor, 8);
	if (cursor->bad || total > bytes || total < HEADER)
		return -EPROTO;
	if (version != VERSION)
		return -EPROTONOSUPPORT;
	cursor->left = total - HEADER; /* what follows the blob is not ours to judge */
	return XXH3_64bits(cursor->at, cursor->left) == sum ? 0 : -EBADMSG;
}

int wf_blob_unpack_address(const void *blob, size_t bytes, struct wf_wire_address *ret_address)
{
	struct wf_cursor cursor;
	int error = open_blob(&cursor, blob, bytes, KIND_ADDRESS);

	if (error)
		return error;
	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->incarnation = wf_get_uint(&cursor, 8);
	ret_address->revision = (uint32_t)wf_get_uint(&cursor, 4);
	ret_address->count = (uint32_t)wf_get_uint(&cursor, 1);
	if (!ret_address->count || ret_address->count > WF_MAX_RAILS || !ret_address->incarnation)
		return -EPROTO;
	for (uint32_t i = 0; i < ret_address->count; i++) {
		struct wf_wire_rail *rail = &ret_address->rail[i];

		wf_get_text(&cursor, rail->provider, sizeof(rail->provider));
		wf_get_text(&cursor, rail->name, sizeof(rail->name));
		rail->address_format = (uint32_t)wf_get_uint(&cursor, 4);
		rail->link_bps = wf_get_uint(&cursor, 8);
		rail->serial = (uint32_t)wf_get_uint(&cursor, 4);
		rail->looks = (uint8_t)wf_get_uint(&cursor, 1);
		rail->address_bytes = (uint8_t)wf_get_uint(&cursor, 1);
		if (!rail->address_bytes || rail->address_bytes > WF_MAX_RAIL_ADDRESS || rail->looks > 1)
			return -EPROTO;
		wf_get(&cursor, rail->address, rail->address_bytes);
	}
	return cursor.bad || cursor.left ? -EPROTO : 0;
}

int wf_blob_unpack_region(const void *blob, size_t bytes, struct wf_wire_region *ret_region)
{
	struct wf_cursor cursor;
	uint64_t seen = 0;
	int error = open_blob(&cursor, blob, bytes, KIND_REGION);

	if (error)
		return error;
	memset(ret_region, 0, sizeof(*ret_region));
	ret_region->incarnation = wf_get_uint(&cursor, 8);
	ret_region->region = wf_get_uint(&cursor, 8);
	ret_region->proof = wf_get_uint(&cursor, 8);
	ret_region->bytes = wf_get_uint(&cursor, 8);
	ret_region->access = (uint32_t)wf_get_uint(&cursor, 4);
	ret_region->count = (uint32_t)wf_get_uint(&cursor, 1);
	if (!ret_region->count || ret_region->count > WF_MAX_RAILS || !ret_region->incarnation)
		return -EPROTO;
	for (uint32_t i = 0; i < ret_region->count; i++) {
		uint64_t rail = wf_get_uint(&cursor, 1);

		if (rail >= WF_MAX_RAILS || (seen & UINT64_C(1) << rail))
			return -EPROTO;
		seen |= UINT64_C(1) << rail;
		ret_region->key[i].rail = (uint8_t)rail;
		ret_region->key[i].key = wf_get_uint(&cursor, 8);
		ret_region->key[i].base = wf_get_uint(&cursor, 8);
		/* base + bytes must not wrap: the sender adds offsets to it. */
		if (ret_region->key[i].base > UINT64_MAX - ret_region->bytes)
			return -EPROTO;
	}
	return cursor.bad || cursor.left ? -EPROTO : 0;
}
