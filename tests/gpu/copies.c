/*
 * What one card and its driver can do, for tests/gpu/run to set beside weft: one copy of everything, a driver call per page in random
 * order, and copies from and to pinned memory of the CPU. Each is made for as long as was asked and waited for at the end.
 *
 * usage: copies MIB MILLISECONDS    prints lines "name GB/s"
 */
#include "base/time.h"
#include "device/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE 65536u

static struct {
	cu_result (*init)(unsigned int flags);
	cu_result (*device)(cu_device *ret_device, int ordinal);
	cu_result (*retain)(cu_context *ret_context, cu_device device);
	cu_result (*push)(cu_context context);
	cu_result (*alloc)(cu_pointer *ret_pointer, size_t bytes);
	cu_result (*pinned)(void **ret_memory, size_t bytes, unsigned int flags);
	cu_result (*stream)(cu_stream *ret_stream, unsigned int flags);
	cu_result (*copy)(cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream);
	cu_result (*wait)(cu_stream stream);
} cuda;

static void must(cu_result result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "copies: %s: the driver says %d\n", what, result);
	exit(1);
}

static void start(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	cu_context context;
	cu_device device;

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
	FIND(alloc, "cuMemAlloc_v2");
	FIND(pinned, "cuMemHostAlloc");
	FIND(stream, "cuStreamCreate");
	FIND(copy, "cuMemcpyAsync");
	FIND(wait, "cuStreamSynchronize");
	if (cuda.init(0) || cuda.device(&device, 0)) {
		printf("skipped: the driver finds no card\n");
		exit(77);
	}
	must(cuda.retain(&context, device), "cuDevicePrimaryCtxRetain");
	must(cuda.push(context), "cuCtxPushCurrent");
}

/* In pieces of page bytes, at places that follow no order; page 0: all at once. */
static void measure(const char *name, cu_pointer to, cu_pointer from, size_t bytes, size_t page, uint64_t for_ns)
{
	uint64_t count = page ? bytes / page : 1, began, moved = 0;
	cu_stream stream;

	must(cuda.stream(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	must(cuda.copy(to, from, page ? page : bytes, stream), "cuMemcpyAsync");
	must(cuda.wait(stream), "cuStreamSynchronize");
	began = wf_now_ns();
	for (uint64_t i = 0; wf_now_ns() - began < for_ns; i++) {
		uint64_t to_page = i * 7919 % count, from_page = i * 104729 % count;

		must(cuda.copy(to + to_page * page, from + from_page * page, page ? page : bytes, stream),
		     "cuMemcpyAsync");
		moved += page ? page : bytes;
		/* Asked for ahead, but not without end. */
		if (i % (page ? 1024 : 8) == 7)
			must(cuda.wait(stream), "cuStreamSynchronize");
	}
	must(cuda.wait(stream), "cuStreamSynchronize");
	printf("%s %.2f\n", name, (double)moved / (double)(wf_now_ns() - began));
}

int main(int argc, char **argv)
{
	size_t bytes = argc == 3 && atol(argv[1]) > 0 ? (size_t)atol(argv[1]) << 20 : 0;
	uint64_t for_ns = argc == 3 ? (uint64_t)atol(argv[2]) * WF_MS : 0;
	cu_pointer a, b;
	void *host;

	if (!bytes || !for_ns) {
		fprintf(stderr, "usage: copies MIB MILLISECONDS\n");
		return 2;
	}
	start();
	must(cuda.alloc(&a, bytes), "cuMemAlloc");
	must(cuda.alloc(&b, bytes), "cuMemAlloc");
	must(cuda.pinned(&host, bytes, CU_HOST_PORTABLE), "cuMemHostAlloc");
	measure("card_to_card_one_copy", b, a, bytes, 0, for_ns);
	measure("card_to_card_call_per_page", b, a, bytes, PAGE, for_ns);
	measure("card_to_pinned_one_copy", (uintptr_t)host, a, bytes, 0, for_ns);
	measure("pinned_to_card_one_copy", a, (uintptr_t)host, bytes, 0, for_ns);
	return 0;
}
