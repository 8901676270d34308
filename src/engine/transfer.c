/*
 * The life of a transfer: taken from the pool by a caller, begun, stopped and ended on its home worker, given
 * back when the application has taken its end and the channel has let go of its message. Completed exactly
 * once: only wf_transfer_end() delivers, only the home calls it, and it marks the slot so that nothing can
 * end it again.
 */
#include "engine/transfer.h"
#include "base/error.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/request.h"
#include "wire/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPIES_KEPT    (32u << 20)
#define FAR_NS         (10 * WF_S)
#define EARLY_BARRIERS 256 /* of one peer, kept until we enter them */

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

	/* Even one that was stopped before: whoever did that may not have got through to us. */
	wf_transfer_stop(transfer, -ETIMEDOUT);
	wf_transfer_stopped(transfer);
}

static void end_take(struct wf_item_event *item, struct weft_event *event)
{
	struct wf_transfer *transfer = wf_container(item, struct wf_transfer, item);

	event->type = transfer->kind == WF_CALL     ? WEFT_EVENT_REPLY
		      : transfer->kind == WF_EXPECT ? WEFT_EVENT_COUNTED
						    : WEFT_EVENT_END;
	event->status = transfer->status;
	event->quiescent = !atomic_load(&transfer->unquiet);
	event->tag = transfer->tag;
	event->peer = transfer->peer_handle;
	event->transfer = transfer->id;
	event->bytes = event->type == WEFT_EVENT_REPLY ? 0 : atomic_load(&transfer->bytes);
	event->error = transfer->error;
	event->owner = transfer->error_payload;
	wf_transfer_drop(transfer);
}

/* Of something submitted now. One that is far away need not be exact: a tick early, and cheaper to find. */
static uint64_t deadline_of(uint64_t timeout_ns)
{
	return wf_deadline(timeout_ns < FAR_NS ? wf_now_ns() : wf_tick_ns(), timeout_ns);
}

WF_HOT struct wf_transfer *wf_transfer_reserve(struct wf_pool *pool)
{
	struct wf_transfer *transfer = wf_pool_take(pool);
	uint64_t generation;

	if (!transfer)
		return NULL;
	/* 31 bits, so that an id can be told from any small number and never is 0. */
	generation = (generation_of(atomic_load(&transfer->state)) + (UINT64_C(1) << 32)) & INT64_MAX;
	transfer->id = generation | transfer->number;
	wf_list_init(&transfer->message.link);
	transfer->message.over = wf_transfer_message_over;
	transfer->message.numbered = false;
	transfer->answers = NULL;
	return transfer;
}

WF_HOT void wf_transfer_prepare(struct wf_transfer *transfer, const struct weft_op *op)
{
	struct weft_engine *engine = transfer->engine;
	uint64_t timeout;

	atomic_store_explicit(&transfer->home, NULL, memory_order_relaxed);
	transfer->item.take = end_take;
	transfer->error_payload = NULL;
	transfer->error = NULL;
	transfer->queue = op ? op->queue : NULL;
	transfer->tag = op ? op->tag : 0;
	timeout = op && op->timeout_ns ? op->timeout_ns : engine->settings.timeout_ns;
	transfer->deadline_ns = timeout == WEFT_FOREVER ? WF_NEVER : deadline_of(timeout);
	transfer->peer = NULL;
	transfer->peer_handle = 0;
	transfer->paged = transfer->plain = false;
	transfer->most_adjacent = transfer->ranges = 1;
	transfer->slices = 0;
	transfer->units = 0;
	transfer->parent = NULL;
	transfer->children = 0;
	transfer->notify = WEFT_NOTIFY_NOTHING;
	transfer->checked = op && op->flags & WEFT_CHECKSUM;
	transfer->sent = transfer->answered = transfer->begun = transfer->moving = transfer->parts_told = false;
	transfer->status = 0;
	atomic_store_explicit(&transfer->unquiet, 0, memory_order_relaxed);
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

/* With manual progress some may be out only because no turn has come since they ended. */
__attribute__((noinline)) static struct wf_transfer *reserve_settled(struct weft_engine *engine, struct wf_pool *pool)
{
	if (!wf_engine_is_manual(engine) || wf_engine_control(engine, wf_group_settle, NULL, NULL))
		return NULL;
	return wf_transfer_reserve(pool);
}

struct wf_transfer *wf_transfer_take_of(struct weft_engine *engine, struct wf_pool *pool, const struct weft_op *op)
{
	struct wf_transfer *transfer = wf_transfer_reserve(pool);

	if (!transfer && !(transfer = reserve_settled(engine, pool)))
		return NULL;
	wf_transfer_prepare(transfer, op);
	return transfer;
}

struct wf_transfer *wf_transfer_take(struct weft_engine *engine, const struct weft_op *op)
{
	return wf_transfer_take_of(engine, &engine->transfers, op);
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

	for (uint32_t i = 0; i < transfer->slices; i++) {
		if (transfer->slice[i].region)
			wf_handle_put(&engine->regions, transfer->slice[i].region->handle);
		if (transfer->slice[i].remote)
			wf_handle_put(&engine->remotes, transfer->slice[i].remote->handle);
	}
	transfer->slices = 0;
	if (atomic_load_explicit(&transfer->spares, memory_order_relaxed)) /* all parts are done: nobody adds one */
		wf_spares_free(atomic_exchange(&transfer->spares, NULL));
	if (transfer->peer) {
		transfer->peer_handle = transfer->peer->handle;
		wf_handle_put(&engine->peers, transfer->peer->handle);
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

bool wf_transfer_stop(struct wf_transfer *transfer, int why)
{
	uint64_t running = generation_of(atomic_load(&transfer->state));

	return atomic_compare_exchange_strong(&transfer->state, &running, running | (uint32_t)-why);
}

int wf_transfer_why(struct wf_transfer *transfer)
{
	uint32_t why = (uint32_t)atomic_load(&transfer->state);

	return why == WF_STOP_DONE ? 0 : -(int)why;
}

/* ---- ending ---- */

void wf_transfer_set_error(struct wf_transfer *transfer, const struct weft_error *error)
{
	if (!transfer->error)
		transfer->error_payload = wf_error_payload(error, &transfer->error);
}

/* Every failed end says what failed, in words; the worker that saw the cause may have said it better already. */
static void describe(const struct wf_transfer *transfer, int status, struct weft_error *ret_error)
{
	const struct wf_peer *peer = transfer->peer;

	if (transfer->error) {
		*ret_error = *transfer->error;
		return;
	}
	*ret_error = (struct weft_error){ .scope = WEFT_SCOPE_OPERATION, .hint = wf_error_hint(status) };
	snprintf(ret_error->text, sizeof(ret_error->text), "%s", wf_error_text(status));
	if (status == -EHOSTDOWN) {
		ret_error->scope = WEFT_SCOPE_PEER;
		if (peer && peer->why[0])
			snprintf(ret_error->text, sizeof(ret_error->text), "%s: %s", wf_error_text(status), peer->why);
	}
	if (status == -ETIMEDOUT && peer && atomic_load(&peer->state) == WF_PEER_CONNECTING) {
		ret_error->scope = WEFT_SCOPE_PEER;
		snprintf(ret_error->text, sizeof(ret_error->text), "deadline passed: the peer never answered");
	}
}

static void explain(struct wf_transfer *transfer, const struct weft_error *error)
{
	if (transfer->queue && transfer->status != -ECANCELED)
		wf_transfer_set_error(transfer, error);
}

static void deliver(struct wf_transfer *transfer)
{
	weft_queue *queue = transfer->queue;

	if (!queue) {
		if (transfer->error_payload)
			transfer->error_payload->release(transfer->error_payload);
		wf_transfer_drop(transfer);
		return;
	}
	wf_queue_push_end(queue, &transfer->item);
}

static void child_ended(struct wf_transfer *parent, int status, const struct weft_error *error, uint64_t bytes,
			bool quiet)
{
	uint64_t running = generation_of(atomic_load(&parent->state));

	atomic_fetch_add(&parent->bytes, bytes);
	if (!quiet)
		atomic_store(&parent->unquiet, 1);
	/* The first failure is the parent's; the word that cancel uses keeps it. Said before our hold on it
	 * is gone. */
	if (status && atomic_compare_exchange_strong(&parent->state, &running, running | (uint32_t)-status) &&
	    status != -ECANCELED && parent->queue)
		wf_transfer_set_error(parent, error);
	wf_transfer_child_put(parent);
}

void wf_transfer_child_put(struct wf_transfer *parent)
{
	if (atomic_fetch_sub_explicit(&parent->children_left, 1, memory_order_acq_rel) != 1)
		return;
	parent->status = wf_transfer_why(parent);
	atomic_store(&parent->state, generation_of(atomic_load(&parent->state)) | WF_STOP_DONE);
	deliver(parent);
}

/* From here on nothing stops it. */
static void mark_done(struct wf_transfer *transfer)
{
	atomic_store_explicit(&transfer->state, generation_of(atomic_load(&transfer->state)) | WF_STOP_DONE,
			      memory_order_release);
}

WF_HOT void wf_transfer_end(struct wf_transfer *transfer, int status)
{
	struct wf_transfer *parent = transfer->parent;
	uint64_t bytes = atomic_load(&transfer->bytes);
	bool quiet = !atomic_load(&transfer->unquiet);
	bool withdrawn = wf_channel_withdraw(&transfer->message); /* the channel's hold is ours to drop */
	struct weft_error error;

	transfer->status = status;
	if (status) {
		describe(transfer, status, &error);
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
	put_references(transfer);
	deliver(transfer);
	if (withdrawn)
		wf_transfer_drop(transfer);
	if (parent)
		child_ended(parent, status, &error, bytes, quiet);
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

/* 0, or why it ends before it has begun. */
static int refused(struct wf_transfer *transfer)
{
	struct wf_peer *peer = transfer->peer;
	int why = wf_transfer_why(transfer), state;

	if (why || !peer)
		return why;
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
	atomic_store(&transfer->parts_left, (uint32_t)__builtin_popcountll(groups));
	for (uint32_t g = 0; g < engine->groups; g++)
		if (groups & UINT64_C(1) << g)
			wf_group_tell(home, &engine->group[g], WF_NOTE_PART, transfer, 0);
}

static void enter_barrier(struct wf_transfer *transfer)
{
	struct wf_link *head = &transfer->peer->barriers;

	for (struct wf_link *link = head->next; link != head; link = link->next) {
		struct wf_inbound *inbound = wf_container(link, struct wf_inbound, link);

		if (inbound->tag != transfer->message.tag)
			continue;
		wf_list_remove(&inbound->link);
		wf_inbound_free(inbound);
		transfer->peer->early--;
		transfer->answered = true;
		break;
	}
	queue_message(transfer);
}

WF_HOT void wf_transfer_begin(struct wf_transfer *transfer)
{
	struct wf_peer *peer = transfer->peer;
	int why = refused(transfer);

	transfer->begun = true;
	if (why) {
		if (transfer->message.numbered) /* it went first, and the channel has it */
			set_holds(transfer, 2);
		wf_transfer_end(transfer, why);
		return;
	}
	if (peer)
		wf_list_append(&peer->operations, &transfer->link);
	wf_timer_set(&home_of(transfer)->worker.timers, &transfer->timer, transfer->deadline_ns);
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
		enter_barrier(transfer);
		break;
	case WF_EXPECT:
		wf_expect_begin(transfer);
		break;
	case WF_PARENT:
		break;
	}
}

/* ---- stopping ---- */

/* The peer has its message already: true when that is its end. The slot may have its next user then. */
static bool settled(struct wf_transfer *transfer)
{
	uint64_t life = generation_of(atomic_load(&transfer->state)), state;

	wf_channel_settle(transfer->peer);
	state = atomic_load(&transfer->state);
	return generation_of(state) != life || (uint32_t)state == WF_STOP_DONE;
}

void wf_transfer_stopped(struct wf_transfer *transfer)
{
	struct weft_engine *engine = transfer->engine;

	/* A stop that comes before the begin is seen by the begin. */
	if (ended(transfer) || !transfer->begun)
		return;
	if (transfer->peer && wf_channel_settles(transfer->peer, &transfer->message) && settled(transfer))
		return;
	if (transfer->kind == WF_EXPECT)
		wf_expect_forget(transfer);
	if (!transfer->moving) {
		wf_transfer_end(transfer, wf_transfer_why(transfer));
		return;
	}
	if (transfer->parts_told)
		return;
	/* It ends when its last piece is off the NICs. Telling our own group may end it at once, and the slot may have its next
	 * user before the others are told: read first, and say who is meant. */
	transfer->parts_told = true;
	weft_transfer id = transfer->id;
	uint64_t groups = atomic_load(&transfer->groups);
	struct wf_group *home = home_of(transfer);

	for (uint32_t g = 0; g < engine->groups; g++)
		if (groups & UINT64_C(1) << g)
			wf_group_tell(home, &engine->group[g], WF_NOTE_PART_STOP, transfer, id);
}

void wf_transfer_parts_done(struct wf_transfer *transfer)
{
	int why = wf_transfer_why(transfer);

	transfer->moving = false;
	if (why || transfer->notify != WEFT_NOTIFY_FENCED) {
		wf_transfer_end(transfer, why);
		return;
	}
	if (transfer->checked)
		wf_manifest_set_sum(transfer->manifest, atomic_load(&transfer->sum));
	queue_message(transfer); /* all pieces have landed: tell the receiver, once */
}

void wf_transfer_judged(struct wf_transfer *transfer, int status)
{
	if (transfer->checked && !transfer->moving)
		wf_transfer_end(transfer, status);
}

/* ---- what the channel says ---- */

/* Its end is the peer's to say, not the acknowledgement's. */
static bool awaits_answer(const struct wf_transfer *transfer)
{
	return transfer->kind == WF_CALL || transfer->checked || (transfer->kind == WF_BARRIER && !transfer->answered);
}

static void message_delivered(struct wf_transfer *transfer)
{
	transfer->sent = true;
	if (ended(transfer) || awaits_answer(transfer))
		return;
	if (transfer->kind == WF_SEND)
		atomic_store_explicit(&transfer->bytes, transfer->message.bytes, memory_order_relaxed);
	wf_transfer_end(transfer, 0);
}

WF_HOT void wf_transfer_message_over(struct wf_message *message, int why)
{
	struct wf_transfer *transfer = wf_container(message, struct wf_transfer, message);

	if (transfer->kind == WF_CALL && transfer->answered) /* and its event delivered: this is the rest */
		wf_transfer_end(transfer, 0);
	else if (!why)
		message_delivered(transfer);
	else if (!ended(transfer))
		wf_transfer_end(transfer, why);
	if (ended(transfer)) {
		wf_answer_uncount(transfer);
		wf_transfer_drop(transfer);
	} else {
		set_holds(transfer, 1);
	}
}

WF_HOT struct wf_transfer *wf_transfer_asked(const struct wf_inbound *inbound, enum wf_transfer_kind kind)
{
	struct wf_transfer *transfer = wf_transfer_find(inbound->peer->engine, inbound->call);
	uint64_t state = transfer ? atomic_load(&transfer->state) : 0;

	/* One look for both: of a slot whose user has ended another thread may be the next user already. Of one that has not,
	 * the home alone says when it does, and that is we where it is this peer's. */
	if (!transfer || generation_of(state) != generation_of(inbound->call) || (uint32_t)state == WF_STOP_DONE)
		return NULL;
	return transfer->kind == kind && transfer->peer == inbound->peer && transfer->begun ? transfer : NULL;
}

WF_HOT void wf_reply_arrived(struct wf_inbound *inbound)
{
	struct wf_transfer *call = wf_transfer_asked(inbound, WF_CALL);
	weft_queue *queue;

	if (!call) {
		wf_inbound_free(inbound);
		return;
	}
	inbound->event_type = WEFT_EVENT_REPLY;
	inbound->event_tag = call->tag;
	inbound->transfer = call->id;
	queue = call->queue;
	call->queue = NULL; /* the reply itself is the end event */
	/* Its message was acknowledged just now and is about to be settled: the end comes then. */
	if (wf_channel_settles(inbound->peer, &call->message)) {
		call->answered = true;
		mark_done(call);
	} else {
		wf_transfer_end(call, 0);
	}
	if (!queue) {
		wf_inbound_free(inbound);
		return;
	}
	wf_queue_push_end(queue, &inbound->item);
}

void wf_barrier_arrived(struct wf_inbound *inbound)
{
	struct wf_peer *peer = inbound->peer;

	for (struct wf_link *link = peer->operations.next; link != &peer->operations; link = link->next) {
		struct wf_transfer *transfer = wf_container(link, struct wf_transfer, link);

		if (transfer->kind != WF_BARRIER || transfer->answered || transfer->message.tag != inbound->tag)
			continue;
		transfer->answered = true;
		wf_inbound_free(inbound);
		if (transfer->sent)
			wf_transfer_end(transfer, 0);
		return;
	}
	wf_list_append(&peer->barriers, &inbound->link);
	/* Theirs may have timed out long ago. Whoever enters barriers that we never do must not use up its credit with them. */
	if (++peer->early > EARLY_BARRIERS) {
		inbound = wf_container(peer->barriers.next, struct wf_inbound, link);
		wf_list_remove(&inbound->link);
		wf_inbound_free(inbound);
		peer->early--;
	}
}
