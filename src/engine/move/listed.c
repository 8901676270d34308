/*
 * What only some rails take: a card's memory, and lists of pages. A piece for a local rail is a list of many pages, and the worker
 * copies along the index list, so that a page of 64 bytes costs a copy and not a work request. A piece that comes back and goes over a NIC is split there (stripe.c). Runs on the group's worker.
 */
#include "engine/move/listed.h"
#include "engine/move/batch.h"
#include "engine/move/returned.h"
#include "engine/core/remote.h"

/* One that came back keeps its pages. */
static struct wf_piece *next_piece(struct wf_group *group, struct wf_part *part)
{
	const struct wf_transfer *transfer = part->transfer;
	struct wf_piece *piece = wf_returned_take(part);
	uint64_t most = transfer->listed_bytes / transfer->page_bytes;

	if (piece)
		return piece;
	if (part->next >= part->end && !wf_part_claim(part))
		return NULL;
	piece = wf_piece_take(group);
	if (!piece)
		return NULL;
	most = most < part->end - part->next ? most : part->end - part->next;
	piece->part = part;
	piece->attempts = 0;
	piece->unit = part->next;
	piece->units = (uint32_t)most;
	part->next += most;
	return piece;
}

/* A local rail takes a card's memory at either end, a NIC ours alone, where it passes that through chunks. */
bool wf_run_of_cards(const struct wf_seat *seat, const struct wf_slice *slice, struct wf_run *run)
{
	run->rma.cards = slice->region->device || slice->remote->cards;
	if (!run->rma.cards)
		return true;
	if (!seat->limits.local && (slice->remote->cards || !run->rma.desc))
		return false;
	run->rma.desc = slice->region->device;
	return true;
}

int wf_pull_listed(struct wf_batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_part *part, int room,
		   uint64_t budget)
{
	struct wf_transfer *transfer = part->transfer;
	struct wf_run *run = &batch->run[batch->runs];
	uint64_t bytes = 0;

	if (!wf_run_open(seat, path, transfer, transfer->slice, run) ||
	    (transfer->cards && !wf_run_of_cards(seat, transfer->slice, run)))
		return 0;
	run->rma.list = &transfer->list;
	while (run->count < room && bytes < budget) {
		struct wf_rma *rma = &batch->rma[batch->count];
		struct wf_piece *piece = next_piece(seat->group, part);

		if (!piece)
			break;
		rma->first = piece->unit;
		rma->local = run->local;
		rma->remote = run->remote;
		rma->bytes = piece->units * transfer->page_bytes;
		wf_batch_append(batch, seat, path, piece, transfer->kind == WF_READ);
		bytes += rma->bytes;
		run->count++;
	}
	batch->runs += run->count != 0;
	wf_batch_pulled(batch, path, part, run->count, bytes);
	return run->count;
}
