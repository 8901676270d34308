/*
 * Talk: a frame to a peer over whichever path takes it, of the home's rails or of another group's. Owns the choice of the path
 * (peer->talk_seat). On the peer's home.
 */
#ifndef WF_ENGINE_TALK_H
#define WF_ENGINE_TALK_H

#include "engine/core/note.h"
#include "engine/peer/peer.h"
#include "wire/frame.h"

/* A sealed frame that another group is to send. That group frees it. */
struct wf_frame_copy {
	struct wf_note note;
	struct wf_lane *lane;
	struct wf_frame frame[]; /* one, with its payload */
};

/* A frame out of turn (ping, pong, bye) over any path that is up: 0, -EAGAIN, -ENETDOWN. */
int wf_peer_send_plain(struct wf_peer *peer, uint8_t kind);
/* The same over another group's rails, when they reach it. */
void wf_peer_send_plain_by(struct wf_peer *peer, uint32_t group, uint8_t kind);
struct wf_tx_frame *
wf_peer_spare_tx(struct wf_peer *peer); /* when all are out: the spare one if the home has no path anyway, or NULL */
/* One to build a frame in; NULL: not now. On its home. */
static inline struct wf_tx_frame *wf_peer_take_tx(struct wf_peer *peer)
{
	struct wf_tx_frame *frame = wf_group_take_tx(peer->home);

	return frame ? frame : wf_peer_spare_tx(peer);
}
/* Seals a frame of the home's and posts it on any path of the peer: 0, -EAGAIN, -ENETDOWN. It is not the caller's any more. */
int wf_peer_send_frame(struct wf_peer *peer, struct wf_tx_frame *frame);
#endif
