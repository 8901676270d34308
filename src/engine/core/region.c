/*
 * Regions: registration with every rail (on the caller's thread and helpers, or on the rail's worker where the provider asks
 * for that), and descriptors out. Called on application threads.
 */
#include "engine/core/region.h"
#include "base/random.h"
#include "engine/core/cards.h"
#include "engine/core/control.h"
#include "engine/core/engine.h"
#include "engine/core/withdraw.h"
#include "engine/peer/peer.h"
#include "engine/ops/landing.h"
#include "engine/ops/message.h"
#include "engine/ops/transfer.h"
#include "worker/crew.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- steps: done to a region on every rail ---- */

static int unregister_rail(struct wf_region *region, struct wf_seat *seat);
static int revoke_rail(struct wf_region *region, struct wf_seat *seat);

/* On the worker: the rails that must be handled there. */
static int step_on(struct wf_group *group, void *context)
{
	struct wf_region *region = context;
	int error = 0;

	if (region->device && (region->step == unregister_rail || region->step == revoke_rail))
		wf_landing_leave(group, region->handle);
	for (uint32_t i = 0; i < group->seats && !error; i++)
		if (!wf_rail_registers_beside(group->seat[i].rail))
			error = region->step(region, &group->seat[i]);
	return error;
}

/* Beside the worker: the other rails. Pinning much memory takes long, and the worker serves its peers meanwhile. */
static void step_beside(void *context, uint32_t number)
{
	struct wf_region *region = context;
	struct wf_group *group = &region->engine->group[number];
	int error = 0, none = 0;

	for (uint32_t i = 0; i < group->seats && !error; i++)
		if (wf_rail_registers_beside(group->seat[i].rail))
			error = region->step(region, &group->seat[i]);
	if (error)
		atomic_compare_exchange_strong(&region->step_error, &none, error);
}

static bool any_beside(const struct weft_engine *engine)
{
	for (uint32_t i = 0; i < engine->rails; i++)
		if (wf_rail_registers_beside(engine->seat[i]->rail))
			return true;
	return false;
}

static int all_beside(struct wf_region *region)
{
	int state;

	if (!any_beside(region->engine))
		return 0;
	/* Must not be cancelled with memory half registered. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	atomic_store(&region->step_error, 0);
	wf_crew_run(region->engine->groups, step_beside, region);
	pthread_setcancelstate(state, NULL);
	return atomic_load(&region->step_error);
}

/* Returns 0, or the first failure. -ETIMEDOUT: a worker hangs in its provider; late is called when it no longer
 * does, and owns the region until then. */
static int do_step(struct wf_region *region, int (*step)(struct wf_region *region, struct wf_seat *seat),
		   wf_control_late late)
{
	int error;

	region->step = step;
	error = wf_engine_control(region->engine, step_on, late, region);
	return error ? error : all_beside(region);
}

static int register_rail(struct wf_region *region, struct wf_seat *seat)
{
	if (region->device)
		return wf_rail_register_device(seat->rail, region->device, region->access,
					       &region->memory[seat->index]);
	return wf_rail_register(seat->rail, region->base, region->bytes, region->access,
				wf_blob_most_tiles(region->engine->rails, WEFT_BLOB_MAX), &region->memory[seat->index]);
}

static int unregister_rail(struct wf_region *region, struct wf_seat *seat)
{
	wf_rail_unregister(&region->memory[seat->index]);
	return 0;
}

/* Revoking takes two steps, so that it happens on every rail or on none: first it registers what local use needs … */
static int register_local(struct wf_region *region, struct wf_seat *seat)
{
	if (region->device) /* for which no peer has a key: it only says that this rail takes it */
		return wf_rail_register_device(seat->rail, region->device, 0, &region->local[seat->index]);
	return wf_rail_needs_local(seat->rail)
		   ? wf_rail_register(seat->rail, region->base, region->bytes, 0, 1, &region->local[seat->index])
		   : 0;
}

static int unregister_local(struct wf_region *region, struct wf_seat *seat)
{
	wf_rail_unregister(&region->local[seat->index]);
	return 0;
}

/* … then that replaces the registration to which peers have keys. */
static int revoke_rail(struct wf_region *region, struct wf_seat *seat)
{
	struct wf_rail_memory *memory = &region->memory[seat->index];

	wf_rail_unregister(memory);
	*memory = region->local[seat->index];
	return 0;
}

/* ---- late: a worker hung, and the caller has left with -ETIMEDOUT ---- */

/* Runs on the last worker that got through. */
static void put_late(struct wf_group *group, void *context)
{
	struct wf_region *region = context;

	all_beside(region);
	wf_handle_put(&region->engine->regions, region->handle);
}

static void unregister_late(struct wf_group *group, void *context)
{
	struct wf_region *region = context;

	region->step = unregister_rail;
	wf_engine_control_later(group, step_on, put_late, region); /* without memory it stays until the engine closes */
}

static uint64_t reach_of(const struct wf_region *region)
{
	uint64_t reach = UINT64_MAX;

	for (uint32_t i = 0; i < region->engine->rails; i++)
		if (region->memory[i].tiles && region->memory[i].tiles->reach < reach)
			reach = region->memory[i].tiles->reach;
	return reach;
}

static void end_change(struct wf_region *region)
{
	free(region->local);
	region->local = NULL;
	region->reach = reach_of(region); /* the registration for local use has no tiles */
	atomic_store(&region->changing, 0);
	wf_handle_put(&region->engine->regions, region->handle);
}

static void end_change_late(struct wf_group *group, void *context)
{
	all_beside(context);
	end_change(context);
}

static void unregister_local_late(struct wf_group *group, void *context)
{
	struct wf_region *region = context;

	region->step = unregister_local;
	wf_engine_control_later(group, step_on, end_change_late, region);
}

/* The region is the caller's again, except after -ETIMEDOUT. */
static int take_rights_back(struct weft_engine *engine, struct wf_region *region)
{
	int error;

	region->local = calloc(engine->rails, sizeof(*region->local));
	if (!region->local)
		return -ENOMEM;
	error = do_step(region, register_local, unregister_local_late);
	if (!error) {
		wf_region_withdraw(engine, region->handle);
		atomic_store(&region->revoked, 1);
		error = do_step(region, revoke_rail, end_change_late);
		if (error != -ENOMEM)
			return error;
		atomic_store(&region->revoked, 0); /* nothing has happened yet */
	}
	if (error != -ETIMEDOUT && do_step(region, unregister_local, end_change_late) == -ETIMEDOUT) {
		error = -ETIMEDOUT;
	}
	return error;
}

/* ---- at the engine's end ---- */

static void leave_one(void *object, void *context)
{
	struct wf_region *region = object;
	struct wf_group *group = context;

	for (uint32_t i = 0; i < group->seats; i++)
		unregister_rail(region, &group->seat[i]);
}

void wf_region_leave(struct wf_group *group)
{
	wf_handles_each(&group->engine->regions, leave_one, group);
}

void wf_region_release(void *object)
{
	struct wf_region *region = object;

	wf_device_memory_free(region->device);
	free(region->local);
	free(region->blob);
	free(region);
}

/* ---- the application's side ---- */

/* Describes one rail's memory, and puts its tiles' keys at the next free place. */
static void describe_rail(const struct wf_region *region, uint32_t rail, struct wf_wire_region *wire, uint64_t *keys)
{
	const struct wf_rail_memory *memory = &region->memory[rail];
	const struct wf_rail_tiles *tiles = memory->tiles;
	uint32_t i = wire->count;

	if (!memory->mr && !tiles)
		return;
	wire->count++;
	wire->key[i].rail = (uint8_t)rail;
	wire->key[i].base = memory->base;
	wire->key[i].key = tiles ? 0 : memory->key;
	if (!tiles)
		return;
	wire->key[i].tiles = (uint16_t)tiles->count;
	wire->key[i].step = tiles->step;
	wire->key[i].reach = tiles->reach;
	for (uint32_t t = 0; t < tiles->count; t++)
		keys[wire->tiles++] = tiles->tile[t].key;
}

static int pack_into(struct wf_region *region, const struct wf_wire_region *wire, const uint64_t *keys)
{
	size_t bytes = 0;

	wf_blob_pack_region(wire, keys, NULL, &bytes); /* counts them */
	if (bytes > WEFT_BLOB_MAX) {
		wf_log(&region->engine->log, WEFT_LOG_WARN,
		       "registering %llu bytes: the %u keys of their parts do not fit a descriptor",
		       (unsigned long long)region->bytes, wire->tiles);
		return -EFBIG;
	}
	region->blob = malloc(bytes);
	region->blob_bytes = bytes;
	return region->blob ? wf_blob_pack_region(wire, keys, region->blob, &bytes) : -ENOMEM;
}

/* Makes what peers get to know of it, once it is registered. */
static int describe(struct wf_region *region)
{
	struct weft_engine *engine = region->engine;
	struct wf_wire_region wire = { .incarnation = engine->incarnation,
				       .region = region->handle,
				       .proof = region->proof,
				       .bytes = region->bytes,
				       .access = region->access | (region->device ? WF_WIRE_CARDS : 0) |
						 (region->lands ? WF_WIRE_LANDS : 0) };
	uint64_t *keys = NULL;
	size_t tiles = 0;
	int error;

	region->reach = reach_of(region);
	if (!region->access)
		return 0;
	for (uint32_t i = 0; i < engine->rails; i++)
		tiles += region->memory[i].tiles ? region->memory[i].tiles->count : 0;
	if (tiles && !(keys = malloc(tiles * sizeof(*keys))))
		return -ENOMEM;
	for (uint32_t i = 0; i < engine->rails; i++)
		describe_rail(region, i, &wire, keys);
	error = pack_into(region, &wire, keys);
	free(keys);
	return error;
}

static struct wf_region *make_region(struct weft_engine *engine)
{
	struct wf_region *region = calloc(1, sizeof(*region) + engine->rails * sizeof(region->memory[0]));

	if (region)
		region->engine = engine;
	return region;
}

int wf_region_register(struct weft_engine *engine, void *base, uint64_t bytes, uint32_t access, uint64_t groups,
		       weft_region *ret_region)
{
	struct wf_device_memory *device;
	struct wf_region *region;
	uint64_t handle, everywhere = engine->groups == 64 ? UINT64_MAX : (UINT64_C(1) << engine->groups) - 1;
	int error;

	if (!base || !bytes || (access & ~(WEFT_REMOTE_WRITE | WEFT_REMOTE_READ)) ||
	    (uintptr_t)base > UINTPTR_MAX - bytes)
		return -EINVAL;
	error = wf_cards_probe(engine, base, bytes, &groups, &device);
	if (error)
		return error;
	region = make_region(engine);
	if (!region) {
		wf_device_memory_free(device);
		return -ENOMEM;
	}
	region->base = base;
	region->bytes = bytes;
	region->access = access;
	region->groups = groups ? groups : everywhere;
	region->device = device;
	error = device && access ? wf_cards_offer(region) : 0;
	if (!error)
		error = wf_random(&region->proof);
	if (error) {
		wf_region_release(region);
		return error;
	}
	error = wf_handle_add(&engine->regions, region, &handle);
	if (error) {
		wf_region_release(region);
		return error;
	}
	region->handle = handle;
	error = do_step(region, register_rail, unregister_late);
	if (!error)
		error = describe(region);
	if (error) {
		wf_handle_retire(&engine->regions, handle);
		if (error != -ETIMEDOUT && do_step(region, unregister_rail, put_late) != -ETIMEDOUT)
			wf_handle_put(&engine->regions, handle);
		return error;
	}
	atomic_fetch_add(&engine->region_bytes, bytes);
	*ret_region = handle;
	return 0;
}

/* Nobody else uses it, and nobody begins to until `changing` is 0 again. Sequentially consistent with wf_request_ends():
 * either that sees the change or we see its reference. The owner and the caller hold one each. */
static int begin_change(struct wf_region *region)
{
	if (atomic_exchange(&region->changing, 1))
		return -EBUSY;
	if (wf_handle_references(&region->engine->regions, region->handle) <= 2)
		return 0;
	atomic_store(&region->changing, 0);
	return -EBUSY;
}

int wf_region_close(struct weft_engine *engine, weft_region handle)
{
	struct wf_region *region = wf_handle_get(&engine->regions, handle);
	int error;

	if (!region)
		return -ENOENT;
	error = begin_change(region);
	if (error) {
		wf_handle_put(&engine->regions, handle);
		return error;
	}
	if (region->access && !atomic_load(&region->revoked))
		wf_region_withdraw(engine, handle);
	/* A worker that looks at the region without a reference (verify.c) does so within one turn. From here on none finds
	 * it, and the step that each takes part in comes after that turn: then nobody looks at what is freed. */
	wf_handle_retire(&engine->regions, handle);
	error = do_step(region, unregister_rail, put_late);
	if (error == -ENOMEM) { /* no worker was asked: nothing has happened */
		atomic_store(&region->changing, 0);
		wf_handle_revive(&engine->regions, handle);
		wf_handle_put(&engine->regions, handle);
		return error;
	}
	atomic_fetch_sub(&engine->region_bytes, region->bytes);
	wf_handle_put(&engine->regions, handle);
	if (error != -ETIMEDOUT)
		wf_handle_put(&engine->regions, handle);
	return error;
}

static int rekey_rails(struct wf_group *group, void *context)
{
	struct wf_rekeying *rekeying = context;
	struct wf_region *region = rekeying->region;
	int error = 0, none = 0;

	for (uint32_t i = 0; i < group->seats && !error; i++) {
		unregister_rail(region, &group->seat[i]);
		error = register_rail(region, &group->seat[i]);
	}
	if (error)
		atomic_compare_exchange_strong(&rekeying->error, &none, error);
	return error;
}

static void rekeyed(struct wf_group *group, void *context)
{
	struct wf_rekeying *rekeying = context;
	struct wf_region *region = rekeying->region;
	int error = atomic_load(&rekeying->error);

	free(region->blob);
	region->blob = NULL;
	rekeying->done(rekeying, error ? error : describe(region));
}

int wf_region_rekey(struct wf_group *group, struct wf_rekeying *rekeying)
{
	atomic_store(&rekeying->error, 0);
	return wf_engine_control_later(group, rekey_rails, rekeyed, rekeying);
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
	struct wf_outgoing outgoing = {
		.peer = peer->handle, .kind = WF_INTERNAL, .type = WF_MESSAGE_REVOKE, .subject = revocation->region
	};
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
	error = begin_change(region);
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
		end_change(region);
	if (error)
		return error;
	/* The keys are already dead; this only tells importers before they try. */
	wf_handles_each(&engine->peers, tell_peer, &revocation);
	return 0;
}

int wf_region_export(struct weft_engine *engine, weft_region handle, void *blob, size_t *bytes)
{
	struct wf_region *region = wf_handle_get(&engine->regions, handle);
	int error = 0;

	if (!region)
		return -ENOENT;
	if (atomic_load(&region->revoked))
		error = -ESTALE;
	else if (!region->access)
		error = -EACCES;
	if (!error && *bytes < region->blob_bytes)
		error = -ENOBUFS;
	else if (!error)
		memcpy(blob, region->blob, region->blob_bytes);
	if (!error || error == -ENOBUFS)
		*bytes = region->blob_bytes;
	wf_handle_put(&engine->regions, handle);
	return error;
}
