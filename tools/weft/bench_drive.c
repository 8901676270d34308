/*
 * The benchmark's driver: opens an engine, finds or starts the peer, exchanges blobs, runs the load, and asks
 * the peer what it has.
 */
#include "bench.h"
#include "bench_load.h"
#include "net.h"
#include "pack.h"
#include "spawn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_NS (5 * WEFT_SECOND)
#define ANSWER_NS  (10 * WEFT_SECOND)
#define SETUP_NS   (60 * WEFT_SECOND) /* the peer opens rails and touches its memory */
#define PATH_NS	   (10 * WEFT_SECOND)
#define SILENCE_NS WEFT_SECOND	      /* waiting longer than this is explained */
#define BUSY_NS	   (15 * WEFT_SECOND) /* for a listener that serves somebody else */
#define KNOCK_NS   (250 * WEFT_MILLISECOND)
enum { MAP_SLOTS = 16384 }; /* a frame */

struct drive {
	const struct bench_options *options;
	struct bench_params params;
	struct bench_summary *summary;
	struct cmd_transport transport;
	struct cmd_control *control;
	struct bench_load load;
	pid_t child; /* 0: none */
	bool same_host;
};

__attribute__((format(printf, 3, 4))) static int fail(struct drive *drive, int error, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(drive->summary->error, sizeof drive->summary->error, format, list);
	va_end(list);
	return error;
}

static int fail_weft(struct drive *drive, int error, const char *what)
{
	char text[256];
	return fail(drive, error, "%s: %s", what, cmd_describe_error(error, text, sizeof text));
}

static int fail_control(struct drive *drive, int error)
{
	return fail(drive, error, "%s", drive->control->error);
}

/* Our own child serves nobody else, and a listener that does says so at once. */
static void say_it_waits(const struct drive *drive)
{
	if (drive->child)
		fprintf(
		    stderr,
		    "weft bench: waiting: the peer process has not answered yet; this host may be busy\n");
	else
		fprintf(stderr,
			"weft bench: waiting: %s has not answered yet; it may be busy, or no 'weft bench "
			"--listen'\n",
			drive->summary->peer);
}

/* Both sides say at once who they are, so that neither waits long for a stranger. */
static int say_hello(struct drive *drive)
{
	struct cmd_control *control = drive->control;
	uint8_t payload[64];
	char version[32];
	struct cmd_unpack unpack;
	struct cmd_pack pack;

	cmd_pack_start(&pack, payload, sizeof payload);
	cmd_pack_text(&pack, weft_version());
	int rc = cmd_control_send(control, CMD_FRAME_HELLO, payload, pack.used, ANSWER_NS);
	if (rc == 0 && !cmd_control_wait(control, SILENCE_NS))
		say_it_waits(drive);
	if (rc == 0)
		rc = cmd_control_expect(control, CMD_FRAME_HELLO, ANSWER_NS);
	if (rc < 0)
		return fail_control(drive, rc);
	cmd_unpack_start(&unpack, control->buffer, control->bytes);
	cmd_unpack_text(&unpack, version, sizeof version);
	return cmd_unpack_done(&unpack) ? 0 : fail(drive, -EPROTO, "the peer's greeting is malformed");
}

static int connect_peer(struct drive *drive, const struct cmd_net_address *address)
{
	char why[400];
	int fd = cmd_net_connect(address, CONNECT_NS, why, sizeof why);

	if (fd < 0)
		return fail(drive, fd, "%s", why);
	drive->same_host = cmd_net_same_host(fd);
	cmd_net_name(fd, true, drive->summary->peer, sizeof drive->summary->peer);
	int rc = cmd_control_open(drive->control, fd);
	return rc < 0 ? fail_control(drive, rc) : say_hello(drive);
}

/* A listener serves one at a time and turns others away at once: stand in line for a while. */
static int find_peer(struct drive *drive)
{
	const struct bench_options *options = drive->options;
	struct cmd_net_address address;
	uint64_t start_ns = cmd_now_ns();
	bool said = false;

	if (!options->host) {
		drive->same_host = true;
		snprintf(drive->summary->peer, sizeof drive->summary->peer, "a process of this host");
		return 0; /* started once the engine is open: nothing to undo when it does not */
	}
	int rc = cmd_net_parse(options->host, false, &address); /* checked with the options */
	if (rc < 0)
		return fail(drive, rc, "'%s' is no host", options->host);
	while ((rc = connect_peer(drive, &address)) == -EBUSY) {
		uint64_t waited_ns = cmd_now_ns() - start_ns;
		cmd_control_close(drive->control);
		drive->summary->error[0] = '\0';
		if (waited_ns > BUSY_NS)
			return fail(
			    drive, rc,
			    "%s is serving another benchmark: try again when that has ended, or start "
			    "another 'weft bench --listen PORT' there",
			    options->host);
		if (!said && waited_ns > SILENCE_NS)
			fprintf(stderr, "weft bench: waiting: %s is serving another benchmark\n",
				options->host);
		said |= waited_ns > SILENCE_NS;
		nanosleep(&(struct timespec){ .tv_nsec = KNOCK_NS }, NULL);
	}
	return rc;
}

static int start_peer(struct drive *drive)
{
	static const char *const words[] = { "weft", "bench", "--peer-fd", NULL };
	int fd, rc = cmd_spawn(words, &drive->child, &fd);
	if (rc < 0)
		return fail(drive, rc, "the peer process could not be started: %s", strerror(-rc));
	rc = cmd_control_open(drive->control, fd);
	return rc < 0 ? fail_control(drive, rc) : say_hello(drive);
}

static int open_engine(struct drive *drive)
{
	struct bench_summary *summary = drive->summary;
	struct cmd_transport_options options = drive->options->transport;
	struct weft_config config;
	struct weft_info info;
	char why[1000];

	options.same_host = drive->same_host;
	int rc = cmd_transport_choose(&options, &drive->transport, why, sizeof why);
	if (rc < 0)
		return fail(drive, rc, "%s", why);
	cmd_transport_config(&options, &drive->transport, &config);
	bench_limits_config(&drive->params, &config);
	if (bench_op_is_message(drive->params.op))
		bench_message_config(&drive->params, &config);
	if (drive->params.depth > 512)
		config.max_transfers = (uint32_t)drive->params.depth * 2;
	rc = cmd_transport_open(&config, &drive->load.engine, why, sizeof why);
	if (rc < 0)
		return fail(drive, rc, "%s", why);
	bench_signals_catch();
	rc = weft_queue_open(drive->load.engine, &drive->load.queue);
	if (rc == 0)
		rc = weft_engine_info(drive->load.engine, &info);
	if (rc < 0)
		return fail_weft(drive, rc, "the engine could not be used");
	cmd_transport_warn("weft bench", &options, info.rails);
	snprintf(summary->provider, sizeof summary->provider, "%s", info.provider);
	snprintf(summary->why, sizeof summary->why, "%s", drive->transport.why);
	summary->rails = info.rails < BENCH_RAILS_MAX ? info.rails : BENCH_RAILS_MAX;
	snprintf(drive->params.provider, sizeof drive->params.provider, "%s",
		 drive->transport.provider[0] ? drive->transport.provider : info.provider);
	snprintf(drive->params.rails, sizeof drive->params.rails, "%s",
		 drive->options->transport.rails ? drive->options->transport.rails : "");
	snprintf(drive->params.avoid, sizeof drive->params.avoid, "%s", drive->transport.avoid);
	return 0;
}

static int open_memory(struct drive *drive)
{
	const struct bench_params *params = &drive->params;
	struct bench_load *load = &drive->load;
	uint64_t bytes = params->slots * params->slot_bytes;
	int rc = bench_memory_open(&load->memory, bytes);

	if (rc < 0)
		return fail(drive, rc, "no memory for the region: %s", strerror(-rc));
	for (uint64_t i = 0; params->op != BENCH_READ && i < params->slots; i++)
		cmd_pattern_fill((uint8_t *)load->memory.base + i * params->slot_bytes, params->slot_bytes,
				 params->seed, i);
	if (bench_op_uses_region(params->op)) {
		rc = weft_region_register(load->engine, load->memory.base, bytes, 0, &load->region);
		if (rc < 0)
			return fail_weft(drive, rc, "the region could not be registered");
	}
	rc = bench_load_open(load);
	return rc < 0 ? fail(drive, rc, "out of memory") : 0;
}

static int send_params(struct drive *drive)
{
	uint8_t payload[sizeof drive->params + 64];
	int rc = bench_params_pack(&drive->params, payload, sizeof payload);

	if (rc < 0)
		return fail(drive, rc, "the parameters do not fit into a frame");
	rc = cmd_control_send(drive->control, CMD_FRAME_PARAMS, payload, (size_t)rc, ANSWER_NS);
	return rc < 0 ? fail_control(drive, rc) : 0;
}

static int meet(struct drive *drive)
{
	struct cmd_control *control = drive->control;
	struct bench_load *load = &drive->load;
	struct bench_summary *summary = drive->summary;
	struct bench_ready ready;
	int rc = cmd_control_expect(control, CMD_FRAME_ADDRESS, SETUP_NS);

	if (rc < 0)
		return fail_control(drive, rc);
	rc = weft_peer_add(load->engine, control->buffer, control->bytes, &load->peer);
	if (rc < 0)
		return fail_weft(drive, rc, "the peer's address was refused");
	if (bench_op_uses_region(drive->params.op)) {
		rc = cmd_control_expect(control, CMD_FRAME_REGION, SETUP_NS);
		if (rc < 0)
			return fail_control(drive, rc);
		rc = weft_remote_import(load->engine, load->peer, control->buffer, control->bytes,
					&load->remote);
		if (rc < 0)
			return fail_weft(drive, rc, "the peer's region was refused");
	}
	rc = cmd_control_expect(control, CMD_FRAME_READY, SETUP_NS);
	if (rc < 0)
		return fail_control(drive, rc);
	rc = bench_ready_unpack(control->buffer, control->bytes, &ready);
	if (rc < 0)
		return fail(drive, rc, "what the peer says of itself is malformed");
	uint64_t ours = cmd_transport_line_bps(load->engine, summary->rails);
	summary->peer_rails = ready.rails;
	/* The slower side is the line. */
	summary->line_bps = ours && ready.line_bps ? (ours < ready.line_bps ? ours : ready.line_bps) : 0;
	return 0;
}

static void read_rails(struct drive *drive, struct bench_rail *rails)
{
	for (uint32_t i = 0; i < drive->summary->rails; i++) {
		struct weft_rail_info info;
		if (weft_rail_info(drive->load.engine, i, &info) < 0)
			continue;
		snprintf(rails[i].name, sizeof rails[i].name, "%s", info.name);
		rails[i].bytes = info.bytes;
		rails[i].errors = info.errors;
		rails[i].retries = info.retries;
	}
}

/* A link nothing goes over can go down unnoticed: that would measure nothing. */
static int arm_faults(struct drive *drive, const struct bench_rail *rails)
{
	struct bench_faults *faults = drive->load.faults = drive->options->faults;

	for (uint32_t i = 0; faults && i < faults->schedule->count; i++) {
		uint32_t at = 0;
		while (at < drive->summary->rails && strcmp(rails[at].name, faults->nic_name[i]) != 0)
			at++;
		if (at == drive->summary->rails)
			return fail(
			    drive, -EINVAL,
			    "--kill-rail: NIC %u (%s) is not among the rails that --rails and --avoid leave",
			    faults->schedule->fault[i].nic, faults->nic_name[i]);
	}
	return 0;
}

static int measure(struct drive *drive)
{
	const struct bench_options *options = drive->options;
	struct bench_summary *summary = drive->summary;
	struct bench_load *load = &drive->load;
	static struct bench_rail before[BENCH_RAILS_MAX];
	bool shown = !options->quiet && options->format == BENCH_TABLE;
	int rc;

	load->latency = &summary->latency;
	bench_progress_open(&load->progress, false, summary->line_bps, bench_op_counted(options->params.op));
	rc = bench_load_wait_peer(load, PATH_NS);
	if (rc == 0 && options->warmup_ns && !bench_interrupted)
		rc = bench_load_run(load, options->warmup_ns, 0);
	if (rc < 0)
		return fail(drive, rc, "%s", load->error);
	rc = cmd_control_send(drive->control, CMD_FRAME_START, NULL, 0, ANSWER_NS);
	if (rc < 0)
		return fail_control(drive, rc);
	load->progress.shown = shown;
	read_rails(drive, before);
	rc = arm_faults(drive, before);
	if (rc < 0)
		return rc;
	uint64_t cpu = bench_cpu_ns();
	rc = bench_load_run(load, options->duration_ns, options->ops);
	summary->cpu_ns = bench_cpu_ns() - cpu;
	read_rails(drive, summary->rail);
	for (uint32_t i = 0; i < summary->rails; i++) {
		summary->rail[i].bytes -= before[i].bytes;
		summary->rail[i].errors -= before[i].errors;
		summary->rail[i].retries -= before[i].retries;
	}
	summary->ops = load->ended;
	summary->bytes = load->bytes;
	summary->failed_ops = load->failed;
	summary->rails_down = load->rails_down;
	summary->rails_up = load->rails_up;
	summary->ns = load->last_ns - load->start_ns;
	summary->interrupted = bench_interrupted;
	return rc < 0 ? fail(drive, rc, "%s", load->error) : 0;
}

/* The peer may have said why before the load saw only that it is gone. */
static void ask_why(struct drive *drive)
{
	char kept[sizeof drive->summary->error];
	int rc = 0;

	for (int i = 0; rc == 0 && i < 4 && drive->control->fd >= 0; i++)
		rc = cmd_control_receive(drive->control, 250 * WEFT_MILLISECOND);
	if (strncmp(drive->control->error, "the peer says", 13) != 0 ||
	    strcmp(drive->control->error, drive->summary->error) == 0)
		return;
	snprintf(kept, sizeof kept, "%s", drive->summary->error);
	fail(drive, rc, "%s (%.600s)", drive->control->error, kept);
}

static int send_map(struct drive *drive)
{
	const struct bench_params *params = &drive->params;
	static uint8_t payload[MAP_SLOTS * 4];
	int rc = 0;

	for (uint64_t at = 0; rc == 0 && at < params->slots; at += MAP_SLOTS) {
		struct cmd_pack pack;
		cmd_pack_start(&pack, payload, sizeof payload);
		for (uint64_t i = at; i < params->slots && i < at + MAP_SLOTS; i++)
			cmd_pack_u32(&pack, drive->load.map[i]);
		/* The peer checks as it reads: the limit covers checking what one frame names. */
		rc = cmd_control_send(drive->control, CMD_FRAME_MAP, payload, pack.used, SETUP_NS);
	}
	return rc;
}

/* What the receiver has: pages at the peer, reads and replies here, messages at the peer. */
static int verify(struct drive *drive)
{
	const struct bench_params *params = &drive->params;
	struct bench_summary *summary = drive->summary;
	struct bench_load *load = &drive->load;
	struct cmd_control *control = drive->control;
	uint8_t count[8];
	struct cmd_pack pack;

	cmd_pack_start(&pack, count, sizeof count);
	cmd_pack_u64(&pack, load->good_messages);
	int rc = cmd_control_send(control, CMD_FRAME_STOP, count, pack.used, ANSWER_NS);
	if (rc == 0 && params->verify && bench_op_uses_region(params->op) && params->op != BENCH_READ)
		rc = send_map(drive);
	if (rc == 0)
		rc = cmd_control_send(control, CMD_FRAME_VERIFY, NULL, 0, SETUP_NS);
	if (rc == 0)
		rc = cmd_control_expect(control, CMD_FRAME_RESULT, SETUP_NS);
	if (rc < 0)
		return fail_control(drive, rc);
	rc = bench_result_unpack(control->buffer, control->bytes, &summary->result);
	if (rc < 0)
		return fail(drive, rc, "the peer's result is malformed");
	summary->have_result = true;
	summary->peer_cpu_ns = summary->result.cpu_ns;
	cmd_control_send(control, CMD_FRAME_BYE, NULL, 0, ANSWER_NS);
	if (params->verify && params->op == BENCH_READ)
		cmd_pattern_verify(load->memory.base, params->slot_bytes, params->seed, load->map, 0,
				   params->slots, &summary->result.verdict);
	return 0;
}

static int judge(struct drive *drive)
{
	struct bench_summary *summary = drive->summary;
	const struct cmd_verdict *verdict = &summary->result.verdict;
	const struct cmd_verdict *replies = &drive->load.replies;
	const struct bench_result *result = &summary->result;
	bool message = bench_op_is_message(drive->params.op);

	if (verdict->wrong)
		return fail(drive, -EBADMSG,
			    "%" PRIu64 " of %" PRIu64 " %s arrived wrong; the first is number %" PRIu64
			    ": byte %" PRIu64 " is %#04x and should be %#04x",
			    verdict->wrong, verdict->checked, message ? "messages" : "slots",
			    verdict->first_slot, verdict->first_offset, verdict->found, verdict->wanted);
	if (replies->wrong)
		return fail(drive, -EBADMSG, "%" PRIu64 " of %" PRIu64 " replies arrived wrong",
			    replies->wrong, replies->checked);
	if (message && result->messages != drive->load.good_messages)
		return fail(drive, -EBADMSG, "%" PRIu64 " messages ended here and the peer has %" PRIu64,
			    drive->load.good_messages, result->messages);
	if (result->disorder)
		return fail(drive, -EBADMSG, "%" PRIu64 " messages arrived out of order", result->disorder);
	return 0;
}

static int run(struct drive *drive)
{
	int rc = find_peer(drive);
	if (rc == 0)
		rc = open_engine(drive);
	if (rc == 0 && !drive->options->host)
		rc = start_peer(drive);
	if (rc == 0)
		rc = send_params(drive);
	if (rc == 0)
		rc = open_memory(drive);
	if (rc == 0)
		rc = meet(drive);
	if (rc == 0)
		rc = measure(drive);
	if (rc < 0 && drive->load.broken)
		ask_why(drive);
	if (rc == 0)
		rc = verify(drive);
	return rc == 0 ? judge(drive) : rc;
}

void bench_drive(const struct bench_options *options, struct bench_summary *ret_summary)
{
	struct drive drive = { .options = options, .params = options->params, .summary = ret_summary };
	char why[300], kept[sizeof ret_summary->error];

	memset(ret_summary, 0, sizeof *ret_summary);
	ret_summary->options = options;
	drive.load.params = &drive.params;
	drive.control = malloc(sizeof *drive.control);
	if (!drive.control) {
		fail(&drive, -ENOMEM, "out of memory");
		return;
	}
	drive.control->fd = -1;
	drive.load.control = drive.control;
	int rc = run(&drive);
	if (rc < 0 && !drive.child && drive.control->fd >= 0)
		cmd_control_send_error(drive.control, rc, ret_summary->error);
	cmd_control_close(drive.control);
	if (drive.load.engine)
		weft_close(drive.load.engine);
	if (drive.child) {
		/* How the peer ended explains what was seen of it. */
		cmd_reap(drive.child, rc < 0, why, sizeof why);
		snprintf(kept, sizeof kept, "%s", ret_summary->error);
		if (why[0])
			snprintf(ret_summary->error, sizeof ret_summary->error, "%s%s%.600s", why,
				 kept[0] ? ": " : "", kept);
	}
	bench_load_close(&drive.load);
	bench_memory_close(&drive.load.memory);
	free(drive.control);
}
