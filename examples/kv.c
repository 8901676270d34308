/*
 * Two programs in one: a decode host that may die and come back, and a prefill host that goes on where it left off.
 * Blobs travel over TCP, events come through epoll, and every layer is checked before the decode host hears of it.
 *
 *   kv serve PORT [PROVIDER [RAILS]]               prints each layer that has landed
 *   kv push HOST PORT LAYERS [PROVIDER [RAILS]]    writes LAYERS layers; kill and restart the server meanwhile
 */
#include <weft.h>

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 65536, PAGES = 64, BACK_WITHIN_S = 20 };

/* What the server tells each client that connects. */
struct hello {
	size_t address_bytes, region_bytes;
	char address[WEFT_BLOB_MAX], region[WEFT_BLOB_MAX];
};

static void check(int status, const char *what)
{
	const char *hint = weft_error_hint(status);

	if (status >= 0)
		return;
	fprintf(stderr, "%s: %s%s%s\n", what, weft_strerror(status), hint ? "; " : "", hint ? hint : "");
	exit(1);
}

static weft_engine *open_engine(char **option)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	weft_engine *engine;

	config.provider = option[0];
	config.rails = option[0] ? option[1] : NULL;
	config.peer_limit_ns = WEFT_SECOND; /* give up a silent peer after this time */
	config.heartbeat_ns = 200 * WEFT_MILLISECOND;
	check(weft_engine_open(&config, &engine, NULL, 0), "weft_engine_open");
	return engine;
}

/* A connected or listening socket, or -1. */
static int open_socket(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE },
			*found;
	int fd, one = 1;

	if (getaddrinfo(host, port, &hints, &found))
		return -1;
	fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (host ? connect(fd, found->ai_addr, found->ai_addrlen)
		 : bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 16)) {
		close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	return fd;
}

/* ---- the decode host ---- */

static void take_events(weft_queue *queue, const char *memory)
{
	struct weft_event event;

	/* Until it is empty: only then does the descriptor speak again. */
	while (weft_queue_poll(queue, &event, sizeof(event), 1) == 1) {
		if (event.type == WEFT_EVENT_NOTIFY)
			printf("layer %llu has landed, its pages begin with %d\n", (unsigned long long)event.tag,
			       memory[0]);
		weft_event_release(&event);
	}
}

static int serve(const char *port, char **option)
{
	weft_engine *engine = open_engine(option);
	char *memory = calloc(PAGES, PAGE);
	struct hello *hello = calloc(1, sizeof(*hello));
	struct epoll_event ready, watch = { .events = EPOLLIN };
	int listener = open_socket(NULL, port), poller = epoll_create1(EPOLL_CLOEXEC);
	weft_queue *queue;
	weft_region kv;

	if (listener < 0 || poller < 0) {
		perror("listening");
		return 1;
	}
	check(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	check(weft_region_register(engine, memory, (uint64_t)PAGES * PAGE, WEFT_REMOTE_WRITE, &kv),
	      "weft_region_register");
	watch.data.fd = listener;
	epoll_ctl(poller, EPOLL_CTL_ADD, listener, &watch);
	watch.data.fd = weft_queue_fd(queue);
	epoll_ctl(poller, EPOLL_CTL_ADD, watch.data.fd, &watch);
	printf("serving\n");
	for (;;) {
		int fd;

		take_events(queue, memory);
		if (epoll_wait(poller, &ready, 1, -1) != 1 || ready.data.fd != listener)
			continue;
		/* Blobs are made anew for each: the address changes when a rail was reopened. */
		hello->address_bytes = hello->region_bytes = WEFT_BLOB_MAX;
		check(weft_engine_address(engine, hello->address, &hello->address_bytes), "weft_engine_address");
		check(weft_region_export(engine, kv, hello->region, &hello->region_bytes), "weft_region_export");
		fd = accept(listener, NULL, NULL);
		if (fd >= 0 && send(fd, hello, sizeof(*hello), MSG_NOSIGNAL) < 0)
			perror("telling a client");
		close(fd);
	}
}

/* ---- the prefill host ---- */

struct push {
	weft_engine *engine;
	weft_queue *queue;
	weft_region kv;
	weft_peer decode; /* 0: never met */
	weft_remote remote;
	const char *host, *port;
};

static int ask(const struct push *push, struct hello *hello)
{
	int fd = open_socket(push->host, push->port), whole;

	if (fd < 0)
		return 0;
	whole = recv(fd, hello, sizeof(*hello), MSG_WAITALL) == sizeof(*hello) &&
		hello->address_bytes <= WEFT_BLOB_MAX && hello->region_bytes <= WEFT_BLOB_MAX;
	close(fd);
	return whole;
}

/* Finds the server, whichever incarnation of it lives now. What was imported from the last one is refused from here on. */
static void meet(struct push *push)
{
	struct hello *hello = malloc(sizeof(*hello));
	time_t limit = time(NULL) + BACK_WITHIN_S;

	while (!ask(push, hello)) {
		if (time(NULL) > limit) {
			fprintf(stderr, "nobody serves at %s:%s\n", push->host, push->port);
			exit(1);
		}
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	}
	if (push->remote)
		weft_remote_close(push->engine, push->remote);
	if (push->decode)
		check(weft_peer_replace(push->engine, push->decode, hello->address, hello->address_bytes),
		      "weft_peer_replace");
	else
		check(weft_peer_add(push->engine, hello->address, hello->address_bytes, NULL, &push->decode),
		      "weft_peer_add");
	check(weft_remote_import(push->engine, push->decode, hello->region, hello->region_bytes, &push->remote),
	      "weft_remote_import");
	free(hello);
}

/* One layer: its pages in reverse order, checked at the receiver. */
static int push_layer(struct push *push, uint64_t layer)
{
	uint32_t to[PAGES];
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = PAGE,
					  .count = PAGES,
					  .from = push->kv,
					  .to = push->remote,
					  .to_index = to };
	struct weft_op op = { .size = sizeof(op),
			      .queue = push->queue,
			      .tag = layer,
			      .timeout_ns = 5 * WEFT_SECOND,
			      .flags = WEFT_CHECKSUM,
			      .notify = WEFT_NOTIFY_FENCED,
			      .notify_tag = layer };
	struct weft_event event;
	int status;

	for (uint32_t i = 0; i < PAGES; i++)
		to[i] = PAGES - 1 - i;
	status = weft_write_pages(push->engine, &pages, &op, NULL);
	while (!status) {
		check(weft_queue_wait(push->queue, &event, sizeof(event), 1, WEFT_FOREVER), "weft_queue_wait");
		weft_event_release(&event);
		if (event.type == WEFT_EVENT_END && event.tag == layer)
			return event.status;
	}
	return status;
}

static int push_layers(struct push *push, char *memory, uint64_t layers)
{
	meet(push);
	for (uint64_t layer = 0; layer < layers;) {
		int status;

		memset(memory, (int)(layer % 100), (size_t)PAGES * PAGE);
		status = push_layer(push, layer);
		if (!status) {
			printf("layer %llu is there\n", (unsigned long long)layer++);
			continue;
		}
		/* Dead, restarted, or found to be by us first: meet the next one and write the layer again. */
		if (status != -EHOSTDOWN && status != -ESTALE && status != -ETIMEDOUT)
			check(status, "a layer");
		printf("layer %llu: %s; looking for the server\n", (unsigned long long)layer, weft_strerror(status));
		meet(push);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct push push = { 0 };
	char *memory;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc >= 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2], argv + 3);
	if (argc < 5 || strcmp(argv[1], "push")) {
		fprintf(stderr,
			"usage: kv serve PORT [PROVIDER [RAILS]] | kv push HOST PORT LAYERS [PROVIDER [RAILS]]\n");
		return 2;
	}
	push.host = argv[2];
	push.port = argv[3];
	push.engine = open_engine(argv + 5);
	memory = malloc((size_t)PAGES * PAGE);
	check(weft_queue_open(push.engine, WEFT_QUEUE_LISTEN, &push.queue), "weft_queue_open");
	check(weft_region_register(push.engine, memory, (uint64_t)PAGES * PAGE, 0, &push.kv), "weft_region_register");
	push_layers(&push, memory, strtoull(argv[4], NULL, 10));
	weft_engine_close(push.engine);
	free(memory);
	return 0;
}
