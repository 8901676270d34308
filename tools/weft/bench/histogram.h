/*
 * A log-linear histogram of nanoseconds: constant size, nothing allocated, every value within 1/128 of what it
 * was.
 */
#ifndef WEFT_TOOLS_HISTOGRAM_H
#define WEFT_TOOLS_HISTOGRAM_H

#include <stdint.h>

enum {
	CMD_HISTOGRAM_BITS = 7, /* 128 steps for each power of two */
	CMD_HISTOGRAM_STEPS = 1 << CMD_HISTOGRAM_BITS,
	CMD_HISTOGRAM_BUCKETS = (64 - CMD_HISTOGRAM_BITS + 1) * CMD_HISTOGRAM_STEPS,
};

struct cmd_histogram {
	uint64_t total, smallest, largest;
	uint64_t count[CMD_HISTOGRAM_BUCKETS];
};

void cmd_histogram_reset(struct cmd_histogram *histogram);
void cmd_histogram_add(struct cmd_histogram *histogram, uint64_t value);
/* The value that a fraction (0 to 1) of all values does not exceed; 0 when there are none. */
uint64_t cmd_histogram_quantile(const struct cmd_histogram *histogram, double fraction);

/* What a bucket holds: both ends belong to it. */
void cmd_histogram_bounds(unsigned bucket, uint64_t *ret_first, uint64_t *ret_last);
/* Adds all of another's values. */
void cmd_histogram_merge(struct cmd_histogram *histogram, const struct cmd_histogram *other);

#endif
