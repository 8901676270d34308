/*
 * Legs: an operation on a card's memory that no NIC of its owner reaches goes in legs, each through a chunk of a room that the owner lends
 * us (core/rooms.h). A leg is an ordinary transfer between our memory and the room, with all that belongs to one: rails that share it,
 * failures, deadlines, quiescence. When a write's has landed in the room the owner is asked to copy it on, and answers when its card
 * has; a read's begins when the owner's card has filled the chunk. Several legs are under way at a time, and the operation has moved
 * when all are over. The owner's side is landing.h. On the peer's home.
 *
 * We alone write to our room, and divide it up: a chunk is used again when the owner has answered. Where something of a transfer that was
 * stopped may still arrive the room is spoiled, and we ask for another.
 */
#ifndef WF_ENGINE_LEGS_H
#define WF_ENGINE_LEGS_H

#include <stdint.h>

struct wf_land;
struct wf_peer;
struct wf_transfer;

void wf_legs_begin(struct wf_transfer *transfer);          /* its data is to move */
void wf_legs_stopped(struct wf_transfer *transfer);        /* its state says why; it ends when its last leg is over */
void wf_legs_moved(struct wf_transfer *child, int status); /* a leg's transfer ends */
void wf_legs_answered(struct wf_peer *peer, uint64_t subject, const struct wf_land *said);
void wf_legs_run(struct wf_peer *peer);  /* WF_NOTE_LEGS */
void wf_legs_lost(struct wf_peer *peer); /* the connection is over: nothing that was asked is answered */
void wf_legs_free(struct wf_peer *peer);
#endif
