/* The scene of every attack; world.h says who is in it. */
#include "hostile/world.h"
#include "sim/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world world;
_Atomic uint32_t world_warnings;
struct weft_config world_victim = WEFT_CONFIG_INIT;
static const char *scene = "tcp";

bool world_choose(const char *name)
{
	scene = name;
	return world_is("tcp") || world_is("efa") || world_is("verbs");
}

bool world_is(const char *name)
{
	return !strcmp(scene, name);
}

static void log_line(void *context, enum weft_log_level level, const char *text)
{
	atomic_fetch_add(&world_warnings, level == WEFT_LOG_WARN);
	if (getenv("TEST_LOG"))
		fprintf(stderr, "%.3f %s: %s\n", (double)now_ns() / 1e9, (const char *)context, text);
}

struct weft_config world_config(const char *host)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	char spec[128], error[256];

	config.provider = world_is("tcp") ? "tcp" : "simfab";
	config.rails = world_is("tcp") ? "127.0.0.1" : NULL;
	config.heartbeat_ns = S;
	config.peer_limit_ns = 15 * S;
	config.rail_limit_ns = 10 * S;
	config.log = log_line;
	config.log_context = (void *)(uintptr_t)host;
	if (!world_is("tcp")) {
		snprintf(spec, sizeof(spec), "p5,nics=1,personality=%s,name=%s", scene, host);
		if (wf_sim_setup(spec, error, sizeof(error)))
			fail_msg("%s", error);
	}
	return config;
}

void actor_open(struct actor *actor, const struct weft_config *config)
{
	assert_int_equal(weft_engine_open(config, &actor->engine, NULL, 0), 0);
	assert_int_equal(weft_queue_open(actor->engine, WEFT_QUEUE_LISTEN, &actor->queue), 0);
	actor->address_bytes = sizeof(actor->address);
	assert_int_equal(weft_engine_address(actor->engine, actor->address, &actor->address_bytes), 0);
}

static weft_region give_memory(struct actor *actor, uint32_t access, uint64_t seed, char **ret_memory)
{
	weft_region region;

	*ret_memory = aligned_alloc(4096, WORLD_BYTES);
	assert_non_null(*ret_memory);
	pattern_fill(*ret_memory, WORLD_BYTES, seed, 0);
	assert_int_equal(weft_region_register(actor->engine, *ret_memory, WORLD_BYTES, access, &region), 0);
	return region;
}

static weft_remote import(weft_region region)
{
	uint8_t blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);
	weft_remote remote;

	assert_int_equal(weft_region_export(world.victim.engine, region, blob, &bytes), 0);
	assert_int_equal(weft_remote_import(world.friend.engine, world.victim_at_friend, blob, bytes, &remote), 0);
	return remote;
}

int world_open(void **state)
{
	struct weft_config victim = world_config("victim"), friend;

	victim.flags = world_victim.flags;
	victim.peer_window = world_victim.peer_window;
	victim.max_message = world_victim.max_message;
	victim.max_strangers = world_victim.max_strangers;
	memset(&world, 0, sizeof(world));
	actor_open(&world.victim, &victim);
	friend = world_config("friend");
	actor_open(&world.friend, &friend);
	world.open_region = give_memory(&world.victim, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, 1, &world.open);
	world.closed_region = give_memory(&world.victim, WEFT_REMOTE_WRITE, 2, &world.closed);
	world.source_region = give_memory(&world.friend, 0, 3, &world.source);
	assert_int_equal(weft_peer_add(world.victim.engine, world.friend.address, world.friend.address_bytes, NULL,
				       &world.friend_at_victim),
			 0);
	assert_int_equal(weft_peer_add(world.friend.engine, world.victim.address, world.victim.address_bytes, NULL,
				       &world.victim_at_friend),
			 0);
	world.to_open = import(world.open_region);
	world.to_closed = import(world.closed_region);
	friend = world_config("stranger");
	raw_open(&world.stranger, &friend);
	raw_aim(&world.stranger, world.victim.address, world.victim.address_bytes);
	friend_works();
	return 0;
}

int world_close(void **state)
{
	raw_close(&world.stranger);
	if (world.friend.engine)
		assert_int_equal(weft_engine_close(world.friend.engine), 0);
	if (world.victim.engine)
		assert_int_equal(weft_engine_close(world.victim.engine), 0);
	free(world.open);
	free(world.closed);
	free(world.source);
	memset(&world, 0, sizeof(world));
	world_victim = (struct weft_config)WEFT_CONFIG_INIT;
	return 0;
}

struct wf_wire_region descriptor_of(weft_region region)
{
	uint8_t blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);
	struct wf_wire_region wire;

	assert_int_equal(weft_region_export(world.victim.engine, region, blob, &bytes), 0);
	assert_int_equal(wf_blob_unpack_region(blob, bytes, &wire), 0);
	return wire;
}

void memory_is_untouched(void)
{
	assert_int_equal(landed_differs(world.open, WORLD_BYTES, 1, 0), WORLD_BYTES);
	assert_int_equal(landed_differs(world.closed, WORLD_BYTES, 2, 0), WORLD_BYTES);
}

/* ---- events ---- */

static bool take(struct actor *actor, enum weft_event_type type, struct weft_event *event)
{
	while (weft_queue_poll(actor->queue, event, sizeof(*event), 1) == 1) {
		if (event->type == type)
			return true;
		if (event->type == WEFT_EVENT_CALL)
			weft_reply(actor->engine, event->peer, event->call, 0, "yes", 3, NULL, NULL);
		weft_event_release(event);
	}
	return false;
}

bool victim_sees(enum weft_event_type type, uint64_t limit_ns, struct weft_event *ret_event)
{
	uint64_t limit = now_ns() + limit_ns;

	do {
		if (take(&world.victim, type, ret_event))
			return true;
	} while (now_ns() < limit);
	return false;
}

static void ends_well(enum weft_event_type type)
{
	uint64_t limit = now_ns() + LIMIT;
	struct weft_event event;

	while (!take(&world.friend, type, &event)) {
		struct weft_event other;

		if (take(&world.victim, WEFT_EVENT_NONE, &other))
			weft_event_release(&other);
		assert_true(now_ns() < limit);
	}
	if (event.status)
		fail_msg("the friend's operation failed: %s (%s)", weft_strerror(event.status),
			 event.error ? event.error->text : "");
	assert_int_equal(event.tag, world.tag);
	weft_event_release(&event);
}

static struct weft_op next_op(void)
{
	return (struct weft_op){
		.size = sizeof(struct weft_op), .queue = world.friend.queue, .tag = ++world.tag, .timeout_ns = LIMIT
	};
}

void friend_works(void)
{
	weft_engine *engine = world.friend.engine;
	struct weft_write write = { sizeof(write), world.source_region, 0, world.to_open, 0, 4096 };
	struct weft_read read = { sizeof(read), world.to_open, 0, world.source_region, 0, 4096 };
	struct weft_op op = next_op();

	/* The same as before, so that memory_is_untouched() stays true. */
	pattern_fill(world.source, WORLD_BYTES, 1, 0);
	assert_int_equal(weft_write(engine, &write, &op, NULL), 0);
	ends_well(WEFT_EVENT_END);
	op = next_op();
	assert_int_equal(weft_read(engine, &read, &op, NULL), 0);
	ends_well(WEFT_EVENT_END);
	op = next_op();
	assert_int_equal(weft_send(engine, world.victim_at_friend, 5, "hello", 5, &op, NULL), 0);
	ends_well(WEFT_EVENT_END);
	op = next_op();
	assert_int_equal(weft_call(engine, world.victim_at_friend, 6, "well?", 5, &op, NULL), 0);
	ends_well(WEFT_EVENT_REPLY);
}
