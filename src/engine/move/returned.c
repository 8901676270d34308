/* Units that come back; returned.h says from where and where to. Runs on the group's worker. */
#include "engine/move/returned.h"
#include "engine/core/engine.h"
#include "engine/peer/peer.h"

#include <stdlib.h>

void wf_returned_put(struct wf_piece *piece)
{
	struct wf_part *part = piece->part;

	piece->seat = NULL;
	piece->next = part->returned;
	part->returned = piece;
	if (!wf_link_linked(&part->link))
		wf_list_append(&part->lane->parts, &part->link);
	wf_lane_runnable(part->lane);
}

void wf_returned_drop(struct wf_group *group, struct wf_part *part)
{
	struct wf_piece *piece;

	while ((piece = wf_returned_take(part)))
		wf_piece_give(group, piece);
}

/* ---- between groups ---- */

/* A chain of one or more, from first to last. */
static void push(struct wf_transfer *transfer, struct wf_returned *first, struct wf_returned *last)
{
	last->next = atomic_load(&transfer->returned);
	/* Pairs with the exchange in wf_returned_claim(): the group that takes the list sees it whole. */
	while (!atomic_compare_exchange_weak(&transfer->returned, &last->next, first))
		;
}

/* False: there is no memory. */
static bool give(struct wf_transfer *transfer, uint64_t unit, uint64_t units)
{
	struct wf_returned *returned = units ? malloc(sizeof(*returned)) : NULL;

	if (!returned)
		return !units;
	returned->unit = unit;
	returned->units = units;
	push(transfer, returned, returned);
	return true;
}

void wf_returned_hand_on(struct wf_group *group, struct wf_part *part)
{
	struct wf_piece *piece;

	while ((piece = part->returned) && give(part->transfer, piece->unit, piece->units)) {
		part->returned = piece->next;
		wf_piece_give(group, piece);
	}
	if (give(part->transfer, part->next, part->end - part->next))
		part->next = part->end = 0;
}

/* Takes the whole list, for one entry cannot be taken safely while others push and take; puts back all but the first. */
bool wf_returned_claim(struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;
	struct wf_returned *first = atomic_exchange(&transfer->returned, NULL), *last;

	if (!first)
		return false;
	for (last = first; last->next;)
		last = last->next;
	if (last != first)
		push(transfer, first->next, last);
	part->next = first->unit;
	part->end = first->unit + first->units;
	free(first);
	return true;
}

void wf_returned_free(struct wf_returned *returned)
{
	while (returned) {
		struct wf_returned *next = returned->next;

		free(returned);
		returned = next;
	}
}
