/* Engines on simulated NICs; sims.h says what for. */
#include "support/sims.h"
#include "sim/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_control *control;
static char control_path[64];

int sims_set_up(void **state)
{
	snprintf(control_path, sizeof(control_path), "/tmp/weft-sims-%d", (int)getpid());
	return sim_control_open(control_path, &control);
}

int sims_tear_down(void **state)
{
	sim_control_close(control);
	unlink(control_path);
	return 0;
}

/* TEST_LOG=1: prints what the engines log. */
static void log_line(void *context, enum weft_log_level level, const char *text)
{
	fprintf(stderr, "%.3f %s\n", (double)now_ns() / 1e9, text);
}

struct weft_config sim_config(void)
{
	struct weft_config config = WEFT_CONFIG_INIT;

	if (getenv("TEST_LOG"))
		config.log = log_line;
	config.provider = "simfab";
	config.heartbeat_ns = S;
	config.peer_limit_ns = 15 * S;
	config.rail_limit_ns = 10 * S;
	return config;
}

void sim_open(struct sim *sim, const char *name, const char *spec, const struct weft_config *config, uint64_t bytes)
{
	char full[256], error[256];

	snprintf(full, sizeof(full), "%s,strict=1,control=%s,name=%s", spec, control_path, name);
	if (wf_sim_setup(full, error, sizeof(error)))
		fail_msg("%s", error);
	assert_int_equal(weft_engine_open(config, &sim->engine, NULL, 0), 0);
	assert_int_equal(weft_queue_open(sim->engine, WEFT_QUEUE_LISTEN, &sim->queue), 0);
	sim->bytes = bytes;
	sim->memory = calloc(1, bytes);
	assert_non_null(sim->memory);
	assert_int_equal(
	    weft_region_register(sim->engine, sim->memory, bytes, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, &sim->region),
	    0);
}

void sim_close(struct sim *sim)
{
	if (sim->engine)
		assert_int_equal(weft_engine_close(sim->engine), 0);
	free(sim->memory);
	memset(sim, 0, sizeof(*sim));
}

weft_peer sim_add(struct sim *a, const struct sim *b, weft_remote *ret_remote)
{
	char blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);
	weft_peer peer;

	assert_int_equal(weft_engine_address(b->engine, blob, &bytes), 0);
	assert_int_equal(weft_peer_add(a->engine, blob, bytes, NULL, &peer), 0);
	bytes = sizeof(blob);
	assert_int_equal(weft_region_export(b->engine, b->region, blob, &bytes), 0);
	assert_int_equal(weft_remote_import(a->engine, peer, blob, bytes, ret_remote), 0);
	return peer;
}

uint32_t sim_paths(const struct sim *sim, weft_peer peer)
{
	struct weft_peer_info info;

	assert_int_equal(weft_peer_info(sim->engine, peer, &info, sizeof(info)), 0);
	return info.paths;
}

int sim_fault(const char *rule, ...)
{
	char text[160], error[256] = "";
	va_list list;
	int number;

	va_start(list, rule);
	vsnprintf(text, sizeof(text), rule, list);
	va_end(list);
	number = sim_control_set(control, text, error, sizeof(error));
	if (number < 0)
		fail_msg("%s: %s", text, error);
	return number;
}

uint64_t sim_struck(int fault)
{
	return atomic_load(&control->rules[fault].fired);
}

void sim_mend(int fault)
{
	sim_control_clear(control, fault);
}

void sims_turn(struct sim *const *sims, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		assert_true(weft_engine_progress(sims[i]->engine) >= 0);
}

void sims_in_time(uint64_t limit_ns)
{
	assert_true(now_ns() < limit_ns);
}

void sims_cpu_in_time(uint64_t limit_ns)
{
	assert_true(thread_cpu_ns() < limit_ns);
}

static bool take(weft_queue *queue, enum weft_event_type type, struct weft_event *event)
{
	while (weft_queue_poll(queue, event, sizeof(*event), 1) == 1) {
		if (event->type == type)
			return true;
		weft_event_release(event);
	}
	return false;
}

void sims_event(struct sim *const *sims, uint32_t count, weft_queue *queue, enum weft_event_type type,
		struct weft_event *ret_event)
{
	SIMS_UNTIL(sims, count, take(queue, type, ret_event));
}
