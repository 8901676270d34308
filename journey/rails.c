/*
 * All NICs at once, and what it takes to keep them busy: one more idea for each program from 09-rails to 15-lazy.
 *
 *   build/journey/09-rails [--rung 9..15] [--nics N] [--threads N] [--depth N] [--page BYTES] [--pages N] [--ms N] [--no-check]
 *                          [--provider NAME | --sim MACHINE] [--from ADDRESS,...] [--listen PORT | --connect HOST:PORT]
 */
#include "near.h"
#include "rails.h"

#include <sched.h>
#include <unistd.h>

struct bench {
	struct pair pair;
	struct work work;
	struct rail rails[MAX_NICS];
	struct worker workers[MAX_NICS];
	struct shared shared;
	struct ideas ideas;
	int nics, threads;
};

static struct ideas ideas_of(uint64_t rung)
{
	return (struct ideas){ .warm_up = rung >= 10,
			       .threads = rung >= 11,
			       .pin = rung >= 12,
			       .shard = rung >= 13,
			       .batch = rung >= 14,
			       .lazy = rung >= 15 };
}

/* More NICs than there are: the same interface again, with an endpoint of its own. Only sockets gain from that. */
static void open_rails(struct bench *bench, int wanted)
{
	struct fi_info *infos[MAX_NICS];
	int found = nics_find(&bench->pair, infos);

	bench->nics = wanted ? wanted : found;
	if (bench->nics > MAX_NICS)
		die("--nics takes up to %d", MAX_NICS);
	for (int i = 0; i < bench->nics; i++) {
		struct fi_info *info = fi_dupinfo(infos[i % found]);

		if (!info)
			die("no memory");
		nic_open(&bench->rails[i].nic, info);
		nic_register(&bench->rails[i].nic, bench->work.memory, bench->work.bytes);
		nic_introduce(&bench->rails[i].nic, &bench->pair);
	}
	for (int i = 0; i < found; i++)
		fi_freeinfo(infos[i]);
}

static void serve(struct bench *bench)
{
	struct nic *nics = calloc((size_t)bench->nics, sizeof(*nics));

	if (!nics)
		die("no memory");
	for (int i = 0; i < bench->nics; i++)
		nics[i] = bench->rails[i].nic;
	target_serve(&bench->pair, nics, bench->nics, &bench->work);
	free(nics);
}

/* guide: warmup */
static void warm_up(struct bench *bench)
{
	struct fi_context2 context[MAX_NICS];

	for (int i = 0; i < bench->nics; i++) { /* all first, so that the handshakes overlap */
		struct nic *nic = &bench->rails[i].nic;
		struct page page = work_page(&bench->work, 0);

		POST(nic, nic_write(nic, page.from, bench->work.page_bytes, page.to, &context[i], 0, 0));
	}
	for (int i = 0; i < bench->nics; i++)
		nic_await(&bench->rails[i].nic, &bench->rails[i].nic.written, 1);
}
/* guide end */

/* guide: pin */
static void stay_on(unsigned core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &set); /* a simulated machine has more than we do */
	if (sched_setaffinity(0, sizeof(set), &set))
		fprintf(stderr, "cannot stay on core %u\n", core);
}
/* guide end */

static void *worker_main(void *argument)
{
	struct worker *worker = argument;

	if (worker->ideas.pin)
		stay_on(worker->core);
	pthread_barrier_wait(
	    worker->start); /* a busy host takes its time to start threads: that is no part of the work */
	worker->end_ns = now_ns() + worker->ms * 1000000;
	worker_run(worker);
	return NULL;
}

static void make_workers(struct bench *bench, unsigned depth)
{
	for (int i = 0, nic = 0; i < bench->threads; i++) {
		int until = bench->nics * (i + 1) / bench->threads;

		bench->workers[i] =
		    (struct worker){ .ideas = bench->ideas,
				     .work = &bench->work,
				     .shared = &bench->shared,
				     .rails = &bench->rails[nic],
				     .count = until - nic,
				     .index = i,
				     .core = near_core(bench->rails[nic].nic.info, (unsigned)i),
				     .next = bench->work.pages * (unsigned)i / (unsigned)bench->threads };
		worker_prepare(&bench->workers[i], depth);
		nic = until;
	}
}

static struct result measure(struct bench *bench, uint64_t ms)
{
	struct result result = { .workers = bench->threads, .nics = bench->nics, .page_bytes = bench->work.page_bytes };
	pthread_barrier_t barrier;
	uint64_t start;

	pthread_barrier_init(&barrier, NULL, (unsigned)bench->threads + 1);
	for (int i = 0; i < bench->threads; i++) {
		bench->workers[i].start = &barrier;
		bench->workers[i].ms = ms;
		if (pthread_create(&bench->workers[i].thread, NULL, worker_main, &bench->workers[i]))
			die("cannot start a thread");
	}
	pthread_barrier_wait(&barrier);
	start = now_ns();
	for (int i = 0; i < bench->threads; i++) {
		pthread_join(bench->workers[i].thread, NULL);
		result.writes += bench->workers[i].done;
		result.refused += bench->workers[i].refused;
		result.cpu_s += (double)bench->workers[i].cpu_ns / 1e9;
	}
	result.wall_s = (double)(now_ns() - start) / 1e9;
	pthread_barrier_destroy(&barrier);
	for (int i = 0; i < bench->nics; i++)
		result.line_bps += nic_line(&bench->rails[i].nic);
	return result;
}

/* How many pages, counted from number 0, were surely written: a shard may not have gone round its share. */
static uint64_t surely_written(const struct bench *bench, uint64_t writes)
{
	bool all = true;

	if (!bench->ideas.shard)
		return writes;
	for (int i = 0; i < bench->threads; i++)
		all &= bench->workers[i].done >= bench->work.pages / (unsigned)bench->threads + 1;
	return all ? writes : bench->workers[0].done;
}

int main(int argc, char **argv)
{
	static struct bench bench;
	uint64_t threads;
	int failed = 0;

	bench.pair = pair_start(&argc, argv);
	bench.ideas = ideas_of(option(argc, argv, "--rung", RUNG));
	bench.work = work_prepare(argc, argv, bench.pair.starts);
	near_load();
	open_rails(&bench, (int)option(argc, argv, "--nics", 0));
	threads = option(argc, argv, "--threads", bench.nics >= 8 ? (uint64_t)bench.nics / 4 : (uint64_t)bench.nics);
	bench.threads = bench.ideas.threads && threads <= (uint64_t)bench.nics && threads ? (int)threads : 1;
	if (!bench.pair.starts) {
		serve(&bench);
	} else {
		struct result result;

		pthread_mutex_init(&bench.shared.lock, NULL);
		if (bench.ideas.warm_up)
			warm_up(&bench);
		make_workers(&bench, (unsigned)option(argc, argv, "--depth", 64));
		result = measure(&bench, option(argc, argv, "--ms", 300));
		failed = target_judge(&bench.pair, surely_written(&bench, result.writes));
		result_print(&result, argc, argv);
		for (int i = 0; i < bench.threads; i++)
			worker_free(&bench.workers[i]);
	}
	for (int i = 0; i < bench.nics; i++)
		nic_close(&bench.rails[i].nic);
	near_unload();
	return bench.pair.starts ? pair_end(&bench.pair) | failed : 0;
}
