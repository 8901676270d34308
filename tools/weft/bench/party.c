/*
 * Several clients at once, and both directions at once: each is a process of this same program with an engine
 * of its own. They begin measuring together; here their results are added up.
 */
#include "bench.h"
#include "report.h"
#include "../commands.h"
#include "../common/spawn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define READY_NS (60 * WEFT_SECOND)  /* until all have warmed up */
#define BEGIN_NS (15 * WEFT_SECOND)  /* for a frame where both sides are at it */
#define END_NS   (120 * WEFT_SECOND) /* past the duration: deadlines, verifying */

struct client {
	pid_t pid;
	struct cmd_control *control;
	enum bench_direction direction;
	struct bench_summary *summary;
	bool ready, done;
};

struct party {
	const struct bench_options *options;
	struct client client[BENCH_CLIENTS_MAX * 2];
	uint32_t count;
	char error[600];
};

int bench_party_wait(struct cmd_control *leader, struct cmd_control *peer)
{
	uint64_t deadline = cmd_now_ns() + READY_NS;
	int rc = cmd_control_send(leader, CMD_FRAME_READY, NULL, 0, BEGIN_NS);

	while (rc == 0 && !cmd_control_wait(leader, WEFT_SECOND) && cmd_now_ns() < deadline) {
		if (peer)
			rc = cmd_control_send(peer, CMD_FRAME_ALIVE, NULL, 0, BEGIN_NS);
	}
	return rc < 0 ? rc : cmd_control_expect(leader, CMD_FRAME_START, BEGIN_NS);
}

/* The command line as it was given, and after it what is this client's own: the last one counts. */
static int start_client(struct party *party, enum bench_direction direction, uint64_t number)
{
	const struct bench_options *options = party->options;
	const char *words[CMD_SPAWN_WORDS + 1] = { "weft" };
	struct client *client = &party->client[party->count];
	char text[24], region[24];
	int count = 1, fd, rc;

	snprintf(text, sizeof text, "%" PRIu64, number);
	snprintf(region, sizeof region, "%" PRIu64, options->params.slots * options->params.slot_bytes);
	for (int i = 0; i < options->argc && count < CMD_SPAWN_WORDS - 10; i++)
		words[count++] = options->argv[i];
	/* What one of them waits for is said by the first; the others wait for the same. */
	if (party->count)
		words[count++] = "--quiet";
	words[count++] = "--direction";
	words[count++] = bench_direction_names[direction];
	words[count++] = "--clients";
	words[count++] = "1";
	words[count++] = "--region"; /* what was found to fit for all of us */
	words[count++] = region;
	words[count++] = "--party";
	words[count++] = text;
	words[count++] = "--party-fd";
	client->direction = direction;
	client->control = malloc(sizeof *client->control);
	client->summary = calloc(1, sizeof *client->summary);
	if (!client->control || !client->summary)
		return -ENOMEM;
	client->control->fd = -1;
	rc = cmd_spawn(words, &client->pid, &fd);
	if (rc < 0)
		return rc;
	party->count++;
	return cmd_control_open(client->control, fd);
}

static int start_all(struct party *party)
{
	const struct bench_options *options = party->options;
	uint64_t number = 0;
	int rc = 0;

	if (getrandom(&number, sizeof number, 0) < 0)
		number = cmd_now_ns();
	number = number >> 1 | 1;
	for (uint64_t i = 0; rc == 0 && i < options->clients; i++) {
		if (options->direction != BENCH_IN)
			rc = start_client(party, BENCH_OUT, number);
		if (rc == 0 && options->direction != BENCH_OUT)
			rc = start_client(party, BENCH_IN, number);
	}
	if (rc < 0)
		snprintf(party->error, sizeof party->error, "a client could not be started: %s", strerror(-rc));
	return rc;
}

/* One frame of a client: that it is ready, or what came of it. */
static void hear(struct party *party, uint32_t at, uint64_t timeout_ns)
{
	struct client *client = &party->client[at];
	int rc = cmd_control_receive(client->control, timeout_ns);

	if (rc == 0 && client->control->type == CMD_FRAME_READY) {
		client->ready = true;
		return;
	}
	if (rc == 0 && client->control->type == CMD_FRAME_SUMMARY)
		rc = bench_summary_unpack(client->control->buffer, client->control->bytes, client->summary);
	else if (rc == 0)
		rc = -EPROTO;
	client->done = true; /* and the others go on */
	if (rc == 0)
		return;
	memset(client->summary, 0, sizeof *client->summary);
	snprintf(client->summary->error, sizeof client->summary->error, "%s",
		 rc == -ECONNRESET ? "its process ended without a result"
		 : rc == -EPROTO   ? "its result is malformed"
				   : client->control->error);
}

/* One that fails here says so or is found gone later, and the others measure. */
static void begin(struct party *party)
{
	for (uint32_t i = 0; i < party->count; i++)
		hear(party, i, READY_NS);
	for (uint32_t i = 0; i < party->count; i++) {
		if (!party->client[i].done)
			cmd_control_send(party->client[i].control, CMD_FRAME_START, NULL, 0, BEGIN_NS);
	}
}

/* A signal that reached this process alone is passed on, once. */
static int wait_all(struct party *party)
{
	uint64_t limit =
	    party->options->duration_ns == WEFT_FOREVER ? WEFT_FOREVER : party->options->duration_ns + END_NS;
	uint64_t start = cmd_now_ns();
	bool told = false;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < party->count;) {
		if (party->client[i].done) {
			i++;
			continue;
		}
		if (bench_interrupted && !told) {
			for (uint32_t j = 0; j < party->count; j++)
				kill(party->client[j].pid, SIGTERM);
			told = true;
		}
		if (cmd_control_wait(party->client[i].control, 100 * WEFT_MILLISECOND))
			hear(party, i, BEGIN_NS);
		else if (cmd_now_ns() - start > limit)
			rc = -ETIMEDOUT;
	}
	return rc;
}

static void add_rails(struct bench_summary *total, const struct client *client)
{
	for (uint32_t i = 0; i < client->summary->rails; i++) {
		const struct bench_rail *rail = &client->summary->rail[i];
		char name[sizeof rail->name];
		uint32_t at = 0;

		snprintf(name, sizeof name, "%s%.55s", client->direction == BENCH_IN ? "peer's " : "", rail->name);
		while (at < total->rails && strcmp(total->rail[at].name, name) != 0)
			at++;
		if (at == BENCH_RAILS_MAX)
			return;
		if (at == total->rails) {
			total->rail[total->rails++] = (struct bench_rail){ .group = rail->group };
			snprintf(total->rail[at].name, sizeof total->rail[at].name, "%s", name);
		}
		total->rail[at].bytes += rail->bytes;
		total->rail[at].errors += rail->errors;
		total->rail[at].retries += rail->retries;
		total->rail[at].local = rail->local;
		total->rail[at].mapped += rail->mapped;
	}
}

static void add_client(struct bench_summary *total, const struct client *client)
{
	const struct bench_summary *one = client->summary;

	if (!total->provider[0]) { /* one that failed may know nothing of it */
		memcpy(total->provider, one->provider, sizeof total->provider);
		memcpy(total->why, one->why, sizeof total->why);
		memcpy(total->peer, one->peer, sizeof total->peer);
		memcpy(total->libfabric, one->libfabric, sizeof total->libfabric);
		total->ready = one->ready;
		total->workers = one->workers;
		total->groups = one->groups;
		total->own_rails = one->own_rails;
	}
	add_rails(total, client);
	total->ops += one->ops;
	total->bytes += one->bytes;
	total->ns = one->ns > total->ns ? one->ns : total->ns;
	total->cpu_ns += one->cpu_ns;
	total->peer_cpu_ns += one->peer_cpu_ns;
	total->direct_bytes += one->direct_bytes;
	total->failed_ops += one->failed_ops;
	total->rails_down += one->rails_down;
	total->rails_up += one->rails_up;
	total->line_bps = one->line_bps > total->line_bps ? one->line_bps : total->line_bps;
	total->have_result &= one->have_result;
	total->result.verdict.checked += one->result.verdict.checked;
	total->result.verdict.wrong += one->result.verdict.wrong;
	total->interrupted = total->interrupted ? total->interrupted : one->interrupted;
	cmd_histogram_merge(&total->latency, &one->latency);
}

/* All that failed, those of one reason together: "clients 1 and 3: nobody listens at ...; client 2: ...". */
static void name_failed(struct bench_summary *total, const struct party *party)
{
	bool said[BENCH_CLIENTS_MAX * 2] = { false };
	size_t used = 0, room = sizeof total->error;

	for (uint32_t i = 0; i < party->count; i++) {
		const char *error = party->client[i].summary->error;
		uint32_t same = 0, left;

		for (uint32_t j = i; error[0] && !said[i] && j < party->count; j++)
			same += strcmp(party->client[j].summary->error, error) == 0;
		left = same;
		for (uint32_t j = i; left && used < room; j++) {
			if (strcmp(party->client[j].summary->error, error) != 0)
				continue;
			used += (size_t)snprintf(total->error + used, room - used, "%s%s%u%s",
						 left != same ? ""
						 : used       ? "; "
							      : "",
						 left < same ? (left == 1 ? " and " : ", ")
						 : same > 1  ? "clients "
							     : "client ",
						 j + 1,
						 total->options->direction != BENCH_BOTH  ? ""
						 : party->client[j].direction == BENCH_IN ? " (in)"
											  : " (out)");
			said[j] = true;
			left--;
		}
		if (same && used < room)
			used += (size_t)snprintf(total->error + used, room - used, ": %.600s", error);
	}
}

static struct bench_client *list_clients(const struct party *party)
{
	struct bench_client *list = calloc(party->count + 1, sizeof *list);

	for (uint32_t i = 0; list && i < party->count; i++) {
		const struct bench_summary *one = party->client[i].summary;

		list[i] = (struct bench_client){ .direction = party->client[i].direction,
						 .ops = one->ops,
						 .bytes = one->bytes,
						 .ns = one->ns,
						 .failed = one->error[0],
						 .p50_ns = cmd_histogram_quantile(&one->latency, 0.5),
						 .p99_ns = cmd_histogram_quantile(&one->latency, 0.99) };
	}
	return list;
}

int bench_party(const struct bench_options *options)
{
	static struct bench_summary total;
	struct party party = { .options = options };
	char why[300];

	total.options = options;
	total.began = time(NULL);
	cmd_histogram_reset(&total.latency);
	bench_signals_catch();
	int rc = start_all(&party);
	if (rc == 0) {
		begin(&party);
		rc = wait_all(&party);
	}
	total.have_result = party.count;
	for (uint32_t i = 0; i < party.count; i++) {
		if (party.client[i].done)
			add_client(&total, &party.client[i]);
		total.have_result &= party.client[i].done;
		cmd_control_close(party.client[i].control);
	}
	name_failed(&total, &party);
	for (uint32_t i = 0; i < party.count; i++)
		cmd_reap(party.client[i].pid, true, why, sizeof why);
	total.line_bps *= options->direction == BENCH_BOTH ? 2 : 1; /* a link carries as much each way */
	total.clients = list_clients(&party);
	total.client_count = total.clients ? party.count : 0;
	if (rc < 0 && bench_interrupted)
		snprintf(total.error, sizeof total.error, "interrupted before all clients had ended");
	if (rc < 0 && !total.error[0])
		snprintf(total.error, sizeof total.error, "%s",
			 party.error[0] ? party.error : "a client did not answer in time");
	if (bench_interrupted)
		total.interrupted = bench_interrupted;
	rc = bench_report(&total);
	for (uint32_t i = 0; i < party.count; i++) {
		free(party.client[i].control);
		free(party.client[i].summary);
	}
	free(total.clients);
	return rc;
}
