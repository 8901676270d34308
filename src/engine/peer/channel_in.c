/*
 * Order, windows, delivery and acknowledgements owed: channel_in.h says what it owns. On the peer's home, except for the
 * release of messages by the application.
 */
#include "engine/peer/channel_in.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/core/withdraw.h"
#include "engine/ops/family.h"
#include "engine/ops/landing.h"
#include "engine/ops/transfer.h"
#include "engine/ops/verify.h"
#include "engine/peer/peer.h"
#include "engine/peer/talk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ACK_SOON_NS       (1 * WF_MS) /* a reply is on its way and will carry the acknowledgement */
#define STRANGERS_WINDOWS 32          /* what all who were never added may have unread here together */

void wf_channel_in_init(struct wf_channel_in *in)
{
	wf_list_init(&in->inbound);
}

/* ---- what is owed ---- */

/* What lies unread of earlier epochs takes its room from this one. It never shrinks within an epoch. */
static uint64_t credit_of(const struct wf_peer *peer)
{
	uint64_t limit = atomic_load(&peer->consumed) + peer->engine->settings.window_frames, base = peer->in.base;

	return limit > base ? limit - base : 0;
}

uint64_t wf_channel_first_credit(const struct wf_peer *peer)
{
	uint64_t consumed = atomic_load(&peer->consumed), held = atomic_load(&peer->taken) - consumed;
	uint64_t window = peer->engine->settings.window_frames;

	return held < window ? window - held : 0;
}

WF_HOT uint64_t wf_channel_stamp(struct wf_peer *peer, struct wf_frame *frame)
{
	struct wf_channel_in *in = &peer->in;

	frame->incarnation = peer->engine->incarnation;
	frame->to_peer = peer->their_handle;
	frame->from_epoch = atomic_load(&peer->epoch);
	frame->to_epoch = peer->their_epoch;
	frame->token = atomic_load_explicit(&peer->their_secret, memory_order_relaxed);
	frame->ack = in->expected;
	return frame->credit = credit_of(peer);
}

WF_HOT void wf_channel_told(struct wf_peer *peer, uint64_t credit)
{
	struct wf_channel_in *in = &peer->in;

	in->told_credit = credit;
	in->ack_due = in->ack_soon = false;
	wf_list_remove(&peer->acking);
}

void wf_channel_owe(struct wf_peer *peer)
{
	peer->in.ack_due = true;
	if (!wf_link_linked(&peer->acking))
		wf_list_append(&peer->home->acking, &peer->acking);
}

/* An answer is on its way and will carry it; if not, it goes by itself. */
static void owe_soon(struct wf_peer *peer)
{
	struct wf_channel_in *in = &peer->in;

	if (!in->ack_soon)
		in->ack_soon_ns = wf_group_now(peer->home) + ACK_SOON_NS;
	in->ack_soon = true;
	wf_peer_set_tick(peer, in->ack_soon_ns);
}

void wf_channel_acknowledge(struct wf_peer *peer)
{
	if (peer->closing || atomic_load(&peer->state) != WF_PEER_UP)
		return;
	/* No room: what the frame would have said is still owed, and said next turn. */
	if (wf_peer_send_plain(peer, WF_FRAME_PONG) == -EAGAIN)
		wf_channel_owe(peer);
}

uint64_t wf_channel_next_owed(const struct wf_peer *peer)
{
	return peer->in.ack_soon ? peer->in.ack_soon_ns : WF_NEVER;
}

void wf_channel_check_owed(struct wf_peer *peer, uint64_t now_ns)
{
	if (now_ns >= wf_channel_next_owed(peer))
		wf_channel_acknowledge(peer);
	/* Less than a step was read since, or there was no way to say so. */
	if (credit_of(peer) > peer->in.told_credit)
		wf_channel_owe(peer);
}

/* ---- messages ---- */

static void count_read(struct wf_peer *peer, const struct wf_inbound *inbound)
{
	struct weft_engine *engine = peer->engine;
	uint64_t before;

	before = atomic_fetch_add(&peer->consumed, inbound->frames);
	if (atomic_load(&engine->closing))
		return;
	/* Each step of the window read is news to the sender; what is missed here rides on the next frame. */
	if ((before ^ (before + inbound->frames)) < engine->settings.credit_step)
		return;
	wf_handle_ref(&engine->peers, inbound->handle);
	if (!wf_group_post(peer->home, WF_NOTE_CREDIT, peer, 0))
		wf_handle_put(&engine->peers, inbound->handle);
}

WF_HOT static void inbound_release(struct wf_payload *payload)
{
	struct wf_inbound *inbound = wf_container(payload, struct wf_inbound, payload);
	struct weft_engine *engine = inbound->engine;
	struct wf_peer *peer = wf_handle_get(&engine->peers, inbound->handle);

	if (inbound->stranger)
		atomic_fetch_sub(&engine->strangers_frames, inbound->frames);
	if (peer) { /* else it is gone, and its window with it */
		count_read(peer, inbound);
		wf_handle_put(&engine->peers, inbound->handle);
	}
	if (inbound->pool)
		wf_pool_give(inbound->pool, inbound);
	else
		free(inbound);
}

void wf_inbound_free(struct wf_inbound *inbound)
{
	inbound_release(&inbound->payload);
}

WF_HOT static void inbound_take(struct wf_item_event *item, struct weft_event *event)
{
	struct wf_inbound *inbound = wf_container(item, struct wf_inbound, item);

	event->type = inbound->event_type;
	event->status = inbound->status;
	event->quiescent = true;
	event->tag = inbound->type == WF_MESSAGE_REPLY ? inbound->event_tag : inbound->tag;
	event->peer = inbound->handle;
	event->peer_user = inbound->user;
	event->transfer = inbound->transfer;
	event->bytes = inbound->bytes;
	event->data = inbound->content;
	event->call = inbound->type == WF_MESSAGE_CALL ? wf_call_token(inbound->subject, inbound->their_epoch) : 0;
	event->owner = &inbound->payload;
}

WF_HOT static struct wf_inbound *make_inbound(struct wf_peer *peer, const struct wf_frame *frame)
{
	struct weft_engine *engine = peer->engine;
	size_t bytes = sizeof(struct wf_inbound) + frame->total;
	struct wf_pool *pool = bytes <= engine->inbounds.stride   ? &engine->inbounds
			       : bytes <= engine->inframes.stride ? &engine->inframes
								  : NULL;
	struct wf_inbound *inbound = pool ? wf_pool_take(pool) : NULL;

	if (!inbound)
		pool = NULL;

	if (!inbound)
		inbound = malloc(bytes);
	if (!inbound)
		return NULL;
	inbound->pool = pool;
	inbound->payload.release = inbound_release;
	inbound->item.take = inbound_take;
	inbound->engine = engine;
	inbound->handle = peer->handle;
	inbound->user = atomic_load_explicit(&peer->user, memory_order_relaxed);
	inbound->peer = peer;
	inbound->first = frame->first;
	inbound->frames = inbound->missing = wf_frames_of(frame->total);
	inbound->bytes = frame->total;
	inbound->tag = frame->tag;
	inbound->content = inbound->data;
	inbound->subject = frame->subject;
	inbound->status = frame->status;
	inbound->type = frame->type;
	inbound->their_epoch = peer->their_epoch;
	inbound->event_tag = inbound->transfer = 0;
	inbound->stranger = !atomic_load_explicit(&peer->added, memory_order_relaxed);
	if (inbound->stranger)
		atomic_fetch_add(&engine->strangers_frames, inbound->frames);
	wf_count(&peer->taken, inbound->frames);
	return inbound;
}

static bool overlaps(const struct wf_link *head, const struct wf_link *before, const struct wf_frame *frame)
{
	const struct wf_inbound *last = wf_container(before, struct wf_inbound, link);
	const struct wf_inbound *next = wf_container(before->next, struct wf_inbound, link);

	return (before != head && frame->first - last->first < last->frames) ||
	       (before->next != head && next->first - frame->first < wf_frames_of(frame->total));
}

/* The message a frame belongs to, in a list kept by number; made when this is its first frame to arrive. No two messages share
 * a frame: the room that is made never exceeds the frames that may come. */
static struct wf_inbound *find_inbound(struct wf_peer *peer, const struct wf_frame *frame)
{
	struct wf_link *head = &peer->in.inbound, *at = head->prev;
	struct wf_inbound *inbound;

	for (; at != head; at = at->prev) {
		inbound = wf_container(at, struct wf_inbound, link);
		if (inbound->first == frame->first)
			return inbound->bytes == frame->total && inbound->type == frame->type ? inbound : NULL;
		if (inbound->first < frame->first)
			break;
	}
	inbound = overlaps(head, at, frame) ? NULL : make_inbound(peer, frame);
	if (inbound) {
		inbound->link.prev = at;
		inbound->link.next = at->next;
		at->next->prev = &inbound->link;
		at->next = &inbound->link;
	}
	return inbound;
}

WF_HOT static void dispatch(struct wf_peer *peer, struct wf_inbound *inbound)
{
	static const enum weft_event_type events[] = { [WF_MESSAGE_SEND] = WEFT_EVENT_MESSAGE,
						       [WF_MESSAGE_CALL] = WEFT_EVENT_CALL,
						       [WF_MESSAGE_NOTIFY] = WEFT_EVENT_NOTIFY };

	switch (inbound->type) {
	case WF_MESSAGE_SEND:
	case WF_MESSAGE_CALL:
	case WF_MESSAGE_NOTIFY:
		inbound->event_type = events[inbound->type];
		wf_queue_push(atomic_load(&peer->engine->listener), &inbound->item);
		break;
	case WF_MESSAGE_REPLY:
		wf_reply_arrived(inbound);
		break;
	case WF_MESSAGE_MANIFEST:
		wf_manifest_arrived(inbound);
		break;
	case WF_MESSAGE_VERDICT:
		wf_verdict_arrived(inbound);
		break;
	case WF_MESSAGE_BARRIER:
		wf_barrier_arrived(inbound);
		break;
	case WF_MESSAGE_REVOKE:
		wf_revoke_arrived(inbound);
		break;
	case WF_MESSAGE_LAND:
		wf_land_arrived(inbound);
		break;
	}
}

static void deliver(struct wf_peer *peer, struct wf_inbound *inbound)
{
	peer->in.deliver += inbound->frames;
	dispatch(peer, inbound);
}

static void deliver_in_order(struct wf_peer *peer)
{
	struct wf_channel_in *in = &peer->in;

	while (!wf_list_empty(&in->inbound)) {
		struct wf_inbound *inbound = wf_container(in->inbound.next, struct wf_inbound, link);

		if (inbound->first != in->deliver || inbound->missing)
			return;
		wf_list_remove(&inbound->link);
		deliver(peer, inbound);
	}
}

static bool has_arrived(const struct wf_channel_in *in, uint64_t seq)
{
	return in->arrived[seq % WF_WINDOW_FRAMES / 64] >> seq % 64 & 1;
}

static void flip_arrived(struct wf_channel_in *in, uint64_t seq)
{
	in->arrived[seq % WF_WINDOW_FRAMES / 64] ^= UINT64_C(1) << seq % 64;
}

/* In order only the number moves; what came early is marked until its turn. */
static void note_arrived(struct wf_channel_in *in, uint64_t seq)
{
	if (seq != in->expected) {
		flip_arrived(in, seq);
		return;
	}
	for (in->expected++; has_arrived(in, in->expected); in->expected++)
		flip_arrived(in, in->expected);
}

/* Each stranger has its window, but there may be many strangers, and those that left may have left much unread. */
static bool strangers_hold_too_much(const struct wf_peer *peer)
{
	struct weft_engine *engine = peer->engine;

	return !atomic_load_explicit(&peer->added, memory_order_relaxed) &&
	       atomic_load_explicit(&engine->strangers_frames, memory_order_relaxed) >
		   STRANGERS_WINDOWS * engine->settings.window_frames;
}

static void take_message(struct wf_peer *peer, const struct wf_frame *frame)
{
	struct wf_channel_in *in = &peer->in;
	struct wf_inbound *inbound;
	bool whole;

	/* The one that is expected never came. */
	if (frame->seq != in->expected && (frame->seq < in->expected || has_arrived(in, frame->seq))) {
		wf_channel_owe(peer); /* it came twice: tell the sender that once was enough */
		return;
	}
	if (frame->total > peer->engine->settings.max_message) {
		wf_peer_down(peer, -EPROTO, "it sent a larger message than we take");
		return;
	}
	/* Beyond what we said we would take, or a message that could never be whole. */
	if (frame->seq >= in->expected + WF_WINDOW_FRAMES || frame->seq >= credit_of(peer) ||
	    frame->first < in->deliver || strangers_hold_too_much(peer))
		return;
	/* Most messages are one frame and their turn is now: those are never listed. */
	whole = frame->total <= WF_FRAME_PAYLOAD && frame->first == in->deliver && wf_list_empty(&in->inbound);
	inbound = whole ? make_inbound(peer, frame) : find_inbound(peer, frame);
	if (!inbound)
		return; /* no memory: it was not acknowledged, so it comes again */
	memcpy(inbound->data + (frame->seq - frame->first) * WF_FRAME_PAYLOAD, frame->payload, frame->payload_bytes);
	inbound->missing--;
	note_arrived(in, frame->seq);
	if (frame->type == WF_MESSAGE_CALL || frame->type == WF_MESSAGE_REPLY)
		owe_soon(peer);
	else
		wf_channel_owe(peer);
	if (whole)
		deliver(peer, inbound);
	else
		deliver_in_order(peer);
}

WF_HOT void wf_channel_arrived(struct wf_peer *peer, const struct wf_frame *frame)
{
	uint64_t acked = peer->out.acked;

	/* Frames of another connection, earlier or later, mean nothing in this one. */
	if (peer->closing || frame->incarnation != atomic_load(&peer->incarnation) || !peer->their_epoch ||
	    frame->from_epoch != peer->their_epoch || frame->to_epoch != atomic_load(&peer->epoch))
		return;
	wf_peer_alive(peer);
	if (!wf_channel_take_ack(peer, frame)) {
		wf_peer_down(peer, -EPROTO, "it acknowledged what was never sent");
		return;
	}
	if (wf_frame_is_sign_of_life(frame->kind) && peer->out.acked == acked)
		peer->home->worker.faint++;
	if (frame->kind == WF_FRAME_MESSAGE) {
		take_message(peer, frame);
	} else if (frame->kind == WF_FRAME_PING) {
		wf_channel_owe(peer);
	} else if (frame->kind == WF_FRAME_BYE) {
		wf_peer_send_plain(peer, WF_FRAME_BYE); /* they wait for it before they close */
		wf_peer_down(peer, -EHOSTDOWN, "it said goodbye");
	}
}

/* ---- the end ---- */

void wf_channel_drop_inbound(struct wf_peer *peer)
{
	struct wf_link *lists[] = { &peer->in.inbound, &peer->barriers };

	wf_verify_drop(peer);
	wf_landing_drop(peer);
	peer->early = 0;
	for (int i = 0; i < 2; i++)
		while (!wf_list_empty(lists[i])) {
			struct wf_inbound *inbound = wf_container(lists[i]->next, struct wf_inbound, link);

			wf_list_remove(&inbound->link);
			wf_inbound_free(inbound);
		}
}

void wf_channel_forget(struct wf_peer *peer)
{
	struct wf_channel_in *in = &peer->in;

	wf_channel_drop_inbound(peer);
	in->expected = in->deliver = in->told_credit = 0;
	memset(in->arrived, 0, sizeof(in->arrived));
	in->ack_due = in->ack_soon = false;
	in->base = atomic_load_explicit(&peer->taken, memory_order_relaxed);
	wf_list_remove(&peer->acking);
}
