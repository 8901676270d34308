/*
 * The life of a transfer: taken from the pool by a caller, begun, stopped and ended on its home worker, given
 * back when the application has taken its end and the channel has let go of its message. Completed exactly
 * once: only wf_transfer_end() delivers, and it marks the slot so that nothing can end it again. Only the home calls it; a
 * parent, which has no home, is ended by the thread that ends its last child.
 */
#include "engine/ops/transfer.h"
#include "engine/move/returned.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/ops/expect.h"
#include "engine/ops/explain.h"
#include "engine/ops/family.h"
#include "engine/ops/legs.h"
#include "engine/ops/request.h"
#include "engine/ops/wait.h"
#include "engine/peer/peer.h"
#include "wire/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COPIES_KEPT (32u << 20)
#define FAR_NS      (10 * WF_S)

static uint64_t generation_of(uint64_t state)
{
	return state >> 32 << 32;
}

static bool ended(struct wf_transfer *transfer)
{
	return (uint32_t)atomic_load(&transfer->state) == WF_STOP_DONE;
}

static struct wf_group *home_of(struct wf_transfer *transfer)
{
	return transfer->peer ? transfer->peer->home : &transfer->engine->group[0];
}

/* ---- the slot ---- */

static void on_deadline(struct wf_timer *timer, uint64_t now_ns)
{
	struct wf_transfer *transfer = wf_container(timer, struct wf_transfer, timer);

	/* Even if it was stopped before: the note that says so may still be on its way. */
	wf_transfer_stop(transfer, -ETIMEDOUT);
	wf_transfer_stopped(transfer);
}

static void end_take(struct wf_item_event *item, struct weft_event *event)
{
	struct wf_transfer *transfer = wf_container(item, struct wf_transfer, item);

	if (transfer->reply) { /* a call's, kept: the reply is the end */
		transfer->reply->item.take(&transfer->reply->item, event);
		wf_transfer_drop(transfer);
		return;
	}
	event->type = transfer->kind == WF_CALL     ? WEFT_EVENT_REPLY
		      : transfer->kind == WF_EXPECT ? WEFT_EVENT_COUNTED
						    : WEFT_EVENT_END;
	event->status = transfer->status;
	event->quiescent = !atomic_load(&transfer->may_still_land);
	event->tag = transfer->tag;
	event->peer = transfer->peer_handle;
	event->peer_user = transfer->peer_user;
	event->transfer = transfer->id;
	event->bytes = event->type == WEFT_EVENT_REPLY ? 0 : atomic_load(&transfer->bytes);
	event->error = transfer->error;
	event->owner = transfer->error_payload;
	wf_transfer_drop(transfer);
}

/* When something submitted now times out. A deadline that is far away need not be exact: it is a tick early, and cheaper to find. */
static uint64_t deadline_of(uint64_t timeout_ns)
{
	return wf_deadline(timeout_ns < FAR_NS ? wf_now_ns() : wf_tick_ns(), timeout_ns);
}

WF_HOT void wf_transfer_prepare(struct wf_transfer *transfer, const struct weft_op *op)
{
	struct weft_engine *engine = transfer->engine;
	uint64_t timeout;

	atomic_store_explicit(&transfer->home, NULL, memory_order_relaxed);
	transfer->item.take = end_take;
	transfer->error_payload = NULL;
	transfer->error = NULL;
	transfer->reply = NULL;
	atomic_store_explicit(&transfer->there, 0, memory_order_relaxed);
	atomic_store_explicit(&transfer->kept, op && op->flags & WEFT_KEEP_END ? transfer->id : 0,
			      memory_order_relaxed);
	transfer->queue = op ? op->queue : NULL;
	transfer->tag = op ? op->tag : 0;
	timeout = op && op->timeout_ns ? op->timeout_ns : engine->settings.timeout_ns;
	transfer->deadline_ns = timeout == WEFT_FOREVER ? WF_NEVER : deadline_of(timeout);
	transfer->peer = NULL;
	transfer->peer_handle = 0;
	transfer->peer_user = NULL;
	transfer->paged = transfer->plain = transfer->listed = false;
	transfer->cards = transfer->cards_both = transfer->lands = false;
	transfer->leg = NULL;
	transfer->most_adjacent = transfer->ranges = 1;
	transfer->slices = 0;
	transfer->units = 0;
	transfer->parent = NULL;
	transfer->children = 0;
	transfer->notify = WEFT_NOTIFY_NOTHING;
	transfer->checked = op && op->flags & WEFT_CHECKSUM;
	transfer->judged = false;
	transfer->words.start = NULL;
	atomic_store_explicit(&transfer->words.end, NULL, memory_order_relaxed);
	transfer->words.waits = false;
	if (op && (op->start_word || op->end_word))
		wf_words_take(transfer, op);
	transfer->sent = transfer->answered = transfer->begun = transfer->moving = transfer->parts_told = false;
	transfer->status = 0;
	atomic_store_explicit(&transfer->may_still_land, 0, memory_order_relaxed);
	atomic_store_explicit(&transfer->bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&transfer->sum, 0, memory_order_relaxed);
	atomic_store_explicit(&transfer->next_unit, 0, memory_order_relaxed);
	atomic_store_explicit(&transfer->parts_left, 0, memory_order_relaxed);
	atomic_store_explicit(&transfer->holds, 1, memory_order_relaxed);
	wf_list_init(&transfer->link);
	wf_timer_init(&transfer->timer, on_deadline);
	if (transfer->queue)
		atomic_fetch_add(&transfer->queue->in_flight, 1);
	/* Release, here and at the end: who acts on the word sees what was set before it. Cancels exchange it, so that nothing
	 * hangs on an order with other words. */
	atomic_store_explicit(&transfer->state, generation_of(transfer->id), memory_order_release);
}

WF_HOT void wf_transfer_drop(struct wf_transfer *transfer)
{
	struct weft_engine *engine = transfer->engine;

	/* acq_rel: the last to let go sees all that the others did with it. Alone with it there is nobody to count with. */
	if (atomic_load_explicit(&transfer->holds, memory_order_acquire) != 1 &&
	    atomic_fetch_sub_explicit(&transfer->holds, 1, memory_order_acq_rel) != 1)
		return;
	/* Index lists, messages and manifests are kept for the next user of the slot, within reason. */
	if ((transfer->copy || transfer->manifest) && atomic_load(&engine->copies_kept) > COPIES_KEPT) {
		free(transfer->copy);
		free(transfer->manifest);
		atomic_fetch_sub(&engine->copies_kept, transfer->copy_room + transfer->manifest_room);
		transfer->copy = transfer->manifest = NULL;
		transfer->copy_room = transfer->manifest_room = 0;
	}
	wf_pool_give(transfer->pool, transfer);
}

WF_HOT static void put_references(struct wf_transfer *transfer)
{
	struct weft_engine *engine = transfer->engine;
	struct wf_peer *peer = transfer->peer;

	for (uint32_t i = 0; i < transfer->slices; i++) {
		if (transfer->slice[i].region)
			wf_handle_put(&engine->regions, transfer->slice[i].region->handle);
		if (transfer->slice[i].remote)
			wf_handle_put(&engine->remotes, transfer->slice[i].remote->handle);
	}
	transfer->slices = 0;
	if (atomic_load_explicit(&transfer->returned, memory_order_relaxed)) /* all parts are done: nobody adds one */
		wf_returned_free(atomic_exchange(&transfer->returned, NULL));
	if (!peer && transfer->peer_handle) /* an expectation's, which holds no reference */
		peer = wf_handle_get(&engine->peers, transfer->peer_handle);
	if (peer) {
		transfer->peer_handle = peer->handle;
		transfer->peer_user = atomic_load_explicit(&peer->user, memory_order_relaxed);
		wf_handle_put(&engine->peers, peer->handle);
	}
}

void wf_transfer_abandon(struct wf_transfer *transfer)
{
	if (transfer->peer)
		atomic_fetch_sub_explicit(&transfer->peer->accepted, 1, memory_order_relaxed);
	wf_answer_uncount(transfer);
	put_references(transfer);
	if (wf_transfer_is_owed(transfer))
		atomic_fetch_sub(&transfer->engine->owed, 1);
	if (transfer->queue)
		atomic_fetch_sub(&transfer->queue->in_flight, 1);
	atomic_store(&transfer->state, generation_of(atomic_load(&transfer->state)) | WF_STOP_DONE);
	wf_transfer_drop(transfer);
}

bool wf_transfer_stop(struct wf_transfer *transfer, int status)
{
	uint64_t running = generation_of(atomic_load(&transfer->state));

	return atomic_compare_exchange_strong(&transfer->state, &running, running | (uint32_t)-status);
}

int wf_transfer_stop_status(struct wf_transfer *transfer)
{
	uint32_t reason = (uint32_t)atomic_load(&transfer->state);

	return reason == WF_STOP_DONE ? 0 : -(int)reason;
}

/* ---- ending ---- */

static bool is_kept(struct wf_transfer *transfer)
{
	return atomic_load_explicit(&transfer->kept, memory_order_relaxed);
}

/* Whether anybody is to learn how it ended. */
static bool is_awaited(struct wf_transfer *transfer)
{
	return transfer->queue || is_kept(transfer);
}

static void explain(struct wf_transfer *transfer, const struct weft_error *error)
{
	if (is_awaited(transfer) && transfer->status != -ECANCELED)
		wf_transfer_set_error(transfer, error);
}

static void deliver(struct wf_transfer *transfer)
{
	weft_queue *queue = transfer->queue;

	if (is_kept(transfer)) {
		wf_wait_ended(transfer);
		return;
	}
	if (!queue) {
		if (transfer->error_payload)
			transfer->error_payload->release(transfer->error_payload);
		wf_transfer_drop(transfer);
		return;
	}
	wf_queue_push_end(queue, &transfer->item);
}

static void child_ended(struct wf_transfer *parent, int status, const struct weft_error *error, uint64_t bytes,
			bool quiescent)
{
	uint64_t running = generation_of(atomic_load(&parent->state));

	atomic_fetch_add(&parent->bytes, bytes);
	if (!quiescent)
		atomic_store(&parent->may_still_land, 1);
	/* The first failure is the parent's; the word that cancel uses keeps it. Said before our hold on it
	 * is gone. */
	if (status && atomic_compare_exchange_strong(&parent->state, &running, running | (uint32_t)-status) &&
	    status != -ECANCELED && is_awaited(parent))
		wf_transfer_set_error(parent, error);
	wf_transfer_child_put(parent);
}

void wf_transfer_child_put(struct wf_transfer *parent)
{
	if (atomic_fetch_sub_explicit(&parent->children_left, 1, memory_order_acq_rel) != 1)
		return;
	wf_transfer_end(parent, wf_transfer_stop_status(parent));
}

/* From here on nothing stops it. */
static void mark_done(struct wf_transfer *transfer)
{
	atomic_store_explicit(&transfer->state, generation_of(atomic_load(&transfer->state)) | WF_STOP_DONE,
			      memory_order_release);
}

/* The reply is a call's end event. */
static void deliver_reply(weft_queue *queue, struct wf_inbound *reply)
{
	if (queue)
		wf_queue_push_end(queue, &reply->item);
	else
		wf_inbound_free(reply);
}

/* A call ends as its reply says. */
static inline void write_end_word(struct wf_transfer *transfer, int status)
{
	if (atomic_load_explicit(&transfer->words.end, memory_order_relaxed))
		wf_words_end(transfer, transfer->reply ? transfer->reply->status : status);
}

/* The slot is free again when the channel has let go of it too. */
WF_HOT static void finish(struct wf_transfer *transfer, int status)
{
	struct wf_transfer *parent = transfer->parent;
	uint64_t bytes = atomic_load(&transfer->bytes);
	bool quiescent = !atomic_load(&transfer->may_still_land);
	bool withdrawn = wf_channel_withdraw(&transfer->message); /* the channel's hold is ours to drop */
	/* One that is kept stays with the call until it is taken. */
	struct wf_inbound *reply = is_kept(transfer) ? NULL : transfer->reply;
	weft_queue *queue = transfer->queue;
	struct weft_error error;

	transfer->status = status;
	if (transfer->words.waits)
		wf_words_forget(transfer);
	if (status) {
		wf_transfer_describe(transfer, status, &error);
		explain(transfer, &error);
	}
	if (wf_transfer_is_owed(transfer))
		atomic_fetch_sub(&transfer->engine->owed, 1);
	wf_list_remove(&transfer->link);
	wf_timer_clear(&home_of(transfer)->worker.timers, &transfer->timer);
	mark_done(transfer);
	if (transfer->peer)
		wf_count_after(&transfer->peer->ended, 1); /* it was accepted before */
	if (withdrawn || atomic_load_explicit(&transfer->holds, memory_order_relaxed) == 1)
		wf_answer_uncount(transfer); /* the channel does not hold it: its slot is free from here on */
	if (transfer->leg)
		wf_legs_moved(transfer, status);
	put_references(transfer);
	if (reply)
		transfer->queue = NULL;
	write_end_word(transfer, status);
	deliver(transfer);
	if (withdrawn)
		wf_transfer_drop(transfer);
	if (reply)
		deliver_reply(queue, reply);
	if (parent)
		child_ended(parent, status, &error, bytes, quiescent);
}

WF_HOT void wf_transfer_end(struct wf_transfer *transfer, int status)
{
	weft_queue *queue = transfer->queue;

	/* Manual progress: the channel is about to let go of the call's message. The application gets the reply first, and what
	 * it does next goes out before the slot is tidied up. */
	if (transfer->reply && !is_kept(transfer) && wf_channel_will_end(transfer->peer, &transfer->message)) {
		transfer->answered = true;
		transfer->queue = NULL;
		mark_done(transfer);
		write_end_word(transfer, status);
		deliver_reply(queue, transfer->reply);
		transfer->reply = NULL;
		return;
	}
	finish(transfer, status);
}

/* ---- beginning ---- */

/* Until its end is delivered only the home counts who holds a transfer. */
static void set_holds(struct wf_transfer *transfer, uint32_t holds)
{
	atomic_store_explicit(&transfer->holds, holds, memory_order_relaxed);
}

static void queue_message(struct wf_transfer *transfer)
{
	set_holds(transfer, 2);          /* the channel's too, until delivered or lost */
	if (!transfer->message.numbered) /* it went before */
		wf_channel_queue(transfer->peer, &transfer->message);
}

/* Returns 0, or the status it ends with before it has begun. */
static inline int refused(struct wf_transfer *transfer)
{
	struct wf_peer *peer = transfer->peer;
	int status = wf_transfer_stop_status(transfer), state;

	if (status || !peer)
		return status;
	state = atomic_load(&peer->state);
	if (state == WF_PEER_REMOVED || peer->closing)
		return -ECANCELED;
	if (state == WF_PEER_DOWN)
		return -EHOSTDOWN;
	/* Replaced since the request was checked: its keys are another engine's. */
	if (transfer->slices && wf_request_incarnation(transfer, transfer->slice))
		return -EHOSTDOWN;
	return transfer->kind == WF_REPLY && transfer->call_mark != wf_call_mark(peer->their_epoch) ? -ESTALE : 0;
}

static void start_parts(struct wf_transfer *transfer)
{
	struct weft_engine *engine = transfer->engine;
	struct wf_group *home = home_of(transfer);
	uint64_t groups = atomic_load(&transfer->groups);

	if (!transfer->units) {
		wf_transfer_parts_done(transfer);
		return;
	}
	transfer->moving = true;
	if (transfer->lands) {
		wf_legs_begin(transfer);
		return;
	}
	atomic_store(&transfer->parts_left, (uint32_t)__builtin_popcountll(groups));
	for (uint32_t g = 0; g < engine->groups; g++)
		if (!(groups & UINT64_C(1) << g))
			continue;
		else if (&engine->group[g] == home)
			wf_part_start(home, transfer);
		else
			wf_note_tell(home, &engine->group[g], &transfer->part[g].start_note);
}

static inline void start(struct wf_transfer *transfer)
{
	switch (transfer->kind) {
	case WF_WRITE:
	case WF_READ:
		start_parts(transfer);
		break;
	case WF_REPLY:
	case WF_SEND:
	case WF_CALL:
	case WF_INTERNAL:
		queue_message(transfer);
		break;
	case WF_BARRIER:
		transfer->answered = transfer->answered || wf_barrier_was_entered(transfer);
		queue_message(transfer);
		break;
	case WF_EXPECT:
		wf_expect_begin(transfer);
		break;
	case WF_PARENT:
		break;
	}
}

/* What waited for its word was not looked at meanwhile. */
void wf_transfer_start(struct wf_transfer *transfer)
{
	int status = refused(transfer);

	for (uint32_t i = 0; i < transfer->slices && !status; i++)
		status = atomic_load(&transfer->slice[i].remote->revoked) ? -ESTALE : 0;
	if (status)
		wf_transfer_end(transfer, status);
	else
		start(transfer);
}

WF_HOT void wf_transfer_begin(struct wf_transfer *transfer)
{
	struct wf_peer *peer = transfer->peer;
	int status = refused(transfer);

	transfer->begun = true;
	if (status) {
		if (transfer->message.numbered) /* it went first, and the channel has it */
			set_holds(transfer, 2);
		wf_transfer_end(transfer, status);
		return;
	}
	if (peer)
		wf_list_append(&peer->operations, &transfer->link);
	wf_timer_set(&home_of(transfer)->worker.timers, &transfer->timer, transfer->deadline_ns);
	if (!transfer->words.start || !wf_words_wait(transfer)) /* else it goes on in wf_transfer_start() */
		start(transfer);
}

/* ---- stopping ---- */

/* The peer has its message already: true when that is its end. The slot may have its next user then. */
static bool ended_by_ack(struct wf_transfer *transfer)
{
	uint64_t life = generation_of(atomic_load(&transfer->state)), state;

	wf_channel_end_acked(transfer->peer);
	state = atomic_load(&transfer->state);
	return generation_of(state) != life || (uint32_t)state == WF_STOP_DONE;
}

/* It ends when its last piece is off the NICs: PARTS_DONE says so. */
static void stop_parts(struct wf_transfer *transfer)
{
	struct weft_engine *engine = transfer->engine;
	struct wf_group *home = home_of(transfer);
	uint64_t groups = atomic_load(&transfer->groups);

	transfer->parts_told = true;
	for (uint32_t g = 0; g < engine->groups; g++)
		if (!(groups & UINT64_C(1) << g))
			continue;
		else if (&engine->group[g] == home)
			wf_part_stop(home, transfer, transfer->id);
		else
			wf_note_tell_value(home, &engine->group[g], &transfer->part[g].stop_note, transfer->id);
}

void wf_transfer_stopped(struct wf_transfer *transfer)
{
	/* A stop that comes before the begin is seen by the begin. */
	if (ended(transfer) || !transfer->begun)
		return;
	if (transfer->peer && wf_channel_will_end(transfer->peer, &transfer->message) && ended_by_ack(transfer))
		return;
	if (transfer->kind == WF_EXPECT)
		wf_expect_forget(transfer);
	if (!transfer->moving) {
		wf_transfer_end(transfer, wf_transfer_stop_status(transfer));
		return;
	}
	if (transfer->lands)
		wf_legs_stopped(transfer);
	else if (!transfer->parts_told)
		stop_parts(transfer);
}

void wf_transfer_failed(struct wf_transfer *transfer)
{
	wf_transfer_stopped(transfer);
	if (atomic_fetch_sub(&transfer->parts_left, 1) == 1) /* the note was the last that it waited for */
		wf_transfer_parts_done(transfer);
}

void wf_transfer_parts_done(struct wf_transfer *transfer)
{
	int status = wf_transfer_stop_status(transfer);

	transfer->moving = false;
	if (status || transfer->notify != WEFT_NOTIFY_FENCED) {
		wf_transfer_end(transfer, status);
		return;
	}
	if (transfer->checked)
		wf_manifest_set_sum(transfer->manifest, atomic_load(&transfer->sum));
	queue_message(transfer); /* all pieces have landed: tell the receiver, once */
}

/* ---- what the channel says ---- */

/* Its end is the peer's to say, not the acknowledgement's. */
static bool awaits_answer(const struct wf_transfer *transfer)
{
	return transfer->kind == WF_CALL || transfer->judged || (transfer->kind == WF_BARRIER && !transfer->answered);
}

static void message_delivered(struct wf_transfer *transfer)
{
	transfer->sent = true;
	if (ended(transfer) || awaits_answer(transfer))
		return;
	if (transfer->kind == WF_SEND || transfer->kind == WF_REPLY)
		atomic_store_explicit(&transfer->bytes, transfer->message.bytes, memory_order_relaxed);
	wf_transfer_end(transfer, 0);
}

WF_HOT void wf_transfer_message_over(struct wf_message *message, int status)
{
	struct wf_transfer *transfer = wf_container(message, struct wf_transfer, message);

	if (transfer->kind == WF_CALL && transfer->answered) /* wf_transfer_end() has delivered the reply */
		finish(transfer, 0);
	else if (!status)
		message_delivered(transfer);
	else if (!ended(transfer))
		wf_transfer_end(transfer, status);
	if (ended(transfer)) {
		wf_answer_uncount(transfer);
		wf_transfer_drop(transfer);
	} else {
		set_holds(transfer, 1);
	}
}

WF_HOT struct wf_transfer *wf_transfer_asked(const struct wf_inbound *inbound, enum wf_transfer_kind kind)
{
	struct wf_transfer *transfer = wf_transfer_find(inbound->peer->engine, inbound->subject);
	uint64_t state = transfer ? atomic_load(&transfer->state) : 0;

	/* One load for both: an ended slot may already be reused by another thread. A live one ends only on its home, which is this
	 * worker if the transfer is this peer's. */
	if (!transfer || generation_of(state) != generation_of(inbound->subject) || (uint32_t)state == WF_STOP_DONE)
		return NULL;
	return transfer->kind == kind && transfer->peer == inbound->peer && transfer->begun && !transfer->words.waits
		   ? transfer
		   : NULL;
}

WF_HOT void wf_reply_arrived(struct wf_inbound *inbound)
{
	struct wf_transfer *call = wf_transfer_asked(inbound, WF_CALL);

	if (!call) {
		wf_inbound_free(inbound);
		return;
	}
	inbound->event_type = WEFT_EVENT_REPLY;
	inbound->event_tag = call->tag;
	inbound->transfer = call->id;
	call->reply = inbound;
	wf_transfer_end(call, 0);
}
