/*
 * Addresses of peers that no lane uses any more leave the rail's address vector when nothing that was posted before is in
 * flight on that rail: EFA's provider loses the completions of requests to an address that is removed. Runs on the group's
 * worker: lanes retire addresses, housekeeping removes them.
 */
#include "engine/move/retire.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/piece.h"

#include <stdlib.h>
#include <string.h>

void wf_seat_retire(struct wf_seat *seat, enum wf_end end, const uint8_t *address, uint8_t bytes)
{
	struct wf_retired *entry;

	if (seat->retired_count == seat->retired_room) {
		uint32_t room = seat->retired_room ? seat->retired_room * 2 : 8;
		struct wf_retired *grown = realloc(seat->retired, room * sizeof(*grown));

		if (!grown)
			return; /* it stays in the vector until the rail is reopened */
		seat->retired = grown;
		seat->retired_room = room;
	}
	entry = &seat->retired[seat->retired_count++];
	entry->since_ns = wf_group_now(seat->group);
	entry->end = end;
	entry->generation = seat->generation[end];
	entry->bytes = bytes;
	memcpy(entry->address, address, bytes);
}

/* When the oldest of what is in flight on the seat was posted. A frame that is stuck has lost its completion already; it must not
 * keep every address for good. */
static uint64_t oldest_post(const struct wf_group *group, const struct wf_seat *seat)
{
	uint64_t oldest = WF_NEVER;

	for (uint32_t i = 0; i < group->pieces_used; i++)
		if (group->piece[i].seat == seat && group->piece[i].posted_ns < oldest)
			oldest = group->piece[i].posted_ns;
	for (uint32_t i = 0; i < group->tx_count; i++)
		if (group->tx[i].seat == seat && !group->tx[i].stuck && group->tx[i].posted_ns < oldest)
			oldest = group->tx[i].posted_ns;
	return oldest;
}

void wf_seat_remove_retired(struct wf_seat *seat)
{
	uint64_t oldest = seat->retired_count ? oldest_post(seat->group, seat) : 0;
	uint32_t left = 0;

	for (uint32_t i = 0; i < seat->retired_count; i++) {
		const struct wf_retired *entry = &seat->retired[i];

		if (entry->generation != seat->generation[entry->end])
			continue; /* its vector was closed */
		if (oldest > entry->since_ns)
			wf_rail_remove(seat->rail, entry->end, entry->address, entry->bytes);
		else
			seat->retired[left++] = *entry;
	}
	seat->retired_count = left;
	wf_rail_close_abandoned(seat->rail);
}
