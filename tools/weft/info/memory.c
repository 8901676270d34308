/*
 * What an engine costs: resident memory of this process around weft_engine_open() and one peer, and again for more
 * peers. The peers are engines of a second process, so that nothing of theirs is counted here.
 */
#include "../commands.h"
#include "info.h"
#include "../common/control.h"
#include "../common/spawn.h"

#include "engine/core/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPEN_NS (60 * WEFT_SECOND)
#define UP_NS   (15 * WEFT_SECOND)

uint64_t info_resident_bytes(void)
{
	unsigned long long total = 0, resident = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (!file)
		return 0;
	if (fscanf(file, "%llu %llu", &total, &resident) != 2)
		resident = 0;
	fclose(file);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t growth(uint64_t since)
{
	uint64_t now = info_resident_bytes();
	return now > since ? now - since : 0;
}

/* Opens the next of them and sends its address. */
static int offer_engine(const struct weft_config *config, struct cmd_control *control, weft_engine **ret_engine,
			char *why, size_t room)
{
	size_t bytes = sizeof control->buffer;
	int rc = cmd_transport_open(config, ret_engine, why, room);

	/* After each open, because libfabric's shm installs handlers of its own. The process that started us decides when we end. */
	signal(SIGINT, SIG_IGN);
	if (rc == 0)
		rc = weft_engine_address(*ret_engine, control->buffer, &bytes);
	if (rc == 0)
		rc = cmd_control_send(control, CMD_FRAME_ADDRESS, control->buffer, bytes, OPEN_NS);
	return rc;
}

int info_peers_serve(int fd, const struct cmd_transport_options *options, uint64_t count)
{
	static struct cmd_control control;
	weft_engine **engines = calloc(count + 1, sizeof(weft_engine *));
	struct cmd_transport transport;
	struct weft_config config;
	char why[600] = "";
	int rc = engines ? cmd_control_open(&control, fd) : -ENOMEM;

	if (rc == 0)
		rc = cmd_transport_choose(options, &transport, why, sizeof why);
	if (rc == 0)
		cmd_transport_config(options, &transport, &config);
	for (uint64_t i = 0; rc == 0 && i < count; i++)
		rc = offer_engine(&config, &control, &engines[i], why, sizeof why);
	if (rc < 0) {
		cmd_control_send_error(&control, rc, why[0] ? why : weft_strerror(rc));
	} else {
		/* Whatever arrives now is the end. */
		struct pollfd waiting = { .fd = fd, .events = POLLIN };
		while (poll(&waiting, 1, -1) < 0 && errno == EINTR)
			;
	}
	/* Shared memory's files would outlive a process that does not close. */
	for (uint64_t i = 0; engines && i < count && engines[i]; i++)
		weft_engine_close(engines[i]);
	free(engines);
	return rc < 0 ? CMD_FAILED : CMD_OK;
}

static int start_peers(const struct info *info, uint64_t count, pid_t *ret_child, int *ret_fd)
{
	char number[24];
	const char *words[16] = { "weft", "info", "--peers", number };
	int at = 4;

	snprintf(number, sizeof number, "%" PRIu64, count);
	if (info->transport.provider[0]) {
		words[at++] = "--provider";
		words[at++] = info->transport.provider;
	}
	if (info->options.rails) {
		words[at++] = "--rails";
		words[at++] = info->options.rails;
	}
	if (info->options.avoid) {
		words[at++] = "--avoid";
		words[at++] = info->options.avoid;
	}
	if (info->options.no_local)
		words[at++] = "--no-local";
	words[at] = "--peers-fd";
	return cmd_spawn(words, ret_child, ret_fd);
}

/* Adds the next peer the other process offers. */
static int add_peer(weft_engine *engine, struct cmd_control *control, struct info_memory *memory, weft_peer *ret_peer)
{
	int rc = cmd_control_expect(control, CMD_FRAME_ADDRESS, OPEN_NS);
	if (rc < 0) {
		snprintf(memory->why_not, sizeof memory->why_not, "%.290s", control->error);
		return rc;
	}
	rc = weft_peer_add(engine, control->buffer, control->bytes, NULL, ret_peer);
	if (rc < 0)
		snprintf(memory->why_not, sizeof memory->why_not, "a peer was refused: %s", weft_strerror(rc));
	return rc;
}

static int wait_up(weft_engine *engine, weft_queue *queue, weft_peer peer, struct info_memory *memory)
{
	uint64_t deadline = cmd_now_ns() + UP_NS;
	struct weft_peer_info info;
	struct weft_event events[16];

	/* Up over the local rail too, where there is one: that is the last path to come up. */
	while (weft_peer_info(engine, peer, &info, sizeof(info)) == 0 && (!info.up || info.local < memory->has_local)) {
		int got = weft_queue_wait(queue, events, sizeof(*events), 16, 5 * WEFT_MILLISECOND);
		for (int i = 0; i < got; i++)
			weft_event_release(&events[i]);
		if (got < 0 || cmd_now_ns() > deadline) {
			snprintf(memory->why_not, sizeof memory->why_not, "a peer in a second process did not come up");
			return -ETIMEDOUT;
		}
	}
	return 0;
}

static uint64_t own_bytes(weft_engine *engine)
{
	struct weft_engine_info info;
	return weft_engine_info(engine, &info, sizeof(info)) < 0 ? 0 : info.memory_bytes;
}

static bool is_local(weft_engine *engine, weft_peer peer)
{
	struct weft_peer_info info;
	return weft_peer_info(engine, peer, &info, sizeof(info)) == 0 && info.local;
}

static int measure_peers(struct info *info, weft_engine *engine, struct cmd_control *control, uint64_t before)
{
	struct info_memory *memory = &info->memory;
	weft_peer *peers = calloc(info->extra_peers + 1, sizeof *peers);
	weft_queue *queue;
	uint64_t i;
	int rc = peers ? weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue) : -ENOMEM;

	if (rc == 0)
		rc = add_peer(engine, control, memory, &peers[0]);
	if (rc == 0)
		rc = wait_up(engine, queue, peers[0], memory);
	if (rc == 0) {
		memory->engine_bytes = growth(before);
		memory->measured = true;
	}
	uint64_t with_one = info_resident_bytes(), own = own_bytes(engine);
	for (i = 1; rc == 0 && i <= info->extra_peers; i++)
		rc = add_peer(engine, control, memory, &peers[i]);
	for (i = 1; rc == 0 && i <= info->extra_peers; i++)
		rc = wait_up(engine, queue, peers[i], memory);
	memory->local = rc == 0 && is_local(engine, peers[info->extra_peers]);
	if (rc == 0 && info->extra_peers) {
		memory->peers = info->extra_peers;
		memory->peer_bytes = (double)growth(with_one) / (double)info->extra_peers;
		memory->own_peer_bytes = (double)(own_bytes(engine) - own) / (double)info->extra_peers;
	}
	free(peers);
	return rc;
}

static void read_engine(struct info *info, weft_engine *engine)
{
	info->groups_found = wf_layout_found(&engine->layout);
	info->effect.size = sizeof(info->effect);
	if (weft_engine_info(engine, &info->engine, sizeof(info->engine)) < 0 ||
	    weft_engine_config(engine, &info->effect, sizeof(info->effect)) < 0)
		return;
	info->opened = true;
	for (uint32_t i = 0; i < info->engine.rails && i < INFO_RAILS_MAX; i++) {
		if (weft_rail_info(engine, i, &info->rail[i], sizeof(info->rail[i])) < 0)
			break;
		info->rails = i + 1;
	}
}

static bool has_local_rail(weft_engine *engine)
{
	struct weft_rail_info rail;
	bool found = false;

	for (uint32_t i = 0; weft_rail_info(engine, i, &rail, sizeof(rail)) == 0; i++)
		found |= strcmp(rail.provider, "local") == 0;
	return found;
}

void info_measure(struct info *info)
{
	struct cmd_control *control = calloc(1, sizeof *control); /* touched before it is measured */
	weft_engine *engine = NULL;
	pid_t child = 0;
	char why[200];
	int fd, rc;

	if (!control) {
		snprintf(info->error, sizeof info->error, "out of memory");
		return;
	}
	memset(control, 1, sizeof *control);
	control->fd = -1;
	uint64_t before = info_resident_bytes();
	rc = cmd_transport_open(&info->config, &engine, info->error, sizeof info->error);
	if (rc == 0) {
		info->memory.has_local = has_local_rail(engine);
		rc = start_peers(info, info->extra_peers + 1, &child, &fd);
		if (rc < 0)
			snprintf(info->memory.why_not, sizeof info->memory.why_not, "no second process: %s",
				 strerror(-rc));
		if (rc == 0)
			rc = cmd_control_open(control, fd);
		if (rc == 0)
			rc = measure_peers(info, engine, control, before);
		read_engine(info, engine);
		weft_engine_close(engine);
	}
	cmd_control_close(control);
	if (child) {
		cmd_reap(child, rc < 0, why, sizeof why);
		if (why[0] && info->memory.why_not[0])
			snprintf(info->memory.why_not, sizeof info->memory.why_not, "%s", why);
	}
	free(control);
}
