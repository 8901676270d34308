/*
 * The modelled card by itself, through the calls that libfabric's provider makes: what arrives, what is refused with which
 * status, and what never completes. Two queue pairs of one process on two cards; the card is linked in, not preloaded.
 */
#include "../card.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define QKEY  0x1234u
#define BYTES 4096u

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	uint8_t memory[BYTES];
};
static struct side here, there;
static struct ibv_ah *ah; /* here's, of there */

static void open_side(struct side *side, struct ibv_device *device, bool datagrams)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 256 };
	struct ibv_qp_init_attr_ex qp = { .cap = { 32, 32, 2, 3, 32 },
					  .qp_type = datagrams ? IBV_QPT_UD : IBV_QPT_DRIVER,
					  .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					  .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .qkey = QKEY, .rnr_retry = 2 };

	side->context = ibv_open_device(device);
	assert_non_null(side->context);
	assert_int_equal(ibv_query_gid(side->context, 1, 0, &side->gid), 0);
	side->pd = ibv_alloc_pd(side->context);
	side->cq = efadv_create_cq(side->context, &cq, NULL, 0);
	assert_non_null(side->cq);
	qp.pd = side->pd;
	qp.send_cq = qp.recv_cq = ibv_cq_ex_to_cq(side->cq);
	if (!datagrams)
		qp.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE;
	side->qp = efadv_create_qp_ex(side->context, &qp, &efa, sizeof efa);
	assert_non_null(side->qp);
	assert_int_equal(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_QKEY | IBV_QP_RNR_RETRY), 0);
	side->mr = ibv_reg_mr(side->pd, side->memory, BYTES,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(side->mr);
	memset(side->memory, 0, BYTES);
}

static void close_side(struct side *side)
{
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(side->cq)), side->qp ? EBUSY : 0);
	if (side->qp) {
		assert_int_equal(ibv_destroy_qp(side->qp), 0);
		assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(side->cq)), 0);
	}
	assert_int_equal(ibv_dealloc_pd(side->pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(side->mr), 0);
}

static void open_both(bool datagrams)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	assert_int_equal(count, 2);
	open_side(&here, list[0], datagrams);
	open_side(&there, list[1], datagrams);
	ibv_free_device_list(list);
	attr.grh.dgid = there.gid;
	ah = ibv_create_ah(here.pd, &attr);
	assert_non_null(ah);
}

static void close_both(void)
{
	ibv_destroy_ah(ah);
	close_side(&here);
	close_side(&there);
	assert_int_equal(ibv_dealloc_pd(here.pd), 0);
	assert_int_equal(ibv_dealloc_pd(there.pd), 0);
	assert_int_equal(ibv_close_device(here.context), 0);
	assert_int_equal(ibv_close_device(there.context), 0);
}

static int set_up_srd(void **state)
{
	open_both(false);
	return 0;
}

static int set_up_ud(void **state)
{
	open_both(true);
	return 0;
}

static int tear_down(void **state)
{
	sim_control_clear(model.control, -1);
	close_both();
	return 0;
}

/* The next completion's status; -1 if none comes within a second. */
static int next_status(struct side *side, uint64_t *ret_id)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t end = sim_clock_ns() + 1000000000u;
	int status;

	while (ibv_start_poll(side->cq, &attr) == ENOENT)
		if (sim_clock_ns() > end)
			return -1;
	status = (int)ibv_wc_read_vendor_err(side->cq);
	*ret_id = side->cq->wr_id;
	ibv_end_poll(side->cq);
	return status;
}

static void expect(struct side *side, uint64_t id, int status)
{
	uint64_t found;

	assert_int_equal(next_status(side, &found), status);
	assert_int_equal(found, id);
}

static void post_receive(struct side *side, uint64_t id, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)side->memory + BYTES / 2, bytes, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_recv(side->qp, &wr, &bad), 0);
}

static int post_message(uint64_t id, uint32_t key, uint32_t bytes, uint32_t qpn, uint32_t qkey)
{
	struct ibv_sge sge = { (uintptr_t)here.memory, bytes, key };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	return ibv_post_send(here.qp, &wr, &bad);
}

enum rdma { READ, WRITE };

static void post_rdma(enum rdma kind, uint64_t id, uint32_t key, uint64_t remote, uint32_t bytes)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(here.qp);

	ibv_wr_start(qp);
	qp->wr_id = id;
	if (kind == READ)
		ibv_wr_rdma_read(qp, key, remote);
	else
		ibv_wr_rdma_write(qp, key, remote);
	ibv_wr_set_sge(qp, here.mr->lkey, (uintptr_t)here.memory, bytes);
	ibv_wr_set_ud_addr(qp, ah, there.qp->qp_num, QKEY);
	assert_int_equal(ibv_wr_complete(qp), 0);
}

static void test_message(void **state)
{
	memset(here.memory, 7, 100);
	post_receive(&there, 50, 200);
	assert_int_equal(post_message(1, here.mr->lkey, 100, there.qp->qp_num, QKEY), 0);
	expect(&here, 1, CARD_OK);
	expect(&there, 50, CARD_OK);
	assert_memory_equal(there.memory + BYTES / 2, here.memory, 100);
}

static void test_rdma(void **state)
{
	memset(here.memory, 9, 64);
	post_rdma(WRITE, 1, there.mr->rkey, (uintptr_t)there.memory, 64);
	expect(&here, 1, CARD_OK);
	assert_memory_equal(there.memory, here.memory, 64);
	memset(there.memory, 3, 64);
	post_rdma(READ, 2, there.mr->rkey, (uintptr_t)there.memory, 64);
	expect(&here, 2, CARD_OK);
	assert_int_equal(here.memory[63], 3);
}

static void test_refusals(void **state)
{
	struct ibv_mr *readable = ibv_reg_mr(there.pd, there.memory, BYTES, IBV_ACCESS_REMOTE_READ);
	uint32_t stale = readable->rkey;

	post_rdma(WRITE, 1, readable->rkey, (uintptr_t)there.memory, 64);
	expect(&here, 1, CARD_BAD_ADDRESS); /* no right */
	post_rdma(READ, 2, there.mr->rkey, (uintptr_t)there.memory + BYTES - 10, 64);
	expect(&here, 2, CARD_BAD_ADDRESS); /* past the end */
	assert_int_equal(ibv_dereg_mr(readable), 0);
	post_rdma(READ, 3, stale, (uintptr_t)there.memory, 64);
	expect(&here, 3, CARD_BAD_ADDRESS);
	assert_int_equal(post_message(4, stale, 10, there.qp->qp_num, QKEY), 0);
	expect(&here, 4, CARD_BAD_LKEY);
	assert_int_equal(post_message(5, here.mr->lkey, 10, there.qp->qp_num + 1, QKEY), 0);
	expect(&here, 5, CARD_BAD_QPN);
	assert_int_equal(post_message(6, here.mr->lkey, 10, there.qp->qp_num, QKEY + 1), 0);
	expect(&here, 6, CARD_BAD_QPN);
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(there.memory[i], 0);
}

static void test_receiver_not_ready(void **state)
{
	assert_int_equal(post_message(1, here.mr->lkey, 10, there.qp->qp_num, QKEY), 0);
	expect(&here, 1, CARD_RNR);
	post_receive(&there, 50, 5);
	assert_int_equal(post_message(2, here.mr->lkey, 10, there.qp->qp_num, QKEY), 0);
	expect(&here, 2, CARD_REMOTE_LENGTH);
	expect(&there, 50, CARD_BAD_LENGTH);
}

/* Many requests of one size: they do not complete in the order they were posted, and all do. */
static void test_no_order(void **state)
{
	uint64_t seen = 0, id;
	bool overtaken = false;

	for (uint64_t i = 0; i < 32; i++)
		post_rdma(WRITE, i, there.mr->rkey, (uintptr_t)there.memory, 64);
	assert_int_equal(post_message(99, here.mr->lkey, 10, there.qp->qp_num, QKEY), ENOMEM);
	for (uint64_t i = 0; i < 32; i++) {
		assert_int_equal(next_status(&here, &id), CARD_OK);
		assert_false(seen >> id & 1);
		seen |= 1ull << id;
		overtaken |= id != i;
	}
	assert_true(overtaken);
}

static void test_destroyed(void **state)
{
	struct ibv_poll_cq_attr attr = { 0 };

	post_rdma(WRITE, 1, there.mr->rkey, (uintptr_t)there.memory, 64);
	post_rdma(WRITE, 2, there.mr->rkey, (uintptr_t)there.memory, 64);
	assert_int_equal(ibv_destroy_qp(here.qp), 0);
	here.qp = NULL;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(ibv_start_poll(here.cq, &attr), ENOENT);
}

static void set_rule(const char *rule)
{
	char why[128];

	assert_true(sim_control_set(model.control, rule, why, sizeof why) >= 0);
}

static void test_faults(void **state)
{
	set_rule("op=write,count=1,fault=error:15");
	post_rdma(WRITE, 1, there.mr->rkey, (uintptr_t)there.memory, 64);
	expect(&here, 1, 15);
	post_rdma(WRITE, 2, there.mr->rkey, (uintptr_t)there.memory, 64);
	expect(&here, 2, CARD_OK);
	set_rule("nic=1,fault=down");
	post_rdma(WRITE, 3, there.mr->rkey, (uintptr_t)there.memory, 64);
	expect(&here, 3, CARD_UNRESPONSIVE);
	assert_int_equal(sim_control_clear(model.control, -1), 2);
	set_rule("op=reg,fault=reg:12");
	assert_null(ibv_reg_mr(here.pd, here.memory, BYTES, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, ENOMEM);
}

/* What a card does while its program does not poll. */
static void test_works_by_itself(void **state)
{
	uint64_t end = sim_clock_ns() + 5000000000u;

	here.memory[0] = 42;
	post_rdma(WRITE, 1, there.mr->rkey, (uintptr_t)there.memory, 1);
	while (((volatile uint8_t *)there.memory)[0] != 42)
		assert_true(sim_clock_ns() < end);
	expect(&here, 1, CARD_OK);
}

static void test_datagrams(void **state)
{
	memset(here.memory, 5, 10);
	assert_int_equal(post_message(1, here.mr->lkey, 10, there.qp->qp_num, QKEY), 0);
	expect(&here, 1, CARD_OK); /* nobody has a buffer for it: it is lost, and nobody is told */
	post_receive(&there, 50, 100);
	assert_int_equal(post_message(2, here.mr->lkey, 10, there.qp->qp_num, QKEY), 0);
	expect(&here, 2, CARD_OK);
	expect(&there, 50, CARD_OK);
	assert_memory_equal(there.memory + BYTES / 2 + CARD_GRH, here.memory, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_message, set_up_srd, tear_down),
		cmocka_unit_test_setup_teardown(test_rdma, set_up_srd, tear_down),
		cmocka_unit_test_setup_teardown(test_refusals, set_up_srd, tear_down),
		cmocka_unit_test_setup_teardown(test_receiver_not_ready, set_up_srd, tear_down),
		cmocka_unit_test_setup_teardown(test_no_order, set_up_srd, tear_down),
		cmocka_unit_test_setup_teardown(test_destroyed, set_up_srd, tear_down),
		cmocka_unit_test_setup_teardown(test_faults, set_up_srd, tear_down),
		cmocka_unit_test_setup_teardown(test_works_by_itself, set_up_srd, tear_down),
		cmocka_unit_test_setup_teardown(test_datagrams, set_up_ud, tear_down),
	};

	setenv("SIMFAB", "p5,nics=2,card=efa,unresponsive=20ms", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
