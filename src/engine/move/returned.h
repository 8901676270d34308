/*
 * Units that come back: they were claimed for a part and are not done. They are kept in two places, and posted before anything
 * new:
 *
 *   a piece fails, is refused by the provider, or is taken back  ->  part->returned: any rail of the group posts it again
 *   none of the group's rails reaches the peer any more          ->  transfer->returned: whichever group has a part claims it
 *
 * A transfer that stops drops both. The first needs no memory, because the piece itself keeps its units; the second is rare, and
 * what there is no memory for stays with the part. On the group's worker; transfer->returned is shared by the groups.
 */
#ifndef WF_ENGINE_RETURNED_H
#define WF_ENGINE_RETURNED_H

#include "engine/move/piece.h"
#include "engine/ops/transfer.h"

/* Units that groups gave up: transfer->returned is a list of these, for any group to claim. */
struct wf_returned {
	struct wf_returned *next;
	uint64_t unit, units;
};

/* A piece that is not on a NIC goes back to its part. */
void wf_returned_put(struct wf_piece *piece);
/* What the part and its claim hold goes to the transfer, for another group. */
void wf_returned_hand_on(struct wf_group *group, struct wf_part *part);
/* Makes units that a group gave up the part's claim, which must be used up. False: there are none. */
bool wf_returned_claim(struct wf_part *part);
/* The part stops: its pieces are free. */
void wf_returned_drop(struct wf_group *group, struct wf_part *part);
/* The transfer has ended. NULL is fine. */
void wf_returned_free(struct wf_returned *returned);

static inline bool wf_returned_any(const struct wf_part *part)
{
	return part->returned || atomic_load_explicit(&part->transfer->returned, memory_order_relaxed);
}

/* The part's latest, or NULL. */
static inline struct wf_piece *wf_returned_take(struct wf_part *part)
{
	struct wf_piece *piece = part->returned;

	if (piece)
		part->returned = piece->next;
	return piece;
}
#endif
