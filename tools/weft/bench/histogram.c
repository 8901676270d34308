/* A log-linear histogram: 128 equal steps between each power of two and the next, and every value below 128
 * exact. */
#include "histogram.h"

#include <math.h>
#include <string.h>

static unsigned bucket_of(uint64_t value)
{
	if (value < CMD_HISTOGRAM_STEPS)
		return (unsigned)value;
	unsigned power = 63u - (unsigned)__builtin_clzll(value);
	unsigned shift = power - CMD_HISTOGRAM_BITS;
	return (shift + 1) * CMD_HISTOGRAM_STEPS + (unsigned)(value >> shift) - CMD_HISTOGRAM_STEPS;
}

static uint64_t top_of(unsigned bucket)
{
	if (bucket < CMD_HISTOGRAM_STEPS)
		return bucket;
	unsigned shift = bucket / CMD_HISTOGRAM_STEPS - 1;
	uint64_t step = bucket % CMD_HISTOGRAM_STEPS + CMD_HISTOGRAM_STEPS;
	return (step << shift) + ((UINT64_C(1) << shift) - 1);
}

void cmd_histogram_reset(struct cmd_histogram *histogram)
{
	memset(histogram, 0, sizeof *histogram);
	histogram->smallest = UINT64_MAX;
}

void cmd_histogram_add(struct cmd_histogram *histogram, uint64_t value)
{
	histogram->count[bucket_of(value)]++;
	histogram->total++;
	if (value < histogram->smallest)
		histogram->smallest = value;
	if (value > histogram->largest)
		histogram->largest = value;
}

uint64_t cmd_histogram_quantile(const struct cmd_histogram *histogram, double fraction)
{
	uint64_t seen = 0, wanted = (uint64_t)ceil(fraction * (double)histogram->total);

	if (!histogram->total)
		return 0;
	if (wanted < 1)
		wanted = 1;
	for (unsigned bucket = 0; bucket < CMD_HISTOGRAM_BUCKETS; bucket++) {
		seen += histogram->count[bucket];
		if (seen >= wanted) {
			/* A bucket's top may lie above everything that was ever put in. */
			uint64_t top = top_of(bucket);
			return top < histogram->largest ? top : histogram->largest;
		}
	}
	return histogram->largest;
}

void cmd_histogram_bounds(unsigned bucket, uint64_t *ret_first, uint64_t *ret_last)
{
	*ret_first = bucket ? top_of(bucket - 1) + 1 : 0;
	*ret_last = top_of(bucket);
}

void cmd_histogram_merge(struct cmd_histogram *histogram, const struct cmd_histogram *other)
{
	for (unsigned bucket = 0; bucket < CMD_HISTOGRAM_BUCKETS; bucket++)
		histogram->count[bucket] += other->count[bucket];
	histogram->total += other->total;
	if (other->smallest < histogram->smallest)
		histogram->smallest = other->smallest;
	if (other->largest > histogram->largest)
		histogram->largest = other->largest;
}
