/*
 * The incoming half of a peer's message channel: puts frames in order, messages together, delivers each once, and owes the
 * peer acknowledgements and credit. It owns a message until it is delivered; then the event does. On the peer's home, except
 * for the release of messages, which is the application's.
 */
#ifndef WF_ENGINE_CHANNEL_IN_H
#define WF_ENGINE_CHANNEL_IN_H

#include "base/list.h"
#include "engine/core/queue.h"

struct wf_frame;
struct wf_peer;
struct wf_pool;

#define WF_WINDOW_FRAMES 16384u /* unread frames a peer may have here, at most: 128 MiB. A bit of memory each */

/* A message that came in; becomes the owner of the event that delivers it. */
struct wf_inbound {
	struct wf_payload payload;
	struct wf_item_event item;
	struct wf_link link; /* in the channel's list until complete and in order */
	struct weft_engine *engine;
	weft_peer handle;
	void *user;           /* the peer's, of the application */
	struct wf_peer *peer; /* the home's, until it is delivered; its release goes by the handle */
	uint64_t first, frames, missing;
	uint64_t bytes, tag, subject;
	uint64_t event_tag; /* REPLY: the call's */
	weft_transfer transfer;
	uint32_t their_epoch;
	int status;
	uint8_t type;
	struct wf_pool *pool; /* where it came from; NULL: allocated */
	bool stranger;        /* counted in engine->strangers_frames */
	enum weft_event_type event_type;
	const uint8_t *content; /* what the event shows: data, or a part of it */
	uint8_t data[];         /* bytes */
};

/* What the application gets for a call: the caller's number for it with a mark of the connection it came in, in bits a
 * slot number never uses. A reply after the peer came back as someone else goes to nobody. */
#define WF_CALL_MARK (UINT64_C(0xfff) << 20)
static inline uint64_t wf_call_mark(uint32_t their_epoch)
{
	return (uint64_t)their_epoch << 20 & WF_CALL_MARK;
}

static inline uint64_t wf_call_token(uint64_t call, uint32_t their_epoch)
{
	return (call & ~WF_CALL_MARK) | wf_call_mark(their_epoch);
}

struct wf_channel_in {
	uint64_t base;                           /* peer->taken when the epoch began */
	uint64_t expected;                       /* all below have arrived */
	uint64_t arrived[WF_WINDOW_FRAMES / 64]; /* bit n % window: frame n has, for n above expected */
	uint64_t deliver;                        /* first frame of the next message to deliver */
	struct wf_link inbound;                  /* struct wf_inbound, by first frame */
	uint64_t told_credit;
	bool ack_due, ack_soon; /* owed: at the end of the turn; within a millisecond */
	uint64_t ack_soon_ns;
};

void wf_channel_in_init(struct wf_channel_in *in);
void wf_channel_arrived(struct wf_peer *peer, const struct wf_frame *frame);
/* Frames of a new epoch that there is room for, besides what lies here unread of earlier ones. Any worker. */
uint64_t wf_channel_first_credit(const struct wf_peer *peer);
/* Fills what every frame to this peer says: who, acknowledgement, credit; which is returned. */
uint64_t wf_channel_stamp(struct wf_peer *peer, struct wf_frame *frame);
void wf_channel_told(struct wf_peer *peer, uint64_t credit); /* it was posted: what it says is not owed any more */
void wf_channel_owe(struct wf_peer *peer);         /* an acknowledgement and credit, at the end of this turn */
void wf_channel_acknowledge(struct wf_peer *peer); /* now, by a frame of its own */
void wf_channel_check_owed(struct wf_peer *peer, uint64_t now_ns); /* what nothing else carried goes by itself */
uint64_t wf_channel_next_owed(const struct wf_peer *peer);         /* when to look; WF_NEVER: not */
void wf_channel_drop_inbound(struct wf_peer *peer);                /* what was not delivered */
void wf_channel_forget(struct wf_peer *peer);                      /* the connection is over: the sequence too */
void wf_inbound_free(struct wf_inbound *inbound);
#endif
