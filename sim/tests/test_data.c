/* Bytes really move, when and as they should: write, read, send, immediates, lists, inject, copy=. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

/* Two hosts, with an address in each direction. */
struct pair {
	struct rig a, b;
	fi_addr_t ab, ba;
};

static void open_pair(struct pair *p, const char *spec)
{
	rig_open_spec(&p->a, spec);
	rig_open_spec(&p->b, spec);
	p->ab = rig_connect(&p->a, &p->b);
	p->ba = rig_connect(&p->b, &p->a);
}

static void close_pair(struct pair *p)
{
	rig_close(&p->a);
	rig_close(&p->b);
}

static void fill(uint8_t *at, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)(i * 31 + seed + (i >> 8));
}

static const char *const specs[] = { "p5", "p5,personality=efa-direct", "verbs", "null,copy=full" };
#define EACH_SPEC(i) for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)

static void write_moves(void **state)
{
	EACH_SPEC(i)
	{
		struct pair p;

		open_pair(&p, specs[i]);
		fill(p.a.memory, 100000, (unsigned)i);
		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 100000, 0, FI_COMPLETION), 0);
		rig_expect(&p.a, NULL, &p.a.context[0]); /* the target need not do anything */
		assert_memory_equal(p.a.memory, p.b.memory, 100000);
		assert_int_equal(p.b.memory[100000], 0);
		rig_expect_nothing(&p.b, 100000); /* no immediate, no event */
		close_pair(&p);
	}
}

static void read_moves(void **state)
{
	EACH_SPEC(i)
	{
		struct pair p;

		open_pair(&p, specs[i]);
		fill(p.b.memory, 5000, 3);
		assert_int_equal(fi_read(p.a.ep, p.a.memory, 5000, fi_mr_desc(p.a.mr), p.ab, (uintptr_t)p.b.memory,
					 rig_key(&p.b), &p.a.context[1]),
				 0);
		rig_expect(&p.a, NULL, &p.a.context[1]);
		assert_memory_equal(p.a.memory, p.b.memory, 5000);
		close_pair(&p);
	}
}

static void send_moves(void **state)
{
	EACH_SPEC(i)
	{
		struct fi_cq_data_entry entry;
		uint64_t end = now_ns() + RIG_DEADLINE;
		fi_addr_t from = 0;
		struct pair p;

		open_pair(&p, specs[i]);
		fill(p.a.memory, 2000, 9);
		assert_int_equal(rig_recv(&p.b, 4096, 3000, 5), 0);
		assert_int_equal(rig_send(&p.a, p.ab, 2000, 2), 0);
		rig_expect(&p.a, NULL, &p.a.context[2]);
		while (fi_cq_readfrom(p.b.cq, &entry, 1, &from) != 1)
			assert_true(now_ns() < end);
		assert_ptr_equal(entry.op_context, &p.b.context[5]);
		assert_int_equal(entry.len, 2000);
		assert_int_equal(entry.flags, FI_RECV | FI_MSG);
		assert_int_equal(from, p.ba);
		assert_memory_equal(p.b.memory + 4096, p.a.memory, 2000);
		close_pair(&p);
	}
}

static void immediate_arrives(void **state)
{
	EACH_SPEC(i)
	{
		struct fi_cq_data_entry entry;
		struct fi_cq_err_entry error;
		struct pair p;

		open_pair(&p, specs[i]);
		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 64, 3, FI_REMOTE_CQ_DATA), 0);
		rig_expect(&p.a, NULL, &p.a.context[3]);
		assert_int_equal(rig_wait(&p.b, NULL, &entry, &error), 1);
		assert_true(entry.flags & FI_REMOTE_CQ_DATA);
		assert_true(entry.flags & FI_REMOTE_WRITE);
		assert_int_equal(entry.data, 0xfeed0003u);
		assert_int_equal(entry.len, 64);
		close_pair(&p);
	}
}

static void lists(void **state)
{
	struct pair p;
	struct iovec iov[4];
	void *desc[4];
	struct fi_rma_iov remote;
	struct fi_msg_rma msg = {
		.msg_iov = iov, .desc = desc, .iov_count = 4, .rma_iov = &remote, .rma_iov_count = 1
	};

	open_pair(&p, "p5");
	fill(p.a.memory, 4096, 1);
	for (int i = 0; i < 4; i++) {
		iov[i] = (struct iovec){ p.a.memory + 1000 * i, 100 };
		desc[i] = fi_mr_desc(p.a.mr);
	}
	remote = (struct fi_rma_iov){ (uintptr_t)p.b.memory, 400, rig_key(&p.b) };
	msg.addr = p.ab;
	msg.context = &p.a.context[0];
	assert_int_equal(fi_writemsg(p.a.ep, &msg, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	for (int i = 0; i < 4; i++)
		assert_memory_equal(p.b.memory + 100 * i, p.a.memory + 1000 * i, 100);
	close_pair(&p);
}

static void inject_is_copied_at_once(void **state)
{
	struct pair p;
	uint8_t data[32], copy[32];

	open_pair(&p, "p5");
	/* The first message opens the path; only then does an injected message leave without a CQ read. */
	assert_int_equal(rig_recv(&p.b, 0, 64, 0), 0);
	assert_int_equal(rig_recv(&p.b, 64, 64, 1), 0);
	assert_int_equal(rig_send(&p.a, p.ab, 1, 0), 0);
	rig_expect(&p.a, &p.b, &p.a.context[0]);
	rig_expect(&p.b, NULL, &p.b.context[0]);
	fill(data, sizeof data, 5);
	memcpy(copy, data, sizeof data);
	assert_int_equal(fi_inject(p.a.ep, data, sizeof data, p.ab), 0);
	memset(data, 0, sizeof data);            /* may be reused at once */
	rig_expect(&p.b, NULL, &p.b.context[1]); /* nobody reads the sender's CQ */
	assert_memory_equal(p.b.memory + 64, copy, sizeof copy);
	rig_expect_nothing(&p.a, 100000); /* inject never completes visibly */
	close_pair(&p);
}

static void copied_at_completion(void **state)
{
	struct pair p;

	open_pair(&p, "p5,handshake=0");
	fill(p.a.memory, 1000, 1);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 1000, 0, 0), 0);
	memset(p.a.memory, 0xee, 1000); /* reused too early, and it shows */
	rig_expect(&p.a, NULL, &p.a.context[0]);
	assert_int_equal(p.b.memory[500], 0xee);
	close_pair(&p);
}

static void copy_edges_and_none(void **state)
{
	struct pair p;

	open_pair(&p, "p5,copy=edges");
	memset(p.a.memory, 7, 65536);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 65536, 0, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	assert_int_equal(p.b.memory[0], 7);
	assert_int_equal(p.b.memory[65535], 7);
	assert_int_equal(p.b.memory[30000], 0);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 100, 1, 0), 0); /* short requests are copied whole */
	rig_expect(&p.a, NULL, &p.a.context[1]);
	assert_int_equal(p.b.memory[50], 0x7);
	close_pair(&p);
	open_pair(&p, "p5,copy=none");
	memset(p.a.memory, 7, 65536);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 65536, 0, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	assert_int_equal(p.b.memory[0], 0);
	close_pair(&p);
}

static void closing_drops(void **state)
{
	struct rig_options options = { .spec = "p5,latency=1ms,handshake=0", .threading = FI_THREAD_DOMAIN };
	struct fi_cq_data_entry entry;
	struct rig a, b;
	fi_addr_t ab;
	uint64_t end;

	rig_open(&a, &options);
	rig_open(&b, &options);
	ab = rig_connect(&a, &b);
	memset(a.memory, 1, 4096);
	for (int i = 0; i < 16; i++)
		assert_int_equal(rig_write(&a, ab, &b, 4096, i, FI_REMOTE_CQ_DATA), 0);
	assert_int_equal(fi_close(&a.ep->fid), 0);
	a.ep = NULL;
	/* Long after they were due nothing has landed, and nothing completes. */
	end = now_ns() + 5000000;
	while (now_ns() < end) {
		assert_int_equal(fi_cq_read(a.cq, &entry, 1), -FI_EAGAIN);
		assert_int_equal(fi_cq_read(b.cq, &entry, 1), -FI_EAGAIN);
	}
	assert_int_equal(b.memory[0], 0);
	rig_close(&a);
	rig_close(&b);
}

static void separate_queues(void **state)
{
	struct fi_info *hints = rig_hints(FI_THREAD_SAFE), *info = rig_info("p5,handshake=0", hints);
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_MSG };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_msg_entry entry;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *tx, *rx;
	struct fid_av *av;
	struct fid_ep *ep;
	uint64_t end = now_ns() + RIG_DEADLINE;
	uint8_t name[32], in[8] = { 0 }, out[8] = { 42 };
	size_t bytes = sizeof name;
	fi_addr_t self;

	assert_int_equal(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	assert_int_equal(fi_domain(fabric, info, &domain, NULL), 0);
	assert_int_equal(fi_cq_open(domain, &attr, &tx, NULL), 0);
	assert_int_equal(fi_cq_open(domain, &attr, &rx, NULL), 0);
	assert_int_equal(fi_av_open(domain, &av_attr, &av, NULL), 0);
	assert_int_equal(fi_endpoint(domain, info, &ep, NULL), 0);
	assert_int_equal(fi_ep_bind(ep, &tx->fid, FI_TRANSMIT), 0);
	assert_int_equal(fi_ep_bind(ep, &rx->fid, FI_RECV), 0);
	assert_int_equal(fi_ep_bind(ep, &av->fid, 0), 0);
	assert_int_equal(fi_enable(ep), 0);
	assert_int_equal(fi_getname(&ep->fid, name, &bytes), 0);
	assert_int_equal(fi_av_insert(av, name, 1, &self, 0, NULL), 1);
	assert_int_equal(fi_recv(ep, in, 8, NULL, FI_ADDR_UNSPEC, in), 0);
	assert_int_equal(fi_send(ep, out, 8, NULL, self, out), 0);
	/* Reading one queue of an endpoint makes it progress; the other keeps its completions. */
	while (fi_cq_read(rx, &entry, 1) != 1)
		assert_true(now_ns() < end);
	assert_ptr_equal(entry.op_context, in);
	assert_int_equal(in[0], 42);
	while (fi_cq_read(tx, &entry, 1) != 1)
		assert_true(now_ns() < end);
	assert_ptr_equal(entry.op_context, out);
	assert_int_equal(fi_close(&domain->fid), -FI_EBUSY); /* in use */
	assert_int_equal(fi_close(&ep->fid), 0);
	assert_int_equal(fi_close(&av->fid), 0);
	assert_int_equal(fi_close(&tx->fid), 0);
	assert_int_equal(fi_close(&rx->fid), 0);
	assert_int_equal(fi_close(&domain->fid), 0);
	assert_int_equal(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void reading_nothing_progresses(void **state)
{
	uint64_t end = now_ns() + RIG_DEADLINE;
	struct pair p;

	open_pair(&p, "p5,handshake=0");
	p.a.memory[7] = 1;
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	while (!p.b.memory[7] && now_ns() < end)
		assert_int_equal(fi_cq_read(p.a.cq, NULL, 0), -FI_EAGAIN);
	assert_int_equal(p.b.memory[7], 1);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	close_pair(&p);
}

static void selective_completion(void **state)
{
	const struct rig_options options = { .spec = "p5,handshake=0",
					     .threading = FI_THREAD_DOMAIN,
					     .cq_flags = FI_SELECTIVE_COMPLETION };
	struct rig a, b;
	fi_addr_t ab;

	rig_open(&a, &options);
	rig_open(&b, &options);
	ab = rig_connect(&a, &b);
	assert_int_equal(rig_write(&a, ab, &b, 64, 0, 0), 0);
	rig_expect_nothing(&a, 1000000);
	assert_int_equal(rig_write(&a, ab, &b, 64, 1, FI_COMPLETION), 0);
	rig_expect(&a, NULL, &a.context[1]);
	rig_close(&a);
	rig_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_moves),
		cmocka_unit_test(read_moves),
		cmocka_unit_test(send_moves),
		cmocka_unit_test(immediate_arrives),
		cmocka_unit_test(lists),
		cmocka_unit_test(inject_is_copied_at_once),
		cmocka_unit_test(copied_at_completion),
		cmocka_unit_test(copy_edges_and_none),
		cmocka_unit_test(closing_drops),
		cmocka_unit_test(separate_queues),
		cmocka_unit_test(selective_completion),
		cmocka_unit_test(reading_nothing_progresses),
	};

	return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
