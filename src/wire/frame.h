/*
 * The header of every frame on a rail's message path. A frame is one receive buffer's worth; a message is one or more
 * of them. Everything read here comes from a peer and is checked before use. Pure functions, any thread.
 */
#ifndef WF_WIRE_FRAME_H
#define WF_WIRE_FRAME_H

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_FRAME_BYTES   8192u /* header included; the same on both sides, part of the protocol's version */
#define WF_FRAME_HEADER  104u
#define WF_FRAME_PAYLOAD (WF_FRAME_BYTES - WF_FRAME_HEADER)

enum wf_frame_kind {
	WF_FRAME_HELLO =
	    1, /* tag: our handle for you; call: the incarnation we look for; status: the number of the question that it
			       asks, any; the rest as in WELCOME */
	WF_FRAME_WELCOME, /* the answer: status: that number; tag: our handle for you; first: our secret for you; seq: immediates you may have unread here on
			       this path; total: the largest message we take; ack: our address's revision; payload: our address */
	WF_FRAME_BYE,     /* we removed you, or are closing */
	WF_FRAME_PING,
	WF_FRAME_PONG,    /* also carries a lone acknowledgement or credit */
	WF_FRAME_MESSAGE, /* a part of a message: seq, first, total, tag, call, status, type count */
	WF_FRAME_NUDGE,   /* we write to you: look for what comes; says nothing else */
	WF_FRAME_CHALLENGE, /* say hello again, with this: first: our secret for you. To the address we know, or else the one claimed */
	WF_FRAME_LAST,
};

enum wf_message_type {
	WF_MESSAGE_SEND = 1,
	WF_MESSAGE_CALL,  /* call: the caller's number for it */
	WF_MESSAGE_REPLY, /* call: that number; status */
	WF_MESSAGE_NOTIFY,
	WF_MESSAGE_BARRIER,  /* tag: the barrier's id */
	WF_MESSAGE_REVOKE,   /* call: the region's handle */
	WF_MESSAGE_MANIFEST, /* NOTIFY of a checked transfer; call: the sender's number for it */
	WF_MESSAGE_VERDICT,  /* the answer: call: that number; status */
	WF_MESSAGE_LAST,
};

/* As it lies on the wire, in little endian, without holes: built in the buffer it is sent from and read in the one it arrived
 * in. In between, from open to seal, in the host's order. */
struct wf_frame {
	uint16_t magic;
	uint8_t version;
	uint8_t kind;
	uint8_t from_rail, to_rail; /* indices in the sender's and the receiver's address */
	uint8_t type;               /* MESSAGE: enum wf_message_type */
	uint8_t reserved;
	uint64_t incarnation; /* the sender's */
	uint64_t to_peer;     /* the receiver's handle for the sender; 0 while not known */
	uint32_t from_epoch, to_epoch;
	uint64_t ack;    /* every frame below this number has arrived here */
	uint64_t credit; /* frames below this number may be sent to us */
	uint32_t payload_bytes;
	int32_t status;
	uint64_t seq, first, total; /* MESSAGE: this frame, the message's first frame, the message's bytes */
	uint64_t tag, call;
	uint64_t token; /* the receiver's secret for the sender, from a greeting of its; 0 while not known */
	uint8_t payload[];
} __attribute__((may_alias));
_Static_assert(sizeof(struct wf_frame) == WF_FRAME_HEADER, "the header has no holes");

/* Asked and answered while nothing else is said: no reason to stay awake. */
static inline bool wf_frame_is_sign_of_life(uint8_t kind)
{
	return kind == WF_FRAME_PING || kind == WF_FRAME_PONG;
}

/* How many frames a message of so many bytes takes: at least one. */
static inline uint64_t wf_frames_of(uint64_t bytes)
{
	return bytes <= WF_FRAME_PAYLOAD ? 1 : bytes / WF_FRAME_PAYLOAD + (bytes % WF_FRAME_PAYLOAD != 0);
}

#define WF_FRAME_MAGIC   0x4657
#define WF_FRAME_VERSION 3

/* Between the host's order and the wire's, which is the same both ways; nothing at all where they are one. */
static inline void wf_frame_turn(struct wf_frame *frame)
{
	frame->magic = htole16(frame->magic);
	frame->incarnation = htole64(frame->incarnation);
	frame->to_peer = htole64(frame->to_peer);
	frame->from_epoch = htole32(frame->from_epoch);
	frame->to_epoch = htole32(frame->to_epoch);
	frame->ack = htole64(frame->ack);
	frame->credit = htole64(frame->credit);
	frame->payload_bytes = htole32(frame->payload_bytes);
	frame->status = (int32_t)htole32((uint32_t)frame->status);
	frame->seq = htole64(frame->seq);
	frame->first = htole64(frame->first);
	frame->total = htole64(frame->total);
	frame->tag = htole64(frame->tag);
	frame->call = htole64(frame->call);
	frame->token = htole64(frame->token);
}

/* Makes a filled header fit to be sent. Once: its numbers are the wire's from then on. */
static inline void wf_frame_seal(struct wf_frame *frame)
{
	frame->magic = WF_FRAME_MAGIC;
	frame->version = WF_FRAME_VERSION;
	frame->reserved = 0;
	wf_frame_turn(frame);
}

/* Header and payload, of one that we sealed ourselves. */
static inline size_t wf_frame_bytes(const struct wf_frame *sealed)
{
	return WF_FRAME_HEADER + le32toh(sealed->payload_bytes);
}

/* The parts of a message must fit together whatever a peer claims. */
static inline bool wf_frame_message_fits(const struct wf_frame *frame)
{
	uint64_t index = frame->seq - frame->first, frames;
	uint64_t expected;

	if (frame->type < WF_MESSAGE_SEND || frame->type >= WF_MESSAGE_LAST)
		return false;
	/* Only answers have one, and it is a negative errno. */
	if (frame->status && (frame->status > 0 || frame->status == INT32_MIN ||
			      (frame->type != WF_MESSAGE_REPLY && frame->type != WF_MESSAGE_VERDICT)))
		return false;
	if (frame->total <= WF_FRAME_PAYLOAD) /* as most are */
		return !index && frame->payload_bytes == frame->total;
	frames = wf_frames_of(frame->total);
	if (frame->seq < frame->first || index >= frames)
		return false;
	expected = index + 1 < frames ? WF_FRAME_PAYLOAD : frame->total - index * WF_FRAME_PAYLOAD;
	return frame->payload_bytes == expected;
}

/* The frame in a buffer of ours, aligned as any of malloc's, once: 0, and its numbers can be read; -EPROTO or
 * -EPROTONOSUPPORT. The payload lies within bytes. */
static inline int wf_frame_open(void *buffer, size_t bytes, struct wf_frame **ret_frame)
{
	struct wf_frame *frame = *ret_frame = buffer;

	if (bytes < sizeof(*frame))
		return -EPROTO;
	wf_frame_turn(frame);
	if (frame->magic != WF_FRAME_MAGIC)
		return -EPROTO;
	if (frame->version != WF_FRAME_VERSION)
		return -EPROTONOSUPPORT;
	if (frame->kind < WF_FRAME_HELLO || frame->kind >= WF_FRAME_LAST ||
	    frame->payload_bytes > bytes - sizeof(*frame))
		return -EPROTO;
	return frame->kind != WF_FRAME_MESSAGE || wf_frame_message_fits(frame) ? 0 : -EPROTO;
}
#endif
