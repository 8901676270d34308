/* The progress line, on standard error so that results can be piped. */
#include "progress.h"
#include "../common/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define TERMINAL_NS UINT64_C(100000000)
#define PLAIN_NS    UINT64_C(1000000000)
#define AVERAGE_NS  UINT64_C(1000000000)

void bench_progress_open(struct bench_progress *progress, bool shown, const char *counted)
{
	*progress = (struct bench_progress){ .shown = shown, .counted = counted };
	progress->terminal = isatty(STDERR_FILENO);
}

/* The terminal's width now: it may change at any time. A line that wraps could not be rewritten in place. */
static size_t columns(void)
{
	struct winsize size;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79;
}

static void draw(struct bench_progress *progress, const char *text)
{
	if (progress->terminal)
		fprintf(stderr, "\r%.*s\033[K", (int)columns(), text);
	else
		fprintf(stderr, "%s\n", text);
	fflush(stderr);
	progress->drawn = progress->terminal;
}

void bench_progress_say(struct bench_progress *progress, const char *what)
{
	char text[100];

	if (!progress->shown || !progress->terminal)
		return;
	snprintf(text, sizeof text, "%s ...", what);
	draw(progress, text);
}

static void make_mark(struct bench_progress *progress, uint64_t now_ns, uint64_t ops, uint64_t bytes)
{
	uint32_t at = progress->marks++ % BENCH_MARKS;

	progress->mark[at].ns = progress->last_ns = now_ns;
	progress->mark[at].ops = ops;
	progress->mark[at].bytes = bytes;
}

void bench_progress_start(struct bench_progress *progress, uint64_t now_ns)
{
	progress->start_ns = now_ns;
	progress->marks = 0;
	make_mark(progress, now_ns, 0, 0);
}

/* The last mark that is a second old, else the oldest there is: a change is seen, a single turn of luck is
 * not. */
static uint32_t compared_with(const struct bench_progress *progress, uint64_t now_ns)
{
	uint32_t oldest = progress->marks > BENCH_MARKS ? progress->marks - BENCH_MARKS : 0;

	for (uint32_t i = progress->marks; i-- > oldest;) {
		if (now_ns - progress->mark[i % BENCH_MARKS].ns >= AVERAGE_NS)
			return i % BENCH_MARKS;
	}
	return oldest % BENCH_MARKS;
}

static void describe_rate(const struct bench_progress *progress, uint64_t now_ns, uint64_t ops, uint64_t bytes,
			  char *text, size_t room)
{
	uint32_t from = compared_with(progress, now_ns);
	double passed = (double)(now_ns - progress->mark[from].ns);
	double gbps = (double)(bytes - progress->mark[from].bytes) * 8 / passed;
	char count[32];

	if (progress->counted)
		snprintf(text, room, "%s %s/s",
			 cmd_format_count((double)(ops - progress->mark[from].ops) * 1e9 / passed, count, sizeof count),
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
	uint64_t every = progress->terminal ? TERMINAL_NS : PLAIN_NS;
	char size[32], rate[80], text[200];

	if (!progress->shown || !progress->rates || now_ns - progress->last_ns < every)
		return;
	describe_rate(progress, now_ns, ops, bytes, rate, sizeof rate);
	snprintf(text, sizeof text, "%6.1f s  %s  %" PRIu64 " operations, %" PRIu64 " posted, %s",
		 (double)(now_ns - progress->start_ns) / 1e9, rate, ops, posted,
		 cmd_format_size(bytes, size, sizeof size));
	draw(progress, text);
	make_mark(progress, now_ns, ops, bytes);
}

void bench_progress_clear(struct bench_progress *progress)
{
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}
