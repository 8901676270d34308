/*
 * What happens to a peer, on its home worker: a connection comes up, goes silent, goes down, comes back under a new
 * epoch. How peers come and go is in directory.c.
 */
#include "engine/peer.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESEND_NS (200 * WF_MS) /* nothing acknowledged for so long: send it again */

/* ---- frames out of turn ---- */

static int send_here(struct wf_peer *peer, struct wf_tx_frame *tx)
{
	struct wf_group *home = peer->home;
	struct wf_lane *lane = peer->lane[home->index];
	int error, place;

	for (uint32_t i = 0; i < home->seats && (place = wf_lane_any_path(lane, peer->talk_seat)) >= 0; i++) {
		struct wf_path *path = &lane->path[place];
		struct wf_seat *seat = &home->seat[place];

		peer->talk_seat = (uint32_t)place;
		error = wf_seat_send(seat, WF_PUBLISHED, lane, path->talk, tx);
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
	void *copy;

	if (&engine->group[group] == peer->home || !atomic_load(&peer->lane[group]->paths_talking))
		return -ENETDOWN;
	copy = malloc(bytes);
	if (!copy)
		return -EAGAIN;
	memcpy(copy, sealed, bytes);
	wf_group_tell(peer->home, &engine->group[group], WF_NOTE_SEND, peer->lane[group], (uintptr_t)copy);
	return 0;
}

/* No rail of the home reaches the peer, but another group's may: the next one each time nothing was acknowledged, for one that
 * swallows frames does not know. */
static int send_elsewhere(struct wf_peer *peer, const struct wf_frame *sealed)
{
	uint32_t groups = peer->engine->groups;
	int error = -ENETDOWN;

	for (uint32_t i = 0; i < groups && error == -ENETDOWN; i++)
		error = send_by(peer, (uint32_t)((peer->channel.agains + i) % groups), sealed);
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

/* ---- the home's side ---- */

/* Every operation of the peer is told to stop; each ends when its memory is quiet. */
static void stop_operations(struct wf_peer *peer, int why, const char *text)
{
	struct wf_link *link;

	wf_channel_settle(peer); /* not those that the peer has already */
	link = peer->operations.next;
	snprintf(peer->why, sizeof(peer->why), "%s", text);
	while (link != &peer->operations) {
		struct wf_transfer *transfer = wf_container(link, struct wf_transfer, link);

		link = link->next;
		if (wf_transfer_stop(transfer, why))
			wf_transfer_stopped(transfer);
	}
}

static void lose_all(struct wf_link *messages)
{
	while (!wf_list_empty(messages)) {
		struct wf_message *message = wf_container(messages->next, struct wf_message, link);

		wf_list_remove(&message->link);
		message->over(message, -EHOSTDOWN);
	}
}

/* The connection as it was is over: nothing of it is sent or delivered any more. */
static void end_epoch(struct wf_peer *peer, bool ours)
{
	struct wf_channel *channel = &peer->channel;

	if (ours)
		atomic_store(&peer->epoch, atomic_fetch_add(&peer->engine->epochs, 1) + 1);
	peer->their_epoch = 0;
	lose_all(&channel->queue);
	lose_all(&channel->waiting);
	wf_channel_drop_inbound(peer);
	wf_channel_reset(channel);
	channel->base = atomic_load_explicit(&peer->taken, memory_order_relaxed);
	wf_list_remove(&peer->pumping);
	wf_list_remove(&peer->acking);
}

static void close_lanes(struct wf_peer *peer)
{
	struct weft_engine *engine = peer->engine;

	peer->closing = true;
	peer->lanes_closing = engine->groups;
	for (uint32_t g = 0; g < engine->groups; g++)
		wf_group_tell(peer->home, &engine->group[g], WF_NOTE_LANE_CLOSE, peer->lane[g], 0);
}

/* now: say hello at once. */
static void quiet_lanes(struct wf_peer *peer, bool now)
{
	struct weft_engine *engine = peer->engine;

	for (uint32_t g = 0; g < engine->groups; g++)
		wf_group_tell(peer->home, &engine->group[g], WF_NOTE_LANE_QUIET, peer->lane[g], now);
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

static void remove_peer(struct wf_peer *peer, int why)
{
	int was = atomic_load(&peer->state);

	if (peer->closing)
		return;
	if (was == WF_PEER_UP)
		wf_peer_send_plain(peer, WF_FRAME_BYE);
	atomic_store(&peer->state, WF_PEER_REMOVED);
	stop_operations(peer, why, "it was removed");
	end_epoch(peer, true);
	close_lanes(peer);
}

void wf_peer_down(struct wf_peer *peer, int why, const char *text)
{
	struct weft_engine *engine = peer->engine;
	struct weft_error error = { .scope = WEFT_SCOPE_PEER };
	weft_peer handle = peer->handle;

	if (peer->closing || atomic_load(&peer->state) == WF_PEER_DOWN)
		return;
	wf_handle_ref(&engine->peers, handle); /* this may be the end of it */
	snprintf(error.text, sizeof(error.text), "%s", text);
	atomic_store(&peer->state, WF_PEER_DOWN);
	stop_operations(peer, why, text);
	end_epoch(peer, true);
	wf_log(&engine->log, WEFT_LOG_WARN, "peer %llx is down: %s", (unsigned long long)peer->handle, text);
	wf_engine_notice(engine, WEFT_EVENT_PEER_DOWN, why, peer->handle, &error);
	if (wf_peer_retire(peer, true)) {
		/* It came by itself and goes by itself. */
		atomic_store(&peer->state, WF_PEER_REMOVED);
		close_lanes(peer);
	} else {
		quiet_lanes(peer, false);
	}
	wf_handle_put(&engine->peers, handle);
}

/* What a REPLACE or RETRY asks for: the limit for its first answer counts from now. */
static void connect_again(struct wf_peer *peer, uint64_t now)
{
	atomic_store(&peer->state, WF_PEER_CONNECTING);
	peer->since_ns = peer->heard_ns = now;
	quiet_lanes(peer, true);
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
		wf_handle_put(&peer->engine->peers, peer->handle);
		break;
	case WF_PEER_REPLACE:
		if (!peer->closing) {
			stop_operations(peer, -EHOSTDOWN, "it was replaced");
			end_epoch(peer, true);
			atomic_store_explicit(&peer->their_secret, 0, memory_order_relaxed); /* it was another's */
			connect_again(peer, now);
		}
		atomic_fetch_sub(&peer->replacements, 1);
		renewed(peer);
		break;
	case WF_PEER_RETRY:
		if (!peer->closing && atomic_load(&peer->state) == WF_PEER_DOWN)
			connect_again(peer, now);
		renewed(peer);
		break;
	}
}

void wf_peer_heard(struct wf_peer *peer, const struct wf_heard *heard)
{
	uint64_t now = wf_group_now(peer->home);

	/* Of another secret: said to a lane that had not yet heard that somebody else is the peer now. And what the lanes hear
	 * before we are told to connect again would be over at once; then they say hello. */
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
	if (heard->credit > peer->channel.credit)
		peer->channel.credit = heard->credit;
	peer->heard_ns = now;
	if (atomic_load(&peer->state) != WF_PEER_UP) {
		peer->pinged_ns = now; /* who waits for credit asks a heartbeat later, not at once */
		atomic_store(&peer->state, WF_PEER_UP);
		wf_engine_notice(peer->engine, WEFT_EVENT_PEER_UP, 0, peer->handle, NULL);
		wf_peer_set_tick(peer, now + peer->engine->settings.heartbeat_ns);
		wf_channel_opened(peer);
	}
	wf_channel_pump(peer);
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
		wf_channel_again(peer);
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

/* Nothing of the last frames was acknowledged: over another path this time. One that swallows frames for as long as a rail
 * may be silent, while the peer is heard from elsewhere, carries nothing until a hello over it is answered. */
static void send_again(struct wf_peer *peer)
{
	struct wf_lane *lane = peer->lane[peer->home->index];
	struct wf_path *path = &lane->path[peer->talk_seat];

	if (++peer->channel.agains * RESEND_NS >= peer->engine->settings.rail_limit_ns && path->talks)
		wf_lane_talk_failed(lane, path, "frames over it were not acknowledged");
	peer->talk_seat = (peer->talk_seat + 1) % peer->home->seats;
	wf_channel_again(peer);
}

static bool waits_for_credit(const struct wf_peer *peer)
{
	const struct wf_channel *channel = &peer->channel;

	return channel->sent >= channel->credit && (channel->current || !wf_list_empty(&channel->waiting));
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
	if ((silent >= settings->heartbeat_ns || waits_for_credit(peer)) &&
	    now_ns - peer->pinged_ns >= settings->heartbeat_ns) {
		peer->pinged_ns = now_ns;
		/* A connection that is gone takes nothing, and an answer is due within a heartbeat. */
		if (!ping_everywhere(peer) || silent >= 2 * settings->heartbeat_ns)
			wf_peer_suspect(peer);
	}
	if (peer->channel.acked < peer->channel.sent && now_ns - peer->channel.moved_ns >= RESEND_NS)
		send_again(peer);
	if (peer->channel.ack_soon && now_ns >= peer->channel.ack_soon_ns)
		wf_channel_acknowledge(peer);
	/* Less than a step was read since, or there was no way to say so. */
	if (wf_channel_credit_is_news(peer))
		wf_channel_owe(peer);
}

void wf_peer_tick(struct wf_timer *timer, uint64_t now_ns)
{
	struct wf_peer *peer = wf_container(timer, struct wf_peer, tick);
	struct wf_settings *settings = &peer->engine->settings;
	struct wf_handles *peers = &peer->engine->peers;
	uint64_t next = now_ns + settings->heartbeat_ns;
	weft_peer handle = peer->handle;

	if (peer->closing)
		return;
	wf_handle_ref(peers, handle); /* going down may be the end of it */
	/* We stood still ourselves (stopped, swapped out): the peer's signs of life are in our queues,
	 * unread. */
	if (now_ns - timer->deadline_ns > settings->heartbeat_ns)
		peer->heard_ns = now_ns;
	if (atomic_load(&peer->state) == WF_PEER_CONNECTING) {
		if (now_ns - peer->since_ns >= settings->peer_limit_ns)
			wf_peer_down(peer, -EHOSTDOWN, "it never answered");
		else if (next > peer->since_ns + settings->peer_limit_ns)
			next = peer->since_ns + settings->peer_limit_ns;
	}
	if (atomic_load(&peer->state) == WF_PEER_UP) {
		check_connection(peer, now_ns);
		if (next > wf_peer_last_sign_of_life(peer) + settings->peer_limit_ns)
			next = wf_peer_last_sign_of_life(peer) + settings->peer_limit_ns;
		if (peer->channel.acked < peer->channel.sent && next > peer->channel.moved_ns + RESEND_NS)
			next = peer->channel.moved_ns + RESEND_NS;
		if (peer->channel.ack_soon && next > peer->channel.ack_soon_ns)
			next = peer->channel.ack_soon_ns;
	}
	if (!peer->closing)
		wf_timer_set(&peer->home->worker.timers, timer, next > now_ns ? next : now_ns + WF_MS);
	wf_handle_put(peers, handle);
}
