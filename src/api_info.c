/*
 * The exported functions that tell something: infos, counters, NICs, errors and versions. The others are in api.c. On the caller's
 * thread.
 */
#include "base/error.h"
#include "base/sized.h"
#include "engine/core/engine.h"
#include "engine/core/settings.h"
#include "engine/move/piece.h"
#include "engine/ops/request.h"
#include "engine/ops/transfer.h"
#include "engine/peer/directory.h"
#include "engine/peer/label.h"
#include "engine/peer/pairing.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static uint64_t group_bytes(const struct wf_group *group)
{
	return sizeof(*group) + group->tx_bytes + group->rx_bytes + group->piece_count * sizeof(*group->piece) +
	       group->tx_count * sizeof(*group->tx) + wf_words_bytes(group) +
	       (group->worker.inbox.mask + 1) * sizeof(struct wf_ring_cell);
}

int weft_engine_info(weft_engine *engine, struct weft_engine_info *ret_info, size_t info_bytes)
{
	struct weft_engine_info info = { 0 };

	if (!engine || !ret_info)
		return -EINVAL;
	info.rails = engine->rails;
	info.groups = engine->groups;
	info.workers = wf_engine_is_manual(engine) ? 0 : engine->groups;
	info.incarnation = engine->incarnation;
	info.peers = atomic_load(&engine->peers.live);
	info.transfers_in_flight =
	    wf_pool_out(&engine->transfers) + wf_pool_out(&engine->answers) + wf_pool_out(&engine->internals);
	info.memory_bytes = sizeof(*engine) + wf_pool_bytes(&engine->transfers) + wf_pool_bytes(&engine->answers) +
			    wf_pool_bytes(&engine->internals) + wf_pool_bytes(&engine->inbounds) +
			    wf_pool_bytes(&engine->inframes) + atomic_load(&engine->copies_kept) +
			    atomic_load(&engine->peer_bytes);
	for (uint32_t g = 0; g < engine->groups; g++)
		info.memory_bytes += group_bytes(&engine->group[g]);
	snprintf(info.provider, sizeof(info.provider), "%s", engine->provider);
	wf_rail_libfabric_version(info.libfabric, sizeof(info.libfabric));
	return wf_sized_write(ret_info, info_bytes, &info, sizeof(info));
}

int weft_engine_config(weft_engine *engine, struct weft_config *ret_config, size_t config_bytes)
{
	struct weft_config config;

	if (!engine || !ret_config || config_bytes < WF_LEAST_CONFIG)
		return -EINVAL;
	wf_engine_config(engine, &config);
	config.size = config_bytes;
	return wf_sized_write(ret_config, config_bytes, &config, sizeof(config));
}

int weft_rail_info(weft_engine *engine, uint32_t rail, struct weft_rail_info *ret_info, size_t info_bytes)
{
	struct weft_rail_info info = { 0 };
	struct wf_seat *seat;

	if (!engine || !ret_info)
		return -EINVAL;
	if (rail >= engine->rails)
		return -ENOENT;
	seat = engine->seat[rail];
	snprintf(info.name, sizeof(info.name), "%s", seat->nic->name);
	snprintf(info.provider, sizeof(info.provider), "%s", seat->nic->provider);
	snprintf(info.address, sizeof(info.address), "%s", seat->nic->address);
	info.state = atomic_load(&seat->up) ? WEFT_RAIL_UP : WEFT_RAIL_DOWN;
	info.group = seat->group->index;
	info.link_bps = seat->nic->link_bps;
	info.max_message = seat->limits.max_bytes;
	info.window_bytes = seat->limits.window_bytes;
	info.window_ops = seat->limits.window_ops;
	info.queue_ops = seat->limits.queue_ops;
	info.inject_bytes = seat->limits.inject_bytes;
	info.delivery_complete = seat->limits.delivery_complete;
	info.waits = seat->limits.waits;
	info.emulated = seat->limits.emulated;
	info.writes = atomic_load(&seat->count.writes);
	info.reads = atomic_load(&seat->count.reads);
	info.sends = atomic_load(&seat->count.sends);
	info.bytes = atomic_load(&seat->count.bytes);
	info.errors = atomic_load(&seat->count.errors);
	info.retries = atomic_load(&seat->count.retries);
	info.reopened = atomic_load(&seat->count.reopened);
	info.mapped_bytes = atomic_load(&seat->count.mapped_bytes);
	info.card_bytes = wf_rail_card_bytes(seat->rail);
	return wf_sized_write(ret_info, info_bytes, &info, sizeof(info));
}

int weft_peer_info(weft_engine *engine, weft_peer handle, struct weft_peer_info *ret_info, size_t info_bytes)
{
	struct weft_peer_info info = { 0 };
	struct wf_peer *peer;

	if (!engine || !ret_info)
		return -EINVAL;
	peer = wf_handle_get(&engine->peers, handle);
	if (!peer)
		return wf_request_no_such(engine, "peer", handle);
	info.up = atomic_load(&peer->state) == WF_PEER_UP;
	info.added = atomic_load(&peer->added);
	info.incarnation = atomic_load(&peer->incarnation);
	/* In this order: what has ended was accepted before. */
	info.in_flight = atomic_load(&peer->ended);
	info.in_flight = atomic_load(&peer->accepted) - info.in_flight;
	for (uint32_t g = 0; g < engine->groups; g++) {
		info.paths += atomic_load(&peer->lane[g]->paths_up);
		wf_carried_by_lane(peer->lane[g], &info);
		info.local |= atomic_load(&peer->lane[g]->local);
	}
	info.rails = wf_peer_rails(peer);
	info.user = atomic_load(&peer->user);
	wf_peer_name(peer, info.name);
	wf_handle_put(&engine->peers, handle);
	return wf_sized_write(ret_info, info_bytes, &info, sizeof(info));
}

int weft_path_info(weft_engine *engine, weft_peer peer, uint32_t rail, uint32_t peer_rail,
		   struct weft_path_info *ret_info, size_t info_bytes)
{
	struct weft_path_info info;
	int error;

	if (!engine || !ret_info || !info_bytes)
		return -EINVAL;
	if (rail >= engine->rails)
		return -ENOENT;
	error = wf_path_info(engine, peer, rail, peer_rail, &info);
	/* Or it is the peer's rail that is not there. */
	if (error == -ENOENT && !wf_handle_peek(&engine->peers, peer))
		return wf_request_no_such(engine, "peer", peer);
	return error ? error : wf_sized_write(ret_info, info_bytes, &info, sizeof(info));
}

struct listing {
	weft_peer *peers;
	uint32_t room, count;
};

static void list_peer(void *object, void *context)
{
	const struct wf_peer *peer = object;
	struct listing *listing = context;

	if (listing->count < listing->room)
		listing->peers[listing->count] = peer->handle;
	listing->count++;
}

int weft_peer_list(weft_engine *engine, weft_peer *peers, uint32_t *count)
{
	struct listing listing = { .peers = peers };

	if (!engine || !count || (!peers && *count))
		return -EINVAL;
	listing.room = *count;
	wf_handles_each(&engine->peers, list_peer, &listing);
	*count = listing.count;
	return listing.count > listing.room ? -ENOBUFS : 0;
}

/* Followed by zeros, where the fields are that a newer header has. */
struct shown_nic {
	struct weft_nic nic;
	char later[WF_SIZED_ROOM];
};

static int show_nic(const struct wf_nic *nic, int (*fn)(void *context, const struct weft_nic *nic), void *context)
{
	char pci[16];
	struct shown_nic shown = { .nic = { .name = nic->name,
					    .provider = nic->provider,
					    .address = nic->address,
					    .link_bps = nic->link_bps,
					    .pci = nic->has_pci ? pci : NULL,
					    .usable = nic->by_default } };

	snprintf(pci, sizeof(pci), "%04x:%02x:%02x.%x", nic->pci_domain, nic->pci_bus, nic->pci_device & 0x1f,
		 nic->pci_function & 7);
	return fn(context, &shown.nic);
}

int weft_nic_each(const struct weft_config *config, int (*fn)(void *context, const struct weft_nic *nic), void *context)
{
	struct weft_config full = { .size = sizeof(full) };
	struct wf_nics nics;
	char error[256];
	int status = fn ? 0 : -EINVAL;

	if (!status && config)
		status = wf_sized_read(&full, sizeof(full), config, WF_LEAST_CONFIG);
	if (!status)
		status = wf_nics_find(&full, false, &nics, error, sizeof(error));
	if (status)
		return status;
	for (uint32_t i = 0; i < nics.count && !show_nic(&nics.nic[i], fn, context); i++)
		continue;
	wf_nics_free(&nics);
	return 0;
}

const char *weft_strerror(int error)
{
	return wf_error_text(error);
}

const char *weft_error_hint(int error)
{
	return wf_error_hint(error);
}

const char *weft_version(void)
{
	return WEFT_VERSION;
}

int weft_version_number(void)
{
	return WEFT_VERSION_NUMBER;
}
