/*
 * Handing work to another group: when none of a group's rails reaches a peer but another group's do, what the group
 * claimed of a transfer and could not post goes back to the transfer, and the other group is told to take it. Rare, so it
 * may allocate. Runs on the group's worker.
 */
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/stripe.h"

#include <stdlib.h>

static bool put_spare(struct wf_transfer *transfer, uint64_t unit, uint64_t units)
{
	struct wf_spare *spare = units ? malloc(sizeof(*spare)) : NULL;

	if (!spare)
		return !units;
	spare->unit = unit;
	spare->units = units;
	spare->next = atomic_load(&transfer->spares);
	/* Pairs with the exchange in wf_spare_take(): whoever takes the list sees it whole. */
	while (!atomic_compare_exchange_weak(&transfer->spares, &spare->next, spare))
		;
	return true;
}

bool wf_spare_take(struct wf_part *part)
{
	struct wf_spare *spare = part->spare;

	if (!spare)
		spare = atomic_exchange(&part->transfer->spares, NULL);
	if (!spare)
		return false;
	part->spare = spare->next;
	part->next = spare->unit;
	part->end = spare->unit + spare->units;
	free(spare);
	return true;
}

void wf_spares_free(struct wf_spare *spare)
{
	while (spare) {
		struct wf_spare *next = spare->next;

		free(spare);
		spare = next;
	}
}

/* Without memory what could not be given stays, and is tried again. */
static void give_pieces(struct wf_group *group, struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;
	struct wf_piece *piece;

	while ((piece = part->again) && put_spare(transfer, piece->unit, piece->units)) {
		part->again = piece->next;
		wf_group_give_piece(group, piece);
	}
	while (part->next < part->end || part->spare) {
		if (part->next < part->end && !put_spare(transfer, part->next, part->end - part->next))
			return;
		part->next = part->end = 0;
		if (part->spare)
			wf_spare_take(part);
	}
}

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
	give_pieces(group, part);
	part->gave_up = true;
	/* Counted before it is told, so that the transfer cannot end in between; a stop that was sent to the groups it
	 * had before is found in its state. */
	atomic_fetch_add(&transfer->parts_left, 1);
	atomic_fetch_or(&transfer->groups, UINT64_C(1) << to->index);
	wf_group_tell(group, to, WF_NOTE_PART, transfer, 0);
	if (!part->again && part->next >= part->end)
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
