/*
 * The header of every frame on a rail's message path, of three shapes: a greeting's, a grant's, a message's. A frame is one
 * receive buffer's worth; a message is one or more of them. Everything read here comes from a peer and is checked before use.
 * Pure functions, any thread.
 */
#ifndef WF_WIRE_FRAME_H
#define WF_WIRE_FRAME_H

#include "wire/greeting.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_FRAME_BYTES   8192u /* header included; the same on both sides, part of the protocol's version */
#define WF_FRAME_HEADER  104u
#define WF_FRAME_PAYLOAD (WF_FRAME_BYTES - WF_FRAME_HEADER)

enum wf_frame_kind {
	/* Greetings: struct wf_greeting. */
	WF_FRAME_HELLO = 1, /* opens a path; payload: the sender's address */
	WF_FRAME_WELCOME,   /* answers a hello; payload: the same */
	WF_FRAME_CHALLENGE, /* say hello again, proved by this secret. To the address we know, or else the one claimed */
	/* Immediates of counted writes: struct wf_grant. */
	WF_FRAME_ASK,   /* may more of ours be unread at your end of this path? */
	WF_FRAME_GRANT, /* all that came before the question are read; how many may be unread from now on */
	/* Messages, and what travels beside them: the first two fields, and for a MESSAGE all. */
	WF_FRAME_MESSAGE, /* a part of a message */
	WF_FRAME_PING,
	WF_FRAME_PONG,  /* also carries a lone acknowledgement or credit */
	WF_FRAME_NUDGE, /* we write to you: look for what comes */
	WF_FRAME_BYE,   /* we removed you, or are closing */
	WF_FRAME_LAST,
};

enum wf_message_type {
	WF_MESSAGE_SEND = 1,
	WF_MESSAGE_CALL,  /* subject: the caller's number for it */
	WF_MESSAGE_REPLY, /* subject: that number; status */
	WF_MESSAGE_NOTIFY,
	WF_MESSAGE_BARRIER,  /* tag: the barrier's id */
	WF_MESSAGE_REVOKE,   /* subject: the region's handle; tag: what about it, enum wf_revoke */
	WF_MESSAGE_MANIFEST, /* NOTIFY of a checked transfer, or with a word; subject: the sender's number for it */
	WF_MESSAGE_VERDICT,  /* the answer: subject: that number; status */
	WF_MESSAGE_LAND,     /* struct wf_land (land.h); subject: the asker's number for it, in the answer too */
	WF_MESSAGE_LAST,
};

/* ASK and GRANT. */
struct wf_grant {
	uint32_t question;          /* ASK: its number, any; GRANT: that number */
	uint32_t immediates;        /* GRANT: that may be unread */
	uint8_t from_rail, to_rail; /* indices in the sender's and the receiver's address */
	uint8_t reserved[54];
};

/* As it lies on the wire, in little endian, without holes: built in the buffer it is sent from and read in the one it arrived
 * in. In between, from open to seal, in the host's order. */
struct wf_frame {
	uint16_t magic;
	uint8_t version;
	uint8_t kind; /* enum wf_frame_kind: says which member of the union it has */
	uint32_t payload_bytes;
	uint64_t incarnation; /* the sender's */
	uint64_t to_peer;     /* the receiver's handle for the sender; 0 while not known */
	uint32_t from_epoch, to_epoch;
	uint64_t token; /* the receiver's secret for the sender, from a greeting of its; 0 while not known */
	union {
		struct {
			uint64_t ack;               /* every frame below this number has arrived here */
			uint64_t credit;            /* frames below this number may be sent to us */
			uint64_t seq, first, total; /* this frame, the message's first frame, the message's bytes */
			uint64_t tag;
			uint64_t subject; /* what it is about, by its type */
			int32_t status;
			uint8_t type; /* enum wf_message_type */
			uint8_t reserved[3];
		};
		struct wf_greeting greeting;
		struct wf_grant grant;
	};
	uint8_t payload[];
} __attribute__((may_alias));
_Static_assert(sizeof(struct wf_frame) == WF_FRAME_HEADER, "the header has no holes");

static inline bool wf_frame_is_greeting(uint8_t kind)
{
	return kind >= WF_FRAME_HELLO && kind <= WF_FRAME_CHALLENGE;
}

static inline bool wf_frame_is_about_grants(uint8_t kind)
{
	return kind == WF_FRAME_ASK || kind == WF_FRAME_GRANT;
}

/* Goes over the endpoint that it is about. */
static inline bool wf_frame_asks(uint8_t kind)
{
	return kind == WF_FRAME_HELLO || kind == WF_FRAME_ASK;
}

/* Asked and answered while nothing else is said: no reason to stay awake. */
static inline bool wf_frame_is_sign_of_life(uint8_t kind)
{
	return kind == WF_FRAME_PING || kind == WF_FRAME_PONG;
}

/* Frames that a message of this size takes: at least one. */
static inline uint64_t wf_frames_of(uint64_t bytes)
{
	return bytes <= WF_FRAME_PAYLOAD ? 1 : bytes / WF_FRAME_PAYLOAD + (bytes % WF_FRAME_PAYLOAD != 0);
}

#define WF_FRAME_MAGIC   0x4657
#define WF_FRAME_VERSION 4

static inline void wf_frame_turn_message(struct wf_frame *frame)
{
	frame->ack = htole64(frame->ack);
	frame->credit = htole64(frame->credit);
	frame->seq = htole64(frame->seq);
	frame->first = htole64(frame->first);
	frame->total = htole64(frame->total);
	frame->tag = htole64(frame->tag);
	frame->subject = htole64(frame->subject);
	frame->status = (int32_t)htole32((uint32_t)frame->status);
}

/* Between the host's order and the wire's, which is the same both ways; nothing at all where they are one. */
static inline void wf_frame_turn(struct wf_frame *frame)
{
	frame->magic = htole16(frame->magic);
	frame->payload_bytes = htole32(frame->payload_bytes);
	frame->incarnation = htole64(frame->incarnation);
	frame->to_peer = htole64(frame->to_peer);
	frame->from_epoch = htole32(frame->from_epoch);
	frame->to_epoch = htole32(frame->to_epoch);
	frame->token = htole64(frame->token);
	if (wf_frame_is_greeting(frame->kind)) {
		wf_greeting_turn(&frame->greeting);
	} else if (wf_frame_is_about_grants(frame->kind)) {
		frame->grant.question = htole32(frame->grant.question);
		frame->grant.immediates = htole32(frame->grant.immediates);
	} else {
		wf_frame_turn_message(frame);
	}
}

/* Makes a filled header fit to be sent. Once: its numbers are the wire's from then on. */
static inline void wf_frame_seal(struct wf_frame *frame)
{
	frame->magic = WF_FRAME_MAGIC;
	frame->version = WF_FRAME_VERSION;
	wf_frame_turn(frame);
}

/* Bytes of header and payload of a frame that we sealed. */
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
	if (frame->kind == WF_FRAME_MESSAGE)
		return wf_frame_message_fits(frame) ? 0 : -EPROTO;
	/* Only an address follows a header that is not a message's. */
	return frame->kind <= WF_FRAME_WELCOME || !frame->payload_bytes ? 0 : -EPROTO;
}
#endif
