/*
 * Landing, the owner's side: a peer's pieces lie in its room (core/rooms.h), and a card copies them to its memory, or from there into the
 * room for the peer to read. The peer asks by messages and is answered when the copy is over: only then has anything landed. What it
 * names is checked like a manifest. The asking side is legs.h. On the peer's home.
 */
#ifndef WF_ENGINE_LANDING_H
#define WF_ENGINE_LANDING_H

#include <stdint.h>

struct wf_group;
struct wf_inbound;
struct wf_land;
struct wf_peer;

void wf_land_arrived(struct wf_inbound *inbound); /* a message about landing: takes it */
int wf_landing_turn(struct wf_group *group);      /* copies that are asked for or under way */
/* The region goes: no copy uses it any more when this returns, or 200 ms have passed. On each worker. */
void wf_landing_leave(struct wf_group *group, uint64_t region);
void wf_landing_drop(struct wf_peer *peer); /* the connection is over */
/* No worker runs any more: waits as long for all copies. Where a card goes on, what they use stays. */
void wf_landing_free(struct wf_group *group);
#endif
