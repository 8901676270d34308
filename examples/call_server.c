/*
 * A server that answers calls, and a client whose calls have deadlines: one is answered, one is refused, one is never answered.
 *
 *   build/examples/call_server [PROVIDER]
 */
#include "common.h"

#include <errno.h>

enum method { SQUARE = 1, UNKNOWN = 2, SILENT = 3, GOODBYE = 4 };

static int server(int fd, const char *provider)
{
	weft_engine *engine = open_engine(provider);
	weft_queue *queue;
	int open = 1, answered = 0;

	must(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	give_address(fd, engine);
	while (open) {
		struct weft_event event;
		uint64_t number = 0;

		await(queue, WEFT_EVENT_CALL, &event);
		if (event.bytes == sizeof(number))
			memcpy(&number, event.data, sizeof(number));
		number *= number;
		if (event.tag == SQUARE || event.tag == GOODBYE) {
			must(weft_reply(engine, event.peer, event.call, 0, &number, sizeof(number), NULL, NULL),
			     "weft_reply");
			answered++;
		} else if (event.tag == UNKNOWN) {
			must(weft_reply(engine, event.peer, event.call, -ENOSYS, NULL, 0, NULL, NULL), "weft_reply");
		} /* SILENT: a bug of ours; the caller's deadline does not depend on it */
		open = event.tag != GOODBYE;
		weft_event_release(&event);
	}
	printf("server: %d calls answered\n", answered);
	weft_engine_close(engine); /* the last reply still reaches its caller */
	return 0;
}

/* Calls and waits for the reply. A real client has many calls under way and tells them apart by the tag. */
static int call(weft_engine *engine, weft_queue *queue, weft_peer peer, enum method method, uint64_t timeout_ns,
		uint64_t *value)
{
	struct weft_op op = { .size = sizeof(op), .queue = queue, .timeout_ns = timeout_ns };
	struct weft_event event;
	int status;

	must(weft_call(engine, peer, method, value, sizeof(*value), &op, NULL), "weft_call");
	await(queue, WEFT_EVENT_REPLY, &event);
	status = event.status;
	if (!status && event.bytes == sizeof(*value))
		memcpy(value, event.data, sizeof(*value));
	weft_event_release(&event);
	return status;
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "tcp";
	struct other host = start(server, provider);
	weft_engine *engine = open_engine(provider);
	uint64_t value = 12, other = 1, last = 1;
	weft_queue *queue;
	weft_peer peer;
	int answered, refused, late;

	must(weft_queue_open(engine, 0, &queue), "weft_queue_open");
	peer = take_peer(host.fd, engine);
	answered = call(engine, queue, peer, SQUARE, 20 * WEFT_SECOND, &value);
	refused = call(engine, queue, peer, UNKNOWN, 20 * WEFT_SECOND, &other);
	late = call(engine, queue, peer, SILENT, 100 * WEFT_MILLISECOND, &other);
	printf("client: 12 squared is %llu\n", (unsigned long long)value);
	printf("client: an unknown method: %s\n", weft_strerror(refused));
	printf("client: no answer: %s\n", weft_strerror(late));
	must(call(engine, queue, peer, GOODBYE, 20 * WEFT_SECOND, &last), "goodbye");
	weft_engine_close(engine);
	return finish(&host) || answered || value != 144 || refused != -ENOSYS || late != -ETIMEDOUT;
}
