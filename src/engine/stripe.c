/*
 * Striping: a rail that has room pulls the next piece of the next transfer. Pieces are not dealt out in advance, so a
 * slow or busy rail carries less and a dead one nothing; lanes and parts take turns by bytes. Also what becomes of a
 * piece: landed, to be posted again, or taken back. Runs on the group's worker; the hot path of the engine.
 */
#include "base/error.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/transfer.h"

#include <errno.h>
#include <stdio.h>

#define BATCH        32              /* posts a rail's turn; the last one rings */
#define LOOK_AT      64              /* lanes a rail passes over in a turn */
#define LANE_QUANTUM (1u << 20)      /* bytes before the next peer's turn */
#define PART_QUANTUM (1u << 20)      /* and before the peer's next transfer */
#define ATTEMPTS     8               /* of one piece, before its transfer fails */
#define GRACE_NS     (40 * WF_MS)    /* a stopped transfer's pieces may take so long to leave the NIC by themselves */

static void count(_Atomic uint64_t *counter, uint64_t amount)
{
	/* One writer: a plain add that others may read. */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount, memory_order_relaxed);
}

/* ---- from units to memory ---- */

static bool claim(struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;
	uint64_t first;

	if (part->next < part->end)
		return true;
	if (part->gave_up)
		return false;
	if (part->spare || atomic_load_explicit(&transfer->spares, memory_order_relaxed))
		return wf_spare_take(part);
	if (atomic_load_explicit(&transfer->next_unit, memory_order_relaxed) >= transfer->units)
		return false;
	first = atomic_fetch_add_explicit(&transfer->next_unit, transfer->claim, memory_order_relaxed);
	if (first >= transfer->units)
		return false;
	part->next = first;
	part->end = first + transfer->claim < transfer->units ? first + transfer->claim : transfer->units;
	return true;
}

static uint64_t page_at(const uint32_t *index, uint64_t i)
{
	return index ? index[i] : i;
}

/* How many pages from first on lie side by side at both ends, within the limit and the claim. */
static uint64_t adjacent(const struct wf_transfer *transfer, uint64_t first, uint64_t end)
{
	uint64_t most = transfer->unit_bytes / transfer->page_bytes, n = 1;
	uint64_t local, remote;

	if (most < 2 || transfer->local_stride != transfer->page_bytes ||
	    transfer->remote_stride != transfer->page_bytes)
		return 1;
	if (end - first < most)
		most = end - first;
	local = page_at(transfer->local_index, first);
	remote = page_at(transfer->remote_index, first);
	while (n < most && page_at(transfer->local_index, first + n) == local + n &&
	       page_at(transfer->remote_index, first + n) == remote + n)
		n++;
	return n;
}

static void locate_page(const struct wf_transfer *transfer, const struct wf_piece *piece, uint64_t *local,
			uint64_t *remote, uint64_t *bytes)
{
	uint64_t page = piece->unit, cut = 0, left;

	if (transfer->cuts > 1) {
		cut = piece->unit % transfer->cuts * transfer->unit_bytes;
		page = piece->unit / transfer->cuts;
	}
	*local = transfer->slice->local + page_at(transfer->local_index, page) * transfer->local_stride + cut;
	*remote = transfer->slice->remote_offset + page_at(transfer->remote_index, page) * transfer->remote_stride + cut;
	left = transfer->page_bytes - cut;
	*bytes = transfer->cuts > 1 ? (left < transfer->unit_bytes ? left : transfer->unit_bytes) :
				      piece->units * transfer->page_bytes;
}

static struct wf_slice *slice_at(struct wf_part *part, uint64_t unit)
{
	struct wf_transfer *transfer = part->transfer;

	if (unit < transfer->slice[part->slice].first_unit)
		part->slice = 0; /* a piece that is posted again lies behind the cursor */
	while (part->slice + 1 < transfer->slices && unit >= transfer->slice[part->slice + 1].first_unit)
		part->slice++;
	return &transfer->slice[part->slice];
}

/* Fills what goes to the NIC. False: the peer's memory has no key on that rail, or its immediates there are not read. */
static bool resolve(struct wf_seat *seat, struct wf_path *path, struct wf_piece *piece, struct wf_rma *rma)
{
	struct wf_part *part = piece->part;
	struct wf_transfer *transfer = part->transfer;
	struct wf_slice *slice = transfer->slice;
	uint64_t local, remote, bytes;

	if (transfer->paged) {
		locate_page(transfer, piece, &local, &remote, &bytes);
	} else {
		uint64_t offset;

		slice = slice_at(part, piece->unit);
		offset = (piece->unit - slice->first_unit) * transfer->unit_bytes;
		local = slice->local + offset;
		remote = slice->remote_offset + offset;
		bytes = slice->bytes - offset < transfer->unit_bytes ? slice->bytes - offset : transfer->unit_bytes;
	}
	if (!(slice->remote->rails & UINT64_C(1) << path->remote) ||
	    (transfer->notify == WEFT_NOTIFY_COUNTED && path->immediates >= path->immediates_limit))
		return false;
	piece->bytes = bytes;
	rma->local = slice->region->base + local;
	rma->desc = slice->region->memory[seat->index].desc;
	rma->bytes = bytes;
	rma->target = path->target;
	rma->remote = slice->remote->key[path->remote].base + remote;
	rma->key = slice->remote->key[path->remote].key;
	rma->has_immediate = transfer->notify == WEFT_NOTIFY_COUNTED;
	rma->immediate = transfer->immediate;
	piece->wr.kind = transfer->kind == WF_READ ? WF_WR_READ : WF_WR_WRITE;
	return true;
}

/* ---- pulling ---- */

static struct wf_piece *next_of_part(struct wf_group *group, struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;
	struct wf_piece *piece = part->again;

	if (piece) {
		part->again = piece->next;
		return piece;
	}
	if (!claim(part))
		return NULL;
	piece = wf_group_take_piece(group);
	if (!piece)
		return NULL;
	piece->part = part;
	piece->attempts = 0;
	piece->unit = part->next;
	piece->units = transfer->paged && transfer->cuts == 1 && transfer->notify != WEFT_NOTIFY_COUNTED ?
			       adjacent(transfer, part->next, part->end) :
			       1;
	part->next += piece->units;
	return piece;
}

static void put_again(struct wf_piece *piece)
{
	struct wf_part *part = piece->part;

	piece->seat = NULL;
	piece->next = part->again;
	part->again = piece;
	if (!wf_link_linked(&part->link))
		wf_list_append(&part->lane->parts, &part->link);
	wf_lane_runnable(part->lane);
}

static bool exhausted(struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;

	if (part->again || part->next < part->end || part->spare)
		return false;
	return part->gave_up || (atomic_load_explicit(&transfer->next_unit, memory_order_relaxed) >= transfer->units &&
				 !atomic_load_explicit(&transfer->spares, memory_order_relaxed));
}

/* The next piece of this lane for this rail; parts with nothing to give leave the list. */
static struct wf_piece *pull(struct wf_seat *seat, struct wf_lane *lane, struct wf_path *path, struct wf_rma *rma)
{
	for (int looked = 0; looked < LOOK_AT && !wf_list_empty(&lane->parts); looked++) {
		struct wf_part *part = wf_container(lane->parts.next, struct wf_part, link);
		struct wf_piece *piece = next_of_part(lane->group, part);

		if (!piece) {
			if (!exhausted(part))
				return NULL; /* the pool of pieces is empty: they come back with completions */
			wf_list_remove(&part->link);
			/* Other groups took it all before we came to it: nothing of ours will complete and say so. */
			wf_part_maybe_done(lane->group, part);
			continue;
		}
		if (!resolve(seat, path, piece, rma)) {
			put_again(piece);
			wf_list_remove(&part->link);
			wf_list_append(&lane->parts, &part->link);
			continue;
		}
		part->in_flight++;
		if (part->quantum <= piece->bytes) {
			part->quantum = PART_QUANTUM;
			wf_list_remove(&part->link);
			wf_list_append(&lane->parts, &part->link);
		} else {
			part->quantum -= piece->bytes;
		}
		return piece;
	}
	return NULL;
}

static void next_lane(struct wf_group *group, struct wf_lane *lane)
{
	lane->quantum = LANE_QUANTUM;
	wf_list_remove(&lane->runnable);
	wf_list_append(&group->runnable, &lane->runnable);
}

static bool has_room(const struct wf_seat *seat, const struct wf_path *path)
{
	return path->state == WF_PATH_UP && path->ops < seat->limits.window_ops &&
	       path->bytes < seat->limits.window_bytes;
}

static int gather(struct wf_group *group, struct wf_seat *seat, struct wf_piece **pieces, struct wf_rma *rmas)
{
	int gathered = 0, passed = 0;

	while (gathered < BATCH && passed < LOOK_AT && seat->ops + (uint32_t)gathered < seat->limits.queue_ops &&
	       !wf_list_empty(&group->runnable)) {
		struct wf_lane *lane = wf_container(group->runnable.next, struct wf_lane, runnable);
		struct wf_path *path = &lane->path[seat->place];
		struct wf_piece *piece = has_room(seat, path) ? pull(seat, lane, path, &rmas[gathered]) : NULL;

		if (!piece) {
			passed++;
			if (wf_list_empty(&lane->parts))
				wf_list_remove(&lane->runnable);
			else
				next_lane(group, lane);
			if (group->runnable.next == group->runnable.prev && passed > 1)
				break; /* one lane, and this rail can do nothing for it now */
			continue;
		}
		piece->path = path;
		path->ops++;
		path->immediates += rmas[gathered].has_immediate;
		path->bytes += piece->bytes;
		pieces[gathered++] = piece;
		if (lane->quantum <= piece->bytes)
			next_lane(group, lane);
		else
			lane->quantum -= piece->bytes;
	}
	return gathered;
}

/* ---- posting ---- */

static void fail_transfer(struct wf_group *group, struct wf_part *part, struct wf_seat *seat, int status);

static void unpull(struct wf_piece *piece)
{
	piece->path->ops--;
	piece->path->bytes -= piece->bytes;
	piece->path->immediates -= piece->part->transfer->notify == WEFT_NOTIFY_COUNTED;
	piece->part->in_flight--;
	put_again(piece);
}

static void refused(struct wf_group *group, struct wf_seat *seat, struct wf_piece *piece, int error)
{
	struct wf_path *path = piece->path;
	struct wf_part *part = piece->part;
	struct wf_lane *lane = part->lane;
	uint64_t now = wf_group_now(group);

	unpull(piece);
	if (error != -EAGAIN) {
		if (++piece->attempts > ATTEMPTS)
			fail_transfer(group, part, seat, error);
		wf_lane_path_failed(lane, path, wf_rail_last_error(seat->rail)->text);
		return;
	}
	/* Refused while nothing of ours is in flight there: a connection that will not come up says EAGAIN for ever. */
	if (path->ops)
		path->stuck_ns = 0;
	else if (!path->stuck_ns)
		path->stuck_ns = now;
	else if (now - path->stuck_ns > group->engine->settings.rail_limit_ns)
		wf_lane_path_failed(lane, path, "the provider takes nothing");
}

static void posted(struct wf_group *group, struct wf_seat *seat, struct wf_piece *piece)
{
	piece->seat = seat;
	piece->posted_ns = wf_group_now(group);
	piece->part->lane->in_flight++;
	seat->ops++;
	group->on_nic++;
}

int wf_stripe_seat(struct wf_group *group, struct wf_seat *seat)
{
	struct wf_piece *pieces[BATCH];
	struct wf_rma rmas[BATCH];
	uint64_t bytes = 0;
	int gathered, sent = 0, error = 0;

	if (!atomic_load_explicit(&seat->up, memory_order_relaxed))
		return 0;
	gathered = gather(group, seat, pieces, rmas);
	for (; sent < gathered; sent++) {
		rmas[sent].more = sent + 1 < gathered;
		error = wf_rail_rma(seat->rail, &pieces[sent]->wr, &rmas[sent]);
		/* What was posted before with "more" must be rung for: once more, as the last of the batch. */
		if (error == -EAGAIN && sent && rmas[sent].more) {
			rmas[sent].more = false;
			error = wf_rail_rma(seat->rail, &pieces[sent]->wr, &rmas[sent]);
		}
		if (error)
			break;
		posted(group, seat, pieces[sent]);
		bytes += pieces[sent]->bytes;
	}
	/* Backwards, so that they come again in the order they had. */
	for (int i = gathered - 1; i > sent; i--)
		unpull(pieces[i]);
	if (sent < gathered)
		refused(group, seat, pieces[sent], error);
	if (sent) {
		count(pieces[0]->wr.kind == WF_WR_READ ? &seat->count.reads : &seat->count.writes, (uint64_t)sent);
		count(&seat->count.bytes, bytes);
	}
	return sent;
}

/* ---- pieces that come back ---- */

static void leave_nic(struct wf_group *group, struct wf_piece *piece)
{
	piece->seat->ops--;
	group->on_nic--;
	piece->path->ops--;
	piece->path->bytes -= piece->bytes;
	piece->part->in_flight--;
	piece->part->lane->in_flight--;
}

/* The transfer cannot be saved: say why and stop all of it, from its home. */
static void fail_transfer(struct wf_group *group, struct wf_part *part, struct wf_seat *seat, int status)
{
	struct wf_transfer *transfer = part->transfer;
	const struct wf_rail_error *last = wf_rail_last_error(seat->rail);
	bool denied = status == -EACCES || status == -EPERM || status == -EINVAL || status == -EFAULT;
	int why = denied ? -EREMOTEIO : -EIO;
	struct weft_error error = { .scope = WEFT_SCOPE_OPERATION,
				    .provider_error = last->provider_error,
				    .hint = wf_error_hint(why) };

	if (!wf_transfer_stop(transfer, why))
		return;
	snprintf(error.rail, sizeof(error.rail), "%.31s", seat->nic->name);
	snprintf(error.text, sizeof(error.text), "%s: %s", wf_error_text(why), last->text);
	wf_transfer_set_error(transfer, &error);
	wf_group_tell(group, transfer->peer->home, WF_NOTE_STOP, transfer, transfer->id);
}

static void again_or_fail(struct wf_group *group, struct wf_piece *piece, struct wf_seat *seat, int status)
{
	struct wf_part *part = piece->part;

	if (part->stop_ns) {
		wf_group_give_piece(group, piece);
		return;
	}
	count(&seat->count.retries, 1);
	put_again(piece);
	/* An immediate may have been counted already: posting it again could count it twice. */
	if (++piece->attempts > ATTEMPTS || part->transfer->notify == WEFT_NOTIFY_COUNTED)
		fail_transfer(group, part, seat, status);
	else if (part->gave_up)
		wf_part_hand_over(group, part);
}

void wf_piece_completed(struct wf_group *group, struct wf_piece *piece, int status)
{
	struct wf_part *part = piece->part;
	struct wf_lane *lane = part->lane;
	struct wf_path *path = piece->path;
	struct wf_seat *seat = piece->seat;

	leave_nic(group, piece);
	if (part->transfer->notify == WEFT_NOTIFY_COUNTED)
		wf_lane_immediate_done(lane, path);
	if (!status) {
		part->bytes += piece->bytes;
		atomic_store_explicit(&lane->last_ok_ns, wf_group_now(group), memory_order_relaxed);
		wf_group_give_piece(group, piece);
	} else {
		count(&seat->count.errors, 1);
		if (!seat->limits.close_quiesces)
			part->unquiet = true;
		wf_lane_path_failed(lane, path, wf_rail_last_error(seat->rail)->text);
		again_or_fail(group, piece, seat, status);
	}
	if (!part->in_flight)
		wf_part_maybe_done(group, part);
}

void wf_piece_taken_back(struct wf_group *group, struct wf_piece *piece)
{
	struct wf_part *part = piece->part;
	struct wf_seat *seat = piece->seat;

	leave_nic(group, piece);
	if (!seat->limits.close_quiesces)
		part->unquiet = true;
	piece->seat = NULL;
	again_or_fail(group, piece, seat, -EIO);
	if (!part->in_flight)
		wf_part_maybe_done(group, part);
}

/* ---- parts ---- */

void wf_part_start(struct wf_group *group, struct wf_transfer *transfer)
{
	struct wf_part *part = &transfer->part[group->index];
	struct wf_lane *lane = transfer->peer->lane[group->index];

	if (part->alive) { /* already at it, and given more: not a part more */
		atomic_fetch_sub(&transfer->parts_left, 1);
		part->gave_up = false;
		if (!part->stop_ns && !wf_link_linked(&part->link))
			wf_list_append(&lane->parts, &part->link);
		wf_lane_runnable(lane);
		return;
	}
	*part = (struct wf_part){ .transfer = transfer, .lane = lane, .quantum = PART_QUANTUM, .alive = true };
	wf_list_init(&part->link);
	lane->alive++;
	if (wf_transfer_why(transfer)) { /* stopped before we came to it */
		part->stop_ns = wf_group_now(group);
		wf_part_maybe_done(group, part);
		return;
	}
	wf_list_append(&lane->parts, &part->link);
	wf_lane_runnable(lane);
}

void wf_part_maybe_done(struct wf_group *group, struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;
	struct wf_lane *lane = part->lane;

	if (!part->alive || part->in_flight || (!part->stop_ns && !exhausted(part)))
		return;
	part->alive = false;
	wf_list_remove(&part->link);
	if (part->unquiet)
		atomic_store(&transfer->unquiet, 1);
	atomic_fetch_add(&transfer->bytes, part->bytes);
	lane->alive--;
	if (atomic_fetch_sub_explicit(&transfer->parts_left, 1, memory_order_acq_rel) == 1)
		wf_group_tell(group, transfer->peer->home, WF_NOTE_PARTS_DONE, transfer, 0);
	wf_lane_maybe_closed(lane);
}

void wf_part_stop(struct wf_group *group, struct wf_transfer *transfer)
{
	struct wf_part *part = &transfer->part[group->index];
	struct wf_piece *piece;

	if (!part->alive || part->transfer != transfer)
		return;
	part->stop_ns = wf_group_now(group);
	wf_list_remove(&part->link);
	while ((piece = part->again)) {
		part->again = piece->next;
		wf_group_give_piece(group, piece);
	}
	wf_spares_free(part->spare);
	part->spare = NULL;
	if (part->in_flight) {
		wf_list_append(&group->stopping, &part->link);
		wf_timer_set(&group->worker.timers, &group->housekeeping, part->stop_ns + 5 * WF_MS);
	}
	wf_part_maybe_done(group, part);
}

void wf_part_check_stopping(struct wf_group *group, uint64_t now_ns)
{
	for (struct wf_link *link = group->stopping.next; link != &group->stopping; link = link->next) {
		struct wf_part *part = wf_container(link, struct wf_part, link);

		if (now_ns - part->stop_ns < GRACE_NS)
			continue;
		for (uint32_t i = 0; i < group->piece_count; i++)
			if (group->piece[i].seat && group->piece[i].part == part)
				wf_seat_doom(group->piece[i].seat, "a stopped operation does not leave it");
	}
}
