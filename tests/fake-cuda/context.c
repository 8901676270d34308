/* Starting, cards, contexts, and what is counted. A call that needs a context and has none fails as the real one does. */
#include "fake-cuda/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 32

struct cu_context_object {
	int card;
	bool primary;
	int retained;
};

struct fake fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER };
static struct cu_context_object primary[CARDS_MOST], foreign[CARDS_MOST];
static _Thread_local cu_context stack[DEPTH];
static _Thread_local int depth;

static long setting(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? atol(text) : otherwise;
}

/* ---- entry and exit of every call ---- */

cu_result fake_enter(bool needs_context)
{
	pthread_mutex_lock(&fake.lock);
	if (!fake.started)
		return CU_NOT_INITIALIZED;
	if (fake.lost)
		return FAKE_LOST;
	if (fake.sticky)
		return fake.sticky;
	if (needs_context && !depth) {
		fake.counts.contextless++;
		return CU_INVALID_CONTEXT;
	}
	return CU_SUCCESS;
}

cu_result fake_leave(cu_result result)
{
	pthread_mutex_unlock(&fake.lock);
	return result;
}

int fake_current_card(void)
{
	return depth ? stack[depth - 1]->card : -1;
}

/* ---- the driver's functions ---- */

cu_result cuInit(unsigned int flags);
cu_result cuInit(unsigned int flags)
{
	pthread_mutex_lock(&fake.lock);
	if (!fake.started) {
		fake.cards = (int)setting("FAKE_CUDA_CARDS", 2);
		fake.left_out = getenv("FAKE_CUDA_WRONG") != NULL;
		fake.most = (size_t)setting("FAKE_CUDA_BYTES", 1 << 30);
		for (int i = 0; i < CARDS_MOST; i++) {
			primary[i] = (struct cu_context_object){ .card = i, .primary = true };
			foreign[i] = (struct cu_context_object){ .card = i };
		}
		fake.started = fake.cards > 0;
	}
	return fake_leave(flags ? CU_INVALID_VALUE : fake.cards > 0 ? CU_SUCCESS : CU_NO_DEVICE);
}

cu_result cuGetErrorName(cu_result error, const char **ret_name);
cu_result cuGetErrorName(cu_result error, const char **ret_name)
{
	*ret_name = error == FAKE_LOST          ? "CUDA_ERROR_ECC_UNCORRECTABLE"
		    : error == CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
		    : error == FAKE_ILLEGAL     ? "CUDA_ERROR_ILLEGAL_ADDRESS"
						: "CUDA_ERROR_OF_SOME_KIND";
	return CU_SUCCESS;
}

cu_result cuDeviceGetCount(int *ret_count);
cu_result cuDeviceGetCount(int *ret_count)
{
	cu_result result = fake_enter(false);

	*ret_count = fake.cards;
	return fake_leave(result);
}

cu_result cuDeviceGet(cu_device *ret_device, int ordinal);
cu_result cuDeviceGet(cu_device *ret_device, int ordinal)
{
	cu_result result = fake_enter(false);

	if (!result && (ordinal < 0 || ordinal >= fake.cards))
		result = 101; /* CUDA_ERROR_INVALID_DEVICE */
	*ret_device = ordinal;
	return fake_leave(result);
}

cu_result cuDeviceGetUuid(void *ret_uuid, cu_device device);
cu_result cuDeviceGetUuid(void *ret_uuid, cu_device device)
{
	memset(ret_uuid, 0x40 + device, WF_DEVICE_UUID);
	return CU_SUCCESS;
}

cu_result cuDeviceGetPCIBusId(char *ret_text, int bytes, cu_device device);
cu_result cuDeviceGetPCIBusId(char *ret_text, int bytes, cu_device device)
{
	/* GPUs of sim/topology/p5.xml */
	static const char *const bus[] = { "53", "64", "75", "86", "97", "a8", "b9", "ca" };

	snprintf(ret_text, (size_t)bytes, "0000:%s:00.0", bus[device]);
	return CU_SUCCESS;
}

cu_result cuDeviceGetAttribute(int *ret_value, int attribute, cu_device device);
cu_result cuDeviceGetAttribute(int *ret_value, int attribute, cu_device device)
{
	cu_result result = fake_enter(false);

	*ret_value = attribute == FAKE_DIRECT            ? !getenv("FAKE_CUDA_NO_DIRECT")
		     : attribute == CU_DEVICE_DMABUF     ? !getenv("FAKE_CUDA_NO_DMABUF")
		     : attribute == CU_DEVICE_PROCESSORS ? 4
		     : attribute == CU_DEVICE_FLUSH      ? CU_FLUSH_HOST
		     : attribute == CU_DEVICE_ORDERING   ? (int)setting("FAKE_CUDA_ORDERING", CU_ORDERING_OWNER)
							 : 1;
	return fake_leave(result);
}

cu_result cuDevicePrimaryCtxRetain(cu_context *ret_context, cu_device device);
cu_result cuDevicePrimaryCtxRetain(cu_context *ret_context, cu_device device)
{
	cu_result result = fake_enter(false);

	fake.counts.stalled++;
	while (fake.stall)
		pthread_cond_wait(&fake.change, &fake.lock);
	fake.counts.stalled--;
	if (!result && fake.lost)
		result = FAKE_LOST;
	if (!result) {
		primary[device].retained++;
		fake.counts.contexts++;
		*ret_context = &primary[device];
	}
	return fake_leave(result);
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device);
cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
	pthread_mutex_lock(&fake.lock);
	if (!primary[device].retained)
		abort();
	primary[device].retained--;
	fake.counts.contexts--;
	return fake_leave(CU_SUCCESS);
}

cu_result cuCtxPushCurrent_v2(cu_context context);
cu_result cuCtxPushCurrent_v2(cu_context context)
{
	cu_result result = fake_enter(false);

	if (!result && context->primary && !context->retained)
		result = CU_INVALID_CONTEXT; /* it was released */
	if (!result && depth == DEPTH)
		abort();
	if (!result)
		stack[depth++] = context;
	return fake_leave(result);
}

cu_result cuCtxPopCurrent_v2(cu_context *ret_context);
cu_result cuCtxPopCurrent_v2(cu_context *ret_context)
{
	if (!depth)
		return CU_INVALID_CONTEXT;
	*ret_context = stack[--depth];
	return CU_SUCCESS;
}

cu_result cuFlushGPUDirectRDMAWrites(int target, int scope);
cu_result cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	cu_result result = fake_enter(true);

	fake.counts.flushes += !result;
	return fake_leave(target == CU_FLUSH_CURRENT && scope == CU_FLUSH_TO_OWNER ? result : CU_INVALID_VALUE);
}

static cu_result attribute_of(const struct block *block, int attribute, void *ret_value)
{
	bool card = block->kind != FAKE_MANAGED && block->kind != FAKE_PINNED;

	switch (attribute) {
	case CU_POINTER_CONTEXT:
		*(cu_context *)ret_value = block->kind == FAKE_FOREIGN ? &foreign[block->card]
					   : block->kind == FAKE_PLAIN ? &primary[block->card]
								       : NULL;
		return CU_SUCCESS;
	case CU_POINTER_MEMORY_TYPE:
		*(uint32_t *)ret_value = block->kind == FAKE_PINNED ? CU_MEMORY_HOST : CU_MEMORY_DEVICE;
		return CU_SUCCESS;
	case CU_POINTER_BUFFER_ID:
		*(unsigned long long *)ret_value = block->id;
		return CU_SUCCESS;
	case CU_POINTER_IS_MANAGED:
		*(uint32_t *)ret_value = block->kind == FAKE_MANAGED;
		return CU_SUCCESS;
	case CU_POINTER_ORDINAL:
		*(int *)ret_value = block->card;
		return CU_SUCCESS;
	case CU_POINTER_LEGACY_IPC:
		*(uint32_t *)ret_value = card && (block->kind == FAKE_PLAIN || block->kind == FAKE_FOREIGN);
		return CU_SUCCESS;
	case CU_POINTER_HANDLE_TYPES:
		*(unsigned long long *)ret_value = block->kind == FAKE_VIRTUAL ? CU_HANDLE_FILE : 0;
		return CU_SUCCESS;
	case CU_POINTER_MEMPOOL:
		*(uint64_t *)ret_value = block->kind == FAKE_POOL ? 0x77 : 0;
		return CU_SUCCESS;
	default:
		return CU_INVALID_VALUE;
	}
}

cu_result cuPointerGetAttribute(void *ret_value, int attribute, cu_pointer pointer);
cu_result cuPointerGetAttribute(void *ret_value, int attribute, cu_pointer pointer)
{
	cu_result result = fake_enter(false);
	const struct block *block = result ? NULL : fake_find(pointer);

	if (!result)
		result = block ? attribute_of(block, attribute, ret_value) : CU_INVALID_VALUE;
	return fake_leave(result);
}

/* ---- for tests ---- */

void fake_cuda_hold(bool hold)
{
	pthread_mutex_lock(&fake.lock);
	fake.hold = hold;
	pthread_cond_broadcast(&fake.change);
	pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_slow(uint32_t microseconds)
{
	pthread_mutex_lock(&fake.lock);
	fake.slow_us = microseconds;
	pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_stall(bool stall)
{
	pthread_mutex_lock(&fake.lock);
	fake.stall = stall;
	pthread_cond_broadcast(&fake.change);
	pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_lose(bool lost)
{
	pthread_mutex_lock(&fake.lock);
	fake.lost = lost;
	pthread_cond_broadcast(&fake.change);
	pthread_mutex_unlock(&fake.lock);
}

struct fake_counts fake_cuda_counts(void)
{
	struct fake_counts counts;

	pthread_mutex_lock(&fake.lock);
	counts = fake.counts;
	pthread_mutex_unlock(&fake.lock);
	return counts;
}

int fake_cuda_depth(void)
{
	return depth;
}
