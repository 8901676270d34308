/*
 * Completion queues: the extended interface (start_poll, next_poll, end_poll and the read calls), completion channels. A
 * queue holds the completions of its send queues; what arrived is read from the queue pairs' segments. The polling thread;
 * hot path. A card keeps working while nobody polls: ticker.c.
 */
#include "card.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLAIM_NS 300000000u /* how long a sender that died while announcing an arrival holds up the next */

static struct completion_queue *cq_of(struct ibv_cq_ex *base)
{
	return CONTAINER_OF(base, struct completion_queue, base);
}

void cq_push(struct completion_queue *cq, const struct completion *completion)
{
	if (cq->tail - cq->head >= cq->depth) {
		if (!cq->lost++)
			strict_fail("a completion queue of %u overran: its completions are lost", cq->depth);
		return;
	}
	cq->done[cq->tail++ % cq->depth] = *completion;
}

void cq_forget(struct completion_queue *cq, const struct queue_pair *qp)
{
	for (uint64_t i = cq->head; i != cq->tail; i++)
		if (cq->done[i % cq->depth].qp == qp)
			cq->done[i % cq->depth].qp = NULL;
}

static bool arrived(struct queue_pair *qp)
{
	struct wire_endpoint *ep = qp->wire;
	struct wire_arrival *slot = &wire_arrivals(ep)[qp->arrival_next & (ep->arrivals - 1)];

	/* Acquire: pairs with the release in wire_push_arrival. */
	if (atomic_load_explicit(&slot->sequence, memory_order_acquire) == qp->arrival_next + 1) {
		qp->claimed_since = 0;
		return true;
	}
	if (!wire_arrival_claimed(ep)) {
		qp->claimed_since = 0;
	} else if (!qp->claimed_since) {
		qp->claimed_since = sim_ticks();
	} else if (sim_ticks() - qp->claimed_since > sim_ticks_of_ns(CLAIM_NS)) {
		qp->claimed_since = 0;
		wire_release_arrival(ep, qp->arrival_next++);
	}
	return false;
}

bool cq_waiting(struct completion_queue *cq)
{
	if (cq->head != cq->tail)
		return true;
	for (struct queue_pair *qp = cq->receivers; qp; qp = qp->next_receiver)
		if (arrived(qp))
			return true;
	return false;
}

static bool take_done(struct completion_queue *cq)
{
	while (cq->head != cq->tail) {
		cq->now = cq->done[cq->head++ % cq->depth];
		if (!cq->now.qp)
			continue;
		if (cq->now.of_send)
			cq->now.qp->free_requests[cq->now.qp->free_count++] = cq->now.slot;
		else
			cq->now.qp->rq_used--;
		return true;
	}
	return false;
}

static void read_arrival(struct completion_queue *cq, struct queue_pair *qp)
{
	struct wire_endpoint *ep = qp->wire;
	const struct wire_arrival *arrival = &wire_arrivals(ep)[qp->arrival_next & (ep->arrivals - 1)];

	cq->now =
	    (struct completion){ .wr_id = arrival->context,
				 .qp = qp,
				 .qpn = qp->base.qp_base.qp_num,
				 .src_qpn = arrival->from.qpn,
				 .bytes = (uint32_t)arrival->bytes,
				 .imm = (uint32_t)arrival->data,
				 .has_imm = arrival->has_data,
				 .status = arrival->event == WIRE_TRUNCATED ? CARD_BAD_LENGTH : CARD_OK,
				 .opcode = arrival->event == WIRE_IMMEDIATE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
				 .unsolicited = arrival->event == WIRE_IMMEDIATE && arrival->extra };
	memcpy(cq->now.gid, arrival->from.gid, sizeof cq->now.gid);
	wire_release_arrival(ep, qp->arrival_next++);
	if (!cq->now.unsolicited)
		qp->rq_used--;
}

static bool take_arrived(struct completion_queue *cq)
{
	struct queue_pair **at = &cq->receivers, *qp;

	for (; (qp = *at); at = &qp->next_receiver)
		if (arrived(qp)) {
			read_arrival(cq, qp);
			if (qp->next_receiver) { /* the others first, next time */
				struct queue_pair **end = &qp->next_receiver;

				*at = qp->next_receiver;
				while (*end)
					end = &(*end)->next_receiver;
				*end = qp;
				qp->next_receiver = NULL;
			}
			return true;
		}
	return false;
}

static enum ibv_wc_status verbs_status(uint32_t status)
{
	static const enum ibv_wc_status known[] = {
		[CARD_OK] = IBV_WC_SUCCESS,
		[CARD_FLUSHED] = IBV_WC_WR_FLUSH_ERR,
		[CARD_QP_INTERNAL] = IBV_WC_LOC_QP_OP_ERR,
		[CARD_UNSUPPORTED] = IBV_WC_LOC_QP_OP_ERR,
		[CARD_BAD_AH] = IBV_WC_LOC_QP_OP_ERR,
		[CARD_BAD_LKEY] = IBV_WC_LOC_PROT_ERR,
		[CARD_BAD_LENGTH] = IBV_WC_LOC_LEN_ERR,
		[CARD_BAD_ADDRESS] = IBV_WC_REM_ACCESS_ERR,
		[8] = IBV_WC_REM_ABORT_ERR,
		[CARD_BAD_QPN] = IBV_WC_REM_INV_RD_REQ_ERR,
		[CARD_RNR] = IBV_WC_RNR_RETRY_EXC_ERR,
		[CARD_REMOTE_LENGTH] = IBV_WC_REM_INV_REQ_ERR,
		[12] = IBV_WC_BAD_RESP_ERR,
		[CARD_UNRESPONSIVE] = IBV_WC_RESP_TIMEOUT_ERR,
		[14] = IBV_WC_REM_OP_ERR,
		[15] = IBV_WC_RESP_TIMEOUT_ERR,
	};

	return status < sizeof known / sizeof known[0] ? known[status] : IBV_WC_GENERAL_ERR;
}

static int take(struct completion_queue *cq, bool progress)
{
	struct card *card = cq->card;
	bool found;

	pthread_mutex_lock(&card->lock);
	if (progress) {
		uint64_t now = sim_ticks();

		atomic_store_explicit(&card->polled_at, now, memory_order_relaxed);
		card_progress(card, now);
	}
	found = take_done(cq) || take_arrived(cq);
	pthread_mutex_unlock(&card->lock);
	if (!found)
		return ENOENT;
	cq->base.wr_id = cq->now.wr_id;
	cq->base.status = verbs_status(cq->now.status);
	return 0;
}

static int start_poll(struct ibv_cq_ex *base, struct ibv_poll_cq_attr *attr)
{
	struct completion_queue *cq = cq_of(base);
	int rc;

	if (attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&cq->poll_lock);
	rc = take(cq, true);
	if (rc)
		pthread_mutex_unlock(&cq->poll_lock);
	return rc;
}

static int next_poll(struct ibv_cq_ex *base)
{
	return take(cq_of(base), false);
}

static void end_poll(struct ibv_cq_ex *base)
{
	pthread_mutex_unlock(&cq_of(base)->poll_lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *base)
{
	return cq_of(base)->now.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *base)
{
	return cq_of(base)->now.status;
}

static uint32_t read_byte_len(struct ibv_cq_ex *base)
{
	return cq_of(base)->now.bytes;
}

static __be32 read_imm_data(struct ibv_cq_ex *base)
{
	return cq_of(base)->now.imm;
}

static uint32_t read_qp_num(struct ibv_cq_ex *base)
{
	return cq_of(base)->now.qpn;
}

static uint32_t read_src_qp(struct ibv_cq_ex *base)
{
	return cq_of(base)->now.src_qpn;
}

static unsigned read_wc_flags(struct ibv_cq_ex *base)
{
	return cq_of(base)->now.has_imm ? IBV_WC_WITH_IMM : 0;
}

/* "slid" is the number of our own address handle for the sender. */
static uint32_t read_slid(struct ibv_cq_ex *base)
{
	struct completion_queue *cq = cq_of(base);
	uint32_t number;

	pthread_mutex_lock(&cq->card->lock);
	number = ah_number(cq->card, cq->now.gid);
	pthread_mutex_unlock(&cq->card->lock);
	return number;
}

static uint8_t read_nothing(struct ibv_cq_ex *base)
{
	return 0;
}

/* Only of those we have no address handle for. */
static int read_sgid(struct efadv_cq *dv, union ibv_gid *gid)
{
	struct completion_queue *cq = CONTAINER_OF(dv, struct completion_queue, dv);

	if (read_slid(&cq->base) != 0xffff)
		return -ENOENT;
	memcpy(gid->raw, cq->now.gid, sizeof cq->now.gid);
	return 0;
}

#ifdef HAVE_EFADV_UNSOLICITED
static bool is_unsolicited(struct efadv_cq *dv)
{
	return CONTAINER_OF(dv, struct completion_queue, dv)->now.unsolicited;
}
#endif

static void fill(struct completion_queue *cq, struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	cq->base = (struct ibv_cq_ex){ .context = context,
				       .channel = attr->channel,
				       .cq_context = attr->cq_context,
				       .cqe = (int)cq->depth,
				       .start_poll = start_poll,
				       .next_poll = next_poll,
				       .end_poll = end_poll,
				       .read_opcode = read_opcode,
				       .read_vendor_err = read_vendor_err,
				       .read_byte_len = read_byte_len,
				       .read_imm_data = read_imm_data,
				       .read_qp_num = read_qp_num,
				       .read_src_qp = read_src_qp,
				       .read_wc_flags = read_wc_flags,
				       .read_slid = read_slid,
				       .read_sl = read_nothing,
				       .read_dlid_path_bits = read_nothing };
	cq->dv.wc_read_sgid = read_sgid;
#ifdef HAVE_EFADV_UNSOLICITED
	cq->dv.wc_is_unsolicited = is_unsolicited;
#endif
}

struct ibv_cq_ex *cq_create(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	uint32_t most = model.spec.cq && model.spec.cq < CARD_CQ_DEPTH ? (uint32_t)model.spec.cq : CARD_CQ_DEPTH;
	struct card *card = card_of(context);
	struct completion_queue *cq = NULL;
	int rc = !attr->cqe || attr->cqe > most ? EINVAL : card_attach(card);

	if (!rc && !(cq = calloc(1, sizeof *cq)))
		rc = ENOMEM;
	if (!rc) {
		for (cq->depth = 1; cq->depth < attr->cqe;)
			cq->depth *= 2;
		cq->done = calloc(cq->depth, sizeof *cq->done);
		rc = cq->done ? 0 : ENOMEM;
	}
	if (rc) {
		free(cq);
		errno = rc;
		return NULL;
	}
	cq->card = card;
	pthread_mutex_init(&cq->poll_lock, NULL);
	fill(cq, context, attr);
	pthread_mutex_lock(&card->lock);
	cq->next = card->cqs;
	card->cqs = cq;
	pthread_mutex_unlock(&card->lock);
	return &cq->base;
}

API struct ibv_cq_ex *efadv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
				      struct efadv_cq_init_attr *efa, uint32_t bytes)
{
	if (efa && (efa->wc_flags & EFADV_WC_EX_WITH_SGID) && !(model.caps & CAN_SGID)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return cq_create(context, attr);
}

API struct efadv_cq *efadv_cq_from_ibv_cq_ex(struct ibv_cq_ex *base)
{
	return &cq_of(base)->dv;
}

API int ibv_destroy_cq(struct ibv_cq *base)
{
	struct completion_queue *cq = cq_of((struct ibv_cq_ex *)base), **at;
	struct card *card = cq->card;

	pthread_mutex_lock(&card->lock);
	if (cq->users) {
		pthread_mutex_unlock(&card->lock);
		return EBUSY;
	}
	for (at = &card->cqs; *at != cq; at = &(*at)->next)
		;
	*at = cq->next;
	if (cq->armed)
		atomic_fetch_sub(&card->busy, 1);
	pthread_mutex_unlock(&card->lock);
	free(cq->done);
	free(cq);
	return 0;
}
