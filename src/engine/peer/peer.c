/*
 * What happens to a peer, on its home worker: a connection comes up, goes silent, goes down, comes back under a new
 * epoch. How peers come and go is in directory.c.
 */
#include "engine/peer/peer.h"
#include "base/hot.h"
#include "base/error.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/ops/legs.h"
#include "engine/ops/transfer.h"
#include "engine/peer/directory.h"
#include "engine/peer/doubt.h"
#include "engine/peer/talk.h"
#include "engine/peer/label.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A path whose link is down takes frames without a word: who wonders whether the peer lives asks over every path of the
 * home, and once by each other group. Returns whether a path of the home took it. */
static bool ping_everywhere(struct wf_peer *peer)
{
	struct wf_group *home = peer->home;
	bool taken = false;

	for (uint32_t i = 0; i < home->seats; i++) {
		peer->talk_seat = (peer->talk_seat + 1) % home->seats;
		if (peer->lane[home->index]->path[peer->talk_seat].talks)
			taken |= !wf_peer_send_plain(peer, WF_FRAME_PING);
	}
	for (uint32_t g = 0; g < peer->engine->groups; g++)
		wf_peer_send_plain_by(peer, g, WF_FRAME_PING);
	return taken;
}

/* Every operation of the peer is told to stop; each ends when its memory is quiet. */
static void stop_operations(struct wf_peer *peer, int status, const char *text)
{
	struct wf_link *link;

	wf_channel_end_acked(peer); /* not those that the peer has already */
	link = peer->operations.next;
	snprintf(peer->down_text, sizeof(peer->down_text), "%s", text);
	while (link != &peer->operations) {
		struct wf_transfer *transfer = wf_container(link, struct wf_transfer, link);

		link = link->next;
		if (wf_transfer_stop(transfer, status))
			wf_transfer_stopped(transfer);
	}
	/* Expectations of its writes are at home in group 0. A reference keeps the peer until the note was heard. */
	atomic_store(&peer->gone_life, peer->life);
	wf_handle_ref(&peer->engine->peers, peer->handle);
	if (!wf_note_tell_value(peer->home, &peer->engine->group[0], &peer->gone_note, (uint64_t)-status))
		wf_handle_put(&peer->engine->peers, peer->handle); /* it was told before, with a reference */
}

/* A new number for the connection. The peer takes the highest that it hears for the latest, so one that was removed takes none: its
 * engine may be here a second time, added again with a lower number, whose greetings would be taken for old ones for ever.
 * Looked at after the number is drawn: the other one drew its own after the removal, so that either ours is lower or we see it. */
static void renew_epoch(struct wf_peer *peer)
{
	uint32_t epoch = atomic_fetch_add(&peer->engine->epochs, 1) + 1;

	if (wf_handle_peek(&peer->engine->peers, peer->handle))
		atomic_store(&peer->epoch, epoch);
}

/* The connection as it was is over: nothing of it is sent or delivered any more. */
static void end_epoch(struct wf_peer *peer, bool ours)
{
	if (ours)
		renew_epoch(peer);
	peer->their_epoch = 0;
	wf_channel_lose(peer);
	wf_channel_forget(peer);
	wf_legs_lost(peer);
}

static void close_lanes(struct wf_peer *peer)
{
	struct weft_engine *engine = peer->engine;

	peer->closing = true;
	peer->lanes_closing = engine->groups;
	for (uint32_t g = 0; g < engine->groups; g++)
		wf_note_tell(peer->home, &engine->group[g], &peer->lane[g]->close_note);
}

/* hello: at once, for there may be somebody else. A lane that has not heard of the last time yet does what we say now. */
static void tell_lanes_down(struct wf_peer *peer, bool hello)
{
	struct weft_engine *engine = peer->engine;

	for (uint32_t g = 0; g < engine->groups; g++)
		if (&engine->group[g] == peer->home)
			wf_lane_down(peer->lane[g], hello);
		else
			wf_note_tell_value(peer->home, &engine->group[g], &peer->lane[g]->down_note, hello);
}

void wf_peer_lane_closed(struct wf_peer *peer)
{
	if (--peer->lanes_closing)
		return;
	wf_timer_clear(&peer->home->worker.timers, &peer->tick);
	wf_peer_trust(peer);
	wf_list_remove(&peer->pumping);
	wf_list_remove(&peer->acking);
	wf_handle_put(&peer->engine->peers, peer->handle);
}

static void remove_peer(struct wf_peer *peer, int status)
{
	int was = atomic_load(&peer->state);

	if (peer->closing)
		return;
	if (was == WF_PEER_UP)
		wf_peer_send_plain(peer, WF_FRAME_BYE);
	atomic_store(&peer->state, WF_PEER_REMOVED);
	stop_operations(peer, status, "it was removed");
	end_epoch(peer, true);
	close_lanes(peer);
}

void wf_peer_down(struct wf_peer *peer, int status, const char *text)
{
	struct weft_engine *engine = peer->engine;
	struct weft_error error = { .scope = WEFT_SCOPE_PEER, .hint = wf_error_hint(status) };
	char label[WF_LABEL_BYTES];

	if (peer->closing || atomic_load(&peer->state) == WF_PEER_DOWN)
		return;
	snprintf(error.text, sizeof(error.text), "%s", text);
	atomic_store(&peer->state, WF_PEER_DOWN);
	stop_operations(peer, status, text);
	end_epoch(peer, true);
	wf_peer_name(peer, error.peer);
	wf_log(&engine->log, WEFT_LOG_WARN, "peer %s is down: %s", wf_peer_label(peer, label), text);
	wf_engine_announce(engine, WEFT_EVENT_PEER_DOWN, status, peer->handle, &error);
	if (wf_peer_retire(peer, true)) {
		/* It came by itself and goes by itself. */
		atomic_store(&peer->state, WF_PEER_REMOVED);
		close_lanes(peer);
	} else {
		tell_lanes_down(peer, false);
	}
}

/* The peer may be another engine by now. */
void wf_peer_process_ended(struct wf_peer *peer, uint64_t secret)
{
	if (secret == atomic_load(&peer->secret) && !atomic_load(&peer->replacements))
		wf_peer_down(peer, -EHOSTDOWN, "its process has ended");
}

/* What a REPLACE or RETRY asks for: the limit for its first answer counts from now. */
static void connect_again(struct wf_peer *peer, uint64_t now)
{
	atomic_store(&peer->state, WF_PEER_CONNECTING);
	atomic_store(&peer->asked_ns, 0);
	peer->since_ns = peer->heard_ns = now;
	tell_lanes_down(peer, true);
	wf_peer_set_tick(peer, now + peer->engine->settings.heartbeat_ns);
}

static void renewed(struct wf_peer *peer)
{
	/* Pairs with wf_peer_is_down(): the state is what it is to be. */
	atomic_fetch_sub(&peer->renewals, 1);
	wf_handle_put(&peer->engine->peers, peer->handle);
}

void wf_peer_changed(struct wf_peer *peer, enum wf_peer_change change)
{
	uint64_t now = wf_group_now(peer->home);

	switch (change) {
	case WF_PEER_OPEN:
		peer->since_ns = peer->heard_ns = now;
		if (!peer->closing)
			wf_peer_set_tick(peer, now + peer->engine->settings.heartbeat_ns);
		wf_handle_put(&peer->engine->peers, peer->handle);
		break;
	case WF_PEER_REMOVE:
		remove_peer(peer, -ECANCELED);
		break;
	case WF_PEER_CANCEL:
		stop_operations(peer, -ECANCELED, "");
		peer->life++;
		wf_handle_put(&peer->engine->peers, peer->handle);
		break;
	case WF_PEER_REPLACE:
		if (!peer->closing) {
			stop_operations(peer, -EHOSTDOWN, "it was replaced");
			end_epoch(peer, true);
			atomic_store_explicit(&peer->their_secret, 0, memory_order_relaxed); /* it was another's */
			connect_again(peer, now);
		}
		peer->life++;
		atomic_fetch_sub(&peer->replacements, 1);
		renewed(peer);
		break;
	case WF_PEER_RETRY:
		if (!peer->closing && atomic_load(&peer->state) == WF_PEER_DOWN)
			connect_again(peer, now);
		peer->life++;
		renewed(peer);
		break;
	}
}

void wf_peer_heard(struct wf_peer *peer, const struct wf_heard *heard)
{
	uint64_t now = wf_group_now(peer->home);

	/* With another secret it was said to a lane that had not yet heard that somebody else is the peer now. What the lanes
	 * hear before we are told to connect again would be over at once; then they say hello. */
	if (peer->closing || heard->incarnation != atomic_load(&peer->incarnation) ||
	    heard->ours != atomic_load(&peer->secret) || atomic_load(&peer->replacements) ||
	    (heard->kind == WF_FRAME_WELCOME && heard->to_epoch != atomic_load(&peer->epoch)))
		return;
	if (peer->their_epoch && heard->epoch != peer->their_epoch) {
		if ((int32_t)(heard->epoch - peer->their_epoch) < 0)
			return; /* an old hello that took its time */
		/* The peer ended the connection and starts a new one: so do we, under its new number. */
		if (atomic_load(&peer->state) == WF_PEER_UP) {
			stop_operations(peer, -EHOSTDOWN, "it gave up the connection and made a new one");
			end_epoch(peer, false);
		}
	}
	peer->their_epoch = heard->epoch;
	peer->their_handle = heard->handle;
	atomic_store_explicit(&peer->their_secret, heard->secret, memory_order_relaxed);
	peer->their_max_message = heard->max_message;
	peer->heard_ns = now;
	if (atomic_load(&peer->state) != WF_PEER_UP) {
		peer->pinged_ns = now; /* who waits for credit asks a heartbeat later, not at once */
		atomic_store(&peer->state, WF_PEER_UP);
		wf_engine_announce(peer->engine, WEFT_EVENT_PEER_UP, 0, peer->handle, NULL);
		wf_peer_set_tick(peer, now + peer->engine->settings.heartbeat_ns);
	}
	wf_channel_open(peer, heard->credit);
	wf_channel_pump(peer);
}

void wf_peer_heard_note(struct wf_heard_note *told)
{
	wf_peer_heard(told->peer, &told->heard);
	free(told);
}

void wf_peer_alive(struct wf_peer *peer)
{
	atomic_store_explicit(&peer->heard_ns, wf_group_now(peer->home), memory_order_relaxed);
}

void wf_peer_paths_changed(struct wf_peer *peer)
{
	/* What went over a path that failed may be lost: all that is not acknowledged goes again, over
	 * another. */
	if (!peer->closing && atomic_load(&peer->state) == WF_PEER_UP) {
		wf_channel_resend(peer);
		wf_channel_owe(peer); /* what was told over a path that failed may be lost */
	}
}

uint64_t wf_peer_last_sign_of_life(const struct wf_peer *peer)
{
	uint64_t last = atomic_load_explicit(&peer->heard_ns, memory_order_relaxed);

	for (uint32_t g = 0; g < peer->engine->groups; g++)
		for (uint32_t i = 0; i < peer->engine->group[g].seats; i++) {
			uint64_t moved = atomic_load_explicit(&peer->lane[g]->path[i].moved_ns, memory_order_relaxed);

			last = moved > last ? moved : last;
		}
	return last;
}

static void check_connection(struct wf_peer *peer, uint64_t now_ns)
{
	struct wf_settings *settings = &peer->engine->settings;
	uint64_t last = wf_peer_last_sign_of_life(peer), silent = now_ns > last ? now_ns - last : 0;
	char text[96];

	if (silent >= settings->peer_limit_ns) {
		snprintf(text, sizeof(text), "silent for %.1f s", (double)silent / 1e9);
		wf_peer_down(peer, -EHOSTDOWN, text);
		return;
	}
	/* The frame that brought credit may be lost, and while both sides write neither is silent: the answer brings it again. */
	if ((silent >= settings->heartbeat_ns || wf_channel_waits_for_credit(peer)) &&
	    now_ns - peer->pinged_ns >= settings->heartbeat_ns) {
		peer->pinged_ns = now_ns;
		/* A connection that is gone takes nothing, and an answer is due within a heartbeat. */
		if (!ping_everywhere(peer) || silent >= 2 * settings->heartbeat_ns)
			wf_peer_suspect(peer);
	}
	wf_channel_check_acks(peer, now_ns);
	wf_channel_check_owed(peer, now_ns);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* We stood still ourselves (stopped, swapped out): the peer's signs of life are in our queues, unread. Pardoned once per sign
 * of life: an engine that always comes late notices a dead peer, too. */
static void pardon(struct wf_peer *peer, uint64_t now_ns)
{
	if (wf_peer_last_sign_of_life(peer) > peer->pardoned_ns)
		peer->heard_ns = peer->pardoned_ns = now_ns - 1; /* what this turn reads comes after it */
}

/* A slow first connection is normal and not the peer's silence: its limit begins with the first hello that a provider took. One
 * that is not reached at all has the same time for that, so twice the limit ends it in any case. */
static uint64_t silent_from(const struct wf_peer *peer)
{
	uint64_t asked = atomic_load_explicit(&peer->asked_ns, memory_order_relaxed);

	return asked > peer->since_ns ? asked : peer->since_ns;
}

void wf_peer_tick(struct wf_timer *timer, uint64_t now_ns)
{
	struct wf_peer *peer = wf_container(timer, struct wf_peer, tick);
	struct wf_settings *settings = &peer->engine->settings;
	uint64_t next = now_ns + settings->heartbeat_ns;

	if (peer->closing)
		return;
	if (now_ns - timer->deadline_ns > settings->heartbeat_ns)
		pardon(peer, now_ns);
	if (atomic_load(&peer->state) == WF_PEER_CONNECTING) {
		uint64_t limit = silent_from(peer) + settings->peer_limit_ns;

		if (now_ns >= limit)
			wf_peer_down(peer, -EHOSTDOWN, "it never answered");
		else
			next = earlier(next, limit);
	}
	if (atomic_load(&peer->state) == WF_PEER_UP) {
		check_connection(peer, now_ns);
		next = earlier(next, wf_peer_last_sign_of_life(peer) + settings->peer_limit_ns);
		next = earlier(next, earlier(wf_channel_next_check(peer), wf_channel_next_owed(peer)));
	}
	if (!peer->closing)
		wf_timer_set(&peer->home->worker.timers, timer, next > now_ns ? next : now_ns + WF_MS);
}
