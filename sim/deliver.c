/*
 * Moves the bytes of a request that is due. Runs on the thread that reads the sender's CQ, so a source buffer that is
 * reused before its completion arrives changed at the other side: that is the purpose of copying late.
 */
#include "prov.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define EDGE 64u /* bytes that copy=edges moves at each end */

void guard_release(struct guard *guard)
{
	if (guard->mr)
		atomic_fetch_sub_explicit(&guard->mr->users, 1, memory_order_release);
	guard->mr = NULL;
}

/* Counts us into the region, so that closing it waits. Returns false if it was closed first. */
static bool guard_take(struct guard *guard, struct wire_mr *mr, uint32_t key)
{
	if (LIKELY(guard->mr == mr))
		return true;
	guard_release(guard);
	/* Sequentially consistent, then look again: pairs with mr_close. */
	atomic_fetch_add(&mr->users, 1);
	guard->mr = mr;
	if (LIKELY(atomic_load(&mr->key) == key))
		return true;
	guard_release(guard);
	return false;
}

static void copy_local(const struct iovec *to, size_t to_count, const struct iovec *from, size_t from_count)
{
	size_t i = 0, j = 0, at_to = 0, at_from = 0;

	while (i < to_count && j < from_count) {
		size_t n = to[i].iov_len - at_to, left = from[j].iov_len - at_from;

		if (left < n)
			n = left;
		if (n)
			memmove((char *)to[i].iov_base + at_to, (char *)from[j].iov_base + at_from, n);
		at_to += n;
		at_from += n;
		if (at_to == to[i].iov_len) {
			i++;
			at_to = 0;
		}
		if (j < from_count && at_from == from[j].iov_len) {
			j++;
			at_from = 0;
		}
	}
}

/* Copies to the peer's memory, or from it. Returns 0, or the status that the NIC would report. */
static int move(struct peer *peer, const struct iovec *mine, size_t mine_count, const struct iovec *theirs,
		size_t theirs_count, bool outward)
{
	ssize_t n;

	if (LIKELY(peer->local)) {
		if (outward)
			copy_local(theirs, theirs_count, mine, mine_count);
		else
			copy_local(mine, mine_count, theirs, theirs_count);
		return 0;
	}
	if (outward)
		n = process_vm_writev(peer->address.pid, mine, mine_count, theirs, theirs_count, 0);
	else
		n = process_vm_readv(peer->address.pid, mine, mine_count, theirs, theirs_count, 0);
	if (n >= 0)
		return 0;
	if (errno == ESRCH) {
		peer->dead = 1;
		return EFA_UNRESPONSIVE;
	}
	if (errno != EFAULT)
		sim_log("cannot reach the memory of process %d: %s", (int)peer->address.pid, strerror(errno));
	return EFA_BAD_ADDRESS;
}

/* Copies between one contiguous range of theirs and our list, as much of it as copy= says. */
static int move_range(const struct domain *dom, struct peer *peer, const struct request *request, bool outward)
{
	struct iovec theirs = { (void *)(uintptr_t)request->remote, request->bytes };
	struct iovec mine[2], edges[2];

	if (dom->copy == SIM_COPY_NONE || !request->bytes)
		return 0;
	if (dom->copy == SIM_COPY_FULL || request->count != 1 || request->bytes <= 2 * EDGE)
		return move(peer, request->iov, request->count, &theirs, 1, outward);
	mine[0] = (struct iovec){ request->iov[0].iov_base, EDGE };
	mine[1] = (struct iovec){ (char *)request->iov[0].iov_base + request->bytes - EDGE, EDGE };
	edges[0] = (struct iovec){ theirs.iov_base, EDGE };
	edges[1] = (struct iovec){ (char *)theirs.iov_base + request->bytes - EDGE, EDGE };
	return move(peer, mine, 2, edges, 2, outward);
}

static bool local_keys_good(const struct domain *dom, const struct request *request)
{
	for (size_t i = 0; i < request->count; i++)
		if (request->local_key[i] && request->iov[i].iov_len &&
		    !mr_find(dom->wire, request->local_key[i], (uintptr_t)request->iov[i].iov_base,
			     request->iov[i].iov_len, 0))
			return false;
	return true;
}

static void push_immediate(struct endpoint *ep, struct request *request, struct peer *peer)
{
	struct wire_arrival arrival = { .event = WIRE_IMMEDIATE,
					.bytes = request->bytes,
					.data = (uint32_t)request->data,
					.has_data = 1,
					.from = ep->wire->address };

	wire_push_arrival(peer->ep, &arrival);
	if (UNLIKELY(request->fault == SIM_FAULT_DUP))
		wire_push_arrival(peer->ep, &arrival);
}

static enum outcome deliver_rma(struct endpoint *ep, struct request *request, struct peer *peer, struct guard *guard,
				int *ret_status)
{
	struct domain *dom = ep->dom;
	bool outward = request->kind == REQ_WRITE;
	struct wire_mr *mr = mr_find(peer->nic, request->key, request->remote, request->bytes,
				     outward ? FI_REMOTE_WRITE : FI_REMOTE_READ);

	if (UNLIKELY(!mr || !local_keys_good(dom, request))) {
		if (dom->strict && !mr && request->key && MR_NIC_OF(request->key) != peer->nic->nic)
			strict_fail("key %#x belongs to NIC %u of the peer, used towards its NIC %u", request->key,
				    MR_NIC_OF(request->key), peer->nic->nic);
		*ret_status = mr ? EFA_BAD_LKEY : EFA_BAD_ADDRESS;
		return OUT_ERROR;
	}
	if (dom->copy != SIM_COPY_NONE) {
		if (UNLIKELY(!guard_take(guard, mr, request->key)))
			*ret_status = EFA_BAD_ADDRESS;
		else
			*ret_status = move_range(dom, peer, request, outward);
		if (UNLIKELY(*ret_status))
			return OUT_ERROR;
	}
	if (request->has_data)
		push_immediate(ep, request, peer);
	peer->landed = 1;
	return OUT_DONE;
}

static size_t total_of(const struct iovec *iov, size_t count)
{
	size_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

/* The receiver has no buffer: backs off, longer each time, then gives up. */
static enum outcome back_off(struct endpoint *ep, struct request *request, struct peer *peer, uint64_t now,
			     int *ret_status)
{
	const struct sim_spec *spec = &ep->dom->config->spec;

	if (request->tries >= spec->rnr_retries) {
		*ret_status = EFA_RNR;
		return OUT_ERROR;
	}
	if (!request->backing_off) {
		request->backing_off = 1;
		peer->backing_off++;
	}
	request->due = now + 1 + (sim_ticks_of_ns(spec->rnr_ns) << (request->tries < 10 ? request->tries : 10));
	request->tries++;
	return OUT_WAIT;
}

static int copy_message(struct request *request, struct peer *peer, const struct wire_taken *buffer, size_t room)
{
	struct iovec mine[WIRE_IOV];
	size_t left = request->bytes < room ? request->bytes : room;

	for (size_t i = 0; i < request->count; i++) {
		mine[i] = request->iov[i];
		if (mine[i].iov_len > left)
			mine[i].iov_len = left;
		left -= mine[i].iov_len;
	}
	return move(peer, mine, request->count, buffer->iov, buffer->count, true);
}

static enum outcome deliver_send(struct endpoint *ep, struct request *request, struct peer *peer, uint64_t now,
				 int *ret_status)
{
	struct wire_arrival arrival = { .event = WIRE_MESSAGE,
					.from = ep->wire->address,
					.data = (uint32_t)request->data,
					.has_data = request->has_data };
	struct wire_taken buffer;
	enum outcome out = OUT_ERROR;
	size_t room;

	if (UNLIKELY(!local_keys_good(ep->dom, request))) {
		*ret_status = EFA_BAD_LKEY;
		return OUT_ERROR;
	}
	if (UNLIKELY(peer->missing && request->number > peer->missing))
		return OUT_DONE; /* the card delivers it, and the peer's provider keeps it for ever */
	/* Sequentially consistent, then look: pairs with ep_close, which waits for everyone counted in. */
	atomic_fetch_add(&peer->ep->users, 1);
	if (UNLIKELY(atomic_load(&peer->ep->head.state) != WIRE_LIVE)) {
		*ret_status = EFA_BAD_QPN;
	} else if (UNLIKELY(request->fault == SIM_FAULT_RNR && request->tries < request->fault_argument) ||
		   !wire_take_buffer(peer->ep, &buffer)) {
		out = back_off(ep, request, peer, now, ret_status);
	} else {
		room = total_of(buffer.iov, buffer.count);
		arrival.context = buffer.context;
		arrival.visible_at = request->due > now ? request->due : 0;
		arrival.bytes = request->bytes < room ? request->bytes : room;
		if (request->bytes > room) {
			arrival.event = WIRE_TRUNCATED;
			arrival.extra = request->bytes - room;
		}
		/* Messages are always copied whole: they are small, and carry the program's own control flow. */
		*ret_status = copy_message(request, peer, &buffer, room);
		if (LIKELY(!*ret_status)) {
			wire_push_arrival(peer->ep, &arrival);
			out = OUT_DONE;
		}
	}
	atomic_fetch_sub_explicit(&peer->ep->users, 1, memory_order_release);
	return out;
}

/* Nothing comes back. Fails after the unresponsive time, or never. */
static enum outcome silent(struct endpoint *ep, struct request *request, uint64_t now, int *ret_status)
{
	uint64_t limit = sim_ticks_of_ns(ep->dom->config->spec.unresponsive_ns);
	uint64_t retry = sim_ticks_of_ns(100000);

	if (!request->since)
		request->since = now;
	if (limit != UINT64_MAX && now - request->since >= limit) {
		*ret_status = EFA_UNRESPONSIVE;
		return OUT_ERROR;
	}
	request->due = now + retry + 1;
	return OUT_WAIT;
}

/* A killed process does not answer; checked at most once per millisecond. */
static bool peer_dead(struct peer *peer, uint64_t now)
{
	if (!peer->dead && now >= peer->alive_at) {
		peer->alive_at = now + sim_ticks_of_ns(1000000);
		peer->dead = !wire_owner_alive(peer->ep_map);
	}
	return peer->dead;
}

/* Reads and writes that are emulated by messages land when the target reads its completions. */
static inline bool target_must_look(const struct domain *dom, const struct request *request, const struct peer *peer)
{
	return (dom->config->spec.target_progress && request->kind != REQ_SEND) ||
	       (request->kind == REQ_WRITE && (dom->emulated || peer->emulated));
}

/* Handles the rare cases. OUT_DONE: none of them applies, go on. */
static enum outcome deliver_odd(struct endpoint *ep, struct request *request, struct peer *peer, uint64_t now,
				int *ret_status)
{
	struct domain *dom = ep->dom;
	uint64_t polls;

	if (!now) /* a timeless machine needs the clock only here */
		now = sim_ticks();
	if (request->fault == SIM_FAULT_DROP)
		return OUT_SILENT;
	if (request->fault == SIM_FAULT_INTERNAL)
		fault_internal(ep);
	if (request->fault == SIM_FAULT_ERROR || request->fault == SIM_FAULT_ANONYMOUS ||
	    request->fault == SIM_FAULT_NEGATIVE || request->fault == SIM_FAULT_TWICE) {
		*ret_status = (int)request->fault_argument;
		return OUT_ERROR;
	}
	if (request->fault == SIM_FAULT_OVERRUN)
		request->completes = 0;
	if (fault_active(dom) && fault_silent(dom, peer))
		return silent(ep, request, now, ret_status);
	/* A queue pair closed by a living process refuses; a dead process does not answer at all. */
	if (!peer->local && peer_dead(peer, now) && atomic_load(&peer->ep->head.state) == WIRE_LIVE)
		return silent(ep, request, now, ret_status);
	request->since = 0;
	if (atomic_load_explicit(&peer->ep->head.state, memory_order_acquire) != WIRE_LIVE) {
		*ret_status = EFA_BAD_QPN;
		return OUT_ERROR;
	}
	if (target_must_look(dom, request, peer)) {
		polls = atomic_load_explicit(&peer->ep->polls, memory_order_relaxed);
		if (request->polls == UINT64_MAX)
			request->polls = polls;
		if (request->polls == polls) {
			request->due = now + sim_ticks_of_ns(1000) + 1;
			return OUT_WAIT;
		}
	}
	return OUT_DONE;
}

enum outcome deliver(struct endpoint *ep, struct request *request, uint64_t now, struct guard *guard, int *ret_status)
{
	struct peer *peer = &ep->av->peers[request->peer];
	enum outcome out = OUT_DONE;

	*ret_status = 0;
	if (UNLIKELY(peer->generation != request->peer_generation)) {
		if (ep->dom->forgets) {
			request->completes = 0;
			return OUT_DONE;
		}
		*ret_status = EFA_UNKNOWN_PEER;
		return OUT_ERROR;
	}
	if (UNLIKELY(request->ordered && request->order != peer->delivered)) {
		request->due = now + 1; /* its turn comes when the one before it ends */
		return OUT_WAIT;
	}
	if (UNLIKELY(request->fault || !peer->local || fault_active(ep->dom) ||
		     target_must_look(ep->dom, request, peer) ||
		     atomic_load_explicit(&peer->ep->head.state, memory_order_acquire) != WIRE_LIVE))
		out = deliver_odd(ep, request, peer, now, ret_status);
	if (LIKELY(out == OUT_DONE)) {
		if (request->kind == REQ_SEND)
			out = deliver_send(ep, request, peer, now, ret_status);
		else
			out = deliver_rma(ep, request, peer, guard, ret_status);
	}
	if (UNLIKELY(out == OUT_ERROR && peer->dead && *ret_status == EFA_UNRESPONSIVE && !request->fault))
		out = silent(ep, request, now ? now : sim_ticks(), ret_status); /* the copy revealed the peer's death */
	if (out == OUT_WAIT)
		return out;
	if (request->ordered)
		peer->delivered++;
	if (UNLIKELY(request->backing_off)) {
		request->backing_off = 0;
		peer->backing_off--;
	}
	return out;
}
