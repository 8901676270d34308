/*
 * Requests that do not complete in posting order: they wait for a first contact, a receiver that is not ready, a silent
 * path, a congested target, an injected delay. A heap by due time, so that ten thousand of them cost no more per poll
 * than one. Runs on the thread that reads the CQ.
 */
#include "prov.h"

#include <signal.h>

/* Orders by due time, then by posting order. */
static bool before(const struct endpoint *ep, uint32_t a, uint32_t b)
{
	const struct request *one = &ep->requests[ep->slow[a]], *two = &ep->requests[ep->slow[b]];

	return one->due < two->due || (one->due == two->due && one->number < two->number);
}

static uint64_t due_of(const struct endpoint *ep, uint32_t place)
{
	return ep->requests[ep->slow[place]].due;
}

static void swap(struct endpoint *ep, uint32_t a, uint32_t b)
{
	uint32_t index = ep->slow[a];

	ep->slow[a] = ep->slow[b];
	ep->slow[b] = index;
}

void slow_add(struct endpoint *ep, uint32_t index)
{
	uint32_t at = ep->slow_count++;

	ep->slow[at] = index;
	while (at && before(ep, at, (at - 1) / 2)) {
		swap(ep, at, (at - 1) / 2);
		at = (at - 1) / 2;
	}
}

static uint32_t slow_pop(struct endpoint *ep)
{
	uint32_t top = ep->slow[0], at = 0;

	ep->slow[0] = ep->slow[--ep->slow_count];
	for (;;) {
		uint32_t left = 2 * at + 1, least = at;

		if (left < ep->slow_count && before(ep, left, least))
			least = left;
		if (left + 1 < ep->slow_count && before(ep, left + 1, least))
			least = left + 1;
		if (least == at)
			return top;
		swap(ep, at, least);
		at = least;
	}
}

void ep_finish(struct endpoint *ep, uint32_t index)
{
	struct request *request = &ep->requests[index];
	struct completion completion = { .context = request->context,
					 .flags = request->flags,
					 .from = FI_ADDR_NOTAVAIL };

	if (request->completes == 1)
		cq_push(ep->tx_cq, &completion);
	ep_free_request(ep, index);
}

static int errno_of(int status)
{
	switch (status) {
	case EFA_FLUSHED:
		return FI_ECANCELED;
	case EFA_BAD_LKEY:
	case EFA_BAD_ADDRESS:
		return FI_EINVAL;
	case EFA_BAD_LENGTH:
	case EFA_REMOTE_LENGTH:
		return FI_EMSGSIZE;
	case EFA_BAD_QPN:
		return FI_ENOTCONN;
	case EFA_RNR:
		return FI_ENORX;
	case EFA_UNRESPONSIVE:
		return FI_ECONNABORTED;
	case EFA_UNREACHABLE:
		return FI_EHOSTUNREACH;
	default:
		return FI_EIO;
	}
}

/* EFA's provider numbers the messages to each address and delivers them in order. It never sends one again that the card gave up on. */
static void miss(struct peer *peer, const struct request *request)
{
	if (peer->generation == request->peer_generation && (!peer->missing || request->number < peer->missing))
		peer->missing = request->number;
}

/* Errors are reported even if no completion was asked for. */
void ep_finish_error(struct endpoint *ep, uint32_t index, int status)
{
	struct request *request = &ep->requests[index];
	struct fi_cq_err_entry error = {
		.op_context = request->context, .flags = request->flags, .err = errno_of(status), .prov_errno = status
	};

	/* Real providers were seen to do this: shm of libfabric 1.17 the first two, tcp the third. */
	if (UNLIKELY(request->fault == SIM_FAULT_ANONYMOUS))
		error.op_context = NULL;
	if (UNLIKELY(request->fault == SIM_FAULT_NEGATIVE))
		error.err = -error.err;
	cq_push_error(ep->tx_cq, &error);
	if (UNLIKELY(request->fault == SIM_FAULT_TWICE))
		cq_push_error(ep->tx_cq, &error);
	if (ep->dom->numbers && request->kind == REQ_SEND)
		miss(&ep->av->peers[request->peer], request);
	ep_free_request(ep, index);
}

/* First contact is over, or still not made. Returns true if the request may go on to delivery. */
static bool launch_again(struct endpoint *ep, uint32_t index, uint64_t now)
{
	struct request *request = &ep->requests[index];
	struct peer *peer = &ep->av->peers[request->peer];
	uint64_t limit = sim_ticks_of_ns(ep->dom->config->spec.unresponsive_ns);

	if (peer->generation != request->peer_generation) {
		if (ep->dom->forgets) {
			request->completes = 0;
			ep_finish(ep, index);
		} else {
			ep_finish_error(ep, index, EFA_UNKNOWN_PEER);
		}
		return false;
	}
	if (peer->state == PEER_ABSENT && peer_resolve(peer))
		peer->state = PEER_READY;
	if (peer->state == PEER_ABSENT) {
		bool refused = !kill(peer->address.pid, 0); /* its host is up, the queue pair is not */

		if (!request->since)
			request->since = now;
		if (refused || (limit != UINT64_MAX && now - request->since >= limit)) {
			peer->waiting -= request->held;
			peer->delivered += request->ordered;
			ep_finish_error(ep, index, refused ? EFA_BAD_QPN : EFA_UNRESPONSIVE);
		} else {
			request->due = now + sim_ticks_of_ns(100000) + 1;
			slow_add(ep, index);
		}
		return false;
	}
	if (peer->state == PEER_CONTACTING)
		peer->state = PEER_READY;
	peer->waiting -= request->held;
	request->held = 0;
	ep_launch_one(ep, request, peer, now);
	if (request->due <= now)
		return true;
	slow_add(ep, index);
	return false;
}

void slow_progress(struct endpoint *ep, uint64_t now)
{
	struct guard guard = { 0 };
	uint32_t budget = ep->slow_count;
	int status;

	/* Each request at most once per call: one that goes back with a later time must not be met again. */
	while (budget-- && ep->slow_count && due_of(ep, 0) <= now) {
		uint32_t index = slow_pop(ep);

		if (ep->requests[index].stage == STAGE_LAUNCH && !launch_again(ep, index, now))
			continue;
		switch (deliver(ep, &ep->requests[index], now, &guard, &status)) {
		case OUT_DONE:
			ep_finish(ep, index);
			break;
		case OUT_WAIT:
			slow_add(ep, index);
			break;
		case OUT_ERROR:
			ep_finish_error(ep, index, status);
			break;
		case OUT_SILENT: /* keeps its place in the queue until the endpoint closes, as on the device */
			break;
		}
	}
	guard_release(&guard);
}
