/*
 * Rooms: pinned memory in which peers that reach us by NICs leave what is meant for a card's memory, and find what is read from it. A
 * room is an ordinary region, lent to one peer, who alone knows its keys and divides it up; cards copy between it and their memory
 * (landing.h). A room that comes back rests until nothing of that peer's can arrive, and gets new keys before it is lent again. Made
 * when the first card's memory is offered to peers. Any thread.
 */
#ifndef WF_ENGINE_ROOMS_H
#define WF_ENGINE_ROOMS_H

#include "device/device.h"
#include "weft.h"

#include <stdatomic.h>
#include <stdbool.h>

struct weft_engine;
struct wf_group;
struct wf_room;

#define WF_ROOM_CHUNKS 8u /* of WF_DEVICE_CHUNK: what one peer may have under way */
#define WF_ROOM_BYTES  ((uint64_t)WF_ROOM_CHUNKS * WF_DEVICE_CHUNK)

/* Rooms, unless there are some, and a copier in every group for this card. On an application's thread. -ENODEV: the engine has no NIC;
 * -ENOMEM. */
int wf_rooms_open(struct weft_engine *engine, struct wf_card *card);
void wf_rooms_close(struct weft_engine *engine); /* no worker runs any more */
/* Copies of that copier do not end: what they use stays. */
void wf_rooms_abandon(struct weft_engine *engine, const struct wf_copier *copier);
struct wf_copier *wf_rooms_copier(const struct wf_group *group, const struct wf_card *card); /* NULL: none */

/* Lends one to the peer, whose descriptor has most bytes. -EAGAIN: there is none now. -EMSGSIZE: it has more. On a worker. */
int wf_room_lend(struct wf_group *group, weft_peer peer, uint64_t most, struct wf_room **ret_room);
void wf_room_back(struct weft_engine *engine, struct wf_room *room);
char *wf_room_memory(const struct wf_room *room);
/* Its descriptor; valid while it is lent. */
const void *wf_room_blob(struct weft_engine *engine, const struct wf_room *room, size_t *ret_bytes);
/* Copies that use it, so that it is not lent meanwhile. */
void wf_room_hold(struct wf_room *room);
void wf_room_let_go(struct wf_room *room);
#endif
