/* The rules that hardware has and software must obey: limits, keys, back-pressure, handshake, order, lost
 * completions. */
#include "rig.h"

#include <rdma/fi_ext.h>
#include <stdlib.h>
#include <string.h>

struct pair {
	struct rig a, b;
	fi_addr_t ab;
};

static void open_pair(struct pair *p, const char *spec)
{
	rig_open_spec(&p->a, spec);
	rig_open_spec(&p->b, spec);
	p->ab = rig_connect(&p->a, &p->b);
}

static void close_pair(struct pair *p)
{
	rig_close(&p->a);
	rig_close(&p->b);
}

static ssize_t write_to(struct pair *p, uint64_t addr, uint64_t key, size_t bytes)
{
	return fi_write(p->a.ep, p->a.memory, bytes, fi_mr_desc(p->a.mr), p->ab, addr, key, &p->a.context[0]);
}

static void queue_depth(void **state)
{
	struct pair p;
	int posted = 0;

	open_pair(&p, "p5,tx=8,handshake=0");
	while (!rig_write(&p.a, p.ab, &p.b, 8, posted, 0))
		posted++;
	assert_int_equal(posted, 8);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 8, 0), -FI_EAGAIN);
	for (int i = 0; i < 8; i++) { /* only reading the CQ makes room */
		struct fi_cq_data_entry entry;
		struct fi_cq_err_entry error;

		assert_int_equal(rig_wait(&p.a, NULL, &entry, &error), 1);
	}
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	close_pair(&p);
}

static void receive_depth(void **state)
{
	struct rig a;

	rig_open_spec(&a, "p5,rx=4");
	for (int i = 0; i < 4; i++)
		assert_int_equal(rig_recv(&a, 0, 8, i), 0);
	assert_int_equal(rig_recv(&a, 0, 8, 4), -FI_EAGAIN);
	rig_close(&a);
}

static void nothing_moves_unread(void **state)
{
	struct pair p;
	uint64_t end;

	open_pair(&p, "p5,handshake=0,latency=1us");
	p.a.memory[0] = 1;
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	for (end = now_ns() + 2000000; now_ns() < end;)
		assert_int_equal(fi_cq_read(p.b.cq, NULL, 0), -FI_EAGAIN); /* the target's reading does not help */
	assert_int_equal(p.b.memory[0], 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	assert_int_equal(p.b.memory[0], 1);
	close_pair(&p);
}

static void target_progress(void **state)
{
	struct pair p;

	open_pair(&p, "p5,handshake=0,target_progress=1");
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	rig_expect_nothing(&p.a, 2000000);
	rig_expect(&p.a, &p.b, &p.a.context[0]);
	close_pair(&p);
}

static void more_waits_for_the_doorbell(void **state)
{
	struct pair p;

	open_pair(&p, "p5,handshake=0");
	for (int i = 0; i < 3; i++)
		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, i, FI_MORE), 0);
	rig_expect_nothing(&p.a, 1000000);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 3, 0), 0);
	for (int i = 0; i < 4; i++) {
		struct fi_cq_data_entry entry;
		struct fi_cq_err_entry error;

		assert_int_equal(rig_wait(&p.a, NULL, &entry, &error), 1);
	}
	close_pair(&p);
}

static void keys(void **state)
{
	const struct rig_options second = { .spec = "p5", .nic = 1, .threading = FI_THREAD_DOMAIN };
	struct fid_mr *readonly;
	struct pair p;
	struct rig c;
	uint64_t base, key, old;

	open_pair(&p, "p5");
	rig_open(&c, &second);
	base = (uintptr_t)p.b.memory;
	key = rig_key(&p.b);
	assert_true(key <= UINT32_MAX);
	assert_int_equal(write_to(&p, base, key, 8), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	assert_int_equal(write_to(&p, base, key ^ 0x40000, 8), 0); /* no such key */
	assert_int_equal(rig_expect_error(&p.a, NULL, 7).err, FI_EINVAL);
	assert_int_equal(write_to(&p, base + RIG_BYTES - 4, key, 8), 0); /* past the end */
	rig_expect_error(&p.a, NULL, 7);
	assert_int_equal(write_to(&p, base - 1, key, 8), 0); /* before the start */
	rig_expect_error(&p.a, NULL, 7);
	assert_int_equal(write_to(&p, UINT64_MAX - 3, key, 8), 0); /* wraps */
	rig_expect_error(&p.a, NULL, 7);
	assert_int_equal(write_to(&p, 0, 0, 0), 0); /* even an empty write needs a valid address and key */
	rig_expect_error(&p.a, NULL, 7);
	assert_int_equal(write_to(&p, (uintptr_t)c.memory, rig_key(&c), 8), 0); /* another NIC's */
	rig_expect_error(&p.a, NULL, 7);
	assert_int_equal(fi_mr_reg(p.b.domain, p.b.memory, 64, FI_REMOTE_READ, 0, 0, 0, &readonly, NULL), 0);
	assert_int_equal(write_to(&p, base, fi_mr_key(readonly), 8), 0); /* not for writing */
	rig_expect_error(&p.a, NULL, 7);
	old = fi_mr_key(readonly);
	assert_int_equal(fi_close(&readonly->fid), 0);
	assert_int_equal(fi_mr_reg(p.b.domain, p.b.memory, 64, FI_REMOTE_WRITE, 0, 0, 0, &readonly, NULL), 0);
	assert_int_not_equal(fi_mr_key(readonly), old); /* same slot, new key: the old key stays invalid */
	assert_int_equal(write_to(&p, base, old, 8), 0);
	rig_expect_error(&p.a, NULL, 7);
	assert_int_equal(fi_close(&readonly->fid), 0);
	rig_close(&c);
	close_pair(&p);
}

static void local_keys(void **state)
{
	static uint8_t elsewhere[64];
	struct pair p;

	open_pair(&p, "verbs");
	/* FI_MR_LOCAL: a missing descriptor is refused at once, a wrong one fails on the NIC. */
	assert_int_equal(
	    fi_write(p.a.ep, p.a.memory, 8, NULL, p.ab, (uintptr_t)p.b.memory, rig_key(&p.b), &p.a.context[0]),
	    -FI_EINVAL);
	assert_int_equal(fi_write(p.a.ep, elsewhere, 8, fi_mr_desc(p.a.mr), p.ab, (uintptr_t)p.b.memory, rig_key(&p.b),
				  &p.a.context[0]),
			 0);
	assert_int_equal(rig_expect_error(&p.a, NULL, 5).err, FI_EINVAL);
	assert_int_equal(fi_recv(p.a.ep, elsewhere, 8, fi_mr_desc(p.a.mr), FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
	close_pair(&p);
	open_pair(&p, "p5"); /* efa needs none */
	assert_int_equal(
	    fi_write(p.a.ep, p.a.memory, 8, NULL, p.ab, (uintptr_t)p.b.memory, rig_key(&p.b), &p.a.context[0]), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	close_pair(&p);
}

static void limits(void **state)
{
	struct iovec iov[5] = { { 0 } };
	struct fi_rma_iov remote[2] = { { 0 } };
	struct fi_msg_rma msg = { .msg_iov = iov, .rma_iov = remote, .rma_iov_count = 2 };
	struct pair p;

	open_pair(&p, "p5,personality=efa-direct");
	msg.addr = p.ab;
	assert_int_equal(fi_writemsg(p.a.ep, &msg, 0), -FI_EINVAL); /* rma_iov_limit 1 */
	msg.rma_iov_count = 1;
	msg.iov_count = 3;
	assert_int_equal(fi_writemsg(p.a.ep, &msg, 0), -FI_EINVAL); /* iov_limit 2 */
	assert_int_equal(fi_inject(p.a.ep, p.a.memory, 33, p.ab), -FI_EINVAL);
	assert_int_equal(fi_inject_write(p.a.ep, p.a.memory, 8, p.ab, (uintptr_t)p.b.memory, rig_key(&p.b)),
			 -FI_EINVAL);                                  /* no RMA inject */
	assert_int_equal(rig_send(&p.a, p.ab, 9000, 0), -FI_EMSGSIZE); /* one packet */
	assert_int_equal(fi_write(p.a.ep, p.a.memory, (1ul << 30) + 1, fi_mr_desc(p.a.mr), p.ab, 0, 0, &p.a.context[0]),
			 -FI_EMSGSIZE);
	assert_int_equal(fi_write(p.a.ep, p.a.memory, 8, fi_mr_desc(p.a.mr), p.ab, 0, 0, NULL),
			 -FI_EINVAL); /* wants fi_context2 */
	assert_int_equal(fi_write(p.a.ep, p.a.memory, 8, fi_mr_desc(p.a.mr), 99, 0, 0, &p.a.context[0]),
			 -FI_EINVAL); /* nobody has that address */
	close_pair(&p);
	open_pair(&p, "verbs");
	assert_int_equal(fi_write(p.a.ep, p.a.memory, (8u << 20) + 1, fi_mr_desc(p.a.mr), p.ab, 0, 0, NULL),
			 -FI_EMSGSIZE);
	assert_int_equal(fi_inject(p.a.ep, p.a.memory, 193, p.ab), -FI_EINVAL);
	close_pair(&p);
}

static void registration_limits(void **state)
{
	struct fi_mr_attr attr = { .access = FI_REMOTE_WRITE, .iov_count = 2 };
	struct iovec iov[2];
	struct fid_mr *mr, *second;
	struct rig a;

	rig_open_spec(&a, "p5,pages=1024");
	iov[0] = iov[1] = (struct iovec){ a.memory, 4096 };
	attr.mr_iov = iov;
	assert_int_equal(fi_mr_regattr(a.domain, &attr, 0, &mr), -FI_EINVAL); /* mr_iov_limit 1 */
	assert_int_equal(fi_mr_reg(a.domain, NULL, 10, FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL), -FI_EINVAL);
	/* The rig's own region takes 256 of 1024 pages. */
	assert_int_equal(fi_mr_reg(a.domain, a.memory, 3u << 20, FI_SEND, 0, 0, 0, &mr, NULL), 0);
	assert_int_equal(fi_mr_reg(a.domain, a.memory, 4096, FI_SEND, 0, 0, 0, &second, NULL), -FI_ENOMEM);
	assert_int_equal(fi_close(&mr->fid), 0);
	assert_int_equal(fi_mr_reg(a.domain, a.memory, 4096, FI_SEND, 0, 0, 0, &mr, NULL), 0);
	assert_int_equal(fi_close(&mr->fid), 0);
	rig_close(&a);
	rig_open_spec(&a, "p5");
	assert_int_equal(fi_mr_reg(a.domain, a.memory, (1ul << 32) + 4096, FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL),
			 -FI_EINVAL); /* a remote-write region has at most a million pages */
	rig_close(&a);
	rig_open_spec(&a, "p5,mr_pages=512"); /* or the number given */
	assert_int_equal(fi_mr_reg(a.domain, a.memory, (2u << 20) + 4096, FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL),
			 -FI_EINVAL);
	assert_int_equal(fi_mr_reg(a.domain, a.memory, (2u << 20) + 4096, FI_REMOTE_READ, 0, 0, 0, &mr, NULL), 0);
	assert_int_equal(fi_close(&mr->fid), 0);
	rig_close(&a);
}

static void handshake(void **state)
{
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error;
	struct pair p;
	uint64_t start;

	open_pair(&p, "p5,handshake=3ms");
	start = now_ns();
	for (int i = 0; i < 16; i++)
		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, i, 0), 0);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 16, 0), -FI_EAGAIN); /* 16 wait, no more */
	assert_int_equal(rig_wait(&p.a, NULL, &entry, &error), 1);
	assert_true(now_ns() - start >= 3000000);
	for (int i = 1; i < 16; i++)
		assert_int_equal(rig_wait(&p.a, NULL, &entry, &error), 1);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 16, 0), 0);
	start = now_ns();
	rig_expect(&p.a, NULL, &p.a.context[16]);
	close_pair(&p);
}

/* verbs and tcp connect like this: no request waits inside the provider, and each end connects for itself. */
static void nothing_may_wait_for_the_handshake(void **state)
{
	struct pair p;
	uint64_t start;

	open_pair(&p, "verbs,handshake=20ms,handshake_depth=0");
	start = now_ns();
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), -FI_EAGAIN);
	while (rig_write(&p.a, p.ab, &p.b, 8, 0, 0) == -FI_EAGAIN)
		assert_true(now_ns() - start < UINT64_C(20000000000));
	assert_true(now_ns() - start >= 20000000);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	close_pair(&p);
}

static void handshake_holds_up_no_one_else(void **state)
{
	struct pair p;
	struct rig c;
	fi_addr_t ac;

	open_pair(&p, "p5,handshake=300ms,handshake_depth=4");
	rig_open_spec(&c, "p5");
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	ac = rig_connect(&p.a, &c);
	assert_int_equal(rig_write(&p.a, ac, &c, 8, 1, 0), 0); /* waits for its handshake */
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 2, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[2]);
	rig_expect(&p.a, NULL, &p.a.context[1]);
	rig_close(&c);
	close_pair(&p);
}

/* Counts how often a later request completed before an earlier one, in ten rounds of up to twenty. */
static int overtakings(const char *spec, bool sends)
{
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error;
	int overtaken = 0, at[64] = { 0 };
	struct pair p;

	open_pair(&p, spec);
	for (int round = 0; round < 10; round++) {
		int posted = 0;

		for (int i = 0; sends && i < 20; i++)
			assert_int_equal(rig_recv(&p.b, 0, 8, i), 0);
		/* The first round stops at the number that may wait for the handshake. */
		while (posted < 20 &&
		       !(sends ? rig_send(&p.a, p.ab, 8, posted) : rig_write(&p.a, p.ab, &p.b, 8, posted, 0)))
			posted++;
		assert_true(posted >= 16);
		for (int n = 0; n < posted; n++) {
			assert_int_equal(rig_wait(&p.a, NULL, &entry, &error), 1);
			at[(struct fi_context2 *)entry.op_context - p.a.context] = n;
		}
		for (int i = 1; i < posted; i++)
			overtaken += at[i] < at[i - 1];
		while (sends && fi_cq_read(p.b.cq, &entry, 1) == 1)
			;
	}
	close_pair(&p);
	return overtaken;
}

static void ordering(void **state)
{
	assert_true(overtakings("p5", false) > 10); /* RMA keeps no order */
	assert_int_equal(overtakings("p5,reorder=0", false), 0);
	assert_int_equal(overtakings("verbs", false), 0);
	assert_int_equal(overtakings("p5,handshake_depth=64", true), 0); /* sends keep order on efa */
}

/* A back-off of a second: a test that is delayed by less still meets it. */
static void not_ready_yet(const char *spec, int write_result)
{
	struct pair p;

	open_pair(&p, spec);
	p.a.memory[0] = 5;
	assert_int_equal(rig_send(&p.a, p.ab, 8, 0), 0);
	rig_expect_nothing(&p.a, 500000);
	assert_int_equal(rig_send(&p.a, p.ab, 8, 1), -FI_EAGAIN); /* in back-off */
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 2, 0), write_result);
	if (!write_result)
		rig_expect(&p.a, NULL, &p.a.context[2]);
	assert_int_equal(rig_recv(&p.b, 0, 8, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]); /* posted in time */
	rig_expect(&p.b, NULL, &p.b.context[0]);
	close_pair(&p);
}

/* EFA's provider holds back everything for that peer, its queue pair only messages. */
static void receiver_not_ready_yet(void **state)
{
	not_ready_yet("p5,handshake=0,rnr=1s,rnr_retries=3", -FI_EAGAIN);
	not_ready_yet("p5,handshake=0,rnr=1s,rnr_retries=3,personality=efa-direct", 0);
}

static void receiver_never_ready(void **state)
{
	struct pair p;

	open_pair(&p, "p5,handshake=0,rnr=1ms,rnr_retries=3");
	assert_int_equal(rig_send(&p.a, p.ab, 8, 0), 0);
	assert_int_equal(rig_expect_error(&p.a, NULL, 10).err, FI_ENORX);
	close_pair(&p);
}

static void truncation(void **state)
{
	struct fi_cq_err_entry error;
	struct pair p;

	open_pair(&p, "p5,handshake=0");
	assert_int_equal(rig_recv(&p.b, 0, 10, 0), 0);
	assert_int_equal(rig_send(&p.a, p.ab, 30, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	error = rig_expect_error(&p.b, NULL, 11);
	assert_int_equal(error.err, FI_ETRUNC);
	assert_int_equal(error.olen, 20);
	assert_ptr_equal(error.op_context, &p.b.context[0]);
	close_pair(&p);
}

static void overrun_at_the_target(void **state)
{
	const struct rig_options small = { .spec = "p5,handshake=0,cq=8", .threading = FI_THREAD_DOMAIN };
	const struct rig_options large = { .spec = "p5,handshake=0", .threading = FI_THREAD_DOMAIN };
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error;
	struct rig a, b;
	fi_addr_t ab;

	rig_open(&a, &large);
	rig_open(&b, &small);
	ab = rig_connect(&a, &b);
	for (int i = 0; i < 20; i++)
		assert_int_equal(rig_write(&a, ab, &b, 8, i, FI_REMOTE_CQ_DATA), 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(rig_wait(&a, NULL, &entry, &error), 1); /* the sender never learns of it */
	for (int i = 0; i < 8; i++)
		assert_int_equal(rig_wait(&b, NULL, &entry, &error), 1);
	rig_expect_nothing(&b, 1000000); /* twelve are lost */
	rig_close(&a);
	rig_close(&b);
}

static void overrun_at_the_sender(void **state)
{
	const struct rig_options small = { .spec = "null,copy=full,cq=4", .threading = FI_THREAD_DOMAIN };
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error;
	struct rig a, b;
	fi_addr_t ab;

	rig_open(&a, &small);
	rig_open(&b, &small);
	ab = rig_connect(&a, &b);
	assert_int_equal(rig_write(&a, ab, &b, 8, 0, 0), 0);
	rig_expect(&a, NULL, &a.context[0]);
	for (int i = 0; i < 10; i++)
		assert_int_equal(rig_write(&a, ab, &b, 8, i, 0), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(rig_wait(&a, NULL, &entry, &error), 1);
	rig_expect_nothing(&a, 1000000);
	rig_close(&a);
	rig_close(&b);
}

static void closed_endpoint(void **state)
{
	struct pair p;

	open_pair(&p, "p5,handshake=0");
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	assert_int_equal(fi_close(&p.b.ep->fid), 0);
	p.b.ep = NULL;
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 1, 0), 0);
	assert_int_equal(rig_expect_error(&p.a, NULL, 9).err, FI_ENOTCONN);
	close_pair(&p);
}

static void never_there(void **state)
{
	uint8_t address[32];
	struct rig a;
	fi_addr_t addr;

	rig_open_spec(&a, "p5,unresponsive=20ms");
	memcpy(address, a.address, sizeof address);
	memset(address + 24, 0x7f, 3); /* a process that does not exist */
	assert_int_equal(fi_av_insert(a.av, address, 1, &addr, 0, NULL), 1);
	assert_int_equal(rig_write(&a, addr, &a, 8, 0, 0), 0);
	assert_int_equal(rig_expect_error(&a, NULL, 13).err, FI_ECONNABORTED);
	rig_close(&a);
}

static void removed_peer(void **state)
{
	struct pair p;

	open_pair(&p, "p5,handshake=0,latency=10ms,personality=verbs");
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	assert_int_equal(fi_av_remove(p.a.av, &p.ab, 1, 0), 0);
	rig_expect_error(&p.a, NULL, 14);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), -FI_EINVAL);
	close_pair(&p);
}

/* An address that was inserted twice is there once, and is gone with the first removal; requests in flight to it
 * never complete. */
static void removed_peer_on_efa(void **state)
{
	struct pair p;
	fi_addr_t again;

	open_pair(&p, "p5,handshake=0,latency=10ms");
	assert_int_equal(fi_av_insert(p.a.av, p.b.address, 1, &again, 0, NULL), 1);
	assert_true(again == p.ab);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	assert_int_equal(fi_av_remove(p.a.av, &p.ab, 1, 0), 0);
	rig_expect_nothing(&p.a, 20000000);
	assert_int_equal(rig_write(&p.a, again, &p.b, 8, 0, 0), -FI_EINVAL);
	close_pair(&p);
}

/* The completion queue is never smaller than both queues together. */
static void least_queue(void **state)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_DATA, .size = 16 };
	struct fid_cq *cq;
	struct rig a;

	rig_open_spec(&a, "p5");
	assert_int_equal(fi_cq_open(a.domain, &attr, &cq, NULL), 0);
	assert_int_equal(attr.size, 4096 + 8192);
	assert_int_equal(fi_close(&cq->fid), 0);
	rig_close(&a);
}

/* Emulated writes wait for the target, and the option reports them. */
static void emulated_writes(void **state)
{
	struct fi_cq_data_entry entry;
	bool emulated = false;
	size_t bytes = sizeof emulated;
	struct pair p;

	open_pair(&p, "p5,handshake=0,emulated=1");
	assert_int_equal(fi_getopt(&p.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_EFA_RNR_RETRY + 2, &emulated, &bytes), 0);
	assert_true(emulated);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	rig_expect_nothing(&p.a, 5000000);
	assert_int_equal(fi_cq_read(p.b.cq, &entry, 1), -FI_EAGAIN);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	close_pair(&p);
}

static void wait_objects(void **state)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_FD };
	struct fid_cq *cq;
	struct rig a;

	rig_open_spec(&a, "p5");
	assert_int_equal(fi_cq_open(a.domain, &attr, &cq, NULL), -FI_ENOSYS);
	rig_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queue_depth),
		cmocka_unit_test(receive_depth),
		cmocka_unit_test(nothing_moves_unread),
		cmocka_unit_test(target_progress),
		cmocka_unit_test(more_waits_for_the_doorbell),
		cmocka_unit_test(keys),
		cmocka_unit_test(local_keys),
		cmocka_unit_test(limits),
		cmocka_unit_test(registration_limits),
		cmocka_unit_test(handshake),
		cmocka_unit_test(nothing_may_wait_for_the_handshake),
		cmocka_unit_test(handshake_holds_up_no_one_else),
		cmocka_unit_test(ordering),
		cmocka_unit_test(receiver_not_ready_yet),
		cmocka_unit_test(receiver_never_ready),
		cmocka_unit_test(truncation),
		cmocka_unit_test(overrun_at_the_target),
		cmocka_unit_test(overrun_at_the_sender),
		cmocka_unit_test(closed_endpoint),
		cmocka_unit_test(never_there),
		cmocka_unit_test(removed_peer),
		cmocka_unit_test(removed_peer_on_efa),
		cmocka_unit_test(least_queue),
		cmocka_unit_test(emulated_writes),
		cmocka_unit_test(wait_objects),
	};

	return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
