/* What the programs that measure share: pages to write, a target that looks whether they came, a result in one line. */
#ifndef JOURNEY_BENCH_H
#define JOURNEY_BENCH_H

#include "common.h"

/* Pages in a random order, from anywhere in our memory to anywhere in the other's. Both sides compute the same. */
struct work {
	char *memory;
	uint64_t bytes, pages, page_bytes, multiplier;
	bool check; /* every byte is looked at afterwards; not where a simulated NIC was told to copy nothing */
};
struct page {
	char *from;
	uint64_t to; /* bytes from the start of the target's memory */
};

/* From "--page BYTES", "--pages N" and "--no-check". The side that starts fills the pages. */
struct work work_prepare(int argc, char **argv, bool starts);

/* The number-th write. An odd multiplier and a power of two make a permutation without a table. */
static inline struct page work_page(const struct work *work, uint64_t number)
{
	uint64_t from = number & (work->pages - 1), to = (from * work->multiplier + 7) & (work->pages - 1);

	return (struct page){ work->memory + from * work->page_bytes, to * work->page_bytes };
}

/* The target: reads its completion queues where the provider needs that, until the other side says it is done. */
void target_serve(const struct pair *pair, struct nic *nics, int count, const struct work *work);
/* The same for a target whose NICs need nothing of it. */
void target_wait(const struct pair *pair, const struct work *work);
/* Asks the target whether every page came; returns 1 when not. */
int target_judge(const struct pair *pair, uint64_t writes);

struct result {
	uint64_t writes, page_bytes, refused;
	double wall_s, cpu_s; /* cpu_s: of all workers together */
	double line_bps;      /* what the NICs could carry; 0 when they do not say */
	int workers, nics;
};
double nic_line(const struct nic *nic);
uint64_t thread_cpu_ns(void);
/* For people, or with "--plain" as key=value for weft ladder. */
void result_print(const struct result *result, int argc, char **argv);

#endif
