/*
 * Striping: a rail that has room pulls the next pieces of the next transfer. Pieces are not dealt out in advance, so a
 * slow or busy rail carries less and a dead one nothing; lanes and parts take turns by bytes. The hot path of the engine:
 * what is the same for a run of pieces is worked out once for the run. Runs on the group's worker.
 */
#include "engine/stripe.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"

#include <errno.h>
#include <limits.h>

#define BATCH        32 /* posts a rail's turn; the last one rings */
#define BATCH_LEAST  4
#define LOOK_AT      64 /* lanes a rail passes over in a turn */
#define NUDGE_NS     (500 * WF_US)
#define LANE_QUANTUM (1u << 20) /* bytes before the next peer's turn */

/* Pieces of one part, one after the other in a batch, that differ only in where they lie. */
struct run {
	struct wf_rma_run rma;
	char *local; /* of the slice */
	uint64_t remote;
	int count;
};

struct batch {
	int count, runs;
	uint64_t bytes;
	struct wf_piece *piece[BATCH];
	struct wf_rma rma[BATCH];
	struct run run[BATCH];
	struct wf_rma_range range[BATCH][WF_RMA_RANGES]; /* of pieces that gather small pages */
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- from units to memory ---- */

static bool claim_more(struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;
	uint64_t first;

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
	part->end = least(first + transfer->claim, transfer->units);
	return true;
}

static uint64_t page_at(const uint32_t *index, uint64_t i)
{
	return index ? index[i] : i;
}

/* How many pages from first on lie side by side at both ends, within the limit and the claim. */
static uint64_t adjacent(const struct wf_transfer *transfer, uint64_t first, uint64_t end)
{
	uint64_t most = least(transfer->most_adjacent, end - first), n = 1;
	uint64_t local = page_at(transfer->local_index, first), remote = page_at(transfer->remote_index, first);

	while (n < most && page_at(transfer->local_index, first + n) == local + n &&
	       page_at(transfer->remote_index, first + n) == remote + n)
		n++;
	return n;
}

/* Pages that lie apart but are small enough to share an operation, each range as long as pages are adjacent. */
static void locate_ranges(const struct wf_transfer *transfer, const struct run *run, const struct wf_piece *piece,
			  struct wf_rma_range *ranges, struct wf_rma *rma)
{
	uint64_t unit = piece->unit, end = piece->unit + piece->units;

	rma->ranges = ranges;
	rma->range_count = 0;
	rma->bytes = piece->units * transfer->page_bytes;
	while (unit < end) {
		uint64_t pages = adjacent(transfer, unit, end);
		struct wf_rma_range *range = &ranges[rma->range_count++];

		range->local = run->local + page_at(transfer->local_index, unit) * transfer->local_stride;
		range->remote = run->remote + page_at(transfer->remote_index, unit) * transfer->remote_stride;
		range->bytes = pages * transfer->page_bytes;
		unit += pages;
	}
}

/* How many pages from first on make one operation of up to so many ranges. */
static uint64_t gathered(const struct wf_transfer *transfer, uint64_t first, uint64_t end)
{
	uint64_t units = 0;

	for (uint32_t i = 0; i < transfer->ranges && first + units < end; i++)
		units += adjacent(transfer, first + units, end);
	return units;
}

static void locate_page(const struct wf_transfer *transfer, const struct run *run, const struct wf_piece *piece,
			struct wf_rma *rma)
{
	uint64_t page = piece->unit, cut = 0;

	rma->bytes = piece->units * transfer->page_bytes;
	if (transfer->cuts > 1) {
		cut = piece->unit % transfer->cuts * transfer->unit_bytes;
		page = piece->unit / transfer->cuts;
		rma->bytes = least(transfer->page_bytes - cut, transfer->unit_bytes);
	}
	rma->local = run->local + page_at(transfer->local_index, page) * transfer->local_stride + cut;
	rma->remote = run->remote + page_at(transfer->remote_index, page) * transfer->remote_stride + cut;
}

static void locate_cut(const struct wf_transfer *transfer, const struct wf_slice *slice, const struct run *run,
		       const struct wf_piece *piece, struct wf_rma *rma)
{
	uint64_t offset = (piece->unit - slice->first_unit) * transfer->unit_bytes;

	rma->bytes = least(slice->bytes - offset, transfer->unit_bytes);
	rma->local = run->local + offset;
	rma->remote = run->remote + offset;
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

/* False: the peer's memory has no key on that rail. */
static bool open_run(struct wf_seat *seat, struct wf_path *path, struct wf_transfer *transfer, struct wf_slice *slice,
		     struct run *run)
{
	struct wf_remote *remote = slice->remote;

	if (!(remote->rails & UINT64_C(1) << path->remote))
		return false;
	run->rma.desc = slice->region->memory[seat->index].desc;
	run->rma.target = path->target;
	run->rma.key = remote->key[path->remote].key;
	run->rma.immediate = transfer->immediate;
	run->rma.has_immediate = transfer->notify == WEFT_NOTIFY_COUNTED;
	run->rma.read = transfer->kind == WF_READ;
	run->local = slice->region->base + slice->local;
	run->remote = remote->key[path->remote].base + slice->remote_offset;
	run->count = 0;
	return true;
}

/* ---- pulling ---- */

/* In place for both who call it: a call a piece is more than the rest of it. */
static inline __attribute__((always_inline)) struct wf_piece *next_piece(struct wf_group *group, struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;
	struct wf_piece *piece = part->again;

	if (piece) {
		part->again = piece->next;
		return piece;
	}
	if (part->next >= part->end && !claim_more(part))
		return NULL;
	piece = wf_group_take_piece(group);
	if (!piece)
		return NULL;
	piece->part = part;
	piece->attempts = 0;
	piece->unit = part->next;
	piece->units = (uint32_t)(transfer->ranges > 1          ? gathered(transfer, part->next, part->end)
				  : transfer->most_adjacent > 1 ? adjacent(transfer, part->next, part->end)
								: 1);
	part->next += piece->units;
	return piece;
}

/* What was pulled is in flight: posted right after, or unpulled. */
static void pulled_from(struct batch *batch, struct wf_path *path, struct wf_part *part, int pulled, uint64_t bytes)
{
	batch->bytes += bytes;
	path->ops += (uint32_t)pulled;
	part->lane->ops += (uint32_t)pulled;
	path->bytes += bytes;
	part->in_flight += (uint32_t)pulled;
	part->quantum -= (uint32_t)least(part->quantum, bytes);
	if (part->counted)
		path->immediates += (uint32_t)pulled;
}

/* Pages up to most or the end of the claim: the loop that all of a large transfer goes through, so what does not change in
 * it is in locals, where no store through a pointer can touch it. */
static int fill_plain(struct batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_part *part, int most)
{
	const struct wf_transfer *transfer = part->transfer;
	const struct run *run = &batch->run[batch->runs - 1];
	const uint32_t *local_index = transfer->local_index, *remote_index = transfer->remote_index;
	uint64_t local_stride = transfer->local_stride, remote_stride = transfer->remote_stride;
	uint64_t bytes = transfer->page_bytes, page = part->next, now = wf_group_now(seat->group), remote = run->remote;
	char *local = run->local;
	struct wf_rma *rma = &batch->rma[batch->count];
	struct wf_piece **into = &batch->piece[batch->count], *piece;
	int filled = 0;

	most = (int)least((uint64_t)most, part->end - page);
	for (; filled < most && (piece = wf_group_take_piece(seat->group)); filled++, page++, rma++) {
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
		rma->local = local + page_at(local_index, page) * local_stride;
		rma->remote = remote + page_at(remote_index, page) * remote_stride;
		into[filled] = piece;
	}
	part->next = page;
	batch->count += filled;
	return filled;
}

static int pull_plain(struct batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_part *part, int room,
		      uint64_t budget)
{
	uint64_t page_bytes = part->transfer->page_bytes;
	int most = (int)least((uint64_t)room, (budget + page_bytes - 1) / page_bytes), pulled = 0, filled = 1;

	if ((part->next >= part->end && !claim_more(part)) ||
	    !open_run(seat, path, part->transfer, part->transfer->slice, &batch->run[batch->runs]))
		return 0;
	batch->runs++;
	while (filled && pulled < most && (part->next < part->end || claim_more(part))) {
		filled = fill_plain(batch, seat, path, part, most - pulled);
		pulled += filled;
	}
	batch->run[batch->runs - 1].count = pulled;
	batch->runs -= !pulled; /* a run of none would leave the one before it without a ring */
	pulled_from(batch, path, part, pulled, (uint64_t)pulled * page_bytes);
	return pulled;
}

static inline void locate_one(const struct wf_transfer *transfer, const struct wf_slice *slice, const struct run *run,
			      const struct wf_piece *piece, struct wf_rma *rma)
{
	rma->ranges = NULL;
	if (transfer->paged)
		locate_page(transfer, run, piece, rma);
	else
		locate_cut(transfer, slice, run, piece, rma);
}

/* What is located is the batch's. */
static inline void append(struct batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_piece *piece,
			  bool read)
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

/* The keys of the tiles that a piece lies in, of which there may be some at either end. */
static void choose_tiles(struct run *run, const struct wf_rail_memory *near, const struct wf_remote_key *far,
			 uint64_t offset, uint64_t remote)
{
	const struct wf_rail_tiles *tiles = near->tiles;

	if (tiles)
		run->rma.desc = tiles->tile[wf_tile_at(offset, tiles->step, tiles->count)].desc;
	if (far->tiles)
		run->rma.key = far->tile[wf_tile_at(remote - far->base, far->step, far->tiles)];
}

/* As pull_part(), for memory with tiles: a run ends where the tile does. */
static int pull_tiled(struct batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_part *part, int room,
		      uint64_t budget)
{
	struct wf_transfer *transfer = part->transfer;
	int first = batch->count, first_run = batch->runs;
	uint64_t bytes = 0;

	while (batch->count - first < room && bytes < budget) {
		struct wf_piece *piece = next_piece(seat->group, part);
		struct wf_rma *rma = &batch->rma[batch->count];
		struct run *run = &batch->run[batch->runs];
		struct wf_slice *slice;

		if (!piece)
			break;
		slice = transfer->paged ? transfer->slice : slice_at(part, piece->unit);
		if (!open_run(seat, path, transfer, slice, run)) {
			wf_piece_again(piece);
			break;
		}
		locate_one(transfer, slice, run, piece, rma);
		choose_tiles(run, &slice->region->memory[seat->index], &slice->remote->key[path->remote],
			     (uint64_t)((char *)rma->local - slice->region->base), rma->remote);
		if (batch->runs > first_run && run[-1].rma.key == run->rma.key && run[-1].rma.desc == run->rma.desc)
			run--;
		else
			batch->runs++;
		append(batch, seat, path, piece, transfer->kind == WF_READ);
		bytes += rma->bytes;
		run->count++;
	}
	pulled_from(batch, path, part, batch->count - first, bytes);
	return batch->count - first;
}

/* Up to room pieces of this part, within its budget of bytes, appended to the batch. */
static int pull_part(struct batch *batch, struct wf_seat *seat, struct wf_path *path, struct wf_part *part, int room,
		     uint64_t budget)
{
	struct wf_transfer *transfer = part->transfer;
	struct wf_slice *slice = NULL;
	struct run *run = NULL;
	uint64_t bytes = 0;
	int first = batch->count;

	if (room <= 0 || !budget)
		return 0;
	/* Every page is a piece of its own and none came back: most transfers, most of the time. */
	if (transfer->plain && !part->again)
		return pull_plain(batch, seat, path, part, room, budget);
	if (transfer->tiled)
		return pull_tiled(batch, seat, path, part, room, budget);
	while (batch->count - first < room && bytes < budget) {
		struct wf_piece *piece = next_piece(seat->group, part);
		struct wf_rma *rma = &batch->rma[batch->count];
		struct wf_slice *here;

		if (!piece)
			break;
		here = transfer->paged ? transfer->slice : slice_at(part, piece->unit);
		if (here != slice) {
			slice = here;
			run = &batch->run[batch->runs];
			if (!open_run(seat, path, transfer, slice, run)) {
				wf_piece_again(piece);
				break;
			}
			batch->runs++;
		}
		if (transfer->ranges > 1 && piece->units > 1)
			locate_ranges(transfer, run, piece, batch->range[batch->count], rma);
		else
			locate_one(transfer, slice, run, piece, rma);
		append(batch, seat, path, piece, transfer->kind == WF_READ);
		bytes += rma->bytes;
		run->count++;
	}
	pulled_from(batch, path, part, batch->count - first, bytes);
	return batch->count - first;
}

/* Immediates that the peer has not read yet are rationed. */
static int room_for(const struct wf_part *part, const struct wf_path *path, int room)
{
	if (!part->counted)
		return room;
	if (path->immediates >= path->immediates_limit)
		return 0;
	return (int)least((uint64_t)room, path->immediates_limit - path->immediates);
}

static int pull_lane(struct batch *batch, struct wf_seat *seat, struct wf_lane *lane, struct wf_path *path, int room)
{
	uint64_t budget = least(path->window_bytes - path->bytes, lane->quantum), before = path->bytes;

	for (int looked = 0; looked < LOOK_AT && !wf_list_empty(&lane->parts); looked++) {
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

static int room_on(const struct wf_seat *seat, const struct wf_path *path, const struct batch *batch, int share)
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

/* What the lane has for the group's rails to share, as far as a short look tells. */
static uint64_t units_at_hand(const struct wf_lane *lane, uint64_t enough)
{
	uint64_t units = 0;
	int looked = 0;

	for (struct wf_link *link = lane->parts.next; link != &lane->parts && units < enough && looked < 16;
	     link = link->next) {
		const struct wf_part *part = wf_container(link, struct wf_part, link);
		uint64_t next = atomic_load_explicit(&part->transfer->next_unit, memory_order_relaxed);

		if (part->again || part->spare || atomic_load_explicit(&part->transfer->spares, memory_order_relaxed))
			units += lane->group->seats; /* pieces that came back: one for each rail, whoever is first */
		units += part->end - part->next + (next < part->transfer->units ? part->transfer->units - next : 0);
		looked++;
	}
	return units;
}

/* Up to which number of operations to the peer each rail is filled this turn: what is in flight to it and what there is, spread
 * evenly. A slow rail's queue stays above it and takes nothing, a fast one's falls below: still pull, but nobody runs dry
 * while others hold more than their share. What other peers have on a rail does not count: they may be dead. */
struct wf_level wf_stripe_level(const struct wf_group *group)
{
	const struct wf_lane *lane = group->seats > 1 ? only_lane(group) : NULL;
	uint64_t paths, level;

	if (!lane)
		return (struct wf_level){ NULL, 0 }; /* several peers: each rail finds its own */
	paths = atomic_load_explicit(&lane->paths_up, memory_order_relaxed);
	paths = paths ? paths : 1;
	level = (lane->ops + units_at_hand(lane, (uint64_t)BATCH * group->seats) + paths - 1) / paths;
	/* At least one: parts that have nothing left are found, and ended, by whoever looks for a piece. */
	return (struct wf_level){ lane, level ? (int)level : 1 };
}

/* Room for a few at least, or the rail is passed over: batches are cheaper. */
static int room_below(const struct wf_group *group, const struct wf_seat *seat, const struct wf_level *level)
{
	uint32_t ops;
	int lacks;

	if (!level->lane || only_lane(group) != level->lane)
		return BATCH;
	ops = level->lane->path[seat->place].ops;
	lacks = level->ops - (int)least(ops, INT_MAX);
	return lacks <= 0 || (ops && lacks < BATCH_LEAST && lacks < level->ops / 2)
		   ? 0
		   : (int)least((uint64_t)lacks, BATCH);
}

static void gather(struct wf_group *group, struct wf_seat *seat, struct batch *batch, int share)
{
	int passed = 0;

	while (batch->count < share && passed < LOOK_AT && !wf_list_empty(&group->runnable)) {
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
	piece->part->lane->ops--;
	piece->path->bytes -= piece->bytes;
	piece->path->immediates -= piece->part->counted;
	piece->part->in_flight--;
	wf_piece_again(piece);
}

static void refused(struct wf_group *group, struct wf_seat *seat, struct wf_piece *piece, int error)
{
	struct wf_path *path = piece->path;
	struct wf_lane *lane = piece->part->lane;
	uint64_t now = wf_group_now(group);

	unpull(piece);
	if (error != -EAGAIN) {
		if (wf_piece_tried_enough(piece))
			wf_part_fail(group, piece->part, seat, error);
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

/* How many of the batch were posted; the last one that is rings. */
/* The next run rings for this one too, but not reads for writes: EFA of libfabric 2.1 hangs on a read while writes have not
 * been rung for. */
static bool rings_later(const struct batch *batch, int run)
{
	return run + 1 < batch->runs && batch->run[run].rma.read == batch->run[run + 1].rma.read;
}

static int post(struct wf_seat *seat, struct batch *batch, int *ret_error)
{
	int sent = 0;

	*ret_error = 0;
	for (int i = 0; i < batch->runs && !*ret_error; i++)
		sent += wf_rail_rma(seat->rail, &batch->run[i].rma, &batch->rma[sent], batch->run[i].count,
				    rings_later(batch, i), ret_error);
	return sent;
}

/* A peer whose rails have nothing to wake it naps ever longer while it is only written to: a frame that means nothing
 * keeps it looking, often enough that its queue does not fill up meanwhile. */
static void nudge(struct wf_group *group, struct wf_seat *seat, struct wf_peer *peer)
{
	if (wf_group_now(group) - seat->nudged_ns < NUDGE_NS || peer->home != group)
		return;
	seat->nudged_ns = wf_group_now(group);
	wf_peer_send_plain(peer, WF_FRAME_NUDGE);
}

/* Either end's NIC may be the one that cannot write by itself. */
static bool must_look(const struct wf_seat *seat, const struct wf_piece *piece)
{
	return seat->limits.target_looks || piece->part->lane->book->rail[piece->path->remote].looks;
}

int wf_stripe_seat(struct wf_group *group, struct wf_seat *seat, const struct wf_level *level)
{
	struct batch batch;
	int sent, error, share;

	if (!atomic_load_explicit(&seat->up, memory_order_relaxed) || seat->doomed || wf_list_empty(&group->runnable))
		return 0;
	share = room_below(group, seat, level);
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
	for (int i = 0, at = 0; i < batch.runs && at < sent; at += batch.run[i++].count)
		batch.piece[at]->path->stuck_ns = 0; /* the provider takes something */
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
