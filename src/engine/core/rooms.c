/* Making, lending and resting rooms; rooms.h says what they are. */
#include "engine/core/rooms.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/core/region.h"

#include <errno.h>
#include <stdlib.h>

#define ROOMS        16u
#define CARDS        16u
#define RESTS_A_PEER 3 /* more it does not get, however often its operations are stopped */

enum state { FREE, LENT, RESTING, REKEYING, DEAD };

struct wf_room {
	struct weft_engine *engine;
	enum state state; /* under the lock, like the next two */
	weft_peer peer;   /* LENT, RESTING: whose */
	uint64_t until_ns;
	_Atomic uint32_t holders;
	char *memory;
	weft_region handle;
	struct wf_region *region;
	struct wf_rekeying rekeying;
};

struct wf_rooms {
	pthread_mutex_t lock;
	struct wf_card *pinner; /* whose driver gave the memory; NULL: there are no rooms */
	char *memory;
	uint32_t count;
	struct wf_room room[ROOMS];
	/* Only added to, under the lock; the count is published after the entry (release, acquire). */
	_Atomic uint32_t cards;
	struct {
		struct wf_card *card;
		struct wf_copier **copier; /* by group */
	} card[CARDS];
};

/* ---- making ---- */

static int make_room(struct weft_engine *engine, struct wf_room *room, char *memory)
{
	int error =
	    wf_region_register(engine, memory, WF_ROOM_BYTES, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, 0, &room->handle);

	if (error)
		return error;
	atomic_fetch_sub(&engine->region_bytes, WF_ROOM_BYTES); /* not the application's */
	room->engine = engine;
	room->memory = memory;
	room->region = wf_handle_peek(&engine->regions, room->handle);
	return 0;
}

static int make_rooms(struct weft_engine *engine, struct wf_rooms *rooms, struct wf_card *card)
{
	int error = 0;

	if (rooms->pinner)
		return rooms->count ? 0 : -ENOMEM;
	rooms->memory = wf_card_pin(card, ROOMS * WF_ROOM_BYTES);
	if (!rooms->memory)
		return -ENOMEM;
	while (rooms->count < ROOMS &&
	       !(error = make_room(engine, &rooms->room[rooms->count], rooms->memory + rooms->count * WF_ROOM_BYTES)))
		rooms->count++;
	rooms->pinner = card; /* once: what could not be made is not tried again */
	return rooms->count ? 0 : error;
}

static void close_copiers(struct weft_engine *engine, struct wf_copier **copier)
{
	for (uint32_t g = 0; copier && g < engine->groups; g++)
		wf_copier_close(copier[g]);
	free(copier);
}

static int add_card(struct weft_engine *engine, struct wf_rooms *rooms, struct wf_card *card)
{
	uint32_t count = atomic_load_explicit(&rooms->cards, memory_order_relaxed);
	struct wf_copier **copier;
	int error = 0;

	for (uint32_t i = 0; i < count; i++)
		if (rooms->card[i].card == card)
			return 0;
	if (count == CARDS || !(copier = calloc(engine->groups, sizeof(*copier))))
		return -ENOMEM;
	for (uint32_t g = 0; g < engine->groups && !error; g++)
		error = wf_copier_open(card, &copier[g]);
	if (error) {
		close_copiers(engine, copier);
		return error;
	}
	rooms->card[count].card = card;
	rooms->card[count].copier = copier;
	atomic_store_explicit(&rooms->cards, count + 1, memory_order_release);
	return 0;
}

static struct wf_rooms *rooms_of(struct weft_engine *engine)
{
	struct wf_rooms *rooms, *none = NULL;

	if ((rooms = atomic_load(&engine->rooms)) || !(rooms = calloc(1, sizeof(*rooms))))
		return rooms;
	pthread_mutex_init(&rooms->lock, NULL);
	if (atomic_compare_exchange_strong(&engine->rooms, &none, rooms))
		return rooms;
	pthread_mutex_destroy(&rooms->lock);
	free(rooms);
	return none;
}

int wf_rooms_open(struct weft_engine *engine, struct wf_card *card)
{
	struct wf_rooms *rooms;
	int error;

	if (engine->nics.nic[0].local)
		return -ENODEV;
	rooms = rooms_of(engine);
	if (!rooms)
		return -ENOMEM;
	pthread_mutex_lock(&rooms->lock);
	error = make_rooms(engine, rooms, card);
	if (!error)
		error = add_card(engine, rooms, card);
	pthread_mutex_unlock(&rooms->lock);
	if (error)
		wf_log(&engine->log, WEFT_LOG_WARN, "no pinned memory through which peers reach a card's by NICs");
	return error;
}

void wf_rooms_close(struct weft_engine *engine)
{
	struct wf_rooms *rooms = atomic_load(&engine->rooms);

	if (!rooms)
		return;
	for (uint32_t i = 0; i < atomic_load(&rooms->cards); i++)
		close_copiers(engine, rooms->card[i].copier);
	if (rooms->memory)
		wf_card_unpin(rooms->pinner, rooms->memory);
	pthread_mutex_destroy(&rooms->lock);
	free(rooms);
}

struct wf_copier *wf_rooms_copier(const struct wf_group *group, const struct wf_card *card)
{
	const struct wf_rooms *rooms = atomic_load(&group->engine->rooms);
	uint32_t cards = rooms ? atomic_load_explicit(&rooms->cards, memory_order_acquire) : 0;

	for (uint32_t i = 0; i < cards; i++)
		if (rooms->card[i].card == card)
			return rooms->card[i].copier[group->index];
	return NULL;
}

void wf_rooms_abandon(struct weft_engine *engine, const struct wf_copier *copier)
{
	struct wf_rooms *rooms = atomic_load(&engine->rooms);

	for (uint32_t i = 0; i < atomic_load(&rooms->cards); i++)
		for (uint32_t g = 0; g < engine->groups; g++)
			if (rooms->card[i].copier[g] == copier) {
				wf_card_abandon(rooms->card[i].card);
				wf_card_abandon(rooms->pinner); /* the room's memory is of its driver */
			}
}

/* ---- lending ---- */

static void rekeyed(struct wf_rekeying *rekeying, int error)
{
	struct wf_room *room = wf_container(rekeying, struct wf_room, rekeying);
	struct wf_rooms *rooms = atomic_load(&room->engine->rooms);

	pthread_mutex_lock(&rooms->lock);
	room->state = error ? DEAD : FREE;
	pthread_mutex_unlock(&rooms->lock);
}

/* One whose rest is over gets new keys; who asks next finds it. */
static void wake_one(struct wf_group *group, struct wf_rooms *rooms)
{
	for (uint32_t i = 0; i < rooms->count; i++) {
		struct wf_room *room = &rooms->room[i];

		if (room->state != RESTING || atomic_load(&room->holders) || wf_group_now(group) < room->until_ns)
			continue;
		room->rekeying.region = room->region;
		room->rekeying.done = rekeyed;
		room->state = REKEYING;
		if (wf_region_rekey(group, &room->rekeying))
			room->state = RESTING;
		return;
	}
}

int wf_room_lend(struct wf_group *group, weft_peer peer, uint64_t most, struct wf_room **ret_room)
{
	struct wf_rooms *rooms = atomic_load(&group->engine->rooms);
	struct wf_room *room = NULL;
	uint32_t rests = 0;
	int error = 0;

	if (!rooms)
		return -EAGAIN;
	pthread_mutex_lock(&rooms->lock);
	for (uint32_t i = 0; i < rooms->count; i++) {
		rests += rooms->room[i].state == RESTING && rooms->room[i].peer == peer;
		if (!room && rooms->room[i].state == FREE)
			room = &rooms->room[i];
	}
	if (rests >= RESTS_A_PEER)
		room = NULL;
	if (!room) {
		error = -EAGAIN;
		wake_one(group, rooms);
	} else if (room->region->blob_bytes > most) {
		error = -EMSGSIZE;
	} else {
		room->state = LENT;
		room->peer = peer;
		*ret_room = room;
	}
	pthread_mutex_unlock(&rooms->lock);
	return error;
}

/* As long as it may take until a connection that nobody answers for is surely closed. */
void wf_room_back(struct weft_engine *engine, struct wf_room *room)
{
	struct wf_rooms *rooms = atomic_load(&engine->rooms);

	pthread_mutex_lock(&rooms->lock);
	room->state = RESTING;
	room->until_ns = wf_now_ns() + 2 * engine->settings.peer_limit_ns;
	pthread_mutex_unlock(&rooms->lock);
}

char *wf_room_memory(const struct wf_room *room)
{
	return room->memory;
}

const void *wf_room_blob(struct weft_engine *engine, const struct wf_room *room, size_t *ret_bytes)
{
	*ret_bytes = room->region->blob_bytes;
	return room->region->blob;
}

void wf_room_hold(struct wf_room *room)
{
	atomic_fetch_add(&room->holders, 1);
}

void wf_room_let_go(struct wf_room *room)
{
	atomic_fetch_sub(&room->holders, 1);
}
