/*
 * An intrusive queue of unlimited length: many producers, one consumer at a time. Pushing never fails, never waits for
 * another thread and never allocates, because the node is part of what is queued: this is how an end can always be
 * delivered.
 *
 * Producers push onto a stack; a consumer that has none left takes all of it at once and turns it round. So a push is one
 * exchange, tried again when another push came between, and so is what a consumer pays for everything pushed since it last
 * looked.
 */
#ifndef WF_BASE_MPSC_H
#define WF_BASE_MPSC_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct wf_node {
	struct wf_node *next; /* the producer's until it is pushed, then the consumer's */
};

struct wf_mpsc {
	alignas(64) _Atomic(struct wf_node *) newest; /* pushed, each before the one pushed earlier */
	alignas(
	    64) _Atomic(struct wf_node *) oldest; /* the consumer's, in order; others only look whether there is one */
};

static inline void wf_mpsc_init(struct wf_mpsc *queue)
{
	atomic_init(&queue->newest, NULL);
	atomic_init(&queue->oldest, NULL);
}

/* Sequentially consistent: whoever finds the queue empty after a store of its own is seen by the push it missed. */
static inline void wf_mpsc_push(struct wf_mpsc *queue, struct wf_node *node)
{
	struct wf_node *newest = atomic_load_explicit(&queue->newest, memory_order_relaxed);

	/* That the same node may have gone and come back meanwhile does no harm: nothing but its address is used. */
	do
		node->next = newest;
	while (!atomic_compare_exchange_weak(&queue->newest, &newest, node));
}

/* For any thread: false when all that was pushed before has been popped. In this order: what is no longer the newest is, or
 * was, among the oldest. */
static inline bool wf_mpsc_any(struct wf_mpsc *queue)
{
	return atomic_load(&queue->newest) || atomic_load_explicit(&queue->oldest, memory_order_relaxed);
}

/* NULL: empty. */
static inline struct wf_node *wf_mpsc_pop(struct wf_mpsc *queue)
{
	struct wf_node *oldest = atomic_load_explicit(&queue->oldest, memory_order_relaxed);

	if (!oldest) {
		struct wf_node *node = atomic_load_explicit(&queue->newest, memory_order_relaxed);

		if (!node)
			return NULL;
		/* Any of them, until it is known which: whoever sees them gone from the stack sees this. */
		atomic_store_explicit(&queue->oldest, node, memory_order_relaxed);
		/* Pairs with the exchange in push, the nodes are as their producers left them, and with any(). */
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
