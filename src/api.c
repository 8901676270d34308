/*
 * The exported functions that do something, those that tell something being in api_info.c: checks what the caller handed in,
 * then calls the engine. On the caller's thread.
 */
#include "base/error.h"
#include "base/hot.h"
#include "base/sized.h"
#include "engine/core/control.h"
#include "engine/core/engine.h"
#include "engine/core/memory.h"
#include "engine/peer/directory.h"
#include "engine/peer/label.h"
#include "engine/peer/peer.h"
#include "engine/core/region.h"
#include "engine/core/remote.h"
#include "engine/ops/expect.h"
#include "engine/ops/family.h"
#include "engine/ops/message.h"
#include "engine/ops/request.h"
#include "engine/ops/submit.h"
#include "engine/ops/transfer.h"
#include "engine/ops/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the program handed in as this library knows it: itself when it has our size, which costs one look, else a copy in room.
 * NULL stays NULL. An error is set, never cleared. */
static inline const void *ours(const void *given, void *room, size_t bytes, size_t least, int *error)
{
	int failed;

	if (!given || *(const size_t *)given == bytes)
		return given;
	failed = wf_sized_read(room, bytes, given, least);
	if (failed)
		*error = failed;
	return room;
}

/* ret: where the caller wants the handle. An end that is kept for a handle that nobody has would stay for good. */
static inline const struct weft_op *our_op(const struct weft_op *op, struct weft_op *room, const weft_transfer *ret,
					   int *error)
{
	op = ours(op, room, sizeof(*room), WF_LEAST_OP, error);
	if (op && !ret && !*error && op->flags & WEFT_KEEP_END)
		*error = -EINVAL;
	return op;
}

/* ---- engine ---- */

int weft_engine_open(const struct weft_config *config, weft_engine **ret_engine, struct weft_error *ret_error,
		     size_t error_bytes)
{
	struct weft_config room = { .size = sizeof(room) };
	struct weft_error why = { .scope = WEFT_SCOPE_ENGINE };
	int error = ret_engine && (!ret_error || error_bytes) ? 0 : -EINVAL;

	config = config ? ours(config, &room, sizeof(room), WF_LEAST_CONFIG, &error) : &room;
	if (!error)
		error = wf_engine_open(config, ret_engine, &why);
	if (error && ret_error && error_bytes) {
		wf_error_explain(&why, error);
		wf_sized_write(ret_error, error_bytes, &why, sizeof(why));
	}
	return error;
}

int weft_engine_close(weft_engine *engine)
{
	if (!engine)
		return 0;
	/* After a fork the child has our memory but none of our threads: it must leave the engine alone. */
	return engine->pid == getpid() ? wf_engine_close(engine) : -EPERM;
}

WF_HOT int weft_engine_progress(weft_engine *engine)
{
	if (!engine || !wf_engine_is_manual(engine))
		return -EINVAL;
	return wf_engine_progress(engine);
}

int weft_engine_address(weft_engine *engine, void *blob, size_t *bytes)
{
	return engine && bytes && (blob || !*bytes) ? wf_engine_address(engine, blob, bytes, NULL) : -EINVAL;
}

/* ---- queues ---- */

/* Since the engine opened the listening queue has been there: nothing that came meanwhile is lost. */
static int give_listener(weft_engine *engine, weft_queue **ret_queue)
{
	if (engine->listener_given)
		return -EBUSY;
	engine->listener_given = true;
	*ret_queue = atomic_load(&engine->listener);
	return 0;
}

int weft_queue_open(weft_engine *engine, uint32_t flags, weft_queue **ret_queue)
{
	weft_queue *queue;
	int error;

	if (!engine || !ret_queue)
		return -EINVAL;
	if (flags & ~WEFT_QUEUE_LISTEN)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&engine->lock);
	if (flags & WEFT_QUEUE_LISTEN)
		error = give_listener(engine, &queue);
	else if (!(error = wf_queue_init(engine, &queue)))
		wf_list_append(&engine->queues, &queue->link);
	pthread_mutex_unlock(&engine->lock);
	if (!error)
		*ret_queue = queue;
	return error;
}

int weft_queue_listen(weft_queue *queue)
{
	weft_engine *engine = queue ? queue->engine : NULL;
	bool given;

	if (!queue)
		return -EINVAL;
	pthread_mutex_lock(&engine->lock);
	/* Else what came until now would stay where nobody looks. */
	given = engine->listener_given;
	if (given)
		atomic_store(&engine->listener, queue);
	pthread_mutex_unlock(&engine->lock);
	return given ? 0 : -ENOTCONN;
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

static inline bool events_fit(const struct weft_event *events, size_t event_bytes, int max)
{
	return events && event_bytes >= WF_LEAST_EVENT && event_bytes <= WF_SIZED_MOST && max >= 1;
}

WF_HOT int weft_queue_poll(weft_queue *queue, struct weft_event *events, size_t event_bytes, int max)
{
	if (!queue || !events_fit(events, event_bytes, max))
		return -EINVAL;
	return wf_queue_poll(queue, events, event_bytes, max);
}

int weft_queue_wait(weft_queue *queue, struct weft_event *events, size_t event_bytes, int max, uint64_t timeout_ns)
{
	if (!queue || !events_fit(events, event_bytes, max))
		return -EINVAL;
	return wf_queue_wait(queue, events, event_bytes, max, timeout_ns);
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
	if (access & ~(WEFT_REMOTE_WRITE | WEFT_REMOTE_READ | WEFT_NEAR_REQUIRED))
		return -EOPNOTSUPP;
	groups = 0; /* as the memory says */
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

/* The result of a call on one handle; the log says which handle is not there. */
static int outcome(weft_engine *engine, const char *what, uint64_t handle, int error)
{
	return error == -ENOENT ? wf_request_no_such(engine, what, handle) : error;
}

int weft_memory_alloc(weft_engine *engine, uint64_t bytes, const char *near, void **ret_memory)
{
	return engine && ret_memory ? wf_memory_alloc(engine, bytes, near, ret_memory) : -EINVAL;
}

int weft_memory_free(weft_engine *engine, void *memory)
{
	return engine && memory ? wf_memory_free(engine, memory) : -EINVAL;
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

static const struct weft_peer_config *our_peer_config(const struct weft_peer_config *config,
						      struct weft_peer_config *room, int *error)
{
	config = ours(config, room, sizeof(*room), WF_LEAST_PEER_CONFIG, error);
	if (config && !*error && config->name && strnlen(config->name, WEFT_PEER_NAME_MAX + 1) > WEFT_PEER_NAME_MAX)
		*error = -ENAMETOOLONG;
	return config;
}

int weft_peer_add(weft_engine *engine, const void *blob, size_t bytes, const struct weft_peer_config *config,
		  weft_peer *ret_peer)
{
	struct weft_peer_config room;
	struct wf_wire_address *address;
	int error = engine && ret_peer ? 0 : -EINVAL;

	config = our_peer_config(config, &room, &error);
	if (!error && atomic_load(&engine->closing))
		error = -ESHUTDOWN;
	if (!error)
		error = read_address(blob, bytes, &address);
	if (error)
		return error;
	error = check_reachable(engine, address);
	if (!error)
		error = wf_peer_add(engine, address, config, ret_peer);
	free(address);
	return error;
}

int weft_peer_set(weft_engine *engine, weft_peer peer, const struct weft_peer_config *config)
{
	struct weft_peer_config room;
	int error = engine && config ? 0 : -EINVAL;

	config = our_peer_config(config, &room, &error);
	return error ? error : outcome(engine, "peer", peer, wf_peer_set(engine, peer, config));
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
	struct weft_write room;
	struct weft_op op_room;
	int error = engine && write ? 0 : -EINVAL;

	write = ours(write, &room, sizeof(room), WF_LEAST_WRITE, &error);
	op = our_op(op, &op_room, ret, &error);
	return error ? error : wf_submit_write(engine, write, op, ret);
}

int weft_read(weft_engine *engine, const struct weft_read *read, const struct weft_op *op, weft_transfer *ret)
{
	struct weft_read room;
	struct weft_op op_room;
	int error = engine && read ? 0 : -EINVAL;

	read = ours(read, &room, sizeof(room), WF_LEAST_READ, &error);
	op = our_op(op, &op_room, ret, &error);
	return error ? error : wf_submit_read(engine, read, op, ret);
}

int weft_write_pages(weft_engine *engine, const struct weft_write_pages *pages, const struct weft_op *op,
		     weft_transfer *ret)
{
	struct weft_write_pages room;
	struct weft_op op_room;
	int error = engine && pages ? 0 : -EINVAL;

	pages = ours(pages, &room, sizeof(room), WF_LEAST_WRITE_PAGES, &error);
	op = our_op(op, &op_room, ret, &error);
	return error ? error : wf_submit_write_pages(engine, pages, op, ret);
}

int weft_read_pages(weft_engine *engine, const struct weft_read_pages *pages, const struct weft_op *op,
		    weft_transfer *ret)
{
	struct weft_read_pages room;
	struct weft_op op_room;
	int error = engine && pages ? 0 : -EINVAL;

	pages = ours(pages, &room, sizeof(room), WF_LEAST_READ_PAGES, &error);
	op = our_op(op, &op_room, ret, &error);
	return error ? error : wf_submit_read_pages(engine, pages, op, ret);
}

/* The parts of a program whose structure has another size than ours, one behind the other as ours. To be freed. */
static int our_parts(const struct weft_write *parts, uint32_t count, struct weft_write **ret_parts)
{
	struct weft_write *copy = calloc(count, sizeof(*copy));
	size_t stride = parts->size;
	int error = copy ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < count && !error; i++) {
		const struct weft_write *part = (const void *)((const char *)parts + i * stride);

		error = part->size == stride ? wf_sized_read(&copy[i], sizeof(*copy), part, WF_LEAST_WRITE) : -EINVAL;
	}
	if (error)
		free(copy);
	else
		*ret_parts = copy;
	return error;
}

int weft_scatter(weft_engine *engine, const struct weft_write *parts, uint32_t count, const struct weft_op *op,
		 weft_transfer *ret)
{
	struct weft_write *copy = NULL;
	struct weft_op op_room;
	int error = engine && (parts || !count) ? 0 : -EINVAL;

	op = our_op(op, &op_room, ret, &error);
	if (!error && count && parts->size != sizeof(*parts))
		error = our_parts(parts, count, &copy);
	if (!error)
		error = wf_submit_scatter(engine, copy ? copy : parts, count, op, ret);
	if (copy) /* not even a call that does nothing: submitting never enters the allocator */
		free(copy);
	return error;
}

WF_HOT static int submit_message(weft_engine *engine, const struct wf_outgoing *message, const struct weft_op *op,
				 weft_transfer *ret)
{
	struct weft_op op_room;
	int error = engine ? 0 : -EINVAL;

	op = our_op(op, &op_room, ret, &error);
	return error ? error : wf_submit_message(engine, message, op, ret);
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

	return submit_message(engine, &message, op, ret);
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

	return submit_message(engine, &message, op, ret);
}

WF_HOT int weft_reply(weft_engine *engine, weft_peer peer, uint64_t call, int status, const void *data, uint64_t bytes,
		      const struct weft_op *op, weft_transfer *ret)
{
	struct wf_outgoing message = { .peer = peer,
				       .kind = WF_REPLY,
				       .type = WF_MESSAGE_REPLY,
				       .status = status,
				       .subject = call,
				       .bytes = bytes,
				       .data = data };

	return status <= 0 && status > INT32_MIN ? submit_message(engine, &message, op, ret) : -EINVAL;
}

int weft_barrier(weft_engine *engine, const weft_peer *peers, uint32_t count, uint64_t id, const struct weft_op *op,
		 weft_transfer *ret)
{
	struct weft_op op_room;
	int error = engine && (peers || !count) ? 0 : -EINVAL;

	op = our_op(op, &op_room, ret, &error);
	return error ? error : wf_submit_barrier(engine, peers, count, id, op, ret);
}

int weft_expect(weft_engine *engine, weft_peer peer, uint32_t immediate, uint64_t count, const struct weft_op *op,
		weft_transfer *ret)
{
	struct wf_expectation expectation = { .peer = peer, .immediate = immediate, .count = count };
	struct weft_op op_room;
	int error = engine ? 0 : -EINVAL;

	op = our_op(op, &op_room, ret, &error);
	return error ? error : wf_submit_expect(engine, &expectation, op, ret);
}

int weft_transfer_cancel(weft_engine *engine, weft_transfer transfer)
{
	return engine ? outcome(engine, "transfer", transfer, wf_submit_cancel(engine, transfer)) : -EINVAL;
}

int weft_transfer_wait(weft_engine *engine, weft_transfer transfer, uint64_t timeout_ns, struct weft_event *ret_event,
		       size_t event_bytes)
{
	if (!engine || !events_fit(ret_event, event_bytes, 1))
		return -EINVAL;
	return wf_wait(engine, transfer, timeout_ns, ret_event, event_bytes);
}

int weft_peer_cancel(weft_engine *engine, weft_peer handle)
{
	struct wf_peer *peer;

	if (!engine)
		return -EINVAL;
	peer = wf_handle_get(&engine->peers, handle);
	if (!peer)
		return wf_request_no_such(engine, "peer", handle);
	/* The note carries the reference. */
	atomic_fetch_add(&peer->lives_asked, 1);
	wf_engine_post(peer->home, WF_NOTE_PEER, peer, WF_PEER_CANCEL);
	return 0;
}
