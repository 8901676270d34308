/*
 * What no completion reports: endpoint events, receives that found no room, operations that never complete, work that another
 * group should do, stopped parts that do not leave their NIC. A timer of the group's worker looks for them at least ten times a
 * second.
 */
#include "engine/move/housekeeping.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/frames.h"
#include "engine/move/handover.h"
#include "engine/move/part.h"
#include "engine/move/piece.h"
#include "engine/move/quarantine.h"
#include "engine/move/reset.h"
#include "engine/move/retire.h"
#include "engine/peer/pairing.h"
#include "engine/peer/peer.h"

#define HOUSEKEEPING_NS   (100 * WF_MS) /* or a quarter of the rails' limit */
#define STOPPING_CHECK_NS (5 * WF_MS)
#define SLOWEST           UINT64_C(10000000) /* bytes per second: assumed of a rail until it is known to be slower */
#define SLOWEST_EVER      (SLOWEST / 16)
#define MARGIN            4 /* times the expected time before a rail is suspected */
#define LOST_AFTER        4 /* times the patience, while others land on the same path */

static uint64_t bytes_in_flight(const struct wf_seat *seat)
{
	const struct wf_link *head = &seat->group->lanes;
	uint64_t bytes = 0;

	for (const struct wf_link *link = head->next; link != head; link = link->next)
		bytes += wf_container(link, struct wf_lane, link)->path[seat->place].bytes;
	return bytes;
}

/* Updates the rail's rate: up at once, down slowly, and down only if it was busy the whole time. Also the longest queue that a
 * piece still in flight may have found: a queue is gone when twice what it held has landed. */
static void measure_pace(struct wf_seat *seat, uint64_t elapsed_ns)
{
	struct wf_pace *pace = &seat->pace;
	uint64_t in_flight = bytes_in_flight(seat), rate;
	uint64_t landed = atomic_load_explicit(&seat->count.bytes, memory_order_relaxed) - in_flight;

	if (landed > pace->landed && elapsed_ns) {
		bool busy = pace->in_flight && in_flight; /* the whole time; else the rate is only a lower bound */

		rate = (uint64_t)((double)(landed - pace->landed) * 1e9 / (double)elapsed_ns);
		if (rate > pace->rate)
			pace->rate = rate;
		else if (busy)
			pace->rate -= (pace->rate - rate) / 8;
		pace->known |= busy;
	}
	if (in_flight >= pace->queue || !in_flight || landed - pace->queue_landed > 2 * pace->queue) {
		pace->queue = in_flight;
		pace->queue_landed = landed;
	}
	pace->landed = landed;
	pace->in_flight = in_flight;
}

/*
 * How long a path may go without a piece landing. Progress is the measure, not age: the queue on the rail, for all peers, may
 * take MARGIN times as long as its recent rate says, because the rate varies. A rail whose rate is not known is assumed to move
 * SLOWEST.
 */
static uint64_t patience_ns(const struct wf_seat *seat)
{
	uint64_t rate = seat->pace.rate / MARGIN, least = seat->pace.known ? SLOWEST_EVER : SLOWEST;

	return seat->group->engine->settings.rail_limit_ns +
	       (uint64_t)((double)seat->pace.queue / (double)(rate > least ? rate : least) * 1e9);
}

/* A counted write is one piece of any size, shows no progress until it is done, and fails when it is taken back: it gets as long
 * as the slowest rail would take. */
static uint64_t patience_for(const struct wf_piece *piece, uint64_t patience)
{
	uint64_t least;

	if (!piece->part->counted)
		return patience;
	least = piece->seat->group->engine->settings.rail_limit_ns +
		(uint64_t)((double)piece->bytes / (double)SLOWEST_EVER * 1e9);
	return patience > least ? patience : least;
}

/* Nothing moves on its path, or much that was posted later has landed. */
static bool is_lost(const struct wf_group *group, const struct wf_piece *piece, uint64_t patience, uint64_t now_ns)
{
	uint64_t since = piece->posted_ns > group->resumed_ns ? piece->posted_ns : group->resumed_ns;
	uint64_t moved = atomic_load_explicit(&piece->path->moved_ns, memory_order_relaxed);

	moved = moved > since ? moved : since;
	return now_ns > since && (now_ns - moved > patience || now_ns - since > LOST_AFTER * patience);
}

/* If the piece's peer is heard on other paths, the rail or its path is to blame, and only closing the endpoint takes the piece
 * back. If the peer is silent everywhere, its heartbeat decides. */
static bool is_rails_fault(const struct wf_group *group, const struct wf_lane *lane, uint64_t now_ns)
{
	uint64_t heard = wf_peer_last_sign_of_life(lane->peer); /* by any group */

	return atomic_load(&lane->peer->state) != WF_PEER_UP || heard > now_ns ||
	       now_ns - heard < group->engine->settings.rail_limit_ns;
}

static void look_for_lost_pieces(struct wf_group *group, uint64_t now_ns)
{
	const struct wf_seat *at = NULL;
	uint64_t patience = 0;

	for (uint32_t i = 0; i < group->pieces_used; i++) {
		struct wf_piece *piece = &group->piece[i];

		if (!piece->seat || piece->seat->reset_due || piece->seat->away || !piece->part->lane->peer)
			continue;
		if (piece->seat != at) {
			at = piece->seat;
			patience = patience_ns(at);
		}
		if (!is_lost(group, piece, patience_for(piece, patience), now_ns) ||
		    !is_rails_fault(group, piece->part->lane, now_ns))
			continue;
		piece->attempts++;
		wf_reset_ask(piece->seat, WF_RESET_OUTGOING, "an operation never completed");
	}
}

/* Frames hold none of the application's memory, so a stuck one may stay on its NIC, and its lane stops waiting for it. When most
 * of the group's frames are stuck they are taken back; hellos earlier, at a moment when nothing else is on their endpoint. */
static void look_for_stuck_frames(struct wf_group *group, struct wf_seat *seat, uint64_t now_ns)
{
	uint64_t limit = group->engine->settings.peer_limit_ns + group->engine->settings.rail_limit_ns;
	uint32_t stuck[WF_ENDS] = { 0 };

	for (uint32_t i = 0; i < group->tx_count; i++) {
		struct wf_tx_frame *frame = &group->tx[i];
		uint64_t since = frame->posted_ns > group->resumed_ns ? frame->posted_ns : group->resumed_ns;

		if (frame->seat != seat || now_ns <= since || now_ns - since <= limit)
			continue;
		stuck[frame->end]++;
		group->stuck += !frame->stuck;
		frame->stuck = true;
		if (frame->lane)
			wf_seat_disown_frame(frame);
	}
	if (group->stuck > group->tx_count / 2 && stuck[WF_PUBLISHED] > group->tx_count / 2 / group->seats)
		wf_reset_ask(seat, WF_RESET_RAIL, "frames never leave it");
	else if (group->stuck > group->tx_count / 2 && stuck[WF_OUTGOING])
		wf_reset_ask(seat, WF_RESET_OUTGOING, "hellos never leave it");
	else if (group->stuck > group->tx_count / 4 && stuck[WF_OUTGOING] && stuck[WF_OUTGOING] == seat->ops)
		wf_reset_ask_quietly(seat);
}

static void look_for_overdue(struct wf_group *group, uint64_t now_ns)
{
	if (group->on_nic > group->frames_out)
		look_for_lost_pieces(group, now_ns);
	for (uint32_t i = 0; group->frames_out && i < group->seats; i++)
		if (group->seat[i].ops || group->seat[i].frames)
			look_for_stuck_frames(group, &group->seat[i], now_ns);
}

/* Connections to a rail's port that never say anything must not use up the process's descriptors. */
static void look_for_strangers(struct wf_group *group, uint64_t now_ns)
{
	uint32_t closed;
	bool had_room = group->strangers && !wf_strangers_no_room(group->strangers);

	if (!group->strangers)
		return;
	closed = wf_strangers_look(group->strangers, now_ns);
	if (closed)
		wf_log(&group->engine->log, WEFT_LOG_INFO,
		       "closed %u connections that did not speak the peers' protocol", closed);
	if (had_room && wf_strangers_no_room(group->strangers))
		wf_log(&group->engine->log, WEFT_LOG_WARN,
		       "this process has no descriptor left: new peers cannot connect; see 'ulimit -n'");
}

/* Local rails have nothing to look after while they carry nothing. */
static bool is_at_rest(const struct wf_group *group)
{
	return group->worker.descriptors_tell_all && !group->on_nic && wf_list_empty(&group->runnable) &&
	       wf_list_empty(&group->stopping);
}

static uint64_t housekeeping_ns(const struct wf_group *group)
{
	uint64_t quarter = group->engine->settings.rail_limit_ns / 4;

	return quarter > HOUSEKEEPING_NS ? HOUSEKEEPING_NS : quarter < STOPPING_CHECK_NS ? STOPPING_CHECK_NS : quarter;
}

static void housekeeping(struct wf_timer *timer, uint64_t now_ns)
{
	struct wf_group *group = wf_container(timer, struct wf_group, housekeeping);
	uint64_t elapsed = now_ns - group->kept_ns, next_ns;

	if (elapsed > 2 * housekeeping_ns(group))
		group->resumed_ns = now_ns;
	group->kept_ns = now_ns;
	wf_quarantine_age(group);
	for (uint32_t i = 0; i < group->seats; i++) {
		struct wf_seat *seat = &group->seat[i];

		if (!seat->listening)
			continue;
		if (wf_rail_poll_events(seat->rail, WF_PUBLISHED))
			wf_reset_ask(seat, WF_RESET_RAIL, "the provider reported a failure of the endpoint");
		else if (atomic_load(&seat->up) && wf_rail_poll_events(seat->rail, WF_OUTGOING))
			wf_reset_ask(seat, WF_RESET_OUTGOING, "the provider reported a failure of the endpoint");
		wf_seat_post_receives(seat);
		wf_seat_remove_retired(seat);
		measure_pace(seat, elapsed);
	}
	look_for_overdue(group, now_ns);
	wf_pairing_check(group, now_ns);
	look_for_strangers(group, now_ns);
	for (struct wf_link *link = group->lanes.next; group->engine->groups > 1 && link != &group->lanes;) {
		struct wf_lane *lane = wf_container(link, struct wf_lane, link);

		link = link->next;
		if (!wf_list_empty(&lane->parts))
			wf_lane_hand_over(lane);
	}
	wf_part_check_stopping(group, now_ns);
	next_ns = is_at_rest(group) ? group->engine->settings.heartbeat_ns : housekeeping_ns(group);
	if (!wf_list_empty(&group->stopping))
		next_ns = STOPPING_CHECK_NS;
	wf_timer_set(&group->worker.timers, timer, now_ns + next_ns);
}

void wf_housekeeping_start(struct wf_group *group)
{
	group->kept_ns = wf_now_ns();
	wf_pairing_start(group);
	wf_timer_init(&group->housekeeping, housekeeping);
	wf_timer_set(&group->worker.timers, &group->housekeeping, group->kept_ns + housekeeping_ns(group));
}
