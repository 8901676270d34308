/* Packs and unpacks address and region blobs. Everything read here may be hostile; blob.h has the shapes. */
#include "wire/blob.h"
#include "wire/cursor.h"

#include <errno.h>
#include <stdbool.h>
#include <xxhash.h>

/* magic:4 kind:1 version:1 reserved:2 total:4 checksum:8, then the body the checksum covers */
#define HEADER       20
#define VERSION      2
#define TILED        3 /* a region with several keys per rail; all other regions keep their version */
#define MAGIC        UINT32_C(0x54464557) /* "WEFT" */
#define KIND_ADDRESS 'A'
#define KIND_REGION  'R'
#define LANDS        (WF_WIRE_CARDS | WF_WIRE_LANDS)

static void begin(struct wf_cursor *cursor, void *blob, size_t room)
{
	uint8_t zero[HEADER] = { 0 };

	*cursor = (struct wf_cursor){ .at = blob, .left = room };
	wf_put(cursor, zero, sizeof(zero));
}

static int finish(struct wf_cursor *cursor, void *blob, size_t *bytes, char kind, uint8_t version)
{
	struct wf_cursor header = { .at = blob, .left = HEADER };
	size_t total = cursor->used;

	*bytes = total;
	if (cursor->bad)
		return -ENOBUFS;
	wf_put_uint(&header, MAGIC, 4);
	wf_put_uint(&header, (uint8_t)kind, 1);
	wf_put_uint(&header, version, 1);
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
	return finish(&cursor, blob, bytes, KIND_ADDRESS, VERSION);
}

/* incarnation, region, proof and bytes, access, count, width */
#define TILED_BODY (4 * 8 + 4 + 1 + 1)
/* rail, base, tiles, step, reach */
#define TILED_RAIL (1 + 8 + 2 + 8 + 8)

uint32_t wf_blob_most_tiles(uint32_t rails, size_t bytes)
{
	size_t taken = HEADER + TILED_BODY + rails * TILED_RAIL;
	size_t most = bytes > taken && rails ? (bytes - taken) / (rails * sizeof(uint32_t)) : 0;

	return most < UINT16_MAX ? (uint32_t)most : UINT16_MAX;
}

static size_t width_of(const uint64_t *keys, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (keys[i] > UINT32_MAX)
			return sizeof(uint64_t);
	return sizeof(uint32_t);
}

/* rail:1 base:8 tiles:2, then key:8, or step:8 reach:8 and one key per tile */
static void pack_tiled(struct wf_cursor *cursor, const struct wf_wire_region *region, const uint64_t *keys)
{
	size_t width = width_of(keys, region->tiles);

	wf_put_uint(cursor, width, 1);
	for (uint32_t i = 0; i < region->count; i++) {
		wf_put_uint(cursor, region->key[i].rail, 1);
		wf_put_uint(cursor, region->key[i].base, 8);
		wf_put_uint(cursor, region->key[i].tiles, 2);
		if (!region->key[i].tiles) {
			wf_put_uint(cursor, region->key[i].key, 8);
			continue;
		}
		wf_put_uint(cursor, region->key[i].step, 8);
		wf_put_uint(cursor, region->key[i].reach, 8);
		for (uint32_t t = 0; t < region->key[i].tiles; t++)
			wf_put_uint(cursor, *keys++, width);
	}
}

int wf_blob_pack_region(const struct wf_wire_region *region, const uint64_t *tile_keys, void *blob, size_t *bytes)
{
	struct wf_cursor cursor;

	begin(&cursor, blob, *bytes);
	wf_put_uint(&cursor, region->incarnation, 8);
	wf_put_uint(&cursor, region->region, 8);
	wf_put_uint(&cursor, region->proof, 8);
	wf_put_uint(&cursor, region->bytes, 8);
	wf_put_uint(&cursor, region->access, 4);
	wf_put_uint(&cursor, region->count, 1);
	if (region->tiles)
		pack_tiled(&cursor, region, tile_keys);
	for (uint32_t i = 0; i < region->count && !region->tiles; i++) {
		wf_put_uint(&cursor, region->key[i].rail, 1);
		wf_put_uint(&cursor, region->key[i].key, 8);
		wf_put_uint(&cursor, region->key[i].base, 8);
	}
	return finish(&cursor, blob, bytes, KIND_REGION, region->tiles ? TILED : VERSION);
}

/* Checks the envelope and leaves the cursor at the body. */
static int open_blob(struct wf_cursor *cursor, const void *blob, size_t bytes, char kind, bool *ret_tiled)
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
	*ret_tiled = kind == KIND_REGION && version == TILED;
	if (version != VERSION && !*ret_tiled)
		return -EPROTONOSUPPORT;
	cursor->left = total - HEADER; /* bytes after the blob are the caller's business */
	return XXH3_64bits(cursor->at, cursor->left) == sum ? 0 : -EBADMSG;
}

int wf_blob_unpack_address(const void *blob, size_t bytes, struct wf_wire_address *ret_address)
{
	struct wf_cursor cursor;
	bool tiled;
	int error = open_blob(&cursor, blob, bytes, KIND_ADDRESS, &tiled);

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

/* Reads one rail of a tiled region; checks only that its tiles' keys are there. */
static bool unpack_rail(struct wf_cursor *cursor, struct wf_wire_region *region, uint32_t i, size_t width)
{
	uint64_t tiles, step, reach;

	region->key[i].base = wf_get_uint(cursor, 8);
	tiles = wf_get_uint(cursor, 2);
	if (!tiles) {
		region->key[i].key = wf_get_uint(cursor, 8);
		return true;
	}
	step = wf_get_uint(cursor, 8);
	reach = wf_get_uint(cursor, 8);
	/* The sender divides by step, cuts pieces by reach, and needs a key for every offset. So there must be
	 * exactly enough tiles, and more than one. */
	if (!step || reach < WF_REACH_LEAST || region->bytes <= reach || tiles < 2 ||
	    tiles != wf_tiles_of(region->bytes, step, reach) || cursor->left < tiles * width)
		return false;
	region->key[i].tiles = (uint16_t)tiles;
	region->key[i].step = step;
	region->key[i].reach = reach;
	region->tiles += (uint32_t)tiles;
	return true;
}

/* keys: an array of room entries, or NULL. */
static int unpack_region(const void *blob, size_t bytes, struct wf_wire_region *ret_region, uint64_t *keys,
			 uint32_t room)
{
	struct wf_cursor cursor;
	uint64_t seen = 0;
	size_t width = 0;
	bool tiled;
	int error = open_blob(&cursor, blob, bytes, KIND_REGION, &tiled);

	if (error)
		return error;
	memset(ret_region, 0, sizeof(*ret_region));
	ret_region->incarnation = wf_get_uint(&cursor, 8);
	ret_region->region = wf_get_uint(&cursor, 8);
	ret_region->proof = wf_get_uint(&cursor, 8);
	ret_region->bytes = wf_get_uint(&cursor, 8);
	ret_region->access = (uint32_t)wf_get_uint(&cursor, 4);
	ret_region->count = (uint32_t)wf_get_uint(&cursor, 1);
	if (tiled)
		width = (size_t)wf_get_uint(&cursor, 1);
	/* Without a key nothing gets there, unless it is a card's that lands. */
	if ((!ret_region->count && (ret_region->access & LANDS) != LANDS) || ret_region->count > WF_MAX_RAILS ||
	    !ret_region->incarnation || (tiled && width != sizeof(uint32_t) && width != sizeof(uint64_t)))
		return -EPROTO;
	for (uint32_t i = 0; i < ret_region->count; i++) {
		uint64_t rail = wf_get_uint(&cursor, 1);
		uint32_t first = ret_region->tiles;

		if (rail >= WF_MAX_RAILS || (seen & UINT64_C(1) << rail))
			return -EPROTO;
		seen |= UINT64_C(1) << rail;
		ret_region->key[i].rail = (uint8_t)rail;
		if (!tiled) {
			ret_region->key[i].key = wf_get_uint(&cursor, 8);
			ret_region->key[i].base = wf_get_uint(&cursor, 8);
		} else if (!unpack_rail(&cursor, ret_region, i, width) || (keys && ret_region->tiles > room)) {
			return -EPROTO;
		}
		/* base + bytes must not wrap: the sender adds offsets to it. */
		if (ret_region->key[i].base > UINT64_MAX - ret_region->bytes)
			return -EPROTO;
		for (uint32_t t = first; t < ret_region->tiles; t++) {
			uint64_t key = wf_get_uint(&cursor, width);

			if (keys)
				keys[t] = key;
		}
	}
	return cursor.bad || cursor.left || tiled != (ret_region->tiles > 0) ? -EPROTO : 0;
}

int wf_blob_unpack_region(const void *blob, size_t bytes, struct wf_wire_region *ret_region)
{
	return unpack_region(blob, bytes, ret_region, NULL, 0);
}

int wf_blob_unpack_tiles(const void *blob, size_t bytes, const struct wf_wire_region *region, uint64_t *ret_keys)
{
	struct wf_wire_region again;
	int error = unpack_region(blob, bytes, &again, ret_keys, region->tiles);

	/* The memory that holds the blob may have changed since the first pass: demand exactly as many keys as
	 * before. */
	return !error && again.tiles != region->tiles ? -EPROTO : error;
}
