/* The bounded queue; ring.h says what it is for. Any thread pushes; one thread at a time pops. */
#include "base/ring.h"

#include <errno.h>
#include <stdlib.h>

int wf_ring_init(struct wf_ring *ring, uint64_t at_least)
{
	uint64_t size = 2;

	while (size < at_least)
		size *= 2;
	ring->cells = calloc(size, sizeof(*ring->cells));
	if (!ring->cells)
		return -ENOMEM;
	for (uint64_t i = 0; i < size; i++)
		atomic_store_explicit(&ring->cells[i].sequence, i, memory_order_relaxed);
	ring->mask = size - 1;
	atomic_store_explicit(&ring->head, 0, memory_order_relaxed);
	atomic_store_explicit(&ring->tail, 0, memory_order_relaxed);
	return 0;
}

void wf_ring_destroy(struct wf_ring *ring)
{
	free(ring->cells);
	ring->cells = NULL;
}

bool wf_ring_push(struct wf_ring *ring, const struct wf_item *item)
{
	uint64_t ticket = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	for (;;) {
		struct wf_ring_cell *cell = &ring->cells[ticket & ring->mask];
		/* Pairs with the release in pop: a cell that looks free has been read. */
		uint64_t sequence = atomic_load_explicit(&cell->sequence, memory_order_acquire);
		int64_t behind = (int64_t)(sequence - ticket);

		if (behind < 0)
			return false;
		if (behind > 0) {
			ticket = atomic_load_explicit(&ring->tail, memory_order_relaxed);
			continue;
		}
		/* Sequentially consistent for wf_ring_awaits(). */
		if (!atomic_compare_exchange_weak_explicit(&ring->tail, &ticket, ticket + 1, memory_order_seq_cst,
							   memory_order_relaxed))
			continue;
		cell->item = *item;
		/* Pairs with the acquire in pop: a thread that sees the number sees the item. */
		atomic_store_explicit(&cell->sequence, ticket + 1, memory_order_release);
		return true;
	}
}
