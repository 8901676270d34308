/* Streams, events, the page kernel, and the thread that makes copies: later than they were asked for, in the order of a stream. */
#include "fake-cuda/internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define QUEUE 65536u

struct cu_stream_object {
	int card;
};
struct cu_event_object {
	uint64_t asked, over; /* how many recordings */
	bool destroyed;       /* freed with its last one */
};
struct cu_module_object {
	int card;
};
struct cu_function_object {
	uint32_t step; /* bytes per thread and turn */
};

/* As the kernel's parameters come, in order. */
struct pages {
	uint64_t to, from, to_index, from_index, to_stride, from_stride, page_bytes, cut_bytes, first;
	uint32_t cuts, items, step;
	uint64_t list[2]; /* the pinned lists are read when it runs */
};

struct task {
	enum { COPY, PAGES, EVENT } kind;
	uint64_t to, from;
	size_t bytes;
	struct pages pages;
	cu_event event;
};

static struct task queue[QUEUE];
static uint64_t asked, made;
static pthread_t thread;

/* ---- the thread ---- */

static cu_result page_of(uint64_t list, uint64_t first, uint32_t page, uint64_t *ret_page)
{
	uint32_t number;
	struct block *block;

	if (!list) {
		*ret_page = first + page;
		return CU_SUCCESS;
	}
	block = fake_find(list + 4 * (uint64_t)page);
	if (!block || block->kind == FAKE_MANAGED)
		return FAKE_ILLEGAL; /* the card reads pinned memory or its own */
	memcpy(&number, block->alias + (list + 4 * (uint64_t)page - (uintptr_t)block->base), sizeof(number));
	*ret_page = number;
	return CU_SUCCESS;
}

static cu_result move_item(const struct pages *pages, uint32_t item)
{
	uint32_t page = item / pages->cuts;
	uint64_t at = item % pages->cuts * pages->cut_bytes, end = at + pages->cut_bytes, to_page, from_page, to, from;
	bool pageable;

	end = end < pages->page_bytes ? end : pages->page_bytes;
	if (page_of(pages->to_index, pages->first, page, &to_page) ||
	    page_of(pages->from_index, pages->first, page, &from_page))
		return FAKE_ILLEGAL;
	if (at >= end)
		return CU_SUCCESS;
	to = pages->to + to_page * pages->to_stride + at;
	from = pages->from + from_page * pages->from_stride + at;
	if ((to | from | (end - at)) % pages->step)
		return FAKE_ALIGNED;
	if (fake_check(to, end - at, &pageable) || pageable || fake_check(from, end - at, &pageable) || pageable)
		return FAKE_ILLEGAL; /* a kernel reaches no pageable memory */
	return fake_move(to, from, end - at - fake.left_out);
}

static cu_result make(const struct task *task)
{
	cu_result result = CU_SUCCESS;

	if (task->kind == EVENT) {
		if (++task->event->over == task->event->asked && task->event->destroyed)
			free(task->event);
		return CU_SUCCESS;
	}
	if (task->kind == COPY)
		return fake_move(task->to, task->from, task->bytes - fake.left_out);
	for (uint32_t item = 0; item < task->pages.items && !result; item++)
		result = move_item(&task->pages, item);
	if (result)
		fake.counts.illegal++;
	return result;
}

static void *run(void *context)
{
	pthread_mutex_lock(&fake.lock);
	for (;;) {
		struct task *task = &queue[made % QUEUE];
		struct timespec pause = { .tv_nsec = (long)fake.slow_us * 1000 };

		if (made == asked || fake.hold || fake.lost) {
			pthread_cond_wait(&fake.change, &fake.lock);
			continue;
		}
		if (pause.tv_nsec && task->kind != EVENT) {
			pthread_mutex_unlock(&fake.lock);
			nanosleep(&pause, NULL);
			pthread_mutex_lock(&fake.lock);
		}
		if (!fake.sticky)
			fake.sticky = make(task);
		fake.counts.waiting -= task->kind != EVENT;
		made++;
		pthread_cond_broadcast(&fake.change);
	}
	return NULL;
}

void fake_drain(void)
{
	while (made != asked && !fake.hold && !fake.lost)
		pthread_cond_wait(&fake.change, &fake.lock);
}

static struct task *ask(void)
{
	if (!fake.running) {
		fake.running = true;
		if (pthread_create(&thread, NULL, run, NULL))
			abort();
		pthread_detach(thread);
	}
	if (asked - made == QUEUE)
		abort();
	pthread_cond_broadcast(&fake.change);
	return &queue[asked++ % QUEUE];
}

/* ---- the driver's functions ---- */

cu_result cuStreamCreate(cu_stream *ret_stream, unsigned int flags);
cu_result cuStreamCreate(cu_stream *ret_stream, unsigned int flags)
{
	cu_result result = fake_enter(true);

	if (!result && !(*ret_stream = calloc(1, sizeof(**ret_stream))))
		abort();
	if (!result) {
		(*ret_stream)->card = fake_current_card();
		fake.counts.streams++;
	}
	return fake_leave(result);
}

cu_result cuStreamDestroy_v2(cu_stream stream);
cu_result cuStreamDestroy_v2(cu_stream stream)
{
	cu_result result = fake_enter(true);

	if (!result) {
		free(stream);
		fake.counts.streams--;
	}
	return fake_leave(result);
}

cu_result cuEventCreate(cu_event *ret_event, unsigned int flags);
cu_result cuEventCreate(cu_event *ret_event, unsigned int flags)
{
	cu_result result = fake_enter(true);

	if (!result && !(*ret_event = calloc(1, sizeof(**ret_event))))
		abort();
	fake.counts.events += !result;
	return fake_leave(result);
}

/* Does not wait, as the driver does not. */
cu_result cuEventDestroy_v2(cu_event event);
cu_result cuEventDestroy_v2(cu_event event)
{
	cu_result result = fake_enter(true);

	if (!result) {
		event->destroyed = true;
		if (event->asked == event->over)
			free(event);
		fake.counts.events--;
	}
	return fake_leave(result);
}

cu_result cuEventRecord(cu_event event, cu_stream stream);
cu_result cuEventRecord(cu_event event, cu_stream stream)
{
	cu_result result = fake_enter(true);

	if (!result && stream->card != fake_current_card())
		result = FAKE_HANDLE;
	if (!result) {
		event->asked++;
		*ask() = (struct task){ .kind = EVENT, .event = event };
	}
	return fake_leave(result);
}

cu_result cuEventQuery(cu_event event);
cu_result cuEventQuery(cu_event event)
{
	cu_result result = fake_enter(true);

	if (!result && event->asked != event->over)
		result = CU_NOT_READY;
	return fake_leave(result);
}

cu_result cuMemcpyAsync(cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream);
cu_result cuMemcpyAsync(cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream)
{
	cu_result result = fake_enter(true);
	bool to_pageable = false, from_pageable = false;

	if (!result && (!stream || stream->card != fake_current_card()))
		result = FAKE_HANDLE;
	if (!result)
		result = fake_check(to, bytes, &to_pageable);
	if (!result)
		result = fake_check(from, bytes, &from_pageable);
	if (!result) {
		fake.counts.pageable += to_pageable || from_pageable;
		fake.counts.copies++;
		fake.counts.waiting++;
		*ask() = (struct task){ .kind = COPY, .to = to, .from = from, .bytes = bytes };
	}
	return fake_leave(result);
}

cu_result cuModuleLoadData(cu_module *ret_module, const void *image);
cu_result cuModuleLoadData(cu_module *ret_module, const void *image)
{
	cu_result result = fake_enter(true);

	if (!result && (getenv("FAKE_CUDA_NO_MODULE") || strncmp(image, ".version ", 9)))
		result = 218; /* CUDA_ERROR_INVALID_PTX */
	if (!result) {
		if (!(*ret_module = calloc(1, sizeof(**ret_module))))
			abort();
		(*ret_module)->card = fake_current_card();
		fake.counts.modules++;
	}
	return fake_leave(result);
}

cu_result cuModuleUnload(cu_module module);
cu_result cuModuleUnload(cu_module module)
{
	cu_result result = fake_enter(true);

	if (!result) {
		free(module);
		fake.counts.modules--;
	}
	return fake_leave(result);
}

cu_result cuModuleGetFunction(cu_function *ret_function, cu_module module, const char *name);
cu_result cuModuleGetFunction(cu_function *ret_function, cu_module module, const char *name)
{
	static struct cu_function_object by[] = { { 16 }, { 4 }, { 1 } };
	static const char *const names[] = { "weft_pages_16", "weft_pages_4", "weft_pages_1" };

	for (int i = 0; i < 3; i++)
		if (!strcmp(name, names[i])) {
			*ret_function = &by[i];
			return CU_SUCCESS;
		}
	return 500; /* CUDA_ERROR_NOT_FOUND */
}

cu_result cuLaunchKernel(cu_function function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			 unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
			 cu_stream stream, void **parameters, void **extra);
cu_result cuLaunchKernel(cu_function function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			 unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
			 cu_stream stream, void **parameters, void **extra)
{
	cu_result result = fake_enter(true);
	struct pages pages = { .step = function->step };

	if (!result && (!grid_x || grid_y != 1 || grid_z != 1 || !block_x || block_x > 1024 || block_y != 1 ||
			block_z != 1 || shared_bytes || extra || stream->card != fake_current_card()))
		result = CU_INVALID_VALUE;
	if (!result) {
		for (int i = 0; i < 9; i++)
			memcpy((char *)&pages + 8 * i, parameters[i], 8);
		memcpy(&pages.cuts, parameters[9], 4);
		memcpy(&pages.items, parameters[10], 4);
		fake.counts.launches++;
		fake.counts.pages += pages.items / pages.cuts;
		fake.counts.waiting++;
		*ask() = (struct task){ .kind = PAGES, .pages = pages };
	}
	return fake_leave(result);
}

/* ---- for tests ---- */

cu_result cuInit(unsigned int flags);
cu_result cuMemAddressReserve(cu_pointer *ret_pointer, size_t bytes, size_t alignment, cu_pointer address,
			      unsigned long long flags);
cu_result cuMemAddressFree(cu_pointer pointer, size_t bytes);

static void *alloc_virtual(int card, size_t bytes)
{
	size_t parts = (bytes + FAKE_PART_BYTES - 1) / FAKE_PART_BYTES;
	struct block *block;
	cu_pointer at;

	fake_leave(CU_SUCCESS);
	if (cuMemAddressReserve(&at, parts * FAKE_PART_BYTES, 0, 0, 0))
		abort();
	fake_enter(false);
	for (size_t i = 0; i < parts; i++) {
		block = fake_new(card, FAKE_PART_BYTES, FAKE_VIRTUAL, -1, (char *)(uintptr_t)at + i * FAKE_PART_BYTES);
		if (!block)
			abort();
		block->mapped = true;
	}
	return (void *)(uintptr_t)at;
}

void *fake_cuda_alloc(int card, size_t bytes, enum fake_kind kind)
{
	struct block *block;
	void *memory;

	cuInit(0);
	fake_enter(false);
	if (kind == FAKE_VIRTUAL) {
		memory = alloc_virtual(card, bytes);
	} else {
		block = fake_new(card, bytes, kind, -1, NULL);
		memory = block ? block->base : NULL;
	}
	fake_leave(CU_SUCCESS);
	return memory;
}

void fake_cuda_free(void *memory)
{
	struct block *block;
	size_t virtual = 0;

	fake_enter(false);
	fake_drain();
	block = fake_find((uintptr_t)memory);
	if (!block || block->base != memory)
		abort();
	while (block && block->mapped) {
		virtual += block->bytes;
		fake_drop(block);
		block = fake_find((uintptr_t)memory + virtual);
	}
	if (!virtual)
		fake_drop(block);
	fake_leave(CU_SUCCESS);
	if (virtual)
		cuMemAddressFree((uintptr_t)memory, virtual);
}

void fake_cuda_write(void *memory, const void *from, size_t bytes)
{
	fake_enter(false);
	fake_drain();
	if (fake_move((uintptr_t)memory, (uintptr_t)from, bytes))
		abort();
	fake_leave(CU_SUCCESS);
}

void fake_cuda_read(const void *memory, void *to, size_t bytes)
{
	fake_enter(false);
	fake_drain();
	if (fake_move((uintptr_t)to, (uintptr_t)memory, bytes))
		abort();
	fake_leave(CU_SUCCESS);
}
