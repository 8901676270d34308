/*
 * Greetings: the hellos that open a lane's paths, the welcomes and challenges that answer them, and what both sides learn from
 * them. On the lane's group; what it learns goes to the peer's home.
 */
#ifndef WF_ENGINE_GREETING_H
#define WF_ENGINE_GREETING_H

#include "base/time.h"
#include "engine/core/note.h"

#define WF_HELLO_RETRY_NS  (1 * WF_MS)  /* the provider had no room, or is connecting */
#define WF_HELLO_ANSWER_NS (50 * WF_MS) /* an answer should be here by then; doubles */

struct wf_frame;
struct wf_group;
struct wf_tx_frame;
struct wf_lane;
struct wf_path;
struct wf_peer;
struct wf_seat;

/* What a lane learned from a hello or its answer, for the home. */
struct wf_heard {
	uint64_t handle; /* the peer's handle for us */
	uint64_t incarnation, credit, max_message;
	uint64_t secret; /* the peer's for us */
	uint64_t ours;   /* for the peer: that the greeting was proved by */
	uint32_t epoch, to_epoch;
	uint8_t kind;
};

/* The same on its way there. The home frees it. */
struct wf_heard_note {
	struct wf_note note;
	struct wf_peer *peer;
	struct wf_heard heard;
};

void wf_lane_open(struct wf_lane *lane);
void wf_lane_set_timer(struct wf_lane *lane); /* sets the timer for the next hello or welcome that is due */
void wf_lane_hello_now(struct wf_lane *lane);
/* A frame has left its endpoint, or failed, where messages are numbered. */
void wf_lane_frame_left(const struct wf_tx_frame *frame, int status);
void wf_hello_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame);
void wf_welcome_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame);
void wf_challenge_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame);
#endif
