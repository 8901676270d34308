/* Local memory registered with every rail, and peers' memory imported from its descriptor. */
#ifndef WF_ENGINE_REGION_H
#define WF_ENGINE_REGION_H

#include "rail/rail.h"
#include "wire/blob.h"

#include <stdatomic.h>

struct weft_engine;
struct wf_group;
struct wf_seat;

struct wf_region {
	struct weft_engine *engine;
	weft_region handle;
	char *base;
	uint64_t bytes;
	uint32_t access;
	uint64_t proof;               /* random; in the descriptor, and in every manifest that names the region */
	struct wf_rail_memory *local; /* while it is being revoked: replaces memory, by rail index */
	void *blob; /* the exported descriptor, made after registration; never changes. NULL: peers have no access */
	size_t blob_bytes;
	int (*step)(struct wf_region *region, struct wf_seat *seat); /* what is being done to it, rail by rail */
	_Atomic int step_error;
	struct wf_device_memory *device; /* NULL: the CPU's memory */
	bool lands;                      /* peers reach that by NICs too, through rooms (rooms.h) */
	uint64_t groups;                 /* bit g: its rails are near; all for host memory */
	uint64_t reach; /* the longest piece that lies in one tile on every rail; UINT64_MAX: no rail has tiles */
	_Atomic int revoked;
	_Atomic int changing;           /* its registrations are being replaced: it must not be used now */
	struct wf_rail_memory memory[]; /* by rail index */
};

/* groups: bit g, the groups whose rails carry it; 0: those near a card if it is one's memory, else all. */
int wf_region_register(struct weft_engine *engine, void *base, uint64_t bytes, uint32_t access, uint64_t groups,
		       weft_region *ret_region);
int wf_region_close(struct weft_engine *engine, weft_region handle);
int wf_region_revoke(struct weft_engine *engine, weft_region handle);
int wf_region_export(struct weft_engine *engine, weft_region handle, void *blob, size_t *bytes);
/* New keys for it: the old ones are dead then. On a worker, which does not wait: done is called in any case, on the last of them, unless
 * this returns -ENOMEM. Nobody else may use the region meanwhile. */
struct wf_rekeying {
	struct wf_region *region;
	void (*done)(struct wf_rekeying *rekeying, int error);
	_Atomic int error;
};
int wf_region_rekey(struct wf_group *group, struct wf_rekeying *rekeying);
void wf_region_leave(struct wf_group *group); /* the group's rails are closing */
void wf_region_release(void *region);         /* handle table: the last reference is gone */

#endif
