/* Submitting, counting and draining operations. */
#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS  (5 * WEFT_MILLISECOND)
#define ALIVE_NS WEFT_SECOND
#define WAIT_NS  (20 * WEFT_MILLISECOND)
#define PROBE_NS WEFT_SECOND
#define GRACE_NS (5 * WEFT_SECOND) /* past the operations' own deadline */

enum { EVENTS = 64 };

int bench_load_open(struct bench_load *load)
{
	const struct bench_params *params = load->params;
	uint64_t lists = params->depth * params->pages;

	load->op_bytes = params->pages * params->slot_bytes;
	load->flight = calloc(params->depth, sizeof *load->flight);
	load->idle = calloc(params->depth, sizeof *load->idle);
	load->to = calloc(lists, sizeof *load->to);
	load->from = calloc(lists, sizeof *load->from);
	load->parts = calloc(params->pages, sizeof *load->parts);
	load->map = calloc(params->slots, sizeof *load->map);
	if (!load->flight || !load->idle || !load->to || !load->from || !load->parts || !load->map ||
	    cmd_slots_open(&load->slots, (uint32_t)params->slots, params->seed) < 0)
		return -ENOMEM;
	for (uint64_t i = 0; i < params->slots; i++)
		load->map[i] = CMD_SLOT_UNTOUCHED;
	for (uint32_t i = 0; i < params->depth; i++)
		load->idle[load->idle_count++] = i;
	return 0;
}

void bench_load_close(struct bench_load *load)
{
	free(load->flight);
	free(load->idle);
	free(load->to);
	free(load->from);
	free(load->parts);
	free(load->map);
	cmd_slots_close(&load->slots);
}

/* The first failure ends the run; what follows from it is not news. */
__attribute__((format(printf, 2, 3))) static void broke(struct bench_load *load, const char *format, ...)
{
	load->stopping = true;
	if (load->broken)
		return;
	load->broken = true;
	va_list list;
	va_start(list, format);
	vsnprintf(load->error, sizeof load->error, format, list);
	va_end(list);
	/* What is still in flight need not wait for its deadline. */
	weft_peer_cancel(load->engine, load->peer);
}

/* What happened, in the provider's words where they add something, on which rail, and what to do. */
static void broke_event(struct bench_load *load, const char *what, const struct weft_event *event)
{
	const struct weft_error *error = event->error;
	const char *short_text = weft_strerror(event->status), *usual = weft_error_hint(event->status);
	const char *text = error ? error->text : "", *rail = error ? error->rail : "", *hint;

	/* The library's own hint names its fields; ours the command's options. */
	hint = error && error->hint && (!usual || strcmp(error->hint, usual) != 0) ? error->hint
										   : cmd_error_hint(event->status);
	/* Both texts may begin with what was said before. */
	if (strncmp(text, short_text, strlen(short_text)) == 0)
		text += strlen(short_text) + strspn(text + strlen(short_text), ": ");
	if (strcmp(what, short_text) == 0)
		short_text = "";
	broke(load, "%s%s%s%s%s%s%s%s%s%s", what, short_text[0] ? ": " : "", short_text, text[0] ? ": " : "", text,
	      rail[0] ? " (rail " : "", rail, rail[0] ? ")" : "", hint ? "; " : "", hint ? hint : "");
}

static int submit_region(struct bench_load *load, const struct weft_op *op, const uint32_t *to, const uint32_t *from)
{
	const struct bench_params *params = load->params;
	uint64_t bytes = params->slot_bytes;

	if (params->op == BENCH_PAGES) {
		struct weft_write_pages pages = { .size = sizeof(pages),
						  .page_bytes = bytes,
						  .count = params->pages,
						  .from = load->region,
						  .from_index = from,
						  .to = load->remote,
						  .to_index = to };
		return weft_write_pages(load->engine, &pages, op, NULL);
	}
	if (params->op == BENCH_READ) {
		struct weft_read read = { .size = sizeof(read),
					  .from = load->remote,
					  .from_offset = from[0] * bytes,
					  .to = load->region,
					  .to_offset = to[0] * bytes,
					  .bytes = bytes };
		return weft_read(load->engine, &read, op, NULL);
	}
	for (uint64_t i = 0; i < params->pages; i++)
		load->parts[i] = (struct weft_write){ .size = sizeof(struct weft_write),
						      .from = load->region,
						      .from_offset = from[i] * bytes,
						      .to = load->remote,
						      .to_offset = to[i] * bytes,
						      .bytes = bytes };
	if (params->op == BENCH_SCATTER)
		return weft_scatter(load->engine, load->parts, (uint32_t)params->pages, op, NULL);
	return weft_write(load->engine, load->parts, op, NULL);
}

static int submit_message(struct bench_load *load, const struct weft_op *op, uint64_t number)
{
	const struct bench_params *params = load->params;
	const uint8_t *data = (uint8_t *)load->memory.base + number % params->slots * params->slot_bytes;

	if (params->op == BENCH_CALL)
		return weft_call(load->engine, load->peer, number, data, params->slot_bytes, op, NULL);
	return weft_send(load->engine, load->peer, number, data, params->slot_bytes, op, NULL);
}

/* One operation more. False when there is no room for it now. */
static bool submit(struct bench_load *load)
{
	const struct bench_params *params = load->params;
	uint32_t at = load->idle[load->idle_count - 1];
	struct bench_flight *flight = &load->flight[at];
	uint32_t *to = load->to + at * params->pages, *from = load->from + at * params->pages;
	bool message = bench_op_is_message(params->op);
	struct weft_op op = { .size = sizeof(op), .queue = load->queue, .timeout_ns = params->timeout_ns };
	int rc;

	if (params->checksum) {
		op.notify = WEFT_NOTIFY_FENCED;
		op.flags = WEFT_CHECKSUM;
	}
	op.tag = (uint64_t)++flight->generation << 32 | at;
	flight->number = load->next_number;
	flight->start_ns = cmd_now_ns();
	if (message) {
		rc = submit_message(load, &op, flight->number);
	} else {
		cmd_slots_take(&load->slots, to, (uint32_t)params->pages);
		cmd_slots_sources(&load->slots, from, (uint32_t)params->pages);
		rc = submit_region(load, &op, to, from);
		if (rc < 0)
			cmd_slots_give(&load->slots, to, (uint32_t)params->pages);
	}
	if (rc == 0) {
		load->next_number++;
		load->idle_count--;
		load->posted++;
		flight->busy = true;
		return true;
	}
	if (rc != -EAGAIN) {
		char text[256];
		broke(load, "%s was refused: %s", bench_op_names[params->op],
		      cmd_describe_error(rc, text, sizeof text));
	}
	return false;
}

static void check_reply(struct bench_load *load, const struct bench_flight *flight, const struct weft_event *event)
{
	const struct bench_params *params = load->params;
	uint64_t slot = flight->number % params->slots;

	if (event->bytes != params->slot_bytes)
		broke(load, "a reply has %" PRIu64 " bytes and not %" PRIu64, event->bytes, params->slot_bytes);
	else if (params->verify)
		cmd_pattern_verify_one(event->data, event->bytes, params->seed, slot, flight->number, &load->replies);
}

/* The slots an operation wrote are free again, and hold what it moved if it succeeded. */
static void settle_slots(struct bench_load *load, uint32_t at, bool good)
{
	const struct bench_params *params = load->params;
	const uint32_t *to = load->to + at * params->pages, *from = load->from + at * params->pages;

	for (uint64_t i = 0; params->verify && i < params->pages; i++)
		load->map[to[i]] = good ? from[i] : CMD_SLOT_UNKNOWN;
	cmd_slots_give(&load->slots, to, (uint32_t)params->pages);
}

static void take_end(struct bench_load *load, const struct weft_event *event, uint64_t now)
{
	const struct bench_params *params = load->params;
	uint32_t at = (uint32_t)event->tag;
	struct bench_flight *flight = at < params->depth ? &load->flight[at] : NULL;

	if (!flight || !flight->busy || flight->generation != event->tag >> 32) {
		broke(load, "an operation ended twice, or one that was never submitted (tag %#" PRIx64 ")", event->tag);
		return;
	}
	flight->busy = false;
	load->idle[load->idle_count++] = at;
	bool good = event->status == 0;
	if (bench_op_uses_region(params->op))
		settle_slots(load, at, good);
	if (!good) {
		load->failed++;
		broke_event(load, "an operation failed", event);
		return;
	}
	if (event->type == WEFT_EVENT_REPLY)
		check_reply(load, flight, event);
	else if (event->bytes != load->op_bytes)
		broke(load, "an operation of %" PRIu64 " bytes ended with %" PRIu64, load->op_bytes, event->bytes);
	load->good_messages += bench_op_is_message(params->op);
	load->ended++;
	load->bytes += load->op_bytes;
	load->last_ns = now;
	cmd_histogram_add(load->latency, now - flight->start_ns);
}

static void take_rail(struct bench_load *load, const struct weft_event *event, uint64_t now)
{
	bool up = event->type == WEFT_EVENT_RAIL_UP;
	const char *rail = event->error ? event->error->rail : "";

	*(up ? &load->rails_up : &load->rails_down) += 1;
	if (load->faults)
		bench_faults_rail(load->faults, load->engine, now - load->start_ns, up, rail);
	if (!load->progress.shown)
		return;
	bench_progress_clear(&load->progress);
	if (up)
		fprintf(stderr, "weft bench: rail %s was reopened\n", rail);
	else
		fprintf(stderr, "weft bench: rail %s failed and is being reopened: %s\n", rail,
			event->error ? event->error->text : "for no known reason");
}

static void take_event(struct bench_load *load, struct weft_event *event, uint64_t now)
{
	switch (event->type) {
	case WEFT_EVENT_END:
	case WEFT_EVENT_REPLY:
		take_end(load, event, now);
		break;
	case WEFT_EVENT_PEER_UP:
		load->peer_up |= event->peer == load->peer;
		break;
	case WEFT_EVENT_PEER_DOWN:
		if (event->peer == load->peer) {
			load->lost |= !load->broken;
			broke_event(load, "the peer is down", event);
		}
		break;
	case WEFT_EVENT_RAIL_DOWN:
	case WEFT_EVENT_RAIL_UP:
		take_rail(load, event, now);
		break;
	default:
		break;
	}
	weft_event_release(event);
}

/* Takes what there is, waits a little when there is nothing; returns the time. */
static uint64_t take_events(struct bench_load *load)
{
	struct weft_event events[EVENTS];
	int got = 0;

	if (load->params->manual) {
		for (int turn = 0; turn < BENCH_TURNS && got == 0; turn++) {
			int happened = weft_engine_progress(load->engine);
			/* What a submission itself ended waits there before the first. */
			if (happened || !turn)
				got = weft_queue_poll(load->queue, events, sizeof(*events), EVENTS);
			bench_idle(&load->idle_turns, happened <= 0 && got == 0);
		}
	} else {
		got = weft_queue_wait(load->queue, events, sizeof(*events), EVENTS, WAIT_NS);
	}
	uint64_t now = cmd_now_ns();
	if (got < 0) {
		char text[256];
		broke(load, "the queue failed: %s", cmd_describe_error(got, text, sizeof text));
		load->deaf = true;
	}
	for (int i = 0; i < got; i++)
		take_event(load, &events[i], now);
	return now;
}

/* What must not wait for an operation to end: the peer's death, Ctrl-C, the progress line. */
static void look_around(struct bench_load *load, uint64_t now)
{
	if (now - load->looked_ns < LOOK_NS)
		return;
	load->looked_ns = now;
	if (bench_interrupted)
		load->stopping = true;
	/* The peer has nothing to say during a run but that it failed, or nothing more because it is gone. */
	if (!load->broken && cmd_control_pending(load->control)) {
		int rc = cmd_control_receive(load->control, WEFT_SECOND);
		if (rc == 0 && load->params->reverse && load->control->type == CMD_FRAME_STOP)
			load->asked = load->stopping = true;
		else
			broke(load, "%s", rc < 0 ? load->control->error : "the peer sent a frame where none belongs");
	}
	if (!load->broken && now - load->alive_ns > ALIVE_NS) {
		load->alive_ns = now;
		if (cmd_control_send(load->control, CMD_FRAME_ALIVE, NULL, 0, WEFT_SECOND) < 0)
			broke(load, "%s", load->control->error);
	}
	if (load->faults)
		bench_faults_watch(load->faults, load->engine, now - load->start_ns);
	bench_progress_show(&load->progress, now, load->ended, load->posted, load->bytes);
}

static void say_it_waits(struct bench_load *load)
{
	char names[400];

	bench_progress_clear(&load->progress);
	if (load->theirs.count)
		fprintf(stderr,
			"weft bench: waiting: no data connection to the peer yet; trying %s (a firewall? "
			"--ports)\n",
			bench_reach_list(&load->theirs, names, sizeof names));
	else
		fputs("weft bench: waiting: the peer has not answered over any rail yet\n", stderr);
}

int bench_load_wait_peer(struct bench_load *load, uint64_t limit_ns)
{
	uint64_t start = cmd_now_ns(), deadline = start + limit_ns, now;
	struct weft_peer_info info;
	bool said = false;

	load->broken = load->stopping = false;
	while (!load->peer_up && !load->broken && !bench_interrupted) {
		now = take_events(load);
		look_around(load, now);
		if (!load->peer_up && weft_peer_info(load->engine, load->peer, &info, sizeof(info)) == 0 && info.up)
			load->peer_up = true;
		if (!load->peer_up && !load->broken && !said && !load->quiet && now - start > BENCH_SILENCE_NS) {
			say_it_waits(load);
			said = true;
		}
		if (!load->peer_up && !load->broken && now > deadline) {
			load->lost = true;
			broke(load,
			      "no path to the peer opened within %d s: can the rails of both sides reach "
			      "each other? "
			      "--rails and --avoid choose which are used, 'weft info' lists them",
			      (int)(limit_ns / WEFT_SECOND));
		}
	}
	load->unreached = load->lost && load->theirs.count && !cmd_control_pending(load->control);
	if (load->unreached) {
		/* The engine says that nobody answered; the ports themselves say where. */
		bench_reach_look(&load->theirs, PROBE_NS);
		bench_reach_say(&load->theirs, &load->ours, false, load->error, sizeof load->error);
	}
	return load->broken ? -EHOSTUNREACH : 0;
}

static void turn_links(struct bench_load *load, uint64_t since_ns)
{
	char why[256];

	if (load->stopping)
		bench_faults_end(load->faults, since_ns, load->bytes);
	else if (bench_faults_turn(load->faults, since_ns, load->bytes, why, sizeof why) < 0)
		broke(load, "a link could not be changed: %s", why);
}

int bench_load_run(struct bench_load *load, uint64_t duration_ns, uint64_t max_ops)
{
	uint64_t now = cmd_now_ns(), start = now, drain_by = UINT64_MAX;

	load->stopping = load->broken = false;
	load->posted = load->ended = load->failed = load->bytes = load->rails_down = load->rails_up = 0;
	load->start_ns = load->last_ns = start;
	cmd_histogram_reset(load->latency);
	bench_progress_start(&load->progress, start);
	if (load->faults)
		bench_faults_start(load->faults);
	while (!load->deaf && (!load->stopping || load->idle_count < load->params->depth)) {
		while (!load->stopping && load->idle_count && (!max_ops || load->posted < max_ops) && submit(load))
			;
		now = take_events(load);
		look_around(load, now);
		if (now - start >= duration_ns || (max_ops && load->posted >= max_ops))
			load->stopping = true;
		if (load->faults)
			turn_links(load, now - start);
		if (load->stopping && drain_by == UINT64_MAX)
			drain_by = now + load->params->timeout_ns + GRACE_NS;
		if (now > drain_by) {
			broke(load, "%" PRIu64 " operations did not end by their deadline",
			      load->params->depth - load->idle_count);
			break;
		}
	}
	bench_progress_clear(&load->progress);
	return load->broken ? -EIO : 0;
}
