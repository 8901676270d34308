/*
 * provider: what libfabric's own code costs on a modelled EFA card: a post, a completion, a read of an empty queue, the first
 * contact. One thread and one NIC; the other side is a process of its own, which only reads its queue. Each counted_... is a
 * function of its own, so that valgrind counts it alone: scripts/provider-cost runs this and takes libfabric's share.
 */
#include "../tests/support/clock.h"

#include <errno.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	COUNT = 64,
	ROUNDS = 4,
	PAGE = 65536,
	MESSAGE = 256,
	NAME = 128,
	LIMIT_S = 120,
	HANDSHAKE_READS = 50,
	HANDSHAKE_US = 10000
};
enum kind { READ, WRITE, SEND };
#define NOINLINE __attribute__((noipa))

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	char *memory;
	size_t bytes;
	fi_addr_t peer;
	uint64_t key, base, deadline_ns;
	unsigned completions, empty;
	struct fi_context2 context[COUNT];
};

/* What one side tells the other. */
struct card {
	uint8_t name[NAME];
	uint64_t key, base;
};

static void check(long rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "provider: %s: %s\n", what, fi_strerror((int)-rc));
	exit(1);
}

/* ---- opening ---- */

static struct fi_info *ask(void)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;

	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->fabric_attr->prov_name = strdup("efa");
	hints->fabric_attr->name = strdup("efa");
	check(fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &info), "fi_getinfo");
	fi_freeinfo(hints);
	return info;
}

static void open_side(struct side *side)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_DATA, .size = 8192, .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_NONE };

	side->bytes = (size_t)COUNT * PAGE;
	side->deadline_ns = now_ns() + LIMIT_S * UINT64_C(1000000000);
	side->memory = mmap(NULL, side->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (side->memory == MAP_FAILED)
		check(-FI_ENOMEM, "mmap");
	side->info = ask();
	check(fi_fabric(side->info->fabric_attr, &side->fabric, NULL), "fi_fabric");
	check(fi_domain(side->fabric, side->info, &side->domain, NULL), "fi_domain");
	check(fi_eq_open(side->fabric, &eq, &side->eq, NULL), "fi_eq_open");
	check(fi_cq_open(side->domain, &cq, &side->cq, NULL), "fi_cq_open");
	check(fi_av_open(side->domain, &av, &side->av, NULL), "fi_av_open");
	check(fi_endpoint(side->domain, side->info, &side->ep, NULL), "fi_endpoint");
	check(fi_ep_bind(side->ep, &side->eq->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_ep_bind(side->ep, &side->av->fid, 0), "fi_ep_bind");
	check(fi_enable(side->ep), "fi_enable");
	check(fi_mr_reg(side->domain, side->memory, side->bytes,
			FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &side->mr,
			NULL),
	      "fi_mr_reg");
}

static void close_side(struct side *side)
{
	fi_close(&side->ep->fid);
	fi_close(&side->mr->fid);
	fi_close(&side->av->fid);
	fi_close(&side->cq->fid);
	fi_close(&side->eq->fid);
	fi_close(&side->domain->fid);
	fi_close(&side->fabric->fid);
	fi_freeinfo(side->info);
	munmap(side->memory, side->bytes);
}

static void tell(struct side *side, int fd)
{
	struct card card = { .key = fi_mr_key(side->mr), .base = (uintptr_t)side->memory };
	size_t bytes = NAME;

	check(fi_getname(&side->ep->fid, card.name, &bytes), "fi_getname");
	check(write(fd, &card, sizeof card) == sizeof card ? 0 : -FI_EIO, "telling the other side");
}

static struct card hear(int fd)
{
	struct card card;
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	check(poll(&ready, 1, LIMIT_S * 1000) == 1 && read(fd, &card, sizeof card) == sizeof card ? 0 : -FI_EIO,
	      "hearing from the other side");
	return card;
}

/* ---- what is counted ---- */

static void take(struct side *side)
{
	struct fi_cq_data_entry entry[32];
	struct fi_cq_err_entry error = { 0 };
	ssize_t n = fi_cq_read(side->cq, entry, 32);

	if (n == -FI_EAVAIL) {
		fi_cq_readerr(side->cq, &error, 0);
		fprintf(stderr, "provider: a completion: %s\n",
			fi_cq_strerror(side->cq, error.prov_errno, error.err_data, NULL, 0));
		exit(1);
	}
	check(n == -FI_EAGAIN ? 0 : n, "fi_cq_read");
	side->completions += n > 0 ? (unsigned)n : 0;
	side->empty += n == -FI_EAGAIN;
	if (now_ns() > side->deadline_ns)
		check(-FI_ETIMEDOUT, "waiting for completions");
}

static ssize_t post(struct side *side, enum kind kind, unsigned i)
{
	char *at = side->memory + (size_t)i * PAGE;
	uint64_t there = side->base + (uint64_t)i * PAGE;
	void *desc = fi_mr_desc(side->mr);

	if (kind == READ)
		return fi_read(side->ep, at, PAGE, desc, side->peer, there, side->key, &side->context[i]);
	if (kind == WRITE)
		return fi_write(side->ep, at, PAGE, desc, side->peer, there, side->key, &side->context[i]);
	return fi_send(side->ep, at, MESSAGE, desc, side->peer, &side->context[i]);
}

static inline void post_all(struct side *side, enum kind kind)
{
	side->completions = side->empty = 0;
	for (unsigned i = 0; i < COUNT; i++)
		check(post(side, kind, i), "a post");
}

static inline void take_all(struct side *side)
{
	while (side->completions < COUNT)
		take(side);
}

/* An address, and the first message to it until it was acknowledged. */
static NOINLINE void counted_contact(struct side *side, const struct card *card)
{
	side->completions = side->empty = 0;
	if (fi_av_insert(side->av, card->name, 1, &side->peer, 0, NULL) != 1)
		check(-FI_EINVAL, "fi_av_insert");
	check(post(side, SEND, 0), "the first post");
	while (!side->completions)
		take(side);
}

/* The peer's answer, which no completion tells. The card works while nobody reads. */
static NOINLINE void counted_handshake(struct side *side)
{
	side->empty = 0;
	for (unsigned i = 0; i < HANDSHAKE_READS; i++) {
		usleep(HANDSHAKE_US);
		take(side);
	}
}

/* This post is refused until the provider knows what the peer can do. */
static void check_handshake(struct side *side)
{
	struct iovec iov = { side->memory, 8 };
	void *desc = fi_mr_desc(side->mr);
	struct fi_rma_iov target = { side->base, 8, side->key };
	struct fi_msg_rma msg = { &iov, &desc, 1, side->peer, &target, 1, &side->context[0], 0 };

	side->completions = 0;
	check(fi_writemsg(side->ep, &msg, FI_DELIVERY_COMPLETE), "the peer's handshake");
	while (!side->completions)
		take(side);
}

static NOINLINE void counted_empty(struct side *side)
{
	side->empty = 0;
	while (side->empty < COUNT)
		take(side);
}

static NOINLINE void counted_read_post(struct side *side)
{
	post_all(side, READ);
}
static NOINLINE void counted_write_post(struct side *side)
{
	post_all(side, WRITE);
}
static NOINLINE void counted_send_post(struct side *side)
{
	post_all(side, SEND);
}
static NOINLINE void counted_read_done(struct side *side)
{
	take_all(side);
	asm volatile("" ::: "memory");
}
static NOINLINE void counted_write_done(struct side *side)
{
	take_all(side);
	asm volatile("nop" ::: "memory");
}
static NOINLINE void counted_send_done(struct side *side)
{
	take_all(side);
	asm volatile("nop; nop" ::: "memory");
}

static void report(const char *what, unsigned count, unsigned empty)
{
	printf("%s %u %u\n", what, count, empty);
	fflush(stdout);
}

/* Warm first: pools grow, pages are touched, the handshake comes. */
static void count(struct side *side)
{
	for (int round = 0; round < ROUNDS; round++)
		for (enum kind kind = READ; kind <= SEND; kind++) {
			post_all(side, kind);
			take_all(side);
		}
	counted_empty(side);
	report("empty", COUNT, 0);
	counted_read_post(side);
	report("read_post", COUNT, 0);
	counted_read_done(side);
	report("read_done", COUNT, side->empty);
	counted_write_post(side);
	report("write_post", COUNT, 0);
	counted_write_done(side);
	report("write_done", COUNT, side->empty);
	counted_send_post(side);
	report("send_post", COUNT, 0);
	counted_send_done(side);
	report("send_done", COUNT, side->empty);
}

/* ---- the other side ---- */

static void receive(struct side *side, unsigned i)
{
	check(fi_recv(side->ep, side->memory + (size_t)i * PAGE, MESSAGE, fi_mr_desc(side->mr), FI_ADDR_UNSPEC,
		      &side->context[i]),
	      "fi_recv");
}

/* Until the counting side has gone. */
static int serve(int fd)
{
	static struct side side;
	struct fi_cq_data_entry entry[32];
	struct pollfd gone = { .fd = fd, .events = POLLIN };

	open_side(&side);
	for (unsigned i = 0; i < COUNT; i++)
		receive(&side, i);
	tell(&side, fd);
	while (now_ns() < side.deadline_ns && !poll(&gone, 1, 0)) {
		ssize_t n = fi_cq_read(side.cq, entry, 32);

		check(n == -FI_EAGAIN ? 0 : n, "fi_cq_read of the other side");
		for (ssize_t i = 0; i < n; i++)
			if (entry[i].flags & FI_RECV)
				receive(&side, (unsigned)((struct fi_context2 *)entry[i].op_context - side.context));
	}
	close_side(&side);
	return 0;
}

int main(int argc, char **argv)
{
	static struct side side;
	struct card card;
	char number[16];
	int pair[2], status = 0;
	pid_t child;

	if (argc == 3 && !strcmp(argv[1], "--serve"))
		return serve(atoi(argv[2]));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		check(-errno, "socketpair");
	snprintf(number, sizeof number, "%d", pair[1]);
	child = fork();
	if (!child) {
		close(pair[0]);
		execl(argv[0], argv[0], "--serve", number, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	check(child < 0 ? -errno : 0, "fork");
	open_side(&side);
	card = hear(pair[0]);
	side.key = card.key;
	side.base = card.base;
	counted_contact(&side, &card);
	report("contact", 1, side.empty);
	counted_handshake(&side);
	report("handshake", 1, side.empty);
	check_handshake(&side);
	count(&side);
	close(pair[0]);
	waitpid(child, &status, 0);
	close_side(&side);
	return status != 0;
}
