/* Address and region blobs from anywhere: accepted or refused; an accepted one packs and reads the same again. */
#include "wire/blob.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HEADER 20

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The checksum would refuse nearly everything, so it is corrected, as a hostile peer would do. */
static void make_right(uint8_t *blob, size_t bytes)
{
	uint64_t sum;
	uint32_t total = (uint32_t)bytes;

	if (bytes < HEADER)
		return;
	sum = XXH3_64bits(blob + HEADER, bytes - HEADER);
	memcpy(blob + 8, &total, 4);
	memcpy(blob + 12, &sum, 8);
}

static void check_address(const uint8_t *blob, size_t bytes)
{
	static struct wf_wire_address address, again;
	static uint8_t packed[32768];
	size_t room = sizeof(packed);

	memset(&address, 0, sizeof(address));
	memset(&again, 0, sizeof(again));
	if (wf_blob_unpack_address(blob, bytes, &address))
		return;
	if (wf_blob_pack_address(&address, packed, &room) || wf_blob_unpack_address(packed, room, &again) ||
	    again.incarnation != address.incarnation || again.count != address.count || address.count > WF_MAX_RAILS)
		abort();
	for (uint32_t i = 0; i < address.count; i++)
		if (strcmp(again.rail[i].name, address.rail[i].name) ||
		    strcmp(again.rail[i].provider, address.rail[i].provider) ||
		    again.rail[i].address_bytes != address.rail[i].address_bytes ||
		    memcmp(again.rail[i].address, address.rail[i].address, address.rail[i].address_bytes))
			abort();
}

static void check_region(const uint8_t *blob, size_t bytes)
{
	static struct wf_wire_region region, again;
	static uint8_t packed[1 << 20];
	static uint64_t keys[1 << 17], keys_again[1 << 17];
	size_t room = sizeof(packed);

	memset(&region, 0, sizeof(region));
	memset(&again, 0, sizeof(again));
	if (wf_blob_unpack_region(blob, bytes, &region))
		return;
	if (region.tiles > sizeof(keys) / sizeof(keys[0]))
		return; /* longer than any blob that weft makes */
	if (wf_blob_unpack_tiles(blob, bytes, &region, keys) || wf_blob_pack_region(&region, keys, packed, &room) ||
	    wf_blob_unpack_region(packed, room, &again) || memcmp(&region, &again, sizeof(region)) ||
	    wf_blob_unpack_tiles(packed, room, &again, keys_again) ||
	    memcmp(keys, keys_again, region.tiles * sizeof(keys[0])))
		abort();
	/* Every offset has a key. */
	for (uint32_t i = 0; i < region.count; i++)
		if (region.key[i].tiles && (region.key[i].tiles < 2 || region.key[i].reach < WF_REACH_LEAST ||
					    region.bytes - (region.key[i].tiles - 1) * region.key[i].step >
						region.key[i].step + region.key[i].reach))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint8_t *blob = malloc(bytes ? bytes : 1);

	if (!blob)
		return 0;
	memcpy(blob, data, bytes);
	check_address(blob, bytes);
	check_region(blob, bytes);
	make_right(blob, bytes);
	check_address(blob, bytes);
	check_region(blob, bytes);
	free(blob);
	return 0;
}
