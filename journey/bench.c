/* The work, the target and the result of the programs that measure. The thread that calls them. */
#include "bench.h"

#include <time.h>
#include <unistd.h>

struct work work_prepare(int argc, char **argv, bool starts)
{
	const char *sim = getenv("SIMFAB");
	struct work work = { .page_bytes = option(argc, argv, "--page", 65536),
			     .pages = option(argc, argv, "--pages", 256),
			     .multiplier = 0x9e3779b1,
			     .check = !flag(argc, argv, "--no-check") && !(sim && strstr(sim, "copy=none")) };

	if (work.page_bytes < 8 || work.page_bytes % 8 || work.page_bytes > 1 << 30)
		die("--page takes a multiple of 8 bytes, up to 1 GiB");
	if (!work.pages || work.pages & (work.pages - 1) || work.pages > 1 << 20)
		die("--pages takes a power of two, up to 1 Mi");
	work.bytes = work.pages * work.page_bytes;
	work.memory = memory_take(work.bytes);
	for (uint64_t i = 0; starts && work.check && i < work.pages; i++)
		pattern_fill(work.memory + i * work.page_bytes, work.page_bytes, i);
	return work;
}

static bool arrived(const struct work *work, uint64_t writes)
{
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < work->pages && i < writes; i++)
		wrong += !pattern_holds(work->memory + work_page(work, i).to, work->page_bytes, i);
	if (wrong)
		fprintf(stderr, "%llu pages are not what was written\n", (unsigned long long)wrong);
	return !wrong;
}

void target_wait(const struct pair *pair, const struct work *work)
{
	uint64_t writes;
	char verdict;

	pair_receive(pair, &writes, sizeof(writes));
	verdict = !work->check ? '?' : arrived(work, writes) ? 'y' : 'n';
	pair_send(pair, &verdict, 1);
	pair_receive(pair, &verdict, 1);
}

void target_serve(const struct pair *pair, struct nic *nics, int count, const struct work *work)
{
	bool looks = nic_needs_target(&nics[0]);

	/* A NIC with RDMA needs nothing of us but a look now and then, for first contact. Others are their CPU. */
	while (!pair_readable(pair, looks ? 0 : 1))
		for (int i = 0; i < count * (looks ? 16 : 1); i++)
			nic_progress(&nics[i % count]);
	target_wait(pair, work);
}

int target_judge(const struct pair *pair, uint64_t writes)
{
	char verdict;

	pair_send(pair, &writes, sizeof(writes));
	pair_receive(pair, &verdict, 1);
	pair_send(pair, &verdict, 1);
	return verdict == 'n';
}

double nic_line(const struct nic *nic)
{
	return nic->info->nic && nic->info->nic->link_attr ? (double)nic->info->nic->link_attr->speed : 0;
}

uint64_t thread_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void result_print(const struct result *result, int argc, char **argv)
{
	double gbit = (double)result->writes * (double)result->page_bytes * 8 / result->wall_s / 1e9;
	const char *kind = getenv("SIMFAB") ? "simulated " : "";

	if (flag(argc, argv, "--plain")) {
		printf("writes=%llu page=%llu wall=%.6f cpu=%.6f workers=%d nics=%d line=%.0f refused=%llu\n",
		       (unsigned long long)result->writes, (unsigned long long)result->page_bytes, result->wall_s,
		       result->cpu_s, result->workers, result->nics, result->line_bps,
		       (unsigned long long)result->refused);
		return;
	}
	printf("%d %sNIC%s, %d worker%s: %.2f %sGbit/s", result->nics, kind, result->nics == 1 ? "" : "s",
	       result->workers, result->workers == 1 ? "" : "s", gbit, kind);
	if (result->line_bps > 0)
		printf(" of %.0f", result->line_bps / 1e9);
	printf(", %llu writes, %.0f ns of CPU each\n", (unsigned long long)result->writes,
	       result->cpu_s * 1e9 / (double)(result->writes ? result->writes : 1));
}
