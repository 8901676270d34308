/*
 * A batch: what one rail posts in one turn, as striping gathers it. Runs of pieces that differ only in where they lie. On the
 * group's worker, for stripe.c and listed.c.
 */
#ifndef WF_ENGINE_BATCH_H
#define WF_ENGINE_BATCH_H

#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/move/part.h"
#include "engine/move/piece.h"
#include "engine/ops/transfer.h"
#include "engine/peer/peer.h"

#define WF_BATCH 32 /* posts per rail and turn; the last one rings */

/* Pieces of one part, one after the other in a batch. */
struct wf_run {
	struct wf_rma_run rma;
	char *local; /* of the slice */
	uint64_t remote;
	int count;
};

struct wf_batch {
	int count, runs;
	uint64_t bytes;
	struct wf_piece *piece[WF_BATCH];
	struct wf_rma rma[WF_BATCH];
	struct wf_run run[WF_BATCH];
	struct wf_rma_range range[WF_BATCH][WF_RMA_RANGES]; /* of pieces that gather small pages */
};

/* False: the peer's memory has no key on that rail. */
static inline bool wf_run_open(struct wf_seat *seat, struct wf_path *path, struct wf_transfer *transfer,
			       struct wf_slice *slice, struct wf_run *run)
{
	struct wf_remote *remote = slice->remote;

	if (!(remote->rails & UINT64_C(1) << path->remote))
		return false;
	run->rma.desc = slice->region->memory[seat->index].desc;
	run->rma.alone = path->unproved;
	run->rma.cards = false;
	run->rma.target = path->target;
	run->rma.key = remote->key[path->remote].key;
	run->rma.immediate = transfer->immediate;
	run->rma.has_immediate = transfer->notify == WEFT_NOTIFY_COUNTED;
	run->rma.read = transfer->kind == WF_READ;
	run->rma.list = NULL;
	run->local = slice->region->base + slice->local;
	run->remote = remote->key[path->remote].base + slice->remote_offset;
	run->count = 0;
	return true;
}

/* Pulled pieces count as in flight: they are posted right after, or unpulled. */
static inline void wf_batch_pulled(struct wf_batch *batch, struct wf_path *path, struct wf_part *part, int pulled,
				   uint64_t bytes)
{
	batch->bytes += bytes;
	path->ops += (uint32_t)pulled;
	path->bytes += bytes;
	part->in_flight += (uint32_t)pulled;
	part->quantum -= bytes < part->quantum ? (uint32_t)bytes : part->quantum;
	if (part->counted)
		path->immediates += (uint32_t)pulled;
}

/* The piece, located already, joins the batch. */
static inline void wf_batch_append(struct wf_batch *batch, struct wf_seat *seat, struct wf_path *path,
				   struct wf_piece *piece, bool read)
{
	struct wf_rma *rma = &batch->rma[batch->count];

	rma->wr = &piece->wr;
	piece->wr.kind = read ? WF_WR_READ : WF_WR_WRITE;
	piece->wr.failed = 0;
	piece->bytes = rma->bytes;
	piece->path = path;
	piece->seat = seat;
	piece->posted_ns = wf_group_now(seat->group);
	batch->piece[batch->count++] = piece;
}

/* stripe.c: more units of the transfer for the part; false: none are left. */
bool wf_part_claim(struct wf_part *part);
#endif
