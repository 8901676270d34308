/*
 * The benchmark's other side: opens an engine as the driver asks, offers its memory, answers messages and
 * calls, and in the end checks every byte the driver says it should have. One thread, one driver.
 */
#include "bench.h"
#include "../common/net.h"
#include "../common/pack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HELLO_NS  (10 * WEFT_SECOND)
#define OPEN_NS   (60 * WEFT_SECOND) /* the driver opens its engine before it says what it wants */
#define SILENT_NS (20 * WEFT_SECOND) /* the driver says it is alive every second */
#define LAST_NS   (5 * WEFT_SECOND)  /* for messages that ended at the driver and are not taken yet */
#define LOOK_NS   WEFT_MILLISECOND   /* how often a manual loop looks at the control connection */

struct peer {
	struct cmd_control *control;
	struct bench_params params;
	weft_engine *engine;
	weft_queue *queue;
	weft_region region;
	struct bench_memory memory;
	struct bench_result result;
	uint64_t next_message, expected_messages, mapped, cpu_start, heard_ns;
	uint32_t idle_turns; /* manual progress */
	uint64_t event_ns;   /* when the last one came */
	bool finished;
	bool interruptible, stopping; /* we print: a signal asks the driver to stop */
	struct cmd_control *leader;   /* says when to begin; NULL: at once */
	char *why;
	size_t room;
};

__attribute__((format(printf, 3, 4))) static int fail(struct peer *peer, int error, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(peer->why, peer->room, format, list);
	va_end(list);
	return error;
}

static int fail_weft(struct peer *peer, int error, const char *what)
{
	char text[512];
	return fail(peer, error, "%s: %s", what, cmd_describe_error(error, text, sizeof text));
}

/* The control connection failed: it has said why. */
static int fail_control(struct peer *peer, int error)
{
	return fail(peer, error, "%s", peer->control->error);
}

int bench_hello_unpack(const struct cmd_control *control, uint64_t *ret_party)
{
	struct cmd_unpack unpack;
	char version[32];

	cmd_unpack_start(&unpack, control->buffer, control->bytes);
	cmd_unpack_text(&unpack, version, sizeof version);
	*ret_party = cmd_unpack_u64(&unpack);
	return cmd_unpack_done(&unpack) ? 0 : -EPROTO;
}

static int greet(struct peer *peer, bool greeted)
{
	struct cmd_control *control = peer->control;
	uint8_t payload[64];
	struct cmd_pack pack;
	uint64_t party;
	int rc = greeted ? 0 : cmd_control_expect(control, CMD_FRAME_HELLO, HELLO_NS);

	if (rc < 0)
		return fail_control(peer, rc);
	if (bench_hello_unpack(control, &party) < 0)
		return fail(peer, -EPROTO, "the driver's greeting is malformed");
	cmd_pack_start(&pack, payload, sizeof payload);
	cmd_pack_text(&pack, weft_version());
	cmd_pack_u64(&pack, 0);
	rc = cmd_control_send(control, CMD_FRAME_HELLO, payload, pack.used, HELLO_NS);
	if (rc == 0)
		rc = cmd_control_expect(control, CMD_FRAME_PARAMS, OPEN_NS);
	if (rc < 0)
		return fail_control(peer, rc);
	rc = bench_params_unpack(control->buffer, control->bytes, &peer->params);
	return rc < 0 ? fail(peer, rc, "the driver's parameters are malformed") : 0;
}

int bench_peer_transport(const struct cmd_control *control, const struct bench_options *own,
			 const struct bench_params *params, struct cmd_transport_options *ret_options, char *why,
			 size_t room)
{
	struct cmd_transport_options options = own->transport;

	if (params->simulated != options.simulated && !own->is_peer) {
		snprintf(why, room, "one side uses simulated NICs and the other does not: give --sim to both");
		return -EINVAL;
	}
	if (options.provider && params->provider[0] &&
	    strncmp(options.provider, params->provider, strlen(options.provider)) != 0) {
		snprintf(why, room, "this side was started with --provider %s and the driver uses %s", options.provider,
			 params->provider);
		return -EINVAL;
	}
	options.same_host = cmd_net_same_host(control->fd);
	options.no_local |= !options.same_host;
	cmd_net_other_end(control->fd, &options.host);
	options.simulated = params->simulated;
	if (params->provider[0])
		options.provider = params->provider;
	/* The driver's rails are this host's only when it is the same host. */
	if (options.same_host && !options.rails && !options.avoid) {
		options.rails = params->rails[0] ? params->rails : NULL;
		options.avoid = params->avoid[0] ? params->avoid : NULL;
	}
	options.manual = params->manual;
	if (!options.workers)
		options.workers = params->workers;
	*ret_options = options;
	return 0;
}

static int open_engine(struct peer *peer, const struct bench_options *own)
{
	struct bench_params *params = &peer->params;
	struct cmd_transport_options options;
	struct cmd_transport transport;
	struct weft_config config;
	int rc = bench_peer_transport(peer->control, own, params, &options, peer->why, peer->room);

	/* Before the engine opens, as the driver has it. */
	peer->memory.number = params->card[!params->reverse];
	if (rc == 0)
		rc = bench_memory_reach(&peer->memory, peer->why, peer->room);
	if (rc == 0)
		rc = cmd_transport_choose(&options, &transport, peer->why, peer->room);
	if (rc < 0)
		return rc;
	cmd_transport_config(&options, &transport, &config);
	bench_limits_config(params, &config);
	if (bench_op_is_message(params->op))
		bench_message_config(params, &config);
	rc = cmd_transport_open(&config, &peer->engine, peer->why, peer->room);
	if (rc < 0)
		return rc;
	rc = weft_queue_open(peer->engine, WEFT_QUEUE_LISTEN, &peer->queue);
	return rc < 0 ? fail_weft(peer, rc, "no queue could be opened") : 0;
}

static int open_memory(struct peer *peer)
{
	struct bench_params *params = &peer->params;
	uint64_t bytes = params->slots * params->slot_bytes; /* checked when unpacked */
	uint32_t access = params->op == BENCH_READ ? WEFT_REMOTE_READ : WEFT_REMOTE_WRITE;
	char why[BENCH_WHY];
	int rc;

	if (!bench_op_uses_region(params->op))
		return 0;
	/* Its card, if it is one's, was opened before the engine. */
	peer->memory.bytes = bytes;
	peer->memory.own = params->own_memory;
	peer->memory.asked = true;
	rc = bench_memory_open(&peer->memory, peer->engine, why, sizeof why);
	if (rc == 0 && params->op == BENCH_READ)
		rc = bench_memory_fill(&peer->memory, params->slot_bytes, params->slots, params->seed, why, sizeof why);
	if (rc < 0)
		return fail(peer, rc, "no memory for the region: %s", why);
	rc = weft_region_register(peer->engine, peer->memory.base, bytes, access, &peer->region);
	return rc < 0 ? fail_weft(peer, rc, "the region could not be registered") : 0;
}

/* Sends a blob as weft_engine_address() and weft_region_export() write them into the control buffer. */
static int offer(struct peer *peer)
{
	struct cmd_control *control = peer->control;
	struct bench_ready ready = { .provider = "" };
	struct weft_engine_info info;
	size_t bytes = sizeof control->buffer;
	uint8_t payload[sizeof ready + 64];
	int rc = weft_engine_address(peer->engine, control->buffer, &bytes);

	if (rc < 0)
		return fail_weft(peer, rc, "the engine has no address");
	rc = cmd_control_send(control, CMD_FRAME_ADDRESS, control->buffer, bytes, HELLO_NS);
	if (rc == 0 && peer->region) {
		bytes = sizeof control->buffer;
		rc = weft_region_export(peer->engine, peer->region, control->buffer, &bytes);
		if (rc < 0)
			return fail_weft(peer, rc, "the region could not be exported");
		rc = cmd_control_send(control, CMD_FRAME_REGION, control->buffer, bytes, HELLO_NS);
	}
	if (rc < 0)
		return fail_control(peer, rc);
	rc = weft_engine_info(peer->engine, &info, sizeof(info));
	if (rc < 0)
		return fail_weft(peer, rc, "the engine says nothing about itself");
	snprintf(ready.provider, sizeof ready.provider, "%s", info.provider);
	ready.rails = info.rails;
	ready.workers = info.workers;
	snprintf(ready.weft, sizeof ready.weft, "%s", weft_version());
	snprintf(ready.libfabric, sizeof ready.libfabric, "%s", info.libfabric);
	if (gethostname(ready.host, sizeof ready.host - 1) < 0)
		ready.host[0] = '\0';
	ready.line_bps = cmd_transport_line_bps(peer->engine, info.rails);
	rc = bench_ready_pack(&ready, payload, sizeof payload);
	if (rc >= 0)
		rc = cmd_control_send(control, CMD_FRAME_READY, payload, (size_t)rc, HELLO_NS);
	return rc < 0 ? fail_control(peer, rc) : 0;
}

static void check_message(struct peer *peer, const struct weft_event *event)
{
	struct bench_params *params = &peer->params;

	peer->result.messages++;
	peer->result.message_bytes += event->bytes;
	if (event->type == WEFT_EVENT_MESSAGE && event->tag != peer->next_message)
		peer->result.disorder++;
	peer->next_message = event->tag + 1;
	if (!params->verify)
		return;
	if (event->bytes != params->slot_bytes) {
		/* A wrong length counts as wrong in its first missing byte. */
		peer->result.verdict.checked++;
		if (!peer->result.verdict.wrong++) {
			peer->result.verdict.first_slot = event->tag;
			peer->result.verdict.first_offset = event->bytes;
		}
		return;
	}
	cmd_pattern_verify_one(event->data, event->bytes, params->seed, event->tag % params->slots, event->tag,
			       &peer->result.verdict);
}

static int answer(struct peer *peer, const struct weft_event *event)
{
	uint64_t deadline = 0;
	for (;;) {
		int rc = weft_reply(peer->engine, event->peer, event->call, 0, event->data, event->bytes, NULL, NULL);
		/* A caller that is gone needs no answer; the control connection tells the rest. */
		if (rc == 0 || rc == -ENOENT || rc == -EHOSTDOWN)
			return 0;
		if (!deadline)
			deadline = cmd_now_ns() + WEFT_SECOND;
		if (rc != -EAGAIN || cmd_now_ns() > deadline)
			return fail_weft(peer, rc, "a reply could not be sent");
		if (peer->params.manual)
			weft_engine_progress(peer->engine);
		else
			nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	}
}

static int take_event(struct peer *peer, struct weft_event *event, int rc)
{
	/* The answer goes first, so that nobody waits for the check. */
	if (event->type == WEFT_EVENT_CALL && rc == 0)
		rc = answer(peer, event);
	if (event->type == WEFT_EVENT_MESSAGE || event->type == WEFT_EVENT_CALL)
		check_message(peer, event);
	weft_event_release(event);
	return rc;
}

/* With threads of weft's own it waits for the first event: looking before sleeping is the library's business.
 * Without them a few turns go by before the caller looks at the clock. */
static int take_events(struct peer *peer, uint64_t wait_ns)
{
	struct weft_event events[64];
	bool manual = peer->params.manual;
	int got = 1, rc = 0;

	for (int turn = 0; turn < BENCH_TURNS && (manual || got) && rc == 0; turn++) {
		int happened = manual ? weft_engine_progress(peer->engine) : 0;

		got = wait_ns ? weft_queue_wait(peer->queue, events, sizeof(*events), 64, wait_ns)
		      : happened || !manual || !turn ? weft_queue_poll(peer->queue, events, sizeof(*events), 64)
						     : 0;
		wait_ns = 0;
		if (got < 0)
			return fail_weft(peer, got, "the queue failed");
		for (int i = 0; i < got; i++)
			rc = take_event(peer, &events[i], rc);
		if (manual)
			bench_idle(&peer->idle_turns, happened <= 0 && got == 0);
		else if (got)
			peer->event_ns = cmd_now_ns();
	}
	return rc;
}

static int take_map(struct peer *peer)
{
	struct bench_params *params = &peer->params;
	struct cmd_control *control = peer->control;
	uint64_t count = control->bytes / 4;
	uint32_t *map = malloc(control->bytes);
	struct cmd_unpack unpack;

	if (!map)
		return fail(peer, -ENOMEM, "out of memory");
	if (control->bytes % 4 || count > params->slots - peer->mapped || !peer->memory.base) {
		free(map);
		return fail(peer, -EPROTO, "the driver's map of the region is malformed");
	}
	cmd_unpack_start(&unpack, control->buffer, control->bytes);
	for (uint64_t i = 0; i < count; i++) {
		map[i] = cmd_unpack_u32(&unpack);
		if (map[i] >= params->slots && map[i] < CMD_SLOT_UNKNOWN) {
			free(map);
			return fail(peer, -EPROTO, "the driver's map names a page that does not exist");
		}
	}
	struct bench_expected expected = { params->slot_bytes, params->seed, map, peer->mapped, count };
	char why[BENCH_WHY];
	int rc = bench_memory_verify(&peer->memory, &expected, &peer->result.verdict, why, sizeof why);

	peer->mapped += count;
	free(map);
	return rc < 0 ? fail(peer, rc, "what arrived cannot be checked: %s", why) : 0;
}

/* The driver waits for the answer: several who belong together begin together. */
static int take_start(struct peer *peer)
{
	int rc = peer->leader ? bench_party_wait(peer->leader, NULL) : 0;

	if (rc < 0)
		return fail(peer, rc, "%s", peer->leader->error);
	peer->heard_ns = cmd_now_ns();
	peer->cpu_start = bench_cpu_ns();
	rc = cmd_control_send(peer->control, CMD_FRAME_START, NULL, 0, HELLO_NS);
	return rc < 0 ? fail_control(peer, rc) : 0;
}

static int take_stop(struct peer *peer)
{
	struct cmd_unpack unpack;
	peer->result.cpu_ns = bench_cpu_ns() - peer->cpu_start;
	peer->stopping = true;
	cmd_unpack_start(&unpack, peer->control->buffer, peer->control->bytes);
	peer->expected_messages = cmd_unpack_u64(&unpack);
	return cmd_unpack_done(&unpack) ? 0 : fail(peer, -EPROTO, "the driver's last count is malformed");
}

static int send_result(struct peer *peer)
{
	uint64_t deadline = cmd_now_ns() + LAST_NS;
	uint8_t payload[128];
	int rc = 0;

	while (rc == 0 && peer->result.messages < peer->expected_messages && cmd_now_ns() < deadline)
		rc = take_events(peer, 0);
	if (rc < 0)
		return rc;
	rc = bench_result_pack(&peer->result, payload, sizeof payload);
	if (rc >= 0)
		rc = cmd_control_send(peer->control, CMD_FRAME_RESULT, payload, (size_t)rc, HELLO_NS);
	return rc < 0 ? fail_control(peer, rc) : 0;
}

static int take_frame(struct peer *peer)
{
	int rc = cmd_control_receive(peer->control, SILENT_NS);
	if (rc < 0)
		return fail_control(peer, rc);
	peer->heard_ns = cmd_now_ns();
	switch (peer->control->type) {
	case CMD_FRAME_ALIVE:
		return 0;
	case CMD_FRAME_START:
		return take_start(peer);
	case CMD_FRAME_STOP:
		return take_stop(peer);
	case CMD_FRAME_MAP:
		return take_map(peer);
	case CMD_FRAME_VERIFY:
		return send_result(peer);
	case CMD_FRAME_BYE:
		peer->finished = true;
		return 0;
	default:
		return fail(peer, -EPROTO, "the driver sent frame %d, which only a peer may send", peer->control->type);
	}
}

/* While there are events the control connection is looked at each millisecond, else each ten: not by sleeping
 * on both descriptors, which would cost every round trip a wake-up. */
static uint64_t patience(const struct peer *peer)
{
	if (peer->params.manual)
		return 0;
	return cmd_now_ns() - peer->event_ns < 10 * LOOK_NS ? LOOK_NS : 10 * LOOK_NS;
}

/* Once; the driver then ends its run and says what it has. */
static int ask_to_stop(struct peer *peer)
{
	int rc = peer->stopping ? 0 : cmd_control_send(peer->control, CMD_FRAME_STOP, NULL, 0, HELLO_NS);

	peer->stopping = true;
	return rc < 0 ? fail_control(peer, rc) : 0;
}

static int serve(struct peer *peer)
{
	uint64_t looked_ns = 0;
	int rc = 0;

	peer->heard_ns = cmd_now_ns();
	while (rc == 0 && !peer->finished) {
		rc = take_events(peer, patience(peer));
		uint64_t now = cmd_now_ns();
		if (rc == 0 && (!peer->params.manual || now - looked_ns > LOOK_NS)) {
			looked_ns = now;
			if (bench_interrupted && peer->interruptible && peer->cpu_start)
				rc = ask_to_stop(peer);
			else if (bench_interrupted)
				rc = fail(peer, -ECANCELED, "this side was interrupted");
			if (rc < 0)
				break;
			if (cmd_control_pending(peer->control))
				rc = take_frame(peer);
			else if (now - peer->heard_ns > SILENT_NS)
				rc = fail(peer, -ETIMEDOUT, "nothing was heard from the driver for %d seconds",
					  (int)(SILENT_NS / WEFT_SECOND));
		}
	}
	return rc;
}

/* Everything after the parameters. */
static int answer_driver(struct peer *peer, const struct bench_options *own)
{
	int rc = open_engine(peer, own);

	if (own->is_peer)
		bench_signals_ignore();
	else
		bench_signals_catch();
	if (rc == 0)
		rc = open_memory(peer);
	if (rc == 0)
		rc = offer(peer);
	if (rc == 0)
		rc = serve(peer);
	if (rc < 0)
		cmd_control_send_error(peer->control, rc, peer->why);
	else
		snprintf(peer->why, peer->room, "%" PRIu64 " checked, %" PRIu64 " wrong", peer->result.verdict.checked,
			 peer->result.verdict.wrong);
	if (peer->engine)
		weft_engine_close(peer->engine);
	bench_memory_close(&peer->memory);
	return rc;
}

int bench_peer_answer(struct cmd_control *control, const struct bench_options *own, const struct bench_params *params,
		      char *why, size_t room)
{
	struct peer peer = { .control = control, .params = *params, .leader = own->leader, .why = why, .room = room };

	peer.interruptible = true;
	return answer_driver(&peer, own);
}

int bench_peer_serve(struct cmd_control *control, const struct bench_options *own, bool greeted, char *why, size_t room)
{
	struct peer peer = { .control = control, .why = why, .room = room };
	int rc = greet(&peer, greeted);

	if (rc < 0) {
		cmd_control_send_error(control, rc, why);
		return rc;
	}
	return peer.params.reverse ? bench_drive_back(control, own, &peer.params, why, room)
				   : answer_driver(&peer, own);
}
