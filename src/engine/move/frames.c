/* Frames on a rail; frames.h says for whom. Runs on the group's worker. */
#include "engine/move/frames.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/quarantine.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <string.h>

#define SLOW_POST_NS (2 * WF_MS)

/* ---- receives ---- */

WF_HOT void wf_seat_post_receives(struct wf_seat *seat)
{
	while (seat->rx_idle_count) {
		struct wf_rx_frame *frame = seat->rx_idle[seat->rx_idle_count - 1];

		/* Housekeeping tries again, or the next receive that comes free. */
		seat->rx_refused =
		    wf_rail_receive(seat->rail, &frame->wr, frame->buffer, seat->rx_memory.desc, WF_FRAME_BYTES);
		if (seat->rx_refused)
			return;
		frame->posted = true;
		seat->rx_idle_count--;
	}
}

/* A few wait for the next turn, after the answers to their messages have gone out. Many are posted now: peers keep sending. */
WF_HOT void wf_seat_receive_again(struct wf_seat *seat, struct wf_rx_frame *frame)
{
	seat->rx_idle[seat->rx_idle_count++] = frame;
	seat->rx_refused = false; /* there is room for one */
	if (seat->rx_idle_count >= seat->group->engine->settings.frames / 4 && seat->listening)
		wf_seat_post_receives(seat);
}

/* ---- frames out ---- */

/* A rail's bytes include the payload of messages, not greetings and acknowledgements. */
static void count_send(struct wf_seat *seat, const struct wf_tx_frame *frame)
{
	wf_count(&seat->count.sends, 1);
	if (wf_tx_header(frame)->kind == WF_FRAME_MESSAGE)
		wf_count(&seat->count.bytes, wf_frame_bytes(wf_tx_header(frame)) - WF_FRAME_HEADER);
}

/* How much of the buffer is posted. The receiver goes by the length in the header. */
static size_t posted_bytes(const struct wf_seat *seat, struct wf_tx_frame *frame)
{
	size_t bytes = wf_frame_bytes(wf_tx_header(frame)), least = seat->limits.frame_least;

	if (bytes >= least) {
		frame->filled = (uint32_t)least;
		return bytes;
	}
	if (frame->filled > bytes)
		memset(frame->buffer + bytes, 0, frame->filled - bytes);
	frame->filled = (uint32_t)bytes;
	return least;
}

/* A peer that takes nothing off the NIC must leave frames for the others. */
static bool has_room(const struct wf_seat *seat, enum wf_end end, const struct wf_lane *lane)
{
	return (end == WF_OUTGOING ? seat->ops : seat->frames) < seat->limits.queue_ops &&
	       lane->in_flight <= seat->group->tx_count / 2;
}

static void count_for_lane(struct wf_tx_frame *frame, int by)
{
	if (!frame->lane)
		return;
	frame->lane->in_flight += (uint32_t)by;
	if (frame->asks)
		frame->lane->path[frame->seat->place].hellos_out += (uint8_t)by;
}

static void count_posted(struct wf_tx_frame *frame, int by)
{
	struct wf_seat *seat = frame->seat;

	*(frame->end == WF_OUTGOING ? &seat->ops : &seat->frames) += (uint32_t)by;
	seat->group->on_nic += (uint32_t)by;
	seat->group->frames_out += (uint32_t)by;
	count_for_lane(frame, by);
}

void wf_seat_disown_frame(struct wf_tx_frame *frame)
{
	struct wf_lane *lane = frame->lane;

	count_for_lane(frame, -1);
	frame->lane = NULL;
	wf_lane_maybe_closed(lane);
}

WF_HOT int wf_seat_send(struct wf_seat *seat, enum wf_end end, struct wf_lane *lane, uint64_t target,
			struct wf_tx_frame *frame)
{
	struct wf_outbound out = { .buffer = frame->buffer, .bytes = posted_bytes(seat, frame), .target = target };
	int error;

	if (!has_room(seat, end, lane) || !wf_seat_is_open(seat, end))
		return -EAGAIN;
	/* The provider copies it: the frame is free once posted. If it is lost, the peer does not acknowledge it. Where messages are numbered
	 * one that fails must be known (greeting.c), and nothing says to whom an injected one went. */
	if (out.bytes <= seat->limits.inject_bytes && !seat->limits.numbers_messages) {
		error = wf_rail_inject(seat->rail, end, &out);
		if (!error) {
			count_send(seat, frame);
			wf_group_give_tx(seat->group, frame);
		}
		return error;
	}
	out.desc = seat->tx_memory.desc;
	error = wf_rail_send(seat->rail, end, &frame->wr, &out);
	if (error)
		return error;
	frame->seat = seat;
	frame->lane = lane;
	frame->target = target;
	frame->end = end;
	frame->posted_ns = wf_group_now(seat->group);
	frame->faint = wf_frame_is_sign_of_life(wf_tx_header(frame)->kind);
	frame->asks = end == WF_OUTGOING && wf_frame_asks(wf_tx_header(frame)->kind);
	count_posted(frame, 1);
	count_send(seat, frame);
	return 0;
}

/* Providers connect inside the first post to an address, which may take a card's driver long. One slow post per turn: the group's
 * other rails go on in between, and so do their own connections. */
int wf_seat_greet(struct wf_seat *seat, enum wf_end end, struct wf_lane *lane, uint64_t target,
		  struct wf_tx_frame *frame)
{
	struct wf_group *group = seat->group;
	uint64_t begun;
	int error;

	if (group->slow_turn_ns == wf_group_now(group))
		return -EAGAIN;
	begun = wf_now_ns();
	error = wf_seat_send(seat, end, lane, target, frame);
	if (wf_now_ns() - begun >= SLOW_POST_NS)
		group->slow_turn_ns = wf_group_now(group);
	return error;
}

void wf_seat_frame_left(struct wf_tx_frame *frame, bool failed)
{
	struct wf_group *group = frame->seat->group;

	count_posted(frame, -1);
	group->stuck -= frame->stuck;
	frame->stuck = false;
	if (failed)
		wf_quarantine_frame(group, frame);
	else
		wf_group_give_tx(group, frame);
}

bool wf_seat_ring(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;
	bool asked = false;

	/* Any post rings for those before it: a frame that means nothing, to the first peer that there is room for. */
	for (struct wf_link *link = group->lanes.next; link != &group->lanes; link = link->next) {
		struct wf_lane *lane = wf_container(link, struct wf_lane, link);
		struct wf_tx_frame *tx;
		uint64_t target;

		if (lane->path[seat->place].state == WF_PATH_CLOSED || !has_room(seat, WF_OUTGOING, lane) ||
		    wf_lane_target(lane, seat, WF_OUTGOING, lane->path[seat->place].remote, &target) ||
		    !(tx = wf_group_take_tx(group)))
			continue;
		*wf_tx_header(tx) =
		    (struct wf_frame){ .kind = WF_FRAME_PONG, .incarnation = group->engine->incarnation };
		wf_frame_seal(wf_tx_header(tx));
		if (!wf_seat_send(seat, WF_OUTGOING, lane, target, tx))
			return true;
		asked = true;
		wf_group_give_unsent_tx(group, tx);
	}
	return asked;
}
