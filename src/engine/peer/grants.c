/* Asking for and granting unread immediates: grants.h says what it owns. On the lane's group. */
#include "engine/peer/grants.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/peer/peer.h"

#include <errno.h>

#define MOST           256          /* unread on a path */
#define LEAST          4            /* granted to a path, while there is room */
#define ANSWER_NS      (50 * WF_MS) /* an answer should be here by then; doubles */
#define ANSWER_LAST_NS (2 * WF_S)
#define RETRY_NS       (1 * WF_MS) /* the provider had no room; doubles */
#define RETRY_LAST_NS  (16 * WF_MS)
#define LIMIT_NS       (1 * WF_S) /* then the peer has asked again */
#define ON_NIC         3          /* questions and hellos that a path may have there */

static int send(struct wf_lane *lane, struct wf_seat *seat, uint8_t kind, uint32_t remote, struct wf_grant grant)
{
	struct wf_peer *peer = lane->peer;
	enum wf_end end = kind == WF_FRAME_ASK ? WF_OUTGOING : wf_lane_talk_end(lane, seat, remote);
	struct wf_tx_frame *tx;
	uint64_t target;
	int error = wf_lane_target(lane, seat, end, remote, &target);

	if (error)
		return error;
	tx = wf_group_take_tx(lane->group);
	if (!tx)
		return -EAGAIN;
	grant.from_rail = (uint8_t)seat->index;
	grant.to_rail = (uint8_t)remote;
	*wf_tx_header(tx) = (struct wf_frame){ .kind = kind,
					       .incarnation = peer->engine->incarnation,
					       .to_peer = lane->their_handle,
					       .from_epoch = atomic_load(&peer->epoch),
					       .to_epoch = lane->their_epoch,
					       .token = atomic_load_explicit(&peer->their_secret, memory_order_relaxed),
					       .grant = grant };
	wf_frame_seal(wf_tx_header(tx));
	error = wf_seat_send(seat, end, lane, target, tx);
	if (error)
		wf_group_give_unsent_tx(lane->group, tx);
	return error;
}

/* ---- the writer's side ---- */

static bool is_asking(const struct wf_path *path)
{
	return path->state == WF_PATH_UP && path->immediates_asked;
}

/* A completed write's immediate lies in the peer's completion queue, before a question that is sent from now on: the answer to
 * it, and not to an earlier one, says that the peer has read so far. Asked in time, it never holds anything up. */
static void ask_if_used_up(struct wf_lane *lane, struct wf_path *path)
{
	if (path->state != WF_PATH_UP || path->immediates_asked ||
	    path->immediates_done < (path->immediates_limit + 1) / 2 || lane->closing)
		return;
	path->immediates_asked = path->immediates_done;
	path->grant_question++;
	path->ask_tries = 0;
	path->ask_ns = wf_group_now(lane->group);
	wf_lane_set_timer(lane);
}

void wf_lane_immediate_done(struct wf_lane *lane, struct wf_path *path)
{
	path->immediates_done++;
	ask_if_used_up(lane, path);
}

static void set_limit(struct wf_path *path, uint32_t immediates)
{
	path->immediates_limit = immediates > MOST ? MOST : immediates;
}

void wf_grants_begin(struct wf_path *path, uint32_t immediates)
{
	/* An engine that answers a hello has read all that completed before it: what did since the path went down is counted. */
	path->immediates = path->ops + path->immediates_done;
	path->immediates_asked = 0;
	set_limit(path, immediates);
}

static void take_grant(struct wf_lane *lane, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct wf_path *path = &lane->path[seat->place];
	uint32_t read = path->immediates_asked;

	if (!is_asking(path) || frame->grant.question != path->grant_question || frame->grant.from_rail != path->remote)
		return;
	if (path->asked_ns)
		wf_pace_took(&seat->pace, wf_group_now(lane->group) - path->asked_ns);
	path->asked_ns = 0;
	set_limit(path, frame->grant.immediates);
	path->immediates_asked = 0;
	path->immediates_done -= read < path->immediates_done ? read : path->immediates_done;
	path->immediates -= read < path->immediates ? read : path->immediates;
	wf_lane_runnable(lane);
	ask_if_used_up(lane, path);
}

static void ask(struct wf_lane *lane, struct wf_seat *seat, struct wf_path *path, uint64_t now_ns)
{
	uint64_t wait = ANSWER_NS, last = ANSWER_LAST_NS;
	struct wf_grant question = { .question = path->grant_question };
	int error = 0;

	if (path->hellos_out < ON_NIC && !(error = send(lane, seat, WF_FRAME_ASK, path->remote, question)))
		path->asked_ns = now_ns;
	if (error == -EAGAIN) {
		wait = RETRY_NS;
		last = RETRY_LAST_NS;
	}
	wait <<= path->ask_tries;
	path->ask_ns = now_ns + (wait < last ? wait : last);
	path->ask_tries += path->ask_tries < 8;
}

/* ---- the reader's side ---- */

/* A part of what others have left, so that all grants together fit (except for one each, which everybody gets). It never shrinks,
 * for the peer may have used it, and grows when others have left. */
uint32_t wf_grants_share(struct wf_lane *lane, struct wf_seat *seat)
{
	struct wf_path *path = &lane->path[seat->place];
	uint32_t rails = lane->group->engine->rails, sharers = (lane->book->count + rails - 1) / rails;
	uint32_t left = seat->granted < seat->limits.immediates ? seat->limits.immediates - seat->granted : 0;
	uint32_t share = left / 32, most;

	sharers = sharers ? sharers : 1;
	most = MOST * sharers;
	if (share < LEAST)
		share = left < LEAST ? 1 : LEAST;
	share = share > most ? most : share;
	if (share > path->granted) {
		seat->granted += share - path->granted;
		path->granted = share;
	}
	return path->granted / sharers ? path->granted / sharers : 1;
}

/* False: there is no room now. */
static bool grant(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote)
{
	struct wf_grant granted = { .question = wf_target_of(lane, seat->place, remote)->grant_question,
				    .immediates = wf_grants_share(lane, seat) };

	return send(lane, seat, WF_FRAME_GRANT, remote, granted) != -EAGAIN;
}

static void answer(struct wf_lane *lane, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct wf_path *path = &lane->path[seat->place];
	uint32_t remote = frame->grant.from_rail;
	uint64_t now = wf_group_now(lane->group);

	if (remote >= lane->book->count || !lane->their_handle)
		return;
	wf_target_of(lane, seat->place, remote)->grant_question = frame->grant.question;
	if (grant(lane, seat, remote))
		return;
	path->grants_due |= UINT64_C(1) << remote;
	lane->grant_ns = now + RETRY_NS;
	lane->grant_until_ns = now + LIMIT_NS;
	wf_lane_set_timer(lane);
}

void wf_grants_leave(struct wf_lane *lane)
{
	for (uint32_t i = 0; i < lane->group->seats; i++)
		lane->group->seat[i].granted -= lane->path[i].granted;
}

/* ---- both ---- */

void wf_grants_arrived(struct wf_lane *lane, struct wf_seat *seat, const struct wf_frame *frame)
{
	struct wf_path *path = &lane->path[seat->place];

	/* What was said in another connection means nothing in this one. */
	if (!lane->opened || lane->closing || frame->incarnation != atomic_load(&lane->peer->incarnation) ||
	    frame->to_epoch != atomic_load(&lane->peer->epoch))
		return;
	atomic_store_explicit(&path->moved_ns, wf_group_now(lane->group), memory_order_relaxed); /* a sign of life */
	if (frame->kind == WF_FRAME_ASK)
		answer(lane, seat, frame);
	else
		take_grant(lane, seat, frame);
}

static void answer_due(struct wf_lane *lane, uint32_t place, uint64_t now_ns)
{
	struct wf_path *path = &lane->path[place];

	for (uint64_t left = path->grants_due; left; left &= left - 1) {
		uint32_t remote = (uint32_t)__builtin_ctzll(left);

		if (now_ns >= lane->grant_until_ns || remote >= lane->book->count ||
		    grant(lane, &lane->group->seat[place], remote))
			path->grants_due &= ~(UINT64_C(1) << remote);
	}
	lane->grant_ns = now_ns + RETRY_NS;
}

void wf_grants_run(struct wf_lane *lane, uint64_t now_ns)
{
	bool answers = lane->grant_ns <= now_ns;

	for (uint32_t i = 0; i < lane->group->seats; i++) {
		struct wf_seat *seat = &lane->group->seat[i];
		struct wf_path *path = &lane->path[i];

		if (answers && path->grants_due)
			answer_due(lane, i, now_ns);
		if (is_asking(path) && path->ask_ns <= now_ns && atomic_load(&seat->up))
			ask(lane, seat, path, now_ns);
	}
}

uint64_t wf_grants_next(const struct wf_lane *lane)
{
	uint64_t next = WF_NEVER;

	for (uint32_t i = 0; i < lane->group->seats; i++) {
		const struct wf_path *path = &lane->path[i];

		if (path->grants_due && lane->grant_ns < next)
			next = lane->grant_ns;
		if (is_asking(path) && path->ask_ns < next && atomic_load(&lane->group->seat[i].up))
			next = path->ask_ns;
	}
	return next;
}
