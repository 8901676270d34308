/*
 * The header of every frame on a rail's message path. A frame is one receive buffer's worth; a message is one or more
 * of them. Everything read here comes from a peer and is checked before use. Pure functions, any thread.
 */
#ifndef WF_WIRE_FRAME_H
#define WF_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_FRAME_BYTES   8192u /* header included; the same on both sides, part of the protocol's version */
#define WF_FRAME_HEADER  104u
#define WF_FRAME_PAYLOAD (WF_FRAME_BYTES - WF_FRAME_HEADER)

enum wf_frame_kind {
	WF_FRAME_HELLO = 1, /* tag: our handle for you; call: the incarnation we look for; seq, total: as in WELCOME; payload: our address */
	WF_FRAME_WELCOME,   /* the answer: tag: our handle for you; seq: immediates you may have unread here on this path; total: the largest message we take */
	WF_FRAME_BYE,       /* we removed you, or are closing */
	WF_FRAME_PING,
	WF_FRAME_PONG,      /* also carries a lone acknowledgement or credit */
	WF_FRAME_MESSAGE,   /* a part of a message: seq, first, total, tag, call, status, type count */
	WF_FRAME_LAST,
};

enum wf_message_type {
	WF_MESSAGE_SEND = 1,
	WF_MESSAGE_CALL,    /* call: the caller's number for it */
	WF_MESSAGE_REPLY,   /* call: that number; status */
	WF_MESSAGE_NOTIFY,
	WF_MESSAGE_BARRIER, /* tag: the barrier's id */
	WF_MESSAGE_REVOKE,  /* call: the region's handle */
	WF_MESSAGE_MANIFEST,/* NOTIFY of a checked transfer; call: the sender's number for it */
	WF_MESSAGE_VERDICT, /* the answer: call: that number; status */
	WF_MESSAGE_LAST,
};

struct wf_frame {
	uint8_t kind;
	uint8_t from_rail, to_rail; /* indices in the sender's and the receiver's address */
	uint8_t type;               /* MESSAGE: enum wf_message_type */
	uint32_t payload_bytes;
	uint64_t incarnation;       /* the sender's */
	uint64_t to_peer;           /* the receiver's handle for the sender; 0 while not known */
	uint32_t from_epoch, to_epoch;
	uint64_t ack;               /* every frame below this number has arrived here */
	uint64_t credit;            /* frames below this number may be sent to us */
	uint64_t seq, first, total; /* MESSAGE: this frame, the message's first frame, the message's bytes */
	uint64_t tag, call;
	int32_t status;
};

void wf_frame_pack(const struct wf_frame *frame, void *buffer); /* WF_FRAME_HEADER bytes */
uint8_t wf_frame_kind(const void *buffer); /* of one that we packed ourselves */
/* -EPROTO or -EPROTONOSUPPORT; payload follows the header and lies within bytes. */
int wf_frame_unpack(const void *buffer, size_t bytes, struct wf_frame *ret_frame);

/* How many frames a message of so many bytes takes: at least one. */
static inline uint64_t wf_frames_of(uint64_t bytes)
{
	return bytes <= WF_FRAME_PAYLOAD ? 1 : bytes / WF_FRAME_PAYLOAD + (bytes % WF_FRAME_PAYLOAD != 0);
}
#endif
