/*
 * Endpoints: opening, binding, enabling, closing. Closing drops every request for good: bytes move only while a CQ of
 * the endpoint is read, so nothing can land after fi_close returns.
 */
#include "prov.h"

#include <rdma/fi_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint32_t power_of_two(uint64_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

static void free_queues(struct endpoint *ep)
{
	free(ep->order);
	free(ep->requests);
	free(ep->free_requests);
	free(ep->slow);
	free(ep->bounce);
	free(ep->free_bounce);
	free(ep->context_counts);
}

static int make_queues(struct endpoint *ep)
{
	uint32_t depth = ep->depth;

	ep->mask = power_of_two(depth) - 1;
	ep->order = calloc(ep->mask + 1, sizeof *ep->order);
	ep->requests = aligned_alloc(64, ((depth * sizeof *ep->requests) + 63) & ~(size_t)63);
	ep->free_requests = malloc(depth * sizeof *ep->free_requests);
	ep->slow = malloc(depth * sizeof *ep->slow);
	ep->bounce = malloc(depth * (ep->inject_bytes ? ep->inject_bytes : 1));
	ep->free_bounce = malloc(depth * sizeof *ep->free_bounce);
	if (ep->dom->strict)
		ep->context_counts = calloc(65536, sizeof *ep->context_counts);
	if (!ep->order || !ep->requests || !ep->free_requests || !ep->slow || !ep->bounce || !ep->free_bounce ||
	    (ep->dom->strict && !ep->context_counts))
		return -FI_ENOMEM;
	/* Last in, first out: with few requests in flight few slots are touched. */
	for (uint32_t i = 0; i < depth; i++) {
		ep->free_requests[i] = depth - 1 - i;
		ep->free_bounce[i] = (int32_t)(depth - 1 - i);
	}
	ep->free_count = ep->free_bounce_count = depth;
	return 0;
}

static int make_wire(struct endpoint *ep)
{
	struct domain *dom = ep->dom;
	struct wire_address *address;
	uint32_t buffers = power_of_two(ep->rx_depth);
	uint32_t arrivals = power_of_two(ep->rx_cq ? ep->rx_cq->size : 1);

	ep->map = wire_create(WIRE_ENDPOINT, wire_endpoint_bytes(buffers, arrivals));
	if (!ep->map)
		return -FI_ENOMEM;
	ep->wire = wire_memory(ep->map);
	wire_endpoint_layout(ep->wire, buffers, arrivals);
	ep->arrivals = wire_arrivals(ep->wire);
	ep->arrival_mask = arrivals - 1;
	ep->wire->nic_id = dom->wire->head.id;
	atomic_store(&ep->wire->arrival_limit, ep->rx_cq ? (uint32_t)ep->rx_cq->size : 0);
	address = &ep->wire->address;
	info_gid(dom->config, dom->nic, address->gid);
	address->qpn = (uint16_t)ep->wire->head.id;
	if (getrandom(&address->qkey, sizeof address->qkey, 0) != sizeof address->qkey)
		address->qkey = ep->wire->head.id;
	address->pid = ep->wire->head.pid;
	address->id = ep->wire->head.id;
	return 0;
}

static int ep_enable(struct endpoint *ep)
{
	int rc;

	if (ep->enabled)
		return 0;
	if (!ep->av)
		return -FI_ENOAV;
	if (!ep->tx_cq && !ep->rx_cq)
		return -FI_ENOCQ;
	rc = make_queues(ep);
	if (rc)
		return rc;
	rc = make_wire(ep);
	if (rc)
		return rc;
	if (ep->tx_cq)
		rc = cq_add_endpoint(ep->tx_cq, ep);
	if (!rc && ep->rx_cq && ep->rx_cq != ep->tx_cq)
		rc = cq_add_endpoint(ep->rx_cq, ep);
	ep->enabled = !rc;
	return rc;
}

static int ep_control(struct fid *fid, int command, void *argument)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
	int rc;

	if (command != FI_ENABLE)
		return -FI_ENOSYS;
	dom_enter(ep->dom, "fi_enable");
	rc = ep_enable(ep);
	dom_leave(ep->dom);
	return rc;
}

static int bind_cq(struct endpoint *ep, struct completion_queue *cq, uint64_t flags)
{
	if (cq->dom != ep->dom)
		return -FI_EDOMAIN;
	if (!(flags & (FI_TRANSMIT | FI_RECV)))
		return -FI_EBADFLAGS;
	if (((flags & FI_TRANSMIT) && ep->tx_cq) || ((flags & FI_RECV) && ep->rx_cq))
		return -FI_EINVAL;
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->tx_selective = flags & FI_SELECTIVE_COMPLETION;
		atomic_fetch_add(&cq->refs, 1);
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		ep->rx_selective = flags & FI_SELECTIVE_COMPLETION;
		atomic_fetch_add(&cq->refs, 1);
	}
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
	struct vector *av;

	if (ep->enabled)
		return -FI_EOPBADSTATE;
	switch (other->fclass) {
	case FI_CLASS_CQ:
		return bind_cq(ep, container_of(other, struct completion_queue, fid.fid), flags);
	case FI_CLASS_AV:
		av = container_of(other, struct vector, fid.fid);
		if (av->dom != ep->dom)
			return -FI_EDOMAIN;
		if (ep->av)
			return -FI_EINVAL;
		ep->av = av;
		atomic_fetch_add(&av->refs, 1);
		return 0;
	case FI_CLASS_EQ:
		if (ep->eq)
			return -FI_EINVAL;
		ep->eq = container_of(other, struct event_queue, fid.fid);
		atomic_fetch_add(&ep->eq->refs, 1);
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

static int ep_close(struct fid *fid)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
	struct domain *dom = ep->dom;

	dom_enter(dom, "fi_close of an endpoint");
	if (UNLIKELY(fault_active(dom)))
		fault_stall_endpoint(dom, SIM_OP_CLOSE);
	for (struct endpoint **at = &dom->endpoints; *at; at = &(*at)->next)
		if (*at == ep) {
			*at = ep->next;
			break;
		}
	if (ep->tx_cq) {
		cq_remove_endpoint(ep->tx_cq, ep);
		atomic_fetch_sub(&ep->tx_cq->refs, 1);
	}
	if (ep->rx_cq) {
		cq_remove_endpoint(ep->rx_cq, ep);
		atomic_fetch_sub(&ep->rx_cq->refs, 1);
	}
	if (ep->wire) {
		/* Sequentially consistent: pairs with the sender that counts itself in and then looks at the
		 * state. */
		atomic_store(&ep->wire->head.state, WIRE_CLOSED);
		wire_retire(&ep->wire->users);
		wire_destroy(ep->map);
	}
	free_queues(ep);
	if (ep->av)
		atomic_fetch_sub(&ep->av->refs, 1);
	if (ep->eq)
		atomic_fetch_sub(&ep->eq->refs, 1);
	dom_leave(dom);
	atomic_fetch_sub(&dom->refs, 1);
	free(ep);
	return 0;
}

/* FI_OPT_EFA_EMULATED_WRITE exists from 1.18 on and is absent from 1.17's headers. */
#define OPT_EMULATED_WRITE (FI_OPT_EFA_RNR_RETRY + 2)

static int ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);

	if (level != FI_OPT_ENDPOINT || optname != OPT_EMULATED_WRITE || ep->dom->config->spec.personality == SIM_VERBS)
		return -FI_ENOPROTOOPT;
	if (*optlen < sizeof(bool))
		return -FI_ETOOSMALL;
	*(bool *)optval = ep->dom->emulated;
	*optlen = sizeof(bool);
	return 0;
}

static int ep_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen)
{
	/* Device memory is host memory here, so every peer-to-peer policy is met. Other option numbers differ
	 * between releases: refuse them. */
	return level == FI_OPT_ENDPOINT && optname == FI_OPT_FI_HMEM_P2P ? 0 : -FI_ENOPROTOOPT;
}

static ssize_t ep_tx_left(struct fid_ep *fid)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);

	return ep->enabled ? (ssize_t)ep->free_count : -FI_EOPBADSTATE;
}

static ssize_t no_such(void)
{
	return -FI_ENOSYS;
}

#define NO(member) .member = (__typeof__(((struct fi_ops_ep *)0)->member))(void (*)(void))no_such

static struct fi_ops ep_fid_ops = {
	.size = sizeof ep_fid_ops,
	.close = ep_close,
	.bind = ep_bind,
	.control = ep_control,
	.ops_open = stub_ops_open,
};

static struct fi_ops_ep ep_ops = {
	.size = sizeof ep_ops,
	NO(cancel),
	.getopt = ep_getopt,
	.setopt = ep_setopt,
	NO(tx_ctx),
	NO(rx_ctx),
	NO(rx_size_left),
	.tx_size_left = ep_tx_left,
};

static void take_limits(struct endpoint *ep, const struct fi_info *info)
{
	const struct sim_spec *spec = &ep->dom->config->spec;
	const struct sim_machine *m = &spec->machine;

	ep->depth = (uint32_t)spec->tx;
	ep->rx_depth = (uint32_t)spec->rx;
	if (info->tx_attr && info->tx_attr->size && info->tx_attr->size < ep->depth)
		ep->depth = (uint32_t)info->tx_attr->size;
	if (info->rx_attr && info->rx_attr->size && info->rx_attr->size < ep->rx_depth)
		ep->rx_depth = (uint32_t)info->rx_attr->size;
	ep->tx_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
	ep->rx_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
	ep->inject_bytes = m->inject_size;
	ep->iov_limit = m->iov_limit;
	ep->max_bytes = m->max_msg_size;
	/* efa-direct sends one packet per message; the device cuts up RMA. */
	ep->max_send_bytes = spec->personality == SIM_EFA_DIRECT ? m->mtu : m->max_msg_size;
}

int ep_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **ret_ep, void *context)
{
	struct domain *dom = container_of(fid, struct domain, fid);
	struct endpoint *ep;

	if (info->ep_attr && info->ep_attr->type != FI_EP_UNSPEC && info->ep_attr->type != FI_EP_RDM)
		return -FI_EINVAL;
	if (info->tx_attr && info->tx_attr->size > dom->config->spec.tx)
		return -FI_EINVAL;
	if (info->rx_attr && info->rx_attr->size > dom->config->spec.rx)
		return -FI_EINVAL;
	ep = calloc(1, sizeof *ep);
	if (!ep)
		return -FI_ENOMEM;
	ep->dom = dom;
	take_limits(ep, info);
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	ep->fid.fid.ops = &ep_fid_ops;
	ep->fid.ops = &ep_ops;
	ep->fid.cm = &stub_cm;
	ep->fid.msg = &msg_ops;
	ep->fid.rma = &rma_ops;
	ep->fid.tagged = &stub_tagged;
	ep->fid.atomic = &stub_atomic;
	dom_enter(dom, "fi_endpoint");
	if (UNLIKELY(fault_active(dom)))
		fault_stall_endpoint(dom, SIM_OP_OPEN);
	ep->next = dom->endpoints;
	dom->endpoints = ep;
	dom_leave(dom);
	atomic_fetch_add(&dom->refs, 1);
	*ret_ep = &ep->fid;
	return 0;
}
