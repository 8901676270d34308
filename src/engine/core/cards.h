/*
 * Memory of cards (GPUs) in the engine: what a range is when it is registered, and whether an operation on it can be carried.
 * On application threads.
 */
#ifndef WF_ENGINE_CARDS_H
#define WF_ENGINE_CARDS_H

#include "engine/core/region.h"

struct wf_peer;
struct wf_slice;
struct wf_transfer;

/* Finds out whether the range is a card's, and then *groups near that card, unless there are some. *ret_device is NULL for the CPU's
 * memory. Else as wf_device_probe(). */
int wf_cards_probe(struct weft_engine *engine, const void *base, uint64_t bytes, uint64_t *groups,
		   struct wf_device_memory **ret_device);
/* A card's memory is offered to peers: readies rooms for those that reach it by NICs. -EOPNOTSUPP: none could reach it. */
int wf_cards_offer(struct wf_region *region);
/* For a slice with a card's memory at either end. -EOPNOTSUPP: not to that peer, or not with a checksum; -ESTALE: our end was
 * freed. */
int wf_cards_check(struct wf_transfer *transfer, const struct wf_slice *slice);
#endif
