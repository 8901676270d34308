/*
 * The message channel to a peer: frames numbered in one sequence, sent over whichever rail is up, acknowledged,
 * sent again after a failure, delivered once and in order. Messages, calls, replies, fenced notifications and barriers
 * all travel on it. Owned by the peer's home worker.
 */
#ifndef WF_ENGINE_CHANNEL_H
#define WF_ENGINE_CHANNEL_H

#include "base/list.h"
#include "engine/queue.h"
#include "wire/frame.h"

struct wf_group;
struct wf_peer;
struct wf_pool;

#define WF_WINDOW_FRAMES 16384u /* unread frames a peer may have here, at most: 128 MiB. A bit of memory each */

/* What answers peers has slots of its own, which one peer may hold only a share of (slots.c). */
enum wf_answer { WF_ANSWER_REPLY, WF_ANSWER_INTERNAL, WF_ANSWERS };

/* A message going out. Part of the transfer it belongs to. */
struct wf_message {
	struct wf_link link;    /* in the channel, until acknowledged */
	uint64_t first, frames; /* its place in the sequence */
	uint64_t bytes;
	const uint8_t *data;
	uint64_t tag, call;
	int status;
	uint8_t type;
	bool numbered; /* a frame of it may be on its way: it cannot be withdrawn */
	void (*over)(struct wf_message *message,
		     int why); /* 0: the peer has it; or why it never will. The last we do with it */
};

/* A message that came in; becomes the owner of the event that delivers it. */
struct wf_inbound {
	struct wf_payload payload;
	struct wf_item_event item;
	struct wf_link link; /* in the channel's list until complete and in order */
	struct weft_engine *engine;
	weft_peer handle;
	struct wf_peer *peer; /* the home's, until it is delivered: whoever releases it looks for the handle */
	uint64_t first, frames, missing;
	uint64_t bytes, tag, call;
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

struct wf_channel {
	/* out */
	struct wf_link waiting;     /* struct wf_message, until the first frame can go */
	struct wf_link queue;       /* struct wf_message, numbered, in order */
	struct wf_message *current; /* holds the next frame to send */
	uint64_t next;              /* number of the next message's first frame */
	uint64_t sent;              /* next frame to post; back to acked after a failure */
	uint64_t acked;             /* the peer has all below */
	uint64_t credit;            /* the peer takes all below */
	uint64_t agains;            /* how often all was sent again since acked moved */
	uint64_t moved_ns;          /* when acked last moved, or the first frame after it was sent */
	/* in */
	uint64_t base;                           /* peer->taken when the epoch began */
	uint64_t expected;                       /* all below have arrived */
	uint64_t arrived[WF_WINDOW_FRAMES / 64]; /* bit n % window: frame n has, for n above expected */
	uint64_t deliver;                        /* first frame of the next message to deliver */
	struct wf_link inbound;                  /* struct wf_inbound, by first frame */
	uint64_t told_credit;
	bool ack_due, ack_soon; /* owed: at the end of the turn; within a millisecond */
	uint64_t ack_soon_ns;
};

void wf_channel_reset(struct wf_channel *channel); /* a new epoch; the queues must be empty */
void wf_channel_queue(struct wf_peer *peer, struct wf_message *message);
/* A message that can go at once does, before anything is kept of it: then it is queued too, and true. False: it is not. */
bool wf_channel_send_now(struct wf_peer *peer, struct wf_message *message);
bool wf_channel_withdraw(struct wf_message *message); /* true: none of it was sent, and none will be */
void wf_channel_opened(struct wf_peer *peer);         /* the peer is up: what waited is queued, or refused */
void wf_channel_arrived(struct wf_peer *peer, const struct wf_frame *frame);
void wf_channel_pump(struct wf_peer *peer);   /* sends what credit, frames and rails allow */
void wf_channel_again(struct wf_peer *peer);  /* a rail failed: all that is not acknowledged goes again */
void wf_channel_settle(struct wf_peer *peer); /* ends what was acknowledged */
bool wf_channel_settles(const struct wf_peer *peer, const struct wf_message *message); /* that will end it */
void wf_channel_acknowledge(struct wf_peer *peer); /* a frame of its own when nothing else carried it */
void wf_channel_drop_inbound(struct wf_peer *peer);
/* Frames of a new epoch that there is room for, besides what lies here unread of earlier ones. Any worker. */
uint64_t wf_channel_first_credit(const struct wf_peer *peer);
/* Fills what every frame to this peer says: who, acknowledgement, credit; which is returned. */
uint64_t wf_channel_stamp(struct wf_peer *peer, struct wf_frame *frame);
void wf_channel_told(struct wf_peer *peer, uint64_t credit); /* it was posted: what it says is not owed any more */
void wf_channel_owe(struct wf_peer *peer); /* an acknowledgement and credit, at the end of this turn */
bool wf_channel_credit_is_news(struct wf_peer *peer);
void wf_inbound_free(struct wf_inbound *inbound);
#endif
