/*
 * A program that uses every public structure, built by programs.py against one header and run on the library of another. It has
 * two engines in one process, over tcp. With -DGROWN the header has a field "grown" at the end of each structure.
 */
#include <weft.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES  65536
#define LIMIT  (20 * WEFT_SECOND)
#define CANARY UINT64_C(0xfeedfacecafebeef)

#define CHECK(holds)                                                                                                   \
	do {                                                                                                           \
		if (!(holds)) {                                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);                                    \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static int mark; /* its address is the user pointer of peers */

struct end {
	weft_engine *engine;
	weft_queue *queue;
	weft_region region;
	char *memory;
};

static void open_end(struct end *end)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	struct {
		struct weft_error error;
		uint64_t canary;
	} why = { .canary = CANARY };

	config.provider = "nosuch";
	CHECK(weft_engine_open(&config, &end->engine, &why.error, sizeof(why.error)) < 0);
	CHECK(why.canary == CANARY && strstr(why.error.text, "nosuch") && why.error.hint);
	config.provider = "tcp";
	config.rails = "lo";
	config.max_rails = 1;
	CHECK(weft_engine_open(&config, &end->engine, NULL, 0) == 0);
	CHECK(weft_queue_open(end->engine, WEFT_QUEUE_LISTEN, &end->queue) == 0);
	end->memory = calloc(1, BYTES);
	CHECK(end->memory);
	CHECK(weft_region_register(end->engine, end->memory, BYTES, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ,
				   &end->region) == 0);
}

/* The event of that type with that tag, from an array whose members are as far apart as this header says. */
static struct weft_event wait_for(const struct end *end, enum weft_event_type type, uint64_t tag)
{
	struct {
		struct weft_event events[3];
		uint64_t canary;
	} got = { .canary = CANARY };
	struct weft_event found = { .type = WEFT_EVENT_NONE };

	while (found.type == WEFT_EVENT_NONE) {
		int count = weft_queue_wait(end->queue, got.events, sizeof(got.events[0]), 3, LIMIT);

		CHECK(count > 0 && got.canary == CANARY);
		for (int i = 0; i < count; i++) {
			CHECK(got.events[i].type > WEFT_EVENT_NONE && got.events[i].type <= WEFT_EVENT_RAIL_UP);
#ifdef GROWN
			CHECK(got.events[i].grown == 0);
#endif
			if (got.events[i].type == type && got.events[i].tag == tag)
				found = got.events[i];
			else
				weft_event_release(&got.events[i]);
		}
	}
	return found;
}

static void ended(const struct end *end, uint64_t tag)
{
	struct weft_event event = wait_for(end, WEFT_EVENT_END, tag);

	CHECK(event.status == 0 && event.quiescent && (!event.peer || event.peer_user == &mark));
	weft_event_release(&event);
}

static weft_peer introduce(const struct end *to, const struct end *who, weft_remote *remote)
{
	struct weft_peer_config config = { .size = sizeof(config), .name = "other" };
	char blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);
	weft_peer peer;

	config.user = &mark;
	CHECK(weft_engine_address(who->engine, blob, &bytes) == 0);
	CHECK(weft_peer_add(to->engine, blob, bytes, &config, &peer) == 0);
	bytes = sizeof(blob);
	CHECK(weft_region_export(who->engine, who->region, blob, &bytes) == 0);
	CHECK(weft_remote_import(to->engine, peer, blob, bytes, remote) == 0);
	return peer;
}

static void move(const struct end *a, const struct end *b, weft_remote remote)
{
	uint32_t index[2] = { 1, 0 };
	struct weft_op op = { .size = sizeof(op), .queue = a->queue, .tag = 1 };
	struct weft_write write = { .size = sizeof(write), .from = a->region, .to = remote, .bytes = 100 };
	struct weft_read read = {
		.size = sizeof(read), .from = remote, .to = a->region, .to_offset = 200, .bytes = 100
	};
	struct weft_write_pages out = {
		.size = sizeof(out), .page_bytes = 4096, .count = 2, .from = a->region, .to = remote, .to_index = index
	};
	struct weft_read_pages in = { .size = sizeof(in),
				      .page_bytes = 4096,
				      .count = 2,
				      .from = remote,
				      .from_index = index,
				      .to = a->region,
				      .to_offset = 8192 };
	struct weft_write parts[3];

	for (int i = 0; i < BYTES; i++)
		a->memory[i] = (char)(i * 7);
	CHECK(weft_write(a->engine, &write, &op, NULL) == 0);
	ended(a, 1);
	CHECK(memcmp(a->memory, b->memory, 100) == 0);
	CHECK(weft_read(a->engine, &read, &op, NULL) == 0);
	ended(a, 1);
	CHECK(memcmp(a->memory + 200, a->memory, 100) == 0);
	op.notify = WEFT_NOTIFY_FENCED;
	op.notify_tag = 9;
	op.notify_payload = "landed";
	op.notify_bytes = 6;
	CHECK(weft_write_pages(a->engine, &out, &op, NULL) == 0);
	ended(a, 1);
	struct weft_event event = wait_for(b, WEFT_EVENT_NOTIFY, 9);
	CHECK(event.bytes == 6 && memcmp(event.data, "landed", 6) == 0);
	weft_event_release(&event);
	CHECK(memcmp(b->memory, a->memory + 4096, 4096) == 0);
	op.notify = WEFT_NOTIFY_NOTHING;
	CHECK(weft_read_pages(a->engine, &in, &op, NULL) == 0);
	ended(a, 1);
	CHECK(memcmp(a->memory + 8192, a->memory, 8192) == 0);
	for (int i = 0; i < 3; i++)
		parts[i] = (struct weft_write){ .size = sizeof(parts[i]),
						.from = a->region,
						.from_offset = (uint64_t)i * 1000,
						.to = remote,
						.to_offset = 20000 + (uint64_t)i * 1000,
						.bytes = 1000 };
	CHECK(weft_scatter(a->engine, parts, 3, &op, NULL) == 0);
	ended(a, 1);
	CHECK(memcmp(b->memory + 20000, a->memory, 3000) == 0);
#ifdef GROWN
	op.grown = 1;
	CHECK(weft_write(a->engine, &write, &op, NULL) == -E2BIG);
	op.grown = 0;
	write.grown = 1;
	CHECK(weft_write(a->engine, &write, &op, NULL) == -E2BIG);
	parts[2].grown = 1;
	CHECK(weft_scatter(a->engine, parts, 3, &op, NULL) == -E2BIG);
	read.grown = out.grown = in.grown = 1;
	CHECK(weft_read(a->engine, &read, &op, NULL) == -E2BIG);
	CHECK(weft_write_pages(a->engine, &out, &op, NULL) == -E2BIG);
	CHECK(weft_read_pages(a->engine, &in, &op, NULL) == -E2BIG);
#endif
}

static void call(const struct end *a, const struct end *b, weft_peer peer)
{
	struct weft_op op = { .size = sizeof(op), .flags = WEFT_KEEP_END, .tag = 4 };
	struct {
		struct weft_event event;
		uint64_t canary;
	} end = { .canary = CANARY };
	struct weft_event asked;
	weft_transfer transfer;

	CHECK(weft_call(a->engine, peer, 5, "how", 3, &op, &transfer) == 0);
	asked = wait_for(b, WEFT_EVENT_CALL, 5);
	CHECK(weft_reply(b->engine, asked.peer, asked.call, 0, asked.data, asked.bytes, NULL, NULL) == 0);
	weft_event_release(&asked);
	CHECK(weft_transfer_wait(a->engine, transfer, LIMIT, &end.event, sizeof(end.event)) == 0);
	CHECK(end.canary == CANARY && end.event.type == WEFT_EVENT_REPLY && end.event.bytes == 3);
	weft_event_release(&end.event);
	/* A failure's details are the library's own, and may be read to the end of this header's structure. */
	op = (struct weft_op){ .size = sizeof(op), .queue = a->queue, .tag = 6, .timeout_ns = WEFT_MILLISECOND };
	CHECK(weft_expect(a->engine, 0, 1, 1, &op, NULL) == 0);
	asked = wait_for(a, WEFT_EVENT_COUNTED, 6);
	CHECK(asked.status == -ETIMEDOUT && asked.error && asked.error->text[0]);
#ifdef GROWN
	CHECK(asked.error->grown == 0);
#endif
	weft_event_release(&asked);
}

/* Fills a structure of this header's size, which the library must not write beyond. */
#define ASK(name, type, function, ...)                                                                                 \
	struct {                                                                                                       \
		struct type info;                                                                                      \
		uint64_t canary;                                                                                       \
	} name = { .canary = CANARY };                                                                                 \
	memset(&name.info, 0x5a, sizeof(name.info));                                                                   \
	CHECK(function(__VA_ARGS__, &name.info, sizeof(name.info)) == 0 && name.canary == CANARY)

static int see_nic(void *context, const struct weft_nic *nic)
{
	CHECK(nic->name && nic->provider);
#ifdef GROWN
	CHECK(nic->grown == 0);
#endif
	++*(int *)context;
	return 0;
}

static void ask(const struct end *a, weft_peer peer)
{
	ASK(engine, weft_engine_info, weft_engine_info, a->engine);
	ASK(rail, weft_rail_info, weft_rail_info, a->engine, 0);
	ASK(other, weft_peer_info, weft_peer_info, a->engine, peer);
	ASK(path, weft_path_info, weft_path_info, a->engine, peer, 0, 0);
	ASK(config, weft_config, weft_engine_config, a->engine);
	int nics = 0;

	CHECK(engine.info.rails == 1 && strcmp(engine.info.provider, "tcp") == 0);
	CHECK(strcmp(rail.info.name, "lo") == 0);
	CHECK(strcmp(other.info.name, "other") == 0 && other.info.written_bytes > 0);
	CHECK(path.info.written_bytes == other.info.written_bytes);
	CHECK(strcmp(config.info.ports ? config.info.ports : "", "") == 0);
	CHECK(config.info.size == sizeof(struct weft_config));
#ifdef GROWN
	CHECK(engine.info.grown == 0 && rail.info.grown == 0 && other.info.grown == 0);
	CHECK(path.info.grown == 0 && config.info.grown == 0);
#endif
	CHECK(weft_nic_each(NULL, see_nic, &nics) == 0 && nics > 0);
}

int main(void)
{
	struct end a, b;
	weft_remote remote, back;
	weft_peer peer;

	CHECK(weft_version_number() == WEFT_VERSION_NUMBER);
	open_end(&a);
	open_end(&b);
	peer = introduce(&a, &b, &remote);
	introduce(&b, &a, &back);
	move(&a, &b, remote);
	call(&a, &b, peer);
	ask(&a, peer);
#ifdef GROWN
	struct weft_config config = WEFT_CONFIG_INIT;
	weft_engine *engine;

	config.grown = 1;
	CHECK(weft_engine_open(&config, &engine, NULL, 0) == -E2BIG);
#endif
	CHECK(weft_engine_close(a.engine) == 0 && weft_engine_close(b.engine) == 0);
	free(a.memory);
	free(b.memory);
	printf("sizes: op %zu, event %zu, rail info %zu\n", sizeof(struct weft_op), sizeof(struct weft_event),
	       sizeof(struct weft_rail_info));
	return 0;
}
