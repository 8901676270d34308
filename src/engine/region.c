/*
 * Regions: registration with every rail (on the workers that own them), descriptors out, descriptors in. Called on
 * application threads.
 */
#include "engine/region.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One rail of each group at a time: pinning much memory takes long, and in between the worker sees to its peers. */
static int register_on(struct wf_group *group, void *context)
{
	struct wf_region *region = context;
	struct wf_seat *seat = &group->seat[region->place];

	if (region->place >= group->seats)
		return 0;
	return wf_rail_register(seat->rail, region->base, region->bytes, region->access, region->handle,
				&region->memory[seat->index]);
}

static int register_everywhere(struct weft_engine *engine, struct wf_region *region)
{
	uint32_t places = 0;
	int error = 0;

	for (uint32_t g = 0; g < engine->groups; g++)
		places = engine->group[g].seats > places ? engine->group[g].seats : places;
	for (region->place = 0; region->place < places && !error; region->place += !error)
		error = wf_engine_control(engine, register_on, region);
	return error;
}

static int unregister_on(struct wf_group *group, void *context)
{
	struct wf_region *region = context;

	for (uint32_t i = 0; i < group->seats; i++)
		wf_rail_unregister(&region->memory[group->seat[i].index]);
	return 0;
}

/* Revoking, in two steps so that it happens on every rail or on none: first what local use needs is registered besides … */
static int register_local_on(struct wf_group *group, void *context)
{
	struct wf_region *region = context;
	int error = 0;

	for (uint32_t i = 0; i < group->seats && !error; i++) {
		struct wf_seat *seat = &group->seat[i];

		if (wf_rail_needs_local(seat->rail))
			error = wf_rail_register(seat->rail, region->base, region->bytes, 0, 0, &region->local[seat->index]);
	}
	return error;
}

static int unregister_local_on(struct wf_group *group, void *context)
{
	struct wf_region *region = context;

	for (uint32_t i = 0; i < group->seats; i++)
		wf_rail_unregister(&region->local[group->seat[i].index]);
	return 0;
}

/* … then it takes the place of what peers have keys to. */
static int revoke_on(struct wf_group *group, void *context)
{
	struct wf_region *region = context;

	for (uint32_t i = 0; i < group->seats; i++) {
		struct wf_rail_memory *memory = &region->memory[group->seat[i].index];

		wf_rail_unregister(memory);
		*memory = region->local[group->seat[i].index];
	}
	return 0;
}

/* -ETIMEDOUT: a worker may still be at it, and the region stays as it is for good. */
static int take_rights_back(struct weft_engine *engine, struct wf_region *region)
{
	int error;

	region->local = calloc(engine->rails, sizeof(*region->local));
	if (!region->local)
		return -ENOMEM;
	error = wf_engine_control(engine, register_local_on, region);
	if (!error) {
		atomic_store(&region->revoked, 1);
		error = wf_engine_control(engine, revoke_on, region);
	} else if (error != -ETIMEDOUT && wf_engine_control(engine, unregister_local_on, region)) {
		error = -ETIMEDOUT;
	}
	if (error != -ETIMEDOUT) {
		free(region->local);
		region->local = NULL;
	}
	return error;
}

static void leave_one(void *object, void *context)
{
	unregister_on(context, object);
}

void wf_region_leave(struct wf_group *group)
{
	wf_handles_each(&group->engine->regions, leave_one, group);
}

void wf_region_release(void *object)
{
	struct wf_region *region = object;

	free(region->local);
	free(region);
}

int wf_region_register(struct weft_engine *engine, void *base, uint64_t bytes, uint32_t access, uint64_t groups,
		       weft_region *ret_region)
{
	struct wf_region *region;
	uint64_t handle;
	int error;

	if (!base || !bytes || (access & ~(WEFT_REMOTE_WRITE | WEFT_REMOTE_READ)) ||
	    (uintptr_t)base > UINTPTR_MAX - bytes)
		return -EINVAL;
	region = calloc(1, sizeof(*region) + engine->rails * sizeof(region->memory[0]));
	if (!region)
		return -ENOMEM;
	region->engine = engine;
	region->base = base;
	region->bytes = bytes;
	region->access = access;
	region->groups = groups;
	/* The handle is also the key we wish for: no two regions of an engine's life share one. */
	error = wf_handle_add(&engine->regions, region, &handle);
	if (error) {
		free(region);
		return error;
	}
	region->handle = handle;
	error = register_everywhere(engine, region);
	if (error) {
		wf_handle_retire(&engine->regions, handle);
		/* After a time-out a worker may still be at it: the region then stays, unusable. */
		if (error != -ETIMEDOUT && !wf_engine_control(engine, unregister_on, region))
			wf_handle_put(&engine->regions, handle);
		return error;
	}
	atomic_fetch_add(&engine->region_bytes, bytes);
	*ret_region = handle;
	return 0;
}

int wf_region_close(struct weft_engine *engine, weft_region handle)
{
	struct wf_region *region = wf_handle_get(&engine->regions, handle);
	int error;

	if (!region)
		return -ENOENT;
	wf_handle_put(&engine->regions, handle);
	error = wf_handle_retire_idle(&engine->regions, handle);
	if (error)
		return error;
	atomic_fetch_sub(&engine->region_bytes, region->bytes);
	/* Afterwards no worker reads it any more either (verify.c). */
	error = wf_engine_control(engine, unregister_on, region);
	if (error != -ETIMEDOUT)
		wf_handle_put(&engine->regions, handle);
	return error;
}

struct revocation {
	struct weft_engine *engine;
	uint64_t region;
	int error;
};

static void tell_peer(void *object, void *context)
{
	struct wf_peer *peer = object;
	struct revocation *revocation = context;
	struct wf_outgoing outgoing = { .peer = peer->handle,
					.kind = WF_INTERNAL,
					.type = WF_MESSAGE_REVOKE,
					.call = revocation->region };
	int error = wf_submit_message(revocation->engine, &outgoing, NULL, NULL);

	/* A peer that is down has nothing of ours any more. */
	if (error && error != -EHOSTDOWN && error != -ENOENT && !revocation->error)
		revocation->error = error;
}

int wf_region_revoke(struct weft_engine *engine, weft_region handle)
{
	struct wf_region *region = wf_handle_get(&engine->regions, handle);
	struct revocation revocation = { engine, handle, 0 };
	int error;

	if (!region)
		return -ENOENT;
	/* Sequentially consistent with find_ends(): either it sees the change or we see its reference. The owner and we
	 * hold one each. */
	error = atomic_exchange(&region->changing, 1) ? -EBUSY : 0;
	if (!error && wf_handle_references(&engine->regions, handle) > 2) {
		atomic_store(&region->changing, 0);
		error = -EBUSY;
	}
	if (!error && atomic_load(&region->revoked)) {
		atomic_store(&region->changing, 0);
		error = -EALREADY;
	}
	if (error) {
		wf_handle_put(&engine->regions, handle);
		return error;
	}
	error = take_rights_back(engine, region);
	if (error != -ETIMEDOUT)
		atomic_store(&region->changing, 0);
	if (error != -ETIMEDOUT)
		wf_handle_put(&engine->regions, handle);
	if (error)
		return error;
	/* The keys are dead already; this only lets importers know before they try. */
	wf_handles_each(&engine->peers, tell_peer, &revocation);
	return 0;
}

int wf_region_export(struct weft_engine *engine, weft_region handle, void *blob, size_t *bytes)
{
	struct wf_region *region = wf_handle_get(&engine->regions, handle);
	struct wf_wire_region wire = { .incarnation = engine->incarnation, .region = handle };
	int error = 0;

	if (!region)
		return -ENOENT;
	if (atomic_load(&region->revoked))
		error = -ESTALE;
	else if (!region->access)
		error = -EACCES;
	wire.bytes = region->bytes;
	wire.access = region->access;
	for (uint32_t i = 0; !error && i < engine->rails; i++) {
		if (!region->memory[i].mr)
			continue;
		wire.key[wire.count].rail = (uint8_t)i;
		wire.key[wire.count].key = region->memory[i].key;
		wire.key[wire.count++].base = region->memory[i].base;
	}
	if (!error)
		error = wf_blob_pack_region(&wire, blob, bytes);
	wf_handle_put(&engine->regions, handle);
	return error;
}

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

int wf_remote_import(struct weft_engine *engine, weft_peer peer, const void *blob, size_t bytes, weft_remote *ret_remote)
{
	struct wf_wire_region wire;
	struct wf_remote *remote;
	uint32_t rails = 0;
	int error = wf_blob_unpack_region(blob, bytes, &wire);

	if (!error)
		error = check_import(engine, peer, &wire);
	if (error)
		return error;
	for (uint32_t i = 0; i < wire.count; i++)
		if (wire.key[i].rail >= rails)
			rails = wire.key[i].rail + 1u;
	remote = calloc(1, sizeof(*remote) + rails * sizeof(remote->key[0]));
	if (!remote)
		return -ENOMEM;
	remote->engine = engine;
	remote->peer = peer;
	remote->incarnation = wire.incarnation;
	remote->region = wire.region;
	remote->bytes = wire.bytes;
	remote->access = wire.access;
	remote->count = rails;
	for (uint32_t i = 0; i < wire.count; i++) {
		remote->rails |= UINT64_C(1) << wire.key[i].rail;
		remote->key[wire.key[i].rail].key = wire.key[i].key;
		remote->key[wire.key[i].rail].base = wire.key[i].base;
	}
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
};

static void revoke_match(void *object, void *context)
{
	struct wf_remote *remote = object;
	struct revoked *revoked = context;

	if (remote->peer == revoked->peer && remote->region == revoked->region)
		atomic_store(&remote->revoked, 1);
}

void wf_remote_revoked(struct weft_engine *engine, weft_peer peer, uint64_t region)
{
	struct revoked revoked = { peer, region };

	wf_handles_each(&engine->remotes, revoke_match, &revoked);
}
