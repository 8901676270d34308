/* The line that shows a benchmark is alive: rewritten in place on a terminal, a plain line now and then
 * elsewhere. */
#ifndef WEFT_TOOLS_BENCH_PROGRESS_H
#define WEFT_TOOLS_BENCH_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_MARKS = 16 }; /* more than a terminal shows in the time that is averaged over */

struct bench_progress {
	bool shown, terminal, drawn;
	bool rates;          /* measuring: rates are shown */
	const char *counted; /* "calls", "messages"; NULL: bytes are what counts */
	uint64_t start_ns, last_ns, line_bps;
	struct {
		uint64_t ns, ops, bytes;
	} mark[BENCH_MARKS]; /* a ring of what was shown */
	uint32_t marks;      /* ever made */
};

void bench_progress_open(struct bench_progress *progress, bool shown, const char *counted);
/* What goes on while there are no rates, such as "verifying". On a terminal only. */
void bench_progress_say(struct bench_progress *progress, const char *what);
void bench_progress_start(struct bench_progress *progress, uint64_t now_ns);
/* Cheap when it is not time yet. */
void bench_progress_show(struct bench_progress *progress, uint64_t now_ns, uint64_t ops, uint64_t posted,
			 uint64_t bytes);
/* Before anything else is printed. */
void bench_progress_clear(struct bench_progress *progress);

#endif
