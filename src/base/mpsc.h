/*
 * An intrusive queue of unlimited length: many producers, one consumer at a time. Pushing never fails, never waits for
 * another thread and never allocates, because the node is part of the queued object. That is why an end can always be
 * delivered.
 *
 * Producers push onto a stack. A consumer that has nothing left takes the whole stack at once and reverses it. So a
 * push costs one exchange, repeated if another push came between, and the consumer pays one exchange for everything
 * pushed since its last look.
 */
#ifndef WF_BASE_MPSC_H
#define WF_BASE_MPSC_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct wf_node {
	struct wf_node *next; /* the producer's until pushed, then the consumer's */
};

struct wf_mpsc {
	alignas(64) _Atomic(struct wf_node *) newest; /* the stack: each node points to the one pushed before it */
	alignas(
	    64) _Atomic(struct wf_node *) oldest; /* the consumer's, in order; other threads only test it for NULL */
};

static inline void wf_mpsc_init(struct wf_mpsc *queue)
{
	atomic_init(&queue->newest, NULL);
	atomic_init(&queue->oldest, NULL);
}

/* Sequentially consistent: if a thread stores a flag and then finds the queue empty, the push that it missed sees
 * the flag. */
static inline void wf_mpsc_push(struct wf_mpsc *queue, struct wf_node *node)
{
	struct wf_node *newest = atomic_load_explicit(&queue->newest, memory_order_relaxed);

	/* The same node may have gone and come back meanwhile (ABA). That does no harm, because only its address is
	 * used. */
	do
		node->next = newest;
	while (!atomic_compare_exchange_weak(&queue->newest, &newest, node));
}

/* Returns false if everything pushed before has been popped. Any thread. The order of the two loads matters: a node
 * that is no longer in newest is, or was, in oldest. */
static inline bool wf_mpsc_any(struct wf_mpsc *queue)
{
	return atomic_load(&queue->newest) || atomic_load_explicit(&queue->oldest, memory_order_relaxed);
}

/* Returns NULL if empty. */
static inline struct wf_node *wf_mpsc_pop(struct wf_mpsc *queue)
{
	struct wf_node *oldest = atomic_load_explicit(&queue->oldest, memory_order_relaxed);

	if (!oldest) {
		struct wf_node *node = atomic_load_explicit(&queue->newest, memory_order_relaxed);

		if (!node)
			return NULL;
		/* Any non-NULL node until the first one is known: a thread that sees the stack emptied must see
		 * this. */
		atomic_store_explicit(&queue->oldest, node, memory_order_relaxed);
		/* Pairs with the exchange in push (the nodes are as their producers left them) and with any(). */
		node = atomic_exchange_explicit(&queue->newest, NULL, memory_order_acq_rel);
		while (node) {
			struct wf_node *earlier = node->next;

			node->next = oldest;
			oldest = node;
			node = earlier;
		}
	}
	atomic_store_explicit(&queue->oldest, oldest->next, memory_order_relaxed);
	return oldest;
}
#endif
