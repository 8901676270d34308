/*
 * The benchmark's driver: opens an engine, finds or starts the peer, exchanges blobs, runs the load, and asks
 * the peer what it has.
 */
#include "drive.h"
#include "../common/net.h"
#include "../common/pack.h"
#include "../common/spawn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SETUP_NS (60 * WEFT_SECOND) /* the peer opens rails and touches its memory */
#define PATH_NS  (10 * WEFT_SECOND) /* or twice the peer's limit, within which the engine itself gives up */
enum { MAP_SLOTS = 16384 };         /* a frame */

static int fail_weft(struct bench_driver *drive, int error, const char *what)
{
	char text[512];
	return bench_driver_fail(drive, error, "%s: %s", what, cmd_describe_error(error, text, sizeof text));
}

static void read_address(struct bench_driver *drive)
{
	uint8_t *blob = drive->control->buffer; /* nothing of the peer's is in it now */
	size_t bytes = sizeof drive->control->buffer;

	if (weft_engine_address(drive->load.engine, blob, &bytes) == 0)
		bench_reach_read(&drive->load.ours, blob, bytes);
}

static int open_engine(struct bench_driver *drive)
{
	struct bench_summary *summary = drive->summary;
	struct cmd_transport_options options = drive->options->transport;
	struct weft_config config;
	struct weft_engine_info info;
	char why[1000];

	options.same_host = drive->same_host;
	options.no_local |= !drive->same_host; /* it would stand idle */
	options.host = drive->host;
	int rc = cmd_transport_choose(&options, &drive->transport, why, sizeof why);
	if (rc < 0)
		return bench_driver_fail(drive, rc, "%s", why);
	/* NICs that reach cards are asked for when the engine finds the driver in the process. */
	drive->load.memory.number = drive->params.card[drive->params.reverse];
	rc = bench_memory_reach(&drive->load.memory, why, sizeof why);
	if (rc < 0)
		return bench_driver_fail(drive, rc, "no memory of a card's: %s", why);
	cmd_transport_config(&options, &drive->transport, &config);
	bench_limits_config(&drive->params, &config);
	if (bench_op_is_message(drive->params.op))
		bench_message_config(&drive->params, &config);
	if (drive->params.depth > 512)
		config.max_transfers = (uint32_t)drive->params.depth * 2;
	rc = cmd_transport_open(&config, &drive->load.engine, why, sizeof why);
	if (rc < 0)
		return bench_driver_fail(drive, rc, "%s", why);
	bench_signals_catch();
	rc = weft_queue_open(drive->load.engine, WEFT_QUEUE_LISTEN, &drive->load.queue);
	if (rc == 0)
		rc = weft_engine_info(drive->load.engine, &info, sizeof(info));
	if (rc < 0)
		return fail_weft(drive, rc, "the engine could not be used");
	bench_progress_clear(&drive->load.progress);
	cmd_transport_warn("weft bench", &options, info.rails);
	bench_progress_say(&drive->load.progress, "preparing");
	snprintf(summary->provider, sizeof summary->provider, "%s", info.provider);
	snprintf(summary->why, sizeof summary->why, "%s", drive->transport.why);
	snprintf(summary->libfabric, sizeof summary->libfabric, "%s", info.libfabric);
	summary->workers = info.workers;
	summary->groups = info.groups;
	summary->rails = info.rails < BENCH_RAILS_MAX ? info.rails : BENCH_RAILS_MAX;
	summary->own_rails = info.rails;
	snprintf(drive->params.provider, sizeof drive->params.provider, "%s",
		 drive->transport.provider[0] ? drive->transport.provider : info.provider);
	snprintf(drive->params.rails, sizeof drive->params.rails, "%s",
		 drive->options->transport.rails ? drive->options->transport.rails : "");
	snprintf(drive->params.avoid, sizeof drive->params.avoid, "%s", drive->transport.avoid);
	read_address(drive);
	return 0;
}

static int open_memory(struct bench_driver *drive)
{
	const struct bench_params *params = &drive->params;
	struct bench_load *load = &drive->load;
	uint64_t bytes = params->slots * params->slot_bytes;
	char why[BENCH_WHY];
	int rc;

	load->memory.bytes = bytes;
	load->memory.own = params->own_memory;
	load->memory.asked = params->reverse;
	rc = bench_memory_open(&load->memory, load->engine, why, sizeof why);
	if (rc == 0 && params->op != BENCH_READ)
		rc = bench_memory_fill(&load->memory, params->slot_bytes, params->slots, params->seed, why, sizeof why);
	if (rc < 0)
		return bench_driver_fail(drive, rc, "no memory for the region: %s", why);
	if (bench_op_uses_region(params->op)) {
		rc = weft_region_register(load->engine, load->memory.base, bytes, 0, &load->region);
		if (rc < 0)
			return fail_weft(drive, rc, "the region could not be registered");
	}
	rc = bench_load_open(load);
	return rc < 0 ? bench_driver_fail(drive, rc, "out of memory") : 0;
}

static int send_params(struct bench_driver *drive)
{
	uint8_t payload[sizeof drive->params + 64];
	int rc = bench_params_pack(&drive->params, payload, sizeof payload);

	if (rc < 0)
		return bench_driver_fail(drive, rc, "the parameters do not fit into a frame");
	rc = cmd_control_send(drive->control, CMD_FRAME_PARAMS, payload, (size_t)rc, BENCH_ANSWER_NS);
	return rc < 0 ? bench_driver_fail_control(drive, rc) : 0;
}

static int meet(struct bench_driver *drive)
{
	struct cmd_control *control = drive->control;
	struct bench_load *load = &drive->load;
	struct bench_summary *summary = drive->summary;
	struct bench_ready ready;
	int rc = cmd_control_expect(control, CMD_FRAME_ADDRESS, SETUP_NS);

	if (rc < 0)
		return bench_driver_fail_control(drive, rc);
	bench_reach_read(&load->theirs, control->buffer, control->bytes);
	if (!drive->same_host)
		bench_reach_drop_own(&load->theirs);
	rc = weft_peer_add(load->engine, control->buffer, control->bytes, NULL, &load->peer);
	if (rc < 0)
		return fail_weft(drive, rc, "the peer's address was refused");
	if (bench_op_uses_region(drive->params.op)) {
		rc = cmd_control_expect(control, CMD_FRAME_REGION, SETUP_NS);
		if (rc < 0)
			return bench_driver_fail_control(drive, rc);
		rc = weft_remote_import(load->engine, load->peer, control->buffer, control->bytes, &load->remote);
		if (rc < 0)
			return fail_weft(drive, rc, "the peer's region was refused");
	}
	rc = cmd_control_expect(control, CMD_FRAME_READY, SETUP_NS);
	if (rc < 0)
		return bench_driver_fail_control(drive, rc);
	rc = bench_ready_unpack(control->buffer, control->bytes, &ready);
	if (rc < 0)
		return bench_driver_fail(drive, rc, "the peer's description of itself is malformed");
	uint64_t ours = cmd_transport_line_bps(load->engine, summary->rails);
	summary->ready = ready;
	/* The slower side is the line. */
	summary->line_bps = ours && ready.line_bps ? (ours < ready.line_bps ? ours : ready.line_bps) : 0;
	return 0;
}

static void read_rails(struct bench_driver *drive, struct bench_rail *rails)
{
	for (uint32_t i = 0; i < drive->summary->rails; i++) {
		struct weft_rail_info info;
		if (weft_rail_info(drive->load.engine, i, &info, sizeof(info)) < 0)
			continue;
		snprintf(rails[i].name, sizeof rails[i].name, "%s", info.name);
		rails[i].group = info.group;
		rails[i].bytes = info.bytes;
		rails[i].errors = info.errors;
		rails[i].retries = info.retries;
		rails[i].mapped = info.mapped_bytes;
		rails[i].local = strcmp(info.provider, "local") == 0;
	}
}

/* A link nothing goes over can go down unnoticed: that would measure nothing. */
static int arm_faults(struct bench_driver *drive, const struct bench_rail *rails)
{
	struct bench_faults *faults = drive->load.faults = drive->options->faults;

	for (uint32_t i = 0; faults && i < faults->schedule->count; i++) {
		uint32_t at = 0;
		while (at < drive->summary->rails && strcmp(rails[at].name, faults->nic_name[i]) != 0)
			at++;
		if (at == drive->summary->rails)
			return bench_driver_fail(
			    drive, -EINVAL,
			    "--kill-rail: NIC %u (%s) is not among the rails that --rails and --avoid leave",
			    faults->schedule->fault[i].nic, faults->nic_name[i]);
	}
	return 0;
}

/* With others that belong to us, all at once. */
static int begin(struct bench_driver *drive)
{
	struct cmd_control *leader = drive->options->leader;
	int rc = leader && !drive->params.reverse ? bench_party_wait(leader, drive->control) : 0;

	if (rc < 0)
		return bench_driver_fail(drive, rc, "%s", leader->error);
	rc = cmd_control_send(drive->control, CMD_FRAME_START, NULL, 0, BENCH_ANSWER_NS);
	if (rc == 0)
		rc = cmd_control_expect(drive->control, CMD_FRAME_START, SETUP_NS);
	return rc < 0 ? bench_driver_fail_control(drive, rc) : 0;
}

static int measure(struct bench_driver *drive)
{
	const struct bench_options *options = drive->options;
	struct bench_summary *summary = drive->summary;
	struct bench_load *load = &drive->load;
	static struct bench_rail before[BENCH_RAILS_MAX];
	uint64_t limit_ns = 2 * drive->params.peer_limit_ns;
	int rc;

	load->latency = &summary->latency;
	load->progress.line_bps = summary->line_bps;
	bench_progress_say(&load->progress, "connecting");
	rc = bench_load_wait_peer(load, limit_ns > PATH_NS ? limit_ns : PATH_NS);
	bench_progress_say(&load->progress, "warming up");
	if (rc == 0 && options->warmup_ns && !bench_interrupted)
		rc = bench_load_run(load, options->warmup_ns, 0);
	if (rc < 0)
		return bench_driver_fail(drive, rc, "%s", load->error);
	rc = begin(drive);
	if (rc < 0)
		return rc;
	load->progress.rates = true;
	read_rails(drive, before);
	rc = arm_faults(drive, before);
	if (rc < 0)
		return rc;
	uint64_t cpu = bench_cpu_ns(), direct = bench_mem_direct(load->engine);
	rc = bench_load_run(load, options->duration_ns, options->ops);
	load->progress.rates = false;
	summary->cpu_ns = bench_cpu_ns() - cpu;
	summary->direct_bytes = bench_mem_direct(load->engine) - direct;
	read_rails(drive, summary->rail);
	for (uint32_t i = 0; i < summary->rails; i++) {
		summary->rail[i].bytes -= before[i].bytes;
		summary->rail[i].errors -= before[i].errors;
		summary->rail[i].retries -= before[i].retries;
		summary->rail[i].mapped -= before[i].mapped;
	}
	bench_paths_note(summary, load->engine, load->peer);
	summary->ops = load->ended;
	summary->bytes = load->bytes;
	summary->failed_ops = load->failed;
	summary->rails_down = load->rails_down;
	summary->rails_up = load->rails_up;
	summary->ns = load->last_ns - load->start_ns;
	summary->interrupted = load->asked ? SIGINT : bench_interrupted;
	return rc < 0 ? bench_driver_fail(drive, rc, "%s", load->error) : 0;
}

/* The peer may have said why before the load saw only that it is gone. */
static void ask_why(struct bench_driver *drive)
{
	char kept[sizeof drive->summary->error];
	int rc = 0;

	for (int i = 0; rc == 0 && i < 4 && drive->control->fd >= 0; i++)
		rc = cmd_control_receive(drive->control, 250 * WEFT_MILLISECOND);
	if (strncmp(drive->control->error, "the peer says", 13) != 0 ||
	    strcmp(drive->control->error, drive->summary->error) == 0)
		return;
	snprintf(kept, sizeof kept, "%s", drive->summary->error);
	bench_driver_fail(drive, rc, "%s (%.600s)", drive->control->error, kept);
}

static int send_map(struct bench_driver *drive)
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
static int verify(struct bench_driver *drive)
{
	const struct bench_params *params = &drive->params;
	struct bench_summary *summary = drive->summary;
	struct bench_load *load = &drive->load;
	struct cmd_control *control = drive->control;
	uint8_t count[8];
	struct cmd_pack pack;

	cmd_pack_start(&pack, count, sizeof count);
	cmd_pack_u64(&pack, load->good_messages);
	int rc = cmd_control_send(control, CMD_FRAME_STOP, count, pack.used, BENCH_ANSWER_NS);
	if (rc == 0 && params->verify && bench_op_uses_region(params->op) && params->op != BENCH_READ)
		rc = send_map(drive);
	if (rc == 0)
		rc = cmd_control_send(control, CMD_FRAME_VERIFY, NULL, 0, SETUP_NS);
	if (rc == 0)
		rc = cmd_control_receive(control, SETUP_NS);
	if (rc == 0 && control->type == CMD_FRAME_STOP) /* asked for when we had stopped already */
		rc = cmd_control_receive(control, SETUP_NS);
	if (rc == 0 && control->type != CMD_FRAME_RESULT)
		return bench_driver_fail(drive, -EPROTO, "the peer sent frame %d instead of its result", control->type);
	if (rc < 0)
		return bench_driver_fail_control(drive, rc);
	rc = bench_result_unpack(control->buffer, control->bytes, &summary->result);
	if (rc < 0)
		return bench_driver_fail(drive, rc, "the peer's result is malformed");
	summary->have_result = true;
	summary->peer_cpu_ns = summary->result.cpu_ns;
	cmd_control_send(control, CMD_FRAME_BYE, NULL, 0, BENCH_ANSWER_NS);
	if (params->verify && params->op == BENCH_READ) {
		struct bench_expected expected = { params->slot_bytes, params->seed, load->map, 0, params->slots };
		char why[BENCH_WHY];

		rc = bench_memory_verify(&load->memory, &expected, &summary->result.verdict, why, sizeof why);
		if (rc < 0)
			return bench_driver_fail(drive, rc, "what was read cannot be checked: %s", why);
	}
	return 0;
}

static int judge(struct bench_driver *drive)
{
	struct bench_summary *summary = drive->summary;
	const struct cmd_verdict *verdict = &summary->result.verdict;
	const struct cmd_verdict *replies = &drive->load.replies;
	const struct bench_result *result = &summary->result;
	bool message = bench_op_is_message(drive->params.op);

	if (verdict->wrong)
		return bench_driver_fail(drive, -EBADMSG,
					 "%" PRIu64 " of %" PRIu64 " %s arrived wrong; the first is number %" PRIu64
					 ": byte %" PRIu64 " is %#04x and should be %#04x",
					 verdict->wrong, verdict->checked, message ? "messages" : "slots",
					 verdict->first_slot, verdict->first_offset, verdict->found, verdict->wanted);
	if (replies->wrong)
		return bench_driver_fail(drive, -EBADMSG, "%" PRIu64 " of %" PRIu64 " replies arrived wrong",
					 replies->wrong, replies->checked);
	if (message && result->messages != drive->load.good_messages)
		return bench_driver_fail(drive, -EBADMSG, "%" PRIu64 " messages ended here and the peer has %" PRIu64,
					 drive->load.good_messages, result->messages);
	if (result->disorder)
		return bench_driver_fail(drive, -EBADMSG, "%" PRIu64 " messages arrived out of order",
					 result->disorder);
	return 0;
}

static int load_and_verify(struct bench_driver *drive)
{
	int rc = open_memory(drive);
	if (rc == 0)
		rc = meet(drive);
	if (rc == 0)
		rc = measure(drive);
	if (rc < 0 && drive->load.broken)
		ask_why(drive);
	if (rc == 0 && drive->params.verify)
		bench_progress_say(&drive->load.progress, "verifying");
	if (rc == 0)
		rc = verify(drive);
	return rc == 0 ? judge(drive) : rc;
}

/* What the summary calls its own is the peer's, and the other way round. */
static void swap_sides(struct bench_summary *summary)
{
	struct bench_ready ours = summary->ready;
	uint64_t cpu_ns = summary->cpu_ns;

	snprintf(summary->ready.host, sizeof summary->ready.host, "%s", summary->host);
	snprintf(summary->ready.weft, sizeof summary->ready.weft, "%s", summary->weft);
	snprintf(summary->ready.libfabric, sizeof summary->ready.libfabric, "%s", summary->libfabric);
	summary->ready.workers = summary->workers;
	summary->ready.rails = (uint32_t)summary->own_rails;
	summary->own_rails = ours.rails;
	snprintf(summary->libfabric, sizeof summary->libfabric, "%s", ours.libfabric);
	summary->workers = ours.workers;
	summary->cpu_ns = summary->peer_cpu_ns;
	summary->peer_cpu_ns = cpu_ns;
}

/* The other side drives: serve it, and take its measurements. */
static int run_reversed(struct bench_driver *drive)
{
	struct cmd_transport_options options = drive->options->transport;
	struct bench_summary *summary = drive->summary;
	char peer[sizeof summary->peer];
	char why[600];
	int rc;

	options.same_host = drive->same_host;
	rc = cmd_transport_choose(&options, &drive->transport, why, sizeof why);
	if (rc < 0)
		return bench_driver_fail(drive, rc, "%s", why);
	snprintf(drive->params.provider, sizeof drive->params.provider, "%s", drive->transport.provider);
	snprintf(drive->params.rails, sizeof drive->params.rails, "%s", options.rails ? options.rails : "");
	snprintf(drive->params.avoid, sizeof drive->params.avoid, "%s", drive->transport.avoid);
	if (!drive->options->host)
		rc = bench_meet_start(drive);
	if (rc == 0)
		rc = send_params(drive);
	if (rc < 0)
		return rc;
	bench_progress_say(&drive->load.progress, "the peer drives");
	rc = bench_peer_answer(drive->control, drive->options, &drive->params, why, sizeof why);
	if (rc < 0)
		return bench_driver_fail(drive, rc, "%s", why);
	rc = cmd_control_expect(drive->control, CMD_FRAME_SUMMARY, BENCH_ANSWER_NS);
	if (rc < 0)
		return bench_driver_fail_control(drive, rc);
	snprintf(peer, sizeof peer, "%s", summary->peer);
	if (bench_summary_unpack(drive->control->buffer, drive->control->bytes, summary) < 0)
		return bench_driver_fail(drive, -EPROTO, "the peer's summary is malformed");
	snprintf(summary->peer, sizeof summary->peer, "%s", peer);
	snprintf(summary->why, sizeof summary->why, "%s", drive->transport.why);
	swap_sides(summary);
	if (bench_interrupted)
		summary->interrupted = bench_interrupted;
	return summary->error[0] ? -EIO : 0;
}

static int run(struct bench_driver *drive)
{
	int rc = bench_meet_find(drive);
	if (rc == 0 && drive->params.reverse)
		return run_reversed(drive);
	if (rc == 0)
		rc = open_engine(drive);
	if (rc == 0 && !drive->options->host)
		rc = bench_meet_start(drive);
	if (rc == 0)
		rc = send_params(drive);
	if (rc == 0)
		rc = load_and_verify(drive);
	return rc;
}

void bench_drive(const struct bench_options *options, struct bench_summary *ret_summary)
{
	struct bench_driver drive = { .options = options, .params = options->params, .summary = ret_summary };
	char why[300], kept[sizeof ret_summary->error];

	memset(ret_summary, 0, sizeof *ret_summary);
	ret_summary->options = options;
	ret_summary->began = time(NULL);
	drive.load.params = &drive.params;
	drive.load.quiet = options->quiet;
	drive.control = malloc(sizeof *drive.control);
	if (!drive.control) {
		bench_driver_fail(&drive, -ENOMEM, "out of memory");
		return;
	}
	drive.control->fd = -1;
	drive.load.control = drive.control;
	bench_progress_open(&drive.load.progress,
			    !options->quiet && !options->is_client && options->format == BENCH_TABLE,
			    bench_op_counted(options->params.op));
	bench_progress_say(&drive.load.progress, "preparing");
	int rc = run(&drive);
	bench_progress_clear(&drive.load.progress);
	if (rc < 0 && !drive.child && drive.control->fd >= 0)
		cmd_control_send_error(drive.control, rc, ret_summary->error);
	cmd_control_close(drive.control);
	if (drive.load.engine)
		weft_engine_close(drive.load.engine);
	bench_memory_close(&drive.load.memory);
	if (drive.child) {
		/* How the peer ended explains what was seen of it. */
		cmd_reap(drive.child, rc < 0, why, sizeof why);
		snprintf(kept, sizeof kept, "%s", ret_summary->error);
		if (why[0])
			snprintf(ret_summary->error, sizeof ret_summary->error, "%s%s%.600s", why, kept[0] ? ": " : "",
				 kept);
	}
	bench_load_close(&drive.load);
	free(drive.control);
}

int bench_drive_back(struct cmd_control *control, const struct bench_options *own, const struct bench_params *params,
		     char *why, size_t room)
{
	static struct bench_options options;
	static struct bench_summary summary;
	struct bench_driver drive = { .options = &options, .params = *params, .summary = &summary, .control = control };
	char for_them[sizeof summary.error] = "";

	memset(&summary, 0, sizeof summary);
	options = *own;
	options.params = *params;
	options.duration_ns = params->duration_ns;
	options.warmup_ns = params->warmup_ns;
	options.ops = params->ops;
	options.quiet = true;
	options.leader = NULL;
	summary.options = &options;
	drive.load.params = &drive.params;
	drive.load.control = control;
	drive.load.quiet = own->quiet;
	drive.same_host = cmd_net_same_host(control->fd);
	snprintf(summary.weft, sizeof summary.weft, "%s", weft_version());
	if (gethostname(summary.host, sizeof summary.host - 1) < 0)
		summary.host[0] = '\0';
	bench_progress_open(&drive.load.progress, false, NULL);
	int rc = bench_peer_transport(control, own, params, &options.transport, summary.error, sizeof summary.error);
	if (rc == 0)
		rc = open_engine(&drive);
	if (own->is_peer)
		bench_signals_ignore();
	if (rc == 0)
		rc = load_and_verify(&drive);
	if (rc < 0 && drive.load.unreached)
		bench_reach_say(&drive.load.theirs, &drive.load.ours, true, for_them, sizeof for_them);
	if (rc < 0 && !summary.have_result)
		cmd_control_send_error(control, rc, for_them[0] ? for_them : summary.error);
	else
		bench_summary_send(&summary, control, BENCH_ANSWER_NS);
	snprintf(why, room, "%s", rc < 0 ? summary.error : "the peer's memory was written, and checked there");
	if (drive.load.engine)
		weft_engine_close(drive.load.engine);
	bench_memory_close(&drive.load.memory);
	bench_load_close(&drive.load);
	return rc;
}
