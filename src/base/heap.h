/*
 * Intrusive heap, a pairing heap, owned by one thread: adding costs a comparison, taking the first or any other about the
 * logarithm of how many there are. It allocates nothing and does not recurse.
 */
#ifndef WF_BASE_HEAP_H
#define WF_BASE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct wf_heap_node {
	struct wf_heap_node *child; /* the first of its children, which are linked by next */
	struct wf_heap_node *next;
	struct wf_heap_node *prev; /* the child before it, or its parent; the first of all has none */
};

/* Whether a comes before b. No two are equal. from is what the caller gave: the order may be relative to something. */
typedef bool (*wf_heap_before)(const struct wf_heap_node *a, const struct wf_heap_node *b, uint64_t from);

/* *first is the heap: NULL, or the node that comes before all others. */
void wf_heap_add(struct wf_heap_node **first, struct wf_heap_node *node, wf_heap_before before, uint64_t from);
void wf_heap_remove(struct wf_heap_node **first, struct wf_heap_node *node, wf_heap_before before, uint64_t from);
/* Takes all nodes out and returns them, linked by next, in no order. */
struct wf_heap_node *wf_heap_take_all(struct wf_heap_node **first);
#endif
