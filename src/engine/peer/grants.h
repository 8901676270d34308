/*
 * Grants: how many immediates of counted writes may lie unread at the other end of a path. A completion queue that overflows
 * loses them, so the reader grants each path a share of its queue and the writer asks for more before it has used that up.
 * Owns the counts on both sides. On the lane's group.
 */
#ifndef WF_ENGINE_GRANTS_H
#define WF_ENGINE_GRANTS_H

#include <stdbool.h>
#include <stdint.h>

struct wf_frame;
struct wf_lane;
struct wf_path;
struct wf_seat;

/* The writer's side. */
void wf_lane_immediate_done(struct wf_lane *lane, struct wf_path *path); /* a counted piece has left the NIC */
void wf_grants_begin(struct wf_path *path, uint32_t immediates); /* a welcome: what the peer grants from the start */

/* The reader's side. */
uint32_t wf_grants_share(struct wf_lane *lane,
			 struct wf_seat *seat); /* of the seat's queue, for each of the peer's paths */
void wf_grants_leave(struct wf_lane *lane);     /* it closes: others may have its shares */

/* Both. */
void wf_grants_arrived(struct wf_lane *lane, struct wf_seat *seat,
		       const struct wf_frame *frame);      /* proved to be the peer's */
void wf_grants_run(struct wf_lane *lane, uint64_t now_ns); /* sends the questions and answers that are due */
uint64_t wf_grants_next(const struct wf_lane *lane);       /* when the next one is; WF_NEVER: none */
#endif
