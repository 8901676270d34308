/*
 * Work moves to another group: when none of a group's paths to a peer is up and another group's are, its parts give back what
 * they have not done, and that group is told to take it. Rare, so it may allocate. On the group's worker.
 */
#ifndef WF_ENGINE_HANDOVER_H
#define WF_ENGINE_HANDOVER_H

struct wf_group;
struct wf_lane;
struct wf_part;

void wf_part_hand_over(struct wf_group *group, struct wf_part *part);
void wf_lane_hand_over(struct wf_lane *lane); /* all of its parts */
#endif
