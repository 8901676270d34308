/*
 * Memory that an engine allocates for its application: sealed memfds, so that peers of this host can map it. Huge pages where the
 * host has some free, on a NUMA node where one is asked for. Any thread.
 */
#ifndef WF_LOCAL_ALLOCATION_H
#define WF_LOCAL_ALLOCATION_H

#include "local/memory.h"

struct wf_allocation;
struct wf_allocations {
	pthread_mutex_t lock;
	struct wf_allocation *first;
};

void wf_allocations_open(struct wf_allocations *allocations);
void wf_allocations_close(struct wf_allocations *allocations); /* frees all */
/* numa: a node's number, or -1. Returns 0, -ENOMEM or another negative errno. */
int wf_allocation_make(struct wf_allocations *allocations, uint64_t bytes, int numa, void **ret_memory);
/* Returns its length; 0: it is not the beginning of an allocation. */
uint64_t wf_allocation_bytes(struct wf_allocations *allocations, const void *memory);
void wf_allocation_free(struct wf_allocations *allocations, void *memory);
/* Returns whether the range lies in an allocation, and in which file. The descriptor stays the allocation's. */
bool wf_allocation_find(struct wf_allocations *allocations, const void *base, uint64_t bytes,
			struct wf_local_file *ret_file);
#endif
