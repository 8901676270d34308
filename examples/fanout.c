/*
 * New weights for a fleet: one memory goes to many peers in one operation, and each of them is told when it has all of it.
 *
 *   build/examples/fanout [PROVIDER]
 */
#include "common.h"

enum { BYTES = 8 << 20, PEERS = 3, VERSION = 12 };

static char byte_of(size_t i)
{
	return (char)(i * 31 + i / 4096);
}

static int worker_host(int fd, const char *provider)
{
	char *weights = calloc(1, BYTES);
	weft_engine *engine = open_engine(provider);
	struct weft_event event;
	weft_region region;
	weft_queue *queue;
	int good = 1;

	must(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	must(weft_region_register(engine, weights, BYTES, WEFT_REMOTE_WRITE, &region), "weft_region_register");
	give_address(fd, engine);
	give_region(fd, engine, region);
	await(queue, WEFT_EVENT_NOTIFY, &event);
	good = event.tag == VERSION;
	weft_event_release(&event);
	for (size_t i = 0; i < BYTES && good; i++)
		good = weights[i] == byte_of(i);
	printf("a host has version %d: %s\n", VERSION, good ? "whole" : "DAMAGED");
	give(fd, "", 0);
	weft_engine_close(engine);
	free(weights);
	return !good;
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "tcp";
	struct other hosts[PEERS];
	struct weft_write parts[PEERS];
	char *weights = malloc(BYTES), nothing[1];
	struct weft_event event;
	weft_engine *engine;
	weft_region region;
	weft_queue *queue;
	int failed = 0;

	for (int i = 0; i < PEERS; i++)
		hosts[i] = start(worker_host, provider);
	for (size_t i = 0; i < BYTES; i++)
		weights[i] = byte_of(i);
	engine = open_engine(provider);
	must(weft_queue_open(engine, 0, &queue), "weft_queue_open");
	must(weft_region_register(engine, weights, BYTES, 0, &region), "weft_region_register");
	for (int i = 0; i < PEERS; i++)
		parts[i] =
		    (struct weft_write){ .size = sizeof(parts[i]),
					 .from = region,
					 .bytes = BYTES,
					 .to = take_remote(hosts[i].fd, engine, take_peer(hosts[i].fd, engine)) };

	/* One operation, one end: all of them have it, or the status says why not. */
	struct weft_op op = { .size = sizeof(op),
			      .queue = queue,
			      .timeout_ns = 25 * WEFT_SECOND,
			      .notify = WEFT_NOTIFY_FENCED,
			      .notify_tag = VERSION };
	must(weft_scatter(engine, parts, PEERS, &op, NULL), "weft_scatter");
	await(queue, WEFT_EVENT_END, &event);
	must(event.status, "the fan-out");
	printf("%d MiB went to %d hosts\n", (int)(event.bytes >> 20), PEERS);
	weft_event_release(&event);
	for (int i = 0; i < PEERS; i++)
		take(hosts[i].fd, nothing);
	weft_engine_close(engine);
	for (int i = 0; i < PEERS; i++)
		failed |= finish(&hosts[i]);
	free(weights);
	return failed;
}
