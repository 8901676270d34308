/* Intrusive doubly linked list, owned by one thread. A link that is in no list points to itself. */
#ifndef WF_BASE_LIST_H
#define WF_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct wf_link {
	struct wf_link *prev, *next;
};

#define wf_container(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

static inline void wf_list_init(struct wf_link *head)
{
	head->prev = head->next = head;
}

static inline bool wf_list_empty(const struct wf_link *head)
{
	return head->next == head;
}

static inline bool wf_link_linked(const struct wf_link *link)
{
	return link->next != link;
}

static inline void wf_list_append(struct wf_link *head, struct wf_link *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* Harmless on a link that is in no list. */
static inline void wf_list_remove(struct wf_link *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	wf_list_init(link);
}
#endif
