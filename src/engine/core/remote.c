/* Peers' memory: descriptors in, and what their owners say of them later. On application threads; a room's (ops/legs.c) on a worker. */
#include "engine/core/remote.h"
#include "engine/core/engine.h"
#include "engine/core/region.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stdlib.h>

void wf_remote_release(void *object)
{
	struct wf_remote *remote = object;

	free(remote);
}

static int check_import(struct weft_engine *engine, weft_peer handle, const struct wf_wire_region *wire)
{
	struct wf_peer *peer = wf_handle_get(&engine->peers, handle);
	int error = 0;

	if (!peer)
		return -ENOENT;
	if (atomic_load(&peer->incarnation) != wire->incarnation)
		error = -ESTALE;
	wf_handle_put(&engine->peers, handle);
	return error;
}

/* Allocates room for what the descriptor says: the keys of tiles follow those of rails. */
static struct wf_remote *make_remote(const struct wf_wire_region *wire)
{
	struct wf_remote *remote;
	uint32_t rails = 0;

	for (uint32_t i = 0; i < wire->count; i++)
		if (wire->key[i].rail >= rails)
			rails = wire->key[i].rail + 1u;
	remote = calloc(1, sizeof(*remote) + rails * sizeof(remote->key[0]) + wire->tiles * sizeof(uint64_t));
	if (remote)
		remote->count = rails;
	return remote;
}

static void fill_remote(struct wf_remote *remote, const struct wf_wire_region *wire, const uint64_t *tile)
{
	remote->incarnation = wire->incarnation;
	remote->region = wire->region;
	remote->proof = wire->proof;
	remote->bytes = wire->bytes;
	remote->access = wire->access & ~(WF_WIRE_CARDS | WF_WIRE_LANDS);
	remote->cards = wire->access & WF_WIRE_CARDS;
	remote->lands = remote->cards && wire->access & WF_WIRE_LANDS;
	remote->reach = UINT64_MAX;
	for (uint32_t i = 0; i < wire->count; i++) {
		remote->rails |= UINT64_C(1) << wire->key[i].rail;
		remote->key[wire->key[i].rail] = (struct wf_remote_key){ .key = wire->key[i].key,
									 .base = wire->key[i].base,
									 .step = wire->key[i].step,
									 .tile = tile,
									 .tiles = wire->key[i].tiles };
		tile += wire->key[i].tiles;
		if (wire->key[i].tiles && wire->key[i].reach < remote->reach)
			remote->reach = wire->key[i].reach;
	}
}

int wf_remote_import(struct weft_engine *engine, weft_peer peer, const void *blob, size_t bytes,
		     weft_remote *ret_remote)
{
	struct wf_wire_region wire;
	struct wf_remote *remote;
	uint64_t *tiles;
	int error = wf_blob_unpack_region(blob, bytes, &wire);

	if (!error)
		error = check_import(engine, peer, &wire);
	if (error)
		return error;
	remote = make_remote(&wire);
	if (!remote)
		return -ENOMEM;
	remote->engine = engine;
	remote->peer = peer;
	tiles = (uint64_t *)(remote->key + remote->count);
	error = wire.tiles ? wf_blob_unpack_tiles(blob, bytes, &wire, tiles) : 0;
	fill_remote(remote, &wire, tiles);
	if (!error)
		error = wf_handle_add(&engine->remotes, remote, &remote->handle);
	if (error) {
		free(remote);
		return error;
	}
	*ret_remote = remote->handle;
	return 0;
}

int wf_remote_close(struct weft_engine *engine, weft_remote handle)
{
	int error = wf_handle_retire_idle(&engine->remotes, handle);

	if (!error)
		wf_handle_put(&engine->remotes, handle);
	return error;
}

struct revoked {
	weft_peer peer;
	uint64_t region;
	bool used;
};

static void revoke_match(void *object, void *context)
{
	struct wf_remote *remote = object;
	struct revoked *revoked = context;

	if (remote->peer != revoked->peer || remote->region != revoked->region)
		return;
	/* Sequentially consistent with wf_request_ends(): either that sees the mark or we see its reference. The owner holds
	 * one. */
	atomic_store(&remote->revoked, 1);
	revoked->used |= wf_handle_references(&remote->engine->remotes, remote->handle) > 1;
}

bool wf_remote_revoked(struct weft_engine *engine, weft_peer peer, uint64_t region)
{
	struct revoked revoked = { peer, region, false };

	wf_handles_each(&engine->remotes, revoke_match, &revoked);
	return revoked.used;
}
