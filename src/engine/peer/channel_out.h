/*
 * The outgoing half of a peer's message channel: frames numbered in one sequence, sent as the peer's credit allows over
 * whichever path takes them, sent again until they are acknowledged. It owns messages from the moment they are queued until
 * their end is told. On the peer's home.
 */
#ifndef WF_ENGINE_CHANNEL_OUT_H
#define WF_ENGINE_CHANNEL_OUT_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct wf_frame;
struct wf_peer;

/* A message going out. Part of the transfer it belongs to. */
struct wf_message {
	struct wf_link link;    /* in the channel, until acknowledged */
	uint64_t first, frames; /* its place in the sequence */
	uint64_t bytes;
	const uint8_t *data;
	uint64_t tag, subject;
	int status;
	uint8_t type;
	bool numbered; /* a frame of it may be on its way: it cannot be withdrawn */
	void (*over)(struct wf_message *message,
		     int status); /* 0: the peer has it; or why it never will. The last we do with it */
};

struct wf_channel_out {
	struct wf_link waiting;     /* struct wf_message, until the first frame can go */
	struct wf_link queue;       /* struct wf_message, numbered, in order */
	struct wf_message *current; /* holds the next frame to send */
	uint64_t next;              /* number of the next message's first frame */
	uint64_t sent;              /* next frame to post; back to acked after a failure */
	uint64_t acked;             /* the peer has all below */
	uint64_t credit;            /* the peer takes all below */
	uint64_t resends;           /* how often all was sent again since acked moved */
	uint64_t moved_ns;          /* when acked last moved, or the first frame after it was sent */
	uint64_t doubted_ns;        /* first of those resends; or when an endpoint was last taken for deaf */
};

void wf_channel_out_init(struct wf_channel_out *out);
void wf_channel_queue(struct wf_peer *peer, struct wf_message *message);
/* Sends a message at once if it can, before anything is kept of it. Returns whether it did: it is queued then, too. */
bool wf_channel_send_now(struct wf_peer *peer, struct wf_message *message);
bool wf_channel_withdraw(struct wf_message *message);        /* true: none of it was sent, and none will be */
void wf_channel_open(struct wf_peer *peer, uint64_t credit); /* by a greeting: what waits may go */
void wf_channel_pump(struct wf_peer *peer);                  /* sends what credit, frames and rails allow */
void wf_channel_resend(struct wf_peer *peer); /* a path failed: all that is not acknowledged goes again */
/* What a frame says of ours that has arrived, and of credit. False: the peer acknowledges what was never sent. */
bool wf_channel_take_ack(struct wf_peer *peer, const struct wf_frame *frame);
void wf_channel_end_acked(struct wf_peer *peer);                                        /* ends what was acknowledged */
bool wf_channel_will_end(const struct wf_peer *peer, const struct wf_message *message); /* that will end it */
bool wf_channel_waits_for_credit(const struct wf_peer *peer);
void wf_channel_check_acks(struct wf_peer *peer, uint64_t now_ns); /* none for too long: sends again */
uint64_t wf_channel_next_check(const struct wf_peer *peer);        /* when to look; WF_NEVER: not */
void wf_channel_lose(struct wf_peer *peer); /* the connection is over: every message ends, and the sequence */
#endif
