/* Pools sized at open; pool.h says who uses them. */
#include "base/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Newton's iteration doubles the number of correct bits, starting with three, which hold for any odd number. */
static uint64_t inverse_of(uint64_t odd)
{
	uint64_t inverse = odd;

	for (int bits = 3; bits < 64; bits *= 2)
		inverse *= 2 - odd * inverse;
	return inverse;
}

int wf_pool_init(struct wf_pool *pool, uint32_t count, size_t object_bytes)
{
	size_t stride = (object_bytes + 63) & ~(size_t)63;

	pool->next = calloc(count, sizeof(*pool->next));
	pool->base = pool->next ? aligned_alloc(64, stride * count) : NULL;
	if (!pool->base) {
		free(pool->next);
		pool->next = NULL;
		return -ENOMEM;
	}
	memset(pool->base, 0, stride * count);
	pool->stride = stride;
	pool->shift = __builtin_ctzll(stride);
	pool->inverse = inverse_of(stride >> pool->shift);
	pool->count = count;
	atomic_store(&pool->top, 0);
	for (uint32_t i = count; i > 0; i--)
		wf_pool_give(pool, wf_pool_at(pool, i - 1));
	return 0;
}

void wf_pool_destroy(struct wf_pool *pool)
{
	free(pool->base);
	free(pool->next);
	pool->base = NULL;
	pool->next = NULL;
}

uint32_t wf_pool_out(const struct wf_pool *pool)
{
	uint32_t out = 0;

	for (uint32_t i = 0; i < pool->count; i++)
		out += atomic_load_explicit(&pool->next[i], memory_order_relaxed) == WF_POOL_OUT;
	return out;
}
