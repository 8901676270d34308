/*
 * A rail's seat in its group: opening it with its receive buffers, sending frames on it, and resetting it. Closing the
 * outgoing endpoint makes the pieces posted there ours again, and reopening it gives the rail work again; its address
 * stays. Only a rail that fails itself loses that. Runs on the group's worker.
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
#define REOPEN_LAST_NS  (5 * WF_S)
#define DRAIN_NS        (50 * WF_MS) /* writes that cannot be posted twice are given this long to land before a reset */
#define DRAIN_LOOK_NS   (1 * WF_MS)
#define DRAIN_READS     64 /* batches of completions that a closed endpoint may have left */

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
		error = wf_rail_register(seat->rail, group->tx_buffers, group->tx_bytes, WF_FRAMES_OUT, 1,
					 &seat->tx_memory);
		if (!error)
			error = wf_rail_register(seat->rail, group->rx_buffers, group->rx_bytes, WF_FRAMES_IN, 1,
						 &seat->rx_memory);
		if (error)
			return error;
	}
	wf_timer_init(&seat->reopen, reopen_later);
	seat->generation[WF_PUBLISHED] = seat->generation[WF_OUTGOING] = 1;
	error = wf_engine_rail_address(engine, seat);
	if (error)
		return error;
	watch(seat);
	wf_seat_post_receives(seat);
	seat->last_ok_ns = seat->opened_ns = wf_now_ns();
	seat->listening = true;
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
		seat->rx_refused =
		    wf_rail_receive(seat->rail, &frame->wr, frame->buffer, seat->rx_memory.desc, WF_FRAME_BYTES);
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
	if (seat->rx_idle_count >= seat->group->engine->settings.frames / 4 && seat->listening)
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

/* One peer that takes nothing off the NIC must leave frames for the others. */
static bool has_room(const struct wf_seat *seat, enum wf_end end, const struct wf_lane *lane)
{
	return (end == WF_OUTGOING ? seat->ops : seat->frames) < seat->limits.queue_ops &&
	       lane->in_flight <= seat->group->tx_count / 2;
}

static void count_for_lane(struct wf_tx_frame *frame, int by)
{
	if (!frame->lane)
		return;
	frame->lane->in_flight += (uint32_t)by;
	if (frame->end == WF_OUTGOING)
		frame->lane->path[frame->seat->place].hellos_out += (uint8_t)by;
}

static void count_posted(struct wf_tx_frame *frame, int by)
{
	struct wf_seat *seat = frame->seat;

	*(frame->end == WF_OUTGOING ? &seat->ops : &seat->frames) += (uint32_t)by;
	seat->group->on_nic += (uint32_t)by;
	seat->group->frames_out += (uint32_t)by;
	count_for_lane(frame, by);
}

void wf_seat_disown_frame(struct wf_tx_frame *frame)
{
	struct wf_lane *lane = frame->lane;

	count_for_lane(frame, -1);
	frame->lane = NULL;
	wf_lane_maybe_closed(lane);
}

WF_HOT int wf_seat_send(struct wf_seat *seat, enum wf_end end, struct wf_lane *lane, uint64_t target,
			struct wf_tx_frame *frame)
{
	struct wf_outbound out = { .buffer = frame->buffer, .bytes = posted_bytes(seat, frame), .target = target };
	int error;

	if (!has_room(seat, end, lane) || !wf_rail_is_open(seat->rail, end))
		return -EAGAIN;
	/* What the provider copies is done with when posted. Should it be lost, nobody acknowledges it. */
	if (out.bytes <= seat->limits.inject_bytes) {
		error = wf_rail_inject(seat->rail, end, &out);
		if (!error) {
			count_send(seat, frame);
			wf_group_give_tx(seat->group, frame);
		}
		return error;
	}
	out.desc = seat->tx_memory.desc;
	error = wf_rail_send(seat->rail, end, &frame->wr, &out);
	if (error)
		return error;
	frame->seat = seat;
	frame->lane = lane;
	frame->end = end;
	frame->posted_ns = wf_group_now(seat->group);
	frame->faint = wf_frame_is_sign_of_life(wf_tx_header(frame)->kind);
	count_posted(frame, 1);
	count_send(seat, frame);
	return 0;
}

void wf_seat_frame_left(struct wf_tx_frame *frame, bool failed)
{
	struct wf_group *group = frame->seat->group;

	count_posted(frame, -1);
	group->stuck -= frame->stuck;
	frame->stuck = false;
	if (failed)
		wf_group_rest_tx(group, frame);
	else
		wf_group_give_tx(group, frame);
}

bool wf_seat_ring(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;
	bool asked = false;

	/* Any post rings for those before it: a frame that means nothing, to the first peer that there is room for. */
	for (struct wf_link *link = group->lanes.next; link != &group->lanes; link = link->next) {
		struct wf_lane *lane = wf_container(link, struct wf_lane, link);
		struct wf_tx_frame *tx;
		uint64_t target;

		if (lane->path[seat->place].state == WF_PATH_CLOSED || !has_room(seat, WF_OUTGOING, lane) ||
		    wf_lane_target(lane, seat, WF_OUTGOING, lane->path[seat->place].remote, &target) ||
		    !(tx = wf_group_take_tx(group)))
			continue;
		*wf_tx_header(tx) =
		    (struct wf_frame){ .kind = WF_FRAME_PONG, .incarnation = group->engine->incarnation };
		wf_frame_seal(wf_tx_header(tx));
		if (!wf_seat_send(seat, WF_OUTGOING, lane, target, tx))
			return true;
		asked = true;
		wf_group_give_unsent_tx(group, tx);
	}
	return asked;
}

/* ---- failure ---- */

void wf_seat_doom_unrung(struct wf_seat *seat)
{
	wf_seat_doom(seat, WF_DOOM_OUTGOING, "what was posted cannot be rung for");
	seat->doomed_ns = 0; /* none of it will land: nothing to wait for */
}

void wf_seat_doom(struct wf_seat *seat, enum wf_doom what, const char *why)
{
	if (seat->doomed >= what || !(what == WF_DOOM_RAIL ? seat->listening : atomic_load(&seat->up)))
		return;
	seat->doomed = what;
	seat->doomed_ns = seat->drain_look_ns = wf_group_now(seat->group);
	seat->group->doomed = true;
	seat->why = why;
	seat->doomed_to_stop = false;
}

void wf_seat_refresh(struct wf_seat *seat)
{
	wf_seat_doom(seat, WF_DOOM_OUTGOING, NULL);
}

void wf_seat_doom_to_stop(struct wf_seat *seat)
{
	if (seat->doomed)
		return;
	wf_seat_doom(seat, WF_DOOM_OUTGOING, "a stopped operation does not leave it");
	seat->doomed_to_stop = true;
}

static void tell_application(struct wf_seat *seat, enum weft_event_type type)
{
	const struct wf_rail_error *last = wf_rail_last_error(seat->rail);
	struct weft_error error = { .scope = WEFT_SCOPE_RAIL, .provider_error = last->provider_error };

	snprintf(error.rail, sizeof(error.rail), "%.31s", seat->nic->name);
	snprintf(error.text, sizeof(error.text), "%s", type == WEFT_EVENT_RAIL_UP ? "reopened" : seat->why);
	wf_engine_notice(seat->group->engine, type, type == WEFT_EVENT_RAIL_UP ? 0 : -ENETDOWN, 0, &error);
}

static void take_back_pieces(struct wf_seat *seat)
{
	struct wf_group *group = seat->group;

	for (uint32_t i = 0; i < group->pieces_used; i++)
		if (group->piece[i].seat == seat)
			wf_piece_taken_back(group, &group->piece[i]);
}

static void take_back_frames(struct wf_seat *seat, enum wf_end end)
{
	struct wf_group *group = seat->group;

	for (uint32_t i = 0; i < group->tx_count; i++)
		if (group->tx[i].seat == seat && group->tx[i].end == end)
			wf_seat_frame_left(&group->tx[i], false);
}

static void take_back_receives(struct wf_seat *seat)
{
	for (uint32_t i = 0; i < seat->group->engine->settings.frames; i++)
		if (seat->rx[i].posted) {
			seat->rx[i].posted = false;
			seat->rx_idle[seat->rx_idle_count++] = &seat->rx[i];
		}
}

/* Everything that was posted is ours again: pieces go back to their transfers, receives are posted anew. */
static void close_endpoints(struct wf_seat *seat, enum wf_doom what)
{
	atomic_store(&seat->up, 0);
	seat->generation[WF_OUTGOING]++;
	if (what == WF_DOOM_RAIL) {
		seat->listening = false;
		wf_rail_shut(seat->rail, WF_PUBLISHED);
		seat->generation[WF_PUBLISHED]++;
		take_back_frames(seat, WF_PUBLISHED);
		take_back_receives(seat);
	} else {
		wf_rail_shut(seat->rail, WF_OUTGOING);
		/* What completed before is still there to be read, among it what the provider now cancels. */
		for (int i = 0; i < DRAIN_READS && wf_group_read_completions(seat->group, seat) > 0; i++)
			;
	}
	take_back_pieces(seat);
	take_back_frames(seat, WF_OUTGOING);
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
	bool listened = wf_rail_is_open(seat->rail, WF_PUBLISHED);

	if (wf_rail_reopen(seat->rail) || (!listened && wf_engine_rail_address(group->engine, seat))) {
		if (!listened)
			wf_rail_shut(seat->rail, WF_PUBLISHED);
		reopen_after_a_while(seat);
		return;
	}
	wf_timer_clear(&group->worker.timers, &seat->reopen);
	seat->opened_ns = wf_group_now(group);
	seat->listening = true;
	atomic_store(&seat->up, 1);
	if (!listened)
		watch(seat);
	wf_seat_post_receives(seat);
	if (seat->why) {
		atomic_fetch_add_explicit(&seat->count.reopened, 1, memory_order_relaxed);
		tell_application(seat, WEFT_EVENT_RAIL_UP);
	}
	/* A hello connects the new endpoint to every peer, and tells them the address where that is new. */
	for (struct wf_link *link = group->lanes.next; link != &group->lanes; link = link->next)
		wf_lane_hello_now(wf_container(link, struct wf_lane, link));
}

static void reopen_later(struct wf_timer *timer, uint64_t now_ns)
{
	try_reopen(wf_container(timer, struct wf_seat, reopen));
}

static void reset(struct wf_seat *seat, enum wf_doom what)
{
	struct wf_group *group = seat->group;
	struct wf_link *link;

	if (seat->why) {
		wf_log(&group->engine->log, WEFT_LOG_WARN, "rail %s: %s: reopening it", seat->nic->name, seat->why);
		tell_application(seat, WEFT_EVENT_RAIL_DOWN);
	}
	close_endpoints(seat, what);
	for (link = group->lanes.next; link != &group->lanes;) {
		struct wf_lane *lane = wf_container(link, struct wf_lane, link);

		link = link->next; /* a closing lane may leave the list */
		wf_lane_seat_reset(lane, seat, what);
		wf_lane_maybe_closed(lane);
	}
	/* One that fails again right after it was opened, having carried nothing, is given longer and longer pauses. A reset to
	 * take pieces back says nothing against it. */
	if (what == WF_DOOM_OUTGOING || seat->last_ok_ns > seat->opened_ns ||
	    wf_group_now(group) - seat->opened_ns > REOPEN_LAST_NS) {
		seat->reopen_tries = 0;
		try_reopen(seat);
	} else {
		reopen_after_a_while(seat);
	}
}

/* A write that carries an immediate cannot be posted twice: a reset on another's account would end it. */
static bool has_counted(const struct wf_seat *seat)
{
	const struct wf_group *group = seat->group;

	for (uint32_t i = 0; i < group->pieces_used; i++) {
		const struct wf_piece *piece = &group->piece[i];

		if (piece->seat == seat && piece->part->counted && !piece->part->stop_ns)
			return true;
	}
	return false;
}

static bool has_stopped(const struct wf_seat *seat)
{
	const struct wf_group *group = seat->group;

	for (uint32_t i = 0; i < group->pieces_used; i++)
		if (group->piece[i].seat == seat && group->piece[i].part->stop_ns)
			return true;
	return false;
}

void wf_seat_see_to_doomed(struct wf_seat *seat)
{
	uint64_t now = wf_group_now(seat->group);
	enum wf_doom what = seat->doomed;

	/* We may have stood still ourselves, with its completions unread. */
	if (seat->doomed_to_stop && !has_stopped(seat)) {
		seat->doomed = WF_DOOM_NOTHING;
		return;
	}
	/* It takes nothing new meanwhile. */
	if (what == WF_DOOM_OUTGOING && now - seat->doomed_ns < DRAIN_NS) {
		if (now < seat->drain_look_ns)
			return;
		seat->drain_look_ns = now + DRAIN_LOOK_NS;
		if (has_counted(seat))
			return;
	}
	seat->doomed = WF_DOOM_NOTHING;
	reset(seat, what);
}
