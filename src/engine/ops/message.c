/*
 * Submitting messages, calls and replies. With threads of weft's own: a copy, and a note to the peer's home. With manual
 * progress the caller is the worker when no other thread is: then the message goes out at once. On the caller's thread.
 */
#include "engine/ops/message.h"
#include "base/hot.h"
#include "engine/core/engine.h"
#include "engine/peer/peer.h"
#include "engine/ops/request.h"

#include <errno.h>
#include <string.h>

/* Its content is the caller's until it is kept; the room for that is there. */
static int set_message(struct wf_transfer *transfer, const struct wf_outgoing *outgoing)
{
	struct wf_message *message = &transfer->message;

	if (!wf_transfer_copy_room(transfer, outgoing->bytes))
		return -ENOMEM;
	message->type = outgoing->type;
	message->status = outgoing->status;
	message->tag = outgoing->tag;
	message->subject = outgoing->kind == WF_CALL    ? transfer->id
			   : outgoing->kind == WF_REPLY ? outgoing->subject & ~WF_CALL_MARK
							: outgoing->subject;
	message->bytes = outgoing->bytes;
	message->data = outgoing->data;
	transfer->call_mark = outgoing->subject & WF_CALL_MARK;
	return 0;
}

static void keep_message(struct wf_transfer *transfer)
{
	struct wf_message *message = &transfer->message;

	if (message->bytes)
		memcpy(transfer->copy, message->data, message->bytes);
	message->data = transfer->copy;
}

int wf_request_message(struct weft_engine *engine, struct wf_transfer *transfer, const struct wf_outgoing *outgoing)
{
	int error = set_message(transfer, outgoing);

	if (error)
		return error;
	keep_message(transfer);
	return wf_request_peer(engine, outgoing->peer, &transfer->peer);
}

static void set_kind(struct wf_transfer *transfer, enum wf_transfer_kind kind)
{
	transfer->kind = kind;
	if (wf_transfer_is_owed(transfer))
		atomic_fetch_add(&transfer->engine->owed, 1);
}

/* ---- at once ---- */

/* Whatever answers a peer never waits for what is asked of it. */
static struct wf_pool *pool_for(struct weft_engine *engine, enum wf_transfer_kind kind)
{
	return kind == WF_REPLY ? &engine->answers : kind == WF_INTERNAL ? &engine->internals : &engine->transfers;
}

static struct wf_transfer *reserve(struct weft_engine *engine, enum wf_transfer_kind kind)
{
	struct wf_pool *pool = pool_for(engine, kind);
	struct wf_transfer *transfer = wf_transfer_reserve(pool);

	if (transfer)
		return transfer;
	wf_group_end_acked(&engine->group[0], NULL);
	return wf_transfer_reserve(pool);
}

/* One peer's answers must not take the slots of all others'. */
static int count(struct wf_transfer *transfer, struct wf_peer *peer)
{
	return wf_transfer_is_owed(transfer) ? wf_answer_count(transfer, peer) : 0;
}

/* What makes it a transfer like any other: to be sent again, given up in time, counted. */
static void begin(struct wf_transfer *transfer, struct wf_peer *peer, enum wf_transfer_kind kind,
		  const struct weft_op *op)
{
	wf_transfer_prepare(transfer, op);
	set_kind(transfer, kind);
	keep_message(transfer);
	wf_handle_ref(&transfer->engine->peers, peer->handle);
	atomic_fetch_add_explicit(&peer->accepted, 1, memory_order_relaxed);
	transfer->peer = peer;
	atomic_store_explicit(&transfer->home, peer->home, memory_order_relaxed);
	wf_transfer_begin(transfer);
}

/* The frame goes first, so that the peer waits for nothing else that is to be done. */
WF_HOT static int send_at_once(struct weft_engine *engine, const struct wf_outgoing *outgoing, const struct weft_op *op,
			       weft_transfer *ret)
{
	struct wf_group *home = &engine->group[0];
	/* Without a reference: it goes only by a note, which nobody else can read meanwhile. */
	struct wf_peer *peer = wf_handle_peek(&engine->peers, outgoing->peer);
	struct wf_transfer *transfer;
	weft_transfer id;
	bool gone;
	int error;

	if (!peer)
		return wf_request_no_such(engine, "peer", outgoing->peer);
	if (atomic_load_explicit(&peer->state, memory_order_relaxed) == WF_PEER_DOWN)
		return -EHOSTDOWN;
	transfer = reserve(engine, outgoing->kind);
	if (!transfer)
		return -EAGAIN;
	transfer->kind = outgoing->kind;
	error = count(transfer, peer);
	if (!error && (error = set_message(transfer, outgoing)))
		wf_answer_uncount(transfer);
	if (error) {
		wf_pool_give(transfer->pool, transfer);
		return error;
	}
	id = transfer->id; /* once begun it may be over */
	/* What is not copied by the post is watched from then on: by a clock that is right. */
	if (WF_FRAME_HEADER + outgoing->bytes > home->seat[0].limits.inject_bytes)
		wf_worker_read_clock(&home->worker);
	/* Not what the begin is going to refuse. */
	gone = (outgoing->kind != WF_REPLY || transfer->call_mark == wf_call_mark(peer->their_epoch)) &&
	       wf_channel_send_now(peer, &transfer->message);
	begin(transfer, peer, outgoing->kind, op);
	if (!gone) {
		wf_worker_read_clock(&home->worker);
		wf_group_send_frames(home);
	}
	if (ret) /* last: a thread that reads it may cancel it */
		*ret = id;
	return 0;
}

WF_HOT int wf_submit_message(struct weft_engine *engine, const struct wf_outgoing *outgoing, const struct weft_op *op,
			     weft_transfer *ret)
{
	struct wf_transfer *transfer;
	int error = wf_request_check(engine, op, false);

	if (error)
		return error;
	if (outgoing->bytes > engine->settings.max_message)
		return -EMSGSIZE;
	if (outgoing->bytes && !outgoing->data)
		return -EINVAL;
	if (engine->groups == 1 && !(op && op->start_word) && wf_worker_enter(&engine->group[0].worker)) {
		error = send_at_once(engine, outgoing, op, ret);
		wf_worker_leave(&engine->group[0].worker);
		return error;
	}
	transfer = wf_transfer_take_of(engine, pool_for(engine, outgoing->kind), op);
	if (!transfer)
		return -EAGAIN;
	set_kind(transfer, outgoing->kind);
	error = wf_request_message(engine, transfer, outgoing);
	return wf_request_post(transfer, error ? error : count(transfer, transfer->peer), ret);
}

int wf_submit_answer(struct weft_engine *engine, const struct wf_outgoing *outgoing)
{
	/* Not through wf_transfer_take_of(), which may wait for this very worker. */
	struct wf_transfer *transfer = wf_transfer_reserve(pool_for(engine, outgoing->kind));
	int error;

	if (!transfer)
		return -EAGAIN;
	wf_transfer_prepare(transfer, NULL);
	set_kind(transfer, outgoing->kind);
	error = wf_request_message(engine, transfer, outgoing);
	return wf_request_post(transfer, error ? error : count(transfer, transfer->peer), NULL);
}
