/*
 * Posting: ibv_post_send (sends only, as the driver takes), the builder calls of ibv_qp_ex, receives. Hot path; the caller's
 * thread. A post lock is held from wr_start to wr_complete as rdma-core holds its own: beginning a work request inside
 * another hangs there for ever, and is reported here.
 */
#include "card.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct queue_pair *qp_of(struct ibv_qp_ex *base)
{
	return CONTAINER_OF(base, struct queue_pair, base);
}

static void lock_posts(struct queue_pair *qp)
{
	if (pthread_mutex_lock(&qp->post_lock) == EDEADLK) {
		card_say("queue pair %u: a work request begun inside another, which hangs a real program",
			 qp->base.qp_base.qp_num);
		abort();
	}
}

/* With the card's lock. */
static struct request *take(struct queue_pair *qp, enum ibv_wr_opcode opcode, int *ret_error)
{
	enum ibv_qp_state state = qp->base.qp_base.state;
	struct request *request;

	if (state != IBV_QPS_RTS && state != IBV_QPS_SQD)
		*ret_error = EINVAL;
	else if (fault_active() && (*ret_error = fault_post(qp->card, opcode)))
		;
	else if (!qp->free_count)
		*ret_error = ENOMEM;
	if (*ret_error)
		return NULL;
	request = &qp->requests[qp->free_requests[--qp->free_count]];
	memset(request, 0, offsetof(struct request, sge));
	request->qp = qp;
	request->opcode = (uint8_t)opcode;
	return request;
}

static void give_back(struct queue_pair *qp, const struct request *request)
{
	qp->free_requests[qp->free_count++] = (uint32_t)(request - qp->requests);
}

static void set_address(struct request *request, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	if (ah)
		request->gid = CONTAINER_OF(ah, struct address_handle, base)->gid;
	else
		request->status = CARD_BAD_AH;
	request->qpn = qpn;
	request->qkey = qkey;
}

static int set_sges(struct request *request, size_t count, const struct ibv_sge *sges)
{
	if (count > CARD_SQ_SGE)
		return EINVAL;
	request->count = (uint8_t)count;
	for (size_t i = 0; i < count; i++) {
		request->sge[i] = sges[i];
		request->bytes += sges[i].length;
	}
	return 0;
}

static int add_inline(struct request *request, const void *from, size_t bytes)
{
	if (request->bytes + bytes > CARD_INLINE)
		return EINVAL;
	if (bytes)
		memcpy(request->data + request->bytes, from, bytes);
	request->bytes += (uint32_t)bytes;
	request->inlined = 1;
	return 0;
}

static int fill(struct request *request, const struct ibv_send_wr *wr)
{
	int rc = 0;

	request->wr_id = wr->wr_id;
	request->imm = wr->imm_data;
	set_address(request, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	if (!(wr->send_flags & IBV_SEND_INLINE))
		return wr->num_sge < 0 ? EINVAL : set_sges(request, (size_t)wr->num_sge, wr->sg_list);
	request->inlined = 1;
	for (int i = 0; !rc && i < wr->num_sge; i++)
		rc = add_inline(request, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
	return rc;
}

static int post_one(struct queue_pair *qp, const struct ibv_send_wr *wr, uint64_t now)
{
	struct request *request;
	int rc = 0;

	if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM)
		return EINVAL;
	request = take(qp, wr->opcode, &rc);
	if (!request)
		return rc;
	rc = fill(request, wr);
	if (rc)
		give_back(qp, request);
	else
		launch(qp->card, request, now);
	return rc;
}

int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	struct queue_pair *qp = CONTAINER_OF(base, struct queue_pair, base.qp_base);
	uint64_t now = sim_ticks();
	int rc = 0;

	lock_posts(qp);
	pthread_mutex_lock(&qp->card->lock);
	for (; wr && !(rc = post_one(qp, wr, now)); wr = wr->next)
		;
	pthread_mutex_unlock(&qp->card->lock);
	pthread_mutex_unlock(&qp->post_lock);
	ticker_wake();
	if (rc && ret_bad)
		*ret_bad = wr;
	return rc;
}

static bool receive_keys_good(struct queue_pair *qp, const struct ibv_recv_wr *wr)
{
	uint16_t pd = QP_PD(qp->wire->address.reserved);

	for (int i = 0; i < wr->num_sge; i++)
		if (wr->sg_list[i].length && !region_find(qp->card->wire, wr->sg_list[i].lkey, wr->sg_list[i].addr,
							  wr->sg_list[i].length, IBV_ACCESS_LOCAL_WRITE, pd))
			return false;
	return true;
}

static int receive_one(struct queue_pair *qp, const struct ibv_recv_wr *wr)
{
	struct iovec iov[CARD_RQ_SGE];

	if (wr->num_sge < 0 || wr->num_sge > (int)CARD_RQ_SGE || qp->base.qp_base.state == IBV_QPS_RESET)
		return EINVAL;
	if (qp->rq_used >= qp->rq_depth)
		return ENOMEM;
	/* A card finds out when a message comes; nobody can tell the difference but by when. */
	if (!receive_keys_good(qp, wr)) {
		struct completion bad = { .wr_id = wr->wr_id,
					  .qp = qp,
					  .qpn = qp->base.qp_base.qp_num,
					  .status = CARD_BAD_LKEY,
					  .opcode = IBV_WC_RECV };

		cq_push(qp->recv_cq, &bad);
		qp->rq_used++;
		return 0;
	}
	for (int i = 0; i < wr->num_sge; i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length };
	if (!wire_post_buffer(qp->wire, iov, (size_t)wr->num_sge, (void *)(uintptr_t)wr->wr_id, qp->rq_depth))
		return ENOMEM;
	qp->rq_used++;
	return 0;
}

int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
	struct queue_pair *qp = CONTAINER_OF(base, struct queue_pair, base.qp_base);
	int rc = 0;

	pthread_mutex_lock(&qp->card->lock);
	for (; wr && !(rc = receive_one(qp, wr)); wr = wr->next)
		;
	pthread_mutex_unlock(&qp->card->lock);
	if (rc && ret_bad)
		*ret_bad = wr;
	return rc;
}

/* ---- ibv_qp_ex: wr_start, then for each request one of wr_send..., wr_set_ud_addr and its data, then wr_complete ---- */

static void wr_start(struct ibv_qp_ex *base)
{
	lock_posts(qp_of(base));
	qp_of(base)->batched = 0;
	qp_of(base)->batch_error = 0;
}

/* After an error the rest of the batch goes here and is thrown away. */
static __thread struct request scrap;

static struct request *begin(struct ibv_qp_ex *base, enum ibv_wr_opcode opcode)
{
	struct queue_pair *qp = qp_of(base);
	struct request *request = NULL;

	pthread_mutex_lock(&qp->card->lock);
	if (!qp->batch_error)
		request = take(qp, opcode, &qp->batch_error);
	pthread_mutex_unlock(&qp->card->lock);
	if (!request) {
		scrap.bytes = 0;
		return &scrap;
	}
	request->wr_id = base->wr_id;
	qp->batch[qp->batched++] = (uint32_t)(request - qp->requests);
	return request;
}

static struct request *latest(struct ibv_qp_ex *base)
{
	struct queue_pair *qp = qp_of(base);

	return qp->batch_error || !qp->batched ? &scrap : &qp->requests[qp->batch[qp->batched - 1]];
}

static void wr_send(struct ibv_qp_ex *base)
{
	begin(base, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *base, __be32 imm)
{
	begin(base, IBV_WR_SEND_WITH_IMM)->imm = imm;
}

static void rdma(struct ibv_qp_ex *base, enum ibv_wr_opcode opcode, uint32_t key, uint64_t remote, __be32 imm)
{
	struct request *request = begin(base, opcode);

	request->key = key;
	request->remote = remote;
	request->imm = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *base, uint32_t key, uint64_t remote)
{
	rdma(base, IBV_WR_RDMA_READ, key, remote, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *base, uint32_t key, uint64_t remote)
{
	rdma(base, IBV_WR_RDMA_WRITE, key, remote, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *base, uint32_t key, uint64_t remote, __be32 imm)
{
	rdma(base, IBV_WR_RDMA_WRITE_WITH_IMM, key, remote, imm);
}

static void wr_set_ud_addr(struct ibv_qp_ex *base, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	set_address(latest(base), ah, qpn, qkey);
}

static void wr_set_sge_list(struct ibv_qp_ex *base, size_t count, const struct ibv_sge *sges)
{
	int rc = set_sges(latest(base), count, sges);

	if (rc && !qp_of(base)->batch_error)
		qp_of(base)->batch_error = rc;
}

static void wr_set_sge(struct ibv_qp_ex *base, uint32_t key, uint64_t addr, uint32_t bytes)
{
	wr_set_sge_list(base, 1, &(struct ibv_sge){ .addr = addr, .length = bytes, .lkey = key });
}

static void wr_set_inline_data_list(struct ibv_qp_ex *base, size_t count, const struct ibv_data_buf *parts)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++)
		rc = add_inline(latest(base), parts[i].addr, parts[i].length);
	if (rc && !qp_of(base)->batch_error)
		qp_of(base)->batch_error = rc;
}

static void wr_set_inline_data(struct ibv_qp_ex *base, void *addr, size_t bytes)
{
	wr_set_inline_data_list(base, 1, &(struct ibv_data_buf){ .addr = addr, .length = bytes });
}

static void wr_abort(struct ibv_qp_ex *base)
{
	struct queue_pair *qp = qp_of(base);

	pthread_mutex_lock(&qp->card->lock);
	while (qp->batched)
		qp->free_requests[qp->free_count++] = qp->batch[--qp->batched];
	pthread_mutex_unlock(&qp->card->lock);
	pthread_mutex_unlock(&qp->post_lock);
}

static int wr_complete(struct ibv_qp_ex *base)
{
	struct queue_pair *qp = qp_of(base);
	int rc = qp->batch_error;
	uint64_t now;

	if (rc) {
		wr_abort(base);
		return rc;
	}
	now = sim_ticks();
	pthread_mutex_lock(&qp->card->lock);
	for (uint32_t i = 0; i < qp->batched; i++)
		launch(qp->card, &qp->requests[qp->batch[i]], now);
	pthread_mutex_unlock(&qp->card->lock);
	pthread_mutex_unlock(&qp->post_lock);
	ticker_wake();
	return 0;
}

void post_fill(struct ibv_qp_ex *qp)
{
	qp->wr_start = wr_start;
	qp->wr_complete = wr_complete;
	qp->wr_abort = wr_abort;
	qp->wr_send = wr_send;
	qp->wr_send_imm = wr_send_imm;
	qp->wr_rdma_read = wr_rdma_read;
	qp->wr_rdma_write = wr_rdma_write;
	qp->wr_rdma_write_imm = wr_rdma_write_imm;
	qp->wr_set_ud_addr = wr_set_ud_addr;
	qp->wr_set_sge = wr_set_sge;
	qp->wr_set_sge_list = wr_set_sge_list;
	qp->wr_set_inline_data = wr_set_inline_data;
	qp->wr_set_inline_data_list = wr_set_inline_data_list;
}
