/*
 * The local rail beside NICs: a peer of this host is reached over it, one that has none over the NICs, and a peer that moves from
 * one to the other takes its traffic along.
 */
#include "support/peer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES (4u << 20)

static struct pair world;

static struct weft_config with_local(bool local)
{
	struct weft_config config = side_config();

	config.flags = local ? WEFT_WITH_LOCAL : 0;
	config.heartbeat_ns = 250 * MS; /* over tcp alone a killed peer is noticed by its silence */
	config.peer_limit_ns = 4 * S;
	return config;
}

/* By the rails of one provider, all together, since the engine was opened. */
static uint64_t carried_by(const char *provider)
{
	struct weft_rail_info info;
	uint64_t bytes = 0;

	for (uint32_t i = 0; !weft_rail_info(world.here.engine, i, &info, sizeof(info)); i++)
		if (!strcmp(info.provider, provider))
			bytes += info.bytes;
	return bytes;
}

static uint64_t paths_up(void)
{
	struct weft_peer_info info;

	assert_status(weft_peer_info(world.here.engine, world.peer, &info, sizeof(info)), 0);
	return info.paths;
}

static void open_world(bool here, bool there)
{
	struct weft_config ours = with_local(here), theirs = with_local(there);
	uint64_t limit = now_ns() + LIMIT;

	pair_open(&world, &ours, &theirs, BYTES);
	while (paths_up() < (here && there ? 2 : 1) && now_ns() < limit)
		usleep(1000);
}

static void write_and_check(uint64_t seed, const char *by, const char *not_by)
{
	uint64_t carried = carried_by(by), other = carried_by(not_by);

	pattern_fill(world.memory, BYTES, seed, 0);
	assert_status(pair_write(&world, 0, 0, BYTES), 0);
	peer_check(&world.there, world.number, 0, BYTES, seed);
	assert_true(carried_by(by) - carried >= BYTES);
	assert_true(carried_by(not_by) - other < BYTES / 2); /* greetings, heartbeats */
}

static void both_have_one(void **state)
{
	open_world(true, true);
	assert_int_equal(paths_up(), 2);
	for (uint64_t i = 0; i < 10; i++)
		write_and_check(i, "local", "tcp");
	pair_close(&world);
}

static void one_has_none(void **state)
{
	open_world(true, false);
	write_and_check(1, "tcp", "local");
	pair_close(&world);
	open_world(false, true);
	write_and_check(2, "tcp", "local");
	pair_close(&world);
}

static bool peer_is_local(void)
{
	struct weft_peer_info info;

	assert_status(weft_peer_info(world.here.engine, world.peer, &info, sizeof(info)), 0);
	return info.local;
}

static bool is_by(uint32_t rail, const char *provider)
{
	struct weft_rail_info info;

	return !weft_rail_info(world.here.engine, rail, &info, sizeof(info)) && !strcmp(info.provider, provider);
}

/* How many of the paths between our rails of the provider and the peer's are in the state. */
static int paths_in(const char *provider, enum weft_path_state state)
{
	struct weft_peer_info peer;
	struct weft_engine_info engine;
	int count = 0;

	assert_status(weft_peer_info(world.here.engine, world.peer, &peer, sizeof(peer)), 0);
	assert_status(weft_engine_info(world.here.engine, &engine, sizeof(engine)), 0);
	for (uint32_t i = 0; i < engine.rails; i++)
		for (uint32_t j = 0; is_by(i, provider) && j < peer.rails; j++) {
			struct weft_path_info path;

			assert_status(weft_path_info(world.here.engine, world.peer, i, j, &path, sizeof(path)), 0);
			count += path.state == state;
		}
	return count;
}

/* Nobody has asked for it: without a provider and rails that are named, a peer of this host is reached over the local rail, and
 * the information says so. */
static void by_default(void **state)
{
	uint64_t limit = now_ns() + LIMIT;
	struct weft_config config = with_local(false);
	struct weft_engine_info info;
	char nics[sizeof(info.provider)];

	config.provider = config.rails = NULL;
	pair_open(&world, &config, &config, BYTES);
	while ((!peer_is_local() || paths_up() < 2) && now_ns() < limit)
		usleep(1000);
	assert_true(peer_is_local());
	assert_status(weft_engine_info(world.here.engine, &info, sizeof(info)), 0);
	memcpy(nics, info.provider, sizeof(nics));
	assert_string_not_equal(nics, "local");
	write_and_check(1, "local", nics);
	assert_int_equal(paths_in("local", WEFT_PATH_UP), 1);
	assert_int_equal(paths_in(nics, WEFT_PATH_UP), 0);
	assert_true(paths_in(nics, WEFT_PATH_ANSWERED) > 0);
	pair_close(&world);
}

static uint32_t local_rails(struct weft_config *config)
{
	struct weft_rail_info info;
	weft_engine *engine;
	uint32_t count = 0;

	assert_status(weft_engine_open(config, &engine, NULL, 0), 0);
	for (uint32_t i = 0; !weft_rail_info(engine, i, &info, sizeof(info)); i++)
		count += !strcmp(info.provider, "local");
	assert_status(weft_engine_close(engine), 0);
	return count;
}

/* What is required is used alone; what is not wanted is not there. */
static void not_asked_for(void **state)
{
	struct weft_config config = with_local(false), any = with_local(false);
	weft_engine *engine;

	assert_int_equal(local_rails(&config), 0); /* a provider and rails are named */
	config.flags = WEFT_WITH_LOCAL;
	assert_int_equal(local_rails(&config), 1);
	config.avoid = "local";
	assert_int_equal(local_rails(&config), 0);
	any.provider = any.rails = NULL;
	assert_int_equal(local_rails(&any), 1);
	any.flags = WEFT_NO_LOCAL;
	assert_int_equal(local_rails(&any), 0);
	any.flags = 0;
	any.avoid = "local";
	assert_int_equal(local_rails(&any), 0);
	any.avoid = NULL;
	any.rails = "local"; /* alone */
	assert_int_equal(local_rails(&any), 1);
	any.max_workers = 3; /* each copies */
	assert_int_equal(local_rails(&any), 3);
	any.flags = WEFT_NO_LOCAL | WEFT_WITH_LOCAL;
	assert_status(weft_engine_open(&any, &engine, NULL, 0), -EINVAL);
	any.provider = "local";
	any.flags = WEFT_NO_LOCAL;
	assert_status(weft_engine_open(&any, &engine, NULL, 0), -EINVAL);
}

static bool each_carried(uint32_t rails, uint64_t bytes)
{
	struct weft_rail_info info;
	bool all = true;

	for (uint32_t i = 0; i < rails; i++) {
		assert_status(weft_rail_info(world.here.engine, i, &info, sizeof(info)), 0);
		all &= info.bytes >= bytes;
	}
	return all;
}

/* Several workers share the copies of one write. */
static void workers_share(void **state)
{
	struct weft_config config = with_local(false);
	uint64_t limit = now_ns() + LIMIT;

	config.provider = "local";
	config.rails = NULL;
	config.max_workers = 2;
	pair_open(&world, &config, &config, BYTES);
	while (paths_up() < 2 && now_ns() < limit)
		usleep(1000);
	for (uint64_t i = 0; !each_carried(2, BYTES) && now_ns() < limit; i++) {
		pattern_fill(world.memory, BYTES, i, 0);
		assert_status(pair_write(&world, 0, 0, BYTES), 0);
		peer_check(&world.there, world.number, 0, BYTES, i);
	}
	assert_true(each_carried(2, BYTES));
	pair_close(&world);
}

static void move_to(bool local)
{
	struct weft_config config = with_local(local);
	struct weft_event event;
	weft_remote old = world.remote;
	uint64_t limit = now_ns() + LIMIT;

	peer_kill(&world.there);
	peer_start(&world.there, &config);
	world.number = peer_region(&world.there, BYTES, WEFT_REMOTE_WRITE, &world.descriptor);
	assert_status(
	    weft_peer_replace(world.here.engine, world.peer, world.there.address.data, world.there.address.bytes), 0);
	assert_status(side_wait_peer(&world.here, WEFT_EVENT_PEER_UP, world.peer, LIMIT, &event), 0);
	weft_event_release(&event);
	while (paths_up() < (local ? 2 : 1) && now_ns() < limit)
		usleep(1000);
	assert_status(weft_remote_close(world.here.engine, old), 0);
	world.remote = import(&world.here, world.peer, &world.descriptor);
}

/* With writes under way, which end once each, done or not. */
static void moves(void **state)
{
	open_world(true, true);
	for (uint64_t round = 0; round < 6; round++) {
		struct weft_write write = { sizeof(write), world.region, 0, world.remote, 0, BYTES };
		struct weft_op op = { .size = sizeof(op), .queue = world.here.queue };

		for (op.tag = 100; op.tag < 110; op.tag++)
			assert_status(weft_write(world.here.engine, &write, &op, NULL), 0);
		peer_kill(&world.there);
		for (op.tag = 100; op.tag < 110; op.tag++) {
			int status = end_of(&world.here, op.tag);

			assert_true(!status || status == -EHOSTDOWN);
		}
		move_to(round % 2);
		if (round % 2)
			write_and_check(round, "local", "tcp");
		else
			write_and_check(round, "tcp", "local");
	}
	pair_close(&world);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_default),    cmocka_unit_test(not_asked_for), cmocka_unit_test(workers_share),
		cmocka_unit_test(both_have_one), cmocka_unit_test(one_has_none),  cmocka_unit_test(moves),
	};

	return cmocka_run_group_tests_name("beside", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
