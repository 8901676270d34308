/*
 * The doorbell: gives posted requests their time on the wire. Runs on the posting thread; the hot path.
 *
 * A NIC's egress keeps a virtual time: vt = max(vt, now), then each request adds max(bytes / rate, op cost). The
 * target's ingress keeps one too, shared by all its senders. A request is due one latency after both have carried it.
 * Late posts lose rate, as on hardware.
 *
 * The order array is the completion order. Due times belong to positions in it, not to requests, so reordering swaps
 * two requests and the head is always the next one due. A request that would hold up the others (first contact, a
 * congested target) leaves the array for the heap of slow.c.
 */
#include "prov.h"

static inline uint64_t cost_of(const struct domain *dom, uint64_t ticks_per_byte, uint64_t bytes)
{
	uint64_t cost = (bytes * ticks_per_byte + (1u << (FIXED_SHIFT - 1))) >> FIXED_SHIFT;

	return cost > dom->op_ticks ? cost : dom->op_ticks;
}

/* Takes `cost` ticks of an ingress, from `from` on; returns where they start. */
static inline uint64_t claim(_Atomic uint64_t *time, uint64_t from, uint64_t cost)
{
	uint64_t old = atomic_load_explicit(time, memory_order_relaxed), start;

	do
		start = old > from ? old : from;
	while (!atomic_compare_exchange_weak_explicit(time, &old, start + cost, memory_order_relaxed,
						      memory_order_relaxed));
	return start;
}

static inline uint64_t latency(struct domain *dom)
{
	uint64_t ticks = dom->latency_ticks;

	if (UNLIKELY(dom->jitter_ticks))
		ticks += dom_random(dom) % (dom->jitter_ticks + 1);
	return ticks;
}

/* Returns the limiting ingress: the target's for what we send, our own for what we read. */
static inline _Atomic uint64_t *ingress(struct domain *dom, struct peer *peer, enum request_kind kind)
{
	return kind == REQ_READ ? &dom->wire->receive_time : &peer->nic->receive_time;
}

void ep_launch_one(struct endpoint *ep, struct request *request, struct peer *peer, uint64_t now)
{
	struct domain *dom = ep->dom;
	uint64_t slow = fault_active(dom) ? fault_slowness(dom, peer) : 1;
	uint64_t start = dom->virtual_time > now ? dom->virtual_time : now;
	uint64_t cost = cost_of(dom, dom->ticks_per_byte, request->bytes) * slow;
	uint64_t rate = atomic_load_explicit(&peer->nic->ticks_per_byte, memory_order_relaxed);
	uint64_t remote_cost = cost_of(dom, rate, request->bytes) * slow;
	uint64_t end, respond;

	request->stage = STAGE_DELIVER;
	if (dom->config->spec.timeless) {
		request->due = now;
	} else {
		end = claim(ingress(dom, peer, request->kind), start, request->kind == REQ_READ ? cost : remote_cost) +
		      (request->kind == REQ_READ ? cost : remote_cost);
		if (request->kind == REQ_READ) {
			respond = claim(&peer->nic->respond_time, start, remote_cost) + remote_cost;
			if (respond > end)
				end = respond;
		} else {
			dom->virtual_time = start + cost;
			if (dom->virtual_time > end)
				end = dom->virtual_time;
		}
		request->due = end + latency(dom);
	}
	if (request->fault == SIM_FAULT_DELAY)
		request->due = (request->due > now ? request->due : now) + sim_ticks_of_ns(request->fault_argument);
}

/* Swaps the newest position with one of the last few, unless either must keep its place. */
static inline void reorder(struct endpoint *ep, uint32_t at)
{
	uint64_t window = ep->dom->config->spec.reorder, room = at - ep->head;
	uint32_t other, mine = ep->order[at & ep->mask], theirs;
	uint64_t due;

	if (room > window)
		room = window;
	if (!room)
		return;
	/* A multiplication instead of a remainder: a division costs as much as the rest of this function. */
	other = at - (uint32_t)(((dom_random(ep->dom) >> 32) * (room + 1)) >> 32);
	theirs = ep->order[other & ep->mask];
	if (other == at || ep->requests[mine].ordered || ep->requests[theirs].ordered)
		return;
	due = ep->requests[mine].due;
	ep->requests[mine].due = ep->requests[theirs].due;
	ep->requests[theirs].due = due;
	ep->order[at & ep->mask] = theirs;
	ep->order[other & ep->mask] = mine;
}

/* First contact: requests wait for the handshake, then launch. Returns false if the peer needs none. */
static bool contact(struct endpoint *ep, struct request *request, struct peer *peer, uint64_t now)
{
	uint64_t wait = sim_ticks_of_ns(ep->dom->config->spec.handshake_ns);

	if (peer->state == PEER_NEW || peer->state == PEER_ABSENT) {
		if (peer_resolve(peer)) {
			peer->state = wait ? PEER_CONTACTING : PEER_READY;
			peer->contact_at = peer->alive_at = now + wait;
		} else {
			peer->state = PEER_ABSENT;
			peer->contact_at = now + sim_ticks_of_ns(100000);
		}
	}
	if (peer->state == PEER_READY)
		return false;
	request->stage = STAGE_LAUNCH;
	request->due = peer->contact_at;
	return true;
}

/* Returns true if the request was put aside because it cannot go in posting order. */
static bool put_aside(struct endpoint *ep, uint32_t index, struct request *request, struct peer *peer, uint64_t now)
{
	struct domain *dom = ep->dom;

	if (dom->config->spec.timeless)
		now = sim_ticks();
	if (peer->generation != request->peer_generation) { /* removed since it was posted: delivery will report it */
		request->stage = STAGE_DELIVER;
		request->due = now;
		slow_add(ep, index);
		return true;
	}
	if (fault_active(dom))
		fault_mark(ep, request, peer);
	if (peer->state != PEER_READY && contact(ep, request, peer, now)) {
		slow_add(ep, index);
		return true;
	}
	peer->waiting -= request->held;
	request->held = 0;
	if (!fault_active(dom))
		return false;
	ep_launch_one(ep, request, peer, now);
	slow_add(ep, index);
	return true;
}

/* Launches a run of requests of one kind to one peer, [at, end), with one claim on the far side for all of them. */
static void launch_run(struct endpoint *ep, uint32_t at, uint32_t end, struct peer *peer, uint64_t now)
{
	struct domain *dom = ep->dom;
	enum request_kind kind = ep->requests[ep->order[at & ep->mask]].kind;
	uint64_t rate = atomic_load_explicit(&peer->nic->ticks_per_byte, memory_order_relaxed);
	uint64_t there, here = dom->virtual_time > now ? dom->virtual_time : now, total = 0;
	uint64_t bytes = UINT64_MAX, cost = 0, remote_cost = 0; /* of the previous request, mostly the same size */
	bool reads = kind == REQ_READ, steady = !dom->jitter_ticks;

	for (uint32_t i = at; i != end; i++) {
		const struct request *request = &ep->requests[ep->order[i & ep->mask]];

		if (UNLIKELY(request->bytes != bytes)) {
			bytes = request->bytes;
			remote_cost = cost_of(dom, rate, bytes);
		}
		total += remote_cost;
	}
	there = claim(reads ? &peer->nic->respond_time : &peer->nic->receive_time, here, total);
	if (reads)
		here = claim(&dom->wire->receive_time, now, total);
	for (uint32_t i = at; i != end; i++) {
		struct request *request = &ep->requests[ep->order[i & ep->mask]];

		if (UNLIKELY(request->bytes != bytes || i == at)) {
			bytes = request->bytes;
			cost = cost_of(dom, dom->ticks_per_byte, bytes);
			remote_cost = cost_of(dom, rate, bytes);
		}
		here += cost;
		there += remote_cost;
		request->stage = STAGE_DELIVER;
		request->due = (here > there ? here : there) + (LIKELY(steady) ? dom->latency_ticks : latency(dom));
	}
	if (!reads)
		dom->virtual_time = here;
}

/*
 * The caller has let go of an injected message, and may never read the CQ for it: it is handed over now and becomes
 * visible at the other side when due. Returns true if that completed it.
 */
static bool hand_over(struct endpoint *ep, uint32_t index, uint64_t now)
{
	struct request *request = &ep->requests[index];
	struct peer *peer = &ep->av->peers[request->peer];
	struct guard guard = { 0 };
	int status;

	if (request->completes || request->kind != REQ_SEND || (request->ordered && request->order != peer->delivered))
		return false;
	switch (deliver(ep, request, now, &guard, &status)) {
	case OUT_DONE:
		ep_free_request(ep, index);
		break;
	case OUT_WAIT:
		slow_add(ep, index);
		break;
	case OUT_ERROR:
		ep_finish_error(ep, index, status);
		break;
	case OUT_SILENT:
		break;
	}
	return true;
}

/* Places a launched run at the end of the completion order; requests that a congested target delays by much are put
 * aside. */
static uint32_t place_run(struct endpoint *ep, uint32_t at, uint32_t end, uint32_t place, uint64_t now,
			  uint64_t *last_due)
{
	struct domain *dom = ep->dom;
	uint64_t soon = now + dom->latency_ticks, patience = dom->jitter_ticks + dom->patience_ticks;

	for (; at != end; at++) {
		uint32_t index = ep->order[at & ep->mask];
		struct request *request = &ep->requests[index];
		uint64_t expected = (*last_due > soon ? *last_due : soon) + patience;

		if (UNLIKELY(request->due > expected) && !request->ordered &&
		    request->due > expected + cost_of(dom, dom->ticks_per_byte, request->bytes)) {
			slow_add(ep, index);
			continue;
		}
		if (request->due < *last_due)
			request->due = *last_due;
		if (UNLIKELY(request->bounce >= 0) && hand_over(ep, index, now))
			continue;
		*last_due = request->due;
		ep->order[place & ep->mask] = index;
		if (dom->config->spec.reorder)
			reorder(ep, place);
		place++;
	}
	return place;
}

void ep_ring(struct endpoint *ep)
{
	struct domain *dom = ep->dom;
	bool timeless = dom->config->spec.timeless;
	uint64_t now = timeless ? 0 : sim_ticks();
	uint64_t last_due = ep->rung != ep->head ? ep->last_due : 0;
	uint32_t place = ep->rung, at = ep->rung;

	while (at != ep->tail) {
		uint32_t index = ep->order[at & ep->mask], end;
		struct request *request = &ep->requests[index];
		struct peer *peer = &ep->av->peers[request->peer];

		if (UNLIKELY(peer->state != PEER_READY || fault_active(dom) || request->held)) {
			if (put_aside(ep, index, request, peer, now)) {
				at++;
				continue;
			}
		}
		if (timeless) {
			request->stage = STAGE_DELIVER;
			request->due = 0;
			at++;
			if (LIKELY(request->bounce < 0) || !hand_over(ep, index, 0))
				ep->order[place++ & ep->mask] = index;
			continue;
		}
		for (end = at + 1; end != ep->tail; end++) {
			struct request *next = &ep->requests[ep->order[end & ep->mask]];

			if (next->peer != request->peer || next->kind != request->kind || next->held)
				break;
		}
		launch_run(ep, at, end, peer, now);
		place = place_run(ep, at, end, place, now, &last_due);
		at = end;
	}
	ep->last_due = last_due;
	ep->rung = ep->tail = place;
}
