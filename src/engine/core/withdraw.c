/*
 * Withdrawals; withdraw.h says what they are. An application's thread asks every peer that may use the region, and waits. The peers'
 * homes answer, and keep nothing: a peer that is not done yet is asked again. A peer that is down, or that does not answer
 * in time (it hangs, or is older than the question), is not waited for.
 */
#include "engine/core/withdraw.h"
#include "base/time.h"
#include "engine/core/control.h"
#include "engine/core/engine.h"
#include "engine/core/region.h"
#include "engine/core/remote.h"
#include "engine/ops/message.h"
#include "engine/ops/transfer.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define LIMIT_NS  (10 * WF_S)   /* all peers together */
#define SILENT_NS (500 * WF_MS) /* one peer's answer, where dead keys kill nobody */
#define AGAIN_NS  WF_MS         /* until a busy peer is asked again, and between two looks at who is still up */

enum state { TO_ASK, ASKED, LEFT };

struct asked {
	weft_peer peer;
	enum state state;
	uint64_t at_ns; /* TO_ASK: not before; ASKED: since */
};

struct withdrawal {
	struct wf_link link; /* engine->withdrawals */
	struct weft_engine *engine;
	weft_region region;
	pthread_cond_t answered;
	uint64_t patience_ns; /* one peer's answer */
	uint32_t count, room;
	struct asked *asked; /* under the engine's lock */
};

/* ---- whom to ask ---- */

static bool must_ask(const struct weft_engine *engine, bool *ret_everybody, bool *ret_kills)
{
	bool must = false;

	*ret_everybody = *ret_kills = false;
	for (uint32_t i = 0; i < engine->rails; i++) {
		const struct wf_rail_limits *limits = &engine->seat[i]->limits;

		*ret_kills |= limits->dead_keys_kill;
		must |= limits->dead_keys_kill || limits->outlives_keys;
		*ret_everybody |= limits->emulated || limits->outlives_keys;
	}
	return must;
}

/* Where a dead key crashes us, a peer that answers nothing is waited for until its heartbeat has surely told that it hangs. */
static uint64_t patience_with(const struct weft_engine *engine, bool kills)
{
	uint64_t patience = kills ? 2 * engine->settings.peer_limit_ns : 0;

	if (patience < SILENT_NS)
		return SILENT_NS;
	return patience < LIMIT_NS / 2 ? patience : LIMIT_NS / 2;
}

/* One end that emulates is enough. */
static bool peer_emulates(struct wf_peer *peer)
{
	bool any = false;

	pthread_mutex_lock(&peer->engine->directory_lock);
	for (uint32_t i = 0; i < peer->book->count; i++)
		any |= peer->book->rail[i].looks;
	pthread_mutex_unlock(&peer->engine->directory_lock);
	return any;
}

static void add_any(void *object, void *context)
{
	struct wf_peer *peer = object;
	struct withdrawal *withdrawal = context;

	if (withdrawal->count < withdrawal->room)
		withdrawal->asked[withdrawal->count++] = (struct asked){ .peer = peer->handle };
}

static void add_emulating(void *object, void *context)
{
	if (peer_emulates(object))
		add_any(object, context);
}

/* ---- asking ---- */

/* One that we still connect to may have connected to us. */
static bool may_use(struct weft_engine *engine, weft_peer handle)
{
	struct wf_peer *peer = wf_handle_get(&engine->peers, handle);
	int state = peer ? atomic_load(&peer->state) : WF_PEER_REMOVED;

	if (peer)
		wf_handle_put(&engine->peers, handle);
	return state == WF_PEER_UP || state == WF_PEER_CONNECTING;
}

/* Not without the answer: it hangs, or does not know the question. */
static bool is_silent(const struct asked *asked, uint64_t patience_ns, uint64_t now)
{
	return asked->state == ASKED && now > asked->at_ns && now - asked->at_ns > patience_ns;
}

static void ask(struct withdrawal *withdrawal, struct asked *asked, uint64_t now)
{
	struct weft_engine *engine = withdrawal->engine;
	struct wf_outgoing question = { .peer = asked->peer,
					.kind = WF_INTERNAL,
					.type = WF_MESSAGE_REVOKE,
					.tag = WF_REVOKE_ASK,
					.subject = withdrawal->region };

	if (!wf_submit_message(engine, &question, NULL, NULL))
		return;
	pthread_mutex_lock(&engine->lock);
	asked->state = TO_ASK;
	asked->at_ns = now + AGAIN_NS;
	pthread_mutex_unlock(&engine->lock);
}

/* Whether this peer is still to be waited for. */
static bool look_at(struct withdrawal *withdrawal, struct asked *asked, uint64_t now)
{
	struct weft_engine *engine = withdrawal->engine;
	bool there = may_use(engine, asked->peer), silent, due, waits;

	pthread_mutex_lock(&engine->lock);
	silent = is_silent(asked, withdrawal->patience_ns, now);
	if (silent || !there)
		asked->state = LEFT;
	due = asked->state == TO_ASK && now >= asked->at_ns;
	if (due) { /* before the question is sent: the answer may be quick */
		asked->state = ASKED;
		asked->at_ns = now;
	}
	waits = asked->state != LEFT;
	pthread_mutex_unlock(&engine->lock);
	if (silent && there)
		wf_log(&engine->log, WEFT_LOG_WARN,
		       "peer %#llx did not say within %llu ms that it has left a region that is closed or revoked",
		       (unsigned long long)asked->peer, (unsigned long long)(withdrawal->patience_ns / WF_MS));
	if (due)
		ask(withdrawal, asked, now);
	return waits;
}

/* Until an answer comes, or for a moment. */
static void pause_for(struct withdrawal *withdrawal, uint64_t now)
{
	struct weft_engine *engine = withdrawal->engine;
	uint64_t at = now + AGAIN_NS;
	struct timespec until = { .tv_sec = (time_t)(at / WF_S), .tv_nsec = (long)(at % WF_S) };

	if (wf_engine_is_manual(engine)) {
		if (wf_engine_progress(engine) <= 0)
			sched_yield();
		return;
	}
	pthread_mutex_lock(&engine->lock);
	pthread_cond_timedwait(&withdrawal->answered, &engine->lock, &until);
	pthread_mutex_unlock(&engine->lock);
}

static void ask_all(struct withdrawal *withdrawal)
{
	uint64_t now = wf_now_ns(), limit = now + LIMIT_NS;
	bool waits = true;

	while (waits && now < limit && !atomic_load(&withdrawal->engine->closing)) {
		waits = false;
		for (uint32_t i = 0; i < withdrawal->count; i++)
			waits |= look_at(withdrawal, &withdrawal->asked[i], now);
		if (waits)
			pause_for(withdrawal, now);
		now = wf_now_ns();
	}
}

/* What the peers had in flight is in our cards' queues: each worker reads its own. */
static void read_all(struct weft_engine *engine)
{
	for (int turn = 0; turn < 2; turn++)
		if (wf_engine_is_manual(engine))
			wf_engine_progress(engine);
		else
			wf_engine_turn_each(engine);
}

static void list(struct withdrawal *withdrawal, bool listed)
{
	struct weft_engine *engine = withdrawal->engine;

	pthread_mutex_lock(&engine->lock);
	if (listed)
		wf_list_append(&engine->withdrawals, &withdrawal->link);
	else
		wf_list_remove(&withdrawal->link);
	pthread_mutex_unlock(&engine->lock);
}

void wf_region_withdraw(struct weft_engine *engine, weft_region region)
{
	struct withdrawal withdrawal = { .engine = engine, .region = region };
	pthread_condattr_t monotonic;
	bool everybody, kills;
	int state;

	if (!must_ask(engine, &everybody, &kills))
		return;
	withdrawal.patience_ns = patience_with(engine, kills);
	withdrawal.room = (uint32_t)atomic_load(&engine->peers.live);
	withdrawal.asked = calloc(withdrawal.room ? withdrawal.room : 1, sizeof(*withdrawal.asked));
	if (!withdrawal.asked) /* as for a peer that does not answer */
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&withdrawal.answered, &monotonic);
	pthread_condattr_destroy(&monotonic);
	wf_handles_each(&engine->peers, everybody ? add_any : add_emulating, &withdrawal);
	list(&withdrawal, true);
	ask_all(&withdrawal);
	list(&withdrawal, false);
	if (withdrawal.count)
		read_all(engine);
	pthread_cond_destroy(&withdrawal.answered);
	free(withdrawal.asked);
	pthread_setcancelstate(state, NULL);
}

/* ---- answers ---- */

static void note_answer(struct withdrawal *withdrawal, weft_peer peer, bool left)
{
	for (uint32_t i = 0; i < withdrawal->count; i++) {
		struct asked *asked = &withdrawal->asked[i];

		if (asked->peer != peer || asked->state != ASKED)
			continue;
		asked->state = left ? LEFT : TO_ASK;
		asked->at_ns = wf_now_ns() + AGAIN_NS;
		if (left)
			pthread_cond_signal(&withdrawal->answered);
	}
}

static void answered(struct weft_engine *engine, weft_peer peer, weft_region region, bool left)
{
	pthread_mutex_lock(&engine->lock);
	for (struct wf_link *link = engine->withdrawals.next; link != &engine->withdrawals; link = link->next) {
		struct withdrawal *withdrawal = wf_container(link, struct withdrawal, link);

		if (withdrawal->region == region)
			note_answer(withdrawal, peer, left);
	}
	pthread_mutex_unlock(&engine->lock);
}

/* ---- answering ---- */

static bool uses(const struct wf_transfer *transfer, uint64_t region)
{
	for (uint32_t i = 0; i < transfer->slices; i++)
		if (transfer->slice[i].remote && transfer->slice[i].remote->region == region)
			return true;
	return false;
}

/* Each ends when its last piece is off the NICs. */
static void stop_users(struct wf_peer *peer, uint64_t region)
{
	struct wf_link *link;

	wf_channel_end_acked(peer); /* not those that the peer has already */
	link = peer->operations.next;
	while (link != &peer->operations) {
		struct wf_transfer *transfer = wf_container(link, struct wf_transfer, link);

		link = link->next;
		if ((transfer->moving || transfer->words.waits) && uses(transfer, region) &&
		    wf_transfer_stop(transfer, -ESTALE))
			wf_transfer_stopped(transfer);
	}
}

static void answer(struct wf_peer *peer, uint64_t region)
{
	bool used = wf_remote_revoked(peer->engine, peer->handle, region);
	struct wf_outgoing outgoing = { .peer = peer->handle,
					.kind = WF_INTERNAL,
					.type = WF_MESSAGE_REVOKE,
					.tag = used ? WF_REVOKE_BUSY : WF_REVOKE_LEFT,
					.subject = region };

	wf_submit_answer(peer->engine, &outgoing); /* one that finds no slot is one that was lost: asked for again */
	if (used)
		stop_users(peer, region);
}

void wf_revoke_arrived(struct wf_inbound *inbound)
{
	struct wf_peer *peer = inbound->peer;

	switch (inbound->tag) {
	case WF_REVOKE_DEAD:
		wf_remote_revoked(peer->engine, peer->handle, inbound->subject);
		break;
	case WF_REVOKE_ASK:
		answer(peer, inbound->subject);
		break;
	default:
		answered(peer->engine, peer->handle, inbound->subject, inbound->tag == WF_REVOKE_LEFT);
	}
	wf_inbound_free(inbound);
}
