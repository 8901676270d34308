/* raw: its options, its result, and its two sides. */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct raw_options {
	const char *provider, *sim;
	size_t page_bytes, region_bytes;
	unsigned depth, batch, iovs;
	double seconds;
	int pin[2]; /* -1: not pinned */
	bool pingpong, json, waits, adjacent, manual;
};

struct raw_result {
	char provider[32];
	int rails;
	uint64_t pages, bytes;
	double seconds, line_bps, p50_us, p99_us, cpu_s; /* of both sides, during the measurement */
	bool verified;
};

/* Each runs in a process of its own, with one end of a socket pair. Both end the process on failure. */
void raw_drive(const struct raw_options *options, int fd, struct raw_result *ret_result);
void raw_target(const struct raw_options *options, int fd);
void raw_side(const struct raw_options *options, int side); /* sets its core, and a time limit */

#endif
