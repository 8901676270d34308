/*
 * What tests ask of the fake driver (fake-cuda/fake.h), on the real one: memory of each kind, and its contents. A real card is not
 * held, slowed or lost on request, and nothing is counted: fake_cuda_controls() says so. libcuda is loaded by name.
 */
#include "device/cuda.h"
#include "fake-cuda/fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCKS 256

struct wanted {
	int type, handles;
	struct cu_location location;
	void *other;
	uint64_t flags;
};

static struct {
	cu_result (*init)(unsigned int flags);
	cu_result (*device)(cu_device *ret_device, int ordinal);
	cu_result (*retain)(cu_context *ret_context, cu_device device);
	cu_result (*push)(cu_context context);
	cu_result (*pop)(cu_context *ret_context);
	cu_result (*settle)(void);
	cu_result (*alloc)(cu_pointer *ret_pointer, size_t bytes);
	cu_result (*alloc_pool)(cu_pointer *ret_pointer, size_t bytes, cu_stream stream);
	cu_result (*free)(cu_pointer pointer);
	cu_result (*copy)(cu_pointer to, cu_pointer from, size_t bytes);
	cu_result (*granularity)(size_t *ret_bytes, const struct wanted *wanted, int option);
	cu_result (*create)(cu_handle *ret_handle, size_t bytes, const struct wanted *wanted, unsigned long long flags);
	cu_result (*release)(cu_handle handle);
	cu_result (*reserve)(cu_pointer *ret, size_t bytes, size_t alignment, cu_pointer address,
			     unsigned long long flags);
	cu_result (*unreserve)(cu_pointer pointer, size_t bytes);
	cu_result (*map)(cu_pointer pointer, size_t bytes, size_t offset, cu_handle handle, unsigned long long flags);
	cu_result (*unmap)(cu_pointer pointer, size_t bytes);
	cu_result (*access)(cu_pointer pointer, size_t bytes, const struct cu_access *access, size_t count);
} cuda;

static struct {
	cu_pointer at;
	size_t part, parts; /* of virtual memory */
	int card;
} block[BLOCKS];
static cu_context context[16]; /* of the first cards; retained until the process ends */

static void must(cu_result result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "%s: the driver says %d\n", what, result);
	abort();
}

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library) {
		printf("skipped: no driver here: %s\n", dlerror());
		exit(77);
	}
#define FIND(field, name)                                                                                              \
	*(void **)&cuda.field = dlsym(library, name);                                                                  \
	must(!cuda.field, name)
	FIND(init, "cuInit");
	FIND(device, "cuDeviceGet");
	FIND(retain, "cuDevicePrimaryCtxRetain");
	FIND(push, "cuCtxPushCurrent_v2");
	FIND(pop, "cuCtxPopCurrent_v2");
	FIND(settle, "cuCtxSynchronize");
	FIND(alloc, "cuMemAlloc_v2");
	FIND(alloc_pool, "cuMemAllocAsync");
	FIND(free, "cuMemFree_v2");
	FIND(copy, "cuMemcpy");
	FIND(granularity, "cuMemGetAllocationGranularity");
	FIND(create, "cuMemCreate");
	FIND(release, "cuMemRelease");
	FIND(reserve, "cuMemAddressReserve");
	FIND(unreserve, "cuMemAddressFree");
	FIND(map, "cuMemMap");
	FIND(unmap, "cuMemUnmap");
	FIND(access, "cuMemSetAccess");
	if (cuda.init(0)) {
		printf("skipped: the driver finds no card\n");
		exit(77);
	}
}

static void enter(int card)
{
	cu_device device;

	if (!cuda.init)
		load();
	if (!context[card]) {
		must(cuda.device(&device, card), "cuDeviceGet");
		must(cuda.retain(&context[card], device), "cuDevicePrimaryCtxRetain");
	}
	must(cuda.push(context[card]), "cuCtxPushCurrent");
}

static void leave(void)
{
	cu_context ours;

	must(cuda.pop(&ours), "cuCtxPopCurrent");
}

static cu_pointer alloc_virtual(int card, size_t bytes, size_t *ret_part)
{
	struct wanted wanted = { 1, CU_HANDLE_FILE, { CU_LOCATION_DEVICE, card }, NULL, 0 };
	struct cu_access access = { { CU_LOCATION_DEVICE, card }, CU_ACCESS_READWRITE };
	size_t least, part;
	cu_handle handle;
	cu_pointer at;

	must(cuda.granularity(&least, &wanted, 0), "cuMemGetAllocationGranularity");
	part = (bytes / 2 + least - 1) / least * least;
	must(cuda.reserve(&at, 2 * part, 0, 0, 0), "cuMemAddressReserve");
	for (size_t i = 0; i < 2; i++) {
		must(cuda.create(&handle, part, &wanted, 0), "cuMemCreate");
		must(cuda.map(at + i * part, part, 0, handle, 0), "cuMemMap");
		must(cuda.release(handle), "cuMemRelease");
	}
	must(cuda.access(at, 2 * part, &access, 1), "cuMemSetAccess");
	*ret_part = part;
	return at;
}

void *fake_cuda_alloc(int card, size_t bytes, enum fake_kind kind)
{
	cu_result result = 0;
	cu_pointer at = 0;
	int free = 0;

	while (free < BLOCKS && block[free].at)
		free++;
	must(free == BLOCKS, "too many allocations");
	enter(card);
	if (kind == FAKE_PLAIN)
		result = cuda.alloc(&at, bytes);
	else if (kind == FAKE_POOL)
		result = cuda.alloc_pool(&at, bytes, NULL);
	else if (kind == FAKE_VIRTUAL)
		at = alloc_virtual(card, bytes, &block[free].part);
	else
		must(1, "memory of a kind that no test on a card asks for");
	must(cuda.settle(), "cuCtxSynchronize");
	leave();
	if (result)
		return NULL;
	block[free].at = at;
	block[free].parts = kind == FAKE_VIRTUAL ? 2 : 0;
	block[free].card = card;
	return (void *)(uintptr_t)at;
}

static int find(const void *memory)
{
	for (int i = 0; i < BLOCKS; i++)
		if (block[i].at == (uintptr_t)memory)
			return i;
	must(1, "memory that nobody allocated");
	return -1;
}

void fake_cuda_free(void *memory)
{
	int at = find(memory);

	enter(block[at].card);
	must(cuda.settle(), "cuCtxSynchronize");
	for (size_t i = 0; i < block[at].parts; i++)
		must(cuda.unmap(block[at].at + i * block[at].part, block[at].part), "cuMemUnmap");
	if (block[at].parts)
		must(cuda.unreserve(block[at].at, block[at].parts * block[at].part), "cuMemAddressFree");
	else
		must(cuda.free(block[at].at), "cuMemFree");
	leave();
	block[at].at = 0;
}

/* From and to anything: the driver knows which address is a card's. */
static void copy(const void *to, const void *from, size_t bytes)
{
	enter(0);
	must(cuda.copy((uintptr_t)to, (uintptr_t)from, bytes), "cuMemcpy");
	must(cuda.settle(), "cuCtxSynchronize");
	leave();
}

void fake_cuda_write(void *memory, const void *from, size_t bytes)
{
	copy(memory, from, bytes);
}

void fake_cuda_read(const void *memory, void *to, size_t bytes)
{
	copy(to, memory, bytes);
}

bool fake_cuda_controls(void)
{
	return false;
}

void fake_cuda_hold(bool hold)
{
}

void fake_cuda_slow(uint32_t microseconds)
{
}

void fake_cuda_stall(bool stall)
{
}

void fake_cuda_lose(bool lost)
{
}

struct fake_counts fake_cuda_counts(void)
{
	return (struct fake_counts){ 0 };
}

int fake_cuda_depth(void)
{
	return 0;
}
