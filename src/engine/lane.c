/*
 * A group's lane to a peer: which rail pairs are open. A path carries nothing until a hello over it was answered, which
 * connects it, proves who lives there and warms it up; one that fails says hello again, to the peer's next rail when
 * this one stays silent. Runs on the group's worker.
 */
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HELLO_RETRY_NS   (1 * WF_MS)   /* the provider had no room, or is connecting */
#define HELLO_ANSWER_NS  (50 * WF_MS)  /* an answer should be here by then; doubles */
#define HELLO_LAST_NS    (2 * WF_S)
#define IMMEDIATES_MOST  256           /* unread on a path */
#define IMMEDIATES_LEAST 4             /* while there is room */
#define HELLO_TRIES      4             /* then the peer's next rail */

/* ---- books ---- */

struct wf_book *wf_book_make(struct weft_engine *engine, const struct wf_wire_address *address)
{
	struct wf_book *book = calloc(1, sizeof(*book) + address->count * sizeof(book->rail[0]));

	if (!book)
		return NULL;
	atomic_store(&book->references, 1);
	book->revision = address->revision;
	book->count = address->count;
	for (uint32_t i = 0; i < address->count; i++) {
		const struct wf_wire_rail *rail = &address->rail[i];

		book->rail[i].format = rail->address_format;
		book->rail[i].serial = rail->serial;
		book->rail[i].bytes = rail->address_bytes;
		memcpy(book->rail[i].address, rail->address, sizeof(rail->address));
		book->rail[i].reachable = !strcmp(rail->provider, engine->provider);
	}
	return book;
}

void wf_book_put(struct wf_book *book)
{
	if (book && atomic_fetch_sub(&book->references, 1) == 1)
		free(book);
}

/* ---- targets ---- */

static struct wf_target *target_of(struct wf_lane *lane, uint32_t place, uint32_t remote)
{
	return &lane->targets[place * lane->book->count + remote];
}

static int find_target(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote, uint64_t *ret_target)
{
	struct wf_target *target = target_of(lane, seat->place, remote);
	int error;

	if (lane->book->rail[remote].format != seat->limits.address_format)
		return -EHOSTUNREACH;
	if (target->generation != seat->generation) {
		error = wf_rail_insert(seat->rail, lane->book->rail[remote].address, lane->book->rail[remote].bytes,
				       &target->target);
		if (error == -EMLINK)
			wf_seat_doom(seat, "its table of addresses is full of peers that are gone");
		if (error)
			return error;
		target->generation = seat->generation;
	}
	*ret_target = target->target;
	return 0;
}

static void forget_target(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote)
{
	struct wf_target *target = target_of(lane, seat->place, remote);

	if (target->generation == seat->generation && seat->rail && wf_rail_is_open(seat->rail))
		wf_rail_remove(seat->rail, target->target);
	target->generation = 0;
}

static void forget_targets(struct wf_lane *lane)
{
	for (uint32_t i = 0; i < lane->group->seats; i++)
		for (uint32_t j = 0; j < lane->book->count; j++)
			forget_target(lane, &lane->group->seat[i], j);
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
	lane->targets = calloc((size_t)group->seats * peer->book->count, sizeof(*lane->targets));
	if (!lane->targets) {
		free(lane);
		return -ENOMEM;
	}
	lane->group = group;
	lane->peer = peer;
	atomic_fetch_add(&peer->book->references, 1);
	lane->book = peer->book;
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
	free(lane->targets);
	free(lane);
}

/* ---- hellos ---- */

/* Which rail of the peer a rail of ours tries first: pairs by index, so that neighbours meet neighbours. */
static int pick_remote(const struct wf_lane *lane, uint32_t from)
{
	for (uint32_t i = 0; i < lane->book->count; i++) {
		uint32_t remote = (from + i) % lane->book->count;

		if (lane->book->rail[remote].reachable)
			return (int)remote;
	}
	return -1;
}

static bool wants_answer(const struct wf_path *path)
{
	return path->state == WF_PATH_OPENING || (path->state == WF_PATH_UP && path->immediates_asked);
}

static void plan(struct wf_lane *lane)
{
	uint64_t next = WF_NEVER;

	if (lane->closing)
		return;
	for (uint32_t i = 0; i < lane->group->seats; i++)
		if (wants_answer(&lane->path[i]) && atomic_load(&lane->group->seat[i].up) && lane->path[i].hello_ns < next)
			next = lane->path[i].hello_ns;
	wf_timer_set(&lane->group->worker.timers, &lane->timer, next);
}

/* What the peer may have unread in this rail's completion queue, for each of its paths that end here: a part of what
 * others have left, so that all grants together fit (but for one each, which everybody gets). It never shrinks, for the peer
 * may have used it, and grows when others have left. */
static uint32_t immediates_for(struct wf_lane *lane, struct wf_seat *seat)
{
	struct wf_path *path = &lane->path[seat->place];
	uint32_t rails = lane->group->engine->rails, sharers = (lane->book->count + rails - 1) / rails;
	uint32_t left = seat->granted < WF_IMMEDIATES_ROOM ? WF_IMMEDIATES_ROOM - seat->granted : 0;
	uint32_t share = left / 32, most;

	sharers = sharers ? sharers : 1;
	most = IMMEDIATES_MOST * sharers;
	if (share < IMMEDIATES_LEAST)
		share = left < IMMEDIATES_LEAST ? 1 : IMMEDIATES_LEAST;
	share = share > most ? most : share;
	if (share > path->granted) {
		seat->granted += share - path->granted;
		path->granted = share;
	}
	return path->granted / sharers ? path->granted / sharers : 1;
}

/* A greeting is built and posted by hand: it must go out over this very pair. */
static int greet(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote, const struct wf_frame *answered)
{
	struct weft_engine *engine = lane->group->engine;
	struct wf_peer *peer = lane->peer;
	struct wf_frame header = { .kind = answered ? WF_FRAME_WELCOME : WF_FRAME_HELLO,
				  .from_rail = (uint8_t)seat->index,
				  .to_rail = (uint8_t)remote,
				  .incarnation = engine->incarnation,
				  .from_epoch = atomic_load(&peer->epoch),
				  .to_peer = answered ? answered->tag : 0,
				  .to_epoch = answered ? answered->from_epoch : 0,
				  .credit = engine->settings.window_frames,
				  .seq = immediates_for(lane, seat),
				  .total = engine->settings.max_message,
				  .tag = peer->handle,
				  .call = atomic_load(&peer->incarnation) };
	struct wf_path via = { 0 };
	struct wf_tx_frame *tx;
	size_t bytes = WF_FRAME_PAYLOAD;
	int error = find_target(lane, seat, remote, &via.target);

	if (error)
		return error;
	tx = wf_group_take_tx(lane->group);
	if (!tx)
		return -EAGAIN;
	error = wf_engine_address(engine, wf_tx_header(tx)->payload, &bytes);
	header.payload_bytes = (uint32_t)bytes;
	*wf_tx_header(tx) = header;
	wf_frame_seal(wf_tx_header(tx));
	if (!error)
		error = wf_seat_send(seat, lane, &via, tx);
	if (error)
		wf_group_give_unsent_tx(lane->group, tx);
	return error;
}

static void hello(struct wf_lane *lane, uint32_t place, uint64_t now_ns)
{
	struct wf_path *path = &lane->path[place];
	struct wf_seat *seat = &lane->group->seat[place];
	uint32_t shift = path->tries < 8 ? path->tries : 8;
	uint64_t wait;
	int error, remote;

	if (path->state == WF_PATH_OPENING && path->tries && path->tries % HELLO_TRIES == 0) {
		remote = pick_remote(lane, path->remote + 1u);
		if (remote >= 0 && remote != path->remote)
			path->remote = (uint8_t)remote;
	}
	error = greet(lane, seat, path->remote, NULL);
	wait = error == -EAGAIN ? HELLO_RETRY_NS << shift : HELLO_ANSWER_NS << shift;
	if (path->tries < 200)
		path->tries++;
	path->hello_ns = now_ns + (wait < HELLO_LAST_NS ? wait : HELLO_LAST_NS);
}

static void on_timer(struct wf_timer *timer, uint64_t now_ns)
{
	struct wf_lane *lane = wf_container(timer, struct wf_lane, timer);

	for (uint32_t i = 0; i < lane->group->seats; i++)
		if (wants_answer(&lane->path[i]) && lane->path[i].hello_ns <= now_ns &&
		    atomic_load(&lane->group->seat[i].up))
			hello(lane, i, now_ns);
	plan(lane);
}

void wf_lane_open(struct wf_lane *lane)
{
	struct wf_group *group = lane->group;

	if (lane->opened || lane->closing)
		return;
	lane->opened = true;
	wf_timer_init(&lane->timer, on_timer);
	wf_list_append(&group->lanes, &lane->link);
	for (uint32_t i = 0; i < group->seats; i++) {
		int remote = pick_remote(lane, group->seat[i].index);

		if (remote < 0)
			continue; /* the home says so when nothing answers */
		lane->path[i].state = WF_PATH_OPENING;
		lane->path[i].remote = (uint8_t)remote;
		lane->path[i].hello_ns = wf_group_now(group);
	}
	on_timer(&lane->timer, wf_group_now(group));
}

void wf_lane_hello_now(struct wf_lane *lane)
{
	if (!lane->opened || lane->closing)
		return;
	for (uint32_t i = 0; i < lane->group->seats; i++)
		if (lane->path[i].state == WF_PATH_OPENING) {
			lane->path[i].hello_ns = wf_group_now(lane->group);
			lane->path[i].tries = 0;
		}
	plan(lane);
}

/* ---- paths up and down ---- */

static void path_up(struct wf_lane *lane, struct wf_path *path, uint32_t remote, uint64_t target)
{
	if (path->state == WF_PATH_UP)
		return;
	path->state = WF_PATH_UP;
	path->remote = (uint8_t)remote;
	path->target = target;
	path->tries = 0;
	path->stuck_ns = 0;
	path->window_bytes = lane->group->seat[path - lane->path].limits.window_bytes;
	path->landed_bytes = path->landed_since_ns = 0;
	path->immediates = path->ops; /* whoever answers a hello has read all that completed before it */
	path->immediates_done = path->immediates_asked = 0;
	atomic_fetch_add_explicit(&lane->paths_up, 1, memory_order_relaxed);
	atomic_store_explicit(&lane->last_ok_ns, wf_group_now(lane->group), memory_order_relaxed);
	wf_lane_runnable(lane);
	wf_group_tell(lane->group, lane->peer->home, WF_NOTE_PATHS, lane->peer, 0);
}

static void path_down(struct wf_lane *lane, struct wf_path *path, uint64_t hello_ns)
{
	if (path->state != WF_PATH_UP)
		return;
	path->state = WF_PATH_OPENING;
	path->hello_ns = hello_ns;
	atomic_fetch_sub_explicit(&lane->paths_up, 1, memory_order_relaxed);
}

/* A completed write's immediate lies in the peer's completion queue, before a hello that is sent from now on: the answer
 * to it says that the peer has read so far. Asked in time, it never holds anything up. */
void wf_lane_immediate_done(struct wf_lane *lane, struct wf_path *path)
{
	path->immediates_done++;
	if (path->immediates_asked || path->immediates_done < (path->immediates_limit + 1) / 2 || lane->closing)
		return;
	path->immediates_asked = path->immediates_done;
	path->hello_ns = wf_group_now(lane->group);
	plan(lane);
}

static void immediates_read(struct wf_lane *lane, struct wf_path *path, const struct wf_frame *welcome)
{
	uint32_t read = path->immediates_asked;

	path->immediates_limit = welcome->seq > IMMEDIATES_MOST ? IMMEDIATES_MOST : (uint32_t)welcome->seq;
	path->immediates_asked = 0;
	path->immediates_done -= read < path->immediates_done ? read : path->immediates_done;
	path->immediates -= read < path->immediates ? read : path->immediates;
	path->tries = 0;
	wf_lane_runnable(lane);
}

void wf_lane_path_failed(struct wf_lane *lane, struct wf_path *path, const char *why)
{
	uint32_t place = (uint32_t)(path - lane->path);

	if (path->state != WF_PATH_UP)
		return;
	wf_log(&lane->group->engine->log, WEFT_LOG_INFO, "rail %s to peer %llx: %s", lane->group->seat[place].nic->name,
	       (unsigned long long)lane->peer->handle, why);
	path_down(lane, path, wf_group_now(lane->group) + HELLO_RETRY_NS);
	plan(lane);
	wf_group_tell(lane->group, lane->peer->home, WF_NOTE_PATHS, lane->peer, 0);
}

void wf_lane_seat_reset(struct wf_lane *lane, struct wf_seat *seat)
{
	struct wf_path *path = &lane->path[seat->place];

	lane->ops -= path->ops; /* nothing: all of it was taken back */
	path->ops = 0;
	path->bytes = 0;
	if (path->state != WF_PATH_UP)
		return;
	path_down(lane, path, wf_group_now(lane->group));
	wf_group_tell(lane->group, lane->peer->home, WF_NOTE_PATHS, lane->peer, 0);
}

void wf_lane_quiet(struct wf_lane *lane)
{
	for (uint32_t i = 0; i < lane->group->seats; i++) {
		path_down(lane, &lane->path[i], wf_group_now(lane->group) + HELLO_ANSWER_NS);
		lane->path[i].tries = 0;
	}
	if (lane->opened)
		plan(lane);
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
		if (lane->path[place].state == WF_PATH_UP && atomic_load(&lane->group->seat[place].up))
			return (int)place;
		place = place + 1 < seats ? place + 1 : 0;
	}
	return -1;
}

void wf_lane_send_copy(struct wf_lane *lane, void *copy)
{
	int place = wf_lane_any_path(lane, lane->talk++ % lane->group->seats); /* another each time: one may be silent */
	struct wf_tx_frame *tx = place >= 0 ? wf_group_take_tx(lane->group) : NULL;

	/* Lost when there is no room: the channel sends again what is not acknowledged. */
	if (tx) {
		memcpy(tx->buffer, copy, wf_frame_bytes(copy));
		if (!wf_seat_send(&lane->group->seat[place], lane, &lane->path[place], tx))
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
	struct wf_target *targets = calloc((size_t)lane->group->seats * book->count, sizeof(*targets));

	if (!targets) {
		wf_book_put(book);
		return; /* the next hello brings it again */
	}
	/* Rails whose address is new are no longer where we think: their paths start over. */
	for (uint32_t i = 0; i < lane->group->seats; i++) {
		struct wf_path *path = &lane->path[i];

		for (uint32_t j = 0; j < old->count; j++) {
			if (j < book->count && old->rail[j].serial == book->rail[j].serial &&
			    old->rail[j].bytes == book->rail[j].bytes &&
			    !memcmp(old->rail[j].address, book->rail[j].address, old->rail[j].bytes)) {
				targets[i * book->count + j] = *target_of(lane, i, j);
				continue;
			}
			if (path->remote == j)
				path_down(lane, path, wf_group_now(lane->group));
			forget_target(lane, &lane->group->seat[i], j);
		}
		if (path->remote >= book->count)
			path->remote = 0;
		if (path->state == WF_PATH_OPENING) {
			path->hello_ns = wf_group_now(lane->group);
			path->tries = 0;
		}
	}
	free(lane->targets);
	lane->targets = targets;
	lane->book = book;
	wf_book_put(old);
	if (lane->opened)
		plan(lane);
}

static void spread_book(struct wf_lane *here, const struct wf_wire_address *address)
{
	struct weft_engine *engine = here->group->engine;
	struct wf_peer *peer = here->peer;
	struct wf_book *book = wf_book_make(engine, address), *old;

	if (!book)
		return;
	atomic_fetch_add(&book->references, engine->groups);
	pthread_mutex_lock(&peer->book_lock);
	old = peer->book;
	peer->book = book;
	pthread_mutex_unlock(&peer->book_lock);
	wf_book_put(old);
	for (uint32_t g = 0; g < engine->groups; g++) {
		wf_handle_ref(&engine->peers, peer->handle); /* until the note has been read */
		wf_group_tell(here->group, &engine->group[g], WF_NOTE_LANE_BOOK, peer->lane[g], (uintptr_t)book);
	}
}

/* ---- greetings that arrive ---- */

static void tell_home(struct wf_lane *lane, const struct wf_frame *frame)
{
	struct wf_heard *heard = malloc(sizeof(*heard));

	if (!heard)
		return; /* hellos come again */
	*heard = (struct wf_heard){ .handle = frame->tag,
				    .incarnation = frame->incarnation,
				    .credit = frame->credit,
				    .max_message = frame->total,
				    .epoch = frame->from_epoch,
				    .to_epoch = frame->to_epoch,
				    .kind = frame->kind };
	wf_group_tell(lane->group, lane->peer->home, WF_NOTE_HEARD, lane->peer, (uintptr_t)heard);
}

static void answer_hello(struct wf_peer *peer, struct wf_seat *seat, const struct wf_frame *frame,
			 const struct wf_wire_address *address)
{
	struct wf_lane *lane = peer->lane[seat->group->index];
	uint64_t target;

	wf_lane_open(lane);
	if (lane->closing)
		return;
	if ((int32_t)(address->revision - lane->book->revision) > 0)
		spread_book(lane, address);
	if (frame->from_rail >= lane->book->count || find_target(lane, seat, frame->from_rail, &target))
		return;
	if (greet(lane, seat, frame->from_rail, frame))
		return; /* no room: they ask again */
	if (!lane->path[seat->place].immediates_limit)
		lane->path[seat->place].immediates_limit = frame->seq > IMMEDIATES_MOST ? IMMEDIATES_MOST : (uint32_t)frame->seq;
	path_up(lane, &lane->path[seat->place], frame->from_rail, target);
	tell_home(lane, frame);
}

void wf_hello_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct weft_engine *engine = group->engine;
	struct wf_wire_address *address = malloc(sizeof(*address));
	struct wf_peer *peer;
	weft_peer handle;

	/* Someone who looks for the engine that had this address before us gets no answer. */
	if (!address || frame->call != engine->incarnation || atomic_load(&engine->closing) ||
	    wf_blob_unpack_address(frame->payload, frame->payload_bytes, address) ||
	    address->incarnation != frame->incarnation)
		goto out;
	if (wf_peer_add(engine, address, group, &handle))
		goto out;
	peer = wf_handle_get(&engine->peers, handle);
	if (peer) {
		answer_hello(peer, seat, frame, address);
		wf_handle_put(&engine->peers, handle);
	}
out:
	free(address);
}

void wf_welcome_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct wf_peer *peer = wf_handle_get(&group->engine->peers, frame->to_peer);
	struct wf_lane *lane;
	uint64_t target;

	if (!peer)
		return;
	lane = peer->lane[group->index];
	if (lane->opened && !lane->closing && frame->incarnation == atomic_load(&peer->incarnation) &&
	    frame->to_epoch == atomic_load(&peer->epoch) && frame->from_rail < lane->book->count &&
	    !find_target(lane, seat, frame->from_rail, &target)) {
		immediates_read(lane, &lane->path[seat->place], frame);
		path_up(lane, &lane->path[seat->place], frame->from_rail, target);
		tell_home(lane, frame);
	}
	wf_handle_put(&group->engine->peers, peer->handle);
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
