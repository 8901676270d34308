/*
 * Pairing: which rail of ours meets which rail of a peer, by the kernel's routes where rails are sockets. On the group's worker.
 */
#ifndef WF_ENGINE_PAIRING_H
#define WF_ENGINE_PAIRING_H

#include "weft.h"

struct wf_group;
struct wf_lane;
struct wf_seat;

void wf_pairing_start(struct wf_group *group);
void wf_pairing_stop(struct wf_group *group);
void wf_pairing_check(struct wf_group *group, uint64_t now_ns);

bool wf_pair_usable(struct wf_lane *lane, const struct wf_seat *seat, uint32_t remote);
/* The first of the peer's rails from that one on that the seat may be paired with; -1: none. */
int wf_pair_pick(struct wf_lane *lane, const struct wf_seat *seat, uint32_t from);
void wf_lane_pair(
    struct wf_lane *lane); /* when it is opened: pairs each rail, and says hello as soon as it is planned */
void wf_lane_pair_again(struct wf_lane *lane); /* the peer's addresses have changed */
/* Any thread. */
int wf_path_info(struct weft_engine *engine, weft_peer handle, uint32_t rail, uint32_t remote,
		 struct weft_path_info *ret_info);
#endif
