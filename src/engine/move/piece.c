/* What becomes of a piece that was posted; piece.h says which ends there are. Runs on the group's worker. */
#include "engine/move/piece.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/handover.h"
#include "engine/move/part.h"
#include "engine/move/quarantine.h"
#include "engine/move/returned.h"
#include "engine/ops/transfer.h"
#include "engine/ops/verify.h"
#include "engine/peer/grants.h"
#include "engine/peer/peer.h"

#include <errno.h>

#define WINDOW_PERIOD_NS (10 * WF_MS)
#define WINDOW_LEAST     (256u << 10)
#define ATTEMPTS         8 /* of one piece, before its transfer fails */

struct wf_piece *wf_piece_fresh(struct wf_group *group)
{
	return group->pieces_used < group->piece_count ? &group->piece[group->pieces_used++] : NULL;
}

bool wf_piece_tried_enough(struct wf_piece *piece)
{
	return ++piece->attempts > ATTEMPTS;
}

static void leave(struct wf_piece *piece)
{
	struct wf_path *path = piece->path;

	path->ops--;
	path->bytes -= piece->bytes;
	piece->part->in_flight--;
	if (piece->part->counted)
		wf_lane_immediate_done(piece->part->lane, path);
}

/* The piece that its units go on in: another one if there is one, while this one is in quarantine. */
static struct wf_piece *replace(struct wf_group *group, struct wf_piece *piece)
{
	struct wf_piece *fresh = wf_piece_take(group);

	if (!fresh)
		return piece;
	fresh->part = piece->part;
	fresh->unit = piece->unit;
	fresh->units = piece->units;
	fresh->bytes = piece->bytes;
	fresh->attempts = piece->attempts;
	wf_quarantine_piece(group, piece);
	return fresh;
}

/* blamed: the piece itself failed. A piece that is taken back because of another may go again any number of times, until its
 * deadline. */
static void again_or_fail(struct wf_group *group, struct wf_piece *piece, struct wf_seat *seat, int status, bool blamed)
{
	struct wf_part *part = piece->part;

	/* A peer that must look at what arrives may still look at this. */
	if (!seat->limits.close_quiesces || !wf_rail_is_quiet(seat->rail) ||
	    part->lane->book->rail[piece->path->remote].looks)
		part->may_still_land = true;
	if (part->stop_ns) {
		wf_quarantine_piece(group, piece);
		return;
	}
	atomic_fetch_add_explicit(&seat->count.retries, 1, memory_order_relaxed);
	piece = replace(group, piece);
	wf_returned_put(piece);
	/* An immediate may have been counted already: posting it again could count it twice. */
	if ((blamed ? wf_piece_tried_enough(piece) : piece->attempts > ATTEMPTS) || part->counted)
		wf_part_fail(group, part, seat, status);
	else if (part->gave_up)
		wf_part_hand_over(group, part);
}

/* About 40 ms of what the path carries: a slow link gets no more than it can soon move, a fast one is not held up. */
static void adapt_window(struct wf_path *path, const struct wf_rail_limits *limits, uint64_t bytes, uint64_t now_ns)
{
	path->landed_bytes += bytes;
	if (now_ns - path->landed_since_ns < WINDOW_PERIOD_NS)
		return;
	/* After a pause the period says nothing about the link. */
	if (now_ns - path->landed_since_ns < 4 * WINDOW_PERIOD_NS) {
		uint64_t window = path->landed_bytes * WINDOW_PERIOD_NS / (now_ns - path->landed_since_ns) * 4;

		path->window_bytes = window < WINDOW_LEAST           ? WINDOW_LEAST
				     : window > limits->window_bytes ? limits->window_bytes
								     : window;
	}
	path->landed_bytes = 0;
	path->landed_since_ns = now_ns;
}

void wf_landing_end(struct wf_group *group, struct wf_seat *seat, struct wf_landing *landing)
{
	struct wf_part *part = landing->part;
	struct wf_path *path = landing->path;

	if (!part)
		return;
	path->ops -= landing->count;
	path->bytes -= landing->bytes;
	if (path->unproved)
		path->unproved -= (uint16_t)(landing->count < path->unproved ? landing->count : path->unproved);
	part->in_flight -= landing->count;
	part->bytes += landing->bytes;
	if (seat->limits.adapts)
		adapt_window(path, &seat->limits, landing->bytes, wf_group_now(group));
	atomic_store_explicit(&path->moved_ns, wf_group_now(group), memory_order_relaxed);
	for (uint32_t i = 0; part->counted && i < landing->count; i++)
		wf_lane_immediate_done(part->lane, path);
	*landing = (struct wf_landing){ 0 };
	if (!part->in_flight)
		wf_part_maybe_done(group, part);
}

/* It was counted as carried when it was posted. */
static void uncount(const struct wf_piece *piece)
{
	wf_carried_uncount(piece->path->carrying, piece->wr.kind == WF_WR_READ, piece->bytes);
}

/* Was a copy refused because of what the memory at either end is, or what it grants? */
static bool is_refusal(int status)
{
	return status == -EACCES || status == -EFAULT || status == -EOPNOTSUPP;
}

/* No other path carries a card's memory, and the local one is not to blame: the operation waits, for a driver that starts, or for
 * the peer, or it fails. */
bool wf_piece_card_refused(struct wf_group *group, struct wf_piece *piece, struct wf_seat *seat, int error)
{
	if (error == -EAGAIN)
		return true;
	if (!is_refusal(error) && error != -ERANGE && error != -ENOMEM)
		return false;
	wf_part_fail(group, piece->part, seat, error == -ENOMEM ? -EIO : -EACCES);
	return true;
}

void wf_piece_failed(struct wf_group *group, struct wf_piece *piece, int status)
{
	struct wf_part *part = piece->part;
	struct wf_seat *seat = piece->seat;

	bool blamed = wf_rail_is_open(seat->rail, WF_OUTGOING); /* else we closed it ourselves */
	bool card = status == -ENOTRECOVERABLE;

	leave(piece);
	uncount(piece);
	if (card) { /* it fails again however often it is tried, and the path is as good as before */
		piece->attempts = ATTEMPTS;
		status = -EIO;
	} else if (part->transfer->cards && seat->limits.local && is_refusal(status)) {
		piece->attempts = ATTEMPTS;
		card = true;
	}
	if (card)
		atomic_fetch_add_explicit(&seat->count.errors, 1, memory_order_relaxed);
	else if (blamed) {
		atomic_fetch_add_explicit(&seat->count.errors, 1, memory_order_relaxed);
		wf_lane_path_failed(part->lane, piece->path, wf_rail_last_error(seat->rail)->text);
	}
	again_or_fail(group, piece, seat, status, blamed);
	if (!part->in_flight)
		wf_part_maybe_done(group, part);
}

void wf_piece_taken_back(struct wf_group *group, struct wf_piece *piece)
{
	struct wf_part *part = piece->part;
	struct wf_seat *seat = piece->seat;

	seat->ops--;
	group->on_nic--;
	leave(piece);
	uncount(piece);
	again_or_fail(group, piece, seat, -EIO, false);
	if (!part->in_flight)
		wf_part_maybe_done(group, part);
}
