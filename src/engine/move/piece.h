/*
 * A piece: one write or read on a NIC. The group's pool of them, and what becomes of a posted piece: it landed, failed, or
 * was taken back. On the group's worker.
 */
#ifndef WF_ENGINE_PIECE_H
#define WF_ENGINE_PIECE_H

#include "engine/move/group.h"
#include "engine/move/part.h"
#include "engine/ops/verify.h"

#include <stdalign.h>
#include <stddef.h>

struct wf_path;

/*
 * One write or read on its way: the work request, and what it covers so that another rail can do it again. What the NIC
 * cannot reach will be staged here: the piece then waits for a copy before it is posted, or after it has landed.
 */
struct wf_piece {
	/* One cache line up to wr.kind: with thousands in flight each costs a miss when posted and one when it lands. */
	alignas(64) union {
		struct wf_piece *next; /* not posted: free list, or its part's list of pieces to post again */
		uint64_t posted_ns;
	};
	struct wf_part *part;
	struct wf_seat *seat; /* NULL: not posted */
	struct wf_path *path;
	uint64_t unit; /* what it covers of the transfer, from here on */
	uint64_t bytes;
	uint32_t units, attempts;
	struct wf_wr wr;
};
_Static_assert(offsetof(struct wf_piece, wr) + offsetof(struct wf_wr, provider) == 64, "what we touch is one line");

struct wf_piece *wf_piece_fresh(struct wf_group *group); /* one never used before; NULL: all are out */

static inline struct wf_piece *wf_piece_take(struct wf_group *group)
{
	struct wf_piece *piece = group->piece_free;

	if (!piece)
		return wf_piece_fresh(group);
	group->piece_free = piece->next;
	return piece;
}

static inline void wf_piece_give(struct wf_group *group, struct wf_piece *piece)
{
	piece->seat = NULL;
	piece->next = group->piece_free;
	group->piece_free = piece;
}

/* Pieces of one part that landed on one path, one after the other in a batch of completions: counted together. */
struct wf_landing {
	struct wf_part *part; /* NULL: none */
	struct wf_path *path;
	uint64_t bytes;
	uint32_t count;
};
/* Counts them, and ends the part if they were its last; before anything else of the batch is looked at. */
void wf_landing_end(struct wf_group *group, struct wf_seat *seat, struct wf_landing *landing);

/* A piece completed; the caller counts seat->ops and group->on_nic. */
static inline void wf_piece_landed(struct wf_group *group, struct wf_seat *seat, struct wf_piece *piece,
				   struct wf_landing *landing)
{
	struct wf_part *part = piece->part;

	if (__builtin_expect(part != landing->part || piece->path != landing->path, 0)) {
		wf_landing_end(group, seat, landing);
		landing->part = part;
		landing->path = piece->path;
	}
	landing->count++;
	landing->bytes += piece->bytes;
	if (__builtin_expect(part->checked, 0))
		part->sum += wf_sum_units(part->transfer, piece->unit, piece->units);
	wf_piece_give(group, piece);
}

void wf_piece_failed(struct wf_group *group, struct wf_piece *piece, int status);
/* Its endpoint was closed; counts seat->ops and group->on_nic itself. */
void wf_piece_taken_back(struct wf_group *group, struct wf_piece *piece);
/* Counts an attempt that failed: whether that was the last one. */
/* A local rail does not post a piece of a card's memory; it is unpulled. True: dealt with. */
bool wf_piece_card_refused(struct wf_group *group, struct wf_piece *piece, struct wf_seat *seat, int error);
bool wf_piece_tried_enough(struct wf_piece *piece);
#endif
