/* Every exported function, and nothing else: checks what the caller handed in, then calls the engine. */
#include "base/error.h"
#include "base/hot.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/region.h"
#include "engine/request.h"
#include "engine/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_MOST 4096 /* bytes: no caller's configuration is larger, however new its header */

/* ---- engine ---- */

/* A caller built against an older header hands in a shorter structure: what it lacks takes the default. */
static int read_config(const struct weft_config *config, struct weft_config *ret_config)
{
	static const struct weft_config init = WEFT_CONFIG_INIT;

	*ret_config = init;
	if (!config)
		return 0;
	if (config->size < sizeof(size_t) || config->size > sizeof(*config))
		return -EINVAL;
	memcpy(ret_config, config, config->size);
	return 0;
}

int weft_open(const struct weft_config *config, weft_engine **ret_engine)
{
	struct weft_config full;
	int error = ret_engine ? read_config(config, &full) : -EINVAL;

	return error ? error : wf_engine_open(&full, ret_engine);
}

int weft_close(weft_engine *engine)
{
	if (!engine)
		return 0;
	/* After a fork the child has our memory but none of our threads: it must leave the engine alone. */
	return engine->pid == getpid() ? wf_engine_close(engine) : -EPERM;
}

WF_HOT int weft_progress(weft_engine *engine)
{
	if (!engine || !wf_engine_is_manual(engine))
		return -EINVAL;
	return wf_engine_progress(engine);
}

int weft_address(weft_engine *engine, void *blob, size_t *bytes)
{
	return engine && bytes && (blob || !*bytes) ? wf_engine_address(engine, blob, bytes, NULL) : -EINVAL;
}

/* ---- queues ---- */

int weft_queue_open(weft_engine *engine, weft_queue **ret_queue)
{
	weft_queue *queue;
	int error = 0;

	if (!engine || !ret_queue)
		return -EINVAL;
	pthread_mutex_lock(&engine->lock);
	if (!engine->listener_given) {
		/* It has been listening since the engine opened: nothing that came meanwhile is lost. */
		engine->listener_given = true;
		queue = atomic_load(&engine->listener);
	} else if (!(error = wf_queue_init(engine, &queue))) {
		wf_list_append(&engine->queues, &queue->link);
	}
	pthread_mutex_unlock(&engine->lock);
	if (!error)
		*ret_queue = queue;
	return error;
}

int weft_queue_listen(weft_queue *queue)
{
	if (!queue)
		return -EINVAL;
	atomic_store(&queue->engine->listener, queue);
	return 0;
}

int weft_queue_close(weft_queue *queue)
{
	struct weft_engine *engine;

	if (!queue)
		return 0;
	engine = queue->engine;
	/* The listening queue stays as long as there is something to listen to. */
	if (atomic_load(&queue->in_flight) || atomic_load(&engine->listener) == queue)
		return -EBUSY;
	/* A worker that still took it for the listener is through with it when each has had a turn. */
	if (wf_engine_turn_each(engine))
		return -EBUSY;
	/* A waiter that does not leave is stopped from outside: it is to find its queue when it goes on. */
	if (!wf_queue_shut(queue, engine->settings.close_ns))
		return -EBUSY;
	pthread_mutex_lock(&engine->lock);
	wf_list_remove(&queue->link);
	pthread_mutex_unlock(&engine->lock);
	wf_queue_free(queue);
	return 0;
}

WF_HOT int weft_queue_poll(weft_queue *queue, struct weft_event *events, int max)
{
	if (!queue || !events || max < 1)
		return -EINVAL;
	return wf_queue_poll(queue, events, max);
}

int weft_queue_wait(weft_queue *queue, struct weft_event *events, int max, uint64_t timeout_ns)
{
	if (!queue || !events || max < 1)
		return -EINVAL;
	return wf_queue_wait(queue, events, max, timeout_ns);
}

int weft_queue_fd(weft_queue *queue)
{
	return queue ? wf_queue_fd(queue) : -EINVAL;
}

WF_HOT void weft_event_release(struct weft_event *event)
{
	struct wf_payload *payload = event ? event->owner : NULL;

	if (!payload)
		return;
	event->owner = NULL;
	event->data = NULL;
	event->error = NULL;
	payload->release(payload);
}

/* ---- memory ---- */

int weft_region_register(weft_engine *engine, void *base, uint64_t bytes, uint32_t access, weft_region *ret_region)
{
	return weft_region_register_near(engine, base, bytes, access, NULL, ret_region);
}

int weft_region_register_near(weft_engine *engine, void *base, uint64_t bytes, uint32_t access, const char *near,
			      weft_region *ret_region)
{
	uint64_t groups;
	int group;

	if (!engine || !ret_region || (!near && access & WEFT_NEAR_REQUIRED))
		return -EINVAL;
	groups = engine->groups == 64 ? UINT64_MAX : (UINT64_C(1) << engine->groups) - 1;
	if (near) {
		group = wf_layout_group_near(&engine->layout, near);
		if (group == -EINVAL)
			return group;
		if (group < 0 && access & WEFT_NEAR_REQUIRED)
			return -ENXIO;
		if (group < 0)
			wf_log(&engine->log, WEFT_LOG_WARN,
			       "no rail of this host is near '%.40s': the region uses all of them", near);
		else
			groups = UINT64_C(1) << group;
	}
	return wf_region_register(engine, base, bytes, access & ~WEFT_NEAR_REQUIRED, groups, ret_region);
}

/* What a call on one handle came to: that the handle is not there is said in the log. */
static int outcome(weft_engine *engine, const char *what, uint64_t handle, int error)
{
	return error == -ENOENT ? wf_request_no_such(engine, what, handle) : error;
}

int weft_region_close(weft_engine *engine, weft_region region)
{
	return engine ? outcome(engine, "region", region, wf_region_close(engine, region)) : -EINVAL;
}

int weft_region_export(weft_engine *engine, weft_region region, void *blob, size_t *bytes)
{
	if (!engine || !bytes || (!blob && *bytes))
		return -EINVAL;
	return outcome(engine, "region", region, wf_region_export(engine, region, blob, bytes));
}

int weft_region_revoke(weft_engine *engine, weft_region region)
{
	return engine ? outcome(engine, "region", region, wf_region_revoke(engine, region)) : -EINVAL;
}

/* ---- peers ---- */

static int read_address(const void *blob, size_t bytes, struct wf_wire_address **ret_address)
{
	struct wf_wire_address *address = malloc(sizeof(*address));
	int error = address ? wf_blob_unpack_address(blob, bytes, address) : -ENOMEM;

	if (error)
		free(address);
	else
		*ret_address = address;
	return error;
}

/* At least one rail of theirs must be of our provider, or nothing can ever pass. */
static int check_reachable(const weft_engine *engine, const struct wf_wire_address *address)
{
	for (uint32_t i = 0; i < address->count; i++)
		if (!strcmp(address->rail[i].provider, engine->provider))
			return 0;
	return -EHOSTUNREACH;
}

int weft_peer_add(weft_engine *engine, const void *blob, size_t bytes, weft_peer *ret_peer)
{
	struct wf_wire_address *address;
	int error;

	if (!engine || !ret_peer)
		return -EINVAL;
	if (atomic_load(&engine->closing))
		return -ESHUTDOWN;
	error = read_address(blob, bytes, &address);
	if (error)
		return error;
	error = check_reachable(engine, address);
	if (!error)
		error = wf_peer_add(engine, address, ret_peer);
	free(address);
	return error;
}

int weft_peer_remove(weft_engine *engine, weft_peer peer)
{
	return engine ? outcome(engine, "peer", peer, wf_peer_remove(engine, peer)) : -EINVAL;
}

int weft_peer_replace(weft_engine *engine, weft_peer peer, const void *blob, size_t bytes)
{
	struct wf_wire_address *address;
	int error;

	if (!engine)
		return -EINVAL;
	error = read_address(blob, bytes, &address);
	if (error)
		return error;
	error = check_reachable(engine, address);
	if (!error)
		error = outcome(engine, "peer", peer, wf_peer_replace(engine, peer, address));
	free(address);
	return error;
}

int weft_remote_import(weft_engine *engine, weft_peer peer, const void *blob, size_t bytes, weft_remote *ret_remote)
{
	if (!engine || !ret_remote)
		return -EINVAL;
	return outcome(engine, "peer", peer, wf_remote_import(engine, peer, blob, bytes, ret_remote));
}

int weft_remote_close(weft_engine *engine, weft_remote remote)
{
	return engine ? outcome(engine, "remote", remote, wf_remote_close(engine, remote)) : -EINVAL;
}

/* ---- operations ---- */

int weft_write(weft_engine *engine, const struct weft_write *write, const struct weft_op *op, weft_transfer *ret)
{
	return engine && write ? wf_submit_write(engine, write, op, ret) : -EINVAL;
}

int weft_read(weft_engine *engine, const struct weft_read *read, const struct weft_op *op, weft_transfer *ret)
{
	return engine && read ? wf_submit_read(engine, read, op, ret) : -EINVAL;
}

int weft_write_pages(weft_engine *engine, const struct weft_pages *pages, const struct weft_op *op, weft_transfer *ret)
{
	return engine && pages ? wf_submit_pages(engine, pages, op, ret) : -EINVAL;
}

int weft_scatter(weft_engine *engine, const struct weft_write *parts, uint32_t count, const struct weft_op *op,
		 weft_transfer *ret)
{
	return engine && (parts || !count) ? wf_submit_scatter(engine, parts, count, op, ret) : -EINVAL;
}

WF_HOT int weft_send(weft_engine *engine, weft_peer peer, uint64_t receiver_tag, const void *data, uint64_t bytes,
		     const struct weft_op *op, weft_transfer *ret)
{
	struct wf_outgoing message = { .peer = peer,
				       .kind = WF_SEND,
				       .type = WF_MESSAGE_SEND,
				       .tag = receiver_tag,
				       .bytes = bytes,
				       .data = data };

	return engine ? wf_submit_message(engine, &message, op, ret) : -EINVAL;
}

WF_HOT int weft_call(weft_engine *engine, weft_peer peer, uint64_t receiver_tag, const void *data, uint64_t bytes,
		     const struct weft_op *op, weft_transfer *ret)
{
	struct wf_outgoing message = { .peer = peer,
				       .kind = WF_CALL,
				       .type = WF_MESSAGE_CALL,
				       .tag = receiver_tag,
				       .bytes = bytes,
				       .data = data };

	return engine ? wf_submit_message(engine, &message, op, ret) : -EINVAL;
}

WF_HOT int weft_reply(weft_engine *engine, weft_peer peer, uint64_t call, int status, const void *data, uint64_t bytes)
{
	struct wf_outgoing message = { .peer = peer,
				       .kind = WF_REPLY,
				       .type = WF_MESSAGE_REPLY,
				       .status = status,
				       .call = call,
				       .bytes = bytes,
				       .data = data };

	return engine && status <= 0 && status > INT32_MIN ? wf_submit_message(engine, &message, NULL, NULL) : -EINVAL;
}

int weft_barrier(weft_engine *engine, const weft_peer *peers, uint32_t count, uint64_t id, const struct weft_op *op,
		 weft_transfer *ret)
{
	return engine && (peers || !count) ? wf_submit_barrier(engine, peers, count, id, op, ret) : -EINVAL;
}

int weft_expect(weft_engine *engine, uint32_t immediate, uint64_t count, const struct weft_op *op, weft_transfer *ret)
{
	return engine ? wf_submit_expect(engine, immediate, count, op, ret) : -EINVAL;
}

int weft_cancel(weft_engine *engine, weft_transfer transfer)
{
	return engine ? outcome(engine, "transfer", transfer, wf_submit_cancel(engine, transfer)) : -EINVAL;
}

int weft_cancel_peer(weft_engine *engine, weft_peer handle)
{
	struct wf_peer *peer;

	if (!engine)
		return -EINVAL;
	peer = wf_handle_get(&engine->peers, handle);
	if (!peer)
		return wf_request_no_such(engine, "peer", handle);
	/* The note carries the reference. */
	wf_engine_post(peer->home, WF_NOTE_PEER, peer, WF_PEER_CANCEL);
	return 0;
}

/* ---- what is going on ---- */

static uint64_t group_bytes(const struct wf_group *group)
{
	return sizeof(*group) + group->tx_bytes + group->rx_bytes + group->piece_count * sizeof(*group->piece) +
	       group->tx_count * sizeof(*group->tx) + (group->worker.inbox.mask + 1) * sizeof(struct wf_ring_cell);
}

int weft_engine_info(weft_engine *engine, struct weft_info *ret_info)
{
	struct weft_info info = { 0 };

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
	*ret_info = info;
	return 0;
}

int weft_engine_config(weft_engine *engine, struct weft_config *ret_config)
{
	struct weft_config full;
	size_t size;

	if (!engine || !ret_config)
		return -EINVAL;
	size = ret_config->size;
	if (size < sizeof(size_t) || size > CONFIG_MOST)
		return -EINVAL;
	wf_engine_config(engine, &full);
	/* As much as the caller's header knows of; what ours does not is zero there. */
	memset(ret_config, 0, size);
	memcpy(ret_config, &full, size < sizeof(full) ? size : sizeof(full));
	ret_config->size = size;
	return 0;
}

int weft_rail_info(weft_engine *engine, uint32_t rail, struct weft_rail_info *ret_info)
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
	*ret_info = info;
	return 0;
}

int weft_peer_info(weft_engine *engine, weft_peer handle, struct weft_peer_info *ret_info)
{
	struct weft_peer_info info = { 0 };
	struct wf_peer *peer;

	if (!engine || !ret_info)
		return -EINVAL;
	peer = wf_handle_get(&engine->peers, handle);
	if (!peer)
		return wf_request_no_such(engine, "peer", handle);
	info.up = atomic_load(&peer->state) == WF_PEER_UP;
	info.incarnation = atomic_load(&peer->incarnation);
	/* In this order: what has ended was accepted before. */
	info.in_flight = atomic_load(&peer->ended);
	info.in_flight = atomic_load(&peer->accepted) - info.in_flight;
	for (uint32_t g = 0; g < engine->groups; g++)
		info.paths += atomic_load(&peer->lane[g]->paths_up);
	info.rails = wf_peer_rails(peer);
	wf_handle_put(&engine->peers, handle);
	*ret_info = info;
	return 0;
}

int weft_path_info(weft_engine *engine, weft_peer peer, uint32_t rail, uint32_t peer_rail,
		   struct weft_path_info *ret_info)
{
	int error;

	if (!engine || !ret_info)
		return -EINVAL;
	if (rail >= engine->rails)
		return -ENOENT;
	error = wf_path_info(engine, peer, rail, peer_rail, ret_info);
	/* Or it is the peer's rail that is not there. */
	return error == -ENOENT && !wf_handle_peek(&engine->peers, peer) ? wf_request_no_such(engine, "peer", peer)
									 : error;
}

int weft_nics(const struct weft_config *config, int (*fn)(void *context, const struct weft_nic *nic), void *context)
{
	struct weft_config full;
	struct wf_nics nics;
	char error[256];
	int status = fn ? read_config(config, &full) : -EINVAL;

	if (!status)
		status = wf_nics_find(&full, false, &nics, error, sizeof(error));
	if (status)
		return status;
	for (uint32_t i = 0; i < nics.count; i++) {
		const struct wf_nic *nic = &nics.nic[i];
		char pci[16];
		struct weft_nic shown = { .name = nic->name,
					  .provider = nic->provider,
					  .address = nic->address,
					  .link_bps = nic->link_bps,
					  .pci = nic->has_pci ? pci : NULL,
					  .usable = nic->by_default };

		snprintf(pci, sizeof(pci), "%04x:%02x:%02x.%x", nic->pci_domain, nic->pci_bus, nic->pci_device & 0x1f,
			 nic->pci_function & 7);
		if (fn(context, &shown))
			break;
	}
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
