/*
 * Memory that the engine allocates: regions in it are mapped by peers of this host, who then copy there without the kernel. Called
 * through api.c on application threads.
 */
#include "engine/core/memory.h"
#include "engine/core/engine.h"
#include "engine/core/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -1: anywhere. */
static int read_near(const char *near, int *ret_numa)
{
	char *end;
	long numa;

	*ret_numa = -1;
	if (!near)
		return 0;
	if (strncmp(near, "numa:", 5) || near[5] < '0' || near[5] > '9')
		return -EINVAL;
	numa = strtol(near + 5, &end, 10);
	if (*end || numa > 4096)
		return -EINVAL;
	*ret_numa = (int)numa;
	return 0;
}

int wf_memory_alloc(struct weft_engine *engine, uint64_t bytes, const char *near, void **ret_memory)
{
	int numa, error = read_near(near, &numa);

	if (error || !bytes)
		return -EINVAL;
	return wf_allocation_make(&engine->allocations, bytes, numa, ret_memory);
}

struct freed {
	const char *base;
	uint64_t bytes;
	bool used;
};

static void look(void *object, void *context)
{
	const struct wf_region *region = object;
	struct freed *freed = context;

	freed->used |= region->base < freed->base + freed->bytes && region->base + region->bytes > freed->base;
}

int wf_memory_free(struct weft_engine *engine, void *memory)
{
	struct freed freed = { memory, wf_allocation_bytes(&engine->allocations, memory), false };

	if (!freed.bytes)
		return -ENOENT;
	wf_handles_each(&engine->regions, look, &freed);
	if (freed.used)
		return -EBUSY;
	wf_allocation_free(&engine->allocations, memory);
	return 0;
}
