/*
 * What every submission needs (submit.c, family.c): checks an operation's options, handles and bounds, and fills the
 * transfer with what follows from them. On the caller's thread; never waits.
 */
#ifndef WF_ENGINE_REQUEST_H
#define WF_ENGINE_REQUEST_H

#include "engine/core/cards.h"
#include "engine/core/remote.h"
#include "engine/ops/transfer.h"

#define WF_UNIT_MAX (1u << 20)

static inline bool wf_inside(uint64_t offset, uint64_t bytes, uint64_t limit)
{
	return bytes <= limit && offset <= limit - bytes;
}

/* Returns -ENOENT; the code is the same for all handles, the log says which one it was. */
int wf_request_no_such(struct weft_engine *engine, const char *what, uint64_t handle);
int wf_request_check(struct weft_engine *engine, const struct weft_op *op, bool data);
/* Returns the peer, referenced, if operations can be submitted to it. */
int wf_request_peer(struct weft_engine *engine, weft_peer handle, struct wf_peer **ret_peer);
/* Finds both ends of a range and references them in the slice; the transfer puts them back whatever happens. */
int wf_request_ends(struct weft_engine *engine, struct wf_slice *slice, weft_region region, weft_remote remote,
		    uint32_t access);
/* Checks that the slice's remote belongs to the peer's current incarnation. */
int wf_request_incarnation(const struct wf_transfer *transfer, const struct wf_slice *slice);
/* Checks that a card's memory at either end can be carried; the peer is known by then. */
static inline int wf_request_cards(struct wf_transfer *transfer, const struct wf_slice *slice)
{
	return __builtin_expect(slice->region->device || slice->remote->cards, 0) ? wf_cards_check(transfer, slice) : 0;
}

/* Piece size for a transfer of `bytes`: small enough that all rails share it, large enough that each piece is worth
 * its post. */
uint64_t wf_request_unit(const struct wf_transfer *transfer, uint64_t bytes);
/* Sets how long its pieces may be, from its slices' memory. Call it before any of the following. */
void wf_request_reach(struct wf_transfer *transfer);
uint64_t wf_request_most(const struct wf_transfer *transfer);
/* Checks whether `bytes` can go as one write with an immediate. */
int wf_request_counted(const struct wf_transfer *transfer, uint64_t bytes);
/* Number of units in a range of `bytes`. A counted write is posted even if it is empty: the immediate is the
 * message. */
static inline uint64_t wf_request_units(const struct wf_transfer *transfer, uint64_t bytes)
{
	if (!bytes)
		return transfer->notify == WEFT_NOTIFY_COUNTED;
	return (bytes - 1) / transfer->unit_bytes + 1;
}
/* Sets how large the pieces of this number of pages are, and which pages may share one; pages, strides and reach are set. */
int wf_request_pages(struct wf_transfer *transfer, uint64_t count);
void wf_request_notify(struct wf_transfer *transfer, const struct weft_op *op);
void wf_request_groups(struct wf_transfer *transfer); /* chooses those that carry it; slices and units are set */
/* The last step of what moves data: its manifest, if it is checked or names a word. Passes an earlier error on. */
int wf_request_manifest(struct wf_transfer *transfer, const struct weft_op *op, int error);
/* The end of every request: posts a note to its home; with an error, gives it up and passes the error on. */
int wf_request_post(struct wf_transfer *transfer, int error, weft_transfer *ret);
#endif
