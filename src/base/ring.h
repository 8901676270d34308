/*
 * A bounded queue for many producers and one consumer at a time, after Vyukov: each cell has a sequence number that
 * says whose turn it is. Push and pop never allocate, and never wait for a stalled thread, except for one that holds
 * the very cell. Used for a worker's inbox.
 *
 * It uses only C11 atomics, so that ThreadSanitizer and the model in tests/model see every ordering.
 */
#ifndef WF_BASE_RING_H
#define WF_BASE_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct wf_item {
	uint64_t word[3];
};

struct wf_ring_cell {
	_Atomic uint64_t sequence;
	struct wf_item item;
};

struct wf_ring {
	struct wf_ring_cell *cells;
	uint64_t mask;
	alignas(64) _Atomic uint64_t tail; /* producers take tickets here */
	alignas(64) _Atomic uint64_t head; /* the consumer's; others may read it */
};

int wf_ring_init(struct wf_ring *ring, uint64_t at_least); /* rounds up to a power of two */
void wf_ring_destroy(struct wf_ring *ring);
bool wf_ring_push(struct wf_ring *ring, const struct wf_item *item); /* false: full */

/* Returns false if empty. */
static inline bool wf_ring_pop(struct wf_ring *ring, struct wf_item *ret_item)
{
	uint64_t ticket = atomic_load_explicit(&ring->head, memory_order_relaxed);
	struct wf_ring_cell *cell = &ring->cells[ticket & ring->mask];

	/* Pairs with the release in push. */
	if (atomic_load_explicit(&cell->sequence, memory_order_acquire) != ticket + 1)
		return false;
	*ret_item = cell->item;
	atomic_store_explicit(&ring->head, ticket + 1, memory_order_relaxed);
	/* Pairs with the acquire in push: the cell is free for the next lap. */
	atomic_store_explicit(&cell->sequence, ticket + ring->mask + 1, memory_order_release);
	return true;
}

/* For the consumer before it sleeps: true if a push has taken a ticket that was not popped yet, even if its item is
 * still missing. Sequentially consistent with the exchange in push: a push that this misses sees what the consumer
 * stored before. */
static inline bool wf_ring_awaits(struct wf_ring *ring)
{
	return atomic_load(&ring->tail) != atomic_load_explicit(&ring->head, memory_order_relaxed);
}

/* Exact only while nobody pushes or pops. */
static inline uint64_t wf_ring_count(struct wf_ring *ring)
{
	return atomic_load_explicit(&ring->tail, memory_order_relaxed) -
	       atomic_load_explicit(&ring->head, memory_order_relaxed);
}
#endif
