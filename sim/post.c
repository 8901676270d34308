/*
 * Posting: fi_send, fi_write, fi_read and the like. Runs on the application's thread; the hot path. A post fills a
 * request and, without FI_MORE, rings the doorbell (launch.c). Nothing moves here.
 */
#include "prov.h"

#include <string.h>

/* Inlined into each call, where kind and buffers are known: finding them out is half the cost of a post. */
#define INLINE static inline __attribute__((always_inline))

struct posting {
	const struct iovec *iov;
	void **desc;
	size_t count;
	fi_addr_t addr;
	uint64_t remote, key, data, flags;
	void *context;
	enum request_kind kind;
};

static const uint64_t completion_flags[] = {
	[REQ_SEND] = FI_SEND | FI_MSG,
	[REQ_WRITE] = FI_RMA | FI_WRITE,
	[REQ_READ] = FI_RMA | FI_READ,
};

/* Nothing may wait for the first contact: the first post begins it, and all are refused until it is made, as verbs and tcp do.
 * A peer that is not there is looked for again by each post. */
static int still_connecting(struct endpoint *ep, struct peer *peer)
{
	uint64_t now = sim_ticks();

	if (peer->state != PEER_CONTACTING) {
		peer->state = peer_resolve(peer) ? PEER_CONTACTING : PEER_ABSENT;
		peer->contact_at = peer->alive_at = now + sim_ticks_of_ns(ep->dom->config->spec.handshake_ns);
	}
	if (peer->state == PEER_CONTACTING && now >= peer->contact_at)
		peer->state = PEER_READY;
	return peer->state == PEER_READY ? 0 : -FI_EAGAIN;
}

/* Returns why a post to this peer is refused right now; 0 for no reason. Slow cases only. */
static int peer_refuses(struct endpoint *ep, const struct posting *p, struct peer *peer)
{
	const struct sim_spec *spec = &ep->dom->config->spec;

	int refused = fault_active(ep->dom) ? fault_refuses_post(ep, p->kind, peer) : 0;

	if (refused)
		return refused;
	if (peer->state != PEER_READY && spec->handshake_ns && !spec->handshake_depth && still_connecting(ep, peer))
		return -FI_EAGAIN;
	if (peer->state != PEER_READY && spec->handshake_ns && peer->waiting >= spec->handshake_depth)
		return -FI_EAGAIN;
	if (peer->backing_off && (p->kind == REQ_SEND || spec->personality == SIM_EFA))
		return -FI_EAGAIN;
	return 0;
}

/* efa-direct keeps its state in the caller's fi_context2 while a request is in flight. */
static int stamp_context(struct endpoint *ep, void *context)
{
	struct fi_context2 *storage = context;

	if (!storage)
		return -FI_EINVAL;
	storage->internal[0] = ep;
	storage->internal[1] = storage;
	return 0;
}

static int inject_data(struct endpoint *ep, const struct posting *p, struct request *request)
{
	uint8_t *at;

	if (request->bytes > ep->inject_bytes)
		return -FI_EINVAL;
	if (p->kind != REQ_SEND && ep->dom->config->spec.personality == SIM_EFA_DIRECT)
		return -FI_EINVAL; /* its RMA inject size is 0 */
	for (size_t i = 0; i < p->count; i++) {
		uint32_t key = p->desc ? (uint32_t)(uintptr_t)p->desc[i] : 0;

		if (key && mr_find(ep->dom->wire, key, (uintptr_t)p->iov[i].iov_base, p->iov[i].iov_len, MR_DEVICE))
			return -FI_EINVAL; /* never device memory */
	}
	request->bounce = ep->free_bounce[--ep->free_bounce_count];
	at = ep->bounce + (size_t)request->bounce * ep->inject_bytes;
	request->iov[0].iov_base = at;
	request->iov[0].iov_len = request->bytes;
	for (size_t i = 0; i < p->count; at += p->iov[i++].iov_len)
		if (p->iov[i].iov_len)
			memcpy(at, p->iov[i].iov_base, p->iov[i].iov_len);
	request->count = 1;
	request->local_key[0] = 0;
	return 0;
}

static uint64_t take_list(struct endpoint *ep, const struct posting *p, struct request *request)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < p->count; i++) {
		request->iov[i] = p->iov[i];
		request->local_key[i] = p->desc ? (uint32_t)(uintptr_t)p->desc[i] : 0;
		bytes += p->iov[i].iov_len;
		if (UNLIKELY(ep->dom->strict) && request->local_key[i] && p->iov[i].iov_len &&
		    MR_NIC_OF(request->local_key[i]) != (uint32_t)ep->dom->nic)
			strict_fail("descriptor %#x of NIC %u used on NIC %d", request->local_key[i],
				    MR_NIC_OF(request->local_key[i]), ep->dom->nic);
	}
	return bytes;
}

/* Takes buffers and their local keys. With FI_MR_LOCAL every buffer needs one; delivery checks what it covers. */
INLINE int take_buffers(struct endpoint *ep, const struct posting *p, struct request *request)
{
	uint64_t bytes;

	if (LIKELY(p->count == 1 && !ep->dom->strict)) {
		request->iov[0] = p->iov[0];
		request->local_key[0] = p->desc ? (uint32_t)(uintptr_t)p->desc[0] : 0;
		bytes = p->iov[0].iov_len;
	} else {
		bytes = take_list(ep, p, request);
	}
	request->bytes = bytes;
	request->count = (uint8_t)p->count;
	request->bounce = -1;
	if (UNLIKELY(bytes > (p->kind == REQ_SEND ? ep->max_send_bytes : ep->max_bytes)))
		return -FI_EMSGSIZE;
	if (UNLIKELY(p->flags & FI_INJECT))
		return inject_data(ep, p, request);
	if (UNLIKELY(ep->dom->local_keys))
		for (size_t i = 0; i < p->count; i++)
			if (p->iov[i].iov_len && !request->local_key[i])
				return -FI_EINVAL;
	return 0;
}

static ssize_t post_refused(struct endpoint *ep, const struct posting *p)
{
	if (!ep->enabled || !ep->tx_cq)
		return ep->enabled ? -FI_ENOCQ : -FI_EOPBADSTATE;
	if (ep->dom->strict && ep->dom->config->spec.personality != SIM_VERBS &&
	    (p->addr >= ep->av->count || !ep->av->peers[p->addr].used))
		strict_fail("a request to address %llu, which is not in the vector: EFA follows a null pointer",
			    (unsigned long long)p->addr);
	if (p->count > ep->iov_limit || p->addr >= ep->av->count || !ep->av->peers[p->addr].used)
		return -FI_EINVAL;
	return -FI_EAGAIN; /* the queue is full */
}

INLINE ssize_t post_inside(struct endpoint *ep, const struct posting *p)
{
	struct domain *dom = ep->dom;
	struct request *request;
	struct peer *peer;
	uint32_t index;
	int rc;

	if (UNLIKELY(!ep->enabled || !ep->tx_cq || p->count > ep->iov_limit || p->addr >= ep->av->count ||
		     !ep->av->peers[p->addr].used || !ep->free_count))
		return post_refused(ep, p);
	peer = &ep->av->peers[p->addr];
	if (UNLIKELY(fault_active(dom) || peer->state != PEER_READY || peer->backing_off)) {
		rc = peer_refuses(ep, p, peer);
		if (rc)
			return rc;
	}
	index = ep->free_requests[ep->free_count - 1];
	request = &ep->requests[index];
	rc = take_buffers(ep, p, request);
	if (UNLIKELY(rc))
		return rc;
	if (UNLIKELY(dom->config->spec.personality == SIM_EFA_DIRECT) && !(p->flags & FI_INJECT) &&
	    stamp_context(ep, p->context))
		return -FI_EINVAL;
	if (UNLIKELY(dom->strict))
		strict_post(ep, p->context, peer);
	ep->free_count--;
	request->context = p->context;
	request->flags = completion_flags[p->kind];
	request->remote = p->remote;
	request->key = (uint32_t)p->key;
	request->data = p->data;
	request->peer = (uint32_t)p->addr;
	request->peer_generation = peer->generation;
	request->kind = (uint8_t)p->kind;
	request->completes = !ep->tx_selective || (p->flags & FI_COMPLETION);
	request->has_data = (p->flags & FI_REMOTE_CQ_DATA) != 0;
	request->ordered = p->kind == REQ_SEND ? dom->ordered_sends : dom->ordered_rma;
	request->fault = 0;
	request->tries = 0;
	request->since = 0;
	request->polls = UINT64_MAX;
	request->number = ++ep->posted;
	request->backing_off = 0;
	request->held = peer->state != PEER_READY;
	peer->waiting += request->held;
	if (request->ordered)
		request->order = peer->issued++;
	ep->refused = false;
	ep->order[ep->tail++ & ep->mask] = index;
	if (!(p->flags & FI_MORE))
		ep_ring(ep);
	return 0;
}

INLINE ssize_t post(struct fid_ep *fid, const struct posting *p, const char *call)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	ssize_t rc;

	dom_enter(ep->dom, call);
	if (UNLIKELY(ep->dom->post_ticks))
		sim_spin(ep->dom->post_ticks);
	rc = post_inside(ep, p);
	if (UNLIKELY(rc < 0))
		ep->refused = true;
	dom_leave(ep->dom);
	return rc;
}

/* For calls without flags: the endpoint's defaults. */
#define DEFAULTS(fid) (container_of(fid, struct endpoint, fid)->tx_flags & ~(uint64_t)(FI_INJECT | FI_MORE))
#define NO_COMPLETION FI_INJECT

static ssize_t inject_only(struct fid_ep *fid, struct posting *p, const char *call)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	bool selective = ep->tx_selective;
	ssize_t rc;

	dom_enter(ep->dom, call);
	if (UNLIKELY(ep->dom->post_ticks))
		sim_spin(ep->dom->post_ticks);
	/* Inject calls never complete visibly, whatever flags the queue was bound with. */
	ep->tx_selective = true;
	rc = post_inside(ep, p);
	if (UNLIKELY(rc < 0))
		ep->refused = true;
	ep->tx_selective = selective;
	dom_leave(ep->dom);
	return rc;
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
	const struct posting p = { .iov = msg->msg_iov,
				   .desc = msg->desc,
				   .count = msg->iov_count,
				   .addr = msg->addr,
				   .data = msg->data,
				   .flags = flags,
				   .context = msg->context,
				   .kind = REQ_SEND };

	return post(fid, &p, "fi_sendmsg");
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t addr,
			 void *context)
{
	const struct posting p = { .iov = iov,
				   .desc = desc,
				   .count = count,
				   .addr = addr,
				   .flags = DEFAULTS(fid),
				   .context = context,
				   .kind = REQ_SEND };

	return post(fid, &p, "fi_sendv");
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t addr, void *context)
{
	const struct iovec iov = { (void *)buf, len };

	return msg_sendv(fid, &iov, &desc, 1, addr, context);
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t addr,
			    void *context)
{
	const struct iovec iov = { (void *)buf, len };
	const struct posting p = { .iov = &iov,
				   .desc = &desc,
				   .count = 1,
				   .addr = addr,
				   .data = data,
				   .flags = DEFAULTS(fid) | FI_REMOTE_CQ_DATA,
				   .context = context,
				   .kind = REQ_SEND };

	return post(fid, &p, "fi_senddata");
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr)
{
	const struct iovec iov = { (void *)buf, len };
	struct posting p = { .iov = &iov, .count = 1, .addr = addr, .flags = NO_COMPLETION, .kind = REQ_SEND };

	return inject_only(fid, &p, "fi_inject");
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t addr)
{
	const struct iovec iov = { (void *)buf, len };
	struct posting p = { .iov = &iov,
			     .count = 1,
			     .addr = addr,
			     .data = data,
			     .flags = NO_COMPLETION | FI_REMOTE_CQ_DATA,
			     .kind = REQ_SEND };

	return inject_only(fid, &p, "fi_injectdata");
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t addr,
			 void *context)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	ssize_t rc = 0;

	dom_enter(ep->dom, "fi_recv");
	if (!ep->enabled || !ep->rx_cq)
		rc = ep->enabled ? -FI_ENOCQ : -FI_EOPBADSTATE;
	else if (count > ep->iov_limit || count > WIRE_IOV)
		rc = -FI_EINVAL;
	for (size_t i = 0; !rc && ep->dom->local_keys && i < count; i++)
		if (iov[i].iov_len && !(desc && mr_find(ep->dom->wire, (uint32_t)(uintptr_t)desc[i],
							(uintptr_t)iov[i].iov_base, iov[i].iov_len, 0)))
			rc = -FI_EINVAL; /* the device would refuse the work request */
	if (!rc && ep->dom->config->spec.personality == SIM_EFA_DIRECT)
		rc = stamp_context(ep, context);
	if (!rc && !wire_post_buffer(ep->wire, iov, count, context, ep->rx_depth))
		rc = -FI_EAGAIN;
	dom_leave(ep->dom);
	return rc;
}

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t addr, void *context)
{
	const struct iovec iov = { buf, len };

	return msg_recvv(fid, &iov, &desc, 1, addr, context);
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
	return msg_recvv(fid, msg->msg_iov, msg->desc, msg->iov_count, msg->addr, msg->context);
}

struct fi_ops_msg msg_ops = {
	.size = sizeof msg_ops,
	.recv = msg_recv,
	.recvv = msg_recvv,
	.recvmsg = msg_recvmsg,
	.send = msg_send,
	.sendv = msg_sendv,
	.sendmsg = msg_sendmsg,
	.inject = msg_inject,
	.senddata = msg_senddata,
	.injectdata = msg_injectdata,
};

static inline ssize_t rma_msg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags, enum request_kind kind,
			      const char *call)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	struct posting p;

	if (UNLIKELY(msg->rma_iov_count != 1))
		return -FI_EINVAL; /* rma_iov_limit */
	if (UNLIKELY(ep->dom->strict) && ep->dom->numbers)
		strict_doorbell(ep, msg, flags);
	p = (struct posting){ .iov = msg->msg_iov,
			      .desc = msg->desc,
			      .count = msg->iov_count,
			      .addr = msg->addr,
			      .remote = msg->rma_iov[0].addr,
			      .key = msg->rma_iov[0].key,
			      .data = msg->data,
			      .flags = flags,
			      .context = msg->context,
			      .kind = kind };
	return post(fid, &p, call);
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
	return rma_msg(fid, msg, flags, REQ_WRITE, "fi_writemsg");
}

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
	const struct endpoint *ep = container_of(fid, struct endpoint, fid);

	if (flags & (FI_INJECT | FI_REMOTE_CQ_DATA))
		return -FI_EINVAL;
	if (UNLIKELY(ep->dom->strict) && ep->dom->forgets && ep->rung != ep->tail &&
	    ep->requests[ep->order[(ep->tail - 1) & ep->mask]].kind == REQ_WRITE)
		strict_fail("a read while writes posted with FI_MORE wait for a doorbell: EFA 2.1 hangs");
	return rma_msg(fid, msg, flags, REQ_READ, "fi_readmsg");
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t addr,
			  uint64_t remote, uint64_t key, void *context)
{
	const struct posting p = { .iov = iov,
				   .desc = desc,
				   .count = count,
				   .addr = addr,
				   .remote = remote,
				   .key = key,
				   .flags = DEFAULTS(fid),
				   .context = context,
				   .kind = REQ_WRITE };

	return post(fid, &p, "fi_writev");
}

static ssize_t rma_write(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t addr, uint64_t remote,
			 uint64_t key, void *context)
{
	const struct iovec iov = { (void *)buf, len };

	return rma_writev(fid, &iov, &desc, 1, addr, remote, key, context);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t addr,
			     uint64_t remote, uint64_t key, void *context)
{
	const struct iovec iov = { (void *)buf, len };
	const struct posting p = { .iov = &iov,
				   .desc = &desc,
				   .count = 1,
				   .addr = addr,
				   .remote = remote,
				   .key = key,
				   .data = data,
				   .flags = DEFAULTS(fid) | FI_REMOTE_CQ_DATA,
				   .context = context,
				   .kind = REQ_WRITE };

	return post(fid, &p, "fi_writedata");
}

static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t addr,
			 uint64_t remote, uint64_t key, void *context)
{
	const struct posting p = { .iov = iov,
				   .desc = desc,
				   .count = count,
				   .addr = addr,
				   .remote = remote,
				   .key = key,
				   .flags = DEFAULTS(fid),
				   .context = context,
				   .kind = REQ_READ };

	return post(fid, &p, "fi_readv");
}

static ssize_t rma_read(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t addr, uint64_t remote,
			uint64_t key, void *context)
{
	const struct iovec iov = { buf, len };

	return rma_readv(fid, &iov, &desc, 1, addr, remote, key, context);
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr, uint64_t remote,
			  uint64_t key)
{
	const struct iovec iov = { (void *)buf, len };
	struct posting p = { .iov = &iov,
			     .count = 1,
			     .addr = addr,
			     .remote = remote,
			     .key = key,
			     .flags = NO_COMPLETION,
			     .kind = REQ_WRITE };

	return inject_only(fid, &p, "fi_inject_write");
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t addr,
			      uint64_t remote, uint64_t key)
{
	const struct iovec iov = { (void *)buf, len };
	struct posting p = { .iov = &iov,
			     .count = 1,
			     .addr = addr,
			     .remote = remote,
			     .key = key,
			     .data = data,
			     .flags = NO_COMPLETION | FI_REMOTE_CQ_DATA,
			     .kind = REQ_WRITE };

	return inject_only(fid, &p, "fi_inject_writedata");
}

struct fi_ops_rma rma_ops = {
	.size = sizeof rma_ops,
	.read = rma_read,
	.readv = rma_readv,
	.readmsg = rma_readmsg,
	.write = rma_write,
	.writev = rma_writev,
	.writemsg = rma_writemsg,
	.inject = rma_inject,
	.writedata = rma_writedata,
	.injectdata = rma_injectdata,
};
