/*
 * Newcomers: engines that say hello and were never added, until a secret that was sent to where they say they live comes back.
 * Owns the table of those that were challenged. On the group's worker.
 */
#ifndef WF_ENGINE_NEWCOMER_H
#define WF_ENGINE_NEWCOMER_H

struct wf_frame;
struct wf_group;
struct wf_peer;
struct wf_seat;
struct wf_wire_address;

int wf_newcomers_open(struct wf_group *group);
void wf_newcomers_close(struct wf_group *group);
/* A hello of an engine that we do not know: returns a peer, referenced, when it proves that it comes from where it says; else NULL. */
struct wf_peer *wf_newcomer_proves(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *hello,
				   const struct wf_wire_address *address);
#endif
