/* Starting, failing, stopping and ending a group's share of a transfer; part.h says what that is. Runs on the group's worker. */
#include "engine/move/part.h"
#include "base/error.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/piece.h"
#include "engine/move/reset.h"
#include "engine/move/returned.h"
#include "engine/ops/explain.h"
#include "engine/ops/transfer.h"
#include "engine/peer/label.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define GRACE_NS (40 * WF_MS) /* a stopped transfer's pieces may take this long to leave the NIC by themselves, … */
#define GRACE    2            /* … or this many times what pieces take there */

bool wf_part_exhausted(const struct wf_part *part)
{
	struct wf_transfer *transfer = part->transfer;

	if (part->returned || part->next < part->end)
		return false;
	return part->gave_up || (atomic_load_explicit(&transfer->next_unit, memory_order_relaxed) >= transfer->units &&
				 !atomic_load_explicit(&transfer->returned, memory_order_relaxed));
}

/* The transfer cannot be saved: say why and have its home stop all of it. */
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
	wf_peer_name(transfer->peer, error.peer);
	/* If we closed the endpoint ourselves, the provider has no text for it. */
	snprintf(error.text, sizeof(error.text), "%s: %s", wf_error_text(why),
		 last->text[0] ? last->text
		 : seat->why   ? seat->why
			       : "the rail was reset");
	wf_transfer_set_error(transfer, &error);
	/* The note counts as a part: the slot cannot be another's, with another home, before it is heard. Ours is alive, so there
	 * is something to add to. */
	atomic_fetch_add(&transfer->parts_left, 1);
	wf_note_tell(group, transfer->peer->home, &transfer->failed_note);
}

void wf_part_fail(struct wf_group *group, struct wf_part *part, struct wf_seat *seat, int status)
{
	fail_transfer(group, part, seat, status);
	/* Ours at once: what has failed must not be posted again until the home's word comes. */
	wf_part_stop(group, part->transfer, part->id);
}

void wf_part_start(struct wf_group *group, struct wf_transfer *transfer)
{
	struct wf_part *part = &transfer->part[group->index];
	struct wf_lane *lane = transfer->peer->lane[group->index];

	if (part->alive) { /* it runs already and was given more: still one part */
		atomic_fetch_sub(&transfer->parts_left, 1);
		part->gave_up = false;
		if (!part->stop_ns && !wf_link_linked(&part->link))
			wf_list_append(&lane->parts, &part->link);
		wf_lane_runnable(lane);
		return;
	}
	memset(part, 0, offsetof(struct wf_part, start_note)); /* others may tell those meanwhile */
	part->transfer = transfer;
	part->id = transfer->id;
	part->lane = lane;
	part->quantum = WF_PART_QUANTUM;
	part->counted = transfer->notify == WEFT_NOTIFY_COUNTED;
	part->checked = transfer->checked;
	part->alive = true;
	wf_list_init(&part->link);
	lane->alive++;
	if (wf_transfer_stop_status(transfer)) { /* the transfer was stopped before this note */
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

	if (!part->alive || part->in_flight)
		return;
	if (!part->stop_ns && !wf_part_exhausted(part)) {
		/* It had nothing left to post, and another group has given up units since: a rail must look again. */
		if (!wf_link_linked(&part->link)) {
			wf_list_append(&lane->parts, &part->link);
			wf_lane_runnable(lane);
		}
		return;
	}
	part->alive = false;
	wf_list_remove(&part->link);
	if (part->may_still_land)
		atomic_store(&transfer->may_still_land, 1);
	atomic_fetch_add(&transfer->bytes, part->bytes);
	if (transfer->checked)
		atomic_fetch_add(&transfer->sum, part->sum);
	lane->alive--;
	if (atomic_fetch_sub_explicit(&transfer->parts_left, 1, memory_order_acq_rel) == 1)
		wf_note_tell(group, transfer->peer->home, &transfer->parts_done_note);
	wf_lane_maybe_closed(lane);
}

void wf_part_stop(struct wf_group *group, struct wf_transfer *transfer, weft_transfer id)
{
	struct wf_part *part = &transfer->part[group->index];

	if (!part->alive || part->id != id || part->stop_ns)
		return;
	part->stop_ns = wf_group_now(group);
	wf_list_remove(&part->link);
	wf_returned_drop(group, part);
	if (part->in_flight) {
		uint64_t look_ns = part->stop_ns + 5 * WF_MS;

		wf_list_append(&group->stopping, &part->link);
		/* Only ever sooner: else a stream of stops would keep putting it off. */
		if (group->housekeeping.deadline_ns > look_ns)
			wf_timer_set(&group->worker.timers, &group->housekeeping, look_ns);
	}
	wf_part_maybe_done(group, part);
}

/* Taking a piece back makes every other piece on its rail go again, so on a link that is only slow we wait for it. */
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
				wf_reset_ask_to_stop(group->piece[i].seat);
	}
}
