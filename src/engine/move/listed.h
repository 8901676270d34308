/*
 * Pieces that are lists of pages, and runs from or to cards' memory. On the group's worker, for stripe.c.
 */
#ifndef WF_ENGINE_LISTED_H
#define WF_ENGINE_LISTED_H

#include "engine/move/batch.h"

/* A run of a transfer with a card's memory; a slice of it may have none. False: it is not for this rail. */
bool wf_run_of_cards(const struct wf_seat *seat, const struct wf_slice *slice, struct wf_run *run);
/* As wf_pull does for a NIC, for a local rail, whose pieces are lists of pages. */
int wf_pull_listed(struct wf_batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_part *part, int room,
		   uint64_t budget);
#endif
