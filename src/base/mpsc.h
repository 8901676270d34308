/*
 * An intrusive queue of unlimited length: many producers, one consumer at a time. Pushing never fails, never waits and
 * never allocates, because the node is part of what is queued: this is how an end can always be delivered.
 */
#ifndef WF_BASE_MPSC_H
#define WF_BASE_MPSC_H

#include <stdatomic.h>
#include <stdalign.h>
#include <stddef.h>

struct wf_node {
	_Atomic(struct wf_node *) next;
};

struct wf_mpsc {
	alignas(64) _Atomic(struct wf_node *) last; /* producers swap themselves in here */
	alignas(64) struct wf_node *first;          /* the consumer's */
	struct wf_node stub;
};

static inline void wf_mpsc_init(struct wf_mpsc *queue)
{
	atomic_store_explicit(&queue->stub.next, NULL, memory_order_relaxed);
	atomic_store_explicit(&queue->last, &queue->stub, memory_order_relaxed);
	queue->first = &queue->stub;
}

static inline void wf_mpsc_push(struct wf_mpsc *queue, struct wf_node *node)
{
	struct wf_node *before;

	atomic_store_explicit(&node->next, NULL, memory_order_relaxed);
	/* acq_rel: the producer after us must see our node whole before it links behind it. */
	before = atomic_exchange_explicit(&queue->last, node, memory_order_acq_rel);
	/* Pairs with the acquire loads in pop. Between the exchange and this store the queue looks empty from here on;
	 * whoever sleeps on that is woken by us, since we wake after pushing. */
	atomic_store_explicit(&before->next, node, memory_order_release);
}

static inline struct wf_node *wf_mpsc_pop(struct wf_mpsc *queue)
{
	struct wf_node *first = queue->first;
	struct wf_node *next = atomic_load_explicit(&first->next, memory_order_acquire);

	if (first == &queue->stub) {
		if (!next)
			return NULL;
		queue->first = first = next;
		next = atomic_load_explicit(&first->next, memory_order_acquire);
	}
	if (next) {
		queue->first = next;
		return first;
	}
	if (first != atomic_load_explicit(&queue->last, memory_order_acquire))
		return NULL; /* a producer is between its two steps */
	wf_mpsc_push(queue, &queue->stub);
	next = atomic_load_explicit(&first->next, memory_order_acquire);
	if (!next)
		return NULL;
	queue->first = next;
	return first;
}
#endif
