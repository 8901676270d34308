/*
 * Whether a peer that says nothing is dead. A process that dies closes its sockets, but over tcp no completion and no event tells
 * of it while nothing is in flight, and what is posted later is refused as if it were connecting. Its kernel is asked instead: a
 * peer is down when each of its rails that ever answered refuses connections, twice in a row, with no sign of life
 * meanwhile. One that is stopped, busy or behind a broken link refuses nothing: its heartbeat decides. Runs on the home.
 */
#include "engine/peer/doubt.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/peer/peer.h"

#include <errno.h>

#define CHECK_NS  (5 * WF_MS)
#define ANSWER_NS (1 * WF_S)    /* no answer by then: it cannot be told */
#define AGAIN_NS  (250 * WF_MS) /* a peer that reopens its rails listens again by then, and has told us where */
#define AT_A_TIME 8             /* peers doubted by one worker: each takes a descriptor for each rail */

static void end_knock(struct wf_peer *peer)
{
	if (!peer->knock)
		return;
	wf_knock_close(peer->knock);
	peer->knock = NULL;
	peer->home->knocking--;
}

void wf_peer_trust(struct wf_peer *peer)
{
	end_knock(peer);
	wf_timer_clear(&peer->home->worker.timers, &peer->doubt);
	peer->refusals = 0;
}

static void knock(struct wf_peer *peer)
{
	const struct wf_book *book = peer->lane[peer->home->index]->book;
	uint64_t met = atomic_load(&peer->met);

	if (peer->home->knocking == AT_A_TIME || !(peer->knock = wf_knock_open()))
		return; /* the next tick asks again */
	peer->home->knocking++;
	peer->knocked_ns = wf_group_now(peer->home);
	peer->knocks++;
	for (uint32_t i = 0; i < book->count; i++)
		if (met >> i & 1)
			wf_knock_at(peer->knock, book->rail[i].address, book->rail[i].bytes);
}

static void again(struct wf_peer *peer, uint64_t now_ns)
{
	end_knock(peer);
	wf_timer_set(&peer->home->worker.timers, &peer->doubt, now_ns + AGAIN_NS);
}

static void refused(struct wf_peer *peer, uint64_t now_ns)
{
	if (!peer->refusals++) {
		again(peer, now_ns);
		return;
	}
	wf_peer_trust(peer);
	wf_peer_down(peer, -EHOSTDOWN, "nobody listens at its addresses any more");
}

static void check_answer(struct wf_peer *peer, uint64_t now_ns)
{
	enum wf_knock_answer answer = peer->knock ? wf_knock_look(peer->knock) : WF_KNOCK_ANSWERED;

	if (answer == WF_KNOCK_REFUSED)
		refused(peer, now_ns);
	else if (answer == WF_KNOCK_WAITING && now_ns - peer->knocked_ns < ANSWER_NS)
		wf_timer_set(&peer->home->worker.timers, &peer->doubt, now_ns + CHECK_NS);
	else if (peer->knocks > 1)
		wf_peer_trust(peer);
	else
		again(peer, now_ns); /* a dying process closes one socket after the other */
}

void wf_peer_doubt(struct wf_timer *timer, uint64_t now_ns)
{
	struct wf_peer *peer = wf_container(timer, struct wf_peer, doubt);

	if (peer->closing || atomic_load(&peer->state) != WF_PEER_UP ||
	    wf_peer_last_sign_of_life(peer) > peer->doubted_ns) {
		wf_peer_trust(peer);
		return;
	}
	if (!peer->knock)
		knock(peer);
	check_answer(peer, now_ns);
}

void wf_peer_suspect(struct wf_peer *peer)
{
	uint64_t now_ns = wf_group_now(peer->home);

	if (peer->knock || wf_link_linked(&peer->doubt.link) || peer->closing ||
	    atomic_load(&peer->state) != WF_PEER_UP || !peer->home->seat[0].limits.sockets || !atomic_load(&peer->met))
		return;
	peer->doubted_ns = now_ns;
	peer->refusals = peer->knocks = 0;
	knock(peer);
	check_answer(peer, now_ns);
}
