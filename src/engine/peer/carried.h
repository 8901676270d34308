/*
 * What each rail really carried to and from each rail of a peer. Counted on the lane's worker once per run of pieces that was
 * posted, less those that fail; kept as long as the peer is, read by any thread that asks.
 */
#ifndef WF_ENGINE_CARRIED_H
#define WF_ENGINE_CARRIED_H

#include "engine/move/group.h"
#include "weft.h"

struct wf_lane;
struct wf_path;

/* By one rail of ours for one rail of the peer's. */
struct wf_carried {
	_Atomic(struct wf_carried *) next;   /* for another rail of the peer's */
	uint8_t remote;                      /* the peer's rail */
	_Atomic uint64_t operations[2];      /* writes, reads */
	_Atomic uint64_t operation_bytes[2]; /* theirs */
};

/* Counts operations that were posted, and the sum of their bytes. */
static inline void wf_carried_count(struct wf_carried *carried, bool read, uint64_t count, uint64_t bytes)
{
	wf_count(&carried->operations[read], count);
	wf_count(&carried->operation_bytes[read], bytes);
}
/* One of them has failed, or was taken back. The path may go to another rail by now: never less than nothing. */
void wf_carried_uncount(struct wf_carried *carried, bool read, uint64_t bytes);

/* From now on the path goes to that rail of the peer's. On the lane's worker. */
void wf_carried_switch(struct wf_path *path, uint32_t remote);
/* These add to what info has. Any thread. */
void wf_carried_by_path(const struct wf_path *path, uint32_t remote, struct weft_path_info *info);
void wf_carried_by_lane(const struct wf_lane *lane, struct weft_peer_info *info);
void wf_carried_free(struct wf_lane *lane);
#endif
