/* Frames to a peer, over a path of its home or by another group: talk.h says what it owns. On the peer's home. */
#include "engine/peer/talk.h"
#include "base/hot.h"
#include "engine/core/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int send_here(struct wf_peer *peer, struct wf_tx_frame *tx)
{
	struct wf_group *home = peer->home;
	struct wf_lane *lane = peer->lane[home->index];
	int error, place;

	for (uint32_t i = 0; i < home->seats && (place = wf_lane_any_path(lane, peer->talk_seat)) >= 0; i++) {
		struct wf_path *path = &lane->path[place];
		struct wf_seat *seat = &home->seat[place];

		peer->talk_seat = (uint32_t)place;
		error = wf_seat_send(seat, path->talk_end, lane, path->talk, tx);
		if (!error || error == -EAGAIN)
			return error;
		wf_lane_talk_failed(lane, path, wf_rail_last_error(seat->rail)->text);
	}
	return -ENETDOWN; /* no path of the home is left */
}

/* Over another group's rails: it gets a copy. */
static int send_by(struct wf_peer *peer, uint32_t group, const struct wf_frame *sealed)
{
	struct weft_engine *engine = peer->engine;
	size_t bytes = wf_frame_bytes(sealed);
	struct wf_frame_copy *copy;

	if (&engine->group[group] == peer->home || !atomic_load(&peer->lane[group]->paths_talking))
		return -ENETDOWN;
	copy = malloc(sizeof(*copy) + bytes);
	if (!copy)
		return -EAGAIN;
	wf_note_init(&copy->note, WF_NOTE_SEND, copy);
	copy->lane = peer->lane[group];
	memcpy(copy->frame, sealed, bytes);
	wf_note_tell(peer->home, &engine->group[group], &copy->note);
	return 0;
}

/* No rail of the home reaches the peer, but another group's may: the next one each time nothing was acknowledged, for one that
 * swallows frames does not know. */
static int send_elsewhere(struct wf_peer *peer, const struct wf_frame *sealed)
{
	uint32_t groups = peer->engine->groups;
	int error = -ENETDOWN;

	for (uint32_t i = 0; i < groups && error == -ENETDOWN; i++)
		error = send_by(peer, (uint32_t)((peer->out.resends + i) % groups), sealed);
	return error;
}

/* A silent rail of the home may hold all its frames: that must not keep the others' from being used. */
struct wf_tx_frame *wf_peer_spare_tx(struct wf_peer *peer)
{
	struct wf_group *home = peer->home;

	return wf_lane_any_path(peer->lane[home->index], peer->talk_seat) >= 0 ? NULL : &home->tx_spare;
}

WF_HOT int wf_peer_send_frame(struct wf_peer *peer, struct wf_tx_frame *frame)
{
	int error;

	wf_frame_seal(wf_tx_header(frame));
	error = send_here(peer, frame);
	if (!error)
		return 0;
	if (error == -ENETDOWN)
		error = send_elsewhere(peer, wf_tx_header(frame));
	if (frame != &peer->home->tx_spare)
		wf_group_give_unsent_tx(peer->home, frame);
	return error;
}

int wf_peer_send_plain(struct wf_peer *peer, uint8_t kind)
{
	struct wf_tx_frame *frame = wf_peer_take_tx(peer);
	uint64_t credit;
	int error;

	if (!frame)
		return -EAGAIN;
	*wf_tx_header(frame) = (struct wf_frame){ .kind = kind };
	credit = wf_channel_stamp(peer, wf_tx_header(frame));
	error = wf_peer_send_frame(peer, frame);
	if (!error)
		wf_channel_told(peer, credit);
	return error;
}

void wf_peer_send_plain_by(struct wf_peer *peer, uint32_t group, uint8_t kind)
{
	struct wf_frame frame = { .kind = kind };

	wf_channel_stamp(peer, &frame);
	wf_frame_seal(&frame);
	send_by(peer, group, &frame); /* one of several: what is lost here is made up for */
}
