/* The fixture of two connected engines, this side's waits, and main. */
#include "support/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void assert_status_at(int got, int expected, const char *file, int line)
{
	if (got == expected)
		return;
	print_error("status %d (%s), not %d (%s)\n", got, weft_strerror(got), expected, weft_strerror(expected));
	_fail(file, line);
}

void address_of(weft_engine *engine, struct blob *ret_blob)
{
	ret_blob->bytes = BLOB;
	assert_status(weft_engine_address(engine, ret_blob->data, &ret_blob->bytes), 0);
}

void export_of(weft_engine *engine, weft_region region, struct blob *ret_blob)
{
	ret_blob->bytes = BLOB;
	assert_status(weft_region_export(engine, region, ret_blob->data, &ret_blob->bytes), 0);
}

weft_remote import(struct side *side, weft_peer peer, const struct blob *descriptor)
{
	weft_remote remote = 0;

	assert_status(weft_remote_import(side->engine, peer, descriptor->data, descriptor->bytes, &remote), 0);
	assert_true(remote != 0);
	return remote;
}

/* Twice the limit: where only silence tells of a death, most of one limit passes before it is known. */
void wait_for_event(struct side *side, enum weft_event_type type, uint64_t tag, struct weft_event *ret)
{
	int error = side_wait(side, type, tag, 2 * LIMIT, ret);

	if (error)
		fail_msg("no event %d with tag %llu: %d", type, (unsigned long long)tag, error);
}

int end_of(struct side *side, uint64_t tag)
{
	struct weft_event event;

	wait_for_event(side, WEFT_EVENT_END, tag, &event);
	weft_event_release(&event);
	return event.status;
}

static void connect_both(struct pair *pair)
{
	struct weft_event event;
	struct blob ours;

	address_of(pair->here.engine, &ours);
	assert_status(
	    weft_peer_add(pair->here.engine, pair->there.address.data, pair->there.address.bytes, NULL, &pair->peer),
	    0);
	pair->back = peer_add(&pair->there, &ours);
	assert_status(side_wait_peer(&pair->here, WEFT_EVENT_PEER_UP, pair->peer, LIMIT, &event), 0);
	weft_event_release(&event);
}

void pair_open(struct pair *pair, const struct weft_config *here, const struct weft_config *there, uint64_t bytes)
{
	struct weft_config plain = side_config();

	memset(pair, 0, sizeof(*pair));
	peer_start(&pair->there, there ? there : &plain);
	assert_status(side_open(&pair->here, here ? here : &plain), 0);
	pair->bytes = bytes;
	pair->memory = side_memory(pair->here.engine, bytes);
	assert_non_null(pair->memory);
	assert_status(weft_region_register(pair->here.engine, pair->memory, bytes, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ,
					   &pair->region),
		      0);
	connect_both(pair);
	pair->number = peer_region(&pair->there, bytes, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, &pair->descriptor);
	pair->remote = import(&pair->here, pair->peer, &pair->descriptor);
}

void pair_close(struct pair *pair)
{
	if (pair->there.pid)
		peer_stop(&pair->there);
	assert_status(side_close(&pair->here), 0);
	side_memory_free(pair->memory);
}

int pair_write(struct pair *pair, uint64_t from, uint64_t to, uint64_t bytes)
{
	static uint64_t tag = UINT64_C(1) << 32;
	struct weft_write write = { sizeof(write), pair->region, from, pair->remote, to, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair->here.queue, .tag = ++tag };
	int error = weft_write(pair->here.engine, &write, &op, NULL);

	return error ? error : end_of(&pair->here, tag);
}

int test_main(int argc, char **argv, run_fn run)
{
	if (argc == 3 && !strcmp(argv[1], "--peer"))
		return server_main(atoi(argv[2]));
	if (argc > 1 && !transport_choose(argv[1])) {
		fprintf(stderr, "usage: %s [local|mapped|shm|tcp|tcp4|efa2|direct2|verbs|verbs4]\n", argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	return run();
}
