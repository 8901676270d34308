/* Allocating, finding and freeing memory that peers can map; allocation.h says what it is. */
#include "local/allocation.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_BYTES     (UINT64_C(2) << 20)
#define NODES_MOST     1024
#define NODE_PREFERRED 1 /* MPOL_PREFERRED of <linux/mempolicy.h> */

struct wf_allocation {
	struct wf_allocation *next;
	struct wf_share share;
};

void wf_allocations_open(struct wf_allocations *allocations)
{
	pthread_mutex_init(&allocations->lock, NULL);
	allocations->first = NULL;
}

static void release(struct wf_allocation *allocation)
{
	wf_share_close(&allocation->share);
	free(allocation);
}

void wf_allocations_close(struct wf_allocations *allocations)
{
	while (allocations->first) {
		struct wf_allocation *next = allocations->first->next;

		release(allocations->first);
		allocations->first = next;
	}
	pthread_mutex_destroy(&allocations->lock);
}

/* Before the pages exist. A node that has no room, or is not there, is no reason to fail: near is a wish. */
static void prefer_node(const struct wf_share *share, int numa)
{
	unsigned long nodes[NODES_MOST / (8 * sizeof(unsigned long))] = { 0 };

	if (numa < 0 || numa >= NODES_MOST)
		return;
	nodes[(size_t)numa / (8 * sizeof(nodes[0]))] = 1ul << (size_t)numa % (8 * sizeof(nodes[0]));
	syscall(SYS_mbind, share->at, share->bytes, NODE_PREFERRED, nodes, NODES_MOST + 1, 0);
}

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
	return (bytes + to - 1) / to * to;
}

/* Mapping huge pages reserves them, so it fails where there are too few, and nobody faults later. */
static int make(uint64_t bytes, struct wf_share *ret_share)
{
	int error;

	if (bytes >= HUGE_BYTES && !wf_share_make_huge(round_up(bytes, HUGE_BYTES), ret_share))
		return 0;
	error = wf_share_make(round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE)), false, ret_share);
	if (!error)
		madvise(ret_share->at, ret_share->bytes, MADV_HUGEPAGE); /* as the host allows */
	return error;
}

int wf_allocation_make(struct wf_allocations *allocations, uint64_t bytes, int numa, void **ret_memory)
{
	struct wf_allocation *allocation;
	int error;

	if (bytes > INT64_MAX - HUGE_BYTES)
		return -ENOMEM;
	allocation = calloc(1, sizeof(*allocation));
	if (!allocation)
		return -ENOMEM;
	error = make(bytes, &allocation->share);
	if (error) {
		free(allocation);
		return error;
	}
	prefer_node(&allocation->share, numa);
	pthread_mutex_lock(&allocations->lock);
	allocation->next = allocations->first;
	allocations->first = allocation;
	pthread_mutex_unlock(&allocations->lock);
	*ret_memory = allocation->share.at;
	return 0;
}

/* Under the lock: the link to the allocation that the range lies in. */
static struct wf_allocation **find(struct wf_allocations *allocations, const char *base, uint64_t bytes)
{
	struct wf_allocation **at = &allocations->first;

	for (; *at; at = &(*at)->next) {
		const struct wf_share *share = &(*at)->share;

		if (base >= (char *)share->at && bytes <= share->bytes &&
		    (uint64_t)(base - (char *)share->at) <= share->bytes - bytes)
			break;
	}
	return at;
}

uint64_t wf_allocation_bytes(struct wf_allocations *allocations, const void *memory)
{
	const struct wf_allocation *found;
	uint64_t bytes;

	pthread_mutex_lock(&allocations->lock);
	found = *find(allocations, memory, 1);
	bytes = found && found->share.at == memory ? found->share.bytes : 0;
	pthread_mutex_unlock(&allocations->lock);
	return bytes;
}

void wf_allocation_free(struct wf_allocations *allocations, void *memory)
{
	struct wf_allocation **at, *found;

	pthread_mutex_lock(&allocations->lock);
	at = find(allocations, memory, 1);
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&allocations->lock);
	if (found)
		release(found);
}

bool wf_allocation_find(struct wf_allocations *allocations, const void *base, uint64_t bytes,
			struct wf_local_file *ret_file)
{
	const struct wf_allocation *found;

	pthread_mutex_lock(&allocations->lock);
	found = *find(allocations, base, bytes);
	if (found)
		*ret_file = (struct wf_local_file){ found->share.fd, found->share.bytes,
						    (uint64_t)((const char *)base - (char *)found->share.at) };
	pthread_mutex_unlock(&allocations->lock);
	return found;
}
