/* The table of regions and their lives; memory.h says how they are used. Any thread. */
#include "local/memory.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM_FIRST 64u
#define SLOT_BITS  16

static uint32_t slot_of(uint64_t key)
{
	return (uint32_t)(key & (WF_LOCAL_SLOTS - 1));
}

int wf_local_memory_open(struct wf_local_memory *memory)
{
	int error;

	memset(memory, 0, sizeof(*memory));
	pthread_mutex_init(&memory->lock, NULL);
	memory->share.fd = -1;
	memory->region = calloc(ROOM_FIRST, sizeof(*memory->region));
	if (!memory->region)
		return -ENOMEM;
	memory->room = ROOM_FIRST;
	error = wf_share_make(sizeof(*memory->board), true, &memory->share);
	memory->board = memory->share.at;
	return error;
}

void wf_local_memory_close(struct wf_local_memory *memory)
{
	for (uint32_t i = 0; i < memory->room; i++)
		if (memory->region[i].bytes && memory->region[i].file.fd >= 0)
			close(memory->region[i].file.fd);
	free(memory->region);
	wf_share_close(&memory->share);
	pthread_mutex_destroy(&memory->lock);
}

/* Under the lock. -ENOMEM: there are none left. */
static int find_slot(struct wf_local_memory *memory, uint32_t *ret_slot)
{
	struct wf_local_region *grown;

	while (memory->free < memory->room && memory->region[memory->free].bytes)
		memory->free++;
	if (memory->free == memory->room) {
		if (memory->room == WF_LOCAL_SLOTS)
			return -ENOMEM;
		grown = realloc(memory->region, 2 * memory->room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		memset(grown + memory->room, 0, memory->room * sizeof(*grown));
		memory->region = grown;
		memory->room *= 2;
	}
	*ret_slot = memory->free;
	return 0;
}

/* Peers that may only read get a descriptor that can only be read; none, and the kernel copies, where there is no /proc. */
static int duplicate(const struct wf_local_file *file, uint32_t access, struct wf_local_file *ret_copy)
{
	char path[32];

	*ret_copy = (struct wf_local_file){ .fd = -1 };
	if (!file)
		return 0;
	*ret_copy = *file;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	ret_copy->fd =
	    access & WEFT_REMOTE_WRITE ? fcntl(file->fd, F_DUPFD_CLOEXEC, 0) : open(path, O_RDONLY | O_CLOEXEC);
	return ret_copy->fd >= 0 || !(access & WEFT_REMOTE_WRITE) ? 0 : -errno;
}

/* All but its key is filled in. */
static int add(struct wf_local_memory *memory, struct wf_local_region *region)
{
	uint32_t slot;
	int error = wf_random(&region->key);

	if (error)
		return error;
	pthread_mutex_lock(&memory->lock);
	error = find_slot(memory, &slot);
	if (!error) {
		region->key = region->key >> SLOT_BITS << SLOT_BITS | slot;
		memory->region[slot] = *region;
		atomic_store(&memory->board->life[slot], ++memory->lives);
	}
	pthread_mutex_unlock(&memory->lock);
	return error;
}

int wf_local_memory_add(struct wf_local_memory *memory, void *base, uint64_t bytes, uint32_t access,
			const struct wf_local_file *file, uint64_t *ret_key)
{
	struct wf_local_region region = { .base = (uintptr_t)base, .bytes = bytes, .access = access };
	int error = duplicate(file, access, &region.file);

	if (error)
		return error;
	error = add(memory, &region);
	if (error && region.file.fd >= 0)
		close(region.file.fd);
	*ret_key = region.key;
	return error;
}

int wf_local_memory_add_device(struct wf_local_memory *memory, const struct wf_device_memory *device, uint32_t access,
			       uint64_t *ret_key)
{
	struct wf_local_region region = {
		.base = device->base, .bytes = device->bytes, .access = access, .file.fd = -1, .device = device
	};
	int error = add(memory, &region);

	*ret_key = region.key;
	return error;
}

uint32_t wf_local_memory_end(struct wf_local_memory *memory, uint64_t key)
{
	uint32_t slot = slot_of(key);
	int fd;

	pthread_mutex_lock(&memory->lock);
	/* Sequentially consistent, as the writer's announcement and its look at the life are (memory.h). */
	atomic_store(&memory->board->life[slot], 0);
	fd = memory->region[slot].file.fd;
	memory->region[slot].bytes = 0;
	if (slot < memory->free)
		memory->free = slot;
	pthread_mutex_unlock(&memory->lock);
	if (fd >= 0)
		close(fd);
	return slot;
}

/* Under the lock. What was freed since is nobody's to write: other memory may lie there now. */
static int answer_part(const struct wf_device_memory *device, uint32_t part, struct wf_letter *letter)
{
	int fd = -1;

	letter->status = part >= device->count            ? -EKEYREJECTED
			 : !wf_device_memory_same(device) ? -ESTALE
							  : wf_device_export(device, part, letter->handle, &fd);
	if (letter->status)
		return -1;
	letter->part = part;
	letter->parts = device->count;
	letter->way = device->part[part].way;
	letter->part_bytes = device->part[part].bytes;
	letter->offset = device->base - device->part[0].base;
	memcpy(letter->uuid, wf_card_uuid(device->card), sizeof(letter->uuid));
	return fd;
}

int wf_local_memory_answer(struct wf_local_memory *memory, uint64_t key, uint32_t part, struct wf_letter *ret_letter)
{
	struct wf_letter letter = { .kind = WF_LETTER_OPENED, .key = key, .status = -EKEYREJECTED };
	uint32_t slot = slot_of(key);
	int fd = -1;

	pthread_mutex_lock(&memory->lock);
	if (slot < memory->room && memory->region[slot].bytes && memory->region[slot].key == key) {
		const struct wf_local_region *region = &memory->region[slot];

		letter.status = 0;
		letter.base = region->base;
		letter.bytes = region->bytes;
		letter.access = region->access;
		letter.slot = slot;
		letter.life = atomic_load(&memory->board->life[slot]);
		if (region->device)
			fd = answer_part(region->device, part, &letter);
		else if (region->file.fd >= 0 && (fd = fcntl(region->file.fd, F_DUPFD_CLOEXEC, 0)) >= 0) {
			letter.offset = region->file.offset;
			letter.file_bytes = region->file.bytes;
		}
	}
	pthread_mutex_unlock(&memory->lock);
	*ret_letter = letter;
	return fd;
}
