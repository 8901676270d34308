/*
 * How soon a kernel's store starts an operation, for tests/gpu/run: a kernel that runs all the time answers each word of the CPU with a
 * word in pinned memory, for which a write waits over the local rail, where a piece that is posted has landed. Two engines in this
 * process. Where the driver does not load the kernel, a thread answers in its place, and the output says so.
 *
 * usage: word ROUNDS    prints lines "name p50 p99" in microseconds
 */
#include "base/time.h"
#include "device/cuda.h"
#include "weft.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES    UINT64_C(65536)
#define PIECE    64 /* bytes of a write */
#define MOST     100000
#define LIMIT_NS (20 * WF_S) /* of a round; only a failure takes this long */

/* for (i = 1; i <= count; i++) { while (*in < i); *out = i; } */
static const char echo_ptx[] = ".version 6.0\n"
			       ".target sm_50\n"
			       ".address_size 64\n"
			       ".visible .entry weft_echo(.param .u64 p_in, .param .u64 p_out, .param .u64 p_count)\n"
			       "{\n"
			       "  .reg .pred %p<2>;\n"
			       "  .reg .b64 %d<5>;\n"
			       "  ld.param.u64 %d0, [p_in];\n"
			       "  ld.param.u64 %d1, [p_out];\n"
			       "  ld.param.u64 %d2, [p_count];\n"
			       "  mov.u64 %d3, 1;\n"
			       "ROUND:\n"
			       "  setp.gt.u64 %p0, %d3, %d2;\n"
			       "  @%p0 bra DONE;\n"
			       "SPIN:\n"
			       "  ld.volatile.u64 %d4, [%d0];\n"
			       "  setp.lt.u64 %p1, %d4, %d3;\n"
			       "  @%p1 bra SPIN;\n"
			       "  st.volatile.u64 [%d1], %d3;\n"
			       "  membar.sys;\n"
			       "  add.u64 %d3, %d3, 1;\n"
			       "  bra ROUND;\n"
			       "DONE:\n"
			       "  ret;\n"
			       "}\n";

static struct {
	cu_result (*init)(unsigned int flags);
	cu_result (*device)(cu_device *ret_device, int ordinal);
	cu_result (*retain)(cu_context *ret_context, cu_device device);
	cu_result (*push)(cu_context context);
	cu_result (*pinned)(void **ret_memory, size_t bytes, unsigned int flags);
	cu_result (*stream)(cu_stream *ret_stream, unsigned int flags);
	cu_result (*load)(cu_module *ret_module, const void *image);
	cu_result (*function)(cu_function *ret_function, cu_module module, const char *name);
	cu_result (*launch)(cu_function function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
			    cu_stream stream, void **parameters, void **extra);
	cu_result (*wait)(cu_stream stream);
} cuda;

struct side {
	weft_engine *engine;
	weft_region region;
	uint64_t *memory;
};

static struct {
	uint64_t *in, *out; /* pinned */
	uint64_t value, count;
	cu_stream stream;
	pthread_t thread; /* in place of the kernel */
	bool kernel;
	struct side here, there;
	weft_remote remote;
} setup;

static uint64_t echo_ns[MOST], seen_ns[MOST], total_ns[MOST];

static uint64_t load(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static _Noreturn void fail(const char *what, const char *why)
{
	fprintf(stderr, "word: %s: %s\n", what, why);
	if (setup.in)
		store(setup.in, UINT64_MAX); /* the kernel ends */
	exit(1);
}

static void must(int error, const char *what)
{
	if (error)
		fail(what, weft_strerror(error));
}

static void cuda_must(cu_result result, const char *what)
{
	char text[32];

	snprintf(text, sizeof(text), "the driver says %d", result);
	if (result)
		fail(what, text);
}

static void *answer(void *unused)
{
	for (uint64_t i = 1; i <= setup.count; i++) {
		while (load(setup.in) < i)
			sched_yield();
		store(setup.out, i);
	}
	return unused;
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
	cuda_must(!cuda.field, name)
	FIND(init, "cuInit");
	FIND(device, "cuDeviceGet");
	FIND(retain, "cuDevicePrimaryCtxRetain");
	FIND(push, "cuCtxPushCurrent_v2");
	FIND(pinned, "cuMemHostAlloc");
	FIND(stream, "cuStreamCreate");
	FIND(load, "cuModuleLoadData");
	FIND(function, "cuModuleGetFunction");
	FIND(launch, "cuLaunchKernel");
	FIND(wait, "cuStreamSynchronize");
	if (cuda.init(0) || cuda.device(&device, 0)) {
		printf("skipped: the driver finds no card\n");
		exit(77);
	}
	cuda_must(cuda.retain(&context, device), "cuDevicePrimaryCtxRetain");
	cuda_must(cuda.push(context), "cuCtxPushCurrent");
	cuda_must(cuda.pinned((void **)&setup.in, 4096, CU_HOST_PORTABLE), "cuMemHostAlloc");
	memset(setup.in, 0, 4096);
	setup.out = setup.in + 64; /* a cache line, and more, of its own */
}

static void start_echo(void)
{
	void *parameters[] = { &setup.in, &setup.out, &setup.count };
	cu_function function;
	cu_module module;

	cuda_must(cuda.stream(&setup.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	setup.kernel = !cuda.load(&module, echo_ptx) && !cuda.function(&function, module, "weft_echo");
	if (setup.kernel)
		cuda_must(cuda.launch(function, 1, 1, 1, 1, 1, 1, 0, setup.stream, parameters, NULL), "cuLaunchKernel");
	else if (pthread_create(&setup.thread, NULL, answer, NULL))
		fail("pthread_create", "no thread");
}

static void open_side(struct side *side)
{
	struct weft_config config = WEFT_CONFIG_INIT;

	config.provider = "local";
	must(weft_engine_open(&config, &side->engine, NULL, 0), "weft_engine_open");
	must(weft_memory_alloc(side->engine, BYTES, NULL, (void **)&side->memory), "weft_memory_alloc");
	must(weft_region_register(side->engine, side->memory, BYTES, WEFT_REMOTE_WRITE, &side->region),
	     "weft_region_register");
}

static void connect_sides(void)
{
	char blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);
	weft_peer peer;

	open_side(&setup.here);
	open_side(&setup.there);
	must(weft_engine_address(setup.there.engine, blob, &bytes), "weft_engine_address");
	must(weft_peer_add(setup.here.engine, blob, bytes, NULL, &peer), "weft_peer_add");
	bytes = sizeof(blob);
	must(weft_region_export(setup.there.engine, setup.there.region, blob, &bytes), "weft_region_export");
	must(weft_remote_import(setup.here.engine, peer, blob, bytes, &setup.remote), "weft_remote_import");
}

/* Returns when it was seen. */
static uint64_t wait_for(const uint64_t *at, uint64_t value)
{
	uint64_t began = wf_now_ns();

	for (uint32_t turn = 1; load(at) != value; turn++)
		if (turn % 4096 == 0) {
			if (wf_now_ns() - began > LIMIT_NS)
				fail("a round", "no answer in 20 s");
			sched_yield();
		}
	return wf_now_ns();
}

static void round_of(uint32_t at)
{
	struct weft_write write = { sizeof(write), setup.here.region, 0, setup.remote, 0, PIECE };
	struct weft_op op = { .size = sizeof(op), .start_word = setup.out, .timeout_ns = LIMIT_NS };
	struct timespec pause = { .tv_nsec = 100000 };
	uint64_t began, seen;

	began = wf_now_ns();
	store(setup.in, ++setup.value);
	echo_ns[at] = wait_for(setup.out, setup.value) - began;
	op.start_value = setup.value + 1;
	setup.here.memory[0] = setup.value + 1;
	must(weft_write(setup.here.engine, &write, &op, NULL), "weft_write");
	nanosleep(&pause, NULL); /* it waits for its word, and the worker spins */
	began = wf_now_ns();
	store(setup.in, ++setup.value);
	seen = wait_for(setup.out, setup.value);
	total_ns[at] = wait_for(setup.there.memory, setup.value) - began;
	seen_ns[at] = began + total_ns[at] - seen;
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void print(const char *name, uint64_t *ns, uint32_t rounds)
{
	qsort(ns, rounds, sizeof(*ns), by_size);
	printf("%s %.2f %.2f\n", name, (double)ns[rounds / 2] / 1e3, (double)ns[(uint64_t)rounds * 99 / 100] / 1e3);
}

int main(int argc, char **argv)
{
	uint32_t rounds = argc == 2 && atoi(argv[1]) > 0 && atoi(argv[1]) <= MOST ? (uint32_t)atoi(argv[1]) : 0;

	if (!rounds) {
		fprintf(stderr, "usage: word ROUNDS (at most %d)\n", MOST);
		return 2;
	}
	start();
	connect_sides();
	setup.count = 2 * (uint64_t)(rounds + 10);
	start_echo();
	for (uint32_t i = 0; i < 10; i++) /* connecting; not measured */
		round_of(i);
	for (uint32_t i = 0; i < rounds; i++)
		round_of(i);
	if (setup.kernel)
		cuda_must(cuda.wait(setup.stream), "the kernel");
	else
		pthread_join(setup.thread, NULL);
	printf("answered_by %s\n", setup.kernel ? "kernel" : "thread");
	print("word_echo", echo_ns, rounds);
	print("word_seen_to_landed", seen_ns, rounds);
	print("word_total", total_ns, rounds);
	weft_engine_close(setup.here.engine);
	weft_engine_close(setup.there.engine);
	return 0;
}
