/*
 * A part: one group's share of a transfer. The group claims units for it, its rails post them as pieces, and the last piece of
 * the last part tells the transfer's home. On the group's worker.
 */
#ifndef WF_ENGINE_PART_H
#define WF_ENGINE_PART_H

#include "base/list.h"
#include "engine/core/note.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <weft.h>

struct wf_group;
struct wf_lane;
struct wf_piece;
struct wf_seat;
struct wf_transfer;

#define WF_PART_QUANTUM (1u << 20) /* bytes of a transfer before the turn of the peer's next one */

/* One group's share. Owned by the group's worker from PART until done. */
struct wf_part {
	/* The first line is what each piece touches; on lines of their own, so that groups do not take them from each other. */
	alignas(64) struct wf_transfer *transfer;
	struct wf_lane *lane;
	uint64_t next, end;        /* units claimed and not yet posted */
	struct wf_piece *returned; /* pieces to be posted again, before anything new (returned.h) */
	uint64_t bytes;            /* landed */
	uint32_t in_flight;
	uint32_t quantum; /* bytes it may still give before the next part's turn */
	bool counted;     /* its pieces carry immediates */
	bool checked;     /* their hashes are summed */
	bool alive;
	bool gave_up;        /* handed over: claims nothing any more */
	bool not_local;      /* the local rail may not copy there: NICs carry it */
	bool may_still_land; /* a posted piece was taken back on a provider that cannot promise it will not land */

	weft_transfer id;    /* which life of the slot: a stop meant for the last one is not for this */
	uint64_t sum;        /* of the hashes of what landed, when checked */
	uint32_t slice;      /* where the cursor is */
	struct wf_link link; /* lane->parts, or group->stopping */
	uint64_t stop_ns;    /* told to stop at; 0: not */

	/* Any worker's, unlike the rest: the slot's from open to close. */
	struct wf_note start_note; /* take your part, which parts_left counts */
	struct wf_note stop_note;  /* value: the id of the transfer that stops */
};

void wf_part_start(struct wf_group *group, struct wf_transfer *transfer);
void wf_part_stop(struct wf_group *group, struct wf_transfer *transfer, weft_transfer id);
void wf_part_check_stopping(struct wf_group *group, uint64_t now_ns); /* those whose pieces do not leave their NIC */
void wf_part_maybe_done(struct wf_group *group, struct wf_part *part);
bool wf_part_exhausted(const struct wf_part *part); /* nothing left to post, unless a piece comes back */
void wf_part_fail(struct wf_group *group, struct wf_part *part, struct wf_seat *seat, int status);
#endif
