/*
 * What two cores cannot show of a host with a hundred, computed from what they can. Pure functions.
 *
 * On simulated NICs a program's cost per write is its CPU time, which does not depend on how busy this host is. A host with a core
 * for each worker then writes workers / cost pages, until the NICs are full. Two things cost more on such a host than here:
 *
 *  - A worker on one socket and a NIC on the other: each write touches two lines of memory that the NIC shares (its queue entry and
 *    its completion), and for half of the NICs both are far. One of two times far_ns is far_ns.
 *  - A cache line that all workers change, twice per page: when it is taken and when it ended. It is in one place at a time, so all
 *    of them together cannot do more than one page in two hops.
 */
#include "ladder.h"

#include <stdlib.h>
#include <string.h>

double ladder_cpu_ns(const struct ladder *ladder, const struct ladder_rung *rung, const struct ladder_sample *sample)
{
	double cost = sample->writes > 0 ? sample->cpu_s * 1e9 / sample->writes : 0;

	return ladder->sim && rung->far ? cost + ladder->model.far_ns : cost;
}

double ladder_rate(const struct ladder *ladder, const struct ladder_rung *rung, const struct ladder_sample *sample)
{
	double bits = sample->page_bytes * 8, cost = ladder_cpu_ns(ladder, rung, sample), rate;

	if (!ladder->sim)
		return sample->wall_s > 0 ? sample->writes * bits / sample->wall_s / 1e9 : 0;
	if (cost <= 0)
		return 0;
	rate = sample->workers / cost; /* writes per nanosecond */
	if (rung->shared && sample->workers > 1 && rate > 1 / (2 * ladder->model.hop_ns))
		rate = 1 / (2 * ladder->model.hop_ns);
	if (sample->line_bps > 0 && rate * bits > sample->line_bps / 1e9)
		rate = sample->line_bps / 1e9 / bits;
	return rate * bits;
}

char *ladder_modelled(const struct ladder *ladder, const struct ladder_rung *rung, char *text, size_t room)
{
	bool is_model = ladder->sim != NULL;

	snprintf(text, room, "%s%s%s", is_model && rung->threads ? ", cores" : "",
		 is_model && rung->shared && rung->threads ? ", shared line" : "",
		 is_model && rung->far ? ", far memory" : "");
	if (*text)
		memmove(text, text + 2, strlen(text) - 1);
	return text;
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* CPU time per write is only ever added to by what else the host does, so the best round is the truest. A rate over the wall's clock
 * is disturbed both ways: there it is the median. */
static double figure(const struct ladder *ladder, const double *values, int count, bool most)
{
	double sorted[LADDER_ROUNDS];

	if (count <= 0)
		return 0;
	memcpy(sorted, values, (size_t)count * sizeof(*sorted));
	qsort(sorted, (size_t)count, sizeof(*sorted), compare);
	if (ladder->sim)
		return most ? sorted[count - 1] : sorted[0];
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

double ladder_gbit(const struct ladder *ladder, const struct ladder_row *row)
{
	return figure(ladder, row->gbit, row->rounds, true);
}

double ladder_cost(const struct ladder *ladder, const struct ladder_row *row)
{
	return figure(ladder, row->cpu_ns, row->rounds, false);
}
