/*
 * A group's lane to a peer: which rail pairs are open. A path carries no piece until a hello over its outgoing endpoint was
 * answered (greeting.c); one that fails says hello again, to the peer's next rail when this one stays silent. It carries
 * frames, over the published endpoint, as soon as the peer was heard there. Runs on the group's worker.
 */
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HELLO_RETRY_NS  (1 * WF_MS)
#define HELLO_ANSWER_NS (50 * WF_MS)

/* ---- books ---- */

struct wf_book *wf_book_make(struct weft_engine *engine, const struct wf_wire_address *address, uint64_t secret,
			     enum wf_word word)
{
	struct wf_book *book = calloc(1, sizeof(*book) + address->count * sizeof(book->rail[0]));

	/* Whatever lanes need to change over: none of them may be left behind with the old one for want of memory. */
	if (book)
		book->targets = calloc((size_t)engine->rails * address->count, sizeof(*book->targets));
	if (!book || !book->targets) {
		free(book);
		return NULL;
	}
	atomic_store(&book->references, 1);
	book->secret = secret;
	book->word = word;
	book->revision = address->revision;
	book->count = address->count;
	for (uint32_t i = 0; i < address->count; i++) {
		const struct wf_wire_rail *rail = &address->rail[i];

		book->rail[i].format = rail->address_format;
		book->rail[i].serial = rail->serial;
		book->rail[i].bytes = rail->address_bytes;
		memcpy(book->rail[i].address, rail->address, sizeof(rail->address));
		book->rail[i].looks = rail->looks;
		book->rail[i].reachable = !strcmp(rail->provider, engine->provider);
	}
	return book;
}

void wf_book_put(struct wf_book *book)
{
	if (book && atomic_fetch_sub(&book->references, 1) == 1) {
		free(book->targets);
		free(book);
	}
}

bool wf_book_has(const struct wf_book *book, const struct wf_wire_address *address, uint32_t rail)
{
	return rail < book->count && rail < address->count &&
	       book->rail[rail].format == address->rail[rail].address_format &&
	       book->rail[rail].bytes == address->rail[rail].address_bytes &&
	       !memcmp(book->rail[rail].address, address->rail[rail].address, book->rail[rail].bytes);
}

bool wf_book_is(const struct wf_book *book, const struct wf_wire_address *address)
{
	bool same = book->revision == address->revision && book->count == address->count;

	for (uint32_t i = 0; same && i < book->count; i++)
		same = wf_book_has(book, address, i);
	return same;
}

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
	if (!wf_rail_is_open(seat->rail, end))
		return -EAGAIN;
	if (target->generation[end] != seat->generation[end]) {
		if (!wf_trial_begin(lane, seat, remote))
			return -EBUSY; /* not tried again at once, as one that connects is */
		error = wf_rail_insert(seat->rail, end, lane->book->rail[remote].address,
				       lane->book->rail[remote].bytes, &target->target[end]);
		if (error == -EMLINK)
			wf_seat_doom(seat, end == WF_OUTGOING ? WF_DOOM_OUTGOING : WF_DOOM_RAIL,
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
		if (target->generation[end] == seat->generation[end] && seat->rail && wf_rail_is_open(seat->rail, end))
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
	*ret_lane = lane;
	return 0;
}

void wf_lane_free(struct wf_lane *lane)
{
	if (!lane)
		return;
	wf_book_put(lane->book);
	free(lane);
}

/* ---- paths up and down ---- */

static void tell_paths_changed(struct wf_lane *lane)
{
	wf_group_tell(lane->group, lane->peer->home, WF_NOTE_PATHS, lane->peer, 0);
}

void wf_lane_path_up(struct wf_lane *lane, struct wf_path *path, uint32_t remote, uint64_t target)
{
	wf_target_of(lane, (uint32_t)(path - lane->path), remote)->answered = true;
	if (path->state == WF_PATH_UP)
		return;
	path->state = WF_PATH_UP;
	atomic_fetch_or_explicit(&lane->peer->met, UINT64_C(1) << remote, memory_order_relaxed);
	path->remote = (uint8_t)remote;
	path->target = target;
	path->tries = 0;
	path->stuck_ns = 0;
	path->window_bytes = lane->group->seat[path - lane->path].limits.window_first;
	path->landed_bytes = path->landed_since_ns = 0;
	/* Whoever answers a hello has read all that completed before it: what did since the path went down is counted. */
	path->immediates = path->ops + path->immediates_done;
	path->immediates_asked = 0;
	atomic_fetch_add_explicit(&lane->paths_up, 1, memory_order_relaxed);
	atomic_store_explicit(&path->moved_ns, wf_group_now(lane->group), memory_order_relaxed);
	wf_lane_runnable(lane);
}

static void path_down(struct wf_lane *lane, struct wf_path *path, uint64_t hello_ns)
{
	if (path->state != WF_PATH_UP)
		return;
	path->state = WF_PATH_OPENING;
	path->hello_ns = path->sought_ns = hello_ns;
	path->question++;
	path->immediates_done = path->immediates_asked = 0;
	atomic_fetch_sub_explicit(&lane->paths_up, 1, memory_order_relaxed);
}

void wf_lane_talk_up(struct wf_lane *lane, struct wf_path *path, uint32_t remote, uint64_t target)
{
	wf_target_of(lane, (uint32_t)(path - lane->path), remote)->answered = true;
	if (path->talks)
		return;
	path->talks = true;
	path->talk = target;
	path->talk_remote = (uint8_t)remote;
	atomic_fetch_add_explicit(&lane->paths_talking, 1, memory_order_relaxed);
	tell_paths_changed(lane);
}

static void talk_down(struct wf_lane *lane, struct wf_path *path)
{
	if (!path->talks)
		return;
	path->talks = false;
	atomic_fetch_sub_explicit(&lane->paths_talking, 1, memory_order_relaxed);
}

static void log_failure(const struct wf_lane *lane, const struct wf_path *path, const char *why)
{
	wf_log(&lane->group->engine->log, WEFT_LOG_INFO, "rail %s to peer %llx: %s",
	       lane->group->seat[path - lane->path].nic->name, (unsigned long long)lane->peer->handle, why);
}

void wf_lane_path_failed(struct wf_lane *lane, struct wf_path *path, const char *why)
{
	if (path->state != WF_PATH_UP)
		return;
	log_failure(lane, path, why);
	path_down(lane, path, wf_group_now(lane->group) + HELLO_RETRY_NS);
	wf_lane_plan(lane);
	if (!atomic_load_explicit(&lane->paths_up, memory_order_relaxed))
		wf_group_tell(lane->group, lane->peer->home, WF_NOTE_SUSPECT, lane->peer, 0);
}

void wf_lane_talk_failed(struct wf_lane *lane, struct wf_path *path, const char *why)
{
	wf_lane_path_failed(lane, path, why); /* a hello finds out whether the peer is still there */
	if (!path->talks)
		return;
	talk_down(lane, path);
	tell_paths_changed(lane);
}

void wf_lane_seat_reset(struct wf_lane *lane, struct wf_seat *seat, enum wf_doom what)
{
	struct wf_path *path = &lane->path[seat->place];

	lane->ops -= path->ops; /* nothing: all of it was taken back */
	path->ops = 0;
	path->bytes = 0;
	path->hellos_out = 0;
	path_down(lane, path, wf_group_now(lane->group));
	if (what != WF_DOOM_RAIL || !path->talks)
		return;
	talk_down(lane, path);
	tell_paths_changed(lane);
}

void wf_lane_quiet(struct wf_lane *lane)
{
	for (uint32_t i = 0; i < lane->group->seats; i++) {
		path_down(lane, &lane->path[i], wf_group_now(lane->group) + HELLO_ANSWER_NS);
		talk_down(lane, &lane->path[i]);
		lane->path[i].tries = 0;
		lane->path[i].sought_ns = wf_group_now(lane->group);
		lane->path[i].welcomes = 0;
	}
	if (lane->opened)
		wf_lane_plan(lane);
}

void wf_lane_runnable(struct wf_lane *lane)
{
	if (!wf_list_empty(&lane->parts) && atomic_load_explicit(&lane->paths_up, memory_order_relaxed) &&
	    !wf_link_linked(&lane->runnable))
		wf_list_append(&lane->group->runnable, &lane->runnable);
}

int wf_lane_any_path(struct wf_lane *lane, uint32_t first)
{
	uint32_t seats = lane->group->seats, place = first;

	for (uint32_t i = 0; i < seats; i++) {
		if (lane->path[place].talks && lane->group->seat[place].listening)
			return (int)place;
		place = place + 1 < seats ? place + 1 : 0;
	}
	return -1;
}

void wf_lane_send_copy(struct wf_lane *lane, void *copy)
{
	int place =
	    wf_lane_any_path(lane, lane->talk++ % lane->group->seats); /* another each time: one may be silent */
	struct wf_tx_frame *tx = place >= 0 ? wf_group_take_tx(lane->group) : NULL;

	/* Lost when there is no room: the channel sends again what is not acknowledged. */
	if (tx) {
		memcpy(tx->buffer, copy, wf_frame_bytes(copy));
		if (!wf_seat_send(&lane->group->seat[place], WF_PUBLISHED, lane, lane->path[place].talk, tx))
			tx = NULL;
	}
	if (tx)
		wf_group_give_unsent_tx(lane->group, tx);
	free(copy);
}

/* ---- the peer's rails changed ---- */

void wf_lane_set_book(struct wf_lane *lane, struct wf_book *book)
{
	struct wf_book *old = lane->book;
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
		if (path->state == WF_PATH_OPENING) {
			path->hello_ns = path->sought_ns = wf_group_now(lane->group);
			path->tries = 0;
		}
	}
	lane->targets = targets;
	lane->book = book;
	wf_book_put(old);
	wf_lane_pair_again(lane);
	if (lane->opened)
		wf_lane_plan(lane);
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
	for (uint32_t i = 0; i < lane->group->seats; i++)
		lane->group->seat[i].granted -= lane->path[i].granted;
	forget_targets(lane);
	wf_list_remove(&lane->runnable);
	wf_list_remove(&lane->link);
	wf_group_tell(lane->group, lane->peer->home, WF_NOTE_LANE_CLOSED, lane->peer, 0);
}
