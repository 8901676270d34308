/* Settings that change what happens: who may reach us, deadlines, windows, pieces, and reading them back. */
#include "support/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (4u << 20)

/* An engine that refuses strangers serves a peer that it added, and no other. */
static void strangers_refused(void **state)
{
	struct weft_config open = side_config(), quick = side_config(), closed = side_config();
	struct weft_op op = { .size = sizeof(op), .tag = 1, .timeout_ns = WEFT_FOREVER };
	struct weft_event event;
	struct side friendly, stranger;
	struct peer strict;
	struct blob ours;
	weft_peer peer;
	int status;

	quick.heartbeat_ns = 100 * MS; /* the stranger's: nobody is to answer it */
	quick.peer_limit_ns = S;
	closed.flags = WEFT_REFUSE_UNKNOWN;
	peer_start(&strict, &closed);
	assert_status(side_open(&friendly, &open), 0);
	assert_status(side_open(&stranger, &quick), 0);
	address_of(friendly.engine, &ours);
	peer_add(&strict, &ours);
	assert_status(weft_peer_add(friendly.engine, strict.address.data, strict.address.bytes, NULL, &peer), 0);
	op.queue = friendly.queue;
	assert_status(weft_send(friendly.engine, peer, 11, "friend", 6, &op, NULL), 0);
	assert_status(end_of(&friendly, 1), 0);
	assert_status(weft_peer_add(stranger.engine, strict.address.data, strict.address.bytes, NULL, &peer), 0);
	op.queue = stranger.queue;
	status = weft_send(stranger.engine, peer, 12, "stranger", 8, &op, NULL);
	assert_status(status ? status : end_of(&stranger, 1), -EHOSTDOWN);
	assert_status(side_wait_peer(&stranger, WEFT_EVENT_PEER_DOWN, peer, LIMIT, &event), 0);
	weft_event_release(&event);
	struct peer_event seen;

	peer_wait(&strict, WEFT_EVENT_MESSAGE, ANY_TAG, &seen);
	assert_int_equal(seen.tag, 11);
	assert_int_equal(peer_wait_try(&strict, WEFT_EVENT_MESSAGE, ANY_TAG, 50 * MS, &seen), -ETIME);
	assert_status(side_close(&stranger), 0);
	assert_status(side_close(&friendly), 0);
	peer_stop(&strict);
}

/* The default: a process that says hello becomes a peer, and can be answered by the handle in its events. */
static void strangers_welcome(void **state)
{
	struct weft_config config = side_config();
	struct weft_op op = { .size = sizeof(op), .tag = 1 };
	struct peer_event seen;
	struct weft_event event;
	struct peer other;
	struct side side;
	weft_peer peer;

	peer_start(&other, &config);
	assert_status(side_open(&side, &config), 0);
	op.queue = side.queue;
	assert_status(weft_peer_add(side.engine, other.address.data, other.address.bytes, NULL, &peer), 0);
	assert_status(weft_call(side.engine, peer, 5, "anyone?", 7, &op, NULL), 0);
	peer_wait(&other, WEFT_EVENT_CALL, 5, &seen);
	assert_true(seen.peer != 0);
	peer_do(&other, &(struct command){ .code = COMMAND_REPLY, .bytes = 3, .arg = { seen.peer, seen.call, 0 } },
		"yes");
	wait_for_event(&side, WEFT_EVENT_REPLY, 1, &event);
	assert_memory_equal(event.data, "yes", 3);
	weft_event_release(&event);
	peer_tell(&other, COMMAND_SEND, seen.peer, 77, 100, 1);
	wait_for_event(&side, WEFT_EVENT_MESSAGE, 77, &event);
	assert_true(event.peer == peer);
	weft_event_release(&event);
	assert_status(side_close(&side), 0);
	peer_stop(&other);
}

static void read_back(void **state)
{
	struct weft_config config = side_config(), effective = WEFT_CONFIG_INIT;
	struct side side;

	config.max_transfers = 100;
	config.timeout_ns = 7 * S;
	config.close_limit_ns = 9 * S;
	assert_status(side_open(&side, &config), 0);
	assert_status(weft_engine_config(side.engine, &effective, sizeof(effective)), 0);
	assert_int_equal(effective.size, sizeof(effective));
	assert_string_equal(effective.provider, transport->provider);
	assert_true(effective.max_transfers >= 100);
	assert_true(effective.timeout_ns == 7 * S);
	assert_true(effective.close_limit_ns == 9 * S);
	assert_true(effective.heartbeat_ns == config.heartbeat_ns);
	assert_true(effective.peer_limit_ns == config.peer_limit_ns);
	assert_true(effective.max_message == 4u << 20);
	assert_true(effective.message_frames > 0 && effective.peer_window > 0);
	assert_status(weft_engine_config(NULL, &effective, sizeof(effective)), -EINVAL);
	assert_status(weft_engine_config(side.engine, NULL, sizeof(struct weft_config)), -EINVAL);
	assert_status(side_close(&side), 0);
}

/* A program built with an older header, and one with a newer: each gets what it knows, and nothing beyond. */
static void read_back_elsewhere(void **state)
{
	struct weft_config config = side_config();
	union {
		struct weft_config config;
		uint8_t bytes[sizeof(struct weft_config) + 64];
	} theirs;
	const size_t old = offsetof(struct weft_config, peer_limit_ns);
	struct side side;

	config.heartbeat_ns = 3 * S;
	config.max_transfers = 77;
	assert_status(side_open(&side, &config), 0);
	memset(&theirs, 0xa5, sizeof(theirs));
	assert_status(weft_engine_config(side.engine, &theirs.config, old), 0);
	assert_int_equal(theirs.config.size, old);
	assert_true(theirs.config.heartbeat_ns == 3 * S && theirs.config.max_transfers == 77);
	for (size_t i = old; i < sizeof(theirs); i++)
		assert_int_equal(theirs.bytes[i], 0xa5);
	assert_status(weft_engine_config(side.engine, &theirs.config, sizeof(theirs)), 0);
	assert_true(theirs.config.peer_limit_ns == config.peer_limit_ns);
	for (size_t i = sizeof(struct weft_config); i < sizeof(theirs); i++)
		assert_int_equal(theirs.bytes[i], 0);
	assert_status(weft_engine_config(side.engine, &theirs.config, 3), -EINVAL);
	assert_status(weft_engine_config(side.engine, &theirs.config, SIZE_MAX), -EINVAL);
	assert_status(side_close(&side), 0);
}

static void nonsense(void **state)
{
	weft_engine *engine = NULL;
	struct weft_config config = side_config();

	config.flags = 1u << 30;
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -EOPNOTSUPP);
	config = side_config();
	config.peer_limit_ns = 1;
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -EINVAL);
	config = side_config();
	config.max_transfers = UINT32_MAX;
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -EINVAL);
	config = side_config();
	config.message_frames = UINT32_MAX;
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -EINVAL);
	config = side_config();
	config.topology = "/nonexistent/topology.xml";
	assert_true(weft_engine_open(&config, &engine, NULL, 0) < 0);
	config = side_config();
	config.avoid = transport->rails ? transport->rails : transport->provider;
	assert_status(weft_engine_open(&config, &engine, NULL, 0), -ENODEV);
	assert_null(engine);
}

/* Operations without a deadline use the engine's. */
static void default_deadline(void **state)
{
	struct weft_config here = side_config(), there = side_config();
	struct weft_op op = { .size = sizeof(op), .tag = 1 };
	struct weft_event event;
	struct pair pair;

	here.timeout_ns = 100 * MS;
	there.flags = WEFT_MANUAL_PROGRESS;
	pair_open(&pair, &here, &there, 4096);
	peer_tell(&pair.there, COMMAND_QUIET, 1);
	op.queue = pair.here.queue;
	assert_status(weft_call(pair.here.engine, pair.peer, 1, NULL, 0, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_REPLY, 1, &event);
	assert_status(event.status, -ETIMEDOUT);
	weft_event_release(&event);
	peer_tell(&pair.there, COMMAND_QUIET, 0);
	pair_close(&pair);
}

/* Few receive buffers, a small window, small pieces: slower, and still correct. */
static void small_everything(void **state)
{
	struct weft_config config = side_config();
	uint8_t *data = malloc(1u << 20);
	struct pair pair;

	config.message_frames = 8;
	config.peer_window = 256u << 10;
	config.max_message = 128u << 10;
	config.piece_bytes = 5000;
	config.max_transfers = 16;
	pair_open(&pair, &config, &config, BYTES);
	pattern_fill(pair.memory, BYTES, 1, 0);
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	peer_check(&pair.there, pair.number, 0, BYTES, 1);
	peer_begin(&pair.there, &(struct command){ .code = COMMAND_DRAIN, .arg = { 100, 150, LIMIT } }, NULL);
	for (uint64_t i = 0, ended = 0; ended < 150;) {
		struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 5 };
		int error = -EAGAIN;

		if (i < 150) {
			pattern_fill(data, i * 800, 100 + i, 0);
			error = weft_send(pair.here.engine, pair.peer, 100 + i, data, i * 800, &op, NULL);
			assert_true(error == 0 || error == -EAGAIN);
			i += !error;
		}
		if (error) {
			assert_status(end_of(&pair.here, 5), 0);
			ended++;
		}
	}
	struct answer answer;

	assert_status(peer_end(&pair.there, &answer), 0);
	assert_int_equal(answer.value[0], 150);
	assert_status(weft_send(pair.here.engine, pair.peer, 1, data, (128u << 10) + 1, NULL, NULL), -EMSGSIZE);
	pair_close(&pair);
	free(data);
}

/* The receiver accepts less than we may send: that message fails, and the next ones pass. */
static void larger_than_the_receiver_takes(void **state)
{
	struct weft_config there = side_config();
	struct weft_op op = { .size = sizeof(op), .tag = 1 };
	uint8_t *data = calloc(1, 4u << 20);
	struct peer_event seen;
	struct pair pair;
	int status;

	there.max_message = 64u << 10;
	there.peer_window = 256u << 10;
	pair_open(&pair, NULL, &there, 4096);
	op.queue = pair.here.queue;
	status = weft_send(pair.here.engine, pair.peer, 1, data, 4u << 20, &op, NULL);
	if (!status)
		status = end_of(&pair.here, 1);
	assert_status(status, -EMSGSIZE);
	op.tag = 2;
	assert_status(weft_send(pair.here.engine, pair.peer, 2, "small", 5, &op, NULL), 0);
	peer_wait(&pair.there, WEFT_EVENT_MESSAGE, ANY_TAG, &seen);
	assert_int_equal(seen.tag, 2);
	assert_status(end_of(&pair.here, 2), 0);
	pair_close(&pair);
	free(data);
}

/* A message whose deadline passes in the middle does not hold up those behind it. */
static void given_up_half_way(void **state)
{
	struct weft_config there = side_config();
	struct weft_op op = { .size = sizeof(op), .tag = 1, .timeout_ns = 100 * MS };
	uint8_t *data = malloc(4u << 20);
	struct peer_event seen;
	struct pair pair;

	there.flags = WEFT_MANUAL_PROGRESS;
	pair_open(&pair, NULL, &there, 4096);
	op.queue = pair.here.queue;
	pattern_fill(data, 4u << 20, 1, 0);
	peer_tell(&pair.there, COMMAND_QUIET, 1);
	assert_status(weft_send(pair.here.engine, pair.peer, 1, data, 4u << 20, &op, NULL), 0);
	assert_status(end_of(&pair.here, 1), -ETIMEDOUT);
	peer_tell(&pair.there, COMMAND_QUIET, 0);
	op.tag = 2;
	op.timeout_ns = LIMIT;
	assert_status(weft_send(pair.here.engine, pair.peer, 2, "next", 4, &op, NULL), 0);
	assert_status(end_of(&pair.here, 2), 0);
	/* The first may still have arrived whole: a deadline does not unsend. But never in part. */
	peer_wait(&pair.there, WEFT_EVENT_MESSAGE, ANY_TAG, &seen);
	if (seen.tag == 1) {
		assert_int_equal(seen.bytes, 4u << 20);
		assert_int_equal(pattern_differs(seen.data, seen.bytes, 1, 0), seen.bytes);
		peer_wait(&pair.there, WEFT_EVENT_MESSAGE, ANY_TAG, &seen);
	}
	assert_int_equal(seen.tag, 2);
	pair_close(&pair);
	free(data);
}

static char told[200];

static void keep_log(void *context, enum weft_log_level level, const char *text)
{
	if (level == WEFT_LOG_INFO)
		snprintf(told, sizeof(told), "%s", text);
}

/* An operation names two handles: the log tells which of them is stale. */
static void names_what_is_gone(void **state)
{
	struct weft_config config = side_config();
	struct weft_write write = { .size = sizeof(write), .from = 77, .to = 88, .bytes = 1 };
	static char memory[4096];
	struct side side;

	config.flags |= WEFT_MANUAL_PROGRESS; /* no other thread logs */
	config.log = keep_log;
	assert_status(side_open(&side, &config), 0);
	told[0] = 0;
	assert_status(weft_write(side.engine, &write, NULL, NULL), -ENOENT);
	assert_non_null(strstr(told, "no region"));
	assert_status(weft_region_register(side.engine, memory, sizeof(memory), 0, &write.from), 0);
	assert_status(weft_write(side.engine, &write, NULL, NULL), -ENOENT);
	assert_non_null(strstr(told, "no remote"));
	assert_null(strstr(weft_error_hint(-ENXIO), "handle"));
	assert_status(side_close(&side), 0);
}

static void near(void **state)
{
	static const char *const nowhere[] = { "ffff:ff:1f.7", "0000:53:00.0", "numa:999" };
	struct weft_config config = side_config();
	static char memory[4096];
	weft_region region = 0;
	struct side side;

	assert_status(side_open(&side, &config), 0);
	assert_status(weft_region_register_near(side.engine, memory, sizeof(memory), 0, NULL, &region), 0);
	assert_status(weft_region_close(side.engine, region), 0);
	for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++) {
		region = 0;
		assert_status(weft_region_register_near(side.engine, memory, sizeof(memory), WEFT_NEAR_REQUIRED,
							nowhere[i], &region),
			      -ENXIO);
		assert_int_equal(region, 0);
		assert_status(weft_region_register_near(side.engine, memory, sizeof(memory), 0, nowhere[i], &region),
			      0);
		assert_status(weft_region_close(side.engine, region), 0);
	}
	region = 0;
	assert_status(weft_region_register_near(side.engine, memory, sizeof(memory), 0, "nonsense", &region), -EINVAL);
	assert_status(weft_region_register_near(side.engine, memory, sizeof(memory), 0, "numa:", &region), -EINVAL);
	assert_int_equal(region, 0);
	assert_status(side_close(&side), 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strangers_refused),
		cmocka_unit_test(strangers_welcome),
		cmocka_unit_test(read_back),
		cmocka_unit_test(read_back_elsewhere),
		cmocka_unit_test(nonsense),
		cmocka_unit_test(default_deadline),
		cmocka_unit_test(small_everything),
		cmocka_unit_test(larger_than_the_receiver_takes),
		cmocka_unit_test(given_up_half_way),
		cmocka_unit_test(names_what_is_gone),
		cmocka_unit_test(near),
	};

	return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
