/* What programs with a card call beside weft: freeing, room, names, waiting. Copies, allocations and words are beside what they resemble. */
#include "fake-cuda/internal.h"

#include <stdio.h>
#include <stdlib.h>

cu_result cuDeviceGetName(char *ret_text, int bytes, cu_device device);
cu_result cuDeviceGetName(char *ret_text, int bytes, cu_device device)
{
	cu_result result = fake_enter(false);

	snprintf(ret_text, (size_t)bytes, "fake card %d", device);
	return fake_leave(result);
}

cu_result cuCtxSynchronize(void);
cu_result cuCtxSynchronize(void)
{
	cu_result result = fake_enter(true);

	if (!result)
		fake_drain();
	return fake_leave(result ? result : fake.sticky);
}

cu_result cuStreamSynchronize(cu_stream stream);
cu_result cuStreamSynchronize(cu_stream stream)
{
	return cuCtxSynchronize();
}

cu_result cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total);
cu_result cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	cu_result result = fake_enter(true);

	if (!result) {
		*ret_free = fake.most - fake.used[fake_current_card()];
		*ret_total = fake.most;
	}
	return fake_leave(result);
}

/* Waits for copies, as the driver does. */
cu_result cuMemFree_v2(cu_pointer pointer);
cu_result cuMemFree_v2(cu_pointer pointer)
{
	cu_result result = fake_enter(true);
	struct block *block = result ? NULL : fake_find(pointer);

	if (!result && (!block || (uintptr_t)block->base != pointer || block->mapped || block->opened ||
			(block->kind != FAKE_PLAIN && block->kind != FAKE_FOREIGN && block->kind != FAKE_POOL)))
		result = CU_INVALID_VALUE;
	if (!result) {
		fake_drain();
		fake_drop(block);
	}
	return fake_leave(result);
}

cu_result cuMemAllocAsync(cu_pointer *ret_pointer, size_t bytes, cu_stream stream);
cu_result cuMemAllocAsync(cu_pointer *ret_pointer, size_t bytes, cu_stream stream)
{
	cu_result result = fake_enter(true);
	struct block *block = result ? NULL : fake_new(fake_current_card(), bytes, FAKE_POOL, -1, NULL);

	if (!result && !block)
		result = CU_OUT_OF_MEMORY;
	if (!result)
		*ret_pointer = (uintptr_t)block->base;
	return fake_leave(result);
}

bool fake_cuda_controls(void)
{
	return true;
}
