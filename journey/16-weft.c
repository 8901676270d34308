/*
 * The work of 09 to 15 with libweft: no NIC, no queue, no thread in sight.
 *
 *   build/journey/16-weft [--page BYTES] [--pages N] [--ms N] [--nics N] [--workers N] [--no-check] [--provider NAME | --sim MACHINE]
 *                         [--from ADDRESS,...] [--listen PORT | --connect HOST:PORT]
 */
#include "bench.h"

#include <time.h>
#include <weft.h>

enum { MANY = 1024, AT_ONCE = 4 };

static void must(int result, const char *what)
{
	if (result < 0)
		die("%s: %s", what, weft_strerror(result));
}

static double process_cpu_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A blob is any bytes the other side needs; it travels by our socket. */
static size_t swap(const struct pair *pair, const void *ours, size_t bytes, void *theirs)
{
	uint64_t length = bytes;

	pair_send(pair, &length, sizeof(length));
	pair_send(pair, ours, bytes);
	pair_receive(pair, &length, sizeof(length));
	if (length > WEFT_BLOB_MAX)
		die("the other side's blob is too long");
	pair_receive(pair, theirs, length);
	return length;
}

/* Over tcp the addresses name the rails; on one host every address of the loopback device can be one. */
static void list_rails(const struct pair *pair, uint64_t nics, char *text, size_t room)
{
	size_t used = (size_t)snprintf(text, room, "%s", pair->from ? pair->from : pair->source);
	bool loopback = !strcmp(text, "127.0.0.1");

	for (uint64_t i = 2; i <= nics && i < 250 && loopback && used + 16 < room; i++)
		used += (size_t)snprintf(text + used, room - used, ",127.0.0.%u", (unsigned)i);
}

static weft_engine *open_engine(const struct pair *pair, uint64_t workers, uint64_t nics, double *ret_line)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	struct weft_engine_info info = { 0 };
	weft_engine *engine;
	char rails[1024];

	config.provider = pair->provider;
	config.max_workers = (uint32_t)workers;
	config.max_rails = (uint32_t)nics;
	list_rails(pair, nics, rails, sizeof(rails));
	config.rails = strcmp(pair->provider, "tcp") ? NULL : rails;
	must(weft_engine_open(&config, &engine, NULL, 0), "weft_engine_open");
	must(weft_engine_info(engine, &info, sizeof(info)), "weft_engine_info");
	for (uint32_t i = 0; i < info.rails; i++) {
		struct weft_rail_info rail = { 0 };

		must(weft_rail_info(engine, i, &rail, sizeof(rail)), "weft_rail_info");
		*ret_line += (double)rail.link_bps;
	}
	return engine;
}

/* guide: weft */
static uint64_t write_for(weft_engine *engine, weft_queue *queue, const struct weft_write_pages *pages, uint64_t ms)
{
	struct weft_op op = { .size = sizeof(op), .queue = queue };
	uint64_t end = now_ns() + ms * 1000000, done = 0;
	struct weft_event event = { 0 };
	int in_flight = 0;

	while (now_ns() < end || in_flight) {
		for (; in_flight < AT_ONCE && now_ns() < end; in_flight++)
			must(weft_write_pages(engine, pages, &op, NULL), "weft_write_pages");
		must(weft_queue_wait(queue, &event, sizeof(event), 1, WEFT_SECOND), "weft_queue_wait");
		if (event.type == WEFT_EVENT_END) {
			must(event.status, "a transfer");
			in_flight--;
			done += pages->count;
		}
		weft_event_release(&event);
		event.type = WEFT_EVENT_NONE;
	}
	return done;
}
/* guide end */

static struct result measure(weft_engine *engine, weft_queue *queue, const struct work *work, uint64_t ms,
			     weft_region from, weft_remote to)
{
	struct result result = { .page_bytes = work->page_bytes };
	struct weft_engine_info info = { 0 };
	uint32_t count = work->pages < MANY ? (uint32_t)work->pages : MANY,
		 *indices = calloc(2 * count, sizeof(*indices));
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = work->page_bytes,
					  .count = count,
					  .from = from,
					  .to = to,
					  .from_index = indices,
					  .to_index = indices + count };
	uint64_t start;
	double cpu;

	if (!indices)
		die("no memory");
	for (uint32_t i = 0; i < count; i++) {
		indices[i] = i;
		indices[count + i] = (uint32_t)(work_page(work, i).to / work->page_bytes);
	}
	write_for(engine, queue, &pages, 1); /* the first contact is no part of it */
	start = now_ns();
	cpu = process_cpu_s();
	result.writes = write_for(engine, queue, &pages, ms);
	result.cpu_s = process_cpu_s() - cpu;
	result.wall_s = (double)(now_ns() - start) / 1e9;
	must(weft_engine_info(engine, &info, sizeof(info)), "weft_engine_info");
	result.workers = (int)info.workers;
	result.nics = (int)info.rails;
	free(indices);
	return result;
}

int main(int argc, char **argv)
{
	struct pair pair = pair_start(&argc, argv);
	struct work work = work_prepare(argc, argv, pair.starts);
	static char ours[WEFT_BLOB_MAX], address[WEFT_BLOB_MAX], region[WEFT_BLOB_MAX];
	size_t bytes = sizeof(ours), address_bytes, region_bytes;
	weft_engine *engine;
	weft_queue *queue;
	weft_region memory;
	double line = 0;
	int failed = 0;

	engine = open_engine(&pair, option(argc, argv, "--workers", 0), option(argc, argv, "--nics", 0), &line);
	must(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	must(weft_region_register(engine, work.memory, work.bytes, WEFT_REMOTE_WRITE, &memory), "weft_region_register");
	must(weft_engine_address(engine, ours, &bytes), "weft_engine_address");
	address_bytes = swap(&pair, ours, bytes, address);
	bytes = sizeof(ours);
	must(weft_region_export(engine, memory, ours, &bytes), "weft_region_export");
	region_bytes = swap(&pair, ours, bytes, region);
	if (pair.starts) {
		struct result result;
		weft_peer peer;
		weft_remote remote;

		must(weft_peer_add(engine, address, address_bytes, NULL, &peer), "weft_peer_add");
		must(weft_remote_import(engine, peer, region, region_bytes, &remote), "weft_remote_import");
		result = measure(engine, queue, &work, option(argc, argv, "--ms", 300), memory, remote);
		result.line_bps = line;
		failed = target_judge(&pair, result.writes < work.pages ? 0 : result.writes);
		result_print(&result, argc, argv);
	} else {
		target_wait(&pair, &work); /* its engine needs no help */
	}
	weft_engine_close(engine);
	return pair.starts ? pair_end(&pair) | failed : 0;
}
