/* The pairing heap of heap.h. On its owner's thread. */
#include "base/heap.h"

#include <stddef.h>

/* The one that comes later becomes a child of the other. Neither has siblings. */
static struct wf_heap_node *meld(struct wf_heap_node *a, struct wf_heap_node *b, wf_heap_before before, uint64_t from)
{
	if (!a || !b)
		return a ? a : b;
	if (before(b, a, from)) {
		struct wf_heap_node *later = a;

		a = b;
		b = later;
	}
	b->next = a->child;
	if (b->next)
		b->next->prev = b;
	b->prev = a;
	a->child = b;
	return a;
}

static struct wf_heap_node *alone(struct wf_heap_node *node)
{
	node->next = node->prev = NULL;
	return node;
}

/* Makes one heap of siblings: neighbours are melded in pairs, then the pairs from the last to the first. */
static struct wf_heap_node *meld_siblings(struct wf_heap_node *node, wf_heap_before before, uint64_t from)
{
	struct wf_heap_node *pairs = NULL, *all = NULL;

	while (node) {
		struct wf_heap_node *a = node, *b = node->next, *pair;

		node = b ? b->next : NULL;
		pair = meld(alone(a), b ? alone(b) : NULL, before, from);
		pair->next = pairs;
		pairs = pair;
	}
	while (pairs) {
		struct wf_heap_node *pair = pairs;

		pairs = pair->next;
		all = meld(alone(pair), all, before, from);
	}
	return all;
}

void wf_heap_add(struct wf_heap_node **first, struct wf_heap_node *node, wf_heap_before before, uint64_t from)
{
	node->child = NULL;
	*first = meld(alone(node), *first, before, from);
}

void wf_heap_remove(struct wf_heap_node **first, struct wf_heap_node *node, wf_heap_before before, uint64_t from)
{
	struct wf_heap_node *children = meld_siblings(node->child, before, from);

	node->child = NULL;
	if (*first == node) {
		*first = children;
		return;
	}
	if (node->prev->child == node)
		node->prev->child = node->next;
	else
		node->prev->next = node->next;
	if (node->next)
		node->next->prev = node->prev;
	alone(node);
	*first = meld(*first, children, before, from);
}

struct wf_heap_node *wf_heap_take_all(struct wf_heap_node **first)
{
	struct wf_heap_node *left = *first, *all = NULL;

	*first = NULL;
	while (left) {
		struct wf_heap_node *node = left, *last = node->child;

		left = node->next;
		while (last && last->next)
			last = last->next;
		if (last) {
			last->next = left;
			left = node->child;
		}
		node->child = node->prev = NULL;
		node->next = all;
		all = node;
	}
	return all;
}
