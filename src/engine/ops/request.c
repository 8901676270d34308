/* Checking requests and filling transfers; request.h says for whom. */
#include "engine/ops/request.h"
#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/peer/peer.h"
#include "engine/ops/verify.h"
#include "wire/manifest.h"

#include <errno.h>
#include <string.h>

#define UNIT_MIN (64u << 10)
/* Up to these sizes pages share operations where the provider allows: over one rail they may be larger, for there are no others
 * to share the pieces with. */
#define SMALL_PAGE     (16u << 10)
#define SMALL_PAGE_ONE (64u << 10)
#define CARD_UNIT      (UINT64_C(32) << 20) /* between cards: one call for as much as takes some ten microseconds */
#define SHARES         4 /* pieces each rail should get of a range, so that the faster ones can take more */

_Static_assert(WF_UNIT_MAX <= WF_MANIFEST_UNIT, "a page's cut is a unit that a receiver checks");
_Static_assert(WF_UNIT_MAX <= WF_REACH_LEAST, "a page's cut lies in one tile");

static int check_notify(struct weft_engine *engine, const struct weft_op *op, bool data)
{
	if (op->notify < WEFT_NOTIFY_NOTHING || op->notify > WEFT_NOTIFY_COUNTED)
		return -EOPNOTSUPP;
	if (!data || op->notify_bytes > WEFT_NOTIFY_MAX || (op->notify_bytes && !op->notify_payload))
		return -EINVAL;
	for (uint32_t i = 0; op->notify == WEFT_NOTIFY_COUNTED && i < engine->rails; i++)
		if (!engine->seat[i]->limits.immediate)
			return -EOPNOTSUPP;
	return 0;
}

int wf_request_check(struct weft_engine *engine, const struct weft_op *op, bool data)
{
	if (atomic_load_explicit(&engine->closing, memory_order_relaxed))
		return -ESHUTDOWN;
	if (!op)
		return 0;
	if (op->queue && op->queue->engine != engine)
		return -EINVAL;
	if (op->flags) {
		if (op->flags & ~(WEFT_CHECKSUM | WEFT_KEEP_END))
			return -EOPNOTSUPP;
		if (op->flags & WEFT_KEEP_END && op->queue)
			return -EINVAL;
		if (op->flags & WEFT_CHECKSUM && (!data || op->notify != WEFT_NOTIFY_FENCED))
			return -EINVAL;
	}
	if (op->start_word || op->end_word || op->notify_word) {
		int error = wf_words_check(op);

		if (error)
			return error;
	}
	return op->notify == WEFT_NOTIFY_NOTHING ? 0 : check_notify(engine, op, data);
}

int wf_request_no_such(struct weft_engine *engine, const char *what, uint64_t handle)
{
	wf_log(&engine->log, WEFT_LOG_INFO, "refused: no %s of this engine has the handle %#llx (any more)", what,
	       (unsigned long long)handle);
	return -ENOENT;
}

int wf_request_peer(struct weft_engine *engine, weft_peer handle, struct wf_peer **ret_peer)
{
	struct wf_peer *peer = wf_handle_get(&engine->peers, handle);

	if (!peer)
		return wf_request_no_such(engine, "peer", handle);
	if (wf_peer_is_down(peer)) {
		wf_handle_put(&engine->peers, handle);
		return -EHOSTDOWN;
	}
	atomic_fetch_add_explicit(&peer->accepted, 1, memory_order_relaxed);
	*ret_peer = peer;
	return 0;
}

int wf_request_ends(struct weft_engine *engine, struct wf_slice *slice, weft_region region, weft_remote remote,
		    uint32_t access)
{
	*slice = (struct wf_slice){ .region = wf_handle_get(&engine->regions, region),
				    .remote = wf_handle_get(&engine->remotes, remote) };
	if (!slice->region)
		return wf_request_no_such(engine, "region", region);
	if (!slice->remote)
		return wf_request_no_such(engine, "remote", remote);
	atomic_thread_fence(memory_order_seq_cst); /* our reference before the look: begin_change() in region.c */
	if (atomic_load(&slice->region->changing))
		return -EBUSY;
	if (atomic_load_explicit(&slice->remote->revoked, memory_order_relaxed))
		return -ESTALE;
	if (!(slice->remote->access & access))
		return -EACCES;
	return 0;
}

int wf_request_incarnation(const struct wf_transfer *transfer, const struct wf_slice *slice)
{
	return atomic_load_explicit(&transfer->peer->incarnation, memory_order_relaxed) == slice->remote->incarnation
		   ? 0
		   : -ESTALE;
}

void wf_request_reach(struct wf_transfer *transfer)
{
	uint64_t reach = UINT64_MAX;

	for (uint32_t i = 0; i < transfer->slices; i++) {
		const struct wf_slice *slice = &transfer->slice[i];

		reach = slice->region->reach < reach ? slice->region->reach : reach;
		reach = slice->remote->reach < reach ? slice->remote->reach : reach;
		/* Over NICs it passes through chunks. */
		if (slice->region->device && !slice->remote->cards && !transfer->engine->nics.nic[0].local &&
		    reach > WF_DEVICE_CHUNK)
			reach = WF_DEVICE_CHUNK;
	}
	if (transfer->lands && reach > WF_DEVICE_CHUNK)
		reach = WF_DEVICE_CHUNK;
	transfer->reach = reach;
	transfer->tiled = transfer->cards || reach != UINT64_MAX;
}

uint64_t wf_request_most(const struct wf_transfer *transfer)
{
	uint64_t most = transfer->engine->largest_piece;

	return transfer->reach < most ? transfer->reach : most;
}

int wf_request_counted(const struct wf_transfer *transfer, uint64_t bytes)
{
	if (!bytes && !transfer->engine->empty_immediates)
		return -EOPNOTSUPP;
	if (bytes <= wf_request_most(transfer))
		return 0;
	if (transfer->tiled)
		wf_log(&transfer->engine->log, WEFT_LOG_INFO,
		       "refused: a counted write of %llu bytes; of memory that is registered in parts it may have %llu",
		       (unsigned long long)bytes, (unsigned long long)wf_request_most(transfer));
	return -EMSGSIZE;
}

uint64_t wf_request_unit(const struct wf_transfer *transfer, uint64_t bytes)
{
	const struct weft_engine *engine = transfer->engine;
	uint64_t unit = bytes / (wf_engine_nics(engine) * SHARES), most = wf_request_most(transfer);

	if (transfer->lands)
		unit = WF_DEVICE_CHUNK; /* a leg's (legs.h) */
	else if (engine->settings.piece_bytes)
		unit = engine->settings.piece_bytes;
	else if (transfer->cards_both)
		unit = CARD_UNIT;
	else
		unit = unit < UNIT_MIN ? UNIT_MIN : unit > WF_UNIT_MAX ? WF_UNIT_MAX : (unit + 4095) & ~UINT64_C(4095);
	if (transfer->checked && most > WF_MANIFEST_UNIT)
		most = WF_MANIFEST_UNIT;
	return unit < most ? unit : most;
}

int wf_request_pages(struct wf_transfer *transfer, uint64_t count)
{
	struct weft_engine *engine = transfer->engine;
	bool counted = transfer->notify == WEFT_NOTIFY_COUNTED, dense;
	uint64_t most = wf_request_most(transfer);

	transfer->unit_bytes = count ? wf_request_unit(transfer, count * transfer->page_bytes) : 1;
	transfer->cuts = (transfer->page_bytes + WF_UNIT_MAX - 1) / WF_UNIT_MAX;
	if (counted) {
		transfer->cuts = 1;
		if (transfer->page_bytes > most)
			return wf_request_counted(transfer, transfer->page_bytes);
	} else if (transfer->page_bytes > most || transfer->cuts > 1) {
		transfer->unit_bytes = most < WF_UNIT_MAX ? most : WF_UNIT_MAX;
		transfer->cuts = (transfer->page_bytes + transfer->unit_bytes - 1) / transfer->unit_bytes;
	}
	transfer->cuts = transfer->cuts ? transfer->cuts : 1;
	dense = transfer->local_stride == transfer->page_bytes && transfer->remote_stride == transfer->page_bytes;
	if (transfer->cuts == 1 && count && !counted && dense)
		transfer->most_adjacent = transfer->unit_bytes / transfer->page_bytes;
	/* What shares an operation shares its keys. */
	if (transfer->cuts == 1 && transfer->kind == WF_WRITE && !counted && !transfer->tiled && !transfer->cards &&
	    transfer->page_bytes <= (wf_engine_nics(engine) == 1 ? SMALL_PAGE_ONE : SMALL_PAGE))
		transfer->ranges = engine->rma_ranges;
	transfer->plain = transfer->cuts == 1 && transfer->ranges == 1 && transfer->most_adjacent == 1 &&
			  !transfer->tiled && transfer->kind == WF_WRITE;
	transfer->listed = wf_engine_has_local(engine) && count && transfer->cuts == 1 && !counted &&
			   (!transfer->tiled || transfer->cards) &&
			   (transfer->page_bytes <= WF_LISTED_BYTES / 2 || transfer->cards_both);
	transfer->listed_bytes = transfer->cards_both ? WF_LISTED_CARD : WF_LISTED_BYTES;
	transfer->list = (struct wf_page_list){ transfer->local_index, transfer->remote_index, transfer->local_stride,
						transfer->remote_stride, transfer->page_bytes };
	transfer->units = count * transfer->cuts;
	return 0;
}

void wf_request_notify(struct wf_transfer *transfer, const struct weft_op *op)
{
	if (!op || op->notify == WEFT_NOTIFY_NOTHING)
		return;
	transfer->notify = op->notify;
	transfer->immediate = op->immediate;
	if (op->notify_bytes)
		memcpy(transfer->payload, op->notify_payload, op->notify_bytes);
	transfer->message.type = WF_MESSAGE_NOTIFY;
	transfer->message.tag = op->notify_tag;
	transfer->message.subject = 0;
	transfer->message.status = 0;
	transfer->message.bytes = op->notify_bytes;
	transfer->message.data = transfer->payload;
}

/* Which groups carry it: those near the memory; for host memory that is all of them. */
void wf_request_groups(struct wf_transfer *transfer)
{
	struct weft_engine *engine = transfer->engine;
	uint64_t groups = 0, most, share;

	for (uint32_t i = 0; i < transfer->slices; i++)
		groups |= transfer->slice[i].region->groups;
	atomic_store(&transfer->groups, groups);
	/* A single group takes it whole; several claim a few pieces a rail at a time, and leave some for the
	 * others. */
	most = 16 * (wf_engine_nics(engine) / engine->groups + 1);
	if (transfer->listed && most < transfer->listed_bytes / transfer->page_bytes)
		most = transfer->listed_bytes / transfer->page_bytes;
	share = transfer->units / ((uint64_t)__builtin_popcountll(groups) * SHARES) + 1;
	transfer->claim = groups & (groups - 1) ? (share < most ? share : most) : transfer->units;
}

int wf_request_manifest(struct wf_transfer *transfer, const struct weft_op *op, int error)
{
	return error || !(transfer->checked || (op && op->notify_word)) ? error : wf_manifest_make(transfer, op);
}

int wf_request_post(struct wf_transfer *transfer, int error, weft_transfer *ret)
{
	struct wf_group *home = transfer->peer ? transfer->peer->home : &transfer->engine->group[0];
	weft_transfer id = transfer->id; /* once posted it is the worker's, and may be over */

	atomic_store_explicit(&transfer->home, home, memory_order_relaxed);
	/* Cannot be full: the inbox has room for a begin and a stop of every transfer there is. */
	if (!error && !wf_group_post(home, WF_NOTE_BEGIN, transfer, 0))
		error = -EAGAIN;
	if (error)
		wf_transfer_abandon(transfer);
	else if (ret)
		*ret = id;
	return error;
}
