/*
 * A rail's seat in its group: opening it with its receive buffers, sending frames on it, and resetting it
 * when it fails: closing the endpoint makes everything posted ours again, and reopening it gives it work
 * again. Runs on the group's worker.
 */
#include "base/hot.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/stripe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REOPEN_FIRST_NS (10 * WF_MS)
#define REOPEN_LAST_NS	(5 * WF_S)

static void reopen_later(struct wf_timer *timer, uint64_t now_ns);
static void watch(struct wf_seat *seat);

static int make_receives(struct wf_seat *seat)
{
	uint32_t frames = seat->group->engine->settings.frames;
	uint8_t *buffers = seat->group->rx_buffers + (size_t)seat->place * frames * WF_FRAME_BYTES;

	seat->rx = calloc(frames, sizeof(*seat->rx));
	seat->rx_idle = calloc(frames, sizeof(*seat->rx_idle));
	if (!seat->rx || !seat->rx_idle)
		return -ENOMEM;
	for (uint32_t i = 0; i < frames; i++) {
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
		error = wf_rail_register(seat->rail, group->tx_buffers, group->tx_bytes, 0, UINT64_MAX - 1,
					 &seat->tx_memory);
		if (!error)
			error = wf_rail_register(seat->rail, group->rx_buffers, group->rx_bytes, 0,
						 UINT64_MAX - 2, &seat->rx_memory);
		if (error)
			return error;
	}
	wf_timer_init(&seat->reopen, reopen_later);
	seat->generation = 1;
	error = wf_engine_rail_address(engine, seat);
	if (error)
		return error;
	watch(seat);
	wf_seat_post_receives(seat);
	seat->last_ok_ns = seat->opened_ns = wf_now_ns();
	atomic_store(&seat->up, 1);
	return 0;
}

void wf_seat_close(struct wf_seat *seat)
{
	if (!seat->rail)
		return;
	atomic_store(&seat->up, 0);
	wf_rail_shut(seat->rail);
	wf_rail_unregister(&seat->tx_memory);
	wf_rail_unregister(&seat->rx_memory);
	wf_rail_close(seat->rail);
	seat->rail = NULL;
}

/* The worker sleeps on the rail's descriptor where it has one. */
static void watch(struct wf_seat *seat)
{
	int fd = seat->limits.waits ? wf_rail_wait_fd(seat->rail) : -1;

	if (fd >= 0)
		wf_worker_watch(&seat->group->worker, fd);
}

/* ---- receives ---- */

WF_HOT void wf_seat_post_receives(struct wf_seat *seat)
{
	while (seat->rx_idle_count) {
		struct wf_rx_frame *frame = seat->rx_idle[seat->rx_idle_count - 1];

		/* Housekeeping tries again, or whoever has made room. */
		seat->rx_refused = wf_rail_receive(seat->rail, &frame->wr, frame->buffer, seat->rx_memory.desc,
						   WF_FRAME_BYTES);
		if (seat->rx_refused)
			return;
		frame->posted = true;
		seat->rx_idle_count--;
	}
}

/* A few wait for the next turn, when what answers their messages has gone out; many do not, for peers send on. */
WF_HOT int wf_seat_receive_again(struct wf_seat *seat, struct wf_rx_frame *frame)
{
	seat->rx_idle[seat->rx_idle_count++] = frame;
	seat->rx_refused = false; /* there is room for one */
	if (seat->rx_idle_count >= seat->group->engine->settings.frames / 4 &&
	    atomic_load_explicit(&seat->up, memory_order_relaxed))
		wf_seat_post_receives(seat);
	return 0;
}

/* ---- frames out ---- */

/* What messages carry counts as a rail's bytes; greetings and acknowledgements do not. */
static void count_send(struct wf_seat *seat, const struct wf_tx_frame *frame)
{
	wf_count(&seat->count.sends, 1);
	if (wf_tx_header(frame)->kind == WF_FRAME_MESSAGE)
		wf_count(&seat->count.bytes, wf_frame_bytes(wf_tx_header(frame)) - WF_FRAME_HEADER);
}

/* How much of the buffer is posted. Whoever reads the frame goes by what its header says. */
static size_t posted_bytes(const struct wf_seat *seat, struct wf_tx_frame *frame)
{
	size_t bytes = wf_frame_bytes(wf_tx_header(frame)), least = seat->limits.frame_least;

	if (bytes >= least) {
		frame->filled = (uint32_t)least;
		return bytes;
	}
	if (frame->filled > bytes)
		memset(frame->buffer + bytes, 0, frame->filled - bytes);
	frame->filled = (uint32_t)bytes;
	return least;
}

WF_HOT int wf_seat_send(struct wf_seat *seat, struct wf_lane *lane, struct wf_path *path, struct wf_tx_frame *frame)
{
	size_t bytes = posted_bytes(seat, frame);
	int error;

	if (seat->ops >= seat->limits.queue_ops)
		return -EAGAIN;
	/* What the provider copies is done with when posted. Should it be lost, nobody acknowledges it. */
	if (bytes <= seat->limits.inject_bytes) {
		error = wf_rail_inject(seat->rail, frame->buffer, bytes, path->target);
		if (!error) {
			count_send(seat, frame);
			wf_group_give_tx(seat->group, frame);
		}
		return error;
	}
	error =
	    wf_rail_send(seat->rail, &frame->wr, frame->buffer, seat->tx_memory.desc, bytes, path->target);
	if (error)
		return error;
	frame->seat = seat;
	frame->lane = lane;
	frame->posted_ns = wf_group_now(seat->group);
	frame->faint = wf_frame_is_sign_of_life(wf_tx_header(frame)->kind);
	seat->ops++;
	seat->group->on_nic++;
	lane->in_flight++;
	count_send(seat, frame);
	return 0;
}

void wf_seat_ring(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;
	/* Any post rings for those before it: a frame that means nothing, to whoever takes one. */
	for (struct wf_link *link = group->lanes.next; link != &group->lanes; link = link->next) {
		struct wf_lane *lane = wf_container(link, struct wf_lane, link);
		struct wf_path *path = &lane->path[seat->place];
		struct wf_tx_frame *tx = path->state == WF_PATH_UP ? wf_group_take_tx(group) : NULL;

		if (!tx)
			continue;
		*wf_tx_header(tx) = (struct wf_frame){ .kind = WF_FRAME_PONG, .incarnation = group->engine->incarnation };
		wf_frame_seal(wf_tx_header(tx));
		if (!wf_seat_send(seat, lane, path, tx))
			return;
		wf_group_give_unsent_tx(group, tx);
	}
}

/* ---- failure ---- */

void wf_seat_doom(struct wf_seat *seat, const char *why)
{
	if (seat->doomed || !atomic_load(&seat->up))
		return;
	seat->doomed = seat->group->doomed = true;
	seat->why = why;
	wf_log(&seat->group->engine->log, WEFT_LOG_WARN, "rail %s: %s: reopening it", seat->nic->name, why);
}

static void tell_application(struct wf_seat *seat, enum weft_event_type type)
{
	const struct wf_rail_error *last = wf_rail_last_error(seat->rail);
	struct weft_error error = { .scope = WEFT_SCOPE_RAIL, .provider_error = last->provider_error };

	snprintf(error.rail, sizeof(error.rail), "%.31s", seat->nic->name);
	snprintf(error.text, sizeof(error.text), "%s", type == WEFT_EVENT_RAIL_UP ? "reopened" : seat->why);
	wf_engine_notice(seat->group->engine, type, type == WEFT_EVENT_RAIL_UP ? 0 : -ENETDOWN, 0, &error);
}

/* Everything that was posted is ours again: pieces go back to their transfers, receives are posted anew. */
static void take_back(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;

	for (uint32_t i = 0; i < group->pieces_used; i++)
		if (group->piece[i].seat == seat)
			wf_piece_taken_back(group, &group->piece[i]);
	for (uint32_t i = 0; i < group->tx_count; i++) {
		struct wf_tx_frame *frame = &group->tx[i];

		if (frame->seat != seat)
			continue;
		seat->ops--;
		group->on_nic--;
		frame->lane->in_flight--;
		wf_group_give_tx(group, frame);
	}
	for (uint32_t i = 0; i < group->engine->settings.frames; i++)
		if (seat->rx[i].posted) {
			seat->rx[i].posted = false;
			seat->rx_idle[seat->rx_idle_count++] = &seat->rx[i];
		}
}

static void reopen_after_a_while(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;
	uint64_t wait = REOPEN_FIRST_NS << (seat->reopen_tries < 10 ? seat->reopen_tries : 10);

	seat->reopen_tries++;
	wf_timer_set(&group->worker.timers, &seat->reopen,
		     wf_group_now(group) + (wait < REOPEN_LAST_NS ? wait : REOPEN_LAST_NS));
}

static void try_reopen(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;

	if (wf_rail_reopen(seat->rail) || wf_engine_rail_address(group->engine, seat)) {
		wf_rail_shut(seat->rail);
		reopen_after_a_while(seat);
		return;
	}
	seat->opened_ns = wf_group_now(group);
	atomic_fetch_add_explicit(&seat->count.reopened, 1, memory_order_relaxed);
	atomic_store(&seat->up, 1);
	watch(seat);
	wf_seat_post_receives(seat);
	tell_application(seat, WEFT_EVENT_RAIL_UP);
	/* The new endpoint has a new address: a hello over it tells every peer. */
	for (struct wf_link *link = group->lanes.next; link != &group->lanes; link = link->next)
		wf_lane_hello_now(wf_container(link, struct wf_lane, link));
}

static void reopen_later(struct wf_timer *timer, uint64_t now_ns)
{
	try_reopen(wf_container(timer, struct wf_seat, reopen));
}

void wf_seat_reset(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;
	struct wf_link *link;

	seat->doomed = false;
	atomic_store(&seat->up, 0);
	tell_application(seat, WEFT_EVENT_RAIL_DOWN);
	wf_rail_shut(seat->rail);
	seat->generation++;
	take_back(seat);
	for (link = group->lanes.next; link != &group->lanes;) {
		struct wf_lane *lane = wf_container(link, struct wf_lane, link);

		link = link->next; /* a closing lane may leave the list */
		wf_lane_seat_reset(lane, seat);
		wf_lane_maybe_closed(lane);
	}
	/* One that fails again right after it was opened, having carried nothing, is given longer and longer pauses. A reset to
	 * take pieces back says nothing against it. */
	if (seat->last_ok_ns > seat->opened_ns || wf_group_now(group) - seat->opened_ns > REOPEN_LAST_NS) {
		seat->reopen_tries = 0;
		try_reopen(seat);
	} else {
		reopen_after_a_while(seat);
	}
}
