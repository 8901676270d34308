/*
 * Checked writes: the receiver compares what landed with what was sent before anyone is told. Here another thread of the receiver
 * scribbles over the memory, as a bug would, and the writer learns of it.
 *
 *   build/examples/checked [PROVIDER]
 */
#include "common.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum { BYTES = 1 << 20, TRIES = 200 };

static _Atomic bool scribbles;

static void *scribble(void *memory)
{
	volatile char *byte = memory;

	while (atomic_load(&scribbles))
		for (size_t i = 0; i < BYTES; i += 4096)
			byte[i]++;
	return NULL;
}

static int receiver(int fd, const char *provider)
{
	char *memory = calloc(1, BYTES), nothing[1];
	weft_engine *engine = open_engine(provider);
	struct weft_event event;
	pthread_t thread;
	weft_region region;
	weft_queue *queue;
	int whole = 1;

	must(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	must(weft_region_register(engine, memory, BYTES, WEFT_REMOTE_WRITE, &region), "weft_region_register");
	give_address(fd, engine);
	give_region(fd, engine, region);
	await(queue, WEFT_EVENT_NOTIFY, &event); /* what it announces has been compared */
	weft_event_release(&event);
	for (size_t i = 0; i < BYTES && whole; i++)
		whole = memory[i] == 'w';
	printf("receiver: told, and every byte is right: %s\n", whole ? "yes" : "NO");
	atomic_store(&scribbles, true);
	if (pthread_create(&thread, NULL, scribble, memory))
		return 1;
	give(fd, "", 0);
	take(fd, nothing);
	atomic_store(&scribbles, false);
	pthread_join(thread, NULL);
	weft_engine_close(engine);
	free(memory);
	return !whole;
}

static int write_checked(weft_engine *engine, weft_queue *queue, weft_region from, weft_remote to)
{
	struct weft_write write = { .size = sizeof(write), .from = from, .to = to, .bytes = BYTES };
	struct weft_op op = { .size = sizeof(op),
			      .queue = queue,
			      .timeout_ns = 20 * WEFT_SECOND,
			      .flags = WEFT_CHECKSUM,
			      .notify = WEFT_NOTIFY_FENCED };
	struct weft_event event;
	int status;

	must(weft_write(engine, &write, &op, NULL), "weft_write");
	await(queue, WEFT_EVENT_END, &event);
	status = event.status;
	weft_event_release(&event);
	return status;
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "tcp";
	struct other other = start(receiver, provider);
	char *memory = malloc(BYTES), nothing[1];
	weft_engine *engine = open_engine(provider);
	weft_region region;
	weft_remote remote;
	weft_queue *queue;
	int status = 0;

	memset(memory, 'w', BYTES);
	must(weft_queue_open(engine, 0, &queue), "weft_queue_open");
	must(weft_region_register(engine, memory, BYTES, 0, &region), "weft_region_register");
	remote = take_remote(other.fd, engine, take_peer(other.fd, engine));
	must(write_checked(engine, queue, region, remote), "the first write");
	printf("writer: the first write arrived as it was sent\n");
	take(other.fd, nothing);
	/* One of these will meet the scribbler, however the threads happen to run. */
	for (int i = 0; i < TRIES && !status; i++)
		status = write_checked(engine, queue, region, remote);
	printf("writer: a later one did not: %s\n", weft_strerror(status));
	give(other.fd, "", 0);
	weft_engine_close(engine);
	free(memory);
	return finish(&other) || status != -EBADMSG;
}
