/* weft bench: its options, their defaults and what must hold between them. */
#include "bench.h"
#include "../common/net.h"
#include "../common/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

const char *const bench_op_names[BENCH_OPS + 1] = { "pages", "write", "read", "scatter", "send", "call", NULL };

static const char *const memory_names[] = { "weft", "own", NULL };
static const char *const mem_words[] = { "host", "cuda", "cuda,host", "host,cuda", NULL }; /* for completion */
const char *const bench_direction_names[] = { "out", "in", "both", NULL };

/* What an operation is when nothing else is said: enough in flight to fill a fast path, little for a round
 * trip. */
static const struct {
	uint64_t size, depth, region;
} defaults[BENCH_OPS] = {
	[BENCH_PAGES] = { 64 * KIB, 32, 256 * MIB }, [BENCH_WRITE] = { MIB, 16, 256 * MIB },
	[BENCH_READ] = { MIB, 16, 256 * MIB },       [BENCH_SCATTER] = { 64 * KIB, 16, 256 * MIB },
	[BENCH_SEND] = { 4 * KIB, 64, 16 * MIB },    [BENCH_CALL] = { 64, 1, 16 * MIB },
};
enum { DEFAULT_PARTS = 64, DEFAULT_SLOTS = 65536, MOST_PAGES = 4096, MOST_DEPTH = 512 };
#define DEFAULT_BYTES (4 * MIB) /* of an operation on pages */

static const struct cmd_usage usage = {
	.command = "weft bench",
	.synopsis = "[OPTION]... [HOST[:PORT]]",
	.about = "Moves memory to another process, measures it and verifies every byte where it arrived. "
		 "Without HOST it starts the other process on this host; with HOST it uses a 'weft bench "
		 "--listen' there. An operation counts when it has ended: the receiver then has the data.\n\n"
		 "Sizes take K, M, G, T (1024) and KB, MB, GB, TB (1000); times take ns, us, ms, s, m, h, and a "
		 "bare number is seconds.",
	.examples = "  weft bench                           the best transport here, 64 KiB pages\n"
		    "  weft bench --provider tcp --rails 4  tcp on 127.0.0.1 to 127.0.0.4\n"
		    "  weft bench --op call --manual        the fastest round trips\n"
		    "  weft bench --op write --size 1M --depth 8 --duration 10s\n"
		    "  weft bench --mem cuda:0,host         from a GPU's memory to the CPU's\n"
		    "  weft bench --sim p5,nics=8,rate=1G --kill-rail 3@1s --revive-rail 3@3s\n"
		    "  weft bench --sizes 4K-1M --csv       a line per page size\n"
		    "  weft bench host-a --direction both   to host-a and from it at once\n"
		    "  weft bench host-a --clients 4        four processes of this host\n"
		    "  weft bench --listen 7471             on one host; then on another:\n"
		    "  weft bench host-a:7471 --json\n",
	.more = "See weft-bench(1).",
};

static bool has_pages(int op)
{
	return op == BENCH_PAGES || op == BENCH_SCATTER;
}

/* Where the table writes. It starts with the defaults that do not depend on the operation. */
static struct bench_options given = {
	.params = { .op = BENCH_PAGES, .seed = 1, .timeout_ns = 10 * WEFT_SECOND },
	.duration_ns = 3 * WEFT_SECOND,
	.warmup_ns = 200 * WEFT_MILLISECOND,
	.clients = 1,
};

static const struct cmd_option table[] = {
	{ .name = "op",
	  .type = CMD_CHOICE,
	  .value = &given.params.op,
	  .argument = "OP",
	  .choices = bench_op_names,
	  .help = "what to do: pages (default), write, read, scatter, send, call" },
	{ .name = "page-size",
	  .type = CMD_SIZE,
	  .value = &given.page_size,
	  .argument = "SIZE",
	  .min = 1,
	  .max = GIB,
	  .given = &given.page_size_given,
	  .help = "bytes of a page (default 64K)" },
	{ .name = "pages",
	  .type = CMD_NUMBER,
	  .value = &given.pages,
	  .argument = "N",
	  .min = 1,
	  .max = 1000000,
	  .given = &given.pages_given,
	  .help = "pages per operation (default: 4M of pages, at most 4096; 64 for scatter)" },
	{ .name = "size",
	  .type = CMD_SIZE,
	  .value = &given.size,
	  .argument = "SIZE",
	  .min = 1,
	  .max = 64 * GIB,
	  .given = &given.size_given,
	  .help = "bytes of an operation that is not paged (default 1M for write and read, 4K for send, 64 "
		  "for call)" },
	{ .name = "sizes",
	  .type = CMD_STRING,
	  .value = &given.sizes_text,
	  .argument = "LIST",
	  .help = "one run per size (of a page, or of an operation that is not paged): 4K,64K,1M, or 4K-1M, "
		  "which doubles; --duration then defaults to 1s" },
	{ .name = "depth",
	  .type = CMD_NUMBER,
	  .value = &given.params.depth,
	  .argument = "N",
	  .min = 1,
	  .max = BENCH_DEPTH_MAX,
	  .given = &given.depth_given,
	  .help = "operations in flight (default 32 for pages, 16 for other data, 64 for send, 1 for call; more "
		  "where the NICs are fast enough)" },
	{ .name = "direction",
	  .type = CMD_CHOICE,
	  .value = &given.direction,
	  .argument = "WAY",
	  .choices = bench_direction_names,
	  .help = "which side submits operations: out (default): this side; in: the other side; both: both "
		  "sides at once" },
	{ .name = "clients",
	  .type = CMD_NUMBER,
	  .value = &given.clients,
	  .argument = "N",
	  .min = 1,
	  .max = BENCH_CLIENTS_MAX,
	  .help = "run N processes of this side at once, each with its own engine (default 1)" },
	{ .name = "duration",
	  .type = CMD_DURATION,
	  .value = &given.duration_ns,
	  .argument = "TIME",
	  .min = 1000000,
	  .max = UINT64_C(604800) * WEFT_SECOND,
	  .given = &given.duration_given,
	  .help = "how long to measure (default 3s)" },
	{ .name = "ops",
	  .type = CMD_NUMBER,
	  .value = &given.ops,
	  .argument = "N",
	  .min = 1,
	  .help = "stop after N operations" },
	{ .name = "warmup",
	  .type = CMD_DURATION,
	  .value = &given.warmup_ns,
	  .argument = "TIME",
	  .max = 3600 * WEFT_SECOND,
	  .help = "run this long before measuring (default 200ms; 0 for none)" },
	{ .name = "region",
	  .type = CMD_SIZE,
	  .value = &given.region,
	  .argument = "SIZE",
	  .min = 1,
	  .given = &given.region_given,
	  .help = "bytes of memory on each side (default 256M, less for small pages)" },
	{ .name = "memory",
	  .type = CMD_CHOICE,
	  .value = &given.memory,
	  .argument = "WHOSE",
	  .choices = memory_names,
	  .help = "weft (default): memory of weft_memory_alloc(), which peers of one host map; own: the command's, as "
		  "an application may have it" },
	{ .name = "mem",
	  .type = CMD_STRING,
	  .value = &given.mem,
	  .argument = "WHERE[,WHERE]",
	  .choices = mem_words,
	  .help =
	      "where the memory is: host (default) or cuda[:N], a card's (GPU's); this side's and the peer's, or one "
	      "for both. Filled and checked there" },
	CMD_TRANSPORT_OPTIONS(given.transport),
	{ .name = "manual",
	  .type = CMD_FLAG,
	  .value = &given.transport.manual,
	  .help = "use no worker threads: the benchmark's own loop makes progress, for the lowest latency" },
	{ .name = "timeout",
	  .type = CMD_DURATION,
	  .value = &given.params.timeout_ns,
	  .argument = "TIME",
	  .min = WEFT_MILLISECOND,
	  .max = 3600 * WEFT_SECOND,
	  .help = "the deadline of each operation (default 10s)" },
	{ .name = "rail-limit",
	  .type = CMD_DURATION,
	  .value = &given.params.rail_limit_ns,
	  .argument = "TIME",
	  .min = WEFT_MILLISECOND,
	  .max = 3600 * WEFT_SECOND,
	  .help = "reopen a rail after this long without progress (default 1s; 100ms with --kill-rail)" },
	{ .name = "peer-limit",
	  .type = CMD_DURATION,
	  .value = &given.params.peer_limit_ns,
	  .argument = "TIME",
	  .min = 4 * WEFT_MILLISECOND,
	  .max = 3600 * WEFT_SECOND,
	  .help =
	      "a peer that is silent for this long is down; the heartbeat interval is a quarter of it (default 3s)" },
	{ .name = "seed",
	  .type = CMD_NUMBER,
	  .value = &given.params.seed,
	  .argument = "N",
	  .help = "determines contents and places (default 1)" },
	{ .name = "checksum",
	  .type = CMD_FLAG,
	  .value = &given.params.checksum,
	  .help = "check every operation in the engine, at the receiver (XXH3), before it ends" },
	{ .name = "no-verify", .type = CMD_FLAG, .value = &given.no_verify, .help = "do not check what arrived" },
	{ .name = "listen",
	  .type = CMD_STRING,
	  .value = &given.listen,
	  .argument = "[ADDR:]PORT",
	  .optional = true,
	  .given = &given.is_listener,
	  .help = "be the other side: serve one 'weft bench HOST' after another (default: every address, "
		  "port " CMD_NET_PORT ")" },
	{ .name = "once", .type = CMD_FLAG, .value = &given.once, .help = "with --listen: end after one run" },
	CMD_SIM_OPTION(given.sim),
	{ .name = "kill-rail",
	  .type = CMD_STRINGS,
	  .value = &given.kill,
	  .argument = "NIC@TIME",
	  .help = "with --sim: take down the link of this side's simulated NIC number NIC at TIME after the "
		  "start; the result shows the rate before, while down and after" },
	{ .name = "revive-rail",
	  .type = CMD_STRINGS,
	  .value = &given.revive,
	  .argument = "NIC@TIME",
	  .help = "bring the link back (both options may be given several times)" },
	{ .name = "json", .type = CMD_FLAG, .value = &given.json, .help = "print the result as one JSON object" },
	{ .name = "csv", .type = CMD_FLAG, .value = &given.csv, .help = "print the result as CSV, with a header line" },
	{ .name = "histogram",
	  .type = CMD_STRING,
	  .value = &given.histogram,
	  .argument = "FILE",
	  .help = "write the number of operations per latency to FILE, as CSV" },
	{ .name = "each-rail",
	  .type = CMD_FLAG,
	  .value = &given.each_rail,
	  .help = "print a line per rail, also for more than eight" },
	{ .name = "quiet", .type = CMD_FLAG, .value = &given.quiet, .help = "print only the result, no progress" },
	{ .name = "verbose",
	  .type = CMD_FLAG,
	  .value = &given.transport.verbose,
	  .help = "print the engine's log too" },
	{ .name = "peer-fd",
	  .type = CMD_NUMBER,
	  .value = &given.peer_fd,
	  .argument = "N",
	  .max = 1 << 20,
	  .given = &given.is_peer },
	{ .name = "party-fd",
	  .type = CMD_NUMBER,
	  .value = &given.party_fd,
	  .argument = "N",
	  .max = 1 << 20,
	  .given = &given.is_client },
	{ .name = "party", .type = CMD_NUMBER, .value = &given.party, .argument = "N" },
	{ 0 },
};

static int wrong(const char *text)
{
	fprintf(stderr, "weft bench: %s\n", text);
	return -1;
}

/* What contradicts itself is said, never quietly ignored. */
static int check(const struct bench_options *options)
{
	char why[200];

	if (cmd_transport_check(&options->transport, why, sizeof why) < 0)
		return wrong(why);
	if (options->histogram && strcmp(options->histogram, "-") == 0)
		return wrong("--histogram takes a file, and '-' is none: standard output has the result");
	if (options->transport.manual && options->transport.workers)
		return wrong("--manual and --workers exclude each other: --manual uses no worker threads");
	if (options->json && options->csv)
		return wrong("--json and --csv exclude each other");
	if (options->is_listener && options->host)
		return wrong("--listen and HOST exclude each other: one host listens, the other names it");
	if (options->once && !options->is_listener)
		return wrong("--once belongs to --listen");
	if (options->is_listener &&
	    (options->size_given || options->page_size_given || options->pages_given || options->region_given ||
	     options->depth_given || options->duration_given || options->ops || options->no_verify ||
	     options->params.op != BENCH_PAGES || options->direction != BENCH_OUT || options->clients > 1 ||
	     options->sizes.count || options->params.checksum || options->histogram || options->memory || options->mem))
		return wrong("what to do and for how long is said by the side that names HOST; with --listen go only "
			     "--once, the choice of rails, --quiet and --verbose");
	if (options->is_listener && (options->json || options->csv))
		return wrong("--json and --csv belong to the side that names HOST: the result is printed there");
	if (has_pages(options->params.op) && options->size_given)
		return wrong("--size is for operations that are not paged: use --page-size and --pages, or "
			     "--op write");
	if (!has_pages(options->params.op) && (options->page_size_given || options->pages_given))
		return wrong("--page-size and --pages are for --op pages and scatter: use --size");
	if (options->params.checksum && (bench_op_is_message(options->params.op) || options->params.op == BENCH_READ))
		return wrong("--checksum is for what is written: --op pages, write or scatter");
	if (bench_op_is_message(options->params.op) && options->size_given && options->size > BENCH_MESSAGE_MAX)
		return wrong("--size of a message is 64 MiB at most: use --op write for more");
	return 0;
}

static int check_mem(struct bench_options *options)
{
	const uint32_t *card = options->params.card;

	if (!options->mem)
		return 0;
	if (bench_mem_read(options->mem, options->params.card) < 0)
		return -1;
	if ((card[0] || card[1]) && bench_op_is_message(options->params.op))
		return wrong("--mem cuda is for --op pages, write, read and scatter: messages are in the CPU's memory");
	if (card[0] && card[1] && options->memory)
		return wrong("--memory says whose memory of the CPU it is, and --mem that both sides' is a card's");
	return 0;
}

static int check_host(const char *host)
{
	struct cmd_net_address address;
	int rc = cmd_net_parse(host, false, &address);

	if (rc == 0 && strcmp(address.port, "0") == 0)
		rc = -ERANGE;
	if (rc == -ERANGE)
		fprintf(stderr, "weft bench: %s: a port is a number from 1 to 65535\n", host);
	else if (rc < 0)
		fprintf(stderr,
			"weft bench: '%s' is no host: it takes a name or an address, and perhaps a port: "
			"weft bench host-a:" CMD_NET_PORT "\n",
			host);
	return rc;
}

/* Links that fail on purpose: only simulated ones, only against a peer that shares their control file. */
static int check_faults(struct bench_options *options)
{
	char why[200];

	if (!options->kill.count && !options->revive.count)
		return 0;
	if (!options->sim)
		return wrong("--kill-rail and --revive-rail take down simulated links: they need --sim");
	if (options->host || options->is_listener)
		return wrong("--kill-rail and --revive-rail are for the peer that weft bench starts itself: "
			     "use neither HOST nor --listen with them");
	if (options->ops)
		return wrong("--kill-rail and --revive-rail need a time: use --duration, not --ops");
	if (options->csv)
		return wrong("--csv cannot show what --kill-rail measures: use --json");
	if (bench_schedule_read(&options->schedule, &options->kill, &options->revive, why, sizeof why) < 0)
		return wrong(why);
	uint64_t last_ns = options->schedule.fault[options->schedule.count - 1].at_ns;
	if (!options->duration_given)
		options->duration_ns = last_ns + 2 * WEFT_SECOND;
	if (last_ns >= options->duration_ns)
		return wrong("--kill-rail and --revive-rail must lie before the end of --duration");
	if (!options->params.rail_limit_ns)
		options->params.rail_limit_ns = BENCH_FAULTS_RAIL_LIMIT_NS;
	return 0;
}

/* Slots and region from sizes. A region too small for what is in flight would have two writers of one page.
 */
static int lay_out(struct bench_options *options)
{
	struct bench_params *params = &options->params;
	uint64_t processes = options->clients * (options->direction == BENCH_BOTH ? 2 : 1);
	/* What cards have is for their driver to say. */
	bool cards = params->card[0] && params->card[1];
	uint64_t least, limit = cards ? UINT64_MAX : bench_memory_limit() / processes, region = options->region;
	char need[32], have[32];

	params->pages = has_pages(params->op) ? options->pages : 1;
	params->slot_bytes = has_pages(params->op) ? options->page_size : options->size;
	if (bench_op_is_message(params->op))
		least = params->slot_bytes;
	else if (__builtin_mul_overflow(params->depth * params->pages, params->slot_bytes, &least))
		return wrong("--depth, --pages and --page-size together are too much");
	cmd_format_size(least, need, sizeof need);
	if (!options->region_given) {
		/* Small pages in a large region would measure this side's own book-keeping. */
		if (region / params->slot_bytes > DEFAULT_SLOTS)
			region = DEFAULT_SLOTS * params->slot_bytes;
		region = region > limit ? limit : region;
		region = region < 2 * least ? 2 * least : region;
	}
	if (region > limit || least > limit) {
		fprintf(stderr,
			"weft bench: %s on each side%s is more than this host has free; use a smaller --region, "
			"--depth or size\n",
			cmd_format_size(region, have, sizeof have), processes > 1 ? " of each client" : "");
		return -1;
	}
	if (region < least) {
		fprintf(stderr,
			"weft bench: --region %s is too small: what is in flight takes %s (--depth times the "
			"size of an "
			"operation)\n",
			cmd_format_size(region, have, sizeof have), need);
		return -1;
	}
	params->slots = region / params->slot_bytes;
	if (params->slots > CMD_SLOT_MAX)
		return wrong("--region has too many pages: use fewer or larger ones");
	return 0;
}

/* Large messages are copied on both sides: many in flight only wait, and longer than their deadline. */
static uint64_t default_depth(int op, uint64_t size)
{
	uint64_t depth = defaults[op].depth, fit = BENCH_MESSAGE_MAX / size;

	if (!bench_op_is_message(op) || depth <= fit)
		return depth;
	return fit ? fit : 1;
}

/* What an operation costs besides its pages weighs the same whatever their size; a region that was asked for
 * is kept to. */
static uint64_t default_pages(const struct bench_options *options)
{
	uint64_t pages = DEFAULT_BYTES / options->page_size, fit = UINT64_MAX;

	if (options->params.op == BENCH_SCATTER)
		pages = DEFAULT_PARTS;
	if (options->region_given)
		fit = options->region / options->page_size / options->params.depth;
	pages = pages > MOST_PAGES ? MOST_PAGES : pages;
	pages = pages > fit ? fit : pages;
	return pages ? pages : 1;
}

/* Several processes: not with what belongs to one. */
static int check_party(const struct bench_options *options)
{
	bool several = options->clients > 1 || options->direction == BENCH_BOTH;

	if ((several || options->direction == BENCH_IN) && (options->kill.count || options->revive.count))
		return wrong("--kill-rail and --revive-rail need one client and --direction out");
	if (several && options->sizes_text)
		return wrong("--sizes needs one client and one direction");
	return 0;
}

static int check_sizes(struct bench_options *options)
{
	if (!options->sizes_text)
		return 0;
	if (options->size_given || options->page_size_given)
		return wrong("--sizes replaces --size and --page-size: give only one of them");
	if (options->histogram || options->kill.count || options->revive.count)
		return wrong("--histogram, --kill-rail and --revive-rail are for one run, not for --sizes");
	if (options->is_listener)
		return wrong("--sizes belongs to the side that names HOST");
	if (bench_sizes_read(options->sizes_text, &options->sizes) < 0) {
		fprintf(stderr,
			"weft bench: --sizes cannot be '%s': it takes sizes such as 4K,64K,1M or 4K-1M, %d "
			"at most\n",
			options->sizes_text, BENCH_SIZES_MAX);
		return -1;
	}
	if (!options->duration_given && !options->ops)
		options->duration_ns = WEFT_SECOND;
	return 0;
}

/* Not for messages, which both sides copy, and within what their memory and the engine's own default take. */
static void fill_line(struct bench_options *options)
{
	uint64_t bytes = has_pages(options->params.op) ? options->pages * options->page_size : options->size;
	uint64_t processes = options->clients * (options->direction == BENCH_BOTH ? 2 : 1);
	uint64_t most = bench_memory_limit() / processes / 2 / bytes, depth = options->in_flight / bytes + 1;

	if (!options->in_flight || bench_op_is_message(options->params.op))
		return;
	depth = depth > MOST_DEPTH ? MOST_DEPTH : depth;
	depth = depth > most ? most : depth;
	if (depth > options->params.depth)
		options->params.depth = depth;
}

/* What follows from what was given. */
static void fill_in(struct bench_options *options)
{
	if (!options->size_given)
		options->size = defaults[options->params.op].size;
	if (!options->page_size_given)
		options->page_size = defaults[options->params.op].size;
	if (!options->depth_given)
		options->params.depth = default_depth(options->params.op, options->size);
	if (!options->region_given)
		options->region = defaults[options->params.op].region;
	if (!options->pages_given)
		options->pages = default_pages(options);
	fill_line(options);
}

int bench_options_in_flight(struct bench_options *options, uint64_t bytes)
{
	options->in_flight = bytes;
	if (options->sizes.count)
		return 0; /* each size is filled in before its run */
	fill_in(options);
	return lay_out(options);
}

int bench_options_resize(struct bench_options *options, uint64_t size)
{
	if (has_pages(options->params.op))
		options->page_size = size, options->page_size_given = true;
	else
		options->size = size, options->size_given = true;
	if (bench_op_is_message(options->params.op) && size > BENCH_MESSAGE_MAX)
		return wrong("--sizes of messages: at most 64 MiB");
	fill_in(options);
	return lay_out(options);
}

int bench_options_read(int argc, char **argv, struct bench_options *ret_options)
{
	int rc = cmd_options_parse(&usage, table, argc, argv, &given.host, 1);
	struct bench_options options = given;

	if (rc != 0)
		return rc;
	if (check(&options) < 0 || check_mem(&options) < 0 || (options.host && check_host(options.host) < 0) ||
	    check_party(&options) < 0 || check_faults(&options) < 0 || check_sizes(&options) < 0)
		return -1;
	fill_in(&options);
	if (options.ops && !options.duration_given)
		options.duration_ns = WEFT_FOREVER;
	options.argc = argc;
	options.argv = argv;
	options.params.verify = !options.no_verify;
	options.not_verified = options.no_verify ? "--no-verify" : NULL;
	options.params.manual = options.transport.manual;
	options.params.own_memory = options.memory;
	options.params.workers = options.transport.workers;
	options.params.reverse = options.direction == BENCH_IN;
	options.params.duration_ns = options.duration_ns;
	options.params.warmup_ns = options.warmup_ns;
	options.params.ops = options.ops;
	options.params.simulated = options.transport.simulated = options.sim != NULL;
	options.format = options.json ? BENCH_JSON : options.csv ? BENCH_CSV : BENCH_TABLE;
	if (!options.is_peer && !options.is_listener && !options.sizes.count && lay_out(&options) < 0)
		return -1;
	for (uint32_t i = 0; i < options.sizes.count; i++) { /* before the first runs */
		struct bench_options one = options;
		if (bench_options_resize(&one, options.sizes.size[i]) < 0)
			return -1;
	}
	*ret_options = options;
	return 0;
}

void bench_limits_config(const struct bench_params *params, struct weft_config *config)
{
	config->rail_limit_ns = params->rail_limit_ns;
	config->peer_limit_ns = params->peer_limit_ns;
	config->heartbeat_ns = params->peer_limit_ns / 4;
}

void bench_message_config(const struct bench_params *params, struct weft_config *config)
{
	if (params->slot_bytes > 4 * MIB)
		config->max_message = params->slot_bytes;
	/* The engine's own limit is twice the largest message. */
	if (params->slot_bytes > 2 * MIB)
		config->peer_window = 4 * params->slot_bytes;
}

void bench_params_describe(const struct bench_params *params, char *text, size_t room)
{
	const char *checksum = params->checksum ? ", each checked" : "";
	char size[32];
	cmd_format_size(params->slot_bytes, size, sizeof size);
	if (has_pages(params->op))
		snprintf(text, room,
			 "%s: %" PRIu64 " pages of %s at random places per operation, %" PRIu64 " in flight%s",
			 bench_op_names[params->op], params->pages, size, params->depth, checksum);
	else
		snprintf(text, room, "%s: %s per operation, %" PRIu64 " in flight%s", bench_op_names[params->op], size,
			 params->depth, checksum);
}
