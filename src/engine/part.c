/*
 * What becomes of pieces and parts: a piece has landed, is to be posted again, or was taken back from a rail that was
 * reset; a part starts, stops and is done. Runs on the group's worker.
 */
#include "base/error.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/stripe.h"
#include "engine/transfer.h"
#include "engine/verify.h"

#include <errno.h>
#include <stdio.h>

#define WINDOW_PERIOD_NS (10 * WF_MS)
#define WINDOW_LEAST     (256u << 10)
#define ATTEMPTS         8            /* of one piece, before its transfer fails */
#define GRACE_NS         (40 * WF_MS) /* a stopped transfer's pieces may take this long to leave the NIC by themselves, … */
#define GRACE            2            /* … or this many times what pieces take there */

struct wf_piece *wf_group_fresh_piece(struct wf_group *group)
{
	return group->pieces_used < group->piece_count ? &group->piece[group->pieces_used++] : NULL;
}

void wf_piece_again(struct wf_piece *piece)
{
	struct wf_part *part = piece->part;

	piece->seat = NULL;
	piece->next = part->again;
	part->again = piece;
	if (!wf_link_linked(&part->link))
		wf_list_append(&part->lane->parts, &part->link);
	wf_lane_runnable(part->lane);
}

/* ---- a rest for what failed ---- */

void wf_group_rest_piece(struct wf_group *group, struct wf_piece *piece)
{
	piece->seat = NULL;
	piece->next = group->rest[0].piece;
	group->rest[0].piece = piece;
}

void wf_group_rest_tx(struct wf_group *group, struct wf_tx_frame *frame)
{
	struct wf_rest *rest = &group->rest[0];

	if (rest->tx_count >= group->tx_count / 4) { /* others need them */
		wf_group_give_tx(group, frame);
		return;
	}
	frame->seat = NULL;
	frame->next = rest->tx;
	rest->tx = frame;
	rest->tx_count++;
}

void wf_group_end_rests(struct wf_group *group)
{
	struct wf_rest *rested = &group->rest[1];
	struct wf_tx_frame *frame;
	struct wf_piece *piece;

	while ((piece = rested->piece)) {
		rested->piece = piece->next;
		wf_group_give_piece(group, piece);
	}
	while ((frame = rested->tx)) {
		rested->tx = frame->next;
		wf_group_give_tx(group, frame);
	}
	*rested = group->rest[0];
	group->rest[0] = (struct wf_rest){ 0 };
}

/* Its work goes on in another one, while there is one; it itself rests. */
static struct wf_piece *relieve(struct wf_group *group, struct wf_piece *piece)
{
	struct wf_piece *fresh = wf_group_take_piece(group);

	if (!fresh)
		return piece;
	fresh->part = piece->part;
	fresh->unit = piece->unit;
	fresh->units = piece->units;
	fresh->bytes = piece->bytes;
	fresh->attempts = piece->attempts;
	wf_group_rest_piece(group, piece);
	return fresh;
}

bool wf_part_exhausted(const struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;

	if (part->again || part->next < part->end || part->spare)
		return false;
	return part->gave_up || (atomic_load_explicit(&transfer->next_unit, memory_order_relaxed) >= transfer->units &&
				 !atomic_load_explicit(&transfer->spares, memory_order_relaxed));
}

/* ---- pieces that come back ---- */

bool wf_piece_tried_enough(struct wf_piece *piece)
{
	return ++piece->attempts > ATTEMPTS;
}

static void leave(struct wf_piece *piece)
{
	struct wf_path *path = piece->path;

	path->ops--;
	piece->part->lane->ops--;
	path->bytes -= piece->bytes;
	piece->part->in_flight--;
	if (piece->part->counted)
		wf_lane_immediate_done(piece->part->lane, path);
}

/* The transfer cannot be saved: say why and stop all of it, from its home. */
void wf_part_fail(struct wf_group *group, struct wf_part *part, struct wf_seat *seat, int status)
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
	/* The provider has said nothing when it was us who closed the endpoint. */
	snprintf(error.text, sizeof(error.text), "%s: %s", wf_error_text(why),
		 last->text[0] ? last->text
		 : seat->why   ? seat->why
			       : "the rail was reset");
	wf_transfer_set_error(transfer, &error);
	wf_group_tell(group, transfer->peer->home, WF_NOTE_STOP, transfer, transfer->id);
}

/* blamed: the piece itself failed. One that is taken back on another's account may go again any number of times, until its
 * deadline. */
static void again_or_fail(struct wf_group *group, struct wf_piece *piece, struct wf_seat *seat, int status, bool blamed)
{
	struct wf_part *part = piece->part;

	if (!seat->limits.close_quiesces)
		part->unquiet = true;
	if (part->stop_ns) {
		wf_group_rest_piece(group, piece);
		return;
	}
	atomic_fetch_add_explicit(&seat->count.retries, 1, memory_order_relaxed);
	piece = relieve(group, piece);
	wf_piece_again(piece);
	/* An immediate may have been counted already: posting it again could count it twice. */
	if ((blamed ? wf_piece_tried_enough(piece) : piece->attempts > ATTEMPTS) || part->counted)
		wf_part_fail(group, part, seat, status);
	else if (part->gave_up)
		wf_part_hand_over(group, part);
}

/* About 40 ms of what the path carries: a slow link is not given more than it can move soon, a fast one is not held up. */
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

void wf_piece_landed(struct wf_group *group, struct wf_seat *seat, struct wf_piece *piece)
{
	struct wf_part *part = piece->part;

	leave(piece);
	if (seat->limits.adapts)
		adapt_window(piece->path, &seat->limits, piece->bytes, wf_group_now(group));
	atomic_store_explicit(&piece->path->moved_ns, wf_group_now(group), memory_order_relaxed);
	part->bytes += piece->bytes;
	if (part->checked)
		part->sum += wf_sum_units(part->transfer, piece->unit, piece->units);
	wf_group_give_piece(group, piece);
	if (!part->in_flight)
		wf_part_maybe_done(group, part);
}

void wf_piece_failed(struct wf_group *group, struct wf_piece *piece, int status)
{
	struct wf_part *part = piece->part;
	struct wf_seat *seat = piece->seat;

	bool blamed = wf_rail_is_open(seat->rail, WF_OUTGOING); /* else we closed it ourselves */

	leave(piece);
	if (blamed) {
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
	again_or_fail(group, piece, seat, -EIO, false);
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
	*part = (struct wf_part){ .transfer = transfer,
				  .id = transfer->id,
				  .lane = lane,
				  .quantum = WF_PART_QUANTUM,
				  .counted = transfer->notify == WEFT_NOTIFY_COUNTED,
				  .checked = transfer->checked,
				  .alive = true };
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

	if (!part->alive || part->in_flight || (!part->stop_ns && !wf_part_exhausted(part)))
		return;
	part->alive = false;
	wf_list_remove(&part->link);
	if (part->unquiet)
		atomic_store(&transfer->unquiet, 1);
	atomic_fetch_add(&transfer->bytes, part->bytes);
	if (transfer->checked)
		atomic_fetch_add(&transfer->sum, part->sum);
	lane->alive--;
	if (atomic_fetch_sub_explicit(&transfer->parts_left, 1, memory_order_acq_rel) == 1)
		wf_group_tell(group, transfer->peer->home, WF_NOTE_PARTS_DONE, transfer, 0);
	wf_lane_maybe_closed(lane);
}

void wf_part_stop(struct wf_group *group, struct wf_transfer *transfer, weft_transfer id)
{
	struct wf_part *part = &transfer->part[group->index];
	struct wf_piece *piece;

	if (!part->alive || part->id != id)
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
		uint64_t look_ns = part->stop_ns + 5 * WF_MS;

		wf_list_append(&group->stopping, &part->link);
		/* Sooner, never later: a stream of stops would put it off for as long as it lasts. */
		if (group->housekeeping.deadline_ns > look_ns)
			wf_timer_set(&group->worker.timers, &group->housekeeping, look_ns);
	}
	wf_part_maybe_done(group, part);
}

/* To take a piece back costs every other on its rail another try: on a link that is merely slow it is waited for. */
static uint64_t grace_ns(const struct wf_seat *seat)
{
	uint64_t grace = GRACE * seat->pace.took_ns, most = seat->group->engine->settings.rail_limit_ns;

	grace = grace < most ? grace : most;
	return grace > GRACE_NS ? grace : GRACE_NS;
}

void wf_part_check_stopping(struct wf_group *group, uint64_t now_ns)
{
	for (struct wf_link *link = group->stopping.next; link != &group->stopping; link = link->next) {
		struct wf_part *part = wf_container(link, struct wf_part, link);

		if (now_ns < part->stop_ns + GRACE_NS)
			continue;
		for (uint32_t i = 0; i < group->pieces_used; i++)
			if (group->piece[i].seat && group->piece[i].part == part &&
			    now_ns >= part->stop_ns + grace_ns(group->piece[i].seat))
				wf_seat_doom_to_stop(group->piece[i].seat);
	}
}
