/*
 * Submitting: checks every pointer, length, index and key against its region, copies the request into a transfer from
 * the pool and posts one note to its home worker. Runs on the caller's thread; never waits, never posts to a NIC.
 */
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"
#include "engine/transfer.h"
#include "engine/verify.h"
#include "wire/manifest.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_MIN (64u << 10)
#define UNIT_MAX (1u << 20)
#define SMALL_PAGE (16u << 10) /* up to this pages share operations where the provider allows */
#define SHARES   4 /* pieces each rail should get of a range, so that the faster ones can take more */

/* ---- checks ---- */

static int check_op(struct weft_engine *engine, const struct weft_op *op, bool data)
{
	if (atomic_load_explicit(&engine->closing, memory_order_relaxed))
		return -ESHUTDOWN;
	if (!op)
		return 0;
	if (op->queue && op->queue->engine != engine)
		return -EINVAL;
	if (op->flags & ~WEFT_CHECKSUM || (op->flags && (!data || op->notify.kind != WEFT_NOTIFY_FENCED)))
		return -EINVAL;
	if (op->notify.kind == WEFT_NOTIFY_NOTHING)
		return 0;
	if (!data || op->notify.kind > WEFT_NOTIFY_COUNTED || op->notify.payload_bytes > WEFT_NOTIFY_MAX ||
	    (op->notify.payload_bytes && !op->notify.payload))
		return -EINVAL;
	for (uint32_t i = 0; op->notify.kind == WEFT_NOTIFY_COUNTED && i < engine->rails; i++)
		if (!engine->seat[i]->limits.immediate)
			return -EOPNOTSUPP;
	return 0;
}

static bool inside(uint64_t offset, uint64_t bytes, uint64_t limit)
{
	return bytes <= limit && offset <= limit - bytes;
}

/* The peer, referenced, when it can be submitted to. */
static int find_peer(struct weft_engine *engine, weft_peer handle, struct wf_peer **ret_peer)
{
	struct wf_peer *peer = wf_handle_get(&engine->peers, handle);

	if (!peer)
		return -ENOENT;
	if (atomic_load_explicit(&peer->state, memory_order_relaxed) == WF_PEER_DOWN) {
		wf_handle_put(&engine->peers, handle);
		return -EHOSTDOWN;
	}
	atomic_fetch_add_explicit(&peer->in_flight, 1, memory_order_relaxed);
	*ret_peer = peer;
	return 0;
}

/* Both ends of a range, referenced into the slice, which the transfer puts back whatever happens. */
static int find_ends(struct weft_engine *engine, struct wf_slice *slice, weft_region region, weft_remote remote,
		     uint32_t access)
{
	*slice = (struct wf_slice){ .region = wf_handle_get(&engine->regions, region),
				    .remote = wf_handle_get(&engine->remotes, remote) };
	if (!slice->region || !slice->remote)
		return -ENOENT;
	if (atomic_load(&slice->region->changing))
		return -EBUSY;
	if (atomic_load_explicit(&slice->remote->revoked, memory_order_relaxed))
		return -ESTALE;
	if (!(slice->remote->access & access))
		return -EACCES;
	return 0;
}

static int check_incarnation(const struct wf_transfer *transfer, const struct wf_slice *slice)
{
	return atomic_load_explicit(&transfer->peer->incarnation, memory_order_relaxed) == slice->remote->incarnation ?
		       0 :
		       -ESTALE;
}

/* ---- cutting ---- */

/* How large pieces of a transfer of so many bytes are: all rails share it, yet each piece is worth its post. */
static uint64_t unit_for(const struct wf_transfer *transfer, uint64_t bytes)
{
	const struct weft_engine *engine = transfer->engine;
	uint64_t unit = bytes / (engine->rails * SHARES), most = engine->largest_piece;

	if (engine->settings.piece_bytes)
		unit = engine->settings.piece_bytes;
	else
		unit = unit < UNIT_MIN ? UNIT_MIN : unit > UNIT_MAX ? UNIT_MAX : (unit + 4095) & ~UINT64_C(4095);
	if (transfer->checked && most > WF_MANIFEST_UNIT)
		most = WF_MANIFEST_UNIT;
	return unit < most ? unit : most;
}

static void set_notify(struct wf_transfer *transfer, const struct weft_op *op)
{
	if (!op || op->notify.kind == WEFT_NOTIFY_NOTHING)
		return;
	transfer->notify = op->notify.kind;
	transfer->immediate = op->notify.immediate;
	if (op->notify.payload_bytes)
		memcpy(transfer->payload, op->notify.payload, op->notify.payload_bytes);
	transfer->message.type = WF_MESSAGE_NOTIFY;
	transfer->message.tag = op->notify.tag;
	transfer->message.call = 0;
	transfer->message.status = 0;
	transfer->message.bytes = op->notify.payload_bytes;
	transfer->message.data = transfer->payload;
}

/* Which groups carry it: those near the memory; for host memory that is all of them. */
static void set_groups(struct wf_transfer *transfer)
{
	struct weft_engine *engine = transfer->engine;
	uint64_t groups = 0, most, share;

	for (uint32_t i = 0; i < transfer->slices; i++)
		groups |= transfer->slice[i].region->groups;
	atomic_store(&transfer->groups, groups);
	/* A single group takes it whole; several claim a few pieces a rail at a time, and leave some for the others. */
	most = 16 * (engine->rails / engine->groups + 1);
	share = transfer->units / ((uint64_t)__builtin_popcountll(groups) * SHARES) + 1;
	transfer->claim = groups & (groups - 1) ? (share < most ? share : most) : transfer->units;
}

static int begin(struct wf_transfer *transfer, weft_transfer *ret)
{
	struct wf_group *home = transfer->peer ? transfer->peer->home : &transfer->engine->group[0];
	weft_transfer id = transfer->id; /* once posted it is the worker's, and may be over */

	atomic_store_explicit(&transfer->home, home, memory_order_relaxed);
	/* Cannot be full: the inbox has room for a begin and a stop of every transfer there is. */
	if (!wf_group_post(home, WF_NOTE_BEGIN, transfer, 0)) {
		wf_transfer_abandon(transfer);
		return -EAGAIN;
	}
	if (ret)
		*ret = id;
	return 0;
}

static int add_manifest(struct wf_transfer *transfer, const struct weft_op *op, int error)
{
	return error || !transfer->checked ? error : wf_manifest_make(transfer, op);
}

static int finish(struct wf_transfer *transfer, int error, weft_transfer *ret)
{
	if (error) {
		wf_transfer_abandon(transfer);
		return error;
	}
	return begin(transfer, ret);
}

/* ---- contiguous ---- */

struct range {
	weft_region region;
	uint64_t local;
	weft_remote remote;
	uint64_t remote_offset, bytes;
	uint32_t access;
	enum wf_transfer_kind kind;
};

static int set_range(struct weft_engine *engine, struct wf_transfer *transfer, const struct range *range)
{
	struct wf_slice *slice = &transfer->one;
	int error;

	transfer->slice = slice;
	transfer->slices = 1;
	error = find_ends(engine, slice, range->region, range->remote, range->access);
	if (!error && (!inside(range->local, range->bytes, slice->region->bytes) ||
		       !inside(range->remote_offset, range->bytes, slice->remote->bytes)))
		error = -ERANGE;
	if (!error)
		error = find_peer(engine, slice->remote->peer, &transfer->peer);
	if (!error)
		error = check_incarnation(transfer, slice);
	if (error)
		return error;
	slice->local = range->local;
	slice->remote_offset = range->remote_offset;
	slice->bytes = range->bytes;
	transfer->unit_bytes = unit_for(transfer, range->bytes);
	if (transfer->notify == WEFT_NOTIFY_COUNTED) { /* one write, one immediate */
		transfer->unit_bytes = range->bytes ? range->bytes : 1;
		if (range->bytes > engine->largest_piece)
			return -EMSGSIZE;
	}
	transfer->units = (range->bytes + transfer->unit_bytes - 1) / transfer->unit_bytes;
	set_groups(transfer);
	return 0;
}

static int submit_range(struct weft_engine *engine, const struct range *range, const struct weft_op *op,
			weft_transfer *ret)
{
	struct wf_transfer *transfer;
	int error = check_op(engine, op, true);

	if (error)
		return error;
	transfer = wf_transfer_take(engine, op);
	if (!transfer)
		return -EAGAIN;
	transfer->kind = range->kind;
	set_notify(transfer, op);
	return finish(transfer, add_manifest(transfer, op, set_range(engine, transfer, range)), ret);
}

int wf_submit_write(struct weft_engine *engine, const struct weft_write *write, const struct weft_op *op,
		    weft_transfer *ret)
{
	struct range range = { write->from,  write->from_offset, write->to, write->to_offset,
			       write->bytes, WEFT_REMOTE_WRITE,	 WF_WRITE };

	return submit_range(engine, &range, op, ret);
}

int wf_submit_read(struct weft_engine *engine, const struct weft_read *read, const struct weft_op *op,
		   weft_transfer *ret)
{
	struct range range = { read->to, read->to_offset, read->from, read->from_offset, read->bytes, WEFT_REMOTE_READ,
			       WF_READ };

	/* Nobody at the other end learns of a read by an immediate, or has anything to check. */
	if (op && (op->notify.kind == WEFT_NOTIFY_COUNTED || op->flags))
		return -EINVAL;
	return submit_range(engine, &range, op, ret);
}

/* ---- pages ---- */

/* Does the page with the largest index still lie inside? */
static bool pages_inside(uint64_t largest, uint64_t stride, uint64_t offset, uint64_t page, uint64_t limit)
{
	uint64_t last;

	return !__builtin_mul_overflow(largest, stride, &last) && !__builtin_add_overflow(last, offset, &last) &&
	       inside(last, page, limit);
}

/* One pass copies and finds the largest: what is checked is the copy, since the caller's array may change under us. */
static const uint32_t *copy_index(uint32_t *restrict copy, const uint32_t *restrict index, uint64_t count,
				  uint64_t *ret_largest)
{
	uint32_t largest = 0;

	*ret_largest = count ? count - 1 : 0;
	if (!index)
		return NULL;
	for (uint64_t i = 0; i < count; i++) {
		uint32_t at = index[i];

		copy[i] = at;
		largest = at > largest ? at : largest;
	}
	*ret_largest = largest;
	return copy;
}

static int copy_indices(struct wf_transfer *transfer, const struct weft_pages *pages, uint64_t *ret_local,
			uint64_t *ret_remote)
{
	size_t bytes = 0;
	uint32_t *copy = NULL;

	if ((pages->from_index || pages->to_index) &&
	    (__builtin_mul_overflow(pages->count, (uint64_t)2 * sizeof(uint32_t), &bytes) ||
	     !(copy = wf_transfer_copy_room(transfer, bytes))))
		return -ENOMEM;
	transfer->local_index = copy_index(copy, pages->from_index, pages->count, ret_local);
	transfer->remote_index = copy_index(copy + (copy ? pages->count : 0), pages->to_index, pages->count, ret_remote);
	return 0;
}

static int set_pages(struct weft_engine *engine, struct wf_transfer *transfer, const struct weft_pages *pages)
{
	uint64_t local_stride = pages->from_stride ? pages->from_stride : pages->page_bytes;
	uint64_t remote_stride = pages->to_stride ? pages->to_stride : pages->page_bytes;
	struct wf_slice *slice = &transfer->one;
	uint64_t total = 0, local, remote;
	int error;

	transfer->slice = slice;
	transfer->slices = 1;
	error = find_ends(engine, slice, pages->from, pages->to, WEFT_REMOTE_WRITE);
	if (!error && pages->count && !pages->page_bytes)
		error = -EINVAL;
	if (!error)
		error = copy_indices(transfer, pages, &local, &remote);
	if (!error && pages->count &&
	    (!pages_inside(local, local_stride, pages->from_offset, pages->page_bytes, slice->region->bytes) ||
	     !pages_inside(remote, remote_stride, pages->to_offset, pages->page_bytes, slice->remote->bytes) ||
	     __builtin_mul_overflow(pages->count, pages->page_bytes, &total)))
		error = -ERANGE;
	if (!error)
		error = find_peer(engine, slice->remote->peer, &transfer->peer);
	if (!error)
		error = check_incarnation(transfer, slice);
	if (error)
		return error;
	transfer->paged = true;
	transfer->page_bytes = pages->page_bytes;
	transfer->local_stride = local_stride;
	transfer->remote_stride = remote_stride;
	slice->local = pages->from_offset;
	slice->remote_offset = pages->to_offset;
	transfer->unit_bytes = pages->count ? unit_for(transfer, total) : 1;
	transfer->cuts = (pages->page_bytes + UNIT_MAX - 1) / UNIT_MAX;
	if (transfer->notify == WEFT_NOTIFY_COUNTED) {
		transfer->cuts = 1;
		if (pages->page_bytes > engine->largest_piece)
			return -EMSGSIZE;
	} else if (pages->page_bytes > engine->largest_piece || transfer->cuts > 1) {
		transfer->unit_bytes = engine->largest_piece < UNIT_MAX ? engine->largest_piece : UNIT_MAX;
		transfer->cuts = (pages->page_bytes + transfer->unit_bytes - 1) / transfer->unit_bytes;
	}
	transfer->cuts = transfer->cuts ? transfer->cuts : 1;
	if (transfer->cuts == 1 && pages->count && transfer->notify != WEFT_NOTIFY_COUNTED &&
	    local_stride == pages->page_bytes && remote_stride == pages->page_bytes)
		transfer->most_adjacent = transfer->unit_bytes / pages->page_bytes;
	if (transfer->cuts == 1 && transfer->notify != WEFT_NOTIFY_COUNTED && pages->page_bytes <= SMALL_PAGE)
		transfer->ranges = engine->rma_ranges;
	transfer->units = pages->count * transfer->cuts;
	set_groups(transfer);
	return 0;
}

int wf_submit_pages(struct weft_engine *engine, const struct weft_pages *pages, const struct weft_op *op,
		    weft_transfer *ret)
{
	struct wf_transfer *transfer;
	int error = check_op(engine, op, true);

	if (error)
		return error;
	transfer = wf_transfer_take(engine, op);
	if (!transfer)
		return -EAGAIN;
	transfer->kind = WF_WRITE;
	set_notify(transfer, op);
	return finish(transfer, add_manifest(transfer, op, set_pages(engine, transfer, pages)), ret);
}

/* ---- scatter: a parent, and a child for every peer named ---- */

static struct wf_transfer *take_child(struct weft_engine *engine, struct wf_transfer *parent)
{
	struct weft_op op = { .timeout_ns = WEFT_FOREVER };
	struct wf_transfer *child = wf_transfer_take(engine, &op);

	if (child) {
		child->parent = parent;
		child->deadline_ns = parent->deadline_ns;
		child->checked = parent->checked;
	}
	return child;
}

static struct wf_transfer *take_parent(struct weft_engine *engine, uint32_t most, const struct weft_op *op)
{
	struct wf_transfer *parent = wf_transfer_take(engine, op);

	if (!parent)
		return NULL;
	parent->kind = WF_PARENT;
	parent->child = wf_transfer_copy_room(parent, (most + 1) * sizeof(*parent->child));
	/* One for us, so that it cannot end before all children are begun. */
	atomic_store(&parent->children_left, 1);
	if (!parent->child) {
		wf_transfer_abandon(parent);
		return NULL;
	}
	return parent;
}

/* All or nothing: children are begun only when every one could be made. */
static int begin_children(struct wf_transfer *parent, struct wf_transfer **children, int error, weft_transfer *ret)
{
	uint32_t count = parent->children;

	if (error) {
		for (uint32_t i = 0; i < count; i++) {
			children[i]->parent = NULL;
			wf_transfer_abandon(children[i]);
		}
		wf_transfer_abandon(parent);
		return error;
	}
	if (ret)
		*ret = parent->id;
	atomic_fetch_add(&parent->children_left, count);
	for (uint32_t i = 0; i < count; i++) {
		parent->child[i] = children[i]->id;
		atomic_store_explicit(&children[i]->home, children[i]->peer->home, memory_order_relaxed);
	}
	for (uint32_t i = 0; i < count; i++)
		if (!wf_group_post(children[i]->peer->home, WF_NOTE_BEGIN, children[i], 0))
			abort(); /* the inbox has room for every transfer there is */
	wf_transfer_child_put(parent);
	return 0;
}

static int order_by_peer(const void *a, const void *b)
{
	const struct wf_slice *x = a, *y = b;

	return x->remote->peer < y->remote->peer ? -1 : x->remote->peer > y->remote->peer;
}

static int check_slices(struct weft_engine *engine, struct wf_slice *slices, const struct weft_write *parts,
			uint32_t count)
{
	int error = 0;

	for (uint32_t i = 0; i < count; i++)
		slices[i] = (struct wf_slice){ 0 };
	for (uint32_t i = 0; i < count && !error; i++) {
		error = find_ends(engine, &slices[i], parts[i].from, parts[i].to, WEFT_REMOTE_WRITE);
		if (!error && (!inside(parts[i].from_offset, parts[i].bytes, slices[i].region->bytes) ||
			       !inside(parts[i].to_offset, parts[i].bytes, slices[i].remote->bytes)))
			error = -ERANGE;
		slices[i].local = parts[i].from_offset;
		slices[i].remote_offset = parts[i].to_offset;
		slices[i].bytes = parts[i].bytes;
	}
	return error;
}

/* The slices from first on that go to one peer become one child, which then owns their references. */
static int make_child(struct weft_engine *engine, struct wf_transfer *parent, struct wf_slice *slices, uint32_t count,
		      const struct weft_op *op, struct wf_transfer **ret_child)
{
	struct wf_transfer *child = take_child(engine, parent);
	uint64_t total = 0;
	int error;

	if (!child)
		return -EAGAIN;
	child->kind = WF_WRITE;
	*ret_child = child;
	parent->children++;
	set_notify(child, op);
	child->slice = wf_transfer_copy_room(child, count * sizeof(*child->slice));
	if (!child->slice)
		return -ENOMEM;
	memcpy(child->slice, slices, count * sizeof(*slices));
	memset(slices, 0, count * sizeof(*slices)); /* moved: not to be put twice */
	child->slices = count;
	error = find_peer(engine, child->slice[0].remote->peer, &child->peer);
	for (uint32_t i = 0; i < count && !error; i++) {
		error = check_incarnation(child, &child->slice[i]);
		total = child->slice[i].bytes > UINT64_MAX - total ? UINT64_MAX : total + child->slice[i].bytes;
		if (child->notify == WEFT_NOTIFY_COUNTED && child->slice[i].bytes > engine->largest_piece)
			error = -EMSGSIZE;
	}
	child->unit_bytes = child->notify == WEFT_NOTIFY_COUNTED ? engine->largest_piece : unit_for(child, total);
	for (uint32_t i = 0; i < count && !error; i++) {
		child->slice[i].first_unit = child->units;
		child->units += (child->slice[i].bytes + child->unit_bytes - 1) / child->unit_bytes;
	}
	set_groups(child);
	return add_manifest(child, op, error);
}

static void put_slices(struct weft_engine *engine, struct wf_slice *slices, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (slices[i].region)
			wf_handle_put(&engine->regions, slices[i].region->handle);
		if (slices[i].remote)
			wf_handle_put(&engine->remotes, slices[i].remote->handle);
	}
}

int wf_submit_scatter(struct weft_engine *engine, const struct weft_write *parts, uint32_t count,
		      const struct weft_op *op, weft_transfer *ret)
{
	struct wf_slice *slices = NULL;
	struct wf_transfer **children = NULL, *parent;
	int error = check_op(engine, op, true);

	if (error)
		return error;
	parent = take_parent(engine, count, op);
	if (!parent)
		return -EAGAIN;
	slices = calloc((size_t)count + 1, sizeof(*slices));
	children = calloc((size_t)count + 1, sizeof(*children));
	error = slices && children ? check_slices(engine, slices, parts, count) : -ENOMEM;
	if (!error)
		qsort(slices, count, sizeof(*slices), order_by_peer);
	for (uint32_t first = 0, next; !error && first < count; first = next) {
		for (next = first + 1; next < count && slices[next].remote->peer == slices[first].remote->peer;)
			next++;
		error = make_child(engine, parent, &slices[first], next - first, op, &children[parent->children]);
	}
	if (slices)
		put_slices(engine, slices, count);
	error = begin_children(parent, children, error, ret);
	free(slices);
	free(children);
	return error;
}

/* ---- messages ---- */

static int set_message(struct weft_engine *engine, struct wf_transfer *transfer, const struct wf_outgoing *outgoing)
{
	struct wf_message *message = &transfer->message;
	uint8_t *copy = wf_transfer_copy_room(transfer, outgoing->bytes);
	int error;

	if (!copy)
		return -ENOMEM;
	if (outgoing->bytes)
		memcpy(copy, outgoing->data, outgoing->bytes);
	error = find_peer(engine, outgoing->peer, &transfer->peer);
	message->type = outgoing->type;
	message->status = outgoing->status;
	message->tag = outgoing->tag;
	message->call = outgoing->kind == WF_CALL ? transfer->id : outgoing->call;
	message->bytes = outgoing->bytes;
	message->data = copy;
	return error;
}

int wf_submit_message(struct weft_engine *engine, const struct wf_outgoing *outgoing, const struct weft_op *op,
		      weft_transfer *ret)
{
	struct wf_transfer *transfer;
	int error = check_op(engine, op, false);

	if (error)
		return error;
	if (outgoing->bytes > engine->settings.max_message)
		return -EMSGSIZE;
	if (outgoing->bytes && !outgoing->data)
		return -EINVAL;
	transfer = wf_transfer_take(engine, op);
	if (!transfer)
		return -EAGAIN;
	transfer->kind = outgoing->kind;
	return finish(transfer, set_message(engine, transfer, outgoing), ret);
}

int wf_submit_barrier(struct weft_engine *engine, const weft_peer *peers, uint32_t count, uint64_t id,
		      const struct weft_op *op, weft_transfer *ret)
{
	struct wf_transfer **children, *parent;
	int error = check_op(engine, op, false);

	if (error)
		return error;
	parent = take_parent(engine, count, op);
	if (!parent)
		return -EAGAIN;
	children = calloc((size_t)count + 1, sizeof(*children));
	error = children ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < count && !error; i++) {
		struct wf_outgoing entry = { .peer = peers[i], .type = WF_MESSAGE_BARRIER, .tag = id };

		children[i] = take_child(engine, parent);
		error = children[i] ? 0 : -EAGAIN;
		if (error)
			break;
		parent->children++;
		children[i]->kind = WF_BARRIER;
		error = set_message(engine, children[i], &entry);
	}
	error = begin_children(parent, children, error, ret);
	free(children);
	return error;
}

int wf_submit_expect(struct weft_engine *engine, uint32_t immediate, uint64_t count, const struct weft_op *op,
		     weft_transfer *ret)
{
	struct wf_transfer *transfer;
	int error = check_op(engine, op, false);

	if (error)
		return error;
	transfer = wf_transfer_take(engine, op);
	if (!transfer)
		return -EAGAIN;
	transfer->kind = WF_EXPECT;
	transfer->immediate = immediate;
	transfer->expected = count;
	return finish(transfer, 0, ret);
}

/* ---- cancelling ---- */

static int cancel_children(struct weft_engine *engine, struct wf_transfer *parent, weft_transfer id)
{
	uint32_t left = atomic_load(&parent->children_left);
	bool same;

	/* Counted as one more child while we read its list, so that it cannot end and be used anew meanwhile. */
	do {
		if (!left)
			return -ENOENT;
	} while (!atomic_compare_exchange_weak(&parent->children_left, &left, left + 1));
	same = wf_transfer_find(engine, id) == parent; /* or the slot has a new user */
	for (uint32_t i = 0; same && i < parent->children; i++)
		wf_submit_cancel(engine, parent->child[i]);
	wf_transfer_child_put(parent);
	return same ? 0 : -ENOENT;
}

int wf_submit_cancel(struct weft_engine *engine, weft_transfer id)
{
	struct wf_transfer *transfer = wf_transfer_find(engine, id);
	uint64_t running = id >> 32 << 32;
	struct wf_group *home;

	if (!transfer)
		return -ENOENT;
	/* Read before the slot can change hands; used only if the exchange says that it did not. */
	home = atomic_load_explicit(&transfer->home, memory_order_relaxed);
	if (!home)
		return cancel_children(engine, transfer, id);
	if (!atomic_compare_exchange_strong(&transfer->state, &running, running | ECANCELED))
		return -ENOENT;
	wf_engine_post(home, WF_NOTE_STOP, transfer, id);
	return 0;
}
