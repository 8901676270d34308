/*
 * Greetings: the hellos that open a lane's paths, their answers, and what both bring. A hello goes over the outgoing endpoint,
 * which it connects, proves and warms up; the welcome that answers it goes over the published one. Runs on the group's worker.
 */
#include "engine/peer/greeting.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/frames.h"
#include "engine/move/reset.h"
#include "engine/peer/directory.h"
#include "engine/peer/grants.h"
#include "engine/peer/newcomer.h"
#include "engine/peer/pairing.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stdlib.h>

#define HELLO_RETRY_LAST_NS (16 * WF_MS)
#define WELCOME_LIMIT_NS    (1 * WF_S) /* then the peer has asked again */
#define HELLOS_OUT          3          /* that a path may have on the NIC; more while most frames are free … */
#define HELLOS_OUT_MOST     16         /* … up to here */
#define HELLO_LAST_NS       (2 * WF_S)
#define HELLO_TRIES         4 /* then the peer's next rail */
#define DEAF_HELLOS         3 /* that left the NIC unheard after one had failed */

/* ---- hellos ---- */

void wf_lane_set_timer(struct wf_lane *lane)
{
	uint64_t next;

	if (lane->closing)
		return;
	next = wf_grants_next(lane);
	for (uint32_t i = 0; i < lane->group->seats; i++) {
		if (lane->path[i].state == WF_PATH_OPENING && atomic_load(&lane->group->seat[i].up) &&
		    lane->path[i].hello_ns < next)
			next = lane->path[i].hello_ns;
		if (lane->path[i].welcomes && lane->welcome_ns < next)
			next = lane->welcome_ns;
	}
	if (lane->doubted.epoch && lane->welcome_ns < next)
		next = lane->welcome_ns;
	wf_timer_set(&lane->group->worker.timers, &lane->timer, next);
}

/* What a hello proves itself by: who says it was greeted by the peer before. */
static uint64_t proof_for(const struct wf_lane *lane)
{
	return lane->proof ? lane->proof : atomic_load_explicit(&lane->peer->their_secret, memory_order_relaxed);
}

/*
 * Where the provider numbers messages (limits.numbers_messages), one that failed is missing at its receiver, who keeps all later ones
 * and waits for it. A pair of endpoints is deaf from then on, although the NIC delivers. Frames that the published endpoint cannot
 * bring any more go by the outgoing one: reopening the published one would change the address that peers know, and two engines whose
 * link was down would both do that on every rail and never meet again. The outgoing one is reopened, if the peer lives; if not,
 * every further frame fails, and reopening would only disturb others.
 */
void wf_lane_frame_left(const struct wf_tx_frame *frame, int status)
{
	const struct wf_frame *header = wf_tx_header(frame);
	const struct wf_lane *lane = frame->lane;
	const struct wf_seat *seat = frame->seat;
	struct wf_target *target;
	uint32_t remote;

	if (status && wf_seat_is_open(seat, frame->end))
		wf_rail_note_lost(seat->rail, frame->end, frame->target);
	if (!lane || !lane->book) /* nobody's any more, or a newcomer's */
		return;
	remote = wf_frame_is_greeting(header->kind) ? header->greeting.to_rail : lane->path[seat->place].talk_remote;
	if (remote >= lane->book->count)
		return;
	target = wf_target_of(lane, seat->place, remote);
	if (status)
		target->unheard = 0;
	else if (frame->end == WF_OUTGOING && target->unheard < DEAF_HELLOS)
		target->unheard++;
}

/* The peer was heard there: it lives, and what failed before is missing to it. */
static void reopen_deaf(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote)
{
	if (wf_lane_is_deaf(lane, seat, WF_OUTGOING, remote))
		wf_reset_ask_deaf(seat, "a message failed, and the provider delivers none after it");
}

/* Hellos leave the NIC and nobody hears them. */
static void reopen_unheard(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote)
{
	if (wf_target_of(lane, seat->place, remote)->unheard >= DEAF_HELLOS)
		reopen_deaf(lane, seat, remote);
}

/* A greeting is built and posted by hand: it must go out over this very pair. A hello over the outgoing endpoint, which it
 * tries; a welcome or a challenge over the one that frames go by. */
static int greet(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote, uint8_t kind,
		 const struct wf_heard *answered)
{
	struct weft_engine *engine = lane->group->engine;
	struct wf_peer *peer = lane->peer;
	enum wf_end end = answered ? wf_lane_talk_end(lane, seat, remote) : WF_OUTGOING;
	struct wf_greeting greeting = { .handle = peer->handle,
					.sought = atomic_load(&peer->incarnation),
					.secret = lane->book->secret,
					.credit = wf_channel_first_credit(peer),
					.max_message = engine->settings.max_message,
					.question = answered ? wf_target_of(lane, seat->place, remote)->question
							     : lane->path[seat->place].question,
					.from_rail = (uint8_t)seat->index,
					.to_rail = (uint8_t)remote };
	struct wf_frame header = { .kind = kind,
				   .incarnation = engine->incarnation,
				   .from_epoch = atomic_load(&peer->epoch),
				   .to_peer = answered ? answered->handle : 0,
				   .to_epoch = answered ? answered->epoch : 0,
				   .token = answered ? answered->secret : proof_for(lane) };
	struct wf_tx_frame *tx;
	size_t bytes = WF_FRAME_PAYLOAD;
	uint64_t target;
	int error = wf_lane_target(lane, seat, end, remote, &target);

	if (error)
		return error;
	tx = wf_group_take_tx(lane->group);
	if (!tx)
		return -EAGAIN;
	error = wf_engine_address(engine, wf_tx_header(tx)->payload, &bytes, &greeting.revision);
	if (kind == WF_FRAME_WELCOME)
		greeting.immediates = wf_grants_share(lane, seat);
	header.greeting = greeting;
	header.payload_bytes = kind == WF_FRAME_CHALLENGE ? 0 : (uint32_t)bytes;
	*wf_tx_header(tx) = header;
	wf_frame_seal(wf_tx_header(tx));
	if (!error)
		error = wf_seat_greet(seat, end, lane, target, tx);
	if (error)
		wf_group_give_unsent_tx(lane->group, tx);
	wf_target_of(lane, seat->place, remote)->asked = true;
	return error;
}

/*
 * A rail of the peer that does not answer is left for its next one. Connecting is not silence: both sides connect before the first
 * answer comes, which may take a card's driver long, and a connection across only adds to that. So a rail that has never answered
 * has time, but all of the peer's rails must have their turn before the peer is given up. One that has answered before is quick.
 */
static bool is_silent(const struct wf_lane *lane, const struct wf_path *path, uint64_t now_ns)
{
	const struct weft_engine *engine = lane->group->engine;
	uint64_t sought = now_ns - path->sought_ns, limit = engine->settings.rail_limit_ns;
	uint64_t rounds = (lane->book->count + engine->rails - 1) / engine->rails;

	if (!path->asked && !path->refusals)
		return false;
	if (wf_target_of(lane, (uint32_t)(path - lane->path), path->remote)->answered)
		return path->asked >= HELLO_TRIES || sought >= (path->asked ? limit : limit / 4);
	if (atomic_load(&lane->peer->state) != WF_PEER_UP)
		limit = engine->settings.peer_limit_ns / (2 * rounds);
	return sought >= limit;
}

static void seek_next_remote(struct wf_lane *lane, struct wf_path *path, uint64_t now_ns)
{
	int remote;

	if (path->state != WF_PATH_OPENING || !is_silent(lane, path, now_ns))
		return;
	remote = wf_pair_pick(lane, &lane->group->seat[path - lane->path], path->remote + 1u);
	path->sought_ns = now_ns;
	path->asked = 0;
	if (remote >= 0)
		path->remote = (uint8_t)remote;
}

/* Hellos that never leave the NIC hold a frame each: a peer that is gone must not hold them all. */
static bool may_say_hello(const struct wf_group *group, const struct wf_path *path)
{
	return path->hellos_out < HELLOS_OUT ||
	       (path->hellos_out < HELLOS_OUT_MOST && group->frames_out < group->tx_count / 2);
}

/* A counter that pauses are doubled by. */
static uint32_t count_up(uint8_t *counter)
{
	uint32_t before = *counter;

	if (before < 200)
		++*counter;
	return before < 8 ? before : 8;
}

static uint64_t pause_ns(uint64_t first_ns, uint32_t doubled, uint64_t last_ns)
{
	uint64_t pause = first_ns << doubled;

	return pause < last_ns ? pause : last_ns;
}

static void hello(struct wf_lane *lane, uint32_t place, uint64_t now_ns)
{
	struct wf_path *path = &lane->path[place];
	struct wf_seat *seat = &lane->group->seat[place];
	int error = 0;

	reopen_unheard(lane, seat, path->remote);
	seek_next_remote(lane, path, now_ns);
	if (may_say_hello(lane->group, path) && !(error = greet(lane, seat, path->remote, WF_FRAME_HELLO, NULL))) {
		path->asked_ns = now_ns;
		if (!path->asked)
			path->sought_ns = now_ns; /* it was connecting until now */
		wf_peer_was_asked(lane->peer, now_ns);
	}
	if (error == -EAGAIN) {
		path->hello_ns = now_ns + pause_ns(WF_HELLO_RETRY_NS, count_up(&path->refusals), HELLO_RETRY_LAST_NS);
		return;
	}
	count_up(&path->asked);
	path->hello_ns = now_ns + pause_ns(WF_HELLO_ANSWER_NS, count_up(&path->tries), HELLO_LAST_NS);
}

static void take_answer(struct wf_lane *lane, struct wf_path *path, const struct wf_frame *welcome, uint64_t target)
{
	if (welcome->greeting.question != path->question || path->state == WF_PATH_UP)
		return; /* what happened since that hello is asked again */
	wf_grants_begin(path, welcome->greeting.immediates);
	wf_lane_path_up(lane, path, welcome->greeting.from_rail, target);
}

/* ---- answering hellos ---- */

/* A peer of several rails says the same over each. */
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
	struct wf_heard_note *copy;

	lane->their_handle = heard->handle;
	lane->their_epoch = heard->epoch;
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
	wf_note_init(&copy->note, WF_NOTE_HEARD, copy);
	copy->peer = lane->peer;
	copy->heard = lane->told = *heard;
	wf_note_tell(lane->group, lane->peer->home, &copy->note);
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
		wf_lane_talk_up(lane, &lane->path[place], remote);
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
	lane->welcome_ns = now_ns + WF_HELLO_RETRY_NS;
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
		lane->welcome_ns = now_ns + WF_HELLO_RETRY_NS;
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
		if (lane->path[i].state == WF_PATH_OPENING && lane->path[i].hello_ns <= now_ns &&
		    atomic_load(&lane->group->seat[i].up))
			hello(lane, i, now_ns);
	wf_grants_run(lane, now_ns);
	wf_lane_set_timer(lane);
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
		if (lane->path[i].state == WF_PATH_OPENING)
			wf_path_ask_anew(&lane->path[i], wf_group_now(lane->group));
	wf_lane_set_timer(lane);
}

/* ---- greetings that arrive ---- */

static struct wf_heard heard_from(const struct wf_lane *lane, const struct wf_frame *frame)
{
	const struct wf_greeting *greeting = &frame->greeting;

	return (struct wf_heard){ .handle = greeting->handle,
				  .incarnation = frame->incarnation,
				  .credit = greeting->credit,
				  .max_message = greeting->max_message,
				  .secret = greeting->secret,
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
	bool there = address && wf_book_has(lane->book, address, frame->greeting.from_rail);

	free(address);
	return there;
}

/* A greeting that is proved tells where the peer lives now. Returns false where our book has it elsewhere: then there is nothing to
 * say to it yet, and it says hello again when we know. */
static bool follow_address(struct wf_lane *lane, const struct wf_frame *frame)
{
	struct wf_wire_address *address;
	bool there;

	if (frame->greeting.revision == lane->book->revision)
		return frame->greeting.from_rail < lane->book->count;
	address = address_in(frame);
	if (!address)
		return false;
	there = wf_book_has(lane->book, address, frame->greeting.from_rail);
	if ((int32_t)(address->revision - lane->book->revision) > 0)
		wf_peer_moved(lane, address);
	free(address);
	return there;
}

/* Two engines may claim a name that nobody has added. The one that came first is the peer; the other is not heard, or each would be
 * told what the other says. Their secrets for us tell them apart. An engine that has forgotten us has another secret; it is the
 * same engine if it lives at the very address that the first has shown to be its own. */
static bool is_who_came_first(const struct wf_lane *lane, const struct wf_frame *frame)
{
	const struct wf_book *book = lane->book;
	struct wf_wire_address *address;
	bool same;

	if (book->word == WF_WORD_APPLICATION ||
	    frame->greeting.secret == atomic_load_explicit(&lane->peer->their_secret, memory_order_relaxed))
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
	reopen_deaf(lane, seat, frame->greeting.from_rail);
	lane->hello = heard_from(lane, frame);
	wf_target_of(lane, seat->place, frame->greeting.from_rail)->question = frame->greeting.question;
	if (welcome(lane, seat->place, frame->greeting.from_rail))
		return;
	lane->path[seat->place].welcomes |= UINT64_C(1) << frame->greeting.from_rail;
	lane->welcome_ns = now + WF_HELLO_RETRY_NS;
	lane->welcome_until_ns = now + WELCOME_LIMIT_NS;
	wf_lane_set_timer(lane);
}

/* It may be the peer, which does not know our secret yet, or anybody. Nothing changes until a hello brings it. */
static void doubt_hello(struct wf_lane *lane, struct wf_seat *seat, const struct wf_frame *frame)
{
	uint64_t now = wf_group_now(seat->group);

	if (lane->doubted.epoch || !comes_from_there(lane, frame))
		return; /* one at a time */
	reopen_deaf(lane, seat, frame->greeting.from_rail);
	lane->doubted = heard_from(lane, frame);
	lane->doubted_place = seat->place;
	lane->doubted_remote = frame->greeting.from_rail;
	lane->welcome_until_ns = now + WELCOME_LIMIT_NS;
	send_challenge(lane, now);
	wf_lane_set_timer(lane);
}

void wf_hello_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct weft_engine *engine = group->engine;
	struct wf_wire_address *address;
	struct wf_peer *peer;
	struct wf_lane *lane;

	/* Someone who looks for the engine that had this address before us gets no answer. */
	if (frame->greeting.sought != engine->incarnation || !frame->from_epoch || !frame->greeting.handle ||
	    atomic_load(&engine->closing))
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
	    lane->proof != frame->greeting.secret && is_who_came_first(lane, frame)) {
		lane->proof = frame->greeting.secret;
		wf_lane_hello_now(lane);
	}
	wf_handle_put(&group->engine->peers, peer->handle);
}

static void take_welcome(struct wf_lane *lane, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct wf_path *path = &lane->path[seat->place];
	struct wf_heard heard = heard_from(lane, frame);
	uint64_t talk, target;

	if (!follow_address(lane, frame) ||
	    wf_lane_target(lane, seat, wf_lane_talk_end(lane, seat, frame->greeting.from_rail),
			   frame->greeting.from_rail, &talk) ||
	    wf_lane_target(lane, seat, WF_OUTGOING, frame->greeting.from_rail, &target))
		return;
	reopen_deaf(lane, seat, frame->greeting.from_rail);
	/* One that nobody asked for, or that came before, says nothing about how long an answer takes. */
	if (path->asked_ns)
		wf_pace_took(&seat->pace, wf_group_now(lane->group) - path->asked_ns);
	path->asked_ns = 0;
	take_answer(lane, path, frame, target);
	wf_lane_talk_up(lane, path, frame->greeting.from_rail);
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
