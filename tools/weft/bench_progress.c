/* The progress line, on standard error so that results can be piped. */
#include "bench_progress.h"
#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define TERMINAL_NS UINT64_C(100000000)
#define PLAIN_NS    UINT64_C(1000000000)

void bench_progress_open(struct bench_progress *progress, bool shown, uint64_t line_bps, const char *counted)
{
	*progress = (struct bench_progress){ .shown = shown, .line_bps = line_bps, .counted = counted };
	progress->terminal = isatty(STDERR_FILENO);
}

void bench_progress_start(struct bench_progress *progress, uint64_t now_ns)
{
	progress->start_ns = progress->last_ns = now_ns;
	progress->last_ops = progress->last_bytes = 0;
}

/* Since the last line, so that a change is seen. */
static void describe_rate(const struct bench_progress *progress, uint64_t passed, uint64_t ops,
			  uint64_t bytes, char *text, size_t room)
{
	double gbps = (double)(bytes - progress->last_bytes) * 8 / (double)passed;
	char count[32];

	if (progress->counted)
		snprintf(text, room, "%s %s/s",
			 cmd_format_count((double)(ops - progress->last_ops) * 1e9 / (double)passed, count,
					  sizeof count),
			 progress->counted);
	else if (progress->line_bps)
		snprintf(text, room, "%.2f Gbit/s, %.1f %% of line rate", gbps,
			 gbps * 1e11 / (double)progress->line_bps);
	else
		snprintf(text, room, "%.2f Gbit/s", gbps);
}

void bench_progress_show(struct bench_progress *progress, uint64_t now_ns, uint64_t ops, uint64_t posted,
			 uint64_t bytes)
{
	uint64_t every = progress->terminal ? TERMINAL_NS : PLAIN_NS, passed = now_ns - progress->last_ns;
	char size[32], rate[80];

	if (!progress->shown || passed < every)
		return;
	describe_rate(progress, passed, ops, bytes, rate, sizeof rate);
	fprintf(stderr, "%s%6.1f s  %" PRIu64 " operations, %" PRIu64 " posted, %s, %s%s",
		progress->terminal ? "\r" : "", (double)(now_ns - progress->start_ns) / 1e9, ops, posted,
		cmd_format_size(bytes, size, sizeof size), rate, progress->terminal ? "\033[K" : "\n");
	fflush(stderr);
	progress->drawn = progress->terminal;
	progress->last_ns = now_ns;
	progress->last_ops = ops;
	progress->last_bytes = bytes;
}

void bench_progress_clear(struct bench_progress *progress)
{
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}
