/*
 * The snippet of README.md, as a program: what stands there are the lines between the marks here, which a test compares. Two
 * processes do the same, each writes its pages into the other and waits until it was written to.
 *
 *   build/examples/snippet [PROVIDER]        tcp by default, on 127.0.0.1
 */
/* README */
#include <weft.h>

/* README end */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 65536, PAGES = 100, REQUEST = 1, LAYER = 7 };

static const uint64_t request = REQUEST, layer = LAYER;
static int done, told;

static void handle(const struct weft_event *event)
{
	if (event->status)
		fprintf(stderr, "%s\n", weft_strerror(event->status));
	if (event->type == WEFT_EVENT_END && event->tag == REQUEST && !event->status)
		done = 1;
	if (event->type == WEFT_EVENT_NOTIFY && event->tag == LAYER)
		told = 1;
}

/* What is ours to the other process, and the other's to us. */
static void swap(int fd, const void *ours, size_t bytes, void *theirs, size_t *ret_bytes)
{
	char buffer[WEFT_BLOB_MAX] = { 0 };

	memcpy(buffer, ours, bytes);
	if (write(fd, &bytes, sizeof(bytes)) != sizeof(bytes) || write(fd, buffer, sizeof(buffer)) != sizeof(buffer) ||
	    recv(fd, ret_bytes, sizeof(*ret_bytes), MSG_WAITALL) != sizeof(*ret_bytes) ||
	    recv(fd, theirs, WEFT_BLOB_MAX, MSG_WAITALL) != WEFT_BLOB_MAX)
		exit(1);
}

static int side(const char *provider, int fd, char mark)
{
	static char their_address[WEFT_BLOB_MAX], their_region[WEFT_BLOB_MAX];
	static uint32_t from[PAGES], to[PAGES];
	size_t their_address_bytes, their_region_bytes, bytes = 2 * PAGES * PAGE;
	char *base = malloc(bytes);

	/* Page i of the first half goes to a page of the other's second half. */
	memset(base, mark, bytes / 2);
	memset(base + bytes / 2, 0, bytes / 2);
	for (uint32_t i = 0; i < PAGES; i++) {
		from[i] = i;
		to[i] = PAGES + i * 7 % PAGES;
	}
	/* clang-format off */
	/* README */
	struct weft_config config = WEFT_CONFIG_INIT;           /* every field has a good default */
	/* README end */
	config.provider = provider;
	if (!strcmp(provider, "tcp"))
		config.rails = "127.0.0.1";
	/* README */
	weft_engine *engine;    weft_engine_open(&config, &engine, NULL, 0); /* 0 or a negative errno, as every call: look at them */
	weft_queue *queue;      weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue);
	weft_region kv;         weft_region_register(engine, base, bytes, WEFT_REMOTE_WRITE, &kv);

	/* two blobs for the other side; they travel by any means you have: a socket, etcd, a file */
	char address[WEFT_BLOB_MAX], region[WEFT_BLOB_MAX];
	size_t address_bytes = sizeof(address), region_bytes = sizeof(region);
	weft_engine_address(engine, address, &address_bytes);
	weft_region_export(engine, kv, region, &region_bytes);

	/* README end */
	swap(fd, address, address_bytes, their_address, &their_address_bytes);
	swap(fd, region, region_bytes, their_region, &their_region_bytes);
	/* README */
	weft_peer decode;       weft_peer_add(engine, their_address, their_address_bytes, NULL, &decode);
	weft_remote dst;        weft_remote_import(engine, decode, their_region, their_region_bytes, &dst);

	struct weft_write_pages pages = { .size = sizeof(pages), .page_bytes = PAGE, .count = PAGES,
	                                  .from = kv, .from_index = from, .to = dst, .to_index = to };
	struct weft_op op = { .size = sizeof(op), .queue = queue, .tag = request, .timeout_ns = 2 * WEFT_SECOND,
	                      .notify = WEFT_NOTIFY_FENCED, .notify_tag = layer };
	/* README end */
	op.timeout_ns = 20 * WEFT_SECOND;
	/* README */
	weft_write_pages(engine, &pages, &op, NULL);            /* returns at once */

	/* README end */
	for (int waits = 0; waits < 40 && !(done && told); waits++) {
		/* README */
		struct weft_event events[64];                           /* ends, messages, calls, notifications, peers up and down */
		int got = weft_queue_wait(queue, events, sizeof(*events), 64, WEFT_SECOND);
		for (int i = 0; i < got; i++) {
			handle(&events[i]);                             /* its type, tag and status */
			weft_event_release(&events[i]);
		}
		/* README end */
	}
	/* clang-format on */
	for (size_t i = bytes / 2; i < bytes && told; i++)
		told = base[i] == (mark == 'a' ? 'b' : 'a');
	printf("%c: %s, %s\n", mark, done ? "written" : "NOT WRITTEN",
	       told ? "all of the other's pages are here" : "PAGES ARE MISSING");
	swap(fd, "", 0, their_address, &their_address_bytes); /* the other has its end too before we go */
	weft_engine_close(engine);
	free(base);
	return !(done && told);
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "tcp";
	int fds[2], status, result;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) || (child = fork()) < 0)
		return 1;
	if (!child)
		return side(provider, fds[1], 'b');
	result = side(provider, fds[0], 'a');
	waitpid(child, &status, 0);
	return result || status;
}
