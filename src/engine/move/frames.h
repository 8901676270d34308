/*
 * Frames on a rail: the group's pool of outgoing ones, sending them, and posting receives. Channels and greetings send through
 * here; completions.c hands back what has left or arrived. On the group's worker.
 */
#ifndef WF_ENGINE_FRAMES_H
#define WF_ENGINE_FRAMES_H

#include "engine/move/group.h"

static inline struct wf_frame *wf_tx_header(const struct wf_tx_frame *frame)
{
	return (struct wf_frame *)frame->buffer;
}

/* NULL: all are out. */
static inline struct wf_tx_frame *wf_group_take_tx(struct wf_group *group)
{
	struct wf_tx_frame *frame = group->tx_free;

	if (frame)
		group->tx_free = frame->next;
	return frame;
}

static inline void wf_group_give_tx(struct wf_group *group, struct wf_tx_frame *frame)
{
	frame->seat = NULL;
	frame->next = group->tx_free;
	group->tx_free = frame;
}

/* A frame that may not have been posted: it is not known how much was written to it. */
static inline void wf_group_give_unsent_tx(struct wf_group *group, struct wf_tx_frame *frame)
{
	frame->filled = WF_FRAME_BYTES;
	wf_group_give_tx(group, frame);
}

/* Sends a sealed frame. 0: it is the NIC's, or was copied and is free again; else it stays the caller's. */
int wf_seat_send(struct wf_seat *seat, enum wf_end end, struct wf_lane *lane, uint64_t target,
		 struct wf_tx_frame *frame);

/* The same for a greeting, which may be the first post to an address. -EAGAIN also if another was slow this turn. */
int wf_seat_greet(struct wf_seat *seat, enum wf_end end, struct wf_lane *lane, uint64_t target,
		  struct wf_tx_frame *frame);

void wf_seat_disown_frame(struct wf_tx_frame *frame);            /* its lane need not wait for it */
void wf_seat_frame_left(struct wf_tx_frame *frame, bool failed); /* the NIC: it is free again */

/* Rings for a batch that ended in a refusal, by sending a frame that means nothing. False: there is no peer to send it to;
 * completions must not be read then, because some providers hang. */
bool wf_seat_ring(struct wf_seat *seat);

void wf_seat_post_receives(struct wf_seat *seat);
/* The receive is free: it is posted again, now or next turn. */
void wf_seat_receive_again(struct wf_seat *seat, struct wf_rx_frame *frame);
#endif
