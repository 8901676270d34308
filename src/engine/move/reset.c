/*
 * Resetting a rail; reset.h says what that is. Closing the outgoing endpoint makes the pieces posted there ours again, and
 * reopening it gives the rail work again; its address stays. Only a rail that fails itself loses that. Runs on the group's
 * worker, but for the closing and opening itself, which is done beside it where that may take long:
 *
 *   reset() -> away: close -> closed(): pieces and frames are ours again -> away: open -> opened(): paths are greeted
 *
 * The worker does not touch a rail that is away, and pieces that are on it stay so until it is closed.
 */
#include "engine/move/reset.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/completions.h"
#include "engine/move/counts.h"
#include "engine/move/frames.h"
#include "engine/move/piece.h"
#include "engine/ops/transfer.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stdio.h>

#define REOPEN_FIRST_NS (10 * WF_MS)
#define REOPEN_LAST_NS  (5 * WF_S)
#define DEAF_FIRST_NS   (500 * WF_MS) /* between two resets because messages are missing; doubles … */
#define DEAF_LAST_NS    (2 * WF_S)    /* … up to here; twice as long without one, and it begins anew */
#define DRAIN_NS        (50 * WF_MS) /* writes that cannot be posted twice are given this long to land before a reset */
#define DRAIN_LOOK_NS   (1 * WF_MS)
#define ENDING_LOOK_NS  (100 * WF_US) /* between two looks whether an errand's thread has ended */
#define DRAIN_READS     64            /* batches of completions that a closed endpoint may have left */

void wf_reset_ask_unrung(struct wf_seat *seat)
{
	wf_reset_ask(seat, WF_RESET_OUTGOING, "what was posted cannot be rung for");
	seat->due_ns = 0; /* none of it will land: nothing to wait for */
}

void wf_reset_ask(struct wf_seat *seat, enum wf_reset what, const char *why)
{
	if (seat->reset_due >= what || !(what == WF_RESET_RAIL ? seat->listening : atomic_load(&seat->up)))
		return;
	seat->reset_due = what;
	seat->due_ns = seat->drain_look_ns = wf_group_now(seat->group);
	seat->group->reset_due = true;
	seat->why = why;
	seat->due_to_stop = false;
}

void wf_reset_ask_quietly(struct wf_seat *seat)
{
	wf_reset_ask(seat, WF_RESET_OUTGOING, NULL);
}

void wf_reset_ask_deaf(struct wf_seat *seat, const char *why)
{
	uint64_t now = wf_group_now(seat->group), since = now - seat->deaf_ns, pause;

	if (seat->reset_due || !atomic_load(&seat->up))
		return;
	if (!seat->deaf_ns || since > 2 * DEAF_LAST_NS)
		seat->deaf_tries = 0;
	pause = seat->deaf_tries ? DEAF_FIRST_NS << (seat->deaf_tries - 1) : 0;
	if (since < (pause < DEAF_LAST_NS ? pause : DEAF_LAST_NS))
		return;
	seat->deaf_ns = now;
	seat->deaf_tries += seat->deaf_tries < 10;
	wf_reset_ask(seat, WF_RESET_OUTGOING, why);
}

void wf_reset_ask_to_stop(struct wf_seat *seat)
{
	if (seat->reset_due || !atomic_load(&seat->up))
		return;
	wf_reset_ask(seat, WF_RESET_OUTGOING, "a stopped operation does not leave it");
	seat->due_to_stop = true;
}

static void tell_application(struct wf_seat *seat, enum weft_event_type type)
{
	const struct wf_rail_error *last = wf_rail_last_error(seat->rail);
	struct weft_error error = { .scope = WEFT_SCOPE_RAIL, .provider_error = last->provider_error };

	snprintf(error.rail, sizeof(error.rail), "%.31s", seat->nic->name);
	snprintf(error.text, sizeof(error.text), "%s", type == WEFT_EVENT_RAIL_UP ? "reopened" : seat->why);
	wf_engine_announce(seat->group->engine, type, type == WEFT_EVENT_RAIL_UP ? 0 : -ENETDOWN, 0, &error);
}

static void take_back_pieces(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;

	for (uint32_t i = 0; i < group->pieces_used; i++)
		if (group->piece[i].seat == seat)
			wf_piece_taken_back(group, &group->piece[i]);
}

static void take_back_frames(struct wf_seat *seat, enum wf_end end)
{
	struct wf_group *group = seat->group;

	for (uint32_t i = 0; i < group->tx_count; i++)
		if (group->tx[i].seat == seat && group->tx[i].end == end)
			wf_seat_frame_left(&group->tx[i], end == WF_OUTGOING); /* the rail's queue may still tell */
}

static void take_back_receives(struct wf_seat *seat)
{
	for (uint32_t i = 0; i < seat->group->engine->settings.frames; i++)
		if (seat->rx[i].posted) {
			seat->rx[i].posted = false;
			seat->rx_idle[seat->rx_idle_count++] = &seat->rx[i];
		}
}

/* ---- beside the worker ---- */

/* On the errand's thread, or on the worker: one thread at a time uses the rail. */
static void do_errand(struct wf_seat *seat)
{
	if (seat->away == WF_AWAY_CLOSING) {
		wf_rail_shut(seat->rail, seat->resetting == WF_RESET_RAIL ? WF_PUBLISHED : WF_OUTGOING);
		return;
	}
	seat->reopen_status = wf_rail_reopen(seat->rail);
	if (seat->reopen_status && !seat->published)
		wf_rail_shut(seat->rail, WF_PUBLISHED);
}

static void on_errand(void *context)
{
	struct wf_seat *seat = context;

	do_errand(seat);
	wf_note_tell(NULL, seat->group, &seat->back_note);
}

/* Closing or opening an endpoint takes a card's driver up to hundreds of milliseconds, and the group's other rails are not to
 * stand still meanwhile. Without a thread to do it on, they do. */
static void send_away(struct wf_seat *seat, enum wf_away why)
{
	seat->away = why;
	seat->listening = false;
	seat->beside = wf_rail_reopens_beside(seat->rail) && !wf_engine_is_manual(seat->group->engine) &&
		       !wf_errand_start(&seat->errand, on_errand, seat);
	if (seat->beside)
		return;
	do_errand(seat);
	wf_reset_back(seat);
}

/* ---- closed, and opened ---- */

static void reopen_after_a_while(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;
	uint64_t wait = REOPEN_FIRST_NS << (seat->reopen_tries < 10 ? seat->reopen_tries : 10);

	seat->reopen_tries++;
	wf_timer_set(&group->worker.timers, &seat->reopen,
		     wf_group_now(group) + (wait < REOPEN_LAST_NS ? wait : REOPEN_LAST_NS));
}

static void try_reopen(struct wf_seat *seat)
{
	if (!atomic_load(&seat->group->worker.stopping)) /* else it stays closed */
		send_away(seat, WF_AWAY_OPENING);
}

static void reopen_later(struct wf_timer *timer, uint64_t now_ns)
{
	struct wf_seat *seat = wf_container(timer, struct wf_seat, reopen);

	if (seat->away)
		wf_reset_back(seat); /* its thread may have ended, or what was to be read first may be read now */
	else
		try_reopen(seat);
}

/* What completed before the endpoint was closed is still there to be read, among it what the provider has cancelled: if it
 * were read later, it could be taken for what is posted by then. False: group 0 must take the immediates that we have
 * first. A worker that stops does not wait for that: group 0's may have stopped. */
static bool drain(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;

	for (int i = 0; i < DRAIN_READS; i++) {
		if (group->counts)
			wf_counts_tell(group); /* peers' immediates among them must not fill the list */
		if (!wf_completions_may_read(group))
			return atomic_load(&group->worker.stopping);
		if (wf_completions_read(group, seat) <= 0)
			break;
	}
	return true;
}

/* Everything that was posted is ours again: pieces go back to their parts, receives are posted again. */
static void take_back(struct wf_seat *seat, enum wf_reset what)
{
	if (what == WF_RESET_RAIL) {
		take_back_frames(seat, WF_PUBLISHED);
		take_back_receives(seat);
	}
	take_back_pieces(seat);
	take_back_frames(seat, WF_OUTGOING);
}

static void closed(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;
	enum wf_reset what = seat->resetting;
	struct wf_link *link;

	take_back(seat, what);
	for (link = group->lanes.next; link != &group->lanes;) {
		struct wf_lane *lane = wf_container(link, struct wf_lane, link);

		link = link->next; /* a closing lane may leave the list */
		wf_lane_seat_reset(lane, seat, what);
		wf_lane_maybe_closed(lane);
	}
	/* A rail that fails right after it was opened, before it carried anything, gets longer and longer pauses. A reset to take
	 * pieces back does not count as a failure. */
	if (what == WF_RESET_OUTGOING || seat->last_ok_ns > seat->opened_ns ||
	    wf_group_now(group) - seat->opened_ns > REOPEN_LAST_NS) {
		seat->reopen_tries = 0;
		try_reopen(seat);
	} else {
		reopen_after_a_while(seat);
	}
}

static void opened(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;
	bool is_new = !seat->published;

	if (!seat->reopen_status && is_new && (seat->reopen_status = wf_engine_rail_address(group->engine, seat)))
		wf_rail_shut(seat->rail, WF_PUBLISHED);
	if (seat->reopen_status) {
		reopen_after_a_while(seat);
		return;
	}
	wf_timer_clear(&group->worker.timers, &seat->reopen);
	seat->opened_ns = wf_group_now(group);
	seat->published = seat->listening = true;
	atomic_store(&seat->up, 1);
	if (is_new)
		wf_seat_watch(seat);
	wf_seat_post_receives(seat);
	if (seat->why) {
		atomic_fetch_add_explicit(&seat->count.reopened, 1, memory_order_relaxed);
		tell_application(seat, WEFT_EVENT_RAIL_UP);
	}
	/* A hello connects the new endpoint to every peer, and tells them the address where that is new. */
	for (struct wf_link *link = group->lanes.next; link != &group->lanes; link = link->next)
		wf_lane_hello_now(wf_container(link, struct wf_lane, link));
}

void wf_reset_back(struct wf_seat *seat)
{
	enum wf_away was = seat->away;

	if (seat->beside && !wf_errand_ended(&seat->errand)) {
		wf_timer_set(&seat->group->worker.timers, &seat->reopen, wf_group_now(seat->group) + ENDING_LOOK_NS);
		return;
	}
	seat->beside = false;
	seat->away = WF_HERE;
	seat->listening = seat->published;
	if (was == WF_AWAY_CLOSING && seat->resetting == WF_RESET_OUTGOING && !drain(seat)) {
		seat->away = was;
		seat->listening = false;
		wf_timer_set(&seat->group->worker.timers, &seat->reopen, wf_group_now(seat->group) + DRAIN_LOOK_NS);
		return;
	}
	if (was == WF_AWAY_CLOSING)
		closed(seat);
	else
		opened(seat);
}

/* ---- when ---- */

static void reset(struct wf_seat *seat, enum wf_reset what)
{
	if (seat->why) {
		wf_log(&seat->group->engine->log, WEFT_LOG_WARN, "rail %s: %s: reopening it", seat->nic->name,
		       seat->why);
		tell_application(seat, WEFT_EVENT_RAIL_DOWN);
	}
	atomic_store(&seat->up, 0);
	/* Addresses inserted up to now go with their table. */
	seat->generation[WF_OUTGOING]++;
	if (what == WF_RESET_RAIL) {
		seat->generation[WF_PUBLISHED]++;
		seat->published = false;
	}
	wf_timer_clear(&seat->group->worker.timers, &seat->reopen);
	seat->resetting = what;
	send_away(seat, WF_AWAY_CLOSING);
}

/* A write that carries an immediate cannot be posted twice: a reset would make it fail. */
static bool has_counted(const struct wf_seat *seat)
{
	const struct wf_group *group = seat->group;

	for (uint32_t i = 0; i < group->pieces_used; i++) {
		const struct wf_piece *piece = &group->piece[i];

		if (piece->seat == seat && piece->part->counted && !piece->part->stop_ns)
			return true;
	}
	return false;
}

static bool has_stopped(const struct wf_seat *seat)
{
	const struct wf_group *group = seat->group;

	for (uint32_t i = 0; i < group->pieces_used; i++)
		if (group->piece[i].seat == seat && group->piece[i].part->stop_ns)
			return true;
	return false;
}

void wf_reset_if_due(struct wf_seat *seat)
{
	uint64_t now = wf_group_now(seat->group);
	enum wf_reset what = seat->reset_due;

	if (seat->away)
		return; /* when it is back */
	/* They have left by themselves: perhaps we stood still, and their completions were unread. */
	if (seat->due_to_stop && !has_stopped(seat)) {
		seat->reset_due = WF_RESET_NONE;
		return;
	}
	/* Counted writes may still land; the rail takes nothing new meanwhile. */
	if (what == WF_RESET_OUTGOING && now - seat->due_ns < DRAIN_NS) {
		if (now < seat->drain_look_ns)
			return;
		seat->drain_look_ns = now + DRAIN_LOOK_NS;
		if (has_counted(seat))
			return;
	}
	seat->reset_due = WF_RESET_NONE;
	reset(seat, what);
}

void wf_reset_init(struct wf_seat *seat)
{
	wf_timer_init(&seat->reopen, reopen_later);
	wf_note_init(&seat->back_note, WF_NOTE_SEAT_BACK, seat);
}
