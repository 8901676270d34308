/* What a peer says about landing: accepted or refused; numbers of pages stay within the received bytes; and what fits a room and a region
 * lies in them, page by page. */
#include "wire/land.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(const struct wf_land *land, uint64_t room, uint64_t region)
{
	if (!wf_land_fits(land, room, region))
		return;
	if (land->at > room || land->bytes > region || (land->bytes && land->count > (room - land->at) / land->bytes))
		abort();
	for (uint32_t i = 0; i < land->count; i++) {
		__uint128_t page = (__uint128_t)wf_land_page(land, i) * land->stride + land->offset;

		if (page + land->bytes > region)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct wf_land land;
	uint8_t *copy = malloc(bytes ? bytes : 1); /* its own block, so that a read past it shows */

	if (!copy)
		return 0;
	memcpy(copy, data, bytes);
	if (!wf_land_unpack(copy, bytes, &land)) {
		if (wf_land_bytes(&land) != bytes || land.status > 0)
			abort();
		if (land.kind == WF_LAND_MOVE) {
			if (land.count > WF_LAND_PAGES)
				abort();
			check(&land, 4 << 20, 1 << 20);
			check(&land, 4 << 20, UINT64_MAX);
			check(&land, UINT64_MAX, 100);
		}
	}
	free(copy);
	return 0;
}
