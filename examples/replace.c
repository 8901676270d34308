/*
 * A peer that is replaced under traffic: its process is killed while writes are on their way, another one starts, and the writer goes
 * on under the same handle.
 *
 *   build/examples/replace [PROVIDER]
 */
#include "common.h"

#include <errno.h>
#include <signal.h>

enum { BYTES = 1 << 20, BEFORE = 20, AFTER = 20 };

static int target(int fd, const char *provider)
{
	char *memory = calloc(1, BYTES), nothing[1];
	weft_engine *engine = open_engine(provider);
	weft_region region;
	weft_queue *queue;

	must(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	must(weft_region_register(engine, memory, BYTES, WEFT_REMOTE_WRITE, &region), "weft_region_register");
	give_address(fd, engine);
	give_region(fd, engine, region);
	take(fd, nothing); /* until the writer is done, or we are killed */
	weft_engine_close(engine);
	free(memory);
	return 0;
}

static int write_once(weft_engine *engine, weft_queue *queue, weft_region from, weft_remote to)
{
	struct weft_write write = { .size = sizeof(write), .from = from, .to = to, .bytes = BYTES };
	struct weft_op op = { .size = sizeof(op), .queue = queue, .timeout_ns = 20 * WEFT_SECOND };
	int status = weft_write(engine, &write, &op, NULL);
	struct weft_event event;

	if (status)
		return status; /* refused at once: the peer is known to be down */
	await(queue, WEFT_EVENT_END, &event);
	status = event.status;
	weft_event_release(&event);
	return status;
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "tcp";
	struct other first = start(target, provider), second = start(target, provider); /* before we have an engine */
	weft_engine *engine = open_engine(provider);
	char *memory = calloc(1, BYTES), blob[WEFT_BLOB_MAX];
	int before = 0, after = 0, status = 0;
	weft_region region;
	weft_remote remote;
	weft_queue *queue;
	weft_peer peer;
	size_t bytes;

	must(weft_queue_open(engine, 0, &queue), "weft_queue_open");
	must(weft_region_register(engine, memory, BYTES, 0, &region), "weft_region_register");
	peer = take_peer(first.fd, engine);
	remote = take_remote(first.fd, engine, peer);
	while (before < BEFORE)
		before += !must(write_once(engine, queue, region, remote), "a write");
	kill(first.pid, SIGKILL);
	while (!status) /* writes that were under way, and those after them: each ends, none hangs */
		status = write_once(engine, queue, region, remote);
	printf("%d writes, then the target was killed: %s\n", before, weft_strerror(status));

	/* The handle stays; the old process's memory is gone, so the new one's is imported. */
	bytes = take(second.fd, blob);
	must(weft_peer_replace(engine, peer, blob, bytes), "weft_peer_replace");
	status = write_once(engine, queue, region, remote);
	printf("the old memory under the new process: %s\n", weft_strerror(status));
	must(weft_remote_close(engine, remote), "weft_remote_close");
	remote = take_remote(second.fd, engine, peer);
	while (after < AFTER)
		after += !must(write_once(engine, queue, region, remote), "a write after the replacement");
	printf("%d writes to the new one\n", after);
	give(second.fd, "", 0);
	weft_engine_close(engine);
	free(memory);
	finish(&first); /* it was killed */
	return finish(&second) || status != -ESTALE;
}
