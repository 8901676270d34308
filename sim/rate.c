/*
 * rate: a bare posting loop through libfabric over simulated NICs, in one thread. Shows which rate the model holds and,
 * run again with NICs that never make it wait, how much CPU time the model itself takes per request.
 *
 * rate [--sim SPEC] [--bytes N] [--depth N] [--batch N] [--seconds S] [--immediate]
 *
 * SPEC defaults to $SIMFAB, else p5,copy=none,post_ns=0. Every figure printed is simulated.
 */
#include "clock.h"

#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_NICS 64

struct rail {
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_mr *mr;
	fi_addr_t peer;
	uint64_t key;
	unsigned in_flight;
};

struct options {
	const char *spec;
	size_t bytes;
	unsigned depth, batch;
	double seconds;
	bool immediate;
};

struct bench {
	const struct options *options;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct rail near[MAX_NICS], far[MAX_NICS];
	int nics;
	char *memory;
	double line_bps;
};

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "rate: %s: %s\n", what, fi_strerror(-rc));
	exit(1);
}

static void open_rail(struct bench *b, struct fi_info *info, struct rail *rail)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_DATA, .size = 16384 };
	struct fi_av_attr av = { .type = FI_AV_TABLE };

	check(fi_domain(b->fabric, info, &rail->domain, NULL), "fi_domain");
	check(fi_cq_open(rail->domain, &cq, &rail->cq, NULL), "fi_cq_open");
	check(fi_av_open(rail->domain, &av, &rail->av, NULL), "fi_av_open");
	check(fi_endpoint(rail->domain, info, &rail->ep, NULL), "fi_endpoint");
	check(fi_ep_bind(rail->ep, &rail->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_ep_bind(rail->ep, &rail->av->fid, 0), "fi_ep_bind");
	check(fi_enable(rail->ep), "fi_enable");
	check(fi_mr_reg(rail->domain, b->memory, b->options->bytes * 2,
			FI_WRITE | FI_REMOTE_WRITE | FI_READ | FI_REMOTE_READ, 0, 0, 0, &rail->mr, NULL),
	      "fi_mr_reg");
}

static void close_rail(struct rail *rail)
{
	fi_close(&rail->ep->fid);
	fi_close(&rail->mr->fid);
	fi_close(&rail->av->fid);
	fi_close(&rail->cq->fid);
	fi_close(&rail->domain->fid);
}

static void open_bench(struct bench *b, const struct options *options, const char *spec)
{
	struct fi_info *hints = fi_allocinfo();
	char address[64];

	memset(b, 0, sizeof *b);
	b->options = options;
	setenv("SIMFAB", spec, 1);
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = ~0ull;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = ~3;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->fabric_attr->prov_name = strdup("simfab");
	check(fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &b->info), "fi_getinfo");
	fi_freeinfo(hints);
	b->memory = mmap(NULL, options->bytes * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->memory == MAP_FAILED)
		exit(1);
	memset(b->memory, 1, options->bytes * 2);
	check(fi_fabric(b->info->fabric_attr, &b->fabric, NULL), "fi_fabric");
	for (struct fi_info *i = b->info; i && b->nics < MAX_NICS; i = i->next, b->nics++) {
		struct rail *near = &b->near[b->nics], *far = &b->far[b->nics];
		size_t bytes = sizeof address;

		open_rail(b, i, near);
		open_rail(b, i, far);
		check(fi_getname(&far->ep->fid, address, &bytes), "fi_getname");
		if (fi_av_insert(near->av, address, 1, &near->peer, 0, NULL) != 1)
			check(-FI_EINVAL, "fi_av_insert");
		near->key = fi_mr_key(far->mr);
		b->line_bps += (double)i->nic->link_attr->speed;
	}
}

static void close_bench(struct bench *b)
{
	for (int i = 0; i < b->nics; i++) {
		close_rail(&b->near[i]);
		close_rail(&b->far[i]);
	}
	fi_close(&b->fabric->fid);
	fi_freeinfo(b->info);
	munmap(b->memory, b->options->bytes * 2);
}

/* Fills a rail up to its depth, one batch per doorbell. */
static inline void fill(struct bench *b, struct rail *rail)
{
	const struct options *o = b->options;
	struct iovec iov = { b->memory, o->bytes };
	struct fi_rma_iov target = { (uint64_t)(uintptr_t)b->memory + o->bytes, o->bytes, rail->key };
	void *desc = fi_mr_desc(rail->mr);
	struct fi_msg_rma msg = { .msg_iov = &iov,
				  .desc = &desc,
				  .iov_count = 1,
				  .addr = rail->peer,
				  .rma_iov = &target,
				  .rma_iov_count = 1,
				  .data = 7 };
	uint64_t flags = o->immediate ? FI_REMOTE_CQ_DATA : 0;
	unsigned room = o->depth - rail->in_flight;

	if (room < o->batch && rail->in_flight > o->depth / 2)
		return;
	if (room > o->batch)
		room = o->batch;
	for (unsigned i = 0; i < room; i++) {
		ssize_t rc = fi_writemsg(rail->ep, &msg, flags | (i + 1 < room ? FI_MORE : 0));

		if (rc == -FI_EAGAIN && !i)
			return;
		check((int)rc, "fi_writemsg");
		rail->in_flight++;
	}
}

static inline uint64_t drain(struct bench *b, struct rail *rail)
{
	struct fi_cq_data_entry entry[64];
	ssize_t n = fi_cq_read(rail->cq, entry, 64);

	if (n == -FI_EAGAIN)
		return 0;
	if (n < 0) {
		struct fi_cq_err_entry error = { 0 };

		fi_cq_readerr(rail->cq, &error, 0);
		fprintf(stderr, "rate: %s\n", fi_cq_strerror(rail->cq, error.prov_errno, NULL, NULL, 0));
		exit(1);
	}
	rail->in_flight -= (unsigned)n;
	return (uint64_t)n;
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct result {
	uint64_t done;
	double wall, cpu; /* seconds; on a busy machine cpu is less than wall */
};

static struct result run(struct bench *b, double seconds)
{
	uint64_t done = 0, start = sim_clock_ns(), cpu = 0, warm = start + 100000000, end = 0, now;
	struct fi_cq_data_entry entry[64];

	for (unsigned turn = 0;; turn++) {
		for (int i = 0; i < b->nics; i++) {
			fill(b, &b->near[i]);
			done += drain(b, &b->near[i]);
			if (b->options->immediate)
				while (fi_cq_read(b->far[i].cq, entry, 64) > 0)
					;
		}
		if (turn % 16)
			continue;
		now = sim_clock_ns();
		if (!end && now >= warm) {
			start = now;
			end = now + (uint64_t)(seconds * 1e9);
			cpu = cpu_ns();
			done = 0;
		} else if (end && now >= end) {
			return (struct result){ done, (double)(now - start) / 1e9, (double)(cpu_ns() - cpu) / 1e9 };
		}
	}
}

/* Measures the parts of one request's cost separately, on one NIC that never waits. */
static void report_parts(struct bench *b)
{
	enum { ROUNDS = 20000 };
	struct rail *rail = &b->near[0];
	uint64_t post = 0, complete = 0, empty, start;
	struct fi_cq_data_entry entry[64];
	unsigned n, batch = b->options->batch < 64 ? b->options->batch : 64;

	while (rail->in_flight)
		drain(b, rail);
	for (int i = 0; i < ROUNDS; i++) {
		start = sim_ticks();
		fill(b, rail);
		post += sim_ticks() - start;
		n = rail->in_flight;
		start = sim_ticks();
		while (rail->in_flight)
			drain(b, rail);
		complete += sim_ticks() - start;
		if (n != batch)
			return;
	}
	start = sim_ticks();
	for (int i = 0; i < ROUNDS; i++)
		(void)fi_cq_read(rail->cq, entry, 64);
	empty = sim_ticks() - start;
	printf("simulated parts       post %.1f ns, completion %.1f ns, empty CQ read %.1f ns\n",
	       (double)post / ROUNDS / batch / sim_ticks_per_ns, (double)complete / ROUNDS / batch / sim_ticks_per_ns,
	       (double)empty / ROUNDS / sim_ticks_per_ns);
}

static void find_provider(char *argv0)
{
	char path[PATH_MAX], dir[PATH_MAX];

	if (getenv("FI_PROVIDER_PATH") || !realpath("/proc/self/exe", path))
		return;
	snprintf(dir, sizeof dir, "%s", dirname(path));
	setenv("FI_PROVIDER_PATH", dir, 1);
}

static void report(const struct options *o)
{
	struct bench bench;
	char unbound[1200];
	struct result r;
	double bps;

	open_bench(&bench, o, o->spec);
	r = run(&bench, o->seconds);
	bps = (double)r.done * (double)o->bytes * 8 / r.wall;
	printf("simulated %s: %d NICs, one thread, %zu-byte writes, %u in flight per NIC, batches of %u\n", o->spec,
	       bench.nics, o->bytes, o->depth, o->batch);
	if (strncmp(o->spec, "null", 4))
		printf("simulated rate        %9.1f Gbit/s, %.2f %% of %.0f (%.2f M requests/s, %.0f %% of a "
		       "core)\n",
		       bps / 1e9, 100 * bps / bench.line_bps, bench.line_bps / 1e9, (double)r.done / r.wall / 1e6,
		       100 * r.cpu / r.wall);
	close_bench(&bench);
	snprintf(unbound, sizeof unbound, "%s%s", o->spec,
		 strncmp(o->spec, "null", 4) ? ",rate=inf,latency=0,op_ns=0,post_ns=0" : "");
	open_bench(&bench, o, unbound);
	r = run(&bench, o->seconds);
	printf("simulated model cost  %9.1f ns of CPU per request (post, complete and this loop; NICs that "
	       "never wait)\n",
	       r.cpu * 1e9 / (double)r.done);
	report_parts(&bench);
	close_bench(&bench);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "sim", 1, 0, 's' },
					       { "bytes", 1, 0, 'b' },
					       { "depth", 1, 0, 'd' },
					       { "batch", 1, 0, 'n' },
					       { "seconds", 1, 0, 't' },
					       { "immediate", 0, 0, 'i' },
					       { 0 } };
	struct options o = { .spec = getenv("SIMFAB"), .bytes = 65536, .depth = 64, .batch = 16, .seconds = 1 };
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 's')
			o.spec = optarg;
		else if (c == 'b')
			o.bytes = strtoul(optarg, NULL, 0);
		else if (c == 'd')
			o.depth = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'n')
			o.batch = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 't')
			o.seconds = strtod(optarg, NULL);
		else if (c == 'i')
			o.immediate = true;
		else
			return 2;
	}
	if (!o.spec)
		o.spec = "p5,copy=none,post_ns=0";
	o.spec = strdup(o.spec); /* the environment it may point into is about to change */
	find_provider(argv[0]);
	sim_clock_start();
	report(&o);
	return 0;
}
