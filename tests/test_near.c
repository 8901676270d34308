/*
 * Placement on the simulated p5: a transfer from the memory of GPU g uses only g's rails, host memory uses all. Two
 * engines in this process; the sender tells what each rail carried.
 */
#include "sim/setup.h"
#include "support/util.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft.h>

#include <cmocka.h>

enum { RAILS = 32, GPUS = 8, BYTES = 64 << 20 /* many times what the rails have in flight */ };

static const char *const gpus[GPUS] = { "53:00.0", "64:00.0", "75:00.0", "86:00.0",
					"97:00.0", "a8:00.0", "b9:00.0", "ca:00.0" };

struct sides {
	weft_engine *here, *there;
	weft_queue *queue;
	weft_peer peer;
	weft_remote remote;
	char *from, *to;
};

/* The last warning of a registration, which is logged on the calling thread. */
static _Thread_local char warned[200];

static void keep_warning(void *context, enum weft_log_level level, const char *text)
{
	if (level == WEFT_LOG_WARN)
		snprintf(warned, sizeof(warned), "%s", text);
}

static void open_side(weft_engine **ret_engine)
{
	struct weft_config config = WEFT_CONFIG_INIT;

	config.provider = "simfab";
	config.max_workers = GPUS;
	config.log = keep_warning;
	config.heartbeat_ns = S; /* limits that a busy machine does not reach */
	config.peer_limit_ns = 15 * S;
	config.rail_limit_ns = 10 * S;
	assert_int_equal(weft_engine_open(&config, ret_engine, NULL, 0), 0);
}

static int set_up(void **state)
{
	static struct sides sides;
	char blob[16384], error[256];
	size_t bytes = sizeof(blob);
	weft_region region;

	if (wf_sim_setup("p5,strict=1,copy=full,rate=1G", error, sizeof(error))) {
		fprintf(stderr, "%s\n", error);
		return -1;
	}
	*state = &sides;
	open_side(&sides.here);
	open_side(&sides.there);
	assert_int_equal(weft_queue_open(sides.here, WEFT_QUEUE_LISTEN, &sides.queue), 0);
	sides.from = malloc(BYTES);
	sides.to = calloc(1, BYTES);
	pattern_fill(sides.from, BYTES, 1, 0);
	assert_int_equal(weft_engine_address(sides.there, blob, &bytes), 0);
	assert_int_equal(weft_peer_add(sides.here, blob, bytes, NULL, &sides.peer), 0);
	assert_int_equal(weft_region_register(sides.there, sides.to, BYTES, WEFT_REMOTE_WRITE, &region), 0);
	bytes = sizeof(blob);
	assert_int_equal(weft_region_export(sides.there, region, blob, &bytes), 0);
	assert_int_equal(weft_remote_import(sides.here, sides.peer, blob, bytes, &sides.remote), 0);
	return 0;
}

/* A groups file overrules the topology; a wrong or missing one is an error and not a guess. */
static void groups_by_file(void **state)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	struct weft_rail_info rail;
	struct weft_engine_info info;
	weft_engine *engine;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/tmp/weft-near-%d.groups", (int)getpid());
	config.provider = "simfab"; /* without max_workers: the file decides the number of groups */
	config.groups = path;
	assert_int_equal(weft_engine_open(&config, &engine, NULL, 0), -ENOENT);
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "group numa=0 rails=rdmap80s0,rdmap79s0\ngroup numa=1 rails=*\n");
	fclose(file);
	assert_int_equal(weft_engine_open(&config, &engine, NULL, 0), 0);
	assert_int_equal(weft_engine_info(engine, &info, sizeof(info)), 0);
	assert_int_equal(info.groups, 2);
	for (uint32_t i = 0; i < info.rails; i++) {
		bool first;

		assert_int_equal(weft_rail_info(engine, i, &rail, sizeof(rail)), 0);
		first = !strcmp(rail.name, "rdmap79s0") || !strcmp(rail.name, "rdmap80s0");
		assert_int_equal(rail.group, first ? 0 : 1);
	}
	weft_engine_close(engine);
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "group numa=0 rails=nosuchnic\n");
	fclose(file);
	assert_int_equal(weft_engine_open(&config, &engine, NULL, 0), -EINVAL);
	unlink(path);
}

static int tear_down(void **state)
{
	struct sides *sides = *state;

	weft_engine_close(sides->here);
	weft_engine_close(sides->there);
	free(sides->from);
	free(sides->to);
	return 0;
}

/* All paths must be open, or a late rail carries nothing and proves nothing. */
static void wait_for_paths(struct sides *sides)
{
	struct weft_peer_info info = { 0 };
	struct weft_event event;

	for (uint64_t limit = now_ns() + LIMIT; info.paths < RAILS && now_ns() < limit;) {
		if (weft_queue_wait(sides->queue, &event, sizeof(event), 1, MS) == 1)
			weft_event_release(&event);
		assert_int_equal(weft_peer_info(sides->here, sides->peer, &info, sizeof(info)), 0);
	}
	assert_int_equal(info.paths, RAILS);
}

static void carried(struct sides *sides, uint64_t *bytes)
{
	struct weft_rail_info info;

	for (uint32_t i = 0; i < RAILS; i++) {
		assert_int_equal(weft_rail_info(sides->here, i, &info, sizeof(info)), 0);
		bytes[i] = info.bytes;
	}
}

static void write_all(struct sides *sides, weft_region region)
{
	struct weft_write write = { .size = sizeof(write), .from = region, .to = sides->remote, .bytes = BYTES };
	struct weft_op op = { .size = sizeof(op), .queue = sides->queue, .timeout_ns = LIMIT };
	struct weft_event event = { 0 };

	assert_int_equal(weft_write(sides->here, &write, &op, NULL), 0);
	for (uint64_t limit = now_ns() + LIMIT; event.type != WEFT_EVENT_END && now_ns() < limit;)
		if (weft_queue_wait(sides->queue, &event, sizeof(event), 1, LIMIT) == 1)
			weft_event_release(&event);
	assert_int_equal(event.type, WEFT_EVENT_END);
	assert_int_equal(event.status, 0);
	assert_int_equal(pattern_differs(sides->to, BYTES, 1, 0), BYTES);
	memset(sides->to, 0, BYTES);
}

static void gpu_memory_uses_its_rails(void **state)
{
	struct sides *sides = *state;
	uint64_t before[RAILS], after[RAILS];
	weft_region region;

	wait_for_paths(sides);
	for (int g = 0; g < GPUS; g++) {
		assert_int_equal(weft_region_register_near(sides->here, sides->from, BYTES, 0, gpus[g], &region), 0);
		carried(sides, before);
		write_all(sides, region);
		carried(sides, after);
		for (int i = 0; i < RAILS; i++)
			if (i / 4 == g)
				assert_true(after[i] > before[i]);
			else
				assert_int_equal(after[i], before[i]);
		assert_int_equal(weft_region_close(sides->here, region), 0);
	}
}

static int idle_rails(const uint64_t *before, const uint64_t *after)
{
	int idle = 0;

	for (int i = 0; i < RAILS; i++)
		idle += after[i] == before[i];
	return idle;
}

/* A worker without a CPU during a write leaves its share to the others: then the next write counts. */
static void uses_all(struct sides *sides, weft_region region)
{
	uint64_t before[RAILS], after[RAILS], limit = now_ns() + LIMIT;

	wait_for_paths(sides);
	carried(sides, before);
	do {
		write_all(sides, region);
		carried(sides, after);
	} while (idle_rails(before, after) && now_ns() < limit);
	assert_int_equal(idle_rails(before, after), 0);
}

static void host_memory_uses_all(void **state)
{
	struct sides *sides = *state;
	weft_region region;

	assert_int_equal(weft_region_register(sides->here, sides->from, BYTES, 0, &region), 0);
	uses_all(sides, region);
	assert_int_equal(weft_region_close(sides->here, region), 0);
}

/* Code that names another machine's GPUs runs here too, over all rails, and the log says so; unless it insists. */
static void nothing_is_near(void **state)
{
	static const char *const nowhere[] = { "11:00.0", "numa:77" };
	struct sides *sides = *state;
	weft_region region;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(
		    weft_region_register_near(sides->here, sides->from, BYTES, WEFT_NEAR_REQUIRED, nowhere[i], &region),
		    -ENXIO);
		warned[0] = 0;
		assert_int_equal(weft_region_register_near(sides->here, sides->from, BYTES, 0, nowhere[i], &region), 0);
		assert_non_null(strstr(warned, nowhere[i]));
		uses_all(sides, region);
		assert_int_equal(weft_region_close(sides->here, region), 0);
	}
	assert_int_equal(weft_region_register_near(sides->here, sides->from, BYTES, 0, "a GPU", &region), -EINVAL);
	assert_int_equal(
	    weft_region_register_near(sides->here, sides->from, BYTES, WEFT_NEAR_REQUIRED, gpus[0], &region), 0);
	assert_int_equal(weft_region_close(sides->here, region), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpu_memory_uses_its_rails),
		cmocka_unit_test(host_memory_uses_all),
		cmocka_unit_test(groups_by_file),
		cmocka_unit_test(nothing_is_near),
	};

	return cmocka_run_group_tests_name("placement on the simulated p5", tests, set_up, tear_down);
}
