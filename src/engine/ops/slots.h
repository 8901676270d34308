/*
 * The slots that transfers live in: pools sized at open, one for what the application asks for, one for replies, one for what
 * the engine itself tells its peers; and how many of the latter two one peer may hold. Any thread.
 */
#ifndef WF_ENGINE_SLOTS_H
#define WF_ENGINE_SLOTS_H

#include "weft.h"

#include <stddef.h>

struct wf_peer;
struct wf_transfer;

/* What answers peers has slots of its own, which one peer may hold only a share of. */
enum wf_answer { WF_ANSWER_REPLY, WF_ANSWER_INTERNAL, WF_ANSWERS };

int wf_transfers_open(struct weft_engine *engine);
void wf_transfers_close(struct weft_engine *engine);
/* Every slot there is, of all pools: 0 to wf_transfer_slots() - 1. */
uint32_t wf_transfer_slots(const struct weft_engine *engine);
struct wf_transfer *wf_transfer_at(const struct weft_engine *engine, uint32_t index);
/* The slot that an id names, in that life of it; NULL: there is none. */
struct wf_transfer *wf_transfer_find(struct weft_engine *engine, weft_transfer id);

uint32_t wf_answers_share(const struct weft_engine *engine); /* replies that one peer may hold in any case */
/* A reply or an internal message takes a slot for this peer: 0, or -EAGAIN when the peer has its share. */
int wf_answer_count(struct wf_transfer *transfer, struct wf_peer *peer);
void wf_answer_uncount(struct wf_transfer *transfer); /* before the slot is free, and while the peer is there */

void *wf_transfer_copy_room(struct wf_transfer *transfer, size_t bytes); /* NULL: no memory */
void *wf_transfer_manifest_room(struct wf_transfer *transfer, size_t bytes);
#endif
