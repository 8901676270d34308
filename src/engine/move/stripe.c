/*
 * Striping: a rail that has room pulls the next pieces of the next transfer. Pieces are not dealt out in advance, so a
 * slow or busy rail carries less and a dead one nothing; lanes and parts take turns by bytes. The hot path of the engine:
 * what is the same for a run of pieces is worked out once for the run. Runs on the group's worker.
 */
#include "engine/move/stripe.h"
#include "base/time.h"
#include "engine/move/batch.h"
#include "engine/move/frames.h"
#include "engine/move/returned.h"
#include "engine/move/unit.h"
#include "engine/peer/talk.h"
#include "engine/core/remote.h"
#include "engine/move/listed.h"

#include <errno.h>
#include <limits.h>

#define BATCH_LEAST  4
#define MOST_TRIED   64 /* lanes, or parts of a lane, that a rail tries per turn */
#define NUDGE_NS     (500 * WF_US)
#define LANE_QUANTUM (1u << 20) /* bytes before the next peer's turn */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- what is next, and where it lies ---- */

bool wf_part_claim(struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;
	uint64_t first;

	if (part->gave_up)
		return false;
	if (atomic_load_explicit(&transfer->returned, memory_order_relaxed) && wf_returned_claim(part))
		return true;
	if (atomic_load_explicit(&transfer->next_unit, memory_order_relaxed) >= transfer->units)
		return false;
	first = atomic_fetch_add_explicit(&transfer->next_unit, transfer->claim, memory_order_relaxed);
	if (first >= transfer->units)
		return false;
	part->next = first;
	part->end = least(first + transfer->claim, transfer->units);
	return true;
}

/* Pages that lie apart but are small enough to share an operation, each range as long as pages are adjacent. */
static void locate_ranges(const struct wf_transfer *transfer, const struct wf_run *run, const struct wf_piece *piece,
			  struct wf_rma_range *ranges, struct wf_rma *rma)
{
	uint64_t unit = piece->unit, end = piece->unit + piece->units;

	rma->ranges = ranges;
	rma->range_count = 0;
	rma->bytes = piece->units * transfer->page_bytes;
	while (unit < end) {
		uint64_t pages = wf_units_adjacent(transfer, unit, end);
		struct wf_extent extent = wf_unit_extent(transfer, transfer->slice, unit, pages);

		ranges[rma->range_count++] =
		    (struct wf_rma_range){ run->local + extent.local, extent.bytes, run->remote + extent.remote };
		unit += pages;
	}
}

static inline void locate_one(const struct wf_transfer *transfer, const struct wf_slice *slice,
			      const struct wf_run *run, const struct wf_piece *piece, struct wf_rma *rma)
{
	struct wf_extent extent = wf_unit_extent(transfer, slice, piece->unit, piece->units);

	rma->ranges = NULL;
	rma->local = run->local + extent.local;
	rma->remote = run->remote + extent.remote;
	rma->bytes = extent.bytes;
}

/* ---- pulling ---- */

static inline uint32_t units_in_one(const struct wf_transfer *transfer, uint64_t first, uint64_t end)
{
	return (uint32_t)(transfer->ranges > 1          ? wf_units_gathered(transfer, first, end)
			  : transfer->most_adjacent > 1 ? wf_units_adjacent(transfer, first, end)
							: 1);
}

/* A piece that came back from a local rail may have more pages than a NIC takes in one: the others come back once more. NULL: there
 * is no piece for them now. */
static struct wf_piece *split(struct wf_group *group, struct wf_piece *piece)
{
	uint64_t end = piece->unit + piece->units;
	uint32_t units =
	    piece->part->transfer->listed ? units_in_one(piece->part->transfer, piece->unit, end) : piece->units;
	struct wf_piece *rest = units < piece->units ? wf_piece_take(group) : NULL;

	if (units < piece->units && !rest) {
		wf_returned_put(piece);
		return NULL;
	}
	if (rest) {
		rest->part = piece->part;
		rest->attempts = piece->attempts;
		rest->unit = piece->unit + units;
		rest->units = piece->units - units;
		wf_returned_put(rest);
		piece->units = units;
	}
	return piece;
}

/* In place in both callers: a call per piece costs more than the function itself. */
static inline __attribute__((always_inline)) struct wf_piece *next_piece(struct wf_group *group, struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;
	struct wf_piece *piece = wf_returned_take(part);

	if (piece)
		return split(group, piece);
	if (part->next >= part->end && !wf_part_claim(part))
		return NULL;
	piece = wf_piece_take(group);
	if (!piece)
		return NULL;
	piece->part = part;
	piece->attempts = 0;
	piece->unit = part->next;
	piece->units = units_in_one(transfer, part->next, part->end);
	part->next += piece->units;
	return piece;
}

/* Fills in pages, up to most or the end of the claim. A large transfer spends its time in this loop, so what does not change is
 * in locals, where no store through a pointer can touch it. */
static int fill_plain(struct wf_batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_part *part,
		      int most)
{
	const struct wf_transfer *transfer = part->transfer;
	const struct wf_run *run = &batch->run[batch->runs - 1];
	const uint32_t *local_index = transfer->local_index, *remote_index = transfer->remote_index;
	uint64_t local_stride = transfer->local_stride, remote_stride = transfer->remote_stride;
	uint64_t bytes = transfer->page_bytes, page = part->next, now = wf_group_now(seat->group), remote = run->remote;
	char *local = run->local;
	struct wf_rma *rma = &batch->rma[batch->count];
	struct wf_piece **into = &batch->piece[batch->count], *piece;
	int filled = 0;

	most = (int)least((uint64_t)most, part->end - page);
	for (; filled < most && (piece = wf_piece_take(seat->group)); filled++, page++, rma++) {
		piece->posted_ns = now;
		piece->part = part;
		piece->seat = seat;
		piece->path = path;
		piece->unit = page;
		piece->bytes = bytes;
		piece->units = 1;
		piece->attempts = 0;
		piece->wr.kind = WF_WR_WRITE;
		piece->wr.failed = 0;
		rma->wr = &piece->wr;
		rma->ranges = NULL;
		rma->bytes = bytes;
		rma->local = local + wf_page_offset(local_index, page, local_stride);
		rma->remote = remote + wf_page_offset(remote_index, page, remote_stride);
		into[filled] = piece;
	}
	part->next = page;
	batch->count += filled;
	return filled;
}

static int pull_plain(struct wf_batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_part *part,
		      int room, uint64_t budget)
{
	uint64_t page_bytes = part->transfer->page_bytes;
	int most = (int)least((uint64_t)room, (budget + page_bytes - 1) / page_bytes), pulled = 0, filled = 1;

	if ((part->next >= part->end && !wf_part_claim(part)) ||
	    !wf_run_open(seat, path, part->transfer, part->transfer->slice, &batch->run[batch->runs]))
		return 0;
	batch->runs++;
	while (filled && pulled < most && (part->next < part->end || wf_part_claim(part))) {
		filled = fill_plain(batch, seat, path, part, most - pulled);
		pulled += filled;
	}
	batch->run[batch->runs - 1].count = pulled;
	batch->runs -= !pulled; /* a run of none would leave the one before it without a ring */
	wf_batch_pulled(batch, path, part, pulled, (uint64_t)pulled * page_bytes);
	return pulled;
}

/* The keys of the tiles that a piece lies in; either end may have tiles. */
static void choose_tiles(struct wf_run *run, const struct wf_rail_memory *near, const struct wf_remote_key *far,
			 uint64_t offset, uint64_t remote)
{
	const struct wf_rail_tiles *tiles = near->tiles;

	if (tiles)
		run->rma.desc = tiles->tile[wf_tile_at(offset, tiles->step, tiles->count)].desc;
	if (far->tiles)
		run->rma.key = far->tile[wf_tile_at(remote - far->base, far->step, far->tiles)];
}

/* As pull_part(), for memory with tiles, where a run ends where the tile does; and for a card's. */
static int pull_tiled(struct wf_batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_part *part,
		      int room, uint64_t budget)
{
	struct wf_transfer *transfer = part->transfer;
	int first = batch->count, first_run = batch->runs;
	uint64_t bytes = 0;

	while (batch->count - first < room && bytes < budget) {
		struct wf_piece *piece = next_piece(seat->group, part);
		struct wf_rma *rma = &batch->rma[batch->count];
		struct wf_run *run = &batch->run[batch->runs];
		struct wf_slice *slice;

		if (!piece)
			break;
		slice = wf_slice_of(transfer, piece->unit, &part->slice);
		if (!wf_run_open(seat, path, transfer, slice, run) ||
		    (transfer->cards && !wf_run_of_cards(seat, slice, run))) {
			wf_returned_put(piece);
			break;
		}
		locate_one(transfer, slice, run, piece, rma);
		choose_tiles(run, &slice->region->memory[seat->index], &slice->remote->key[path->remote],
			     (uint64_t)((char *)rma->local - slice->region->base), rma->remote);
		if (batch->runs > first_run && run[-1].rma.key == run->rma.key && run[-1].rma.desc == run->rma.desc)
			run--;
		else
			batch->runs++;
		wf_batch_append(batch, seat, path, piece, transfer->kind == WF_READ);
		bytes += rma->bytes;
		run->count++;
	}
	wf_batch_pulled(batch, path, part, batch->count - first, bytes);
	return batch->count - first;
}

/* Up to room pieces of this part, within its budget of bytes, appended to the batch. */
static int pull_part(struct wf_batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_part *part, int room,
		     uint64_t budget)
{
	struct wf_transfer *transfer = part->transfer;
	struct wf_slice *slice = NULL;
	struct wf_run *run = NULL;
	uint64_t bytes = 0;
	int first = batch->count;

	if (room <= 0 || !budget || wf_lane_passes_over(part->lane, seat, part->not_local))
		return 0;
	if (transfer->listed && seat->limits.local)
		return wf_pull_listed(batch, seat, path, part, room, budget);
	/* Every page is a piece of its own and none came back: most transfers, most of the time. */
	if (transfer->plain && !part->returned)
		return pull_plain(batch, seat, path, part, room, budget);
	if (transfer->tiled)
		return pull_tiled(batch, seat, path, part, room, budget);
	while (batch->count - first < room && bytes < budget) {
		struct wf_piece *piece = next_piece(seat->group, part);
		struct wf_rma *rma = &batch->rma[batch->count];
		struct wf_slice *here;

		if (!piece)
			break;
		here = wf_slice_of(transfer, piece->unit, &part->slice);
		if (here != slice) {
			slice = here;
			run = &batch->run[batch->runs];
			if (!wf_run_open(seat, path, transfer, slice, run)) {
				wf_returned_put(piece);
				break;
			}
			batch->runs++;
		}
		if (transfer->ranges > 1 && piece->units > 1)
			locate_ranges(transfer, run, piece, batch->range[batch->count], rma);
		else
			locate_one(transfer, slice, run, piece, rma);
		wf_batch_append(batch, seat, path, piece, transfer->kind == WF_READ);
		bytes += rma->bytes;
		run->count++;
	}
	wf_batch_pulled(batch, path, part, batch->count - first, bytes);
	return batch->count - first;
}

/* A peer grants how many immediates it may have unread. */
static int room_for(const struct wf_part *part, const struct wf_path *path, int room)
{
	if (!part->counted)
		return room;
	if (path->immediates >= path->immediates_limit)
		return 0;
	return (int)least((uint64_t)room, path->immediates_limit - path->immediates);
}

static int pull_lane(struct wf_batch *batch, struct wf_seat *seat, struct wf_lane *lane, struct wf_path *path, int room)
{
	uint64_t budget = least(path->window_bytes - path->bytes, lane->quantum), before = path->bytes;

	for (int tried = 0; tried < MOST_TRIED && !wf_list_empty(&lane->parts); tried++) {
		struct wf_part *part = wf_container(lane->parts.next, struct wf_part, link);
		int pulled =
		    pull_part(batch, seat, path, part, room_for(part, path, room), least(budget, part->quantum));

		if (!pulled && wf_part_exhausted(part)) {
			wf_list_remove(&part->link);
			/* Other groups took it all before we came to it: nothing of ours will complete and say so. */
			wf_part_maybe_done(lane->group, part);
			continue;
		}
		if (!part->quantum || !pulled) {
			part->quantum = WF_PART_QUANTUM;
			wf_list_remove(&part->link);
			wf_list_append(&lane->parts, &part->link);
		}
		if (pulled) {
			lane->quantum -= least(lane->quantum, path->bytes - before);
			return pulled;
		}
		if (!lane->group->piece_free && lane->group->pieces_used == lane->group->piece_count)
			return 0; /* they come back with completions */
	}
	return 0;
}

static void next_lane(struct wf_group *group, struct wf_lane *lane)
{
	lane->quantum = LANE_QUANTUM;
	if (group->runnable.next == group->runnable.prev)
		return;
	wf_list_remove(&lane->runnable);
	wf_list_append(&group->runnable, &lane->runnable);
}

static int room_on(const struct wf_seat *seat, const struct wf_path *path, const struct wf_batch *batch, int share)
{
	uint32_t posted = seat->ops + (uint32_t)batch->count;

	if (path->state != WF_PATH_UP || path->ops >= seat->limits.window_ops || path->bytes >= path->window_bytes ||
	    posted >= seat->limits.queue_ops)
		return 0;
	return (int)least(least((uint64_t)(share - batch->count), seat->limits.window_ops - path->ops),
			  seat->limits.queue_ops - posted);
}

/* The one lane that has pieces to give, or NULL: there are several. */
static const struct wf_lane *only_lane(const struct wf_group *group)
{
	return group->runnable.next == group->runnable.prev
		   ? wf_container(group->runnable.next, struct wf_lane, runnable)
		   : NULL;
}

/* How much the lane has for the group's rails to share: an estimate from its first parts. */
static uint64_t units_at_hand(const struct wf_lane *lane, uint64_t enough)
{
	uint64_t units = 0;
	int looked = 0;

	for (struct wf_link *link = lane->parts.next; link != &lane->parts && units < enough && looked < 16;
	     link = link->next) {
		const struct wf_part *part = wf_container(link, struct wf_part, link);
		uint64_t next = atomic_load_explicit(&part->transfer->next_unit, memory_order_relaxed);

		if (wf_returned_any(part))
			units +=
			    lane->group
				->seats; /* pieces that came back: count one per rail, any of which may take them */
		units += part->end - part->next + (next < part->transfer->units ? part->transfer->units - next : 0);
		looked++;
	}
	return units;
}

/* The target queue depth: what is in flight to the peer and what there is to post, spread evenly over its paths. A slow rail's
 * queue stays above it and takes nothing, a fast rail's falls below it. Rails still pull, but none runs dry while another holds
 * more than its share. What other peers have on a rail does not count: they may be dead. */
struct wf_depth wf_stripe_depth(const struct wf_group *group)
{
	const struct wf_lane *lane = group->seats > 1 ? only_lane(group) : NULL;
	uint64_t paths, ops, in_flight = 0;

	if (!lane)
		return (struct wf_depth){ NULL, 0 }; /* several peers: each rail finds its own */
	paths = atomic_load_explicit(&lane->local, memory_order_relaxed)
		    ? 1
		    : atomic_load_explicit(&lane->paths_up, memory_order_relaxed);
	paths = paths ? paths : 1;
	for (uint32_t place = 0; place < group->seats; place++)
		in_flight += lane->path[place].ops;
	ops = (in_flight + units_at_hand(lane, (uint64_t)WF_BATCH * group->seats) + paths - 1) / paths;
	/* At least one: a rail that looks for a piece is what finds, and ends, parts that have nothing left. */
	return (struct wf_depth){ lane, ops ? (int)ops : 1 };
}

/* Room for a few at least, or the rail is passed over: batches are cheaper. */
static int room_below(const struct wf_group *group, const struct wf_seat *seat, const struct wf_depth *depth)
{
	uint32_t ops;
	int lacks;

	if (!depth->lane || only_lane(group) != depth->lane)
		return WF_BATCH;
	ops = depth->lane->path[seat->place].ops;
	lacks = depth->ops - (int)least(ops, INT_MAX);
	return lacks <= 0 || (ops && lacks < BATCH_LEAST && lacks < depth->ops / 2)
		   ? 0
		   : (int)least((uint64_t)lacks, WF_BATCH);
}

static void gather(struct wf_group *group, struct wf_seat *seat, struct wf_batch *batch, int share)
{
	int passed = 0;

	while (batch->count < share && passed < MOST_TRIED && !wf_list_empty(&group->runnable)) {
		struct wf_lane *lane = wf_container(group->runnable.next, struct wf_lane, runnable);
		struct wf_path *path = &lane->path[seat->place];
		int room = room_on(seat, path, batch, share), pulled;

		if (!lane->quantum)
			next_lane(group, lane);
		pulled = room ? pull_lane(batch, seat, lane, path, room) : 0;
		if (pulled) {
			if (!lane->quantum)
				next_lane(group, lane);
			continue;
		}
		passed++;
		if (wf_list_empty(&lane->parts))
			wf_list_remove(&lane->runnable);
		else if (group->runnable.next == group->runnable.prev)
			return; /* one lane, and this rail can do nothing for it now */
		else
			next_lane(group, lane);
	}
}

/* ---- posting ---- */

static void unpull(struct wf_piece *piece)
{
	piece->path->ops--;
	piece->path->bytes -= piece->bytes;
	piece->path->immediates -= piece->part->counted;
	piece->part->in_flight--;
	wf_returned_put(piece);
}

static void refused(struct wf_group *group, struct wf_seat *seat, struct wf_piece *piece, int error)
{
	struct wf_path *path = piece->path;
	struct wf_lane *lane = piece->part->lane;
	uint64_t now = wf_group_now(group);

	unpull(piece);
	if (piece->part->transfer->cards && wf_piece_card_refused(group, piece, seat, error))
		return;
	if (error == -EACCES && seat->limits.local && group->seats > 1) {
		piece->part->not_local = true;
		return;
	}
	if (error != -EAGAIN) {
		if (wf_piece_tried_enough(piece))
			wf_part_fail(group, piece->part, seat, error);
		wf_lane_path_failed(lane, path, wf_rail_last_error(seat->rail)->text);
		return;
	}
	/* Refused with nothing of ours in flight there: a connection that never comes up says EAGAIN for ever. */
	if (path->ops)
		path->stuck_ns = 0;
	else if (!path->stuck_ns)
		path->stuck_ns = now;
	else if (now - path->stuck_ns > group->engine->settings.rail_limit_ns)
		wf_lane_path_failed(lane, path, "the provider takes nothing");
}

/* The next run rings for this one too, if it is posted at once; but not reads for writes: EFA of libfabric 2.1 hangs on a read while
 * writes have not been rung for. */
static bool rings_later(const struct wf_batch *batch, int run)
{
	const struct wf_rma_run *next;

	if (run + 1 == batch->runs)
		return false;
	next = &batch->run[run + 1].rma;
	return batch->run[run].rma.read == next->read && !next->alone && !next->cards;
}

/* How many of the batch were posted; the last one that is rings. */
static int post(struct wf_seat *seat, struct wf_batch *batch, int *ret_error)
{
	int sent = 0;

	*ret_error = 0;
	for (int i = 0; i < batch->runs && !*ret_error; i++)
		sent += wf_rail_rma(seat->rail, &batch->run[i].rma, &batch->rma[sent], batch->run[i].count,
				    rings_later(batch, i), ret_error);
	return sent;
}

/* A peer whose rails cannot wake it naps longer and longer while it is only written to. A frame that means nothing keeps it
 * awake, often enough that its queue does not fill up. */
static void nudge(struct wf_group *group, struct wf_seat *seat, struct wf_peer *peer)
{
	if (wf_group_now(group) - seat->nudged_ns < NUDGE_NS || peer->home != group)
		return;
	seat->nudged_ns = wf_group_now(group);
	wf_peer_send_plain(peer, WF_FRAME_NUDGE);
}

/* Either end's NIC may need its software to poll. */
static bool must_look(const struct wf_seat *seat, const struct wf_piece *piece)
{
	return seat->limits.target_looks || piece->part->lane->book->rail[piece->path->remote].looks;
}

/* What was posted, by path: once per run, so that a piece costs nothing. */
static void count_runs(const struct wf_batch *batch, int sent)
{
	for (int i = 0, at = 0; i < batch->runs && at < sent; at += batch->run[i++].count) {
		struct wf_path *path = batch->piece[at]->path;
		int count = batch->run[i].count < sent - at ? batch->run[i].count : sent - at;
		uint64_t bytes = batch->runs == 1 ? batch->bytes : 0;

		for (int j = at; batch->runs > 1 && j < at + count; j++)
			bytes += batch->rma[j].bytes;
		wf_carried_count(path->carrying, batch->run[i].rma.read, (uint64_t)count, bytes);
		path->stuck_ns = 0; /* the provider takes something */
	}
}

int wf_stripe_seat(struct wf_group *group, struct wf_seat *seat, const struct wf_depth *depth)
{
	struct wf_batch batch;
	int sent, error, share;

	if (!atomic_load_explicit(&seat->up, memory_order_relaxed) || seat->reset_due ||
	    wf_list_empty(&group->runnable))
		return 0;
	share = room_below(group, seat, depth);
	if (!share)
		return 0;
	batch.count = batch.runs = 0;
	batch.bytes = 0;
	gather(group, seat, &batch, share);
	if (!batch.count)
		return 0;
	sent = post(seat, &batch, &error);
	for (int i = sent; i < batch.count; i++)
		batch.bytes -= batch.rma[i].bytes;
	seat->ops += (uint32_t)sent;
	group->on_nic += (uint32_t)sent;
	count_runs(&batch, sent);
	if (sent) {
		wf_count(batch.run[0].rma.read ? &seat->count.reads : &seat->count.writes, (uint64_t)sent);
		wf_count(&seat->count.bytes, batch.bytes);
		if (must_look(seat, batch.piece[0]))
			nudge(group, seat, batch.piece[0]->part->lane->peer);
	}
	/* Backwards, so that they come again in the order they had. */
	for (int i = batch.count - 1; i > sent; i--)
		unpull(batch.piece[i]);
	if (sent < batch.count) {
		refused(group, seat, batch.piece[sent], error);
		if (wf_rail_unrung(seat->rail))
			wf_seat_ring(seat);
	}
	return sent;
}
