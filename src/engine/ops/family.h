/*
 * Operations with children: a scatter has one per peer it names, and so has a barrier. The parent ends when its last child has;
 * all are made before any is begun, so that a request is accepted whole or not at all. Owns the parent's list of children, and
 * barriers that peers entered before we did.
 */
#ifndef WF_ENGINE_FAMILY_H
#define WF_ENGINE_FAMILY_H

#include "weft.h"

struct wf_inbound;
struct wf_transfer;

/* On the caller's thread. */
int wf_submit_scatter(struct weft_engine *engine, const struct weft_write *parts, uint32_t count,
		      const struct weft_op *op, weft_transfer *ret);
int wf_submit_barrier(struct weft_engine *engine, const weft_peer *peers, uint32_t count, uint64_t id,
		      const struct weft_op *op, weft_transfer *ret);
int wf_cancel_children(struct weft_engine *engine, struct wf_transfer *parent, weft_transfer id);

/* On the peer's home. */
bool wf_barrier_was_entered(struct wf_transfer *transfer); /* by the peer, before we did; forgets it */
void wf_barrier_arrived(struct wf_inbound *inbound);
#endif
