/*
 * Rooms asked for, legs begun, and what becomes of them; legs.h says what they are. What happens is only noted, and acted on in
 * wf_legs_run(), later in the same turn: nothing here is entered again from within a transfer that ends.
 */
#include "engine/ops/legs.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/move/unit.h"
#include "engine/ops/explain.h"
#include "engine/ops/leg.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stdlib.h>

#define ASK_AGAIN_NS (20 * WF_MS) /* the owner has no room now */
#define NO_SLOT_NS   (1 * WF_MS)  /* for the leg's transfer */

static void tell(struct wf_legs *legs)
{
	struct wf_peer *peer = legs->peer;

	wf_handle_ref(&peer->engine->peers, peer->handle);
	if (!wf_note_tell(peer->home, peer->home, &legs->note))
		wf_handle_put(&peer->engine->peers, peer->handle); /* it was told before, with a reference */
}

static void on_timer(struct wf_timer *timer, uint64_t now_ns)
{
	tell(wf_container(timer, struct wf_legs, timer));
}

static void run_again(struct wf_legs *legs, uint64_t in_ns)
{
	struct wf_group *home = legs->peer->home;

	if (!wf_link_linked(&legs->timer.link))
		wf_timer_set(&home->worker.timers, &legs->timer, wf_group_now(home) + in_ns);
}

/* Its asker, if that is still there, ends: the question or its answer will not do. */
static void stop_asker(struct wf_legs *legs, int status)
{
	for (struct wf_link *link = legs->transfers.next; link != &legs->transfers; link = link->next) {
		struct wf_transfer *transfer = wf_container(link, struct wf_transfer, legs_link);

		if (transfer->id == legs->asker)
			wf_transfer_stop(transfer, status);
	}
}

static void ask_over(struct wf_message *message, int status)
{
	struct wf_legs *legs = wf_container(message, struct wf_legs, ask);

	legs->told = false;
	if (status == -EMSGSIZE) { /* it did not go */
		legs->asked = false;
		stop_asker(legs, status);
	}
	tell(legs);
}

static void message_over(struct wf_message *message, int status)
{
	struct wf_leg *leg = wf_container(message, struct wf_leg, message);

	leg->told = false;
	if (status && (leg->state == WF_LEG_FILLING || leg->state == WF_LEG_LANDING))
		leg->lost = true; /* the peer does not take it: nobody answers */
	if (leg->lost || !wf_list_empty(&leg->legs->transfers))
		tell(leg->legs); /* the answer may have come first */
}

static struct wf_legs *make(struct wf_peer *peer)
{
	struct wf_legs *legs = calloc(1, sizeof(*legs));

	if (!legs)
		return NULL;
	legs->peer = peer;
	wf_list_init(&legs->transfers);
	wf_timer_init(&legs->timer, on_timer);
	wf_note_init(&legs->note, WF_NOTE_LEGS, peer);
	wf_list_init(&legs->ask.link);
	legs->ask.over = ask_over;
	legs->ask.type = WF_MESSAGE_LAND;
	legs->ask.data = legs->ask_content;
	for (uint32_t i = 0; i < WF_LEGS; i++) {
		legs->leg[i].legs = legs;
		wf_list_init(&legs->leg[i].message.link);
		legs->leg[i].message.over = message_over;
		legs->leg[i].message.type = WF_MESSAGE_LAND;
		legs->leg[i].message.data = legs->leg[i].content;
	}
	return legs;
}

void wf_legs_free(struct wf_peer *peer)
{
	free(peer->legs);
}

/* ---- the room ---- */

static void leave_room(struct wf_legs *legs)
{
	struct wf_handles *remotes = &legs->peer->engine->remotes;

	/* Children that still use it hold references. */
	if (legs->room && wf_handle_retire(remotes, legs->room->handle))
		wf_handle_put(remotes, legs->room->handle);
	legs->room = NULL;
	legs->spoiled = false;
}

static bool in_room(const struct wf_leg *leg)
{
	return leg->state != WF_LEG_FREE && leg->lands;
}

/* Anything of the current room under way? */
static bool is_used(const struct wf_legs *legs)
{
	for (uint32_t i = 0; i < WF_LEGS; i++)
		if (in_room(&legs->leg[i]) && !legs->leg[i].lost)
			return true;
	return false;
}

static void ask(struct wf_legs *legs, const struct wf_transfer *transfer, const struct wf_remote *remote)
{
	struct wf_land land = { .kind = WF_LAND_ASK, .region = remote->region, .proof = remote->proof };

	legs->asker = transfer->id;
	if (legs->peer->engine->settings.max_message < WF_LAND_HEADER) { /* no answer fits */
		stop_asker(legs, -EMSGSIZE);
		tell(legs);
		return;
	}
	wf_land_pack(&land, NULL, legs->ask_content);
	legs->asked = legs->told = true;
	legs->ask.subject = ++legs->question;
	legs->ask.bytes = wf_land_bytes(&land);
	wf_channel_queue(legs->peer, &legs->ask);
}

/* Whether a leg to this remote may begin now; asks for a room if not. */
static bool has_room(struct wf_legs *legs, const struct wf_transfer *transfer, const struct wf_remote *remote)
{
	if (!remote->lands)
		return true;
	if (legs->room && legs->spoiled && !is_used(legs))
		leave_room(legs);
	if (legs->room)
		return !legs->spoiled;
	if (!legs->asked && !legs->told && !wf_link_linked(&legs->timer.link))
		ask(legs, transfer, remote);
	return false;
}

/* ---- what becomes of a leg ---- */

static void over(struct wf_leg *leg)
{
	if (leg->transfer)
		leg->transfer->legs--;
	leg->transfer = NULL;
	leg->state = WF_LEG_FREE;
}

static void fail(struct wf_leg *leg, int status)
{
	if (leg->transfer)
		wf_transfer_stop(leg->transfer, status);
	over(leg);
}

void wf_legs_moved(struct wf_transfer *child, int status)
{
	struct wf_leg *leg = child->leg;

	leg->child = NULL;
	leg->status = status;
	leg->quiet = !atomic_load(&child->may_still_land);
	if (status && child->error)
		wf_transfer_set_error(leg->transfer, child->error);
	tell(leg->legs);
}

/* A leg's transfer has ended. */
static void moved(struct wf_leg *leg)
{
	struct wf_transfer *transfer = leg->transfer;
	bool lands = in_room(leg);

	if (!leg->quiet) {
		atomic_store(&transfer->may_still_land, 1);
		leg->legs->spoiled |= lands && !leg->lost;
	}
	if (leg->status || (lands && leg->lost)) {
		fail(leg, leg->status ? leg->status : -EHOSTDOWN);
	} else if (transfer->kind == WF_WRITE && lands && !wf_transfer_stop_status(transfer)) {
		wf_leg_ask(leg, WF_LEG_LANDING);
	} else {
		if (transfer->kind == WF_READ || !lands) /* else it stops, and they got no further than the room */
			atomic_fetch_add(&transfer->bytes, leg->bytes);
		over(leg);
	}
}

/* The operation stops. What the owner was asked for goes on without it. */
static void stop(struct wf_leg *leg)
{
	struct wf_transfer *transfer = leg->transfer;

	if (leg->state == WF_LEG_MOVING) {
		if (leg->child && wf_transfer_stop(leg->child, wf_transfer_stop_status(transfer)))
			wf_transfer_stopped(leg->child);
		return;
	}
	if (leg->state == WF_LEG_LANDING)
		atomic_store(&transfer->may_still_land, 1);
	if (leg->state == WF_LEG_FILLED)
		leg->state = WF_LEG_FREE;
	transfer->legs--;
	leg->transfer = NULL;
}

/* ---- turns ---- */

static void settle(struct wf_legs *legs)
{
	for (uint32_t i = 0; i < WF_LEGS; i++) {
		struct wf_leg *leg = &legs->leg[i];

		if (leg->transfer && wf_transfer_stop_status(leg->transfer))
			stop(leg);
		if (leg->state == WF_LEG_MOVING && !leg->child)
			moved(leg);
		else if (leg->lost && leg->state != WF_LEG_FREE && leg->state != WF_LEG_MOVING)
			fail(leg, -EHOSTDOWN);
		else if (leg->state == WF_LEG_FILLED && !wf_leg_move(leg))
			run_again(legs, NO_SLOT_NS);
	}
}

/* False: not now. */
static bool begin(struct wf_legs *legs, struct wf_transfer *transfer)
{
	const struct wf_slice *slice;
	struct wf_leg *leg = NULL;
	uint32_t at = 0;

	for (uint32_t i = 0; i < WF_LEGS && !leg; i++)
		if (legs->leg[i].state == WF_LEG_FREE && !legs->leg[i].told)
			leg = &legs->leg[i];
	if (!leg)
		return false;
	slice = wf_slice_of(transfer, atomic_load_explicit(&transfer->next_unit, memory_order_relaxed), &at);
	if (!has_room(legs, transfer, slice->remote))
		return false;
	wf_leg_claim(leg, transfer, slice);
	leg->lost = false;
	if (transfer->kind == WF_READ && slice->remote->lands) {
		wf_leg_ask(leg, WF_LEG_FILLING);
	} else if (!leg->bytes && slice->remote->lands) {
		wf_leg_ask(leg, WF_LEG_LANDING); /* only an immediate */
	} else if (!wf_leg_move(leg)) {
		atomic_fetch_sub(&transfer->next_unit, leg->count);
		over(leg);
		run_again(legs, NO_SLOT_NS);
		return false;
	}
	return true;
}

/* In turn, so that a long operation does not keep the others waiting. */
static void begin_all(struct wf_legs *legs)
{
	struct wf_link *link = legs->transfers.next, *last = legs->transfers.prev;

	while (link != &legs->transfers) {
		struct wf_transfer *transfer = wf_container(link, struct wf_transfer, legs_link);
		bool at_end = link == last;

		link = link->next;
		if (wf_leg_any_left(transfer) && !wf_transfer_stop_status(transfer)) {
			if (!begin(legs, transfer))
				return;
			wf_list_remove(&transfer->legs_link);
			wf_list_append(&legs->transfers, &transfer->legs_link);
			last = legs->transfers.prev;
			at_end = false;
			link = legs->transfers.next;
			continue;
		}
		if (at_end)
			return;
	}
}

static void end_those_over(struct wf_legs *legs)
{
	struct wf_link *link = legs->transfers.next;

	while (link != &legs->transfers) {
		struct wf_transfer *transfer = wf_container(link, struct wf_transfer, legs_link);

		link = link->next;
		if (transfer->legs || (wf_leg_any_left(transfer) && !wf_transfer_stop_status(transfer)))
			continue;
		wf_list_remove(&transfer->legs_link);
		wf_transfer_parts_done(transfer);
	}
}

/* The note holds the peer. */
void wf_legs_run(struct wf_peer *peer)
{
	struct wf_legs *legs = peer->legs;

	settle(legs);
	end_those_over(legs);
	begin_all(legs);
}

/* ---- operations ---- */

void wf_legs_begin(struct wf_transfer *transfer)
{
	struct wf_peer *peer = transfer->peer;

	transfer->legs = 0;
	if (!peer->legs && !(peer->legs = make(peer))) {
		wf_transfer_stop(transfer, -ENOMEM);
		wf_transfer_parts_done(transfer);
		return;
	}
	wf_list_append(&peer->legs->transfers, &transfer->legs_link);
	tell(peer->legs);
}

void wf_legs_stopped(struct wf_transfer *transfer)
{
	tell(transfer->peer->legs);
}

/* ---- the owner's word ---- */

static int meant(int status)
{
	return status == -ESTALE || status == -EMSGSIZE ? status : -EREMOTEIO;
}

static void refused(struct wf_legs *legs, int status)
{
	if (status == -EAGAIN)
		run_again(legs, ASK_AGAIN_NS);
	else
		stop_asker(legs, meant(status));
}

static void room_came(struct wf_legs *legs, const struct wf_land *said)
{
	struct weft_engine *engine = legs->peer->engine;
	weft_remote handle;
	int error = said->status;

	legs->asked = false;
	if (!error)
		error = wf_remote_import(engine, legs->peer->handle, said->tail, said->tail_bytes, &handle);
	if (!error) {
		legs->room = wf_handle_peek(&engine->remotes, handle);
		if (legs->room->cards || legs->room->bytes < WF_ROOM_BYTES) {
			leave_room(legs);
			error = -EPROTO;
		}
	}
	if (error)
		refused(legs, error);
	tell(legs);
}

void wf_legs_answered(struct wf_peer *peer, uint64_t subject, const struct wf_land *said)
{
	struct wf_legs *legs = peer->legs;
	struct wf_leg *leg = legs ? &legs->leg[subject % WF_LEGS] : NULL;

	if (leg && said->kind == WF_LAND_ROOM) {
		if (legs->asked && subject == legs->question)
			room_came(legs, said);
		return;
	}
	if (!leg || leg->lost || leg->number != subject ||
	    (leg->state != WF_LEG_FILLING && leg->state != WF_LEG_LANDING))
		return;
	if (said->status) {
		fail(leg, meant(said->status));
	} else if (leg->state == WF_LEG_FILLING && leg->transfer) {
		leg->state = WF_LEG_FILLED;
	} else {
		if (leg->transfer)
			atomic_fetch_add(&leg->transfer->bytes, leg->bytes);
		over(leg);
	}
	tell(legs);
}

void wf_legs_lost(struct wf_peer *peer)
{
	struct wf_legs *legs = peer->legs;

	if (!legs)
		return;
	wf_timer_clear(&peer->home->worker.timers, &legs->timer);
	for (uint32_t i = 0; i < WF_LEGS; i++)
		legs->leg[i].lost = true;
	legs->asked = false;
	leave_room(legs);
	tell(legs);
}
