/* Handing a part's work to another group; handover.h says when. Runs on the group's worker. */
#include "engine/move/handover.h"
#include "engine/core/engine.h"
#include "engine/move/part.h"
#include "engine/move/returned.h"
#include "engine/ops/transfer.h"
#include "engine/peer/peer.h"

static struct wf_group *group_that_reaches(struct wf_peer *peer, const struct wf_group *not_this)
{
	struct weft_engine *engine = peer->engine;

	for (uint32_t g = 0; g < engine->groups; g++)
		if (&engine->group[g] != not_this && atomic_load(&peer->lane[g]->paths_up))
			return &engine->group[g];
	return NULL;
}

void wf_part_hand_over(struct wf_group *group, struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;
	struct wf_group *to = group_that_reaches(transfer->peer, group);

	if (!to || part->stop_ns)
		return;
	wf_returned_hand_on(group, part);
	part->gave_up = true;
	/* Counted before it is told, so that the transfer cannot end in between; a stop that was sent to the groups it
	 * had before is found in its state. */
	atomic_fetch_add(&transfer->parts_left, 1);
	atomic_fetch_or(&transfer->groups, UINT64_C(1) << to->index);
	if (!wf_note_tell(group, to, &transfer->part[to->index].start_note))
		atomic_fetch_sub(&transfer->parts_left,
				 1); /* whose note is on its way is counted; our own part still is too */
	if (!part->returned && part->next >= part->end)
		wf_list_remove(&part->link);
	wf_part_maybe_done(group, part);
}

void wf_lane_hand_over(struct wf_lane *lane)
{
	struct wf_link *link = lane->parts.next;

	if (atomic_load(&lane->paths_up) || lane->closing)
		return;
	while (link != &lane->parts) {
		struct wf_part *part = wf_container(link, struct wf_part, link);

		link = link->next;
		wf_part_hand_over(lane->group, part);
	}
}
