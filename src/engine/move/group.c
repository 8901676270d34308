/*
 * A group's turn: read every rail's completions, send frames, give every rail the pieces it has room for, then see to
 * rails that failed. Runs on the group's worker.
 */
#include "engine/move/group.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/counts.h"
#include "engine/move/completions.h"
#include "engine/move/frames.h"
#include "engine/move/housekeeping.h"
#include "engine/move/part.h"
#include "engine/move/piece.h"
#include "engine/move/reset.h"
#include "engine/move/stripe.h"
#include "engine/peer/newcomer.h"
#include "engine/peer/pairing.h"
#include "engine/peer/peer.h"
#include "engine/ops/landing.h"
#include "engine/ops/transfer.h"
#include "engine/peer/talk.h"
#include "engine/ops/verify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX 16384u
#define FRAMES_OUT 64u /* and 16 more for each rail */
#define GOODBYE_NS (50 * WF_MS)

/* ---- the turn ---- */

__attribute__((noinline)) static void send_frames(struct wf_group *group)
{
	struct wf_link *link = group->pumping.next;

	/* A peer takes itself out of the list when it has nothing more to send. */
	while (link != &group->pumping) {
		struct wf_peer *peer = wf_container(link, struct wf_peer, pumping);

		link = link->next;
		wf_channel_pump(peer);
	}
	/* Each once: one whose frame found no room puts itself back, for the next turn. */
	for (struct wf_link *last = group->acking.prev; !wf_list_empty(&group->acking);) {
		struct wf_peer *peer = wf_container(group->acking.next, struct wf_peer, acking);
		bool end = &peer->acking == last;

		wf_list_remove(&peer->acking);
		wf_channel_acknowledge(peer);
		if (end)
			break;
	}
}

void wf_group_send_frames(struct wf_group *group)
{
	if (!wf_list_empty(&group->pumping) || !wf_list_empty(&group->acking))
		send_frames(group);
}

/* Manual progress: acknowledged messages end one turn late, so that what came with the acknowledgement, and the application's
 * answer to it, go first. */
WF_HOT __attribute__((noinline)) int wf_group_end_acked(struct wf_group *group, void *unused)
{
	while (!wf_list_empty(&group->ending))
		wf_channel_end_acked(wf_container(group->ending.next, struct wf_peer, ending));
	return 0;
}

/* Every rail pulls what it has room for; a different rail goes first each turn. */
__attribute__((noinline)) static int give_turns(struct wf_group *group)
{
	uint32_t at = group->turn++ % group->seats;
	struct wf_depth depth = wf_stripe_depth(group);
	int happened = 0;

	for (uint32_t i = 0; i < group->seats && !wf_list_empty(&group->runnable); i++) {
		happened += wf_stripe_seat(group, &group->seat[at], &depth);
		at = at + 1 == group->seats ? 0 : at + 1;
	}
	return happened;
}

static void reset_seats(struct wf_group *group)
{
	group->reset_due = false;
	for (uint32_t i = 0; i < group->seats; i++)
		if (group->seat[i].reset_due) {
			wf_reset_if_due(&group->seat[i]);
			group->reset_due |= group->seat[i].reset_due != WF_RESET_NONE;
		}
}

/* Most turns have nothing to hear. */
static inline int hear(struct wf_group *group)
{
	return group->own.first || wf_mpsc_any(&group->worker.told) ? wf_group_hear(group) : 0;
}

WF_HOT static int on_turn(void *context, uint64_t now_ns)
{
	struct wf_group *group = context;
	int happened = hear(group); /* from other workers, and from the posts and timers that ran just now */

	if (group->words.count)
		happened += wf_words_look(group);
	/* Send what was submitted before reading what came in, then send the answers to that. */
	wf_group_send_frames(group);
	if (!wf_list_empty(&group->ending)) {
		wf_group_end_acked(group, NULL);
		happened++;
	}
	for (uint32_t i = 0; i < group->seats; i++)
		if (group->seat[i].listening)
			happened += wf_completions_read(group, &group->seat[i]);
	if (happened) {
		happened += hear(group); /* the last piece of a transfer has landed: its notification goes now */
		wf_group_send_frames(group);
	}
	if (!wf_list_empty(&group->runnable))
		happened += give_turns(group);
	if (!wf_list_empty(&group->verifying))
		happened += wf_verify_turn(group);
	if (!wf_list_empty(&group->landings))
		happened += wf_landing_turn(group);
	if (group->reset_due)
		reset_seats(group);
	if (group->counts)
		wf_counts_tell(group);
	return happened + hear(group); /* nothing of ours is left unheard when the worker sleeps */
}

/* Notes beyond what a turn runs, and counts that wait for group 0. */
static bool has_unheard(struct wf_group *group)
{
	return group->own.first || wf_mpsc_any(&group->worker.told) || (group->counts && wf_counts_any(group));
}

static bool on_in_flight(void *context)
{
	struct wf_group *group = context;

	return group->on_nic > group->stuck || !wf_list_empty(&group->runnable) || !wf_list_empty(&group->pumping) ||
	       !wf_list_empty(&group->verifying) || !wf_list_empty(&group->landings) ||
	       !wf_list_empty(&group->acking) || has_unheard(group);
}

static bool on_can_sleep(void *context)
{
	struct wf_group *group = context;

	/* Pieces or frames that a rail refused are tried again, not waited for. */
	if (!wf_list_empty(&group->runnable) || !wf_list_empty(&group->pumping) || !wf_list_empty(&group->verifying) ||
	    !wf_list_empty(&group->landings) || !wf_list_empty(&group->acking) || has_unheard(group) ||
	    group->reset_due)
		return false;
	for (uint32_t i = 0; i < group->seats; i++) {
		struct wf_seat *seat = &group->seat[i];

		if (seat->listening && (!seat->limits.waits || wf_rail_try_wait(seat->rail)))
			return false;
	}
	return true;
}

/* Not while a rail is in another thread's hands. The engine gives up waiting for us when its provider hangs. */
static bool on_may_stop(void *context)
{
	struct wf_group *group = context;

	for (uint32_t i = 0; i < group->seats; i++)
		if (group->seat[i].away)
			return false;
	return true;
}

/* ---- starting and stopping, on the worker ---- */

static int make_pools(struct wf_group *group)
{
	uint64_t pieces = 0;

	for (uint32_t i = 0; i < group->seats; i++)
		pieces += group->seat[i].limits.queue_ops;
	group->piece_count = (uint32_t)(pieces < PIECES_MAX ? pieces : PIECES_MAX);
	group->piece = aligned_alloc(alignof(struct wf_piece), group->piece_count * sizeof(*group->piece));
	group->tx_count = FRAMES_OUT + 16 * group->seats;
	group->tx = calloc(group->tx_count, sizeof(*group->tx));
	group->tx_spare.buffer = group->tx_buffers + (size_t)group->tx_count * WF_FRAME_BYTES;
	if (!group->piece || !group->tx)
		return -ENOMEM;
	memset(group->piece, 0, group->piece_count * sizeof(*group->piece));
	for (uint32_t i = 0; i < group->tx_count; i++) {
		group->tx[i].buffer = group->tx_buffers + (size_t)i * WF_FRAME_BYTES;
		wf_group_give_unsent_tx(group, &group->tx[i]);
	}
	return 0;
}

static int make_buffers(struct wf_group *group)
{
	uint32_t frames = group->engine->settings.frames;

	group->tx_bytes = (size_t)(FRAMES_OUT + 16 * group->seats + 1) * WF_FRAME_BYTES;
	group->rx_bytes = (size_t)group->seats * frames * WF_FRAME_BYTES;
	group->tx_buffers = aligned_alloc(4096, group->tx_bytes);
	group->rx_buffers = aligned_alloc(4096, group->rx_bytes);
	return group->tx_buffers && group->rx_buffers ? 0 : -ENOMEM;
}

static int on_start(void *context)
{
	struct wf_group *group = context;
	int error = make_buffers(group);

	for (uint32_t i = 0; !error && i < group->seats; i++)
		error = wf_seat_open(&group->seat[i]);
	if (!error)
		error = make_pools(group);
	if (error) {
		for (uint32_t i = 0; i < group->seats; i++)
			wf_seat_close(&group->seat[i]);
		return error;
	}
	group->worker.descriptors_tell_all = true;
	for (uint32_t i = 0; i < group->seats; i++)
		group->worker.descriptors_tell_all &= group->seat[i].limits.local;
	wf_housekeeping_start(group);
	return 0;
}

static bool someone_is_up(struct wf_group *group, bool say)
{
	bool any = false;

	for (struct wf_link *link = group->lanes.next; link != &group->lanes; link = link->next) {
		struct wf_peer *peer = wf_container(link, struct wf_lane, link)->peer;

		if (peer->home != group || atomic_load(&peer->state) != WF_PEER_UP)
			continue;
		any = true;
		if (say)
			wf_peer_send_plain(peer, WF_FRAME_BYE);
	}
	return any;
}

/* Peers answer a goodbye with theirs before they forget us, so that nothing is on its way to our endpoints when they
 * close. One that does not answer in time finds out by its heartbeat. */
static void say_bye(struct wf_group *group)
{
	uint64_t limit = wf_now_ns() + GOODBYE_NS;
	bool said = false;

	do {
		for (uint32_t i = 0; i < group->seats; i++)
			if (group->seat[i].listening)
				wf_completions_read(group, &group->seat[i]);
		someone_is_up(group, !said);
		said = true;
	} while ((group->on_nic || someone_is_up(group, false)) && wf_now_ns() < limit);
}

static void on_stop(void *context)
{
	struct wf_group *group = context;

	group->leaving = true;
	say_bye(group);
	for (uint32_t i = 0; i < group->seats;
	     i++) /* first, for a late access by a dead key may kill (limits.dead_keys_kill) */
		if (group->seat[i].rail)
			wf_rail_shut(group->seat[i].rail, WF_PUBLISHED);
	wf_region_leave(group); /* before the domains close */
	for (uint32_t i = 0; i < group->seats; i++)
		wf_seat_close(&group->seat[i]);
}

const struct wf_worker_ops wf_group_ops = {
	.start = on_start,
	.note = wf_group_take_posted,
	.turn = on_turn,
	.in_flight = on_in_flight,
	.can_sleep = on_can_sleep,
	.may_stop = on_may_stop,
	.stop = on_stop,
	.gone = wf_engine_worker_gone,
};

int wf_group_init(struct wf_group *group, struct weft_engine *engine, uint32_t index, uint32_t seats)
{
	group->engine = engine;
	group->index = index;
	group->seats = seats;
	group->seat = calloc(seats, sizeof(*group->seat));
	if (!group->seat)
		return -ENOMEM;
	for (uint32_t i = 0; i < seats; i++) {
		group->seat[i].group = group;
		group->seat[i].place = i;
	}
	wf_list_init(&group->lanes);
	wf_list_init(&group->runnable);
	wf_list_init(&group->pumping);
	wf_list_init(&group->acking);
	wf_list_init(&group->ending);
	wf_list_init(&group->stopping);
	wf_list_init(&group->verifying);
	wf_list_init(&group->landings);
	if (wf_words_open(group, 2 * engine->settings.max_transfers + wf_answers_share(engine)))
		return -ENOMEM;
	return index && wf_counts_open(group) ? -ENOMEM : wf_newcomers_open(group);
}

void wf_group_free(struct wf_group *group)
{
	wf_pairing_stop(group);
	for (uint32_t i = 0; group->seat && i < group->seats; i++) {
		free(group->seat[i].rx);
		free(group->seat[i].rx_idle);
	}
	wf_newcomers_close(group);
	free(group->seat);
	free(group->piece);
	free(group->tx);
	free(group->tx_buffers);
	free(group->rx_buffers);
	wf_counts_close(group);
	wf_verify_free(group);
	if (group->landings.next)
		wf_landing_free(group);
	wf_words_close(group);
}
