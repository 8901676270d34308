/*
 * Sends, calls, replies and what answers a peer: a message is copied into a transfer and goes out. On the caller's thread, or on the
 * peer's home.
 */
#ifndef WF_ENGINE_MESSAGE_H
#define WF_ENGINE_MESSAGE_H

#include "engine/ops/transfer.h"

struct wf_outgoing {
	weft_peer peer;
	enum wf_transfer_kind kind;
	uint8_t type;
	int status;
	uint64_t tag, subject, bytes;
	const void *data;
};
int wf_submit_message(struct weft_engine *engine, const struct wf_outgoing *outgoing, const struct weft_op *op,
		      weft_transfer *ret);
/* The same for what answers a peer, of kind WF_INTERNAL, on the peer's home. */
int wf_submit_answer(struct weft_engine *engine, const struct wf_outgoing *outgoing);
/* Fills the message of a call, a send or a barrier, with a copy of its content, and its peer. */
int wf_request_message(struct weft_engine *engine, struct wf_transfer *transfer, const struct wf_outgoing *outgoing);
#endif
