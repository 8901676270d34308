/* A leg's units, transfer and message; leg.h says what they are for. */
#include "engine/ops/leg.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/move/unit.h"
#include "engine/ops/request.h"
#include "engine/peer/peer.h"

/* ---- what a leg covers ---- */

static uint64_t chunk_of(const struct wf_leg *leg)
{
	return (uint64_t)(leg - leg->legs->leg) * WF_DEVICE_CHUNK;
}

/* Pages of a chunk, and no more than one message of ours and of theirs names. */
static uint64_t most_pages(const struct wf_leg *leg)
{
	const struct wf_transfer *transfer = leg->transfer;
	uint64_t most = WF_DEVICE_CHUNK / transfer->page_bytes, named = leg->legs->peer->their_max_message;

	named = named > WF_LAND_HEADER + sizeof(uint32_t) ? (named - WF_LAND_HEADER) / sizeof(uint32_t) : 1;
	most = most < named ? most : named;
	most = most < WF_LAND_PAGES ? most : WF_LAND_PAGES;
	return most ? most : 1;
}

static bool is_of_pages(const struct wf_transfer *transfer)
{
	return transfer->paged && transfer->cuts == 1;
}

void wf_leg_claim(struct wf_leg *leg, struct wf_transfer *transfer, const struct wf_slice *slice)
{
	uint64_t next = atomic_load_explicit(&transfer->next_unit, memory_order_relaxed), most;

	leg->transfer = transfer;
	leg->slice = slice;
	leg->lands = slice->remote->lands;
	leg->unit = next;
	leg->count = 1;
	if (is_of_pages(transfer)) {
		most = most_pages(leg);
		leg->count = most < transfer->units - next ? most : transfer->units - next;
		leg->bytes = leg->count * transfer->page_bytes;
	} else {
		leg->bytes = wf_unit_extent(transfer, slice, next, 1).bytes;
	}
	atomic_store_explicit(&transfer->next_unit, next + leg->count, memory_order_relaxed);
	transfer->legs++;
}

/* ---- moving ---- */

void wf_leg_ask(struct wf_leg *leg, enum wf_leg_state state)
{
	const struct wf_transfer *transfer = leg->transfer;
	const struct wf_slice *slice = leg->slice;
	const uint32_t *pages = NULL;
	struct wf_land land = { .kind = WF_LAND_MOVE,
				.read = transfer->kind == WF_READ,
				.region = slice->remote->region,
				.proof = slice->remote->proof,
				.at = chunk_of(leg),
				.offset = slice->remote_offset,
				.bytes = leg->bytes,
				.count = (uint32_t)leg->count };

	if (transfer->notify == WEFT_NOTIFY_COUNTED) {
		land.immediate = transfer->immediate;
		land.immediates = land.count;
	}
	if (!is_of_pages(transfer)) {
		land.offset += wf_unit_extent(transfer, slice, leg->unit, 1).remote;
	} else {
		land.bytes = transfer->page_bytes;
		land.stride = transfer->remote_stride;
		if (transfer->remote_index)
			pages = transfer->remote_index + leg->unit;
		else
			land.offset += leg->unit * transfer->remote_stride;
		land.tail_bytes = pages ? (uint32_t)(leg->count * sizeof(*pages)) : 0;
	}
	wf_land_pack(&land, pages, leg->content);
	leg->number = ++leg->legs->numbers * WF_LEGS + (uint64_t)(leg - leg->legs->leg);
	leg->state = state;
	leg->told = true;
	leg->message.subject = leg->number;
	leg->message.bytes = wf_land_bytes(&land);
	wf_channel_queue(leg->legs->peer, &leg->message);
}

/* The part of the operation that the leg covers, to the room instead; or to its own place, if that is no card's. */
static void fill(struct wf_leg *leg, struct wf_transfer *child)
{
	const struct wf_transfer *transfer = leg->transfer;
	const struct wf_slice *slice = leg->slice;
	bool lands = slice->remote->lands;

	child->slice = &child->one;
	child->slices = 1;
	child->one = (struct wf_slice){ .region = slice->region,
					.remote = lands ? leg->legs->room : slice->remote,
					.local = slice->local,
					.remote_offset = lands ? chunk_of(leg) : slice->remote_offset,
					.bytes = leg->bytes };
	wf_handle_ref(&child->engine->regions, child->one.region->handle);
	wf_handle_ref(&child->engine->remotes, child->one.remote->handle);
	child->cards = slice->region->device;
	wf_request_reach(child);
	if (is_of_pages(transfer)) {
		child->paged = true;
		child->page_bytes = child->remote_stride = transfer->page_bytes;
		child->local_stride = transfer->local_stride;
		child->local_index = transfer->local_index ? transfer->local_index + leg->unit : NULL;
		child->remote_index = NULL;
		if (!transfer->local_index)
			child->one.local += leg->unit * transfer->local_stride;
		wf_request_pages(child, leg->count);
	} else {
		struct wf_extent extent = wf_unit_extent(transfer, slice, leg->unit, 1);

		child->one.local += extent.local;
		child->one.remote_offset += lands ? 0 : extent.remote;
		child->unit_bytes = wf_request_unit(child, leg->bytes);
		if (!lands && transfer->notify == WEFT_NOTIFY_COUNTED) {
			child->notify = WEFT_NOTIFY_COUNTED;
			child->immediate = transfer->immediate;
			child->unit_bytes = leg->bytes ? leg->bytes : 1;
		}
		child->units = wf_request_units(child, leg->bytes);
	}
	wf_request_groups(child);
}

bool wf_leg_move(struct wf_leg *leg)
{
	struct weft_engine *engine = leg->legs->peer->engine;
	/* Not through wf_transfer_take_of(), which may wait for this very worker. */
	struct wf_transfer *child = wf_transfer_reserve(&engine->internals);

	if (!child)
		return false;
	wf_transfer_prepare(child, NULL);
	child->kind = leg->transfer->kind;
	child->deadline_ns = WF_NEVER; /* the operation's */
	child->peer = leg->legs->peer;
	wf_handle_ref(&engine->peers, child->peer->handle);
	atomic_fetch_add_explicit(&child->peer->accepted, 1, memory_order_relaxed);
	atomic_store_explicit(&child->home, child->peer->home, memory_order_relaxed);
	fill(leg, child);
	child->leg = leg;
	leg->child = child;
	leg->state = WF_LEG_MOVING;
	leg->lost = false;
	wf_transfer_begin(child);
	return true;
}
