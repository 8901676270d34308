/*
 * Notes between workers: telling, hearing, and which function each kind of note calls. note.h says how they travel. Each
 * group's notes are run by its own worker.
 */
#include "engine/core/note.h"
#include "base/hot.h"
#include "engine/core/engine.h"
#include "engine/move/counts.h"
#include "engine/core/control.h"
#include "engine/move/part.h"
#include "engine/move/reset.h"
#include "engine/ops/expect.h"
#include "engine/ops/legs.h"
#include "engine/ops/transfer.h"
#include "engine/peer/doubt.h"
#include "engine/peer/peer.h"
#include "engine/peer/talk.h"

#include <stdlib.h>

#define HEARD_AT_ONCE 256 /* then the rails get their turn */

/* ---- sending ---- */

void wf_note_init(struct wf_note *note, enum wf_note_kind kind, void *object)
{
	note->node.next = NULL;
	note->object = object;
	note->kind = kind;
	atomic_init(&note->value, 0);
	atomic_init(&note->told, false);
}

static void keep(struct wf_own_notes *own, struct wf_note *note)
{
	note->node.next = NULL;
	if (own->last)
		own->last->node.next = &note->node;
	else
		own->first = note;
	own->last = note;
}

WF_HOT bool wf_note_tell(struct wf_group *from, struct wf_group *to, struct wf_note *note)
{
	if (atomic_exchange_explicit(&note->told, true, memory_order_acq_rel))
		return false;
	if (from == to)
		keep(&to->own, note);
	else
		wf_worker_tell(&to->worker, &note->node);
	return true;
}

bool wf_note_tell_value(struct wf_group *from, struct wf_group *to, struct wf_note *note, uint64_t value)
{
	atomic_store_explicit(&note->value, value, memory_order_relaxed);
	return wf_note_tell(from, to, note);
}

bool wf_group_post(struct wf_group *to, enum wf_note_kind kind, void *object, uint64_t value)
{
	struct wf_item posted = { { kind, (uintptr_t)object, value } };

	return wf_worker_post(&to->worker, &posted);
}

/* ---- hearing ---- */

static void frame_from_elsewhere(struct wf_group *group, struct wf_rx_frame *rx)
{
	const struct wf_frame *frame =
	    (const struct wf_frame *)rx->buffer; /* the group that received it has opened it */
	struct wf_peer *peer = wf_handle_get(&group->engine->peers, frame->to_peer);

	if (peer) {
		wf_channel_arrived(peer, frame);
		/* A peer that asks over those rails may hear us over those rails only. */
		if (frame->kind == WF_FRAME_PING && !peer->closing && atomic_load(&peer->state) == WF_PEER_UP)
			wf_peer_send_plain_by(peer, rx->seat->group->index, WF_FRAME_PONG);
		wf_handle_put(&group->engine->peers, peer->handle);
	}
	rx->note.kind = WF_NOTE_RX_BACK;
	wf_note_tell(group, rx->seat->group, &rx->note);
}

/* The slot may have its next user already: value says which life of it is meant. */
static void stop_transfer(struct wf_transfer *transfer, uint64_t id)
{
	if (atomic_load(&transfer->state) >> 32 == id >> 32)
		wf_transfer_stopped(transfer);
}

/* Runs a note about an operation. False: it is about something else. */
static bool run_transfers_note(struct wf_group *group, enum wf_note_kind kind, void *object, uint64_t value)
{
	switch (kind) {
	case WF_NOTE_BEGIN:
		wf_transfer_begin(object);
		return true;
	case WF_NOTE_STOP:
		stop_transfer(object, value);
		return true;
	case WF_NOTE_FAILED:
		wf_transfer_failed(object);
		return true;
	case WF_NOTE_PART:
		wf_part_start(group, object);
		return true;
	case WF_NOTE_PART_STOP:
		wf_part_stop(group, object, value);
		return true;
	case WF_NOTE_PARTS_DONE:
		wf_transfer_parts_done(object);
		return true;
	case WF_NOTE_COUNTED:
		wf_counts_arrived(group->engine, object);
		return true;
	case WF_NOTE_CONTROL:
		wf_control_run(group, object);
		return true;
	case WF_NOTE_SEAT_BACK:
		wf_reset_back(object);
		return true;
	default:
		return false;
	}
}

/* Runs a note about a lane, which goes to the lane's group. False: it is about something else. */
static bool run_lanes_note(struct wf_group *group, enum wf_note_kind kind, void *object, uint64_t value)
{
	switch (kind) {
	case WF_NOTE_LANE_OPEN:
		wf_lane_open(object);
		break;
	case WF_NOTE_LANE_BOOK:
		wf_lane_take_book(object);
		break;
	case WF_NOTE_LANE_CLOSE:
		wf_lane_close(object);
		return true;
	case WF_NOTE_LANE_DOWN:
		wf_lane_down(object, value);
		return true;
	case WF_NOTE_SEND:
		wf_lane_send_copy(object);
		return true;
	default:
		return false;
	}
	/* The reference that kept the peer until the note was heard. */
	wf_handle_put(&group->engine->peers, ((struct wf_lane *)object)->peer->handle);
	return true;
}

/* Runs a note about a peer, which goes to the peer's home, or to group 0. */
static void run_peers_note(struct wf_group *group, enum wf_note_kind kind, void *object, uint64_t value)
{
	switch (kind) {
	case WF_NOTE_LANE_CLOSED:
		wf_peer_lane_closed(object);
		break;
	case WF_NOTE_HEARD:
		wf_peer_heard_note(object);
		break;
	case WF_NOTE_SUSPECT:
		wf_peer_suspect(object);
		break;
	case WF_NOTE_ENDED:
		wf_peer_process_ended(object, value);
		break;
	case WF_NOTE_PATHS:
		wf_peer_paths_changed(object);
		break;
	case WF_NOTE_FRAME:
		frame_from_elsewhere(group, object);
		break;
	case WF_NOTE_RX_BACK:
		wf_seat_receive_again(((struct wf_rx_frame *)object)->seat, object);
		break;
	case WF_NOTE_PEER:
		wf_peer_changed(object, (enum wf_peer_change)value);
		break;
	case WF_NOTE_PEER_GONE:
		wf_expect_peer_gone(object, -(int)value);
		wf_handle_put(&group->engine->peers, ((struct wf_peer *)object)->handle);
		break;
	case WF_NOTE_LEGS:
		wf_legs_run(object);
		wf_handle_put(&group->engine->peers, ((struct wf_peer *)object)->handle);
		break;
	case WF_NOTE_CREDIT:
		wf_channel_acknowledge(object);
		wf_handle_put(&group->engine->peers, ((struct wf_peer *)object)->handle);
		break;
	default:
		break;
	}
}

static void run(struct wf_group *group, enum wf_note_kind kind, void *object, uint64_t value)
{
	if (!run_transfers_note(group, kind, object, value) && !run_lanes_note(group, kind, object, value))
		run_peers_note(group, kind, object, value);
}

void wf_group_take_posted(void *context, const struct wf_item *posted)
{
	run(context, (enum wf_note_kind)posted->word[0], (void *)(uintptr_t)posted->word[1], posted->word[2]);
}

/* A mere sign of life, or what follows from one. Of frames that others received, the home counts for itself. */
static bool is_faint(const struct wf_note *note)
{
	return note->kind == WF_NOTE_RX_BACK ||
	       (note->kind == WF_NOTE_SEND &&
		wf_frame_is_sign_of_life(((const struct wf_frame_copy *)note->object)->frame->kind));
}

static struct wf_note *next_note(struct wf_group *group)
{
	struct wf_node *node = wf_mpsc_pop(&group->worker.told);
	struct wf_note *note = group->own.first;

	if (node)
		return wf_container(node, struct wf_note, node);
	if (!note)
		return NULL;
	group->own.first = note->node.next ? wf_container(note->node.next, struct wf_note, node) : NULL;
	if (!group->own.first)
		group->own.last = NULL;
	return note;
}

WF_HOT int wf_group_hear(struct wf_group *group)
{
	struct wf_note *note;
	int heard = 0;

	while (heard < HEARD_AT_ONCE && (note = next_note(group))) {
		enum wf_note_kind kind = (enum wf_note_kind)note->kind;
		void *object = note->object;

		group->worker.faint += is_faint(note);
		/* From here on it can be told again, and the object may be freed with it: it is not touched any more once run. */
		atomic_exchange_explicit(&note->told, false, memory_order_acq_rel);
		run(group, kind, object, atomic_load_explicit(&note->value, memory_order_relaxed));
		heard++;
	}
	return heard;
}

/* ---- at the end ---- */

/* Nobody will run it: free what it carries. */
static void discard(enum wf_note_kind kind, void *object)
{
	if (kind == WF_NOTE_HEARD || kind == WF_NOTE_SEND)
		free(object);
	else if (kind == WF_NOTE_CONTROL)
		wf_control_discard(object);
}

void wf_group_discard_notes(struct wf_group *group)
{
	struct wf_item posted;
	struct wf_note *note;

	while (group->worker.inbox.cells && wf_ring_pop(&group->worker.inbox, &posted))
		discard((enum wf_note_kind)posted.word[0], (void *)(uintptr_t)posted.word[1]);
	while ((note = next_note(group)))
		discard((enum wf_note_kind)note->kind, note->object);
}
