/* Reading a rail's completions and acting on each; completions.h says what they can mean. Runs on the group's worker. */
#include "engine/move/completions.h"
#include "base/hot.h"
#include "engine/core/engine.h"
#include "engine/move/counts.h"
#include "engine/move/frames.h"
#include "engine/move/piece.h"
#include "engine/move/reset.h"
#include "engine/peer/grants.h"
#include "engine/peer/peer.h"

#include <errno.h>

#define AHEAD 4 /* completions that are fetched before their turn */

/* True when the frame was dealt with here and its buffer is free again. */
WF_HOT static bool frame_arrived(struct wf_group *group, struct wf_seat *seat, struct wf_rx_frame *rx)
{
	struct wf_frame *frame;
	struct wf_peer *peer;

	if (wf_frame_open(rx->buffer, rx->bytes, &frame)) {
		atomic_fetch_add_explicit(&seat->count.errors, 1, memory_order_relaxed);
		return true;
	}
	if (frame->kind == WF_FRAME_HELLO) {
		wf_hello_arrived(group, seat, frame);
		return true;
	}
	if (frame->kind == WF_FRAME_WELCOME) {
		wf_welcome_arrived(group, seat, frame);
		return true;
	}
	if (frame->kind == WF_FRAME_CHALLENGE) {
		wf_challenge_arrived(group, seat, frame);
		return true;
	}
	/* Without a reference: a peer that is live now goes only when each group has closed its lane, ours in a later note. */
	peer = wf_handle_peek(&group->engine->peers, frame->to_peer);
	if (!peer || frame->token != atomic_load_explicit(&peer->secret, memory_order_relaxed))
		return true; /* it was removed meanwhile, or somebody else sent this */
	if (wf_frame_is_about_grants(frame->kind)) {
		wf_grants_arrived(peer->lane[group->index], seat, frame);
		return true;
	}
	if (peer->home == group) {
		/* Where the peer is heard it hears us, unless it acknowledges nothing. */
		if (!peer->out.resends)
			peer->talk_seat = seat->place;
		wf_channel_arrived(peer, frame);
		return true;
	}
	if (wf_frame_is_sign_of_life(frame->kind))
		group->worker.faint++;
	rx->note.kind = WF_NOTE_FRAME;
	wf_note_tell(group, peer->home, &rx->note);
	return false;
}

static void frame_sent(struct wf_group *group, struct wf_tx_frame *frame, int status)
{
	struct wf_lane *lane = frame->lane;
	struct wf_seat *seat = frame->seat;

	if (frame->faint && !status)
		group->worker.faint++;
	if (seat->limits.numbers_messages)
		wf_lane_frame_left(frame, status);
	if (status && lane && wf_rail_is_open(seat->rail, frame->end)) {
		struct wf_path *path = &lane->path[seat->place];
		const char *why = wf_rail_last_error(seat->rail)->text;

		atomic_fetch_add_explicit(&seat->count.errors, 1, memory_order_relaxed);
		if (frame->end != path->talk_end)
			wf_lane_path_failed(lane, path, why);
		else
			wf_lane_talk_failed(lane, path, why);
	}
	wf_seat_frame_left(frame, status);
	if (lane)
		wf_lane_maybe_closed(lane);
}

/* While we leave only goodbyes matter. */
static void frame_while_leaving(struct wf_group *group, struct wf_rx_frame *rx)
{
	struct wf_frame *frame;
	struct wf_peer *peer;

	if (wf_frame_open(rx->buffer, rx->bytes, &frame) || frame->kind != WF_FRAME_BYE ||
	    !(peer = wf_handle_get(&group->engine->peers, frame->to_peer)))
		return;
	if (frame->token == atomic_load(&peer->secret))
		atomic_store(&peer->state, WF_PEER_DOWN);
	wf_handle_put(&group->engine->peers, peer->handle);
}

/* A local rail knows at once that a process has ended. */
static void target_ended(struct wf_group *group, struct wf_seat *seat, uint64_t target)
{
	for (struct wf_link *link = group->lanes.next; link != &group->lanes; link = link->next)
		wf_lane_target_ended(wf_container(link, struct wf_lane, link), seat, target);
}

/* One piece of a batch shows how long pieces take. */
static void look_at_time(struct wf_group *group, struct wf_seat *seat, const struct wf_completion *done)
{
	const struct wf_piece *piece;

	if (!done->wr || done->wr->kind > WF_WR_READ || done->status)
		return;
	piece = wf_container(done->wr, struct wf_piece, wr);
	if (piece->seat == seat)
		wf_pace_took(&seat->pace, wf_group_now(group) - piece->posted_ns);
}

/* Not in place: most turns of a waiting engine find no completion. */
WF_HOT __attribute__((noinline)) static void take_completions(struct wf_group *group, struct wf_seat *seat,
							      const struct wf_completion *done, int got)
{
	uint32_t pieces = 0, failed = 0;
	struct wf_landing landing = { 0 };

	look_at_time(group, seat, done);
	for (int i = 0; i < got; i++) {
		struct wf_wr *wr = done[i].wr;

		/* It was posted long ago and has left the cache. */
		__builtin_prefetch(done[i + AHEAD < got ? i + AHEAD : i].wr, 1);
		if (wr && wr->kind <= WF_WR_READ) {
			struct wf_piece *piece = wf_container(wr, struct wf_piece, wr);

			/* A completion is believed only for what is posted here. */
			if (__builtin_expect(piece->seat != seat, 0)) {
				atomic_fetch_add_explicit(&seat->count.errors, 1, memory_order_relaxed);
				continue;
			}
			pieces++;
			if (__builtin_expect(!done[i].status, 1)) {
				wf_piece_landed(group, seat, piece, &landing);
				continue;
			}
			wf_landing_end(group, seat, &landing);
			failed++;
			wf_piece_failed(group, piece, done[i].status);
			continue;
		}
		wf_landing_end(group, seat, &landing);
		if (!wr) {
			if (!done[i].status)
				wf_counts_add(group, done[i].immediate);
			else if (done[i].status == -EHOSTDOWN && seat->limits.local)
				target_ended(group, seat, done[i].bytes);
			else
				atomic_fetch_add_explicit(&seat->count.errors, 1, memory_order_relaxed);
		} else if (wr->kind == WF_WR_RECEIVE) {
			struct wf_rx_frame *rx = (struct wf_rx_frame *)wr;

			if (!rx->posted)
				continue;
			rx->posted = false;
			rx->bytes = (uint32_t)done[i].bytes;
			if (group->leaving) { /* the other workers may be gone */
				if (!done[i].status)
					frame_while_leaving(group, rx);
				continue;
			}
			if (done[i].status || frame_arrived(group, seat, rx))
				wf_seat_receive_again(seat, rx);
		} else if (((struct wf_tx_frame *)wr)->seat == seat) {
			frame_sent(group, (struct wf_tx_frame *)wr, done[i].status);
		}
	}
	wf_landing_end(group, seat, &landing);
	seat->ops -= pieces;
	group->on_nic -= pieces;
	if (pieces > failed)
		seat->last_ok_ns = wf_group_now(group);
	if (seat->limits.local)
		atomic_store_explicit(&seat->count.mapped_bytes, wf_rail_mapped_bytes(seat->rail),
				      memory_order_relaxed);
}

WF_HOT bool wf_completions_may_read(const struct wf_group *group)
{
	return !group->counts || wf_counts_room(group, WF_COMPLETIONS);
}

WF_HOT int wf_completions_read(struct wf_group *group, struct wf_seat *seat)
{
	struct wf_completion done[WF_COMPLETIONS];
	int got;

	if (seat->rx_idle_count && !seat->rx_refused)
		wf_seat_post_receives(seat);
	if (__builtin_expect(wf_rail_unrung(seat->rail), 0) && !wf_seat_ring(seat)) {
		wf_reset_ask_unrung(seat);
		return 1;
	}
	if (!wf_completions_may_read(group))
		return 0;
	got = wf_rail_poll(seat->rail, done, WF_COMPLETIONS);
	if (got > 0)
		take_completions(group, seat, done, got);
	if (got >= 0)
		return got;
	wf_reset_ask(seat, WF_RESET_RAIL, "reading completions failed");
	return 1;
}
