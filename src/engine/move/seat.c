/* Opening a rail in its seat with its receive buffers, and closing it; seat.h says what a seat is. Runs on the group's worker. */
#include "engine/move/seat.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/frames.h"
#include "engine/move/reset.h"

#include <errno.h>
#include <stdlib.h>

void wf_seat_watch(struct wf_seat *seat)
{
	int fd = seat->limits.waits ? wf_rail_wait_fd(seat->rail) : -1;

	if (fd >= 0)
		wf_worker_watch(&seat->group->worker, fd);
}

static int make_receives(struct wf_seat *seat)
{
	uint32_t frames = seat->group->engine->settings.frames;
	uint8_t *buffers = seat->group->rx_buffers + (size_t)seat->place * frames * WF_FRAME_BYTES;

	seat->rx = calloc(frames, sizeof(*seat->rx));
	seat->rx_idle = calloc(frames, sizeof(*seat->rx_idle));
	if (!seat->rx || !seat->rx_idle)
		return -ENOMEM;
	for (uint32_t i = 0; i < frames; i++) {
		wf_note_init(&seat->rx[i].note, WF_NOTE_FRAME, &seat->rx[i]);
		seat->rx[i].seat = seat;
		seat->rx[i].buffer = buffers + (size_t)i * WF_FRAME_BYTES;
		seat->rx_idle[seat->rx_idle_count++] = &seat->rx[i];
	}
	return 0;
}

int wf_seat_open(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;
	struct weft_engine *engine = group->engine;
	int error = make_receives(seat);

	if (error)
		return error;
	error = wf_rail_open(seat->nic, engine->settings.frames, &engine->log, &seat->rail);
	if (error)
		return error;
	seat->limits = *wf_rail_limits(seat->rail);
	if (wf_rail_needs_local(seat->rail)) {
		error = wf_rail_register(seat->rail, group->tx_buffers, group->tx_bytes, WF_FRAMES_OUT, 1,
					 &seat->tx_memory);
		if (!error)
			error = wf_rail_register(seat->rail, group->rx_buffers, group->rx_bytes, WF_FRAMES_IN, 1,
						 &seat->rx_memory);
		if (error)
			return error;
	}
	wf_reset_init(seat);
	seat->generation[WF_PUBLISHED] = seat->generation[WF_OUTGOING] = 1;
	error = wf_engine_rail_address(engine, seat);
	if (error)
		return error;
	wf_seat_watch(seat);
	wf_seat_post_receives(seat);
	seat->last_ok_ns = seat->opened_ns = wf_now_ns();
	seat->published = seat->listening = true;
	atomic_store(&seat->up, 1);
	return 0;
}

void wf_seat_close(struct wf_seat *seat)
{
	if (!seat->rail)
		return;
	atomic_store(&seat->up, 0);
	seat->listening = false;
	wf_rail_shut(seat->rail, WF_PUBLISHED);
	wf_rail_unregister(&seat->tx_memory);
	wf_rail_unregister(&seat->rx_memory);
	wf_rail_close(seat->rail);
	free(seat->retired);
	seat->retired = NULL;
	seat->rail = NULL;
}
