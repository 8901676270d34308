/* Peers by name: what the application calls them, which there are, what each path carried, and what ends with them. */
#include "support/peer.h"

#include <string.h>

#define BYTES (4u << 20)

static struct pair pair;
static int ours; /* its address is the user pointer */

static int open_pair(void **state)
{
	pair_open(&pair, NULL, NULL, BYTES);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	return 0;
}

static struct weft_peer_config called(const char *name)
{
	return (struct weft_peer_config){ .size = sizeof(struct weft_peer_config), .name = name, .user = &ours };
}

static struct weft_peer_info info_of(weft_peer peer)
{
	struct weft_peer_info info;

	assert_status(weft_peer_info(pair.here.engine, peer, &info, sizeof(info)), 0);
	return info;
}

static bool is_listed(weft_peer peer)
{
	weft_peer list[16];
	uint32_t count = 16, found = 0;

	assert_status(weft_peer_list(pair.here.engine, list, &count), 0);
	for (uint32_t i = 0; i < count; i++)
		found += list[i] == peer;
	assert_true(found <= 1);
	return found;
}

static void names(void **state)
{
	char longest[WEFT_PEER_NAME_MAX + 2];
	struct weft_peer_config config = called("decode-7");
	struct weft_event event;

	assert_string_equal(info_of(pair.peer).name, "");
	assert_status(weft_peer_set(pair.here.engine, pair.peer, &config), 0);
	assert_string_equal(info_of(pair.peer).name, "decode-7");
	assert_ptr_equal(info_of(pair.peer).user, &ours);
	assert_true(info_of(pair.peer).added && info_of(pair.peer).up);
	peer_tell(&pair.there, COMMAND_SEND, pair.back, 5, 10, 5);
	wait_for_event(&pair.here, WEFT_EVENT_MESSAGE, 5, &event);
	assert_ptr_equal(event.peer_user, &ours);
	weft_event_release(&event);
	assert_status(pair_write(&pair, 0, 0, 10), 0);
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	config.name = longest;
	assert_status(weft_peer_set(pair.here.engine, pair.peer, &config), -ENAMETOOLONG);
	longest[sizeof(longest) - 2] = '\0';
	assert_status(weft_peer_set(pair.here.engine, pair.peer, &config), 0);
	assert_string_equal(info_of(pair.peer).name, longest);
	assert_status(weft_peer_set(pair.here.engine, 12345, &config), -ENOENT);
	assert_status(weft_peer_set(pair.here.engine, pair.peer, NULL), -EINVAL);
}

static void listed(void **state)
{
	struct weft_peer_config config = called("another");
	struct weft_config there = side_config();
	struct weft_event event;
	struct peer other;
	weft_peer peer, none[1];
	uint32_t count = 0;

	assert_true(is_listed(pair.peer));
	peer_start(&other, &there);
	assert_status(weft_peer_add(pair.here.engine, other.address.data, other.address.bytes, &config, &peer), 0);
	assert_true(is_listed(peer) && is_listed(pair.peer));
	assert_status(weft_peer_list(pair.here.engine, none, &count), -ENOBUFS);
	assert_int_equal(count, 2);
	/* From the first event on it has its user pointer. */
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_UP, peer, LIMIT, &event), 0);
	assert_ptr_equal(event.peer_user, &ours);
	weft_event_release(&event);
	assert_status(weft_peer_remove(pair.here.engine, peer), 0);
	assert_false(is_listed(peer));
	peer_stop(&other);
}

/* What the rails carried to the peer is what was written and read, and the paths' shares make it up. */
static void carried(void **state)
{
	struct weft_read read = { sizeof(read), pair.remote, 0, pair.region, 0, 300000 };
	struct weft_peer_info before = info_of(pair.peer), after;
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 3 };
	uint64_t written = 0, fetched = 0, writes = 0, reads = 0;
	struct weft_engine_info engine;

	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
	assert_status(end_of(&pair.here, 3), 0);
	after = info_of(pair.peer);
	assert_int_equal(after.written_bytes - before.written_bytes, BYTES);
	assert_int_equal(after.read_bytes - before.read_bytes, 300000);
	assert_true(after.writes > before.writes && after.reads > before.reads);
	assert_status(weft_engine_info(pair.here.engine, &engine, sizeof(engine)), 0);
	for (uint32_t rail = 0; rail < engine.rails; rail++)
		for (uint32_t remote = 0; remote < after.rails; remote++) {
			struct weft_path_info path;

			assert_status(weft_path_info(pair.here.engine, pair.peer, rail, remote, &path, sizeof(path)),
				      0);
			written += path.written_bytes;
			fetched += path.read_bytes;
			writes += path.writes;
			reads += path.reads;
		}
	assert_int_equal(written, after.written_bytes);
	assert_int_equal(fetched, after.read_bytes);
	assert_int_equal(writes, after.writes);
	assert_int_equal(reads, after.reads);
}

/* The end of a reply says that the caller's engine has it. */
static void reply_ends(void **state)
{
	struct weft_op call = { .size = sizeof(call), .queue = pair.here.queue, .tag = 40 };
	struct weft_event event;
	struct peer_event seen;

	assert_status(weft_call(pair.here.engine, pair.peer, 4, "how", 3, &call, NULL), 0);
	peer_wait(&pair.there, WEFT_EVENT_CALL, 4, &seen);
	peer_do(&pair.there,
		&(struct command){ .code = COMMAND_REPLY, .bytes = 2, .arg = { seen.peer, seen.call, 0, 41 } }, "so");
	wait_for_event(&pair.here, WEFT_EVENT_REPLY, 40, &event);
	assert_memory_equal(event.data, "so", 2);
	weft_event_release(&event);
	peer_wait(&pair.there, WEFT_EVENT_END, 41, &seen);
	assert_status(seen.status, 0);
	assert_int_equal(seen.bytes, 2);
}

/* What is expected of a peer ends with it; what is expected of anybody does not. */
static void expected_of_a_peer(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .timeout_ns = WEFT_FOREVER };
	struct weft_peer_config config = called("mortal");
	struct weft_config there = side_config();
	struct weft_event event;
	weft_transfer anybody;
	struct peer other;
	weft_peer peer;

	peer_start(&other, &there);
	assert_status(weft_peer_add(pair.here.engine, other.address.data, other.address.bytes, &config, &peer), 0);
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_UP, peer, LIMIT, &event), 0);
	weft_event_release(&event);
	op.tag = 50;
	assert_status(weft_expect(pair.here.engine, 0, 500, 1, &op, &anybody), 0);
	op.tag = 51;
	assert_status(weft_expect(pair.here.engine, peer, 501, 1, &op, NULL), 0);
	op.tag = 52;
	assert_status(weft_expect(pair.here.engine, peer, 502, 1, &op, NULL), 0);
	assert_status(weft_expect(pair.here.engine, 12345, 503, 1, &op, NULL), -ENOENT);
	peer_kill(&other);
	for (op.tag = 51; op.tag <= 52; op.tag++) {
		wait_for_event(&pair.here, WEFT_EVENT_COUNTED, op.tag, &event);
		assert_status(event.status, -EHOSTDOWN);
		assert_true(event.peer == peer);
		assert_ptr_equal(event.peer_user, &ours);
		assert_non_null(event.error);
		assert_string_equal(event.error->peer, "mortal");
		weft_event_release(&event);
	}
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_DOWN, peer, LIMIT, &event), 0);
	assert_ptr_equal(event.peer_user, &ours);
	assert_non_null(event.error);
	assert_string_equal(event.error->peer, "mortal");
	weft_event_release(&event);
	assert_status(weft_expect(pair.here.engine, peer, 504, 1, &op, NULL), -EHOSTDOWN);
	assert_status(weft_transfer_cancel(pair.here.engine, anybody), 0);
	wait_for_event(&pair.here, WEFT_EVENT_COUNTED, 50, &event);
	assert_status(event.status, -ECANCELED);
	weft_event_release(&event);
	assert_status(weft_peer_remove(pair.here.engine, peer), 0);
}

/* Expectations of a peer that is removed or cancelled are cancelled. */
static void expected_and_cancelled(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 60, .timeout_ns = WEFT_FOREVER };
	struct weft_peer_config config = called("removed");
	struct weft_config there = side_config();
	struct weft_event event;
	struct peer other;
	weft_peer peer;

	assert_status(weft_expect(pair.here.engine, pair.peer, 600, 1, &op, NULL), 0);
	assert_status(weft_peer_cancel(pair.here.engine, pair.peer), 0);
	wait_for_event(&pair.here, WEFT_EVENT_COUNTED, 60, &event);
	assert_status(event.status, -ECANCELED);
	weft_event_release(&event);

	peer_start(&other, &there);
	assert_status(weft_peer_add(pair.here.engine, other.address.data, other.address.bytes, &config, &peer), 0);
	op.tag = 61;
	assert_status(weft_expect(pair.here.engine, peer, 601, 1, &op, NULL), 0);
	assert_status(weft_peer_remove(pair.here.engine, peer), 0);
	wait_for_event(&pair.here, WEFT_EVENT_COUNTED, 61, &event);
	assert_status(event.status, -ECANCELED);
	assert_true(event.peer == peer);
	assert_ptr_equal(event.peer_user, &ours);
	weft_event_release(&event);
	peer_stop(&other);
}

/* Why an engine does not open is said in words, without a log function. */
static void why_not_opened(void **state)
{
	struct weft_config config = side_config();
	struct weft_error error;
	weft_engine *engine;

	config.provider = "nosuch";
	assert_true(weft_engine_open(&config, &engine, &error, sizeof(error)) < 0);
	assert_int_equal(error.scope, WEFT_SCOPE_ENGINE);
	assert_non_null(strstr(error.text, "nosuch"));
	assert_non_null(error.hint);
	config = side_config();
	config.message_frames = 1;
	assert_status(weft_engine_open(&config, &engine, &error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error.text, "message_frames"));
	assert_status(weft_engine_open(&config, &engine, &error, 0), -EINVAL);
}

/* One queue listens, and it is named. */
static void listening(void **state)
{
	weft_queue *queue;

	assert_status(weft_queue_open(pair.here.engine, WEFT_QUEUE_LISTEN, &queue), -EBUSY);
	assert_status(weft_queue_open(pair.here.engine, 1u << 9, &queue), -EOPNOTSUPP);
	assert_int_equal(weft_version_number(), WEFT_VERSION_NUMBER);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(listed),
		cmocka_unit_test(carried),
		cmocka_unit_test(reply_ends),
		cmocka_unit_test(expected_of_a_peer),
		cmocka_unit_test(expected_and_cancelled),
		cmocka_unit_test(why_not_opened),
		cmocka_unit_test(listening),
	};

	return cmocka_run_group_tests_name("peers", tests, open_pair, close_pair);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
