/* Scatters and barriers: family.h says who is whose. On the caller's thread; what peers say of barriers, on their home. */
#include "engine/ops/family.h"
#include "engine/core/control.h"
#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/ops/message.h"
#include "engine/ops/request.h"
#include "engine/ops/submit.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#define EARLY_BARRIERS 256 /* per peer, kept until we enter them */

struct family {
	struct weft_engine *engine;
	struct wf_transfer *parent;
	struct wf_transfer **child; /* parent->children of them; in the parent's copy, like the slices */
	struct wf_slice *slices;    /* room for one for each, and one more */
};

/* Nobody ever had its number, but a thread that cancels the slot's last user may hold a count for a few instructions. We wait for
 * it, or it would put back a count of the next user's. */
static void abandon_parent(struct wf_transfer *parent)
{
	for (uint32_t own = 1; !atomic_compare_exchange_weak(&parent->children_left, &own, 0); own = 1)
		sched_yield();
	wf_transfer_abandon(parent);
}

/* Returns 0 if begin_family() is to be called in the end. */
static int open_family(struct family *family, struct weft_engine *engine, uint32_t most, const struct weft_op *op)
{
	struct wf_transfer *parent = wf_transfer_take(engine, op);

	if (!parent)
		return -EAGAIN;
	parent->kind = WF_PARENT;
	parent->child = wf_transfer_copy_room(
	    parent, ((size_t)most + 1) * (sizeof(*parent->child) + sizeof(*family->child) + sizeof(*family->slices)));
	/* One for us, so that it cannot end before all children are begun. */
	atomic_store(&parent->children_left, 1);
	if (!parent->child) {
		abandon_parent(parent);
		return -ENOMEM;
	}
	*family = (struct family){ engine, parent, (struct wf_transfer **)(parent->child + most + 1), NULL };
	family->slices = (struct wf_slice *)(family->child + most + 1);
	return 0;
}

/* NULL: all transfers are in flight. */
static struct wf_transfer *take_child(struct family *family, enum wf_transfer_kind kind)
{
	struct weft_op op = { .timeout_ns = WEFT_FOREVER };
	struct wf_transfer *child = wf_transfer_take(family->engine, &op);

	if (!child)
		return NULL;
	child->parent = family->parent;
	child->kind = kind;
	child->deadline_ns = family->parent->deadline_ns;
	child->checked = family->parent->checked;
	child->words.start = family->parent->words.start;
	child->words.start_value = family->parent->words.start_value;
	return family->child[family->parent->children++] = child;
}

static void abandon(struct family *family)
{
	for (uint32_t i = 0; i < family->parent->children; i++) {
		family->child[i]->parent = NULL;
		wf_transfer_abandon(family->child[i]);
	}
	abandon_parent(family->parent);
}

/* Puts back the count that kept the parent from ending. If that ends it, the thread that takes the end may close the queue: as a
 * pusher we keep the queue until we are through. */
static void put_own_child(struct wf_transfer *parent)
{
	weft_queue *queue = parent->queue;

	if (queue)
		atomic_fetch_add(&queue->pushers, 1);
	wf_transfer_child_put(parent);
	if (queue)
		atomic_fetch_sub(&queue->pushers, 1);
}

static void begin(struct family *family, weft_transfer *ret)
{
	struct wf_transfer *parent = family->parent;
	uint32_t count = parent->children;

	if (ret)
		*ret = parent->id;
	atomic_fetch_add(&parent->children_left, count);
	for (uint32_t i = 0; i < count; i++) {
		parent->child[i] = family->child[i]->id;
		atomic_store_explicit(&family->child[i]->home, family->child[i]->peer->home, memory_order_relaxed);
	}
	for (uint32_t i = 0; i < count; i++)
		wf_engine_post(family->child[i]->peer->home, WF_NOTE_BEGIN, family->child[i], 0);
	put_own_child(parent);
}

/* All or nothing: returns the error that making the children ended with, or begins them. */
static int begin_family(struct family *family, int error, weft_transfer *ret)
{
	if (error)
		abandon(family);
	else
		begin(family, ret);
	return error;
}

/* ---- scatter ---- */

static void sift_down(struct wf_slice *slices, uint32_t at, uint32_t count)
{
	for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
		struct wf_slice larger;

		if (child + 1 < count && slices[child + 1].remote->peer > slices[child].remote->peer)
			child++;
		if (slices[at].remote->peer >= slices[child].remote->peer)
			return;
		larger = slices[child];
		slices[child] = slices[at];
		slices[at] = larger;
	}
}

/* A heap sort: qsort() may allocate. Most lists are of one peer, or in order. */
static void sort_by_peer(struct wf_slice *slices, uint32_t count)
{
	uint32_t sorted = 1;

	while (sorted < count && slices[sorted - 1].remote->peer <= slices[sorted].remote->peer)
		sorted++;
	if (sorted >= count)
		return;
	for (uint32_t at = count / 2; at-- > 0;)
		sift_down(slices, at, count);
	for (uint32_t left = count - 1; left > 0; left--) {
		struct wf_slice last = slices[left];

		slices[left] = slices[0];
		slices[0] = last;
		sift_down(slices, 0, left);
	}
}

static int check_slices(struct weft_engine *engine, struct wf_slice *slices, const struct weft_write *parts,
			uint32_t count)
{
	int error = 0;

	for (uint32_t i = 0; i < count; i++)
		slices[i] = (struct wf_slice){ 0 };
	for (uint32_t i = 0; i < count && !error; i++) {
		error = wf_request_ends(engine, &slices[i], parts[i].from, parts[i].to, WEFT_REMOTE_WRITE);
		if (!error && (!wf_inside(parts[i].from_offset, parts[i].bytes, slices[i].region->bytes) ||
			       !wf_inside(parts[i].to_offset, parts[i].bytes, slices[i].remote->bytes)))
			error = -ERANGE;
		slices[i].local = parts[i].from_offset;
		slices[i].remote_offset = parts[i].to_offset;
		slices[i].bytes = parts[i].bytes;
	}
	return error;
}

/* The slices from first on that go to one peer become one child, which then owns their references. */
static int make_child(struct family *family, struct wf_slice *slices, uint32_t count, const struct weft_op *op)
{
	struct weft_engine *engine = family->engine;
	struct wf_transfer *child = take_child(family, WF_WRITE);
	uint64_t total = 0;
	int error;

	if (!child)
		return -EAGAIN;
	wf_request_notify(child, op);
	child->slice = wf_transfer_copy_room(child, count * sizeof(*child->slice));
	if (!child->slice)
		return -ENOMEM;
	memcpy(child->slice, slices, count * sizeof(*slices));
	memset(slices, 0, count * sizeof(*slices)); /* moved: not to be put twice */
	child->slices = count;
	wf_request_reach(child);
	error = wf_request_peer(engine, child->slice[0].remote->peer, &child->peer);
	for (uint32_t i = 0; i < count && !error; i++) {
		error = wf_request_incarnation(child, &child->slice[i]);
		if (!error)
			error = wf_request_cards(child, &child->slice[i]);
		if (child->lands)
			wf_request_reach(child);
		total = child->slice[i].bytes > UINT64_MAX - total ? UINT64_MAX : total + child->slice[i].bytes;
		if (!error && child->notify == WEFT_NOTIFY_COUNTED)
			error = wf_request_counted(child, child->slice[i].bytes);
	}
	child->unit_bytes =
	    child->notify == WEFT_NOTIFY_COUNTED ? engine->largest_piece : wf_request_unit(child, total);
	for (uint32_t i = 0; i < count && !error; i++) {
		child->slice[i].first_unit = child->units;
		child->units += wf_request_units(child, child->slice[i].bytes);
	}
	wf_request_groups(child);
	return wf_request_manifest(child, op, error);
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
	struct family family;
	int error = wf_request_check(engine, op, true);

	if (!error)
		error = open_family(&family, engine, count, op);
	if (error)
		return error;
	error = check_slices(engine, family.slices, parts, count);
	if (!error && op && op->notify_word)
		error = wf_words_suit_scatter(engine, op, family.slices, count);
	if (!error)
		sort_by_peer(family.slices, count);
	for (uint32_t first = 0, next; !error && first < count; first = next) {
		for (next = first + 1;
		     next < count && family.slices[next].remote->peer == family.slices[first].remote->peer;)
			next++;
		error = make_child(&family, &family.slices[first], next - first, op);
	}
	put_slices(engine, family.slices, count);
	return begin_family(&family, error, ret);
}

/* ---- barrier ---- */

int wf_submit_barrier(struct weft_engine *engine, const weft_peer *peers, uint32_t count, uint64_t id,
		      const struct weft_op *op, weft_transfer *ret)
{
	struct family family;
	int error = wf_request_check(engine, op, false);

	if (!error)
		error = open_family(&family, engine, count, op);
	if (error)
		return error;
	for (uint32_t i = 0; i < count && !error; i++) {
		struct wf_outgoing entry = { .peer = peers[i], .type = WF_MESSAGE_BARRIER, .tag = id };
		struct wf_transfer *child = take_child(&family, WF_BARRIER);

		error = child ? wf_request_message(engine, child, &entry) : -EAGAIN;
	}
	return begin_family(&family, error, ret);
}

bool wf_barrier_was_entered(struct wf_transfer *transfer)
{
	struct wf_link *head = &transfer->peer->barriers;

	for (struct wf_link *link = head->next; link != head; link = link->next) {
		struct wf_inbound *inbound = wf_container(link, struct wf_inbound, link);

		if (inbound->tag != transfer->message.tag)
			continue;
		wf_list_remove(&inbound->link);
		wf_inbound_free(inbound);
		transfer->peer->early--;
		return true;
	}
	return false;
}

void wf_barrier_arrived(struct wf_inbound *inbound)
{
	struct wf_peer *peer = inbound->peer;

	for (struct wf_link *link = peer->operations.next; link != &peer->operations; link = link->next) {
		struct wf_transfer *transfer = wf_container(link, struct wf_transfer, link);

		/* One that waits for its word has not been entered, and may never be: it takes its entry when it starts. */
		if (transfer->kind != WF_BARRIER || transfer->answered || transfer->words.waits ||
		    transfer->message.tag != inbound->tag)
			continue;
		transfer->answered = true;
		wf_inbound_free(inbound);
		if (transfer->sent)
			wf_transfer_end(transfer, 0);
		return;
	}
	wf_list_append(&peer->barriers, &inbound->link);
	/* Theirs may have timed out long ago. A peer that enters barriers that we never enter must not use up its credit with them. */
	if (++peer->early > EARLY_BARRIERS) {
		inbound = wf_container(peer->barriers.next, struct wf_inbound, link);
		wf_list_remove(&inbound->link);
		wf_inbound_free(inbound);
		peer->early--;
	}
}

/* ---- cancelling ---- */

int wf_cancel_children(struct weft_engine *engine, struct wf_transfer *parent, weft_transfer id)
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
	put_own_child(parent);
	return same ? 0 : -ENOENT;
}
