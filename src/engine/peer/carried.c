/* What each rail really carried; carried.h says who calls what on which thread. */
#include "engine/peer/carried.h"
#include "engine/peer/lane.h"

#include <stdlib.h>

enum { WRITES, READS };

static struct wf_carried *find(struct wf_path *path, uint32_t remote)
{
	struct wf_carried *carried = &path->carried;

	while (carried && carried->remote != remote)
		carried = atomic_load_explicit(&carried->next, memory_order_relaxed);
	return carried;
}

void wf_carried_switch(struct wf_path *path, uint32_t remote)
{
	struct wf_carried *found;

	if (!path->carrying) { /* the first one ever */
		path->carried.remote = (uint8_t)remote;
		path->carrying = &path->carried;
		return;
	}
	found = find(path, remote);
	if (!found && (found = calloc(1, sizeof(*found)))) {
		found->remote = (uint8_t)remote;
		atomic_store_explicit(&found->next, atomic_load_explicit(&path->carried.next, memory_order_relaxed),
				      memory_order_relaxed);
		/* Release: pairs with the readers' acquire. */
		atomic_store_explicit(&path->carried.next, found, memory_order_release);
	}
	if (found) /* without memory the last rail's counters go on: nothing is lost of the peer's sums */
		path->carrying = found;
}

static void take_off(_Atomic uint64_t *counter, uint64_t amount)
{
	uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, now > amount ? now - amount : 0, memory_order_relaxed);
}

void wf_carried_uncount(struct wf_carried *carried, bool read, uint64_t bytes)
{
	take_off(&carried->operations[read], 1);
	take_off(&carried->operation_bytes[read], bytes);
}

static uint64_t count(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void wf_carried_by_path(const struct wf_path *path, uint32_t remote, struct weft_path_info *info)
{
	for (const struct wf_carried *carried = &path->carried; carried;
	     carried = atomic_load_explicit(&carried->next, memory_order_acquire)) {
		if (carried->remote != remote)
			continue;
		info->writes += count(&carried->operations[WRITES]);
		info->written_bytes += count(&carried->operation_bytes[WRITES]);
		info->reads += count(&carried->operations[READS]);
		info->read_bytes += count(&carried->operation_bytes[READS]);
	}
}

void wf_carried_by_lane(const struct wf_lane *lane, struct weft_peer_info *info)
{
	for (uint32_t i = 0; i < lane->group->seats; i++)
		for (const struct wf_carried *carried = &lane->path[i].carried; carried;
		     carried = atomic_load_explicit(&carried->next, memory_order_acquire)) {
			info->writes += count(&carried->operations[WRITES]);
			info->written_bytes += count(&carried->operation_bytes[WRITES]);
			info->reads += count(&carried->operations[READS]);
			info->read_bytes += count(&carried->operation_bytes[READS]);
		}
}

void wf_carried_free(struct wf_lane *lane)
{
	for (uint32_t i = 0; i < lane->group->seats; i++) {
		struct wf_carried *carried = atomic_load(&lane->path[i].carried.next);

		while (carried) {
			struct wf_carried *next = atomic_load(&carried->next);

			free(carried);
			carried = next;
		}
	}
}
