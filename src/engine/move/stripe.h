/*
 * Striping: rails pull pieces of the transfers that have some, and post them. On the group's worker.
 */
#ifndef WF_ENGINE_STRIPE_H
#define WF_ENGINE_STRIPE_H

#include "engine/move/group.h"

/* Target queue depth per rail this turn. */
struct wf_depth {
	const struct wf_lane *lane; /* whose operations count; NULL: no target */
	int ops;
};
struct wf_depth wf_stripe_depth(const struct wf_group *group); /* something must be runnable */
/* Gives a rail its turn, to post up to the target: how many it posted. */
int wf_stripe_seat(struct wf_group *group, struct wf_seat *seat, const struct wf_depth *depth);
#endif
