/* Numbering, sending, acknowledgements taken and sending again: channel_out.h says what it owns. On the peer's home. */
#include "engine/peer/channel_out.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/peer/peer.h"
#include "engine/peer/talk.h"

#include <errno.h>
#include <string.h>

#define FRAMES_PER_PUMP 64
#define RESEND_NS       (200 * WF_MS) /* nothing acknowledged for that long: send it again */

void wf_channel_out_init(struct wf_channel_out *out)
{
	wf_list_init(&out->waiting);
	wf_list_init(&out->queue);
}

static void want_pump(struct wf_peer *peer)
{
	if (!wf_link_linked(&peer->pumping))
		wf_list_append(&peer->home->pumping, &peer->pumping);
}

void wf_channel_queue(struct wf_peer *peer, struct wf_message *message)
{
	message->numbered = false;
	wf_list_append(&peer->out.waiting, &message->link);
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

void wf_channel_open(struct wf_peer *peer, uint64_t credit)
{
	if (credit > peer->out.credit)
		peer->out.credit = credit;
	if (!wf_list_empty(&peer->out.waiting))
		want_pump(peer);
}

/* ---- sending ---- */

/* The next message gets its place in the sequence only when its first frame can go: until then it can be withdrawn, and a
 * peer that does not read holds no message that has ended. */
static struct wf_message *number_next(struct wf_peer *peer)
{
	struct wf_channel_out *out = &peer->out;

	while (!wf_list_empty(&out->waiting)) {
		struct wf_message *message = wf_container(out->waiting.next, struct wf_message, link);

		wf_list_remove(&message->link);
		if (message->bytes > peer->their_max_message) {
			message->over(message, -EMSGSIZE);
			continue;
		}
		message->numbered = true;
		message->frames = wf_frames_of(message->bytes);
		message->first = out->next;
		out->next += message->frames;
		wf_list_append(&out->queue, &message->link);
		return message;
	}
	return NULL;
}

static struct wf_message *message_after(struct wf_channel_out *out, struct wf_message *message)
{
	struct wf_link *next = message->link.next;

	return next == &out->queue ? NULL : wf_container(next, struct wf_message, link);
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
	memset(frame->reserved, 0, sizeof(frame->reserved)); /* the buffer held another frame */
	frame->seq = seq;
	frame->first = message->first;
	frame->total = message->bytes;
	frame->tag = message->tag;
	frame->subject = message->subject;
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
	struct wf_channel_out *out = &peer->out;
	struct wf_message *message = out->current;
	int error = send_frame(peer, message, out->sent);

	if (error)
		return error;
	if (out->sent == out->acked)
		out->moved_ns = wf_group_now(peer->home);
	out->sent++;
	if (out->sent == message->first + message->frames)
		out->current = message_after(out, message);
	return 0;
}

WF_HOT bool wf_channel_send_now(struct wf_peer *peer, struct wf_message *message)
{
	struct wf_channel_out *out = &peer->out;

	/* Only what would be next anyway, and is whole in a frame. */
	if (out->sent >= out->credit || out->sent != out->next || !wf_list_empty(&out->waiting) ||
	    message->bytes > WF_FRAME_PAYLOAD || message->bytes > peer->their_max_message ||
	    atomic_load_explicit(&peer->state, memory_order_relaxed) != WF_PEER_UP || peer->closing)
		return false;
	message->first = out->next;
	if (send_frame(peer, message, message->first))
		return false;
	wf_worker_read_clock(&peer->home->worker);
	message->frames = 1;
	message->numbered = true;
	wf_list_append(&out->queue, &message->link);
	out->next++;
	if (out->sent == out->acked)
		out->moved_ns = wf_group_now(peer->home);
	out->sent++;
	wf_peer_set_tick(peer, out->moved_ns + RESEND_NS);
	return true;
}

void wf_channel_pump(struct wf_peer *peer)
{
	struct wf_channel_out *out = &peer->out;
	bool up = !peer->closing && atomic_load(&peer->state) == WF_PEER_UP;
	int frames = 0, error = 0;

	while (up && out->sent < out->credit && frames < FRAMES_PER_PUMP &&
	       (out->current || (out->current = number_next(peer))) && !(error = send_next(peer)))
		frames++;
	if (out->acked < out->sent)
		wf_peer_set_tick(peer, out->moved_ns + RESEND_NS);
	/* No room on the rail, or more than its share: next turn. Any other obstacle is reported when it goes. */
	if (error == -EAGAIN || frames == FRAMES_PER_PUMP)
		want_pump(peer);
	else
		wf_list_remove(&peer->pumping);
}

void wf_channel_resend(struct wf_peer *peer)
{
	struct wf_channel_out *out = &peer->out;

	wf_channel_end_acked(peer);
	out->moved_ns = wf_group_now(peer->home);
	out->sent = out->acked;
	out->current = wf_list_empty(&out->queue) ? NULL : wf_container(out->queue.next, struct wf_message, link);
	want_pump(peer);
}

/* ---- what the peer says ---- */

bool wf_channel_take_ack(struct wf_peer *peer, const struct wf_frame *frame)
{
	struct wf_channel_out *out = &peer->out;

	if (frame->ack > out->next)
		return false;
	if (frame->credit > out->credit) {
		out->credit = frame->credit;
		if (out->current || !wf_list_empty(&out->waiting))
			want_pump(peer);
	}
	if (frame->ack <= out->acked)
		return true;
	out->acked = frame->ack;
	out->resends = 0;
	out->moved_ns = wf_group_now(peer->home);
	/* What was about to go again has arrived after all. */
	if (out->sent < out->acked || peer->home->worker.has_thread)
		wf_channel_end_acked(peer);
	else if (!wf_link_linked(&peer->ending))
		wf_list_append(&peer->home->ending, &peer->ending);
	if (out->sent < out->acked)
		out->sent = out->acked;
	return true;
}

bool wf_channel_will_end(const struct wf_peer *peer, const struct wf_message *message)
{
	return wf_link_linked(&peer->ending) && wf_link_linked(&message->link) && message->numbered &&
	       message->first + message->frames <= peer->out.acked;
}

WF_HOT void wf_channel_end_acked(struct wf_peer *peer)
{
	struct wf_channel_out *out = &peer->out;

	wf_list_remove(&peer->ending);
	while (!wf_list_empty(&out->queue)) {
		struct wf_message *message = wf_container(out->queue.next, struct wf_message, link);

		if (message->first + message->frames > out->acked)
			break;
		if (out->current == message)
			out->current = message_after(out, message);
		wf_list_remove(&message->link);
		message->over(message, 0);
	}
}

/* ---- time ---- */

/* A peer that is heard long after frames went, and does not acknowledge them, never got them. Not only after they went the last time:
 * what is heard may be the very welcome for which they go again, and a peer that answers hellos says nothing else. */
static bool is_heard_since(const struct wf_peer *peer)
{
	return atomic_load_explicit(&peer->heard_ns, memory_order_relaxed) > peer->out.doubted_ns;
}

/* Nothing of the last frames was acknowledged: over another path this time. A path that swallows frames for as long as a rail
 * may be silent, while the peer is heard from elsewhere, carries nothing until a hello over it is answered. Where messages are
 * numbered, a hello may be heard while what this endpoint sends never is. */
static void send_again(struct wf_peer *peer)
{
	struct wf_lane *lane = peer->lane[peer->home->index];
	struct wf_path *path = &lane->path[peer->talk_seat];
	struct wf_seat *seat = &peer->home->seat[peer->talk_seat];
	uint64_t now = wf_group_now(peer->home);

	if (!peer->out.resends)
		peer->out.doubted_ns = now;
	if (++peer->out.resends * RESEND_NS >= peer->engine->settings.rail_limit_ns && path->talks) {
		if (seat->limits.numbers_messages && is_heard_since(peer) && wf_seat_is_open(seat, path->talk_end)) {
			wf_rail_note_lost(seat->rail, path->talk_end, path->talk);
			peer->out.doubted_ns = now; /* the next one has its chance */
		}
		wf_lane_talk_failed(lane, path, "frames over it were not acknowledged");
	}
	peer->talk_seat = (peer->talk_seat + 1) % peer->home->seats;
	wf_channel_resend(peer);
}

uint64_t wf_channel_next_check(const struct wf_peer *peer)
{
	return peer->out.acked < peer->out.sent ? peer->out.moved_ns + RESEND_NS : WF_NEVER;
}

void wf_channel_check_acks(struct wf_peer *peer, uint64_t now_ns)
{
	if (now_ns >= wf_channel_next_check(peer))
		send_again(peer);
}

bool wf_channel_waits_for_credit(const struct wf_peer *peer)
{
	const struct wf_channel_out *out = &peer->out;

	return out->sent >= out->credit && (out->current || !wf_list_empty(&out->waiting));
}

/* ---- the end ---- */

static void lose_all(struct wf_link *messages)
{
	while (!wf_list_empty(messages)) {
		struct wf_message *message = wf_container(messages->next, struct wf_message, link);

		wf_list_remove(&message->link);
		message->over(message, -EHOSTDOWN);
	}
}

void wf_channel_lose(struct wf_peer *peer)
{
	struct wf_channel_out *out = &peer->out;

	lose_all(&out->queue);
	lose_all(&out->waiting);
	out->current = NULL;
	out->next = out->sent = out->acked = out->credit = out->resends = 0;
	wf_list_remove(&peer->pumping);
}
