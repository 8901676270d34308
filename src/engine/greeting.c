/*
 * Greetings: the hellos that open a lane's paths, their answers, and what both bring. A hello goes over the outgoing endpoint,
 * which it connects, proves and warms up; the welcome that answers it goes over the published one. Hellos also ask for leave
 * to have more immediates unread at the peer. Runs on the group's worker.
 */
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"

#include <errno.h>
#include <stdlib.h>

#define HELLO_RETRY_NS      (1 * WF_MS) /* the provider had no room, or is connecting */
#define HELLO_RETRY_LAST_NS (16 * WF_MS)
#define WELCOME_LIMIT_NS    (1 * WF_S)   /* then the peer has asked again */
#define HELLOS_OUT          3            /* that a path may have on the NIC; more while most frames are free … */
#define HELLOS_OUT_MOST     16           /* … up to here */
#define HELLO_ANSWER_NS     (50 * WF_MS) /* an answer should be here by then; doubles */
#define HELLO_LAST_NS       (2 * WF_S)
#define IMMEDIATES_MOST     256 /* unread on a path */
#define IMMEDIATES_LEAST    4   /* while there is room */
#define HELLO_TRIES         4   /* then the peer's next rail */

/* ---- hellos ---- */

static bool wants_answer(const struct wf_path *path)
{
	return path->state == WF_PATH_OPENING || (path->state == WF_PATH_UP && path->immediates_asked);
}

void wf_lane_plan(struct wf_lane *lane)
{
	uint64_t next = WF_NEVER;

	if (lane->closing)
		return;
	for (uint32_t i = 0; i < lane->group->seats; i++) {
		if (wants_answer(&lane->path[i]) && atomic_load(&lane->group->seat[i].up) &&
		    lane->path[i].hello_ns < next)
			next = lane->path[i].hello_ns;
		if (lane->path[i].welcomes && lane->welcome_ns < next)
			next = lane->welcome_ns;
	}
	if (lane->doubted.epoch && lane->welcome_ns < next)
		next = lane->welcome_ns;
	wf_timer_set(&lane->group->worker.timers, &lane->timer, next);
}

/* What the peer may have unread in this rail's completion queue, for each of its paths that end here: a part of what
 * others have left, so that all grants together fit (but for one each, which everybody gets). It never shrinks, for the peer
 * may have used it, and grows when others have left. */
static uint32_t immediates_for(struct wf_lane *lane, struct wf_seat *seat)
{
	struct wf_path *path = &lane->path[seat->place];
	uint32_t rails = lane->group->engine->rails, sharers = (lane->book->count + rails - 1) / rails;
	uint32_t left = seat->granted < seat->limits.immediates ? seat->limits.immediates - seat->granted : 0;
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

/* What a hello proves itself by: who says it was greeted by the peer before. */
static uint64_t proof_for(const struct wf_lane *lane)
{
	return lane->proof ? lane->proof : atomic_load_explicit(&lane->peer->their_secret, memory_order_relaxed);
}

/* A greeting is built and posted by hand: it must go out over this very pair. A hello over the outgoing endpoint, which it
 * tries; a welcome or a challenge over the published one, which frames go by. */
static int greet(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote, uint8_t kind,
		 const struct wf_heard *answered)
{
	struct weft_engine *engine = lane->group->engine;
	struct wf_peer *peer = lane->peer;
	enum wf_end end = answered ? WF_PUBLISHED : WF_OUTGOING;
	struct wf_frame header = { .kind = kind,
				   .from_rail = (uint8_t)seat->index,
				   .to_rail = (uint8_t)remote,
				   .incarnation = engine->incarnation,
				   .from_epoch = atomic_load(&peer->epoch),
				   .to_peer = answered ? answered->handle : 0,
				   .to_epoch = answered ? answered->epoch : 0,
				   .credit = wf_channel_first_credit(peer),
				   .status = (int32_t)(answered ? wf_target_of(lane, seat->place, remote)->question
								: lane->path[seat->place].question),
				   .seq = immediates_for(lane, seat),
				   .total = engine->settings.max_message,
				   .tag = peer->handle,
				   .call = atomic_load(&peer->incarnation),
				   .first = lane->book->secret,
				   .token = answered ? answered->secret : proof_for(lane) };
	struct wf_tx_frame *tx;
	size_t bytes = WF_FRAME_PAYLOAD;
	uint32_t revision;
	uint64_t target;
	int error = wf_lane_target(lane, seat, end, remote, &target);

	if (error)
		return error;
	tx = wf_group_take_tx(lane->group);
	if (!tx)
		return -EAGAIN;
	error = wf_engine_address(engine, wf_tx_header(tx)->payload, &bytes, &revision);
	header.ack = revision;
	header.payload_bytes = kind == WF_FRAME_CHALLENGE ? 0 : (uint32_t)bytes;
	*wf_tx_header(tx) = header;
	wf_frame_seal(wf_tx_header(tx));
	if (!error)
		error = wf_seat_send(seat, end, lane, target, tx);
	if (error)
		wf_group_give_unsent_tx(lane->group, tx);
	wf_target_of(lane, seat->place, remote)->asked = true;
	return error;
}

/* A rail of the peer that does not answer is left for its next one. Connecting is not silence: a provider that says "try
 * again" meanwhile is given as long as a rail may be silent. */
static void seek_next_remote(struct wf_lane *lane, struct wf_path *path, uint64_t now_ns)
{
	int remote;

	if (path->state != WF_PATH_OPENING || !path->tries ||
	    (path->tries % HELLO_TRIES && now_ns - path->sought_ns < lane->group->engine->settings.rail_limit_ns))
		return;
	remote = wf_pair_pick(lane, &lane->group->seat[path - lane->path], path->remote + 1u);
	if (remote < 0 || remote == path->remote)
		return;
	path->remote = (uint8_t)remote;
	path->sought_ns = now_ns;
}

/* Hellos that never leave the NIC hold a frame each: a peer that is gone must not hold them all. */
static bool may_say_hello(const struct wf_group *group, const struct wf_path *path)
{
	return path->hellos_out < HELLOS_OUT ||
	       (path->hellos_out < HELLOS_OUT_MOST && group->frames_out < group->tx_count / 2);
}

static void hello(struct wf_lane *lane, uint32_t place, uint64_t now_ns)
{
	struct wf_path *path = &lane->path[place];
	struct wf_seat *seat = &lane->group->seat[place];
	uint32_t shift = path->tries < 8 ? path->tries : 8;
	uint64_t wait = HELLO_ANSWER_NS << shift, last = HELLO_LAST_NS;
	int error = 0;

	seek_next_remote(lane, path, now_ns);
	if (may_say_hello(lane->group, path) && !(error = greet(lane, seat, path->remote, WF_FRAME_HELLO, NULL)))
		path->asked_ns = now_ns;
	if (error == -EAGAIN) {
		wait = HELLO_RETRY_NS << shift;
		last = HELLO_RETRY_LAST_NS;
	}
	if (path->tries < 200)
		path->tries++;
	path->hello_ns = now_ns + (wait < last ? wait : last);
}

/* A completed write's immediate lies in the peer's completion queue, before a hello that is sent from now on: the answer
 * to it, and not to an earlier one, says that the peer has read so far. Asked in time, it never holds anything up. */
static void ask_about_immediates(struct wf_lane *lane, struct wf_path *path)
{
	if (path->state != WF_PATH_UP || path->immediates_asked ||
	    path->immediates_done < (path->immediates_limit + 1) / 2 || lane->closing)
		return;
	path->immediates_asked = path->immediates_done;
	path->question++;
	path->hello_ns = wf_group_now(lane->group);
	wf_lane_plan(lane);
}

void wf_lane_immediate_done(struct wf_lane *lane, struct wf_path *path)
{
	path->immediates_done++;
	ask_about_immediates(lane, path);
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

static void take_answer(struct wf_lane *lane, struct wf_path *path, const struct wf_frame *welcome, uint64_t target)
{
	if ((uint32_t)welcome->status != path->question)
		return; /* what happened since that hello is asked again */
	immediates_read(lane, path, welcome);
	wf_lane_path_up(lane, path, welcome->from_rail, target);
	ask_about_immediates(lane, path);
}

/* ---- answering hellos ---- */

/* Most greetings between peers that are up only ask for immediates, and say nothing that the home does not know. */
static bool is_news(const struct wf_lane *lane, const struct wf_heard *heard)
{
	const struct wf_heard *told = &lane->told;

	return atomic_load(&lane->peer->state) != WF_PEER_UP || heard->handle != told->handle ||
	       heard->incarnation != told->incarnation || heard->epoch != told->epoch ||
	       heard->to_epoch != told->to_epoch || heard->ours != told->ours || heard->kind != told->kind ||
	       heard->max_message != told->max_message || heard->credit > told->credit;
}

static void tell_home(struct wf_lane *lane, struct wf_path *path, const struct wf_heard *heard)
{
	struct wf_heard *copy;

	if (lane->group == lane->peer->home) {
		wf_peer_heard(lane->peer, heard);
		return;
	}
	atomic_store_explicit(&path->moved_ns, wf_group_now(lane->group), memory_order_relaxed); /* a sign of life */
	if (!is_news(lane, heard))
		return;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return; /* hellos come again */
	*copy = lane->told = *heard;
	wf_group_tell(lane->group, lane->peer->home, WF_NOTE_HEARD, lane->peer, (uintptr_t)copy);
}

/* False: there is no room now, or the provider is connecting. */
static bool welcome(struct wf_lane *lane, uint32_t place, uint32_t remote)
{
	struct wf_seat *seat = &lane->group->seat[place];
	int error;

	if (remote >= lane->book->count)
		return true;
	error = greet(lane, seat, remote, WF_FRAME_WELCOME, &lane->hello);
	if (!error) {
		wf_lane_talk_up(lane, &lane->path[place], remote,
				wf_target_of(lane, place, remote)->target[WF_PUBLISHED]);
		tell_home(lane, &lane->path[place], &lane->hello);
	}
	return error != -EAGAIN;
}

static void send_welcomes(struct wf_lane *lane, uint64_t now_ns)
{
	for (uint32_t i = 0; i < lane->group->seats; i++)
		for (uint64_t left = lane->path[i].welcomes; left; left &= left - 1) {
			uint32_t remote = (uint32_t)__builtin_ctzll(left);

			if (now_ns >= lane->welcome_until_ns || welcome(lane, i, remote))
				lane->path[i].welcomes &= ~(UINT64_C(1) << remote);
		}
	lane->welcome_ns = now_ns + HELLO_RETRY_NS;
}

/* Goes where the application or a hello that was proved says that the peer lives, and the hello that is doubted too: what it
 * brought, which is its sender's secret, goes to nobody else. Few at a time: anybody can have us send them. */
static void send_challenge(struct wf_lane *lane, uint64_t now_ns)
{
	struct wf_seat *seat = &lane->group->seat[lane->doubted_place];
	int error = 0;

	if (lane->doubted_remote < lane->book->count && lane->group->frames_out < lane->group->tx_count / 4)
		error = greet(lane, seat, lane->doubted_remote, WF_FRAME_CHALLENGE, &lane->doubted);
	if (error != -EAGAIN || now_ns >= lane->welcome_until_ns)
		lane->doubted.epoch = 0;
	else
		lane->welcome_ns = now_ns + HELLO_RETRY_NS;
}

/* ---- opening ---- */

static void on_timer(struct wf_timer *timer, uint64_t now_ns)
{
	struct wf_lane *lane = wf_container(timer, struct wf_lane, timer);

	if (lane->welcome_ns <= now_ns) {
		send_welcomes(lane, now_ns);
		if (lane->doubted.epoch)
			send_challenge(lane, now_ns);
	}
	for (uint32_t i = 0; i < lane->group->seats; i++)
		if (wants_answer(&lane->path[i]) && lane->path[i].hello_ns <= now_ns &&
		    atomic_load(&lane->group->seat[i].up))
			hello(lane, i, now_ns);
	wf_lane_plan(lane);
}

void wf_lane_open(struct wf_lane *lane)
{
	struct wf_group *group = lane->group;

	if (lane->opened || lane->closing)
		return;
	lane->opened = true;
	wf_timer_init(&lane->timer, on_timer);
	wf_list_append(&group->lanes, &lane->link);
	wf_lane_pair(lane);
	on_timer(&lane->timer, wf_group_now(group));
}

void wf_lane_hello_now(struct wf_lane *lane)
{
	if (!lane->opened || lane->closing)
		return;
	for (uint32_t i = 0; i < lane->group->seats; i++)
		if (lane->path[i].state == WF_PATH_OPENING) {
			lane->path[i].hello_ns = lane->path[i].sought_ns = wf_group_now(lane->group);
			lane->path[i].tries = 0;
		}
	wf_lane_plan(lane);
}

/* ---- greetings that arrive ---- */

static struct wf_heard heard_from(const struct wf_lane *lane, const struct wf_frame *frame)
{
	return (struct wf_heard){ .handle = frame->tag,
				  .incarnation = frame->incarnation,
				  .credit = frame->credit,
				  .max_message = frame->total,
				  .secret = frame->first,
				  .ours = lane->book->secret,
				  .epoch = frame->from_epoch,
				  .to_epoch = frame->to_epoch,
				  .kind = frame->kind };
}

/* NULL: what the frame carries is no address of the engine that it names. To be freed. */
static struct wf_wire_address *address_in(const struct wf_frame *frame)
{
	struct wf_wire_address *address = malloc(sizeof(*address));

	if (address && !wf_blob_unpack_address(frame->payload, frame->payload_bytes, address) &&
	    address->incarnation == frame->incarnation)
		return address;
	free(address);
	return NULL;
}

/* The rail that the greeting comes from is where our book has it. */
static bool comes_from_there(const struct wf_lane *lane, const struct wf_frame *frame)
{
	struct wf_wire_address *address = address_in(frame);
	bool there = address && wf_book_has(lane->book, address, frame->from_rail);

	free(address);
	return there;
}

/* Of a greeting that is proved: where the peer lives now. False: not where our book has it, so there is nothing to be said to
 * it. It says hello again when we know. */
static bool follow_address(struct wf_lane *lane, const struct wf_frame *frame)
{
	struct wf_wire_address *address;
	bool there;

	if ((uint32_t)frame->ack == lane->book->revision)
		return frame->from_rail < lane->book->count;
	address = address_in(frame);
	if (!address)
		return false;
	there = wf_book_has(lane->book, address, frame->from_rail);
	if ((int32_t)(address->revision - lane->book->revision) > 0)
		wf_peer_moved(lane, address);
	free(address);
	return there;
}

/* Two may claim a name that nobody has added: one came first and is the peer, the other is heard no more than if there were
 * none, or each would be told what the other says. They are told apart by their secrets for us. An engine that has forgotten us
 * has another one; it is the same if it lives at the very address that the first has shown to be its own. */
static bool is_who_came_first(const struct wf_lane *lane, const struct wf_frame *frame)
{
	const struct wf_book *book = lane->book;
	struct wf_wire_address *address;
	bool same;

	if (book->word == WF_WORD_APPLICATION ||
	    frame->first == atomic_load_explicit(&lane->peer->their_secret, memory_order_relaxed))
		return true;
	address = book->word == WF_WORD_PROVED ? address_in(frame) : NULL;
	same = address && wf_book_is(book, address);
	free(address);
	return same;
}

static void answer_hello(struct wf_lane *lane, struct wf_seat *seat, const struct wf_frame *frame)
{
	uint64_t now = wf_group_now(seat->group);

	if (!follow_address(lane, frame))
		return;
	lane->hello = heard_from(lane, frame);
	wf_target_of(lane, seat->place, frame->from_rail)->question = (uint32_t)frame->status;
	if (welcome(lane, seat->place, frame->from_rail))
		return;
	lane->path[seat->place].welcomes |= UINT64_C(1) << frame->from_rail;
	lane->welcome_ns = now + HELLO_RETRY_NS;
	lane->welcome_until_ns = now + WELCOME_LIMIT_NS;
	wf_lane_plan(lane);
}

/* It may be the peer, which does not know our secret yet, or anybody. Nothing changes until a hello brings it. */
static void doubt_hello(struct wf_lane *lane, struct wf_seat *seat, const struct wf_frame *frame)
{
	uint64_t now = wf_group_now(seat->group);

	if (lane->doubted.epoch || !comes_from_there(lane, frame))
		return; /* one at a time */
	lane->doubted = heard_from(lane, frame);
	lane->doubted_place = seat->place;
	lane->doubted_remote = frame->from_rail;
	lane->welcome_until_ns = now + WELCOME_LIMIT_NS;
	send_challenge(lane, now);
	wf_lane_plan(lane);
}

void wf_hello_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct weft_engine *engine = group->engine;
	struct wf_wire_address *address;
	struct wf_peer *peer;
	struct wf_lane *lane;

	/* Someone who looks for the engine that had this address before us gets no answer. */
	if (frame->call != engine->incarnation || !frame->from_epoch || !frame->tag || atomic_load(&engine->closing))
		return;
	/* An engine may be its own peer, but no stranger. */
	peer = wf_peer_find(engine, frame->incarnation);
	if (!peer && frame->incarnation != engine->incarnation && (address = address_in(frame))) {
		peer = wf_newcomer_proves(group, seat, frame, address);
		free(address);
	}
	if (!peer)
		return;
	lane = peer->lane[group->index];
	wf_lane_open(lane);
	if (!lane->closing && is_who_came_first(lane, frame)) {
		if (frame->token == lane->book->secret)
			answer_hello(lane, seat, frame);
		else
			doubt_hello(lane, seat, frame);
	}
	wf_handle_put(&engine->peers, peer->handle);
}

/* The peer, and nobody else, has our hello and wants it again with its secret. */
void wf_challenge_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct wf_peer *peer = wf_handle_get(&group->engine->peers, frame->to_peer);
	struct wf_lane *lane;

	if (!peer)
		return;
	lane = peer->lane[group->index];
	if (frame->token == lane->book->secret && frame->incarnation == atomic_load(&peer->incarnation) &&
	    lane->proof != frame->first && is_who_came_first(lane, frame)) {
		lane->proof = frame->first;
		wf_lane_hello_now(lane);
	}
	wf_handle_put(&group->engine->peers, peer->handle);
}

static void take_welcome(struct wf_lane *lane, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct wf_path *path = &lane->path[seat->place];
	struct wf_heard heard = heard_from(lane, frame);
	uint64_t talk, target;

	if (!follow_address(lane, frame) || wf_lane_target(lane, seat, WF_PUBLISHED, frame->from_rail, &talk) ||
	    wf_lane_target(lane, seat, WF_OUTGOING, frame->from_rail, &target))
		return;
	/* One that nobody asked for, or that came before, says nothing about how long an answer takes. */
	if (path->asked_ns)
		wf_pace_took(&seat->pace, wf_group_now(lane->group) - path->asked_ns);
	path->asked_ns = 0;
	take_answer(lane, path, frame, target);
	wf_lane_talk_up(lane, path, frame->from_rail, talk);
	tell_home(lane, path, &heard);
}

void wf_welcome_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct wf_peer *peer = wf_handle_get(&group->engine->peers, frame->to_peer);
	struct wf_lane *lane;

	if (!peer)
		return;
	lane = peer->lane[group->index];
	if (lane->opened && !lane->closing && frame->token == lane->book->secret &&
	    frame->incarnation == atomic_load(&peer->incarnation) && frame->to_epoch == atomic_load(&peer->epoch) &&
	    frame->from_epoch && is_who_came_first(lane, frame))
		take_welcome(lane, seat, frame);
	wf_handle_put(&group->engine->peers, peer->handle);
}
