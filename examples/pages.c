/*
 * Writes 1,000 pages of 64 KiB from one process into random places of another and tells it when they have landed.
 * The blobs travel over a socketpair here; any means will do.
 *
 *   build/examples/pages [PROVIDER]        tcp by default, on 127.0.0.1
 */
#include <weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 65536, PAGES = 1000, LAYER = 7 };

struct blob {
	size_t bytes;
	char data[8192];
};

static void check(int status, const char *what)
{
	const char *hint = weft_error_hint(status);

	if (status >= 0)
		return;
	fprintf(stderr, "%s: %s%s%s\n", what, weft_strerror(status), hint ? "; " : "", hint ? hint : "");
	exit(1);
}

static weft_engine *open_engine(const char *provider)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	weft_engine *engine;

	config.provider = provider;
	if (!strcmp(provider, "tcp"))
		config.rails = "127.0.0.1";
	check(weft_engine_open(&config, &engine, NULL, 0), "weft_engine_open");
	return engine;
}

static void give(int fd, const struct blob *blob)
{
	if (write(fd, blob, sizeof(*blob)) != sizeof(*blob))
		exit(1);
}

static void take(int fd, struct blob *blob)
{
	if (recv(fd, blob, sizeof(*blob), MSG_WAITALL) != sizeof(*blob))
		exit(1);
}

/* The decode host: memory to write to, and a queue that says when a layer is there. */
static int receive(const char *provider, int fd)
{
	struct blob address = { .bytes = sizeof(address.data) }, region = address;
	weft_engine *engine = open_engine(provider);
	char *memory = calloc(PAGES, PAGE);
	struct weft_event event;
	weft_queue *queue;
	weft_region kv;
	long right = 0;
	int got;

	check(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	check(weft_region_register(engine, memory, (uint64_t)PAGES * PAGE, WEFT_REMOTE_WRITE, &kv),
	      "weft_region_register");
	check(weft_engine_address(engine, address.data, &address.bytes), "weft_engine_address");
	check(weft_region_export(engine, kv, region.data, &region.bytes), "weft_region_export");
	give(fd, &address);
	give(fd, &region);
	while ((got = weft_queue_wait(queue, &event, sizeof(event), 1, 10 * WEFT_SECOND)) == 1 &&
	       event.type != WEFT_EVENT_NOTIFY)
		weft_event_release(&event);
	if (got != 1)
		return 1;
	for (long page = 0; page < PAGES; page++)
		right += memory[page * PAGE] == (char)page && memory[page * PAGE + PAGE - 1] == (char)page;
	printf("layer %llu has landed: %ld of %d pages are right\n", (unsigned long long)event.tag, right, PAGES);
	weft_event_release(&event);
	weft_engine_close(engine);
	free(memory);
	return right != PAGES;
}

/* The prefill host: page i of ours goes to page to[i] of theirs. */
static int send_pages(const char *provider, int fd)
{
	weft_engine *engine = open_engine(provider);
	char *memory = malloc((size_t)PAGES * PAGE);
	uint32_t from[PAGES], to[PAGES];
	struct weft_event event;
	struct blob blob;
	weft_queue *queue;
	weft_region kv;
	weft_remote remote;
	weft_peer decode;
	int done = 0;

	for (uint32_t i = 0; i < PAGES; i++) {
		from[i] = i;
		to[i] = i * 7 % PAGES;
		memset(memory + (size_t)i * PAGE, (int)to[i], PAGE);
	}
	check(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	check(weft_region_register(engine, memory, (uint64_t)PAGES * PAGE, 0, &kv), "weft_region_register");
	take(fd, &blob);
	check(weft_peer_add(engine, blob.data, blob.bytes, NULL, &decode), "weft_peer_add");
	take(fd, &blob);
	check(weft_remote_import(engine, decode, blob.data, blob.bytes, &remote), "weft_remote_import");

	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = PAGE,
					  .count = PAGES,
					  .from = kv,
					  .from_index = from,
					  .to = remote,
					  .to_index = to };
	struct weft_op op = { .size = sizeof(op),
			      .queue = queue,
			      .tag = 1,
			      .timeout_ns = 5 * WEFT_SECOND,
			      .notify = WEFT_NOTIFY_FENCED,
			      .notify_tag = LAYER };
	check(weft_write_pages(engine, &pages, &op, NULL), "weft_write_pages");
	while (!done) {
		check(weft_queue_wait(queue, &event, sizeof(event), 1, WEFT_FOREVER), "weft_queue_wait");
		if (event.type == WEFT_EVENT_END) {
			check(event.status, "the write");
			printf("%llu bytes written\n", (unsigned long long)event.bytes);
			done = 1;
		}
		weft_event_release(&event);
	}
	weft_engine_close(engine);
	free(memory);
	return 0;
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "tcp";
	int fds[2], status, result;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) || (child = fork()) < 0)
		return 1;
	if (!child) {
		close(fds[0]);
		return receive(provider, fds[1]);
	}
	close(fds[1]);
	result = send_pages(provider, fds[0]);
	waitpid(child, &status, 0);
	return result || status;
}
