/*
 * What an address is: asks the driver, if it is in this process at all, and walks the allocations under a card's memory. A tensor
 * may span several allocations (torch's expandable segments), and each may be handed over in its own way. On the thread that
 * registers.
 */
#include "device/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static cu_result ask(struct wf_devices *devices, uint64_t address, int attribute, void *ret_value)
{
	return devices->cuda.pointer_attribute(ret_value, attribute, address);
}

/* The kernel reads the CPU's memory for us, and no card's. */
static bool is_readable(uint64_t address)
{
	char byte;
	struct iovec here = { &byte, 1 }, there = { (void *)(uintptr_t)address, 1 };

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

/* 0 and the kind, or -EIO. */
static int kind_of(struct wf_devices *devices, uint64_t address, enum wf_device_kind *ret_kind)
{
	uint32_t type = 0, managed = 0;
	cu_result result = ask(devices, address, CU_POINTER_MEMORY_TYPE, &type);

	/* An address that the driver does not know is an error to it; and it knows none before cuInit(). */
	if (result == CU_INVALID_VALUE || result == CU_NOT_INITIALIZED || result == CU_DEINITIALIZED) {
		*ret_kind = WF_DEVICE_HOST;
		return 0;
	}
	if (result) {
		wf_device_log(devices, WEFT_LOG_WARN, "asking what an address is", result);
		/* The driver may have lost its card: the CPU's memory is as good as before. */
		*ret_kind = WF_DEVICE_HOST;
		return is_readable(address) ? 0 : -EIO;
	}
	ask(devices, address, CU_POINTER_IS_MANAGED, &managed);
	*ret_kind = managed ? WF_DEVICE_MANAGED : type == CU_MEMORY_DEVICE ? WF_DEVICE_CARD : WF_DEVICE_PINNED;
	return 0;
}

/* In the card's context. */
static void find_way(struct wf_devices *devices, struct wf_device_part *part)
{
	uint32_t legacy = 0;
	uint64_t types = 0;
	struct cu_ipc handle;

	ask(devices, part->base, CU_POINTER_LEGACY_IPC, &legacy);
	ask(devices, part->base, CU_POINTER_HANDLE_TYPES, &types);
	part->way = WF_WAY_NONE;
	if (legacy && !devices->cuda.ipc_get(&handle, part->base)) {
		part->way = WF_WAY_IPC;
		memcpy(part->handle, handle.bytes, sizeof(part->handle));
	} else if (!legacy && types & CU_HANDLE_FILE) {
		cu_handle allocation;

		if (!devices->cuda.handle_retain(&allocation, (void *)(uintptr_t)part->base)) {
			devices->cuda.handle_release(allocation);
			part->way = WF_WAY_FILE;
		}
	}
}

/* In the card's context: the allocation at the address. */
static int find_part(struct wf_devices *devices, uint64_t address, struct wf_device_part *part)
{
	size_t bytes = 0;
	cu_pointer base = 0;
	cu_result result = devices->cuda.address_range(&base, &bytes, address);
	unsigned long long id = 0;

	if (result || base > address || address - base >= bytes || bytes > UINT64_MAX - base)
		return result == CU_SUCCESS || result == CU_INVALID_VALUE || wf_cuda_errno(result) != -EIO ? -EINVAL
													   : -EIO;
	*part = (struct wf_device_part){ .base = base, .bytes = bytes };
	if (ask(devices, base, CU_POINTER_BUFFER_ID, &id))
		return -EIO;
	part->id = id;
	return 0;
}

/* In the card's context. */
static int walk(struct wf_devices *devices, struct wf_device_memory *memory)
{
	uint64_t address = memory->base, end = memory->base + memory->bytes;
	int error;

	while (address < end) {
		struct wf_device_part *part = &memory->part[memory->count];

		if (memory->count == WF_DEVICE_PARTS)
			return -E2BIG;
		error = find_part(devices, address, part);
		if (error)
			return error;
		find_way(devices, part);
		memory->count++;
		address = part->base + part->bytes;
	}
	return 0;
}

static int find_card(struct wf_devices *devices, uint64_t address, struct wf_card **ret_card)
{
	int ordinal = -1, error = wf_cuda_start(devices);
	cu_result result;

	if (error)
		return error;
	result = ask(devices, address, CU_POINTER_ORDINAL, &ordinal);
	return result ? -EIO : wf_card_find(devices, ordinal, ret_card);
}

static int describe(struct wf_devices *devices, uint64_t base, uint64_t bytes, struct wf_device_memory **ret_memory)
{
	struct wf_device_memory *memory, *fitting;
	cu_context context = NULL;
	uint64_t pool = 0;
	int error;

	memory = calloc(1, sizeof(*memory) + WF_DEVICE_PARTS * sizeof(memory->part[0]));
	if (!memory)
		return -ENOMEM;
	memory->devices = devices;
	memory->base = base;
	memory->bytes = bytes;
	error = find_card(devices, base, &memory->card);
	if (!error)
		error = wf_card_enter(memory->card);
	if (!error) {
		error = walk(devices, memory);
		wf_card_leave(memory->card);
	}
	if (error) {
		free(memory);
		return error;
	}
	/* Null for memory of pools and of the driver's virtual addresses, which belongs to the card and to no context. */
	ask(devices, base, CU_POINTER_CONTEXT, &context);
	ask(devices, base, CU_POINTER_MEMPOOL, &pool);
	memory->foreign = context && context != memory->card->context;
	memory->pool = pool;
	memory->dmabuf = memory->card->dmabuf;
	fitting = realloc(memory, sizeof(*memory) + memory->count * sizeof(memory->part[0]));
	*ret_memory = fitting ? fitting : memory;
	return 0;
}

int wf_device_probe(struct wf_devices *devices, const void *base, uint64_t bytes, enum wf_device_kind *ret_kind,
		    struct wf_device_memory **ret_memory)
{
	uint64_t first = (uintptr_t)base, last = first + bytes - 1;
	enum wf_device_kind kind, end_kind;
	int error;

	*ret_kind = WF_DEVICE_HOST;
	*ret_memory = NULL;
	if (!wf_cuda_is_here() || wf_cuda_load(devices))
		return 0; /* nor is the driver started here: it has been where an address is a card's */
	error = kind_of(devices, first, &kind);
	if (!error)
		error = kind_of(devices, last, &end_kind);
	if (error)
		return error;
	if ((kind == WF_DEVICE_CARD) != (end_kind == WF_DEVICE_CARD))
		return -EINVAL;
	if (kind == WF_DEVICE_CARD)
		error = describe(devices, first, bytes, ret_memory);
	if (!error)
		*ret_kind = kind;
	return error;
}

void wf_device_memory_free(struct wf_device_memory *memory)
{
	free(memory);
}

bool wf_device_memory_same(const struct wf_device_memory *memory)
{
	for (uint32_t i = 0; i < memory->count; i++) {
		unsigned long long id = 0;
		cu_result result = ask(memory->devices, memory->part[i].base, CU_POINTER_BUFFER_ID, &id);

		/* A driver that fails says nothing of the memory: the copies will tell. */
		if (result == CU_INVALID_VALUE || (!result && id != memory->part[i].id))
			return false;
	}
	return true;
}
