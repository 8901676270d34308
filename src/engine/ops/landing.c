/* Rooms asked for, copies between rooms and cards, and their answers; landing.h says what that is. On the peer's home. */
#include "engine/ops/landing.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/core/region.h"
#include "engine/core/rooms.h"
#include "engine/move/counts.h"
#include "engine/ops/legs.h"
#include "engine/peer/peer.h"
#include "wire/land.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* A peer asks for no more at a time than there are chunks in its room; its last answers may still be unacknowledged. */
#define MOST_A_PEER (4 * WF_ROOM_CHUNKS)
#define LEAVE_NS    (200 * WF_MS)

enum state { WAITS, FLIES, OVER, ANSWERED };

struct landing {
	struct wf_link link;  /* group->landings; peer->landed once it is answered */
	struct wf_peer *peer; /* NULL: gone; nobody is answered */
	enum state state;
	int status, flight;
	struct wf_room *room; /* held */
	char *from;           /* in the room, or to there */
	struct wf_copier *copier;
	struct wf_land move;
	struct wf_message message;
	uint8_t *answer; /* behind the numbers */
	uint32_t page[]; /* numbers */
};

/* ---- answers ---- */

static void release(struct landing *landing)
{
	wf_list_remove(&landing->link);
	wf_list_remove(&landing->message.link);
	if (landing->room)
		wf_room_let_go(landing->room);
	if (landing->peer) {
		landing->peer->landings--;
		if (landing->state == ANSWERED)
			atomic_fetch_sub(&landing->peer->engine->owed, 1);
	}
	free(landing);
}

static void answer_over(struct wf_message *message, int status)
{
	release(wf_container(message, struct landing, message));
}

/* The answer is kept until the peer has it. */
static void answer(struct landing *landing, const struct wf_land *said)
{
	struct wf_peer *peer = landing->peer;

	wf_land_pack(said, NULL, landing->answer);
	landing->message.data = landing->answer;
	landing->message.bytes = wf_land_bytes(said);
	landing->state = ANSWERED;
	if (landing->room)
		wf_room_let_go(landing->room);
	landing->room = NULL;
	atomic_fetch_add(&peer->engine->owed, 1);
	wf_list_remove(&landing->link);
	wf_list_append(&peer->landed, &landing->link);
	wf_channel_queue(peer, &landing->message);
}

static struct landing *make(struct wf_peer *peer, uint64_t subject, uint32_t pages, size_t answer_bytes)
{
	size_t bytes = sizeof(struct landing) + pages * sizeof(uint32_t) + answer_bytes;
	struct landing *landing = peer->landings < MOST_A_PEER ? malloc(bytes) : NULL;

	if (!landing)
		return NULL;
	*landing = (struct landing){ .peer = peer,
				     .flight = -1,
				     .message = { .type = WF_MESSAGE_LAND, .subject = subject, .over = answer_over } };
	landing->answer = (uint8_t *)(landing->page + pages);
	wf_list_init(&landing->link);
	wf_list_init(&landing->message.link);
	peer->landings++;
	return landing;
}

/* ---- what is asked ---- */

/* Safe for this turn without a reference: as memory_at() in verify.c. Whatever is wrong looks the same to the peer. */
static const struct wf_region *region_of(struct weft_engine *engine, const struct wf_land *land, uint32_t access)
{
	const struct wf_region *region = wf_handle_peek(&engine->regions, land->region);

	return region && region->lands && region->proof == land->proof && !atomic_load(&region->revoked) &&
		       region->access & access
		   ? region
		   : NULL;
}

static void lend(struct wf_peer *peer, uint64_t subject, const struct wf_land *asked)
{
	struct wf_land said = { .kind = WF_LAND_ROOM };
	uint64_t most = peer->their_max_message > WF_LAND_HEADER ? peer->their_max_message - WF_LAND_HEADER : 0;
	struct landing *landing;
	struct wf_room *room = NULL;
	size_t bytes = 0;

	if (!region_of(peer->engine, asked, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ))
		said.status = -ESTALE;
	else
		said.status = wf_room_lend(peer->home, peer->handle, most, &room);
	if (room)
		said.tail = wf_room_blob(peer->engine, room, &bytes);
	said.tail_bytes = (uint32_t)bytes;
	landing = make(peer, subject, 0, wf_land_bytes(&said));
	if (!landing) { /* its deadline ends what waits for it */
		if (room)
			wf_room_back(peer->engine, room);
		return;
	}
	if (room && peer->room)
		wf_room_back(peer->engine, peer->room);
	peer->room = room ? room : peer->room;
	answer(landing, &said);
}

/* Takes what the message says, if it can be done. */
static int prepare(struct landing *landing, const struct wf_land *move)
{
	struct wf_peer *peer = landing->peer;
	const struct wf_region *region =
	    region_of(peer->engine, move, move->read ? WEFT_REMOTE_READ : WEFT_REMOTE_WRITE);

	if (!region)
		return -ESTALE;
	if (!peer->room || !wf_land_fits(move, WF_ROOM_BYTES, region->bytes))
		return -ERANGE;
	for (uint32_t i = 0; i < move->count; i++)
		landing->page[i] = wf_land_page(move, i);
	landing->copier = wf_rooms_copier(peer->home, region->device->card);
	landing->from = wf_room_memory(peer->room) + move->at;
	landing->room = peer->room;
	wf_room_hold(landing->room);
	return 0;
}

static void move(struct wf_peer *peer, uint64_t subject, const struct wf_land *asked)
{
	struct landing *landing = make(peer, subject, asked->count, WF_LAND_HEADER);

	if (!landing)
		return; /* as above; a peer that keeps to its room asks for fewer */
	landing->move = *asked;
	landing->move.tail = NULL;
	landing->status = prepare(landing, asked);
	landing->state = landing->status ? OVER : WAITS;
	wf_list_append(&peer->home->landings, &landing->link);
}

/* ---- copies ---- */

static int copy(struct landing *landing, const struct wf_region *region)
{
	const struct wf_land *move = &landing->move;
	char *memory = region->base + move->offset;
	struct wf_device_pages pages = { .to = memory,
					 .from = landing->from,
					 .to_index = landing->page,
					 .to_stride = move->stride,
					 .from_stride = move->bytes,
					 .page_bytes = move->bytes,
					 .count = move->count,
					 .beside = true,
					 .by_copies = region->device->foreign };
	char *first = memory + landing->page[0] * move->stride;

	if (move->count == 1)
		return wf_copier_copy(landing->copier, move->read ? landing->from : first,
				      move->read ? first : landing->from, move->bytes);
	if (move->read) {
		pages.to = landing->from;
		pages.from = memory;
		pages.to_index = NULL;
		pages.from_index = landing->page;
		pages.to_stride = move->bytes;
		pages.from_stride = move->stride;
	}
	return wf_copier_pages(landing->copier, landing->flight, &pages);
}

static void end(struct landing *landing, int status)
{
	if (landing->flight >= 0)
		wf_copier_give(landing->copier, landing->flight);
	landing->flight = -1;
	landing->status = status;
	landing->state = OVER;
}

static void card_failed(struct wf_group *group, struct landing *landing)
{
	wf_log(&group->engine->log, WEFT_LOG_ERROR, "a card does not copy what a peer wrote or reads: %s",
	       wf_copier_error(landing->copier));
	end(landing, -EIO);
}

/* The region is looked up again: it may have gone while the copy waited for its turn. */
static void launch(struct wf_group *group, struct landing *landing)
{
	const struct wf_land *move = &landing->move;
	const struct wf_region *region =
	    region_of(group->engine, move, move->read ? WEFT_REMOTE_READ : WEFT_REMOTE_WRITE);

	if (!region || !landing->peer || !wf_device_memory_same(region->device)) {
		end(landing, -ESTALE);
		return;
	}
	if (!move->bytes) {
		end(landing, 0);
		return;
	}
	landing->flight = wf_copier_take(landing->copier);
	if (landing->flight < 0)
		return;
	landing->state = FLIES;
	if (copy(landing, region) || wf_copier_launch(landing->copier, landing->flight))
		card_failed(group, landing);
}

static void look(struct wf_group *group, struct landing *landing)
{
	int status = wf_copier_look(landing->copier, landing->flight);

	if (!status)
		end(landing, 0);
	else if (status != -EAGAIN)
		card_failed(group, landing);
}

/* False: the list of immediates has no room now. */
static bool count(struct wf_group *group, const struct landing *landing)
{
	if (!landing->move.immediates || landing->status)
		return true;
	if (group->counts && !wf_counts_room(group, 1))
		return false;
	for (uint32_t i = 0; i < landing->move.immediates; i++)
		wf_counts_add(group, landing->move.immediate);
	return true;
}

static void go_on(struct wf_group *group, struct landing *landing)
{
	struct wf_land done = { .kind = WF_LAND_DONE };

	if (landing->state == WAITS)
		launch(group, landing);
	else if (landing->state == FLIES)
		look(group, landing);
	if (landing->state != OVER)
		return;
	if (!landing->peer) {
		release(landing);
	} else if (count(group, landing)) {
		done.status = landing->status;
		answer(landing, &done);
	}
}

int wf_landing_turn(struct wf_group *group)
{
	struct wf_link *link = group->landings.next;

	while (link != &group->landings) {
		struct landing *landing = wf_container(link, struct landing, link);

		link = link->next;
		go_on(group, landing);
	}
	return 1;
}

/* ---- the end ---- */

/* Waits for its copy. True: the card goes on with it. */
static bool outlasts(struct wf_group *group, struct landing *landing, uint64_t until)
{
	while (landing->state == FLIES && wf_now_ns() < until) {
		look(group, landing);
		sched_yield();
	}
	return landing->state == FLIES;
}

void wf_landing_leave(struct wf_group *group, uint64_t region)
{
	uint64_t until = wf_now_ns() + LEAVE_NS;
	struct wf_link *link = group->landings.next;

	for (; link != &group->landings; link = link->next) {
		struct landing *landing = wf_container(link, struct landing, link);

		if (landing->move.region == region && outlasts(group, landing, until))
			wf_log(&group->engine->log, WEFT_LOG_ERROR,
			       "a card goes on with a copy to or from a region that closes");
	}
}

void wf_landing_drop(struct wf_peer *peer)
{
	struct wf_link *link = peer->home->landings.next;

	while (!wf_list_empty(&peer->landed))
		release(wf_container(peer->landed.next, struct landing, link));
	while (link != &peer->home->landings) {
		struct landing *landing = wf_container(link, struct landing, link);

		link = link->next;
		if (landing->peer != peer)
			continue;
		landing->peer = NULL; /* a copy that is under way ends by itself */
		peer->landings--;
	}
	if (peer->room)
		wf_room_back(peer->engine, peer->room);
	peer->room = NULL;
}

void wf_landing_free(struct wf_group *group)
{
	uint64_t until = wf_now_ns() + LEAVE_NS;

	while (!wf_list_empty(&group->landings)) {
		struct landing *landing = wf_container(group->landings.next, struct landing, link);

		landing->peer = NULL;
		if (outlasts(group, landing, until))
			wf_rooms_abandon(group->engine, landing->copier);
		release(landing);
	}
}

/* ---- messages ---- */

void wf_land_arrived(struct wf_inbound *inbound)
{
	struct wf_peer *peer = inbound->peer;
	struct wf_land land;
	int error = wf_land_unpack(inbound->data, inbound->bytes, &land);

	if (error)
		wf_peer_down(peer, error, "what it says about landing means nothing");
	else if (land.kind == WF_LAND_ASK)
		lend(peer, inbound->subject, &land);
	else if (land.kind == WF_LAND_MOVE)
		move(peer, inbound->subject, &land);
	else
		wf_legs_answered(peer, inbound->subject, &land);
	wf_inbound_free(inbound);
}
