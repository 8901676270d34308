/* Every refusal: bad blobs, bad ranges, bad rights, handles that are stale, closed or in use, and NULL where it is
 * not allowed. */
#include "support/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (1u << 20)

/* A field put into padding could not be told from the padding of an older program: what programs fill has none at its end. The
 * last field of each is named here. */
#define NO_PADDING(type, last)                                                                                         \
	_Static_assert(sizeof(struct type) == offsetof(struct type, last) + sizeof(((struct type *)0)->last), #type)
NO_PADDING(weft_config, close_limit_ns);
NO_PADDING(weft_peer_config, user);
NO_PADDING(weft_op, notify_word_value);
NO_PADDING(weft_write, bytes);
NO_PADDING(weft_read, bytes);
NO_PADDING(weft_write_pages, to_offset);
NO_PADDING(weft_read_pages, to_offset);

static struct pair pair;

static int open_pair(void **state)
{
	struct weft_config there = side_config();

	there.flags = WEFT_MANUAL_PROGRESS;
	pair_open(&pair, NULL, &there, BYTES);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	return 0;
}

/* ---- blobs ---- */

/* The copy has exactly that size, so that a sanitizer sees a read past the end. */
static int add_blob(const void *data, size_t bytes)
{
	void *copy = malloc(bytes ? bytes : 1);
	weft_peer peer = 77;
	int error;

	memcpy(copy, data, bytes);
	error = weft_peer_add(pair.here.engine, copy, bytes, NULL, &peer);
	free(copy);
	if (error)
		assert_int_equal(peer, 77); /* outputs are written only on success */
	return error;
}

static int import_blob(const void *data, size_t bytes)
{
	void *copy = malloc(bytes ? bytes : 1);
	weft_remote remote = 77;
	int error;

	memcpy(copy, data, bytes);
	error = weft_remote_import(pair.here.engine, pair.peer, copy, bytes, &remote);
	free(copy);
	if (error)
		assert_int_equal(remote, 77);
	return error;
}

static void truncated_blobs(void **state)
{
	struct blob *address = &pair.there.address, *descriptor = &pair.descriptor;

	for (size_t bytes = 0; bytes < address->bytes; bytes++)
		assert_status(add_blob(address->data, bytes), -EPROTO);
	for (size_t bytes = 0; bytes < descriptor->bytes; bytes++)
		assert_status(import_blob(descriptor->data, bytes), -EPROTO);
}

static void damaged_blobs(void **state)
{
	struct blob blob = pair.descriptor;
	weft_peer peer;

	for (size_t at = 12; at < blob.bytes; at++) {
		blob.data[at] ^= 0x40;
		assert_status(import_blob(blob.data, blob.bytes), -EBADMSG);
		blob.data[at] ^= 0x40;
	}
	blob = pair.there.address;
	for (size_t at = 12; at < blob.bytes; at++) {
		blob.data[at] ^= 1;
		assert_status(add_blob(blob.data, blob.bytes), -EBADMSG);
		assert_status(weft_peer_replace(pair.here.engine, pair.peer, blob.data, blob.bytes), -EBADMSG);
		blob.data[at] ^= 1;
	}
	/* Whole again it is the peer we have. */
	assert_status(weft_peer_add(pair.here.engine, blob.data, blob.bytes, NULL, &peer), 0);
	assert_true(peer == pair.peer);
}

static void foreign_blobs(void **state)
{
	uint8_t noise[512];
	uint64_t seed = 5;
	struct blob blob;

	for (int round = 0; round < 200; round++) {
		for (size_t i = 0; i < sizeof(noise); i++)
			noise[i] = (uint8_t)random_next(&seed);
		assert_status(add_blob(noise, sizeof(noise)), -EPROTO);
		assert_status(import_blob(noise, sizeof(noise)), -EPROTO);
	}
	/* One kind for the other. */
	assert_status(add_blob(pair.descriptor.data, pair.descriptor.bytes), -EPROTO);
	assert_status(import_blob(pair.there.address.data, pair.there.address.bytes), -EPROTO);
	/* Another version. */
	blob = pair.there.address;
	blob.data[5]++;
	assert_status(add_blob(blob.data, blob.bytes), -EPROTONOSUPPORT);
	blob = pair.descriptor;
	blob.data[5] += 2; /* version 3 is that of descriptors in parts */
	assert_status(import_blob(blob.data, blob.bytes), -EPROTONOSUPPORT);
	assert_status(weft_peer_add(pair.here.engine, NULL, 100, NULL, &(weft_peer){ 0 }), -EINVAL);
}

/* An engine of another provider cannot be reached from here. */
static void other_provider(void **state)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	struct blob address;
	struct side side;

	config.provider = strcmp(transport->provider, "shm") ? "shm" : "tcp";
	config.rails = strcmp(config.provider, "shm") ? "127.0.0.1" : NULL;
	assert_status(side_open(&side, &config), 0);
	address_of(side.engine, &address);
	assert_status(add_blob(address.data, address.bytes), -EHOSTUNREACH);
	assert_status(side_close(&side), 0);
}

static void room_for_blobs(void **state)
{
	uint8_t blob[BLOB];
	size_t bytes = 0, needed;

	assert_status(weft_engine_address(pair.here.engine, NULL, &bytes), -ENOBUFS);
	needed = bytes;
	assert_in_range(needed, 20, BLOB);
	bytes = needed - 1;
	assert_status(weft_engine_address(pair.here.engine, blob, &bytes), -ENOBUFS);
	assert_int_equal(bytes, needed);
	assert_status(weft_engine_address(pair.here.engine, blob, &bytes), 0);
	bytes = 3;
	assert_status(weft_region_export(pair.here.engine, pair.region, blob, &bytes), -ENOBUFS);
	assert_status(weft_region_export(pair.here.engine, pair.region, blob, &bytes), 0);
}

/* ---- ranges and rights ---- */

static int try_write(weft_region region, uint64_t from, weft_remote remote, uint64_t to, uint64_t bytes)
{
	struct weft_write write = { sizeof(write), region, from, remote, to, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 9 };
	int error = weft_write(pair.here.engine, &write, &op, NULL);

	return error ? error : end_of(&pair.here, 9);
}

static void outside(void **state)
{
	static const uint64_t bad[][2] = { { BYTES, 1 },      { BYTES + 1, 0 },      { 0, BYTES + 1 },
					   { BYTES - 5, 6 },  { UINT64_MAX, 1 },     { UINT64_MAX, 0 },
					   { 1, UINT64_MAX }, { 5, UINT64_MAX - 4 }, { UINT64_MAX - 7, 8 } };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 9 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct weft_read read = { sizeof(read), pair.remote, bad[i][0], pair.region, 0, bad[i][1] };

		assert_status(try_write(pair.region, bad[i][0], pair.remote, 0, bad[i][1]), -ERANGE);
		assert_status(try_write(pair.region, 0, pair.remote, bad[i][0], bad[i][1]), -ERANGE);
		assert_status(weft_read(pair.here.engine, &read, &op, NULL), -ERANGE);
	}
	assert_status(try_write(pair.region, BYTES - 5, pair.remote, 0, 5), 0);
}

static int try_pages(struct weft_write_pages *pages)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 9 };
	int error;

	pages->from = pair.region;
	pages->to = pair.remote;
	error = weft_write_pages(pair.here.engine, pages, &op, NULL);
	return error ? error : end_of(&pair.here, 9);
}

static void pages_outside(void **state)
{
	uint32_t good[4] = { 0, 255, 1, 2 }, bad[4] = { 0, 256, 1, 2 }, far[4] = { 0, 1, 2, UINT32_MAX };
	struct weft_write_pages pages = {
		.size = sizeof(pages), .page_bytes = 4096, .count = 4, .from_index = good, .to_index = good
	};

	assert_status(try_pages(&pages), 0);
	pages.from_index = bad;
	assert_status(try_pages(&pages), -ERANGE);
	pages.from_index = good;
	pages.to_index = bad;
	assert_status(try_pages(&pages), -ERANGE);
	pages.to_index = far;
	pages.to_stride = UINT64_MAX / 2;
	assert_status(try_pages(&pages), -ERANGE);
	pages = (struct weft_write_pages){ .size = sizeof(struct weft_write_pages), .page_bytes = 4096, .count = 257 };
	assert_status(try_pages(&pages), -ERANGE);
	pages = (struct weft_write_pages){
		.size = sizeof(struct weft_write_pages), .page_bytes = 4096, .count = 256, .to_offset = 1
	};
	assert_status(try_pages(&pages), -ERANGE);
	pages = (struct weft_write_pages){
		.size = sizeof(struct weft_write_pages), .page_bytes = 4096, .count = 256, .from_offset = UINT64_MAX
	};
	assert_status(try_pages(&pages), -ERANGE);
	pages =
	    (struct weft_write_pages){ .size = sizeof(struct weft_write_pages), .page_bytes = 1, .count = UINT64_MAX };
	assert_status(try_pages(&pages), -ERANGE);
	pages =
	    (struct weft_write_pages){ .size = sizeof(struct weft_write_pages), .page_bytes = UINT64_MAX, .count = 2 };
	assert_status(try_pages(&pages), -ERANGE);
	pages = (struct weft_write_pages){ .size = sizeof(struct weft_write_pages), .page_bytes = 0, .count = 2 };
	assert_status(try_pages(&pages), -EINVAL);
}

/* The check of the largest index handles many at a time: it finds a bad one at any place of a list. */
static void long_lists_outside(void **state)
{
	enum { COUNT = 8203, PAGE = 64, PAGES = 256 * 4096 / PAGE };
	static uint32_t list[2][COUNT];
	struct weft_write_pages pages = {
		.size = sizeof(pages), .page_bytes = PAGE, .count = COUNT, .from_index = list[0], .to_index = list[1]
	};

	for (int i = 0; i < COUNT; i++)
		list[0][i] = list[1][i] = (uint32_t)(PAGES - 1 - i);
	assert_status(try_pages(&pages), 0);
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < COUNT; i += i < 50 || i > COUNT - 50 ? 1 : 509) {
			uint32_t kept = list[side][i];

			list[side][i] = i % 2 ? PAGES : UINT32_MAX;
			assert_status(try_pages(&pages), -ERANGE);
			list[side][i] = kept;
		}
	assert_status(try_pages(&pages), 0);
}

static void rights(void **state)
{
	struct blob read_only, write_only;
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 9 };
	weft_remote r, w;
	size_t bytes = BLOB;
	uint8_t blob[BLOB];
	weft_region local;
	char memory[64];

	peer_region(&pair.there, 4096, WEFT_REMOTE_READ, &read_only);
	peer_region(&pair.there, 4096, WEFT_REMOTE_WRITE, &write_only);
	r = import(&pair.here, pair.peer, &read_only);
	w = import(&pair.here, pair.peer, &write_only);
	assert_status(try_write(pair.region, 0, r, 0, 10), -EACCES);
	assert_status(try_write(pair.region, 0, w, 0, 10), 0);
	struct weft_read read = { sizeof(read), w, 0, pair.region, 0, 10 };

	assert_status(weft_read(pair.here.engine, &read, &op, NULL), -EACCES);
	read.from = r;
	assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
	assert_status(end_of(&pair.here, 9), 0);
	assert_status(weft_remote_close(pair.here.engine, r), 0);
	assert_status(weft_remote_close(pair.here.engine, w), 0);
	/* Memory that no peer may touch has no descriptor, but is valid as our own side. */
	assert_status(weft_region_register(pair.here.engine, memory, sizeof(memory), 0, &local), 0);
	assert_status(weft_region_export(pair.here.engine, local, blob, &bytes), -EACCES);
	assert_status(try_write(local, 0, pair.remote, 0, sizeof(memory)), 0);
	assert_status(weft_region_close(pair.here.engine, local), 0);
	assert_status(weft_region_register(pair.here.engine, memory, sizeof(memory), 4, &local), -EINVAL);
	assert_status(weft_region_register(pair.here.engine, NULL, 64, 0, &local), -EINVAL);
	assert_status(weft_region_register(pair.here.engine, memory, 0, 0, &local), -EINVAL);
	assert_status(weft_region_register(pair.here.engine, memory, UINT64_MAX, 0, &local), -EINVAL);
}

/* ---- what is gone ---- */

static void closed_handles(void **state)
{
	weft_remote remote = import(&pair.here, pair.peer, &pair.descriptor);
	weft_region region;
	static char memory[4096];

	assert_status(weft_remote_close(pair.here.engine, remote), 0);
	assert_status(weft_remote_close(pair.here.engine, remote), -ENOENT);
	assert_status(try_write(pair.region, 0, remote, 0, 10), -ENOENT);
	assert_status(weft_region_register(pair.here.engine, memory, sizeof(memory), WEFT_REMOTE_WRITE, &region), 0);
	assert_status(weft_region_close(pair.here.engine, region), 0);
	assert_status(weft_region_close(pair.here.engine, region), -ENOENT);
	assert_status(try_write(region, 0, pair.remote, 0, 10), -ENOENT);
	assert_status(weft_region_revoke(pair.here.engine, region), -ENOENT);
	for (uint64_t handle = 0; handle < 3; handle++) {
		assert_status(weft_peer_remove(pair.here.engine, UINT64_MAX - handle), -ENOENT);
		assert_status(weft_region_close(pair.here.engine, handle << 40), -ENOENT);
		assert_status(weft_remote_close(pair.here.engine, handle << 40), -ENOENT);
		assert_status(try_write(pair.region, 0, handle << 40, 0, 1), -ENOENT);
	}
	assert_status(weft_send(pair.here.engine, 0, 0, NULL, 0, NULL, NULL), -ENOENT);
	assert_status(weft_remote_import(pair.here.engine, 0, pair.descriptor.data, pair.descriptor.bytes, &remote),
		      -ENOENT);
	assert_status(weft_peer_replace(pair.here.engine, 0, pair.there.address.data, pair.there.address.bytes),
		      -ENOENT);
	assert_status(weft_peer_info(pair.here.engine, 0, &(struct weft_peer_info){ 0 }, sizeof(struct weft_peer_info)),
		      -ENOENT);
}

/* What the last call logged; such lines come on the calling thread. */
static _Thread_local char logged[200];

static void keep_line(void *context, enum weft_log_level level, const char *text)
{
	snprintf(logged, sizeof(logged), "%s", text);
}

static void assert_named(int error, const char *what)
{
	char expected[40];

	snprintf(expected, sizeof(expected), "no %s of this engine", what);
	assert_status(error, -ENOENT);
	assert_non_null(strstr(logged, expected));
	assert_non_null(strstr(logged, "0x4711000000"));
	logged[0] = '\0';
}

/* Whatever the call, the log says which handle it was. */
static void stale_is_named(void **state)
{
	const uint64_t stale = UINT64_C(0x4711000000);
	struct weft_config config = side_config();
	struct blob *address = &pair.there.address, *descriptor = &pair.descriptor;
	struct weft_path_info path;
	struct weft_peer_info info;
	struct side side;
	uint8_t blob[BLOB];
	size_t bytes = BLOB;
	weft_remote remote;

	for (int manual = 0; manual < 2; manual++) {
		config.log = keep_line;
		config.flags = manual ? WEFT_MANUAL_PROGRESS : 0;
		assert_status(side_open(&side, &config), 0);
		assert_named(weft_region_close(side.engine, stale), "region");
		assert_named(weft_region_export(side.engine, stale, blob, &bytes), "region");
		assert_named(weft_region_revoke(side.engine, stale), "region");
		assert_named(weft_remote_close(side.engine, stale), "remote");
		assert_named(weft_remote_import(side.engine, stale, descriptor->data, descriptor->bytes, &remote),
			     "peer");
		assert_named(weft_peer_remove(side.engine, stale), "peer");
		assert_named(weft_peer_replace(side.engine, stale, address->data, address->bytes), "peer");
		assert_named(weft_peer_info(side.engine, stale, &info, sizeof(info)), "peer");
		assert_named(weft_path_info(side.engine, stale, 0, 0, &path, sizeof(path)), "peer");
		assert_named(weft_send(side.engine, stale, 0, NULL, 0, NULL, NULL), "peer");
		assert_named(weft_transfer_cancel(side.engine, stale), "transfer");
		assert_named(weft_peer_cancel(side.engine, stale), "peer");
		assert_status(side_close(&side), 0);
	}
}

/* A revoked region: its importers learn of it, and nothing of theirs lands afterwards. */
static void revoked(void **state)
{
	uint64_t number, deadline = now_ns() + LIMIT;
	struct blob descriptor;
	weft_remote remote;
	uint8_t blob[BLOB];
	size_t bytes = BLOB;
	weft_region region;
	static char memory[4096];
	int status;

	number = peer_region(&pair.there, 65536, WEFT_REMOTE_WRITE, &descriptor);
	remote = import(&pair.here, pair.peer, &descriptor);
	assert_status(try_write(pair.region, 0, remote, 0, 65536), 0);
	peer_tell(&pair.there, COMMAND_REVOKE, number);
	if (strcmp(transport->provider, "shm"))
		peer_fill(&pair.there, number, 0, 65536, 31);
	while ((status = try_write(pair.region, 0, remote, 0, 65536)) != -ESTALE) {
		/* Until the notice is here the rail refuses it; over shared memory nobody checks keys. */
		assert_true(status != 0 || !strcmp(transport->provider, "shm"));
		assert_true(now_ns() < deadline);
	}
	if (strcmp(transport->provider, "shm"))
		peer_check(&pair.there, number, 0, 65536, 31);
	assert_status(weft_remote_close(pair.here.engine, remote), 0);
	/* Our own region: it has no descriptor any more, and is still valid as the local side. */
	assert_status(weft_region_register(pair.here.engine, memory, sizeof(memory), WEFT_REMOTE_WRITE, &region), 0);
	assert_status(weft_region_revoke(pair.here.engine, region), 0);
	assert_status(weft_region_export(pair.here.engine, region, blob, &bytes), -ESTALE);
	assert_status(try_write(region, 0, pair.remote, 0, 4096), 0);
	assert_status(weft_region_close(pair.here.engine, region), 0);
	/* Everything else still works. */
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
}

static void in_use(void **state)
{
	/* The peer has to take the notification for it to end, whatever the path swallows. */
	struct weft_op op = {
		.size = sizeof(op), .queue = pair.here.queue, .tag = 9, .notify = WEFT_NOTIFY_FENCED, .notify_tag = 9
	};
	static char memory[8u << 20];
	struct blob descriptor;
	weft_remote remote;
	weft_region region;

	peer_region(&pair.there, sizeof(memory), WEFT_REMOTE_WRITE, &descriptor);
	remote = import(&pair.here, pair.peer, &descriptor);
	assert_status(weft_region_register(pair.here.engine, memory, sizeof(memory), 0, &region), 0);
	struct weft_write write = { sizeof(write), region, 0, remote, 0, sizeof(memory) };

	peer_tell(&pair.there, COMMAND_QUIET, 1);
	for (int i = 0; i < 20; i++)
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	assert_status(weft_region_close(pair.here.engine, region), -EBUSY);
	assert_status(weft_remote_close(pair.here.engine, remote), -EBUSY);
	peer_tell(&pair.there, COMMAND_QUIET, 0);
	for (int i = 0; i < 20; i++)
		assert_status(end_of(&pair.here, 9), 0);
	assert_status(weft_region_close(pair.here.engine, region), 0);
	assert_status(weft_remote_close(pair.here.engine, remote), 0);
}

/* ---- NULL and nonsense ---- */

static void null_engine(void **state)
{
	struct weft_write write = { .size = sizeof(write) };
	struct weft_read read = { .size = sizeof(read) };
	struct weft_write_pages pages = { .size = sizeof(pages) };
	uint64_t handle;
	size_t bytes = 1;
	char one;

	assert_status(weft_engine_open(NULL, NULL, NULL, 0), -EINVAL);
	assert_status(weft_engine_close(NULL), 0);
	assert_status(weft_engine_address(NULL, &one, &bytes), -EINVAL);
	assert_status(weft_queue_open(NULL, WEFT_QUEUE_LISTEN, &(weft_queue *){ NULL }), -EINVAL);
	assert_status(weft_queue_listen(NULL), -EINVAL);
	assert_status(weft_queue_fd(NULL), -EINVAL);
	assert_status(weft_region_register(NULL, &one, 1, 0, &handle), -EINVAL);
	assert_status(weft_region_close(NULL, 1), -EINVAL);
	assert_status(weft_region_export(NULL, 1, &one, &bytes), -EINVAL);
	assert_status(weft_region_revoke(NULL, 1), -EINVAL);
	assert_status(weft_peer_add(NULL, &one, 1, NULL, &handle), -EINVAL);
	assert_status(weft_peer_remove(NULL, 1), -EINVAL);
	assert_status(weft_peer_replace(NULL, 1, &one, 1), -EINVAL);
	assert_status(weft_remote_import(NULL, 1, &one, 1, &handle), -EINVAL);
	assert_status(weft_remote_close(NULL, 1), -EINVAL);
	assert_status(weft_write(NULL, &write, NULL, NULL), -EINVAL);
	assert_status(weft_read(NULL, &read, NULL, NULL), -EINVAL);
	assert_status(weft_write_pages(NULL, &pages, NULL, NULL), -EINVAL);
	assert_status(weft_scatter(NULL, &write, 1, NULL, NULL), -EINVAL);
	assert_status(weft_send(NULL, 1, 0, NULL, 0, NULL, NULL), -EINVAL);
	assert_status(weft_call(NULL, 1, 0, NULL, 0, NULL, NULL), -EINVAL);
	assert_status(weft_reply(NULL, 1, 0, 0, NULL, 0, NULL, NULL), -EINVAL);
	assert_status(weft_barrier(NULL, &handle, 1, 0, NULL, NULL), -EINVAL);
	assert_status(weft_expect(NULL, 0, 1, 0, NULL, NULL), -EINVAL);
	assert_status(weft_transfer_cancel(NULL, 1), -EINVAL);
	assert_status(weft_peer_cancel(NULL, 1), -EINVAL);
	assert_status(weft_engine_info(NULL, &(struct weft_engine_info){ 0 }, sizeof(struct weft_engine_info)),
		      -EINVAL);
	assert_status(weft_rail_info(NULL, 0, &(struct weft_rail_info){ 0 }, sizeof(struct weft_rail_info)), -EINVAL);
	assert_status(weft_peer_info(NULL, 0, &(struct weft_peer_info){ 0 }, sizeof(struct weft_peer_info)), -EINVAL);
	assert_status(weft_nic_each(NULL, NULL, NULL), -EINVAL);
}

static void null_arguments(void **state)
{
	weft_engine *engine = pair.here.engine;
	struct weft_event event;
	char one;

	assert_status(weft_engine_address(engine, &one, NULL), -EINVAL);
	assert_status(weft_queue_open(engine, WEFT_QUEUE_LISTEN, NULL), -EINVAL);
	assert_status(weft_queue_poll(NULL, &event, sizeof(event), 1), -EINVAL);
	assert_status(weft_queue_poll(pair.here.queue, NULL, sizeof(struct weft_event), 1), -EINVAL);
	assert_status(weft_queue_poll(pair.here.queue, &event, sizeof(event), 0), -EINVAL);
	assert_status(weft_queue_wait(NULL, &event, sizeof(event), 1, 0), -EINVAL);
	assert_status(weft_queue_wait(pair.here.queue, NULL, sizeof(struct weft_event), 1, 0), -EINVAL);
	assert_status(weft_queue_wait(pair.here.queue, &event, sizeof(event), -1, 0), -EINVAL);
	assert_status(weft_region_register(engine, &one, 1, 0, NULL), -EINVAL);
	assert_status(weft_region_export(engine, pair.region, &one, NULL), -EINVAL);
	assert_status(weft_peer_add(engine, &one, 1, NULL, NULL), -EINVAL);
	assert_status(weft_remote_import(engine, pair.peer, &one, 1, NULL), -EINVAL);
	assert_status(weft_write(engine, NULL, NULL, NULL), -EINVAL);
	assert_status(weft_read(engine, NULL, NULL, NULL), -EINVAL);
	assert_status(weft_write_pages(engine, NULL, NULL, NULL), -EINVAL);
	assert_status(weft_scatter(engine, NULL, 1, NULL, NULL), -EINVAL);
	assert_status(weft_barrier(engine, NULL, 1, 0, NULL, NULL), -EINVAL);
	assert_status(weft_engine_info(engine, NULL, sizeof(struct weft_engine_info)), -EINVAL);
	assert_status(weft_rail_info(engine, 0, NULL, sizeof(struct weft_rail_info)), -EINVAL);
	assert_status(weft_peer_info(engine, pair.peer, NULL, sizeof(struct weft_peer_info)), -EINVAL);
	weft_event_release(NULL);
	event = (struct weft_event){ 0 };
	weft_event_release(&event);
	weft_event_release(&event);
	assert_non_null(weft_strerror(-EAGAIN));
	assert_non_null(weft_error_hint(-EAGAIN));
	assert_non_null(weft_version());
}

/* A queue of another engine. */
static void foreign_queue(void **state)
{
	struct weft_config config = side_config();
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 1 };
	struct weft_op op = { .size = sizeof(op) };
	struct side side;

	assert_status(side_open(&side, &config), 0);
	op.queue = side.queue;
	assert_status(weft_write(pair.here.engine, &write, &op, NULL), -EINVAL);
	assert_status(weft_send(pair.here.engine, pair.peer, 0, NULL, 0, &op, NULL), -EINVAL);
	/* Nor are handles of one engine valid in another. */
	assert_status(weft_write(side.engine, &write, NULL, NULL), -ENOENT);
	assert_status(side_close(&side), 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(truncated_blobs), cmocka_unit_test(damaged_blobs),
		cmocka_unit_test(foreign_blobs),   cmocka_unit_test(other_provider),
		cmocka_unit_test(room_for_blobs),  cmocka_unit_test(outside),
		cmocka_unit_test(pages_outside),   cmocka_unit_test(long_lists_outside),
		cmocka_unit_test(rights),          cmocka_unit_test(closed_handles),
		cmocka_unit_test(stale_is_named),  cmocka_unit_test(revoked),
		cmocka_unit_test(in_use),          cmocka_unit_test(null_engine),
		cmocka_unit_test(null_arguments),  cmocka_unit_test(foreign_queue),
	};

	return cmocka_run_group_tests_name("errors", tests, open_pair, close_pair);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
