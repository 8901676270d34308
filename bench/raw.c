/*
 * raw: moves pages to another process through libfabric with no engine between, one thread per side: the limit that an
 * engine is compared with. An operation counts when it has been delivered, as weft counts it. Every result names what
 * it used; results over the simulator say "simulated".
 */
#include "fab.h"
#include "raw.h"
#include "sim/setup.h"

#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

static const char usage[] =
    "Usage: raw [OPTION]...\n"
    "Moves memory to another process of this host through libfabric alone, one thread a side.\n\n"
    "  --provider NAME    shm (default), tcp, or simfab with --sim\n"
    "  --sim SPEC         simulated NICs, such as p5,copy=none; the result says so\n"
    "  --op OP            pages (default) or pingpong\n"
    "  --page-size N      bytes of a page or message (default 65536; 64 for pingpong)\n"
    "  --region N         bytes of memory on each side (default 268435456)\n"
    "  --depth N          operations in flight a rail (default: tuned for provider and size)\n"
    "  --batch N          posts a doorbell (default 16)\n"
    "  --iovs N           pages an operation, 1 to 4 (default 1)\n"
    "  --adjacent         pages in order, not at random places\n"
    "  --manual           pages only: weft without threads of its own\n"
    "  --no-fd            sleep by the clock when idle, not on the queue's descriptor\n"
    "  --seconds S        how long to measure (default 1)\n"
    "  --pin A,B          run the sides on these cores\n"
    "  --json             one JSON object\n";

/* Depth in bytes and operations that measured best on loopback (docs/lab/performance-steps.md). */
static unsigned tuned_depth(const struct raw_options *options)
{
	uint64_t bytes = !strcmp(options->provider, "tcp") ? 4 << 20 : 2 << 20;
	uint64_t ops = bytes / options->page_bytes, most = !strcmp(options->provider, "tcp") ? 128 : 64;

	return (unsigned)(ops < 4 ? 4 : ops > most ? most : ops);
}

static void parse_pin(struct raw_options *options, const char *text)
{
	char *end;

	options->pin[0] = (int)strtol(text, &end, 10);
	options->pin[1] = *end == ',' ? (int)strtol(end + 1, NULL, 10) : options->pin[0];
}

static bool take(struct raw_options *options, int option, const char *value)
{
	switch (option) {
	case 'p':
		options->provider = value;
		return true;
	case 's':
		options->sim = value;
		return true;
	case 'o':
		options->pingpong = !strcmp(value, "pingpong");
		return options->pingpong || !strcmp(value, "pages");
	case 'b':
		options->page_bytes = strtoull(value, NULL, 0);
		return true;
	case 'r':
		options->region_bytes = strtoull(value, NULL, 0);
		return true;
	case 'd':
		options->depth = (unsigned)strtoul(value, NULL, 0);
		return true;
	case 'n':
		options->batch = (unsigned)strtoul(value, NULL, 0);
		return true;
	case 'i':
		options->iovs = (unsigned)strtoul(value, NULL, 0);
		return true;
	case 't':
		options->seconds = strtod(value, NULL);
		return true;
	case 'c':
		parse_pin(options, value);
		return true;
	}
	return false;
}

static int parse(int argc, char **argv, struct raw_options *options)
{
	int adjacent = 0, manual = 0, no_fd = 0, json = 0, c;
	const struct option longs[] = {
		{ "provider", 1, 0, 'p' },
		{ "sim", 1, 0, 's' },
		{ "op", 1, 0, 'o' },
		{ "page-size", 1, 0, 'b' },
		{ "region", 1, 0, 'r' },
		{ "depth", 1, 0, 'd' },
		{ "batch", 1, 0, 'n' },
		{ "iovs", 1, 0, 'i' },
		{ "seconds", 1, 0, 't' },
		{ "pin", 1, 0, 'c' },
		{ "adjacent", 0, &adjacent, 1 },
		{ "manual", 0, &manual, 1 },
		{ "no-fd", 0, &no_fd, 1 },
		{ "json", 0, &json, 1 },
		{ "help", 0, 0, 'h' },
		{ 0 },
	};

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h') {
			fputs(usage, stdout);
			exit(0);
		}
		if (c && !take(options, c, optarg))
			return -1;
	}
	options->adjacent = adjacent;
	options->manual = manual;
	options->waits = !no_fd;
	options->json = json;
	if (options->sim)
		options->provider = "simfab";
	if (!options->page_bytes)
		options->page_bytes = options->pingpong ? 64 : 65536;
	if (!options->depth)
		options->depth = tuned_depth(options);
	if (optind != argc || options->iovs < 1 || options->iovs > FAB_IOVS || !options->batch ||
	    options->page_bytes > options->region_bytes || !(options->seconds > 0 && options->seconds < 3600) ||
	    (options->pingpong && options->page_bytes > FAB_MESSAGE))
		return -1;
	return 0;
}

void raw_side(const struct raw_options *options, int side)
{
	/* Every loop here ends, but a call into libfabric or the kernel may not. */
	alarm((unsigned)options->seconds + 60);
	prctl(PR_SET_TIMERSLACK, 1000); /* keeps a sleep of 20 us from taking 70 */
	if (options->pin[side] >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(options->pin[side], &set);
		sched_setaffinity(0, sizeof set, &set);
	}
}

static void report(const struct raw_options *options, const struct raw_result *result)
{
	const char *simulated = options->sim ? "true" : "false";
	double gbps = (double)result->bytes * 8 / result->seconds / 1e9;
	double mops = (double)result->pages / result->seconds / 1e6;

	if (options->pingpong && options->json)
		printf("{\"tool\": \"%s\", \"provider\": \"%s\", \"op\": \"pingpong\", \"size\": %zu, "
		       "\"ops\": %" PRIu64 ", \"p50_us\": %.3f, \"p99_us\": %.3f, \"simulated\": %s}\n",
		       RAW_TOOL, result->provider, options->page_bytes, result->pages, result->p50_us, result->p99_us,
		       simulated);
	else if (options->pingpong)
		printf(RAW_TOOL " %s: round trip of %zu bytes: p50 %.2f us, p99 %.2f us%s\n", result->provider,
		       options->page_bytes, result->p50_us, result->p99_us, options->sim ? " (simulated)" : "");
	else if (options->json)
		printf("{\"tool\": \"%s\", \"provider\": \"%s\", \"op\": \"pages\", \"rails\": %d, "
		       "\"page_size\": %zu, "
		       "\"depth\": %u, \"batch\": %u, \"iovs\": %u, \"pages\": %" PRIu64 ", \"bytes\": %" PRIu64
		       ", \"seconds\": %.6f, \"gbps\": %.3f, \"line_gbps\": %.3f, "
		       "\"mops\": %.6f, \"cpu_s\": %.3f, \"verified\": %s, "
		       "\"simulated\": %s}\n",
		       RAW_TOOL, result->provider, result->rails, options->page_bytes, options->depth, options->batch,
		       options->iovs, result->pages, result->bytes, result->seconds, gbps, result->line_bps / 1e9, mops,
		       result->cpu_s, result->verified ? "true" : "null", simulated);
	else
		printf(RAW_TOOL " %s: %d rails, pages of %zu bytes, %u in flight a rail: %.3f Gbit/s, %.3f million "
				"pages/s%s\n",
		       result->provider, result->rails, options->page_bytes, options->depth, gbps, mops,
		       options->sim ? " (simulated)" : "");
}

int main(int argc, char **argv)
{
	struct raw_options options = { .provider = "shm",
				       .region_bytes = 256u << 20,
				       .batch = 16,
				       .iovs = 1,
				       .seconds = 1,

				       .pin = { -1, -1 } };
	struct raw_result result = { 0 };
	char why[256];
	int pair[2], status;

	if (parse(argc, argv, &options) < 0) {
		fputs("raw: it does not take that; raw --help says what it takes\n", stderr);
		return 2;
	}
	if (options.sim && wf_sim_setup(options.sim, why, sizeof why)) {
		fprintf(stderr, "raw: %s\n", why);
		return 1;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return perror("socketpair"), 1;
	pid_t child = fork(); /* before libfabric, which does not survive a fork */
	if (child < 0)
		return perror("fork"), 1;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		raw_target(&options, pair[1]);
		_exit(0);
	}
	close(pair[1]);
	raw_drive(&options, pair[0], &result);
	close(pair[0]);
	if (waitpid(child, &status, 0) < 0 || status) {
		fprintf(stderr, "raw: the target failed\n");
		return 1;
	}
	report(&options, &result);
	return 0;
}
