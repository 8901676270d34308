/* Pools sized at open; pool.h says who uses them. */
#include "base/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int wf_pool_init(struct wf_pool *pool, uint32_t count, size_t object_bytes)
{
	size_t stride = (object_bytes + 63) & ~(size_t)63;

	if (wf_ring_init(&pool->free, count))
		return -ENOMEM;
	pool->base = aligned_alloc(64, stride * count);
	if (!pool->base) {
		wf_ring_destroy(&pool->free);
		return -ENOMEM;
	}
	memset(pool->base, 0, stride * count);
	pool->stride = stride;
	pool->count = count;
	for (uint32_t i = 0; i < count; i++)
		wf_pool_give(pool, wf_pool_at(pool, i));
	return 0;
}

void wf_pool_destroy(struct wf_pool *pool)
{
	if (!pool->base)
		return;
	free(pool->base);
	pool->base = NULL;
	wf_ring_destroy(&pool->free);
}

void *wf_pool_take(struct wf_pool *pool)
{
	struct wf_item item;

	return wf_ring_pop(&pool->free, &item) ? (void *)(uintptr_t)item.word[0] : NULL;
}

void wf_pool_give(struct wf_pool *pool, void *object)
{
	struct wf_item item = { { (uintptr_t)object } };

	/* Cannot be full: the ring has room for every object of the pool. */
	wf_ring_push(&pool->free, &item);
}
