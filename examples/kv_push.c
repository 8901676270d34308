/*
 * A prefill host pushes the KV-cache of a request layer by layer; the decode host starts on a layer as soon as that layer's fenced
 * notification says that every page of it has landed.
 *
 *   build/examples/kv_push [PROVIDER]
 */
#include "common.h"

enum { PAGE = 16384, PAGES_PER_LAYER = 32, LAYERS = 4, SLOTS = 256, REQUEST = 7001 };

/* The decode host gave us these slots for the request; they are anywhere in its cache. */
static uint32_t slot_of(int layer, uint32_t page)
{
	return ((uint32_t)layer * PAGES_PER_LAYER + page) * 37 % SLOTS;
}

static int prefill(int fd, const char *provider)
{
	size_t bytes = (size_t)LAYERS * PAGES_PER_LAYER * PAGE;
	char *cache = malloc(bytes);
	weft_engine *engine = open_engine(provider);
	weft_region region;
	weft_queue *queue;
	weft_remote slots;

	must(weft_queue_open(engine, 0, &queue), "weft_queue_open");
	must(weft_region_register(engine, cache, bytes, 0, &region), "weft_region_register");
	slots = take_remote(fd, engine, take_peer(fd, engine));
	for (int layer = 0; layer < LAYERS; layer++) {
		uint32_t from[PAGES_PER_LAYER], to[PAGES_PER_LAYER], request = REQUEST;

		/* The model computes this layer; then it is on its way while the next one is computed. */
		memset(cache + (size_t)layer * PAGES_PER_LAYER * PAGE, 'a' + layer, (size_t)PAGES_PER_LAYER * PAGE);
		for (uint32_t i = 0; i < PAGES_PER_LAYER; i++) {
			from[i] = (uint32_t)layer * PAGES_PER_LAYER + i;
			to[i] = slot_of(layer, i);
		}
		struct weft_write_pages pages = { .size = sizeof(pages),
						  .page_bytes = PAGE,
						  .count = PAGES_PER_LAYER,
						  .from = region,
						  .from_index = from,
						  .to = slots,
						  .to_index = to };
		struct weft_op op = { .size = sizeof(op),
				      .queue = queue,
				      .tag = (uint64_t)layer,
				      .timeout_ns = 20 * WEFT_SECOND,
				      .notify = WEFT_NOTIFY_FENCED,
				      .notify_tag = (uint64_t)layer,
				      .notify_payload = &request,
				      .notify_bytes = sizeof(request) };

		must(weft_write_pages(engine, &pages, &op, NULL), "weft_write_pages");
	}
	for (int ended = 0; ended < LAYERS; ended++) {
		struct weft_event event;

		await(queue, WEFT_EVENT_END, &event);
		must(event.status, "a layer"); /* its memory is ours again */
		weft_event_release(&event);
	}
	printf("prefill: %d layers pushed\n", LAYERS);
	weft_engine_close(engine);
	free(cache);
	return 0;
}

static int layer_is_whole(const char *cache, int layer)
{
	for (uint32_t i = 0; i < PAGES_PER_LAYER; i++)
		for (size_t b = 0; b < PAGE; b++)
			if (cache[(size_t)slot_of(layer, i) * PAGE + b] != 'a' + layer)
				return 0;
	return 1;
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "tcp";
	struct other prefill_host = start(prefill, provider);
	char *cache = calloc(SLOTS, PAGE);
	weft_engine *engine = open_engine(provider);
	weft_region region;
	weft_queue *queue;
	int whole = 0;

	must(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	must(weft_region_register(engine, cache, (uint64_t)SLOTS * PAGE, WEFT_REMOTE_WRITE, &region),
	     "weft_region_register");
	give_address(prefill_host.fd, engine);
	give_region(prefill_host.fd, engine, region);
	for (int layers = 0; layers < LAYERS; layers++) {
		struct weft_event event;
		uint32_t request = 0;

		await(queue, WEFT_EVENT_NOTIFY, &event);
		if (event.bytes == sizeof(request))
			memcpy(&request, event.data, sizeof(request));
		whole += request == REQUEST && layer_is_whole(cache, (int)event.tag);
		weft_event_release(&event);
	}
	printf("decode: %d of %d layers are here, every byte\n", whole, LAYERS);
	whole = finish(&prefill_host) ? 0 : whole;
	weft_engine_close(engine);
	free(cache);
	return whole != LAYERS;
}
