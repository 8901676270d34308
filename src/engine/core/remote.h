/*
 * Memory of peers: what a descriptor says of it, checked when it was imported. On the caller's thread; revoked by the peer's home.
 */
#ifndef WF_ENGINE_REMOTE_H
#define WF_ENGINE_REMOTE_H

#include "weft.h"
#include <stdbool.h>
#include <stdint.h>

struct weft_engine;

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

int wf_remote_import(struct weft_engine *engine, weft_peer peer, const void *blob, size_t bytes,
		     weft_remote *ret_remote);
int wf_remote_close(struct weft_engine *engine, weft_remote handle);
void wf_remote_release(void *remote);
/* The peer says that its region is gone: what was imported from it becomes stale. Returns whether operations use it still. */
bool wf_remote_revoked(struct weft_engine *engine, weft_peer peer, uint64_t region);
#endif
