/*
 * src/device/ and src/local/ on a real card, without libfabric, hwloc or a test library: what the driver says of memory, the page
 * kernel against a loop of the CPU, and a second process over the local rail; then how fast each is. tests/gpu/run builds and runs
 * it. Exit 77: there is no card.
 */
#include "base/time.h"
#include "device/cuda.h"
#include "local/local.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_NS (20 * WF_S)
#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* What weft itself does not call. */
struct allocation {
	int type, handles;
	struct cu_location location;
	void *other;
	uint64_t flags;
};
static struct {
	cu_result (*init)(unsigned int flags);
	cu_result (*count)(int *ret_count);
	cu_result (*retain)(cu_context *ret_context, cu_device device);
	cu_result (*current)(cu_context context);
	cu_result (*alloc)(cu_pointer *ret_pointer, size_t bytes);
	cu_result (*put)(cu_pointer to, const void *from, size_t bytes);
	cu_result (*get)(void *to, cu_pointer from, size_t bytes);
	cu_result (*granularity)(size_t *ret_bytes, const struct allocation *allocation, int option);
	cu_result (*create)(cu_handle *ret_handle, size_t bytes, const struct allocation *allocation,
			    unsigned long long flags);
	cu_result (*reserve)(cu_pointer *ret, size_t bytes, size_t alignment, cu_pointer address,
			     unsigned long long flags);
	cu_result (*map)(cu_pointer pointer, size_t bytes, size_t offset, cu_handle handle, unsigned long long flags);
	cu_result (*access)(cu_pointer pointer, size_t bytes, const struct cu_access *access, size_t count);
} cuda;

static const struct wf_log quiet;
static struct wf_devices *devices;

static void start(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	cu_context context;
	int count = 0;

	if (!library) {
		printf("skipped: no driver here: %s\n", dlerror());
		exit(77);
	}
#define FIND(field, name) CHECK(*(void **)&cuda.field = dlsym(library, name))
	FIND(init, "cuInit");
	FIND(count, "cuDeviceGetCount");
	FIND(retain, "cuDevicePrimaryCtxRetain");
	FIND(current, "cuCtxPushCurrent_v2");
	FIND(alloc, "cuMemAlloc_v2");
	FIND(put, "cuMemcpyHtoD_v2");
	FIND(get, "cuMemcpyDtoH_v2");
	FIND(granularity, "cuMemGetAllocationGranularity");
	FIND(create, "cuMemCreate");
	FIND(reserve, "cuMemAddressReserve");
	FIND(map, "cuMemMap");
	FIND(access, "cuMemSetAccess");
	if (cuda.init(0) || cuda.count(&count) || !count) {
		printf("skipped: the driver finds no card\n");
		exit(77);
	}
	CHECK(!cuda.retain(&context, 0) && !cuda.current(context));
	CHECK(devices = wf_devices_make(&quiet));
}

static char *plain(size_t bytes)
{
	cu_pointer pointer;

	CHECK(!cuda.alloc(&pointer, bytes));
	return (char *)(uintptr_t)pointer;
}

/* Two allocations side by side, as torch's expandable segments have them. */
static char *virtual(size_t bytes)
{
	struct allocation allocation = { 1, CU_HANDLE_FILE, { CU_LOCATION_DEVICE, 0 }, NULL, 0 };
	struct cu_access access = { { CU_LOCATION_DEVICE, 0 }, CU_ACCESS_READWRITE };
	size_t least, part;
	cu_pointer at;
	cu_handle handle;

	CHECK(!cuda.granularity(&least, &allocation, 0));
	part = (bytes / 2 + least - 1) / least * least;
	CHECK(!cuda.reserve(&at, 2 * part, 0, 0, 0));
	for (int i = 0; i < 2; i++)
		CHECK(!cuda.create(&handle, part, &allocation, 0) &&
		      !cuda.map(at + (size_t)i * part, part, 0, handle, 0));
	CHECK(!cuda.access(at, 2 * part, &access, 1));
	return (char *)(uintptr_t)at;
}

static struct wf_device_memory *probe(char *at, size_t bytes)
{
	struct wf_device_memory *memory;
	enum wf_device_kind kind;

	CHECK(!wf_device_probe(devices, at, bytes, &kind, &memory));
	CHECK(kind == WF_DEVICE_CARD && memory);
	return memory;
}

static void fill(char *bytes, size_t count, uint32_t seed)
{
	for (size_t i = 0; i < count; i++)
		bytes[i] = (char)((i * 2654435761u + seed) >> 13);
}

static void wait_for(struct wf_copier *copier, int flight)
{
	uint64_t until = wf_now_ns() + LIMIT_NS;
	int error;

	while ((error = wf_copier_look(copier, flight)) == -EAGAIN)
		CHECK(wf_now_ns() < until);
	if (error)
		printf("the card: %s\n", wf_copier_error(copier));
	CHECK(!error);
}

/* ---- one process ---- */

static void facts(char *a, char *b, size_t bytes)
{
	static char host[100];
	struct wf_device_memory *memory;
	enum wf_device_kind kind;
	char *all[] = { a, b };

	CHECK(!wf_device_probe(devices, host, sizeof(host), &kind, &memory) && kind == WF_DEVICE_HOST && !memory);
	for (int i = 0; i < 2; i++) {
		memory = probe(all[i] + 4096, bytes - 8192);
		printf("%s: card %s, %u allocations, handed over by %s, dmabuf %d, foreign %d, page kernel %s\n",
		       i ? "cuMemCreate" : "cuMemAlloc", wf_card_pci(memory->card), memory->count,
		       memory->part[0].way == WF_WAY_IPC    ? "handle"
		       : memory->part[0].way == WF_WAY_FILE ? "descriptor"
							    : "nothing",
		       memory->dmabuf, memory->foreign, memory->card->module ? "loaded" : "NOT LOADED");
		CHECK(memory->card->module);
		CHECK(memory->count == (i ? 2u : 1u) && wf_device_memory_same(memory) && !memory->foreign);
		wf_device_memory_free(memory);
	}
}

static void kernel_is_right(char *a, char *b)
{
	static const uint64_t sizes[] = { 1, 4, 100, 1024, 4112, 200000, 1 << 20 };
	enum { PAGES = 40 };
	size_t room = (size_t)PAGES * ((1 << 20) + 32);
	char *from = malloc(room), *expected = malloc(room), *got = malloc(room);
	struct wf_device_memory *memory = probe(a, room);
	uint32_t to_index[PAGES], from_index[PAGES];
	struct wf_copier *copier;

	CHECK(from && expected && got && !wf_copier_open(memory->card, &copier));
	for (uint32_t i = 0; i < PAGES; i++) {
		to_index[i] = i * 17 % PAGES;
		from_index[i] = i * 23 % PAGES;
	}
	fill(from, room, 1);
	CHECK(!cuda.put((uintptr_t)a, from, room));
	for (int round = 0; round < 28; round++) {
		struct wf_device_pages pages = { .to = b + round % 2,
						 .from = a,
						 .to_index = round & 2 ? to_index : NULL,
						 .from_index = from_index,
						 .page_bytes = sizes[round % 7],
						 .first = (uint64_t)round % 3,
						 .count = PAGES - 3 };
		int flight = wf_copier_take(copier);

		pages.to_stride = pages.from_stride = pages.page_bytes;
		memset(expected, round, room);
		CHECK(!cuda.put((uintptr_t)b, expected, room));
		for (uint64_t i = pages.first; i < pages.first + pages.count; i++)
			memcpy(expected + round % 2 + (pages.to_index ? to_index[i] : i) * pages.page_bytes,
			       from + from_index[i] * pages.page_bytes, pages.page_bytes);
		CHECK(!wf_copier_pages(copier, flight, &pages) && !wf_copier_launch(copier, flight));
		wait_for(copier, flight);
		wf_copier_give(copier, flight);
		CHECK(!cuda.get(got, (uintptr_t)b, room));
		CHECK(!memcmp(got, expected, room));
	}
	printf(
	    "the page kernel copies what a loop copies: 7 sizes of page, with and without lists, in and out of line\n");
	wf_copier_close(copier);
	wf_device_memory_free(memory);
	free(from);
	free(expected);
	free(got);
}

static void kernel_speed(char *a, char *b, size_t bytes)
{
	struct wf_device_memory *memory = probe(a, bytes);
	uint32_t *lists = malloc(2 * WF_DEVICE_LISTED * sizeof(*lists));
	struct wf_copier *copier;

	CHECK(lists && !wf_copier_open(memory->card, &copier));
	for (uint64_t page = 4096; page <= 1 << 20; page *= 16) {
		uint64_t pages = bytes / page, most = pages < WF_DEVICE_LISTED ? pages : WF_DEVICE_LISTED, began,
			 moved = 0;

		for (uint64_t i = 0; i < most; i++) {
			lists[i] = (uint32_t)(i * 7919 % pages);
			lists[WF_DEVICE_LISTED + i] = (uint32_t)(i * 104729 % pages);
		}
		began = wf_now_ns();
		while (wf_now_ns() - began < WF_S / 5) {
			int flights[WF_DEVICE_FLIGHTS];

			for (uint32_t i = 0; i < WF_DEVICE_FLIGHTS; i++) {
				struct wf_device_pages list = { .to = b,
								.from = a,
								.to_index = lists,
								.from_index = lists + WF_DEVICE_LISTED,
								.to_stride = page,
								.from_stride = page,
								.page_bytes = page,
								.count = most };

				flights[i] = wf_copier_take(copier);
				CHECK(!wf_copier_pages(copier, flights[i], &list) &&
				      !wf_copier_launch(copier, flights[i]));
				moved += most * page;
			}
			for (uint32_t i = 0; i < WF_DEVICE_FLIGHTS; i++) {
				wait_for(copier, flights[i]);
				wf_copier_give(copier, flights[i]);
			}
		}
		printf("pages of %7llu bytes, card to card, one launch per %llu: %.0f GB/s\n", (unsigned long long)page,
		       (unsigned long long)most, (double)moved / (double)(wf_now_ns() - began));
	}
	wf_copier_close(copier);
	wf_device_memory_free(memory);
	free(lists);
}

/* ---- two processes ---- */

struct offer {
	uint8_t address[WF_LOCAL_ADDRESS];
	uint64_t key, base;
};

static struct wf_local *open_rail(void)
{
	struct wf_local *local;

	CHECK(!wf_local_open(1, &quiet, &local) && !wf_local_listen(local));
	wf_local_use_devices(local, devices);
	return local;
}

/* Owns memory until its standard input ends. */
static int own(size_t bytes, bool spread)
{
	struct wf_device_memory *memory;
	struct wf_local *local;
	struct wf_local_end end[8];
	struct offer offer;
	char *at, byte;

	start();
	local = open_rail();
	at = spread ? virtual(bytes) : plain(bytes);
	memory = probe(at, bytes);
	CHECK(!wf_local_register_device(local, memory, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, &offer.key));
	wf_local_address(local, offer.address);
	offer.base = (uintptr_t)at;
	CHECK(write(3, &offer, sizeof(offer)) == sizeof(offer));
	CHECK(!fcntl(0, F_SETFL, O_NONBLOCK));
	while (read(0, &byte, 1) < 0)
		wf_local_poll(local, end, 8);
	wf_local_close(local);
	wf_device_memory_free(memory);
	wf_devices_close(devices);
	return 0;
}

/* Posts until the time has passed and waits for the ends. Returns bytes per nanosecond. */
static double move(struct wf_local *local, const struct wf_local_run *run, struct wf_local_copy *copy, uint64_t for_ns)
{
	uint64_t began = wf_now_ns(), posted = 0, ended = 0;
	struct wf_local_end end[16];
	int error, got;

	while (!posted || wf_now_ns() - began < for_ns || ended < posted) {
		if (!posted || (wf_now_ns() - began < for_ns && posted - ended < 4)) {
			error = wf_local_begin(local, run);
			if (!error)
				error = wf_local_post(local, run, copy);
			posted += !error;
			if (error && error != -EAGAIN)
				printf("posting: %s\n", strerror(-error));
			CHECK(!error || error == -EAGAIN);
		}
		got = wf_local_poll(local, end, 16);
		for (int i = 0; i < got; i++) {
			CHECK(!end[i].status);
			ended++;
		}
		CHECK(wf_now_ns() - began < for_ns + LIMIT_NS);
	}
	return (double)(posted * copy->bytes) / (double)(wf_now_ns() - began);
}

static void between_processes(const char *self, char *a, size_t bytes, bool spread)
{
	int down[2], up[2];
	char text[32], *host = malloc(bytes), *back = malloc(bytes);
	struct wf_device_memory *memory = probe(a, bytes);
	struct wf_local *local = open_rail();
	struct wf_local_copy copy = { .context = &copy, .local = a, .bytes = bytes };
	struct wf_local_run run = { .cards = true, .near = memory }, plainly = { .cards = true };
	uint32_t lists[1024];
	struct wf_page_list list = { lists, lists + 512, 65536, 65536, 65536 };
	struct offer offer;
	pid_t child;
	int status;

	CHECK(host && back && !pipe(down) && !pipe(up));
	snprintf(text, sizeof(text), "%zu", bytes);
	child = fork();
	if (!child) {
		dup2(down[0], 0);
		dup2(up[1], 3);
		close(down[1]);
		execl(self, self, spread ? "--own-spread" : "--own", text, (char *)NULL);
		_exit(1);
	}
	close(up[1]);
	close(down[0]);
	CHECK(read(up[0], &offer, sizeof(offer)) == sizeof(offer));
	CHECK(!wf_local_insert(local, 0, offer.address, sizeof(offer.address), &run.target));
	run.key = plainly.key = offer.key;
	plainly.target = run.target;
	copy.remote = offer.base;
	fill(host, bytes, 3);
	CHECK(!cuda.put((uintptr_t)a, host, bytes));
	move(local, &run, &copy, 0);
	copy.local = back;
	plainly.read = true;
	move(local, &plainly, &copy, 0); /* through chunks */
	CHECK(!memcmp(back, host, bytes));
	plainly.read = false;
	printf("%s of another process: right; CPU to card %.1f GB/s",
	       spread ? "cuMemCreate memory" : "cuMemAlloc memory", move(local, &plainly, &copy, WF_S / 5));
	plainly.read = true;
	printf(", card to CPU %.1f", move(local, &plainly, &copy, WF_S / 5));
	copy.local = a;
	printf(", card to card %.0f", move(local, &run, &copy, WF_S / 5));
	for (uint32_t i = 0; i < 512; i++) {
		lists[i] = (uint32_t)(i * 13 % (bytes / 65536));
		lists[512 + i] = (uint32_t)(i * 29 % (bytes / 65536));
	}
	run.list = &list;
	copy.bytes = 512 * 65536;
	printf(", 512 pages of 64 KiB per launch %.0f\n", move(local, &run, &copy, WF_S / 5));
	close(down[1]);
	wf_local_close(local);
	CHECK(waitpid(child, &status, 0) == child && !status);
	close(up[0]);
	wf_device_memory_free(memory);
	free(host);
	free(back);
}

int main(int argc, char **argv)
{
	size_t bytes = (size_t)(argc == 2 ? atoi(argv[1]) : 1024) << 20;
	char *a, *b;

	if (argc == 3)
		return own((size_t)atol(argv[2]), !strcmp(argv[1], "--own-spread"));
	setvbuf(stdout, NULL, _IOLBF, 0);
	start();
	a = plain(bytes);
	b = virtual(bytes);
	facts(a, b, bytes);
	kernel_is_right(a, b);
	kernel_speed(a, b, bytes);
	for (int spread = 0; spread < 2; spread++)
		between_processes("/proc/self/exe", a, 64u << 20, spread);
	wf_devices_close(devices);
	printf("ok\n");
	return 0;
}
