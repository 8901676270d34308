/*
 * Objects of one size, all allocated at open. Any thread takes them and gives them back, without a lock. The pool is a
 * stack: the object given last is taken first, because it and what it points to are still in the cache.
 */
#ifndef WF_BASE_POOL_H
#define WF_BASE_POOL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct wf_pool {
	char *base;
	size_t stride;
	int shift;        /* stride is an odd number << shift … */
	uint64_t inverse; /* … and this times the odd number is 1, modulo 2^64 */
	uint32_t count;
	_Atomic uint32_t *next; /* per object, the next free one: index + 1, 0 for none; WF_POOL_OUT: taken */
	alignas(64) _Atomic uint64_t
	    top; /* count of changes << 32 | index + 1; the count detects a stack that changed and only looks the same */
};

#define WF_POOL_OUT UINT32_MAX

int wf_pool_init(struct wf_pool *pool, uint32_t count, size_t object_bytes); /* objects start zeroed, 64-byte aligned */
void wf_pool_destroy(struct wf_pool *pool);
uint32_t wf_pool_out(const struct wf_pool *pool); /* number taken; counted on request, not at each take */

static inline void *wf_pool_at(const struct wf_pool *pool, uint32_t index)
{
	return pool->base + (size_t)index * pool->stride;
}

/* An exact division is a multiplication by the inverse, which is much faster. */
static inline uint32_t wf_pool_index(const struct wf_pool *pool, const void *object)
{
	return (uint32_t)(((uint64_t)((const char *)object - pool->base) >> pool->shift) * pool->inverse);
}

static inline size_t wf_pool_bytes(const struct wf_pool *pool)
{
	return (size_t)pool->count * (pool->stride + sizeof(*pool->next));
}
static inline uint64_t wf_pool_changed(uint64_t top, uint32_t number)
{
	return ((top >> 32) + 1) << 32 | number;
}

/* Returns NULL if all are taken. */
static inline void *wf_pool_take(struct wf_pool *pool)
{
	/* Pairs with the release in give(): the object is as its last user left it. */
	uint64_t top = atomic_load_explicit(&pool->top, memory_order_acquire);
	uint32_t number;

	do {
		number = (uint32_t)top;
		if (!number)
			return NULL;
		/* Another thread may take and change it meanwhile; then the exchange fails. */
	} while (!atomic_compare_exchange_weak_explicit(
	    &pool->top, &top, wf_pool_changed(top, atomic_load_explicit(&pool->next[number - 1], memory_order_relaxed)),
	    memory_order_acquire, memory_order_acquire));
	atomic_store_explicit(&pool->next[number - 1], WF_POOL_OUT, memory_order_relaxed);
	return wf_pool_at(pool, number - 1);
}

static inline void wf_pool_give(struct wf_pool *pool, void *object)
{
	uint32_t number = wf_pool_index(pool, object) + 1;
	uint64_t top = atomic_load_explicit(&pool->top, memory_order_relaxed);

	do {
		atomic_store_explicit(&pool->next[number - 1], (uint32_t)top, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&pool->top, &top, wf_pool_changed(top, number),
							memory_order_release, memory_order_relaxed));
}
#endif
