/*
 * Trials: which rails of strangers may be sent to before they have answered. Owns the group's table of them. On the group's worker.
 */
#ifndef WF_ENGINE_TRIAL_H
#define WF_ENGINE_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

struct wf_lane;
struct wf_seat;

/* Whether the peer's rail may be inserted, over sockets: a stranger's only while few of its kind are. False: not now. */
bool wf_trial_begin(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote);
void wf_trial_end(const struct wf_lane *lane, uint32_t place, uint32_t remote); /* it is forgotten */
#endif
