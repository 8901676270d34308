/*
 * A group's lane to a peer: which rail pairs are open. A path carries no piece until a hello over its outgoing endpoint was
 * answered (greeting.c); one that fails says hello again, to the peer's next rail when this one stays silent. It carries
 * frames, over the published endpoint, as soon as the peer was heard there. Where a message was lost that the provider waits for
 * they go over the outgoing one, which can be reopened: nobody knows its address. Runs on the group's worker.
 */
#include "engine/peer/lane.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/reset.h"
#include "engine/move/retire.h"
#include "engine/ops/transfer.h"
#include "engine/peer/directory.h"
#include "engine/peer/grants.h"
#include "engine/peer/pairing.h"
#include "engine/peer/label.h"
#include "engine/peer/peer.h"
#include "engine/peer/talk.h"
#include "engine/peer/trial.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct wf_target *targets_in(const struct wf_book *book, const struct wf_group *group)
{
	uint32_t before = 0;

	for (uint32_t g = 0; g < group->index; g++)
		before += group->engine->group[g].seats;
	return &book->targets[(size_t)before * book->count];
}

/* ---- targets ---- */

int wf_lane_target(struct wf_lane *lane, struct wf_seat *seat, enum wf_end end, uint32_t remote, uint64_t *ret_target)
{
	struct wf_target *target = wf_target_of(lane, seat->place, remote);
	int error;

	if (lane->book->rail[remote].format != seat->limits.address_format || !wf_pair_usable(lane, seat, remote))
		return -EHOSTUNREACH;
	if (!wf_seat_is_open(seat, end))
		return -EAGAIN;
	if (target->generation[end] != seat->generation[end]) {
		if (!wf_trial_begin(lane, seat, remote))
			return -EBUSY; /* not tried again at once, as one that connects is */
		error = wf_rail_insert(seat->rail, end, lane->book->rail[remote].address,
				       lane->book->rail[remote].bytes, &target->target[end]);
		if (error == -EMLINK)
			wf_reset_ask(seat, end == WF_OUTGOING ? WF_RESET_OUTGOING : WF_RESET_RAIL,
				     "its table of addresses is full of peers that are gone");
		if (error)
			return error;
		target->generation[end] = seat->generation[end];
	}
	*ret_target = target->target[end];
	return 0;
}

void wf_lane_forget_target(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote)
{
	struct wf_target *target = wf_target_of(lane, seat->place, remote);

	for (enum wf_end end = WF_PUBLISHED; end < WF_ENDS; end++) {
		if (target->generation[end] == seat->generation[end] && seat->rail)
			wf_seat_retire(seat, end, lane->book->rail[remote].address, lane->book->rail[remote].bytes);
		target->generation[end] = 0;
	}
	wf_trial_end(lane, seat->place, remote);
}

static void forget_targets(struct wf_lane *lane)
{
	for (uint32_t i = 0; i < lane->group->seats; i++)
		for (uint32_t j = 0; j < lane->book->count; j++)
			wf_lane_forget_target(lane, &lane->group->seat[i], j);
}

/* ---- making and freeing ---- */

static void init_notes(struct wf_lane *lane)
{
	wf_note_init(&lane->open_note, WF_NOTE_LANE_OPEN, lane);
	wf_note_init(&lane->close_note, WF_NOTE_LANE_CLOSE, lane);
	wf_note_init(&lane->book_note, WF_NOTE_LANE_BOOK, lane);
	wf_note_init(&lane->down_note, WF_NOTE_LANE_DOWN, lane);
	wf_note_init(&lane->closed_note, WF_NOTE_LANE_CLOSED, lane->peer);
	wf_note_init(&lane->paths_note, WF_NOTE_PATHS, lane->peer);
	wf_note_init(&lane->suspect_note, WF_NOTE_SUSPECT, lane->peer);
	wf_note_init(&lane->ended_note, WF_NOTE_ENDED, lane->peer);
}

int wf_lane_init(struct wf_peer *peer, struct wf_group *group, struct wf_lane **ret_lane)
{
	/* On lines of its own: each group's worker writes to its lane for every piece. */
	size_t bytes = (sizeof(struct wf_lane) + group->seats * sizeof(struct wf_path) + 63) & ~(size_t)63;
	struct wf_lane *lane = aligned_alloc(64, bytes);

	if (!lane)
		return -ENOMEM;
	memset(lane, 0, bytes);
	lane->group = group;
	lane->peer = peer;
	atomic_fetch_add(&peer->book->references, 1);
	lane->book = peer->book;
	lane->targets = targets_in(peer->book, group);
	wf_list_init(&lane->link);
	wf_list_init(&lane->runnable);
	wf_list_init(&lane->parts);
	init_notes(lane);
	*ret_lane = lane;
	return 0;
}

void wf_lane_free(struct wf_lane *lane)
{
	if (!lane)
		return;
	wf_carried_free(lane);
	wf_book_put(lane->book);
	free(lane);
}

/* ---- paths up and down ---- */

/* A connection that is not up has sent nothing yet: there is nothing to send again. */
static void tell_paths_changed(struct wf_lane *lane)
{
	if (atomic_load(&lane->peer->state) == WF_PEER_UP)
		wf_note_tell(lane->group, lane->peer->home, &lane->paths_note);
}

void wf_lane_path_up(struct wf_lane *lane, struct wf_path *path, uint32_t remote, uint64_t target)
{
	wf_target_of(lane, (uint32_t)(path - lane->path), remote)->answered = true;
	if (path->state == WF_PATH_UP)
		return;
	path->state = WF_PATH_UP;
	if (lane->group->seat[path - lane->path].limits.local)
		atomic_store(&lane->local, true);
	atomic_fetch_or_explicit(&lane->peer->met, UINT64_C(1) << remote, memory_order_relaxed);
	path->remote = (uint8_t)remote;
	wf_carried_switch(path, remote);
	path->target = target;
	path->tries = path->asked = path->refusals = 0;
	path->stuck_ns = 0;
	if (lane->group->seat[path - lane->path].limits.holds_back)
		path->unproved = (uint16_t)(path->ops + 1); /* what is still in flight may have gone elsewhere */
	path->window_bytes = lane->group->seat[path - lane->path].limits.window_first;
	path->landed_bytes = path->landed_since_ns = 0;
	atomic_fetch_add_explicit(&lane->paths_up, 1, memory_order_relaxed);
	atomic_store_explicit(&path->moved_ns, wf_group_now(lane->group), memory_order_relaxed);
	wf_lane_runnable(lane);
}

static void path_down(struct wf_lane *lane, struct wf_path *path, uint64_t hello_ns)
{
	if (path->state != WF_PATH_UP)
		return;
	path->state = WF_PATH_OPENING;
	if (lane->group->seat[path - lane->path].limits.local)
		atomic_store(&lane->local, false);
	path->hello_ns = path->sought_ns = hello_ns;
	path->question++;
	path->immediates_done = path->immediates_asked = 0;
	atomic_fetch_sub_explicit(&lane->paths_up, 1, memory_order_relaxed);
}

bool wf_lane_is_deaf(const struct wf_lane *lane, const struct wf_seat *seat, enum wf_end end, uint32_t remote)
{
	return seat->limits.numbers_messages && wf_seat_is_open(seat, end) &&
	       wf_rail_has_lost(seat->rail, end, lane->book->rail[remote].address, lane->book->rail[remote].bytes);
}

enum wf_end wf_lane_talk_end(const struct wf_lane *lane, const struct wf_seat *seat, uint32_t remote)
{
	return wf_lane_is_deaf(lane, seat, WF_PUBLISHED, remote) ? WF_OUTGOING : WF_PUBLISHED;
}

void wf_lane_talk_up(struct wf_lane *lane, struct wf_path *path, uint32_t remote)
{
	struct wf_seat *seat = &lane->group->seat[path - lane->path];
	struct wf_target *target = wf_target_of(lane, seat->place, remote);
	enum wf_end end = wf_lane_talk_end(lane, seat, remote);

	target->answered = true;
	/* The endpoint may have gone deaf by a frame of another lane's: the peer was removed, and is here again. */
	if (path->talks && (path->talk_end == end || path->talk_remote != remote))
		return;
	atomic_fetch_add_explicit(&lane->paths_talking, !path->talks, memory_order_relaxed);
	path->talks = true;
	path->talk_end = end;
	path->talk = target->target[end];
	path->talk_remote = (uint8_t)remote;
	tell_paths_changed(lane);
}

static void talk_down(struct wf_lane *lane, struct wf_path *path)
{
	if (!path->talks)
		return;
	path->talks = false;
	atomic_fetch_sub_explicit(&lane->paths_talking, 1, memory_order_relaxed);
}

static void log_failure(const struct wf_lane *lane, const struct wf_path *path, const char *text)
{
	char label[WF_LABEL_BYTES];

	wf_log(&lane->group->engine->log, WEFT_LOG_INFO, "rail %s to peer %s: %s",
	       lane->group->seat[path - lane->path].nic->name, wf_peer_label(lane->peer, label), text);
}

void wf_lane_path_failed(struct wf_lane *lane, struct wf_path *path, const char *text)
{
	if (path->state != WF_PATH_UP)
		return;
	log_failure(lane, path, text);
	path_down(lane, path, wf_group_now(lane->group) + WF_HELLO_RETRY_NS);
	wf_lane_set_timer(lane);
	if (!atomic_load_explicit(&lane->paths_up, memory_order_relaxed))
		wf_note_tell(lane->group, lane->peer->home, &lane->suspect_note);
}

void wf_lane_talk_failed(struct wf_lane *lane, struct wf_path *path, const char *text)
{
	wf_lane_path_failed(lane, path, text); /* a hello finds out whether the peer is still there */
	if (!path->talks)
		return;
	talk_down(lane, path);
	tell_paths_changed(lane);
}

void wf_lane_target_ended(struct wf_lane *lane, struct wf_seat *seat, uint64_t target)
{
	for (uint32_t i = 0; i < lane->book->count; i++) {
		const struct wf_target *known = wf_target_of(lane, seat->place, i);

		for (enum wf_end end = WF_PUBLISHED; end < WF_ENDS; end++)
			if (known->generation[end] == seat->generation[end] && known->target[end] == target &&
			    known->answered)
				wf_note_tell_value(lane->group, lane->peer->home, &lane->ended_note,
						   lane->book->secret);
	}
}

void wf_lane_seat_reset(struct wf_lane *lane, struct wf_seat *seat, enum wf_reset what)
{
	struct wf_path *path = &lane->path[seat->place];

	path->ops = 0;
	path->bytes = 0;
	path->hellos_out = 0;
	path_down(lane, path, wf_group_now(lane->group));
	if (!path->talks || (what != WF_RESET_RAIL && path->talk_end != WF_OUTGOING))
		return;
	talk_down(lane, path);
	tell_paths_changed(lane);
}

void wf_lane_down(struct wf_lane *lane, bool hello)
{
	for (uint32_t i = 0; i < lane->group->seats; i++) {
		path_down(lane, &lane->path[i], wf_group_now(lane->group) + WF_HELLO_ANSWER_NS);
		talk_down(lane, &lane->path[i]);
		wf_path_ask_anew(&lane->path[i], lane->path[i].hello_ns);
		lane->path[i].welcomes = 0;
	}
	if (hello) {
		wf_lane_take_book(lane); /* the note that says so may come later */
		wf_lane_hello_now(lane);
	} else if (lane->opened) {
		wf_lane_set_timer(lane);
	}
}

void wf_lane_runnable(struct wf_lane *lane)
{
	if (!wf_list_empty(&lane->parts) && atomic_load_explicit(&lane->paths_up, memory_order_relaxed) &&
	    !wf_link_linked(&lane->runnable))
		wf_list_append(&lane->group->runnable, &lane->runnable);
}

int wf_lane_any_path(struct wf_lane *lane, uint32_t first)
{
	uint32_t seats = lane->group->seats, place = first, last = seats - 1;

	/* The local rail is a group's last. */
	if (lane->group->seat[last].limits.local && lane->path[last].talks && lane->group->seat[last].listening)
		return (int)last;
	for (uint32_t i = 0; i < seats; i++) {
		if (lane->path[place].talks && lane->group->seat[place].listening)
			return (int)place;
		place = place + 1 < seats ? place + 1 : 0;
	}
	return -1;
}

void wf_lane_send_copy(struct wf_frame_copy *copy)
{
	struct wf_lane *lane = copy->lane;
	int place =
	    wf_lane_any_path(lane, lane->talk++ % lane->group->seats); /* another each time: one may be silent */
	struct wf_tx_frame *tx = place >= 0 ? wf_group_take_tx(lane->group) : NULL;

	/* Lost when there is no room: the channel sends again what is not acknowledged. */
	if (tx) {
		memcpy(tx->buffer, copy->frame, wf_frame_bytes(copy->frame));
		if (!wf_seat_send(&lane->group->seat[place], lane->path[place].talk_end, lane, lane->path[place].talk,
				  tx))
			tx = NULL;
	}
	if (tx)
		wf_group_give_unsent_tx(lane->group, tx);
	free(copy);
}

/* ---- the peer's rails changed ---- */

void wf_lane_take_book(struct wf_lane *lane)
{
	struct wf_book *book = wf_peer_book(lane->peer), *old = lane->book;
	struct wf_target *targets = targets_in(book, lane->group);
	bool anew = book->secret != old->secret; /* nothing of what was said before is this one's */

	if (book->number <= old->number) {
		wf_book_put(book);
		return;
	}
	lane->doubted.epoch = 0; /* it comes again */
	if (anew)
		lane->proof = 0;
	/* Rails whose address is new are no longer where we think: their paths start over. */
	for (uint32_t i = 0; i < lane->group->seats; i++) {
		struct wf_path *path = &lane->path[i];

		for (uint32_t j = 0; j < old->count; j++) {
			if (j < book->count && old->rail[j].serial == book->rail[j].serial &&
			    old->rail[j].bytes == book->rail[j].bytes &&
			    !memcmp(old->rail[j].address, book->rail[j].address, old->rail[j].bytes)) {
				targets[i * book->count + j] = *wf_target_of(lane, i, j);
				continue;
			}
			if (path->remote == j)
				path_down(lane, path, wf_group_now(lane->group));
			if (path->talk_remote == j)
				talk_down(lane, path);
			path->welcomes &= ~(UINT64_C(1) << j);
			path->grants_due &= ~(UINT64_C(1) << j);
			wf_lane_forget_target(lane, &lane->group->seat[i], j);
			atomic_fetch_and_explicit(&lane->peer->met, ~(UINT64_C(1) << j), memory_order_relaxed);
		}
		if (anew) {
			path_down(lane, path, wf_group_now(lane->group));
			talk_down(lane, path);
			path->welcomes = 0;
		}
		if (path->remote >= book->count)
			path->remote = 0;
		if (path->state == WF_PATH_OPENING)
			wf_path_ask_anew(path, wf_group_now(lane->group));
	}
	lane->targets = targets;
	lane->book = book;
	wf_book_put(old);
	wf_lane_pair_again(lane);
	if (lane->opened)
		wf_lane_set_timer(lane);
}

/* ---- closing ---- */

void wf_lane_close(struct wf_lane *lane)
{
	lane->closing = true;
	if (lane->opened)
		wf_timer_clear(&lane->group->worker.timers, &lane->timer);
	wf_lane_maybe_closed(lane);
}

void wf_lane_maybe_closed(struct wf_lane *lane)
{
	if (!lane->closing || lane->closed || lane->in_flight || lane->alive)
		return;
	lane->closed = true;
	wf_grants_leave(lane);
	forget_targets(lane);
	wf_list_remove(&lane->runnable);
	wf_list_remove(&lane->link);
	wf_note_tell(lane->group, lane->peer->home, &lane->closed_note);
}
