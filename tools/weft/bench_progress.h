/* The line that shows a benchmark is alive: rewritten in place on a terminal, a plain line now and then
 * elsewhere. */
#ifndef WEFT_TOOLS_BENCH_PROGRESS_H
#define WEFT_TOOLS_BENCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct bench_progress {
	bool shown, terminal, drawn;
	const char *counted; /* "calls", "messages"; NULL: bytes are what counts */
	uint64_t start_ns, last_ns, last_ops, last_bytes, line_bps;
};

void bench_progress_open(struct bench_progress *progress, bool shown, uint64_t line_bps, const char *counted);
void bench_progress_start(struct bench_progress *progress, uint64_t now_ns);
/* Cheap when it is not time yet. */
void bench_progress_show(struct bench_progress *progress, uint64_t now_ns, uint64_t ops, uint64_t posted,
			 uint64_t bytes);
/* Before anything else is printed. */
void bench_progress_clear(struct bench_progress *progress);

#endif
