/* The cards' memory: files that are mapped twice, where the CPU may not touch them and where the fake does. */
#include "fake-cuda/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x616475634573616b)
#define PAGE  4096u

static size_t whole(size_t bytes)
{
	return (bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
}

struct block *fake_find(uint64_t address)
{
	for (int i = 0; i < BLOCKS_MOST; i++) {
		struct block *block = &fake.block[i];

		if (block->live && address - (uintptr_t)block->base < block->bytes)
			return block;
	}
	return NULL;
}

static struct block *free_block(void)
{
	for (int i = 0; i < BLOCKS_MOST; i++)
		if (!fake.block[i].live)
			return &fake.block[i];
	return NULL;
}

static int make_file(size_t bytes)
{
	int fd = memfd_create("fake-cuda", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)whole(bytes))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* fd -1: a new file, charged to the card. at: where; NULL: anywhere. */
struct block *fake_new(int card, size_t bytes, enum fake_kind kind, int fd, void *at)
{
	struct block *block = free_block();
	bool ours = fd < 0, reachable = kind == FAKE_MANAGED || kind == FAKE_PINNED;
	char *base, *alias;

	if (!block || (ours && fake.used[card] + bytes > fake.most) || (ours && (fd = make_file(bytes)) < 0))
		return NULL;
	base = mmap(at, whole(bytes), reachable ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED | (at ? MAP_FIXED : 0),
		    fd, 0);
	alias = mmap(NULL, whole(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED || alias == MAP_FAILED)
		abort();
	*block = (struct block){ .live = true,
				 .accessible = true,
				 .base = base,
				 .alias = alias,
				 .bytes = bytes,
				 .card = card,
				 .fd = fd,
				 .kind = kind,
				 .id = ++fake.ids,
				 .ours = ours };
	if (ours)
		fake.used[card] += bytes;
	return block;
}

/* A mapping of cuMemMap leaves its place reserved. */
void fake_drop(struct block *block)
{
	if (block->mapped)
		mmap(block->base, whole(block->bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	else
		munmap(block->base, whole(block->bytes));
	munmap(block->alias, whole(block->bytes));
	close(block->fd);
	if (block->ours)
		fake.used[block->card] -= block->bytes;
	block->live = false;
}

/* How much from there on is in one block, and where the fake finds it. A CPU's address is its own. */
static size_t resolve(uint64_t address, size_t bytes, char **ret_at, bool *ret_known)
{
	struct block *block = fake_find(address);
	size_t offset, left;

	*ret_known = block;
	*ret_at = (char *)(uintptr_t)address;
	if (!block) {
		unsigned char resident;

		/* Not mapped at all, or a card's that was freed: nothing is there. */
		for (uint64_t page = address & ~(uint64_t)(PAGE - 1); page < address + bytes; page += PAGE)
			if (fake_find(page) || mincore((void *)(uintptr_t)page, 1, &resident))
				return 0;
		return bytes;
	}
	if (!block->accessible)
		return 0;
	offset = address - (uintptr_t)block->base;
	left = block->bytes - offset;
	*ret_at = block->alias + offset;
	return left < bytes ? left : bytes;
}

cu_result fake_check(uint64_t address, size_t bytes, bool *ret_pageable)
{
	struct block *first = fake_find(address);

	*ret_pageable = false;
	while (bytes) {
		char *at;
		bool known;
		size_t here = resolve(address, bytes, &at, &known);

		if (!here || known != (first != NULL))
			return CU_INVALID_VALUE;
		*ret_pageable |= !known;
		address += here;
		bytes -= here;
	}
	return CU_SUCCESS;
}

cu_result fake_move(uint64_t to, uint64_t from, size_t bytes)
{
	while (bytes) {
		char *to_at, *from_at;
		bool known;
		size_t here = resolve(to, bytes, &to_at, &known);

		here = here ? resolve(from, here, &from_at, &known) : 0;
		if (!here) {
			fake.counts.illegal++;
			return FAKE_ILLEGAL;
		}
		memmove(to_at, from_at, here);
		to += here;
		from += here;
		bytes -= here;
	}
	return CU_SUCCESS;
}

/* ---- the driver's functions ---- */

cu_result cuMemGetAddressRange_v2(cu_pointer *ret_base, size_t *ret_bytes, cu_pointer pointer);
cu_result cuMemGetAddressRange_v2(cu_pointer *ret_base, size_t *ret_bytes, cu_pointer pointer)
{
	cu_result result = fake_enter(true);
	struct block *block = result ? NULL : fake_find(pointer);

	if (!result && !block)
		result = CU_INVALID_VALUE;
	if (!result) {
		*ret_base = (uintptr_t)block->base;
		*ret_bytes = block->bytes;
	}
	return fake_leave(result);
}

cu_result cuMemHostAlloc(void **ret_memory, size_t bytes, unsigned int flags);
cu_result cuMemHostAlloc(void **ret_memory, size_t bytes, unsigned int flags)
{
	cu_result result = fake_enter(true);
	struct block *block = NULL;

	if (!result && !getenv("FAKE_CUDA_NO_PINNED"))
		block = fake_new(fake_current_card(), bytes, FAKE_PINNED, make_file(bytes), NULL);
	if (!result && !block)
		result = CU_OUT_OF_MEMORY;
	if (!result) {
		*ret_memory = block->base;
		fake.counts.pinned++;
	}
	return fake_leave(result);
}

cu_result cuMemFreeHost(void *memory);
cu_result cuMemFreeHost(void *memory)
{
	cu_result result = fake_enter(true);
	struct block *block = result ? NULL : fake_find((uintptr_t)memory);

	if (!result && (!block || block->base != memory || block->kind != FAKE_PINNED))
		result = CU_INVALID_VALUE;
	if (!result) {
		fake_drain();
		fake_drop(block);
		fake.counts.pinned--;
	}
	return fake_leave(result);
}

/* What programs with a card call beside weft. */
cu_result cuMemAlloc_v2(cu_pointer *ret_pointer, size_t bytes);
cu_result cuMemAlloc_v2(cu_pointer *ret_pointer, size_t bytes)
{
	cu_result result = fake_enter(true);
	struct block *block = result ? NULL : fake_new(fake_current_card(), bytes, FAKE_PLAIN, -1, NULL);

	if (!result && !block)
		result = CU_OUT_OF_MEMORY;
	if (!result)
		*ret_pointer = (uintptr_t)block->base;
	return fake_leave(result);
}

static bool is_card(uint64_t address)
{
	struct block *block = fake_find(address);

	return block && block->kind != FAKE_MANAGED && block->kind != FAKE_PINNED;
}

/* The name of the call says which end is a card's; -1: either. */
static cu_result copy_now(uint64_t to, uint64_t from, size_t bytes, int to_card)
{
	cu_result result = fake_enter(true);

	if (!result && to_card >= 0 && (is_card(to) != to_card || is_card(from) == to_card))
		result = CU_INVALID_VALUE;
	if (!result) {
		fake_drain();
		result = fake_move(to, from, bytes);
	}
	return fake_leave(result);
}

cu_result cuMemcpyHtoD_v2(cu_pointer to, const void *from, size_t bytes);
cu_result cuMemcpyHtoD_v2(cu_pointer to, const void *from, size_t bytes)
{
	return copy_now(to, (uintptr_t)from, bytes, 1);
}

cu_result cuMemcpyDtoH_v2(void *to, cu_pointer from, size_t bytes);
cu_result cuMemcpyDtoH_v2(void *to, cu_pointer from, size_t bytes)
{
	return copy_now((uintptr_t)to, from, bytes, 0);
}

cu_result cuMemcpy(cu_pointer to, cu_pointer from, size_t bytes);
cu_result cuMemcpy(cu_pointer to, cu_pointer from, size_t bytes)
{
	return copy_now(to, from, bytes, -1);
}

cu_result cuMemGetAllocationGranularity(size_t *ret_bytes, const void *allocation, int option);
cu_result cuMemGetAllocationGranularity(size_t *ret_bytes, const void *allocation, int option)
{
	*ret_bytes = FAKE_PART_BYTES;
	return CU_SUCCESS;
}

cu_result cuMemCreate(cu_handle *ret_handle, size_t bytes, const void *allocation, unsigned long long flags);
cu_result cuMemCreate(cu_handle *ret_handle, size_t bytes, const void *allocation, unsigned long long flags)
{
	cu_result result = fake_enter(true);
	int fd = result ? -1 : make_file(bytes);

	if (!result && (bytes % FAKE_PART_BYTES || fd < 0))
		result = CU_INVALID_VALUE;
	if (!result)
		*ret_handle = (cu_handle)fd + 1;
	fake.counts.handles += !result;
	return fake_leave(result);
}

/* ---- between processes ---- */

struct ticket {
	uint64_t magic, bytes, id;
	int32_t pid, fd, card;
};

cu_result cuIpcGetMemHandle(struct cu_ipc *ret_handle, cu_pointer pointer);
cu_result cuIpcGetMemHandle(struct cu_ipc *ret_handle, cu_pointer pointer)
{
	cu_result result = fake_enter(true);
	struct block *block = result ? NULL : fake_find(pointer);
	struct ticket ticket;

	if (!result && getenv("FAKE_CUDA_NO_IPC"))
		result = CU_NOT_SUPPORTED;
	if (!result && (!block || (block->kind != FAKE_PLAIN && block->kind != FAKE_FOREIGN)))
		result = CU_INVALID_VALUE;
	if (!result) {
		ticket = (struct ticket){ MAGIC, block->bytes, block->id, getpid(), block->fd, block->card };
		memset(ret_handle, 0, sizeof(*ret_handle));
		memcpy(ret_handle, &ticket, sizeof(ticket));
	}
	return fake_leave(result);
}

static struct block *opened_before(const struct ticket *ticket)
{
	for (int i = 0; i < BLOCKS_MOST; i++)
		if (fake.block[i].live && fake.block[i].opened && fake.block[i].origin[0] == (uint64_t)ticket->pid &&
		    fake.block[i].origin[1] == ticket->id)
			return &fake.block[i];
	return NULL;
}

static cu_result open_ticket(const struct ticket *ticket, struct block **ret_block)
{
	struct block *block = opened_before(ticket);
	char path[64];
	struct stat file;
	int fd;

	if (!block) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", ticket->pid, ticket->fd);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return FAKE_MAP; /* it was freed, or its owner has ended */
		if (fstat(fd, &file) || (size_t)file.st_size != whole(ticket->bytes)) {
			close(fd);
			return FAKE_MAP;
		}
		block = fake_new(ticket->card, ticket->bytes, FAKE_PLAIN, fd, NULL);
		if (!block)
			return CU_OUT_OF_MEMORY;
		block->origin[0] = (uint64_t)ticket->pid;
		block->origin[1] = ticket->id;
	}
	block->opened++;
	*ret_block = block;
	return CU_SUCCESS;
}

cu_result cuIpcOpenMemHandle_v2(cu_pointer *ret_pointer, struct cu_ipc handle, unsigned int flags);
cu_result cuIpcOpenMemHandle_v2(cu_pointer *ret_pointer, struct cu_ipc handle, unsigned int flags)
{
	cu_result result = fake_enter(true);
	struct block *block = NULL;
	struct ticket ticket;

	memcpy(&ticket, &handle, sizeof(ticket));
	if (!result && getenv("FAKE_CUDA_NO_IPC"))
		result = CU_NOT_SUPPORTED;
	if (!result && (flags != CU_IPC_LAZY_PEER || ticket.magic != MAGIC || ticket.card != fake_current_card()))
		result = CU_INVALID_VALUE;
	if (!result && ticket.pid == getpid())
		result = CU_INVALID_CONTEXT; /* not in the process that it comes from */
	if (!result)
		result = open_ticket(&ticket, &block);
	if (!result) {
		*ret_pointer = (uintptr_t)block->base;
		fake.counts.opened++;
	}
	return fake_leave(result);
}

cu_result cuIpcCloseMemHandle(cu_pointer pointer);
cu_result cuIpcCloseMemHandle(cu_pointer pointer)
{
	cu_result result = fake_enter(true);
	struct block *block = result ? NULL : fake_find(pointer);

	if (!result && (!block || !block->opened || (uintptr_t)block->base != pointer))
		result = CU_INVALID_VALUE;
	if (!result) {
		fake_drain();
		fake.counts.opened--;
		if (!--block->opened)
			fake_drop(block);
	}
	return fake_leave(result);
}

/* ---- virtual addresses: a handle is a descriptor plus 1 ---- */

cu_result cuMemRetainAllocationHandle(cu_handle *ret_handle, void *address);
cu_result cuMemRetainAllocationHandle(cu_handle *ret_handle, void *address)
{
	cu_result result = fake_enter(true);
	struct block *block = result ? NULL : fake_find((uintptr_t)address);

	if (!result && (!block || !block->mapped))
		result = CU_INVALID_VALUE;
	if (!result) {
		*ret_handle = (cu_handle)fcntl(block->fd, F_DUPFD_CLOEXEC, 0) + 1;
		fake.counts.handles++;
	}
	return fake_leave(result);
}

cu_result cuMemRelease(cu_handle handle);
cu_result cuMemRelease(cu_handle handle)
{
	cu_result result = fake_enter(false);

	if (!result) {
		close((int)handle - 1);
		fake.counts.handles--;
	}
	return fake_leave(result);
}

cu_result cuMemExportToShareableHandle(void *ret_shareable, cu_handle handle, int type, unsigned long long flags);
cu_result cuMemExportToShareableHandle(void *ret_shareable, cu_handle handle, int type, unsigned long long flags)
{
	cu_result result = fake_enter(false);

	if (!result && (type != CU_HANDLE_FILE || flags))
		result = CU_INVALID_VALUE;
	if (!result)
		*(int *)ret_shareable = fcntl((int)handle - 1, F_DUPFD_CLOEXEC, 0);
	return fake_leave(result);
}

cu_result cuMemImportFromShareableHandle(cu_handle *ret_handle, void *shareable, int type);
cu_result cuMemImportFromShareableHandle(cu_handle *ret_handle, void *shareable, int type)
{
	cu_result result = fake_enter(true);
	int fd = (int)(intptr_t)shareable;
	char path[64], name[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!result &&
	    (type != CU_HANDLE_FILE || readlink(path, name, sizeof(name) - 1) < 0 || !strstr(name, "fake-cuda")))
		result = CU_INVALID_VALUE; /* no such file of ours */
	if (!result) {
		*ret_handle = (cu_handle)fcntl(fd, F_DUPFD_CLOEXEC, 0) + 1;
		fake.counts.handles++;
	}
	return fake_leave(result);
}

cu_result cuMemAddressReserve(cu_pointer *ret_pointer, size_t bytes, size_t alignment, cu_pointer address,
			      unsigned long long flags);
cu_result cuMemAddressReserve(cu_pointer *ret_pointer, size_t bytes, size_t alignment, cu_pointer address,
			      unsigned long long flags)
{
	cu_result result = fake_enter(false);
	void *at = MAP_FAILED;

	if (!result && (!bytes || bytes % PAGE))
		result = CU_INVALID_VALUE;
	if (!result)
		at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!result && at == MAP_FAILED)
		result = CU_OUT_OF_MEMORY;
	if (!result) {
		*ret_pointer = (uintptr_t)at;
		fake.counts.reserved++;
	}
	return fake_leave(result);
}

cu_result cuMemAddressFree(cu_pointer pointer, size_t bytes);
cu_result cuMemAddressFree(cu_pointer pointer, size_t bytes)
{
	cu_result result = fake_enter(false);

	for (uint64_t at = pointer; !result && at < pointer + bytes; at += PAGE)
		if (fake_find(at))
			result = CU_INVALID_VALUE; /* something is mapped there */
	if (!result) {
		munmap((void *)(uintptr_t)pointer, bytes);
		fake.counts.reserved--;
	}
	return fake_leave(result);
}

cu_result cuMemMap(cu_pointer pointer, size_t bytes, size_t offset, cu_handle handle, unsigned long long flags);
cu_result cuMemMap(cu_pointer pointer, size_t bytes, size_t offset, cu_handle handle, unsigned long long flags)
{
	cu_result result = fake_enter(false);
	int fd = (int)handle - 1;
	struct stat file;
	struct block *block;

	if (!result && (offset || flags || fstat(fd, &file) || (size_t)file.st_size != bytes || fake_find(pointer)))
		result = CU_INVALID_VALUE;
	if (!result) {
		block = fake_new(0, bytes, FAKE_VIRTUAL, fcntl(fd, F_DUPFD_CLOEXEC, 0), (void *)(uintptr_t)pointer);
		block->mapped = true;
		block->accessible = false;
	}
	return fake_leave(result);
}

cu_result cuMemUnmap(cu_pointer pointer, size_t bytes);
cu_result cuMemUnmap(cu_pointer pointer, size_t bytes)
{
	cu_result result = fake_enter(false);
	struct block *block = result ? NULL : fake_find(pointer);

	if (!result && (!block || !block->mapped || (uintptr_t)block->base != pointer || block->bytes != bytes))
		result = CU_INVALID_VALUE;
	if (!result) {
		fake_drain();
		fake_drop(block);
	}
	return fake_leave(result);
}

cu_result cuMemSetAccess(cu_pointer pointer, size_t bytes, const struct cu_access *access, size_t count);
cu_result cuMemSetAccess(cu_pointer pointer, size_t bytes, const struct cu_access *access, size_t count)
{
	cu_result result = fake_enter(false);
	struct block *block;

	for (uint64_t at = pointer; !result && at < pointer + bytes; at += block->bytes) {
		block = fake_find(at);
		if (!block || count != 1 || access->location.type != CU_LOCATION_DEVICE ||
		    access->flags != CU_ACCESS_READWRITE)
			return fake_leave(CU_INVALID_VALUE);
		block->accessible = true;
		block->card = access->location.id;
	}
	return fake_leave(result);
}
