/*
 * What no completion tells: events of the endpoints, receives that found no room, operations that never complete, work that
 * belongs elsewhere now, stopped parts that do not leave their NIC. Looked at ten times a second or more, by a timer of the
 * group's worker.
 */
#include "base/time.h"
#include "engine/engine.h"
#include "engine/group.h"
#include "engine/peer.h"
#include "engine/stripe.h"

#define HOUSEKEEPING_NS   (100 * WF_MS) /* or a quarter of the rails' limit */
#define STOPPING_CHECK_NS (5 * WF_MS)

/* A piece is long overdue. When its peer is heard from elsewhere the rail or its path is to blame and the only way to
 * take the piece back is to close the endpoint; when the peer is silent everywhere, its heartbeat decides. */
static void overdue(struct wf_group *group, struct wf_seat *seat, struct wf_lane *lane, uint64_t now_ns)
{
	uint64_t limit = group->engine->settings.rail_limit_ns;
	uint64_t heard = wf_peer_last_sign_of_life(lane->peer); /* by any group */

	if (atomic_load(&lane->peer->state) != WF_PEER_UP || heard > now_ns || now_ns - heard < limit)
		wf_seat_doom(seat, "an operation never completed");
}

static bool is_late(const struct wf_group *group, uint64_t posted_ns, uint64_t now_ns)
{
	uint64_t since = posted_ns > group->resumed_ns ? posted_ns : group->resumed_ns;

	return now_ns > since && now_ns - since > group->engine->settings.rail_limit_ns;
}

static void look_for_overdue(struct wf_group *group, uint64_t now_ns)
{
	if (!group->on_nic)
		return;
	for (uint32_t i = 0; i < group->pieces_used; i++) {
		struct wf_piece *piece = &group->piece[i];

		if (piece->seat && is_late(group, piece->posted_ns, now_ns) && piece->part->lane->peer)
			overdue(group, piece->seat, piece->part->lane, now_ns);
	}
	for (uint32_t i = 0; i < group->tx_count; i++) {
		struct wf_tx_frame *frame = &group->tx[i];

		if (frame->seat && is_late(group, frame->posted_ns, now_ns))
			overdue(group, frame->seat, frame->lane, now_ns);
	}
}

static uint64_t housekeeping_ns(const struct wf_group *group)
{
	uint64_t quarter = group->engine->settings.rail_limit_ns / 4;

	return quarter > HOUSEKEEPING_NS ? HOUSEKEEPING_NS : quarter < STOPPING_CHECK_NS ? STOPPING_CHECK_NS : quarter;
}

static void housekeeping(struct wf_timer *timer, uint64_t now_ns)
{
	struct wf_group *group = wf_container(timer, struct wf_group, housekeeping);

	if (now_ns - group->kept_ns > 2 * housekeeping_ns(group))
		group->resumed_ns = now_ns;
	group->kept_ns = now_ns;
	for (uint32_t i = 0; i < group->seats; i++) {
		struct wf_seat *seat = &group->seat[i];

		if (!seat->up)
			continue;
		if (wf_rail_poll_events(seat->rail))
			wf_seat_doom(seat, "the provider reported a failure of the endpoint");
		wf_seat_post_receives(seat);
	}
	look_for_overdue(group, now_ns);
	for (struct wf_link *link = group->lanes.next; group->engine->groups > 1 && link != &group->lanes;) {
		struct wf_lane *lane = wf_container(link, struct wf_lane, link);

		link = link->next;
		if (!wf_list_empty(&lane->parts))
			wf_lane_hand_over(lane);
	}
	wf_part_check_stopping(group, now_ns);
	wf_timer_set(&group->worker.timers, timer,
		     now_ns + (wf_list_empty(&group->stopping) ? housekeeping_ns(group) : STOPPING_CHECK_NS));
}

void wf_housekeeping_start(struct wf_group *group)
{
	group->kept_ns = wf_now_ns();
	wf_timer_init(&group->housekeeping, housekeeping);
	wf_timer_set(&group->worker.timers, &group->housekeeping, group->kept_ns + housekeeping_ns(group));
}
