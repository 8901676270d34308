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

struct wf_remote_key {
	uint64_t key, base;
	uint64_t step;
	const uint64_t *tile;
	uint32_t tiles; /* 0: key is for all of it */
};

struct wf_remote {
	struct weft_engine *engine;
	weft_remote handle;
	weft_peer peer;
	uint64_t incarnation; /* the peer's when it was exported */
	uint64_t region;      /* the peer's handle for it */
	uint64_t proof;
	uint64_t bytes;
	uint32_t access;
	bool cards; /* it is a card's memory, says the descriptor … */
	bool lands; /* … which its owner's card copies to and from a room, for those who reach it by NICs */
	_Atomic int revoked;
	uint64_t rails; /* bit i: the peer's rail i has a key */
	uint64_t reach; /* as in struct wf_region */
	uint32_t count;
	struct wf_remote_key key[]; /* by the peer's rail index; behind them the keys of tiles */
};

/* groups: bit g, the groups whose rails carry it; 0: those near a card if it is one's memory, else all. */
int wf_region_register(struct weft_engine *engine, void *base, uint64_t bytes, uint32_t access, uint64_t groups,
		       weft_region *ret_region);
/* Memory for regions, that peers of this host can map. near: NULL or "numa:N". */
int wf_memory_alloc(struct weft_engine *engine, uint64_t bytes, const char *near, void **ret_memory);
int wf_memory_free(struct weft_engine *engine, void *memory);
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

int wf_remote_import(struct weft_engine *engine, weft_peer peer, const void *blob, size_t bytes,
		     weft_remote *ret_remote);
int wf_remote_close(struct weft_engine *engine, weft_remote handle);
void wf_remote_release(void *remote);
/* The peer says that its region is gone: what was imported from it becomes stale. Returns whether operations use it still. */
bool wf_remote_revoked(struct weft_engine *engine, weft_peer peer, uint64_t region);
#endif
