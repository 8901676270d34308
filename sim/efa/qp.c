/*
 * Queue pairs: SRD (the provider's RDM endpoints) and UD (its datagrams). A queue pair is a segment that senders map; its
 * number is taken when it is made and it can be reached from the state RTR on. Set-up paths, any thread.
 */
#include "card.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static uint32_t power_of_two(uint32_t least)
{
	uint32_t n = 1;

	while (n < least)
		n *= 2;
	return n;
}

static int check(const struct ibv_qp_init_attr_ex *attr)
{
	uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->send_cq || !attr->recv_cq || attr->srq)
		return EINVAL;
	if (attr->cap.max_send_wr > model.spec.tx || attr->cap.max_recv_wr > model.spec.rx * CARD_RQ_SGE ||
	    attr->cap.max_send_sge > CARD_SQ_SGE || attr->cap.max_recv_sge > CARD_RQ_SGE ||
	    attr->cap.max_inline_data > CARD_INLINE)
		return EINVAL;
	if (attr->qp_type == IBV_QPT_DRIVER && (model.caps & CAN_READ))
		ops |= IBV_QP_EX_WITH_RDMA_READ;
	if (attr->qp_type == IBV_QPT_DRIVER && (model.caps & CAN_WRITE))
		ops |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr->send_ops_flags & ~ops))
		return EOPNOTSUPP;
	return attr->qp_type == IBV_QPT_DRIVER || attr->qp_type == IBV_QPT_UD ? 0 : EOPNOTSUPP;
}

static int make_requests(struct queue_pair *qp)
{
	qp->requests = calloc(qp->sq_depth, sizeof *qp->requests);
	qp->free_requests = calloc(qp->sq_depth, sizeof *qp->free_requests);
	qp->batch = calloc(qp->sq_depth, sizeof *qp->batch);
	if (!qp->requests || !qp->free_requests || !qp->batch)
		return ENOMEM;
	for (uint32_t i = 0; i < qp->sq_depth; i++)
		qp->free_requests[qp->free_count++] = qp->sq_depth - 1 - i;
	return 0;
}

static int make_segment(struct queue_pair *qp, uint16_t pd, bool unsolicited)
{
	uint32_t buffers = power_of_two(qp->rq_depth), arrivals = power_of_two(qp->recv_cq->depth + 1);

	qp->map = wire_create(WIRE_ENDPOINT, wire_endpoint_bytes(buffers, arrivals));
	if (!qp->map)
		return errno ? errno : ENOMEM;
	qp->wire = wire_memory(qp->map);
	wire_endpoint_layout(qp->wire, buffers, arrivals);
	qp->wire->nic_id = qp->card->wire->head.id;
	atomic_store(&qp->wire->arrival_limit, qp->recv_cq->depth);
	__builtin_memcpy(qp->wire->address.gid, qp->card->device->gid.raw, 16);
	qp->wire->address.reserved = QP_TRAITS(pd, unsolicited, qp->datagrams);
	return 0;
}

/* Room in the heap for every work request that the card can hold. */
static int make_room(struct card *card, uint32_t more)
{
	struct request **heap = realloc(card->heap, (card->heap_room + more) * sizeof(struct request *));

	if (!heap)
		return ENOMEM;
	card->heap = heap;
	card->heap_room += more;
	return 0;
}

static int enter(struct queue_pair *qp)
{
	struct card *card = qp->card;
	int rc;

	pthread_mutex_lock(&card->lock);
	if (!card->next_qpn)
		card->next_qpn = (uint32_t)(getpid() * 251) & 0x7fff;
	rc = make_room(card, qp->sq_depth);
	if (!rc)
		rc = qpn_publish(qp);
	if (!rc) {
		qp->wire->address.qpn = (uint16_t)qp->base.qp_base.qp_num;
		qp->next = card->qps;
		card->qps = qp;
		qp->next_receiver = qp->recv_cq->receivers;
		qp->recv_cq->receivers = qp;
		qp->send_cq->users++;
		qp->recv_cq->users++;
	}
	pthread_mutex_unlock(&card->lock);
	return rc;
}

static void free_qp(struct queue_pair *qp)
{
	wire_destroy(qp->map);
	free(qp->requests);
	free(qp->free_requests);
	free(qp->batch);
	free(qp);
}

struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr, bool unsolicited)
{
	pthread_mutexattr_t checked;
	struct queue_pair *qp = NULL;
	int rc = check(attr);

	if (!rc)
		rc = card_attach(card_of(context));
	if (!rc && !(qp = calloc(1, sizeof *qp)))
		rc = ENOMEM;
	if (rc) {
		errno = rc;
		return NULL;
	}
	qp->card = card_of(context);
	qp->datagrams = attr->qp_type == IBV_QPT_UD;
	qp->sq_depth = power_of_two(attr->cap.max_send_wr ? attr->cap.max_send_wr : 1);
	qp->rq_depth = power_of_two(attr->cap.max_recv_wr ? attr->cap.max_recv_wr : 1);
	qp->send_cq = CONTAINER_OF((struct ibv_cq_ex *)attr->send_cq, struct completion_queue, base);
	qp->recv_cq = CONTAINER_OF((struct ibv_cq_ex *)attr->recv_cq, struct completion_queue, base);
	qp->base.qp_base = (struct ibv_qp){ .context = context,
					    .qp_context = attr->qp_context,
					    .pd = attr->pd,
					    .send_cq = attr->send_cq,
					    .recv_cq = attr->recv_cq,
					    .state = IBV_QPS_RESET,
					    .qp_type = attr->qp_type };
	post_fill(&qp->base);
	pthread_mutexattr_init(&checked);
	pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&qp->post_lock, &checked);
	pthread_mutexattr_destroy(&checked);
	rc = make_requests(qp);
	if (!rc)
		rc = make_segment(qp, CONTAINER_OF(attr->pd, struct protection_domain, base)->number, unsolicited);
	if (!rc)
		rc = enter(qp);
	if (rc) {
		free_qp(qp);
		errno = rc;
		return NULL;
	}
	atomic_fetch_add(&CONTAINER_OF(attr->pd, struct protection_domain, base)->users, 1);
	return &qp->base.qp_base;
}

API struct ibv_qp *efadv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				      struct efadv_qp_init_attr *efa, uint32_t bytes)
{
	bool unsolicited = false;

	if (attr->qp_type == IBV_QPT_DRIVER && efa->driver_qp_type != EFADV_QP_DRIVER_TYPE_SRD) {
		errno = EOPNOTSUPP;
		return NULL;
	}
#ifdef HAVE_EFADV_UNSOLICITED
	unsolicited = efa->flags & EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV;
	if (efa->flags & ~(model.caps & CAN_WRITE_UNSOLICITED ? EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV : 0)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
#endif
	return qp_create(context, attr, unsolicited);
}

/* ibv_create_qp_ex() with nothing but a protection domain comes here. */
API struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex full = { .qp_context = attr->qp_context,
					    .send_cq = attr->send_cq,
					    .recv_cq = attr->recv_cq,
					    .srq = attr->srq,
					    .cap = attr->cap,
					    .qp_type = attr->qp_type,
					    .sq_sig_all = attr->sq_sig_all,
					    .pd = pd,
					    .comp_mask = IBV_QP_INIT_ATTR_PD };

	return qp_create(pd->context, &full, false);
}

API struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return CONTAINER_OF(qp, struct ibv_qp_ex, qp_base);
}

API int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct queue_pair *qp = CONTAINER_OF(base, struct queue_pair, base.qp_base);

	if ((mask & IBV_QP_RNR_RETRY) && !(model.caps & CAN_RETRY))
		return EOPNOTSUPP;
	pthread_mutex_lock(&qp->card->lock);
	if (mask & IBV_QP_QKEY)
		qp->wire->address.qkey = attr->qkey;
	if (mask & IBV_QP_RNR_RETRY)
		qp->rnr_retry = attr->rnr_retry;
	if (mask & IBV_QP_STATE)
		base->state = attr->qp_state;
	pthread_mutex_unlock(&qp->card->lock);
	return 0;
}

#ifdef HAVE_DATA_IN_ORDER
API int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}
#endif

/* Nothing of it lands or completes any more once this returns, and nothing lands in it. */
API int ibv_destroy_qp(struct ibv_qp *base)
{
	struct queue_pair *qp = CONTAINER_OF(base, struct queue_pair, base.qp_base), **at;
	struct card *card = qp->card;

	pthread_mutex_lock(&card->lock);
	qpn_withdraw(qp);
	atomic_store(&qp->wire->head.state, WIRE_CLOSED);
	heap_drop(card, qp);
	card->heap_room -= qp->sq_depth;
	for (at = &card->qps; *at != qp; at = &(*at)->next)
		;
	*at = qp->next;
	for (at = &qp->recv_cq->receivers; *at != qp; at = &(*at)->next_receiver)
		;
	*at = qp->next_receiver;
	cq_forget(qp->send_cq, qp);
	qp->send_cq->users--;
	qp->recv_cq->users--;
	pthread_mutex_unlock(&card->lock);
	wire_retire(&qp->wire->users);
	atomic_fetch_sub(&CONTAINER_OF(base->pd, struct protection_domain, base)->users, 1);
	free_qp(qp);
	return 0;
}
