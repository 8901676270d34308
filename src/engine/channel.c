/*
 * The message channel: numbering, sending, acknowledging and sending again on one side; reassembly, order, exactly-once
 * and credit on the other. Runs on the peer's home worker, but for the release of messages by the application.
 */
#include "engine/channel.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/transfer.h"
#include "engine/verify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_A_PUMP     64
#define ACK_SOON_NS       (1 * WF_MS) /* a reply is on its way and will carry the acknowledgement */
#define RESEND_NS         (200 * WF_MS)
#define STRANGERS_WINDOWS 32 /* what all who were never added may have unread here together */

void wf_channel_reset(struct wf_channel *channel)
{
	channel->current = NULL;
	channel->next = channel->sent = channel->acked = channel->credit = channel->agains = 0;
	channel->expected = channel->deliver = channel->told_credit = 0;
	memset(channel->arrived, 0, sizeof(channel->arrived));
	channel->ack_due = channel->ack_soon = false;
}

/* ---- out ---- */

static void want_pump(struct wf_peer *peer)
{
	if (!wf_link_linked(&peer->pumping))
		wf_list_append(&peer->home->pumping, &peer->pumping);
}

/* What lies unread of earlier epochs takes its room from this one. It never shrinks within an epoch. */
static uint64_t credit_of(const struct wf_peer *peer)
{
	uint64_t limit = atomic_load(&peer->consumed) + peer->engine->settings.window_frames, base = peer->channel.base;

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
	struct wf_channel *channel = &peer->channel;

	frame->from_rail = frame->to_rail = 0; /* those are for greetings */
	frame->incarnation = peer->engine->incarnation;
	frame->to_peer = peer->their_handle;
	frame->from_epoch = atomic_load(&peer->epoch);
	frame->to_epoch = peer->their_epoch;
	frame->token = atomic_load_explicit(&peer->their_secret, memory_order_relaxed);
	frame->ack = channel->expected;
	return frame->credit = credit_of(peer);
}

WF_HOT void wf_channel_told(struct wf_peer *peer, uint64_t credit)
{
	struct wf_channel *channel = &peer->channel;

	channel->told_credit = credit;
	channel->ack_due = channel->ack_soon = false;
	wf_list_remove(&peer->acking);
}

bool wf_channel_credit_is_news(struct wf_peer *peer)
{
	return credit_of(peer) > peer->channel.told_credit;
}

void wf_channel_queue(struct wf_peer *peer, struct wf_message *message)
{
	message->numbered = false;
	wf_list_append(&peer->channel.waiting, &message->link);
	if (atomic_load(&peer->state) == WF_PEER_UP)
		want_pump(peer);
}

bool wf_channel_withdraw(struct wf_message *message)
{
	if (!wf_link_linked(&message->link) || message->numbered)
		return false;
	wf_list_remove(&message->link);
	return true;
}

void wf_channel_opened(struct wf_peer *peer)
{
	if (!wf_list_empty(&peer->channel.waiting))
		want_pump(peer);
}

/* The next message gets its place in the sequence only when its first frame can go: until then it can be withdrawn, and a
 * peer that does not read holds nothing of those that have ended. */
static struct wf_message *number_next(struct wf_peer *peer)
{
	struct wf_channel *channel = &peer->channel;

	while (!wf_list_empty(&channel->waiting)) {
		struct wf_message *message = wf_container(channel->waiting.next, struct wf_message, link);

		wf_list_remove(&message->link);
		if (message->bytes > peer->their_max_message) {
			message->over(message, -EMSGSIZE);
			continue;
		}
		message->numbered = true;
		message->frames = wf_frames_of(message->bytes);
		message->first = channel->next;
		channel->next += message->frames;
		wf_list_append(&channel->queue, &message->link);
		return message;
	}
	return NULL;
}

static struct wf_message *message_after(struct wf_channel *channel, struct wf_message *message)
{
	struct wf_link *next = message->link.next;

	return next == &channel->queue ? NULL : wf_container(next, struct wf_message, link);
}

/* One frame of a message, by its number. */
static inline int send_frame(struct wf_peer *peer, const struct wf_message *message, uint64_t seq)
{
	uint64_t offset = (seq - message->first) * WF_FRAME_PAYLOAD, left = message->bytes - offset, credit;
	uint32_t bytes = (uint32_t)(left < WF_FRAME_PAYLOAD ? left : WF_FRAME_PAYLOAD);
	struct wf_tx_frame *tx = wf_peer_take_tx(peer);
	struct wf_frame *frame;
	int error;

	if (!tx)
		return -EAGAIN;
	frame = wf_tx_header(tx);
	frame->kind = WF_FRAME_MESSAGE;
	frame->type = message->type;
	frame->seq = seq;
	frame->first = message->first;
	frame->total = message->bytes;
	frame->tag = message->tag;
	frame->call = message->call;
	frame->status = message->status;
	frame->payload_bytes = bytes;
	credit = wf_channel_stamp(peer, frame);
	if (bytes)
		memcpy(frame->payload, message->data + offset, bytes);
	error = wf_peer_send_frame(peer, tx);
	if (!error)
		wf_channel_told(peer, credit);
	return error;
}

static int send_next(struct wf_peer *peer)
{
	struct wf_channel *channel = &peer->channel;
	struct wf_message *message = channel->current;
	uint64_t seq = channel->sent;
	int error = send_frame(peer, message, seq);

	if (error)
		return error;
	/* A path failed while we looked for one that takes it: all that is not acknowledged goes again, this frame too. */
	if (channel->sent != seq)
		return 0;
	if (channel->sent == channel->acked)
		channel->moved_ns = wf_group_now(peer->home);
	channel->sent++;
	if (channel->sent == message->first + message->frames)
		channel->current = message_after(channel, message);
	return 0;
}

WF_HOT bool wf_channel_send_now(struct wf_peer *peer, struct wf_message *message)
{
	struct wf_channel *channel = &peer->channel;

	/* Only what would be next anyway, and is whole in a frame. */
	if (channel->sent >= channel->credit || channel->sent != channel->next || !wf_list_empty(&channel->waiting) ||
	    message->bytes > WF_FRAME_PAYLOAD || message->bytes > peer->their_max_message ||
	    atomic_load_explicit(&peer->state, memory_order_relaxed) != WF_PEER_UP || peer->closing)
		return false;
	message->first = channel->next;
	if (send_frame(peer, message, message->first))
		return false;
	wf_worker_look(&peer->home->worker);
	message->frames = 1;
	message->numbered = true;
	wf_list_append(&channel->queue, &message->link);
	channel->next++;
	/* A path failed while we looked for one that takes it: all that is not acknowledged goes again, this frame too. */
	if (channel->sent != message->first)
		return true;
	if (channel->sent == channel->acked)
		channel->moved_ns = wf_group_now(peer->home);
	channel->sent++;
	wf_peer_set_tick(peer, channel->moved_ns + RESEND_NS);
	return true;
}

void wf_channel_pump(struct wf_peer *peer)
{
	struct wf_channel *channel = &peer->channel;
	bool up = !peer->closing && atomic_load(&peer->state) == WF_PEER_UP;
	int frames = 0, error = 0;

	while (up && channel->sent < channel->credit && frames < FRAMES_A_PUMP &&
	       (channel->current || (channel->current = number_next(peer))) && !(error = send_next(peer)))
		frames++;
	if (channel->acked < channel->sent)
		wf_peer_set_tick(peer, channel->moved_ns + RESEND_NS);
	/* No room on the rail, or more than its share: next turn. Anything else is news when it changes. */
	if (error == -EAGAIN || frames == FRAMES_A_PUMP)
		want_pump(peer);
	else
		wf_list_remove(&peer->pumping);
}

void wf_channel_again(struct wf_peer *peer)
{
	struct wf_channel *channel = &peer->channel;

	wf_channel_settle(peer);
	channel->moved_ns = wf_group_now(peer->home);
	channel->sent = channel->acked;
	channel->current =
	    wf_list_empty(&channel->queue) ? NULL : wf_container(channel->queue.next, struct wf_message, link);
	want_pump(peer);
}

void wf_channel_acknowledge(struct wf_peer *peer)
{
	if (peer->closing || atomic_load(&peer->state) != WF_PEER_UP)
		return;
	/* No room: what the frame would have said is still owed, and said next turn. */
	if (wf_peer_send_plain(peer, WF_FRAME_PONG) == -EAGAIN)
		wf_channel_owe(peer);
}

/* False: the peer acknowledges what was never sent. */
static bool take_ack(struct wf_peer *peer, const struct wf_frame *frame)
{
	struct wf_channel *channel = &peer->channel;

	if (frame->ack > channel->next)
		return false;
	if (frame->credit > channel->credit) {
		channel->credit = frame->credit;
		if (channel->current || !wf_list_empty(&channel->waiting))
			want_pump(peer);
	}
	if (frame->ack <= channel->acked)
		return true;
	channel->acked = frame->ack;
	channel->agains = 0;
	channel->moved_ns = wf_group_now(peer->home);
	/* What was about to go again has arrived after all. */
	if (channel->sent < channel->acked || peer->home->worker.has_thread)
		wf_channel_settle(peer);
	else if (!wf_link_linked(&peer->settling))
		wf_list_append(&peer->home->settling, &peer->settling);
	if (channel->sent < channel->acked)
		channel->sent = channel->acked;
	return true;
}

bool wf_channel_settles(const struct wf_peer *peer, const struct wf_message *message)
{
	return wf_link_linked(&peer->settling) && wf_link_linked(&message->link) && message->numbered &&
	       message->first + message->frames <= peer->channel.acked;
}

WF_HOT void wf_channel_settle(struct wf_peer *peer)
{
	struct wf_channel *channel = &peer->channel;

	wf_list_remove(&peer->settling);
	while (!wf_list_empty(&channel->queue)) {
		struct wf_message *message = wf_container(channel->queue.next, struct wf_message, link);

		if (message->first + message->frames > channel->acked)
			break;
		if (channel->current == message)
			channel->current = message_after(channel, message);
		wf_list_remove(&message->link);
		message->over(message, 0);
	}
}

/* ---- in ---- */

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
	event->transfer = inbound->transfer;
	event->bytes = inbound->bytes;
	event->data = inbound->content;
	event->call = inbound->type == WF_MESSAGE_CALL ? wf_call_token(inbound->call, inbound->their_epoch) : 0;
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
	inbound->peer = peer;
	inbound->first = frame->first;
	inbound->frames = inbound->missing = wf_frames_of(frame->total);
	inbound->bytes = frame->total;
	inbound->tag = frame->tag;
	inbound->content = inbound->data;
	inbound->call = frame->call;
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

/* The message a frame belongs to, in a list kept by number; made when this is its first frame to arrive. No two share a
 * frame, so that what is made room for is no more than the frames that may come. */
static struct wf_inbound *find_inbound(struct wf_peer *peer, const struct wf_frame *frame)
{
	struct wf_link *head = &peer->channel.inbound, *at = head->prev;
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
		wf_remote_revoked(peer->engine, peer->handle, inbound->call);
		wf_inbound_free(inbound);
		break;
	}
}

static void deliver(struct wf_peer *peer, struct wf_inbound *inbound)
{
	peer->channel.deliver += inbound->frames;
	dispatch(peer, inbound);
}

static void deliver_in_order(struct wf_peer *peer)
{
	struct wf_channel *channel = &peer->channel;

	while (!wf_list_empty(&channel->inbound)) {
		struct wf_inbound *inbound = wf_container(channel->inbound.next, struct wf_inbound, link);

		if (inbound->first != channel->deliver || inbound->missing)
			return;
		wf_list_remove(&inbound->link);
		deliver(peer, inbound);
	}
}

void wf_channel_owe(struct wf_peer *peer)
{
	peer->channel.ack_due = true;
	if (!wf_link_linked(&peer->acking))
		wf_list_append(&peer->home->acking, &peer->acking);
}

/* An answer is on its way and will carry it; if not, it goes by itself. */
static void owe_soon(struct wf_peer *peer)
{
	struct wf_channel *channel = &peer->channel;

	if (!channel->ack_soon)
		channel->ack_soon_ns = wf_group_now(peer->home) + ACK_SOON_NS;
	channel->ack_soon = true;
	wf_peer_set_tick(peer, channel->ack_soon_ns);
}

static bool has_arrived(const struct wf_channel *channel, uint64_t seq)
{
	return channel->arrived[seq % WF_WINDOW_FRAMES / 64] >> seq % 64 & 1;
}

static void flip_arrived(struct wf_channel *channel, uint64_t seq)
{
	channel->arrived[seq % WF_WINDOW_FRAMES / 64] ^= UINT64_C(1) << seq % 64;
}

/* In order only the number moves; what came early is marked until its turn. */
static void note_arrived(struct wf_channel *channel, uint64_t seq)
{
	if (seq != channel->expected) {
		flip_arrived(channel, seq);
		return;
	}
	for (channel->expected++; has_arrived(channel, channel->expected); channel->expected++)
		flip_arrived(channel, channel->expected);
}

/* Each has its window, but there may be many of them, and those who left may have left much unread. */
static bool strangers_hold_too_much(const struct wf_peer *peer)
{
	struct weft_engine *engine = peer->engine;

	return !atomic_load_explicit(&peer->added, memory_order_relaxed) &&
	       atomic_load_explicit(&engine->strangers_frames, memory_order_relaxed) >
		   STRANGERS_WINDOWS * engine->settings.window_frames;
}

static void take_message(struct wf_peer *peer, const struct wf_frame *frame)
{
	struct wf_channel *channel = &peer->channel;
	struct wf_inbound *inbound;
	bool whole;

	/* The one that is expected never came. */
	if (frame->seq != channel->expected && (frame->seq < channel->expected || has_arrived(channel, frame->seq))) {
		wf_channel_owe(peer); /* it came twice: tell the sender that once was enough */
		return;
	}
	if (frame->total > peer->engine->settings.max_message) {
		wf_peer_down(peer, -EPROTO, "it sent a larger message than we take");
		return;
	}
	/* Beyond what we said we would take, or a message that could never be whole. */
	if (frame->seq >= channel->expected + WF_WINDOW_FRAMES || frame->seq >= credit_of(peer) ||
	    frame->first < channel->deliver || strangers_hold_too_much(peer))
		return;
	/* Most messages are one frame and their turn is now: those are never listed. */
	whole =
	    frame->total <= WF_FRAME_PAYLOAD && frame->first == channel->deliver && wf_list_empty(&channel->inbound);
	inbound = whole ? make_inbound(peer, frame) : find_inbound(peer, frame);
	if (!inbound)
		return; /* no memory: it was not acknowledged, so it comes again */
	memcpy(inbound->data + (frame->seq - frame->first) * WF_FRAME_PAYLOAD, frame->payload, frame->payload_bytes);
	inbound->missing--;
	note_arrived(channel, frame->seq);
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
	uint64_t acked = peer->channel.acked;

	/* Frames of another connection, earlier or later, mean nothing in this one. */
	if (peer->closing || frame->incarnation != atomic_load(&peer->incarnation) || !peer->their_epoch ||
	    frame->from_epoch != peer->their_epoch || frame->to_epoch != atomic_load(&peer->epoch))
		return;
	wf_peer_alive(peer);
	if (!take_ack(peer, frame)) {
		wf_peer_down(peer, -EPROTO, "it acknowledged what was never sent");
		return;
	}
	if (wf_frame_is_sign_of_life(frame->kind) && peer->channel.acked == acked)
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

void wf_channel_drop_inbound(struct wf_peer *peer)
{
	struct wf_link *lists[] = { &peer->channel.inbound, &peer->barriers };

	wf_verify_drop(peer);
	peer->early = 0;
	for (int i = 0; i < 2; i++)
		while (!wf_list_empty(lists[i])) {
			struct wf_inbound *inbound = wf_container(lists[i]->next, struct wf_inbound, link);

			wf_list_remove(&inbound->link);
			wf_inbound_free(inbound);
		}
}
