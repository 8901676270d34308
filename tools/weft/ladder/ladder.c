/* weft ladder: the command, its rungs, and the order they run in. */
#include "../commands.h"
#include "../common/options.h"
#include "ladder.h"

#include "../../../sim/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 09 and 10 are short on purpose: what first contact costs is a matter of how much is written after it. */
const struct ladder_rung ladder_rungs[LADDER_RUNGS] = {
	{ 7, "07-queue", "one NIC, many in flight", "a full queue hides the latency of one NIC", 97.4, false, false,
	  false, 100 },
	{ 9, "09-rails", "every NIC, one thread", "more NICs carry more; now one core is the limit", 287, false, true,
	  true, 40 },
	{ 10, "10-warmup", "+ warm-up", "first contact has happened before the clock starts", 293, false, true, true,
	  40 },
	{ 11, "11-threads", "+ a thread per GPU", "more cores post; now the line they share is the limit", 355, true,
	  true, true, 100 },
	{ 12, "12-pinning", "+ pinning", "near memory: less CPU per write, the shared line still limits", 1238, true,
	  false, true, 100 },
	{ 13, "13-sharding", "+ own state", "no line is shared, so workers no longer wait for each other", 1523, true,
	  false, false, 100 },
	{ 14, "14-batching", "+ batches of 16", "one doorbell and one look per 16 writes: less CPU per write", 2589,
	  true, false, false, 100 },
	{ 15, "15-lazy", "+ lazy posting", "no list of requests is written and read back: less CPU per write", 3108,
	  true, false, false, 100 },
	{ 16, "16-weft", "libweft", "the same ideas in a library, with deadlines, failover and exactly one end", 0,
	  true, false, false, 200 },
};

#define UNSET UINT64_MAX
struct options {
	bool json;
	const char *svg, *sim, *provider, *listen, *connect, *from;
	uint64_t rounds, page, workers, nics, post_ns, far_ns, hop_ns;
};

static const struct cmd_usage usage = {
	.command = "weft ladder",
	.synopsis = "[OPTION]...",
	.about =
	    "Runs the programs of journey/ from one NIC to all of them and shows what each idea brings, beside the "
	    "tutorial's figures on two p5 hosts.",
	.examples = "  weft ladder                   this host over real tcp: nothing is modelled\n"
		    "  weft ladder --sim p5          simulated NICs; cores not here are modelled\n"
		    "  weft ladder --sim p5 --svg F  the same as a chart\n"
		    "  weft ladder --sim p5 --page 16K   the CPU is the limit for longer\n",
	.more = "See weft-ladder(1).",
};

static int read_options(int argc, char **argv, struct options *ret)
{
	const struct cmd_option options[] = {
		{ "json", CMD_FLAG, &ret->json, NULL, "print JSON", 0, 0, NULL, NULL, false },
		{ "svg", CMD_STRING, &ret->svg, "FILE", "draw a chart to FILE ('-': standard output)", 0, 0, NULL, NULL,
		  false },
		{ "sim", CMD_STRING, &ret->sim, "NAME[,K=V]", "use a simulated machine: p5, p5en, p6-b200, …", 0, 0,
		  NULL, NULL, false },
		{ "provider", CMD_STRING, &ret->provider, "NAME", "without --sim: libfabric's provider; default tcp", 0,
		  0, NULL, NULL, false },
		{ "listen", CMD_STRING, &ret->listen, "PORT", "be the other host: serve one run of --connect", 0, 0,
		  NULL, NULL, false },
		{ "connect", CMD_STRING, &ret->connect, "HOST:PORT", "write to the host that runs --listen", 0, 0, NULL,
		  NULL, false },
		{ "from", CMD_STRING, &ret->from, "ADDRESS,...", "tcp: this host's addresses, a NIC each", 0, 0, NULL,
		  NULL, false },
		{ "nics", CMD_NUMBER, &ret->nics, "N",
		  "use N NICs; over tcp N endpoints of one interface, 4 by default", 1, 64, NULL, NULL, false },
		{ "workers", CMD_NUMBER, &ret->workers, "N", "threads from rung 11 on; default: one for 4 NICs", 1, 64,
		  NULL, NULL, false },
		{ "rounds", CMD_NUMBER, &ret->rounds, "N", "times every rung is run, in turn; default 5", 1,
		  LADDER_ROUNDS, NULL, NULL, false },
		{ "page", CMD_SIZE, &ret->page, "BYTES", "size of a page; default 64K", 8, 1 << 24, NULL, NULL, false },
		{ "post-ns", CMD_NUMBER, &ret->post_ns, "N", "model: CPU time of a post; default 450", 0, 100000, NULL,
		  NULL, false },
		{ "far-ns", CMD_NUMBER, &ret->far_ns, "N", "model: extra for the other socket's memory; default 90", 0,
		  100000, NULL, NULL, false },
		{ "hop-ns", CMD_NUMBER, &ret->hop_ns, "N", "model: a cache line between cores; default 158", 1, 100000,
		  NULL, NULL, false },
		{ 0 },
	};
	int rc = cmd_options_parse(&usage, options, argc, argv, NULL, 0);

	if (rc)
		return rc;
	if (ret->sim && ret->provider) {
		fprintf(stderr, "weft ladder: --sim and --provider exclude each other\n");
		return -1;
	}
	if (!ret->sim && (ret->post_ns != UNSET || ret->far_ns != UNSET || ret->hop_ns != UNSET)) {
		fprintf(stderr,
			"weft ladder: --post-ns, --far-ns and --hop-ns belong to --sim: nothing else is modelled\n");
		return -1;
	}
	if (ret->listen && (ret->connect || ret->json || ret->svg)) {
		fprintf(stderr, "weft ladder: --listen serves; --connect, --json and --svg belong to the other host\n");
		return -1;
	}
	if (ret->sim && (ret->listen || ret->connect || ret->from)) {
		fprintf(stderr, "weft ladder: --listen, --connect and --from are for real NICs, not for --sim\n");
		return -1;
	}
	if (ret->json && ret->svg && strcmp(ret->svg, "-") == 0) {
		fprintf(stderr, "weft ladder: --json and --svg - would mix on standard output\n");
		return -1;
	}
	return 0;
}

/* The NICs as they are, or for rungs with many threads as ones that never make a thread wait: then CPU time is all cost. */
static void set_simfab(const struct ladder *ladder, bool waits)
{
	size_t name = strcspn(ladder->sim, ",");
	char spec[1024];

	snprintf(spec, sizeof(spec), "%.*s,copy=none,post_ns=%.0f%s%s", (int)name, ladder->sim, ladder->model.post_ns,
		 ladder->sim + name, waits ? "" : ",rate=inf,latency=0,op_ns=0");
	setenv("SIMFAB", spec, 1);
}

/* The other host, and what of this one to use. */
static int add_hosts(const struct ladder *ladder, const char **arguments, int count)
{
	const char *pairs[][2] = { { "--listen", ladder->listen },
				   { "--connect", ladder->connect },
				   { "--from", ladder->from } };

	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
		if (pairs[i][1]) {
			arguments[count++] = pairs[i][0];
			arguments[count++] = pairs[i][1];
		}
	return count;
}

static int run_rung(struct ladder *ladder, struct ladder_row *row, char *why, size_t room)
{
	const struct ladder_rung *rung = row->rung;
	char millis[24], page[24], nics[24], workers[24];
	const char *arguments[32] = { "--plain", "--ms", millis, "--page", page };
	struct ladder_sample sample;
	int count = 5, rc;

	snprintf(millis, sizeof(millis), "%llu", (unsigned long long)rung->millis);
	snprintf(page, sizeof(page), "%llu", (unsigned long long)ladder->page_bytes);
	snprintf(nics, sizeof(nics), "%llu", (unsigned long long)ladder->nics);
	snprintf(workers, sizeof(workers), "%llu", (unsigned long long)ladder->workers);
	if (ladder->sim) {
		set_simfab(ladder, !rung->threads);
		arguments[count++] = "--no-check"; /* copy=none moves no bytes */
	} else {
		arguments[count++] = "--provider";
		arguments[count++] = ladder->provider;
		count = add_hosts(ladder, arguments, count);
	}
	if (rung->number == 7) {
		arguments[count++] = "--depth";
		arguments[count++] = "64";
	} else if (ladder->nics) {
		arguments[count++] = "--nics";
		arguments[count++] = nics;
	}
	if (rung->threads && ladder->workers) {
		arguments[count++] = rung->number == 16 ? "--workers" : "--threads";
		arguments[count++] = workers;
	}
	rc = ladder_run(rung->program, arguments, ladder->listen ? NULL : &sample, why, room);
	if (rc || ladder->listen)
		return rc;
	/* An engine takes no more workers than this host has cores. On the machine that is simulated it has one per group, as 15 has. */
	if (ladder->sim && rung->number == 16)
		sample.workers = row[-1].workers;
	row->workers = sample.workers;
	row->nics = sample.nics;
	row->gbit[row->rounds] = ladder_rate(ladder, rung, &sample);
	row->cpu_ns[row->rounds++] = ladder_cpu_ns(ladder, rung, &sample);
	if (sample.line_bps / 1e9 > ladder->line_gbit)
		ladder->line_gbit = sample.line_bps / 1e9;
	return 0;
}

/* Round by round, not rung by rung: a host that is busy for a while is busy for all of them. */
static int run_all(struct ladder *ladder, bool show)
{
	char why[256];

	for (int i = 0; i < LADDER_RUNGS; i++)
		ladder->rows[i].rung = &ladder_rungs[i];
	for (int round = 0; round < ladder->rounds; round++)
		for (int i = 0; i < LADDER_RUNGS; i++) {
			if (run_rung(ladder, &ladder->rows[i], why, sizeof(why))) {
				fprintf(stderr, "weft ladder: %s\n", why);
				return CMD_FAILED;
			}
			if (!show)
				continue;
			if (round || i)
				fprintf(stderr, "\033[%dA\033[J", ladder_table_lines());
			ladder_print_table(ladder, stderr);
		}
	if (show)
		fprintf(stderr, "\033[%dA\033[J", ladder_table_lines());
	return CMD_OK;
}

/* Before the first rung runs: a chart that cannot be written must not cost a minute. */
static FILE *open_svg(const char *path)
{
	FILE *to = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");

	if (!to)
		fprintf(stderr, "weft ladder: %s: %s\n", path, strerror(errno));
	return to;
}

static int write_svg(const struct ladder *ladder, FILE *to, const char *path)
{
	bool failed;

	ladder_print_svg(ladder, to);
	failed = ferror(to) || fflush(to);
	if ((to != stdout && fclose(to)) || failed) {
		fprintf(stderr, "weft ladder: %s: %s\n", path, strerror(errno));
		return CMD_FAILED;
	}
	return CMD_OK;
}

static double chosen(uint64_t option, double by_default)
{
	return option == UNSET ? by_default : (double)option;
}

/*
 * All of these are published measurements; none was chosen after looking at what comes out.
 *  - 450 ns per post on EFA, the middle of the 400 to 500 ns that follow from fabric-lib's figure: posting to 56 peers takes 27.9 us.
 *  - A cache line between two cores of a two-socket EPYC 7R13, the p5's processor: 107 ns within a socket and 197 ns between them
 *    (github.com/nviennot/core-to-core-latency, medians on a c6a.metal). Of eight workers, four on each socket, the next to want a line
 *    is one of three on this socket or of four on the other: (3 x 107 + 4 x 197) / 7 = 158 ns a hop.
 *  - The way over the link between the sockets, from the same two figures: 197 - 107 = 90 ns more for a line of the other's memory.
 */
int weft_cmd_ladder(int argc, char **argv)
{
	static struct ladder ladder;
	struct options options = { .rounds = 5, .page = 65536, .post_ns = UNSET, .far_ns = UNSET, .hop_ns = UNSET };
	FILE *svg = NULL;
	char why[400];
	int rc = read_options(argc, argv, &options), status;

	if (rc)
		return rc == CMD_OPTIONS_HELP ? CMD_OK : CMD_USAGE;
	if (options.sim && wf_sim_setup(options.sim, why, sizeof(why))) {
		fprintf(stderr, "weft ladder: --sim %s: %s\n", options.sim, why);
		return CMD_USAGE;
	}
	if (options.svg && !(svg = open_svg(options.svg)))
		return CMD_FAILED;
	ladder.model = (struct ladder_model){ chosen(options.post_ns, 450), chosen(options.far_ns, 90),
					      chosen(options.hop_ns, 158) };
	ladder.rounds = (int)options.rounds;
	ladder.sim = options.sim;
	ladder.provider = options.provider ? options.provider : "tcp";
	ladder.page_bytes = options.page;
	ladder.workers = options.workers;
	ladder.listen = options.listen;
	ladder.connect = options.connect;
	ladder.from = options.from;
	ladder.nics = options.nics;
	if (!ladder.nics && !ladder.sim && !ladder.from && strcmp(ladder.provider, "tcp") == 0)
		ladder.nics = 4;
	status = run_all(&ladder, !options.json && !options.listen && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO));
	if (options.listen)
		return status;
	if (status == CMD_OK && svg)
		status = write_svg(&ladder, svg, options.svg);
	if (status == CMD_OK && options.json)
		ladder_print_json(&ladder, stdout);
	else if (status == CMD_OK && !(options.svg && strcmp(options.svg, "-") == 0))
		ladder_print_table(&ladder, stdout);
	return status;
}
