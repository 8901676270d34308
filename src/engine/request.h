/*
 * What every submission needs (submit.c, family.c): an operation's options, handles and bounds checked, and
 * what follows from them filled into the transfer. On the caller's thread; never waits.
 */
#ifndef WF_ENGINE_REQUEST_H
#define WF_ENGINE_REQUEST_H

#include "engine/transfer.h"

#define WF_UNIT_MAX (1u << 20)

static inline bool wf_inside(uint64_t offset, uint64_t bytes, uint64_t limit)
{
	return bytes <= limit && offset <= limit - bytes;
}

/* -ENOENT: the code is the same for all, the log says which handle it was. */
int wf_request_no_such(struct weft_engine *engine, const char *what, uint64_t handle);
int wf_request_check(struct weft_engine *engine, const struct weft_op *op, bool data);
/* The peer, referenced, when it can be submitted to. */
int wf_request_peer(struct weft_engine *engine, weft_peer handle, struct wf_peer **ret_peer);
/* Both ends of a range, referenced into the slice, which the transfer puts back whatever happens. */
int wf_request_ends(struct weft_engine *engine, struct wf_slice *slice, weft_region region, weft_remote remote,
		    uint32_t access);
/* Is the slice's remote of the peer that lives now? */
int wf_request_incarnation(const struct wf_transfer *transfer, const struct wf_slice *slice);

/* How large pieces of a transfer of so many bytes are: all rails share it, yet each piece is worth its post. */
uint64_t wf_request_unit(const struct wf_transfer *transfer, uint64_t bytes);
/* How long its pieces may be, from its slices' memory; before any of the following is asked for. */
void wf_request_reach(struct wf_transfer *transfer);
uint64_t wf_request_most(const struct wf_transfer *transfer);
/* Can so many bytes go as one write with an immediate? */
int wf_request_counted(const struct wf_transfer *transfer, uint64_t bytes);
/* How many units a range of so many bytes has. One that is counted is written even when it is empty: the immediate is the
 * message. */
static inline uint64_t wf_request_units(const struct wf_transfer *transfer, uint64_t bytes)
{
	if (!bytes)
		return transfer->notify == WEFT_NOTIFY_COUNTED;
	return (bytes - 1) / transfer->unit_bytes + 1;
}
void wf_request_notify(struct wf_transfer *transfer, const struct weft_op *op);
void wf_request_groups(struct wf_transfer *transfer); /* which carry it; slices and units are set */
/* The last of a write's: its manifest when it is checked. Hands an earlier error on. */
int wf_request_manifest(struct wf_transfer *transfer, const struct weft_op *op, int error);
/* message.c: the message of a call, a send, a barrier, with a copy of its content, and its peer. */
int wf_request_message(struct weft_engine *engine, struct wf_transfer *transfer, const struct wf_outgoing *outgoing);
/* The end of every request: a note to its home, or, with an error, it is given up and the error is handed on. */
int wf_request_post(struct wf_transfer *transfer, int error, weft_transfer *ret);
#endif
