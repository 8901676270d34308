/*
 * A group's turn: read every rail's completions, send frames, give every rail the pieces it has room for, then see to
 * rails that failed. Also the group's notes. Runs on the group's worker.
 */
#include "engine/group.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/stripe.h"
#include "engine/verify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COMPLETIONS 64
#define AHEAD       4 /* completions that are fetched before their turn */
#define PIECES_MAX  16384u
#define FRAMES_OUT  64u /* and 16 more for each rail */
#define GOODBYE_NS  (50 * WF_MS)

/* ---- notes ---- */

static struct wf_item make_note(enum wf_note what, void *object, uint64_t value)
{
	return (struct wf_item){ { what, (uintptr_t)object, value } };
}

bool wf_group_post(struct wf_group *to, enum wf_note what, void *object, uint64_t value)
{
	struct wf_item note = make_note(what, object, value);

	return wf_worker_post(&to->worker, &note);
}

static void defer(struct wf_group *from, struct wf_group *to, const struct wf_item *note)
{
	if (from->deferred_count == from->deferred_room) {
		uint32_t room = from->deferred_room ? from->deferred_room * 2 : 64;
		struct wf_deferred *more = realloc(from->deferred, room * sizeof(*more));

		/* The inbox holds a note for everything that can be in flight; with neither room there nor memory here
		 * the only honest thing left is to stop. */
		if (!more)
			abort();
		from->deferred = more;
		from->deferred_room = room;
	}
	from->deferred[from->deferred_count++] = (struct wf_deferred){ to, *note };
}

void wf_group_tell(struct wf_group *from, struct wf_group *to, enum wf_note what, void *object, uint64_t value)
{
	struct wf_item note = make_note(what, object, value);

	if (from == to)
		wf_group_handle(to, &note);
	else if (from->deferred_count || !wf_worker_post(&to->worker, &note))
		defer(from, to, &note);
}

static void send_deferred(struct wf_group *group)
{
	uint32_t sent = 0;

	while (sent < group->deferred_count &&
	       wf_worker_post(&group->deferred[sent].to->worker, &group->deferred[sent].note))
		sent++;
	memmove(group->deferred, group->deferred + sent, (group->deferred_count - sent) * sizeof(*group->deferred));
	group->deferred_count -= sent;
}

static void frame_from_elsewhere(struct wf_group *group, struct wf_rx_frame *rx)
{
	const struct wf_frame *frame = (const struct wf_frame *)rx->buffer; /* whoever sent us the note has opened it */
	struct wf_peer *peer = wf_handle_get(&group->engine->peers, frame->to_peer);

	if (peer) {
		wf_channel_arrived(peer, frame);
		/* Who asks that way may hear us that way only. */
		if (frame->kind == WF_FRAME_PING && !peer->closing && atomic_load(&peer->state) == WF_PEER_UP)
			wf_peer_send_plain_by(peer, rx->seat->group->index, WF_FRAME_PONG);
		wf_handle_put(&group->engine->peers, peer->handle);
	}
	wf_group_tell(group, rx->seat->group, WF_NOTE_RX_BACK, rx, 0);
}

void wf_group_handle(struct wf_group *group, const struct wf_item *note)
{
	void *object = (void *)(uintptr_t)note->word[1];
	uint64_t value = note->word[2];

	switch ((enum wf_note)note->word[0]) {
	case WF_NOTE_CONTROL:
		wf_control_run(group, object);
		break;
	case WF_NOTE_BEGIN:
		wf_transfer_begin(object);
		break;
	case WF_NOTE_STOP:
		/* It may have ended meanwhile: value says which life of the slot was meant. */
		if (atomic_load(&((struct wf_transfer *)object)->state) >> 32 == value >> 32)
			wf_transfer_stopped(object);
		break;
	case WF_NOTE_PART:
		wf_part_start(group, object);
		break;
	case WF_NOTE_PART_STOP:
		wf_part_stop(group, object, value);
		break;
	case WF_NOTE_PARTS_DONE:
		wf_transfer_parts_done(object);
		break;
	case WF_NOTE_LANE_OPEN:
		wf_lane_open(object);
		wf_handle_put(&group->engine->peers, ((struct wf_lane *)object)->peer->handle);
		break;
	case WF_NOTE_LANE_CLOSE:
		wf_lane_close(object);
		break;
	case WF_NOTE_LANE_CLOSED:
		wf_peer_lane_closed(object);
		break;
	case WF_NOTE_LANE_BOOK:
		wf_lane_set_book(object, (struct wf_book *)(uintptr_t)value);
		wf_handle_put(&group->engine->peers, ((struct wf_lane *)object)->peer->handle);
		break;
	case WF_NOTE_LANE_QUIET:
		wf_lane_quiet(object);
		if (value)
			wf_lane_hello_now(object);
		break;
	case WF_NOTE_HEARD:
		wf_peer_heard(object, (struct wf_heard *)(uintptr_t)value);
		free((void *)(uintptr_t)value);
		break;
	case WF_NOTE_SUSPECT:
		wf_peer_suspect(object);
		break;
	case WF_NOTE_PATHS:
		wf_peer_paths_changed(object);
		break;
	case WF_NOTE_FRAME:
		frame_from_elsewhere(group, object);
		break;
	case WF_NOTE_RX_BACK:
		wf_seat_receive_again(((struct wf_rx_frame *)object)->seat, object);
		break;
	case WF_NOTE_SEND:
		wf_lane_send_copy(object, (void *)(uintptr_t)value);
		break;
	case WF_NOTE_PEER:
		wf_peer_changed(object, (enum wf_peer_change)value);
		break;
	case WF_NOTE_CREDIT:
		wf_channel_acknowledge(object);
		/* The reference that kept the peer while the note was under way. */
		wf_handle_put(&group->engine->peers, ((struct wf_peer *)object)->handle);
		break;
	case WF_NOTE_COUNTED:
		wf_counted(group->engine, (uint32_t)note->word[1], value);
		break;
	}
}

/* Of what others sent, only the home knows whether it was news; it counts for itself. */
static bool is_faint(const struct wf_item *note)
{
	switch ((enum wf_note)note->word[0]) {
	case WF_NOTE_RX_BACK:
		return true;
	case WF_NOTE_SEND:
		return wf_frame_is_sign_of_life(((const struct wf_frame *)(uintptr_t)note->word[2])->kind);
	default:
		return false;
	}
}

static void on_note(void *context, const struct wf_item *note)
{
	struct wf_group *group = context;

	if (is_faint(note))
		group->worker.faint++;
	wf_group_handle(group, note);
}

/* ---- completions ---- */

/* True when the frame was dealt with here and its buffer is free again. */
WF_HOT static bool frame_arrived(struct wf_group *group, struct wf_seat *seat, struct wf_rx_frame *rx)
{
	struct wf_frame *frame;
	struct wf_peer *peer;

	if (wf_frame_open(rx->buffer, rx->bytes, &frame)) {
		atomic_fetch_add_explicit(&seat->count.errors, 1, memory_order_relaxed);
		return true;
	}
	if (frame->kind == WF_FRAME_HELLO) {
		wf_hello_arrived(group, seat, frame);
		return true;
	}
	if (frame->kind == WF_FRAME_WELCOME) {
		wf_welcome_arrived(group, seat, frame);
		return true;
	}
	if (frame->kind == WF_FRAME_CHALLENGE) {
		wf_challenge_arrived(group, seat, frame);
		return true;
	}
	/* Without a reference: a peer that is live now goes only when each group has closed its lane, ours in a later note. */
	peer = wf_handle_peek(&group->engine->peers, frame->to_peer);
	if (!peer || frame->token != atomic_load_explicit(&peer->secret, memory_order_relaxed))
		return true; /* removed meanwhile, or it is not the peer who says that */
	if (peer->home == group) {
		peer->talk_seat = seat->place; /* where the peer is heard it hears us */
		wf_channel_arrived(peer, frame);
		return true;
	}
	if (wf_frame_is_sign_of_life(frame->kind))
		group->worker.faint++;
	wf_group_tell(group, peer->home, WF_NOTE_FRAME, rx, 0);
	return false;
}

static void frame_sent(struct wf_group *group, struct wf_tx_frame *frame, int status)
{
	struct wf_lane *lane = frame->lane;
	struct wf_seat *seat = frame->seat;

	if (frame->faint && !status)
		group->worker.faint++;
	if (status && lane && wf_rail_is_open(seat->rail, frame->end)) {
		struct wf_path *path = &lane->path[seat->place];
		const char *why = wf_rail_last_error(seat->rail)->text;

		atomic_fetch_add_explicit(&seat->count.errors, 1, memory_order_relaxed);
		if (frame->end == WF_OUTGOING)
			wf_lane_path_failed(lane, path, why);
		else
			wf_lane_talk_failed(lane, path, why);
	}
	wf_seat_frame_left(frame, status);
	if (lane)
		wf_lane_maybe_closed(lane);
}

static void immediate_arrived(struct wf_group *group, uint32_t immediate)
{
	struct wf_group *counter = &group->engine->group[0];

	wf_group_tell(group, counter, WF_NOTE_COUNTED, (void *)(uintptr_t)immediate, 1);
}

static void frame_while_leaving(struct wf_group *group, struct wf_rx_frame *rx);

/* One of a batch tells what they take. */
static void look_at_time(struct wf_group *group, struct wf_seat *seat, const struct wf_completion *done)
{
	const struct wf_piece *piece;

	if (!done->wr || done->wr->kind > WF_WR_READ || done->status)
		return;
	piece = wf_container(done->wr, struct wf_piece, wr);
	if (piece->seat == seat)
		wf_pace_took(&seat->pace, wf_group_now(group) - piece->posted_ns);
}

/* Apart from the look, like all that most turns of a waiting engine do not need. */
WF_HOT __attribute__((noinline)) static void take_completions(struct wf_group *group, struct wf_seat *seat,
							      const struct wf_completion *done, int got)
{
	uint32_t pieces = 0, failed = 0;

	look_at_time(group, seat, done);
	for (int i = 0; i < got; i++) {
		struct wf_wr *wr = done[i].wr;

		/* Long posted, so no longer in the cache. */
		__builtin_prefetch(done[i + AHEAD < got ? i + AHEAD : i].wr, 1);
		if (wr && wr->kind <= WF_WR_READ) {
			struct wf_piece *piece = wf_container(wr, struct wf_piece, wr);

			/* Believed only of what is posted here. */
			if (__builtin_expect(piece->seat != seat, 0)) {
				atomic_fetch_add_explicit(&seat->count.errors, 1, memory_order_relaxed);
				continue;
			}
			pieces++;
			failed += done[i].status != 0;
			if (!done[i].status)
				wf_piece_landed(group, seat, piece);
			else
				wf_piece_failed(group, piece, done[i].status);
		} else if (!wr) {
			if (!done[i].status)
				immediate_arrived(group, done[i].immediate);
			else
				atomic_fetch_add_explicit(&seat->count.errors, 1, memory_order_relaxed);
		} else if (wr->kind == WF_WR_RECEIVE) {
			struct wf_rx_frame *rx = (struct wf_rx_frame *)wr;

			if (!rx->posted)
				continue;
			rx->posted = false;
			rx->bytes = (uint32_t)done[i].bytes;
			if (group->leaving) { /* the other workers may be gone */
				if (!done[i].status)
					frame_while_leaving(group, rx);
				continue;
			}
			if (done[i].status || frame_arrived(group, seat, rx))
				wf_seat_receive_again(seat, rx);
		} else if (((struct wf_tx_frame *)wr)->seat == seat) {
			frame_sent(group, (struct wf_tx_frame *)wr, done[i].status);
		}
	}
	seat->ops -= pieces;
	group->on_nic -= pieces;
	if (pieces > failed)
		seat->last_ok_ns = wf_group_now(group);
}

WF_HOT int wf_group_read_completions(struct wf_group *group, struct wf_seat *seat)
{
	struct wf_completion done[COMPLETIONS];
	int got;

	if (seat->rx_idle_count && !seat->rx_refused)
		wf_seat_post_receives(seat);
	if (__builtin_expect(wf_rail_unrung(seat->rail), 0) && !wf_seat_ring(seat)) {
		wf_seat_doom_unrung(seat);
		return 1;
	}
	got = wf_rail_poll(seat->rail, done, COMPLETIONS);
	if (got > 0)
		take_completions(group, seat, done, got);
	if (got >= 0)
		return got;
	wf_seat_doom(seat, WF_DOOM_RAIL, "reading completions failed");
	return 1;
}

/* ---- the turn ---- */

__attribute__((noinline)) static void send_frames(struct wf_group *group)
{
	struct wf_link *link = group->pumping.next;

	/* A peer takes itself out of the list when it has nothing more to send. */
	while (link != &group->pumping) {
		struct wf_peer *peer = wf_container(link, struct wf_peer, pumping);

		link = link->next;
		wf_channel_pump(peer);
	}
	/* Each once: one whose frame found no room puts itself back, for the next turn. */
	for (struct wf_link *last = group->acking.prev; !wf_list_empty(&group->acking);) {
		struct wf_peer *peer = wf_container(group->acking.next, struct wf_peer, acking);
		bool end = &peer->acking == last;

		wf_list_remove(&peer->acking);
		wf_channel_acknowledge(peer);
		if (end)
			break;
	}
}

void wf_group_send_frames(struct wf_group *group)
{
	if (!wf_list_empty(&group->pumping) || !wf_list_empty(&group->acking))
		send_frames(group);
}

/* Without a thread of ours, a turn after the frame that said so: what came with that frame, and what the application answers,
 * goes first. */
WF_HOT __attribute__((noinline)) int wf_group_settle(struct wf_group *group, void *unused)
{
	while (!wf_list_empty(&group->settling))
		wf_channel_settle(wf_container(group->settling.next, struct wf_peer, settling));
	return 0;
}

/* Every rail pulls what it has room for, another one first each time. */
__attribute__((noinline)) static int give_turns(struct wf_group *group)
{
	uint32_t at = group->turn++ % group->seats;
	struct wf_level level = wf_stripe_level(group);
	int happened = 0;

	for (uint32_t i = 0; i < group->seats && !wf_list_empty(&group->runnable); i++) {
		happened += wf_stripe_seat(group, &group->seat[at], &level);
		at = at + 1 == group->seats ? 0 : at + 1;
	}
	return happened;
}

static void reset_doomed(struct wf_group *group)
{
	group->doomed = false;
	for (uint32_t i = 0; i < group->seats; i++)
		if (group->seat[i].doomed) {
			wf_seat_see_to_doomed(&group->seat[i]);
			group->doomed |= group->seat[i].doomed != WF_DOOM_NOTHING;
		}
}

WF_HOT static int on_turn(void *context, uint64_t now_ns)
{
	struct wf_group *group = context;
	int happened = 0;

	/* What was submitted goes out before we look for what came in, and what that calls for right after. */
	wf_group_send_frames(group);
	if (!wf_list_empty(&group->settling)) {
		wf_group_settle(group, NULL);
		happened++;
	}
	for (uint32_t i = 0; i < group->seats; i++)
		if (group->seat[i].listening)
			happened += wf_group_read_completions(group, &group->seat[i]);
	if (happened)
		wf_group_send_frames(group);
	if (!wf_list_empty(&group->runnable))
		happened += give_turns(group);
	if (!wf_list_empty(&group->verifying))
		happened += wf_verify_turn(group);
	if (group->doomed)
		reset_doomed(group);
	if (group->deferred_count)
		send_deferred(group);
	return happened;
}

static bool on_in_flight(void *context)
{
	struct wf_group *group = context;

	return group->on_nic > group->stuck || !wf_list_empty(&group->runnable) || !wf_list_empty(&group->pumping) ||
	       !wf_list_empty(&group->verifying) || !wf_list_empty(&group->acking) || group->deferred_count;
}

static bool on_can_sleep(void *context)
{
	struct wf_group *group = context;

	/* Pieces or frames that a rail refused are tried again, not waited for. */
	if (!wf_list_empty(&group->runnable) || !wf_list_empty(&group->pumping) || !wf_list_empty(&group->verifying) ||
	    !wf_list_empty(&group->acking) || group->deferred_count || group->doomed)
		return false;
	for (uint32_t i = 0; i < group->seats; i++) {
		struct wf_seat *seat = &group->seat[i];

		if (seat->listening && (!seat->limits.waits || wf_rail_try_wait(seat->rail)))
			return false;
	}
	return true;
}

/* ---- starting and stopping, on the worker ---- */

static int make_pools(struct wf_group *group)
{
	uint64_t pieces = 0;

	for (uint32_t i = 0; i < group->seats; i++)
		pieces += group->seat[i].limits.queue_ops;
	group->piece_count = (uint32_t)(pieces < PIECES_MAX ? pieces : PIECES_MAX);
	group->piece = aligned_alloc(alignof(struct wf_piece), group->piece_count * sizeof(*group->piece));
	group->tx_count = FRAMES_OUT + 16 * group->seats;
	group->tx = calloc(group->tx_count, sizeof(*group->tx));
	group->tx_spare.buffer = group->tx_buffers + (size_t)group->tx_count * WF_FRAME_BYTES;
	if (!group->piece || !group->tx)
		return -ENOMEM;
	memset(group->piece, 0, group->piece_count * sizeof(*group->piece));
	for (uint32_t i = 0; i < group->tx_count; i++) {
		group->tx[i].buffer = group->tx_buffers + (size_t)i * WF_FRAME_BYTES;
		wf_group_give_unsent_tx(group, &group->tx[i]);
	}
	return 0;
}

static int make_buffers(struct wf_group *group)
{
	uint32_t frames = group->engine->settings.frames;

	group->tx_bytes = (size_t)(FRAMES_OUT + 16 * group->seats + 1) * WF_FRAME_BYTES;
	group->rx_bytes = (size_t)group->seats * frames * WF_FRAME_BYTES;
	group->tx_buffers = aligned_alloc(4096, group->tx_bytes);
	group->rx_buffers = aligned_alloc(4096, group->rx_bytes);
	return group->tx_buffers && group->rx_buffers ? 0 : -ENOMEM;
}

static int on_start(void *context)
{
	struct wf_group *group = context;
	int error = make_buffers(group);

	for (uint32_t i = 0; !error && i < group->seats; i++)
		error = wf_seat_open(&group->seat[i]);
	if (!error)
		error = make_pools(group);
	if (error) {
		for (uint32_t i = 0; i < group->seats; i++)
			wf_seat_close(&group->seat[i]);
		return error;
	}
	wf_housekeeping_start(group);
	return 0;
}

/* While we leave only goodbyes matter. */
static void frame_while_leaving(struct wf_group *group, struct wf_rx_frame *rx)
{
	struct wf_frame *frame;
	struct wf_peer *peer;

	if (wf_frame_open(rx->buffer, rx->bytes, &frame) || frame->kind != WF_FRAME_BYE ||
	    !(peer = wf_handle_get(&group->engine->peers, frame->to_peer)))
		return;
	if (frame->token == atomic_load(&peer->secret))
		atomic_store(&peer->state, WF_PEER_DOWN);
	wf_handle_put(&group->engine->peers, peer->handle);
}

static bool someone_is_up(struct wf_group *group, bool say)
{
	bool any = false;

	for (struct wf_link *link = group->lanes.next; link != &group->lanes; link = link->next) {
		struct wf_peer *peer = wf_container(link, struct wf_lane, link)->peer;

		if (peer->home != group || atomic_load(&peer->state) != WF_PEER_UP)
			continue;
		any = true;
		if (say)
			wf_peer_send_plain(peer, WF_FRAME_BYE);
	}
	return any;
}

/* Peers answer a goodbye with theirs before they forget us, so that nothing is on its way to our endpoints when they
 * close. One that does not answer in time finds out by its heartbeat. */
static void say_bye(struct wf_group *group)
{
	uint64_t limit = wf_now_ns() + GOODBYE_NS;
	bool said = false;

	do {
		for (uint32_t i = 0; i < group->seats; i++)
			if (group->seat[i].listening)
				wf_group_read_completions(group, &group->seat[i]);
		someone_is_up(group, !said);
		said = true;
	} while ((group->on_nic || someone_is_up(group, false)) && wf_now_ns() < limit);
}

static void on_stop(void *context)
{
	struct wf_group *group = context;

	group->leaving = true;
	say_bye(group);
	wf_region_leave(group); /* before the domains close */
	for (uint32_t i = 0; i < group->seats; i++)
		wf_seat_close(&group->seat[i]);
}

const struct wf_worker_ops wf_group_ops = {
	.start = on_start,
	.note = on_note,
	.turn = on_turn,
	.in_flight = on_in_flight,
	.can_sleep = on_can_sleep,
	.stop = on_stop,
	.gone = wf_engine_worker_gone,
};

int wf_group_init(struct wf_group *group, struct weft_engine *engine, uint32_t index, uint32_t seats)
{
	group->engine = engine;
	group->index = index;
	group->seats = seats;
	group->seat = calloc(seats, sizeof(*group->seat));
	if (!group->seat)
		return -ENOMEM;
	for (uint32_t i = 0; i < seats; i++) {
		group->seat[i].group = group;
		group->seat[i].place = i;
	}
	wf_list_init(&group->lanes);
	wf_list_init(&group->runnable);
	wf_list_init(&group->pumping);
	wf_list_init(&group->acking);
	wf_list_init(&group->settling);
	wf_list_init(&group->stopping);
	wf_list_init(&group->verifying);
	return wf_newcomers_open(group);
}

/* Notes nobody will read any more: free what they carry. */
static void discard(const struct wf_item *note)
{
	void *value = (void *)(uintptr_t)note->word[2];

	switch ((enum wf_note)note->word[0]) {
	case WF_NOTE_HEARD:
	case WF_NOTE_SEND:
		free(value);
		break;
	case WF_NOTE_LANE_BOOK:
		wf_book_put(value);
		break;
	case WF_NOTE_CONTROL:
		wf_control_discard((void *)(uintptr_t)note->word[1]);
		break;
	default:
		break;
	}
}

void wf_group_discard_notes(struct wf_group *group)
{
	struct wf_item note;

	while (group->worker.inbox.cells && wf_ring_pop(&group->worker.inbox, &note))
		discard(&note);
	for (uint32_t i = 0; i < group->deferred_count; i++)
		discard(&group->deferred[i].note);
	group->deferred_count = 0;
}

void wf_group_free(struct wf_group *group)
{
	wf_pairing_stop(group);
	for (uint32_t i = 0; group->seat && i < group->seats; i++) {
		free(group->seat[i].rx);
		free(group->seat[i].rx_idle);
	}
	wf_newcomers_close(group);
	free(group->seat);
	free(group->piece);
	free(group->tx);
	free(group->tx_buffers);
	free(group->rx_buffers);
	free(group->deferred);
	wf_verify_free(group);
}
