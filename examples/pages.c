/*
 * Writes 1,000 pages of 64 KiB from one process into random places of another and tells it when they have landed. Every call is
 * checked. The blobs travel over a socketpair here; any means will do.
 *
 *   build/examples/pages [PROVIDER]        tcp by default, on 127.0.0.1
 */
#include "common.h"

enum { PAGE = 65536, PAGES = 1000, LAYER = 7 };

/* The decode host: memory to write to, and a queue that says when a layer is there. */
static int receive(int fd, const char *provider)
{
	weft_engine *engine = open_engine(provider);
	char *memory = calloc(PAGES, PAGE);
	struct weft_event event;
	weft_queue *queue;
	weft_region kv;
	long right = 0;

	must(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	must(weft_region_register(engine, memory, (uint64_t)PAGES * PAGE, WEFT_REMOTE_WRITE, &kv),
	     "weft_region_register");
	give_address(fd, engine);
	give_region(fd, engine, kv);
	await(queue, WEFT_EVENT_NOTIFY, &event);
	for (long page = 0; page < PAGES; page++)
		right += memory[page * PAGE] == (char)page && memory[page * PAGE + PAGE - 1] == (char)page;
	printf("layer %llu has landed: %ld of %d pages are right\n", (unsigned long long)event.tag, right, PAGES);
	weft_event_release(&event);
	weft_engine_close(engine);
	free(memory);
	return right != PAGES;
}

/* The prefill host: page i of ours goes to page to[i] of theirs. */
static void send_pages(int fd, const char *provider)
{
	weft_engine *engine = open_engine(provider);
	char *memory = malloc((size_t)PAGES * PAGE);
	uint32_t from[PAGES], to[PAGES];
	struct weft_event event;
	weft_remote remote;
	weft_queue *queue;
	weft_region kv;

	for (uint32_t i = 0; i < PAGES; i++) {
		from[i] = i;
		to[i] = i * 7 % PAGES;
		memset(memory + (size_t)i * PAGE, (int)to[i], PAGE);
	}
	must(weft_queue_open(engine, 0, &queue), "weft_queue_open");
	must(weft_region_register(engine, memory, (uint64_t)PAGES * PAGE, 0, &kv), "weft_region_register");
	remote = take_remote(fd, engine, take_peer(fd, engine));

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
			      .timeout_ns = 20 * WEFT_SECOND,
			      .notify = WEFT_NOTIFY_FENCED,
			      .notify_tag = LAYER };
	must(weft_write_pages(engine, &pages, &op, NULL), "weft_write_pages");
	await(queue, WEFT_EVENT_END, &event);
	must(event.status, "the write");
	printf("%llu bytes written\n", (unsigned long long)event.bytes);
	weft_event_release(&event);
	weft_engine_close(engine);
	free(memory);
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "tcp";
	struct other decode = start(receive, provider);

	send_pages(decode.fd, provider);
	return finish(&decode);
}
