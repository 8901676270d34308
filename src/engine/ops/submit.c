/*
 * Submitting: has every pointer, length, index and key checked against its region (request.c), copies the
 * request into a transfer from the pool and posts one note to its home worker. Messages are in message.c, operations
 * with children in family.c. Runs on the caller's thread; never waits, never posts to a NIC.
 */
#include "engine/ops/submit.h"
#include "engine/core/control.h"
#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/ops/expect.h"
#include "engine/ops/family.h"
#include "engine/ops/request.h"
#include "engine/peer/peer.h"

#include <errno.h>

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
	error = wf_request_ends(engine, slice, range->region, range->remote, range->access);
	if (!error && (!wf_inside(range->local, range->bytes, slice->region->bytes) ||
		       !wf_inside(range->remote_offset, range->bytes, slice->remote->bytes)))
		error = -ERANGE;
	if (!error)
		error = wf_request_peer(engine, slice->remote->peer, &transfer->peer);
	if (!error)
		error = wf_request_incarnation(transfer, slice);
	if (!error)
		error = wf_request_cards(transfer, slice);
	if (error)
		return error;
	slice->local = range->local;
	slice->remote_offset = range->remote_offset;
	slice->bytes = range->bytes;
	wf_request_reach(transfer);
	transfer->unit_bytes = wf_request_unit(transfer, range->bytes);
	if (transfer->notify == WEFT_NOTIFY_COUNTED) { /* one write, one immediate */
		transfer->unit_bytes = range->bytes ? range->bytes : 1;
		error = wf_request_counted(transfer, range->bytes);
		if (error)
			return error;
	}
	transfer->units = wf_request_units(transfer, range->bytes);
	wf_request_groups(transfer);
	return 0;
}

static int submit_range(struct weft_engine *engine, const struct range *range, const struct weft_op *op,
			weft_transfer *ret)
{
	struct wf_transfer *transfer;
	int error = wf_request_check(engine, op, true);

	if (error)
		return error;
	transfer = wf_transfer_take(engine, op);
	if (!transfer)
		return -EAGAIN;
	transfer->kind = range->kind;
	wf_request_notify(transfer, op);
	return wf_request_post(transfer, wf_request_manifest(transfer, op, set_range(engine, transfer, range)), ret);
}

int wf_submit_write(struct weft_engine *engine, const struct weft_write *write, const struct weft_op *op,
		    weft_transfer *ret)
{
	struct range range = { write->from,  write->from_offset, write->to, write->to_offset,
			       write->bytes, WEFT_REMOTE_WRITE,  WF_WRITE };

	return submit_range(engine, &range, op, ret);
}

/* Nobody at the other end learns of a read by an immediate, or has anything to check. */
static bool suits_read(const struct weft_op *op)
{
	return !op || (op->notify != WEFT_NOTIFY_COUNTED && !(op->flags & WEFT_CHECKSUM));
}

int wf_submit_read(struct weft_engine *engine, const struct weft_read *read, const struct weft_op *op,
		   weft_transfer *ret)
{
	struct range range = { read->to,    read->to_offset,  read->from, read->from_offset,
			       read->bytes, WEFT_REMOTE_READ, WF_READ };

	return suits_read(op) ? submit_range(engine, &range, op, ret) : -EINVAL;
}

/* ---- pages ---- */

/* A paged write or a paged read, seen from here: local and remote in place of from and to. */
struct pages {
	uint64_t page_bytes, count;
	weft_region region;
	const uint32_t *local_index;
	uint64_t local_stride, local;
	weft_remote remote;
	const uint32_t *remote_index;
	uint64_t remote_stride, remote_offset;
	uint32_t access;
	enum wf_transfer_kind kind;
};

/* Does the page with the largest index still lie inside? */
static bool pages_inside(uint64_t largest, uint64_t stride, uint64_t offset, uint64_t page, uint64_t limit)
{
	uint64_t last;

	return !__builtin_mul_overflow(largest, stride, &last) && !__builtin_add_overflow(last, offset, &last) &&
	       wf_inside(last, page, limit);
}

/* The larger of two unsigned numbers is an instruction from AVX2 on: with it the check hides in the copy. Chosen when the
 * library is loaded, which sanitizers do not survive. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&              \
    !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

/* One pass copies and finds the largest: what is checked is the copy, since the caller's array may change
 * under us. */
WIDE static const uint32_t *copy_index(uint32_t *restrict copy, const uint32_t *restrict index, uint64_t count,
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

static int copy_indices(struct wf_transfer *transfer, const struct pages *pages, uint64_t *ret_local,
			uint64_t *ret_remote)
{
	size_t bytes = 0;
	uint32_t *copy = NULL;

	if ((pages->local_index || pages->remote_index) &&
	    (__builtin_mul_overflow(pages->count, (uint64_t)2 * sizeof(uint32_t), &bytes) ||
	     !(copy = wf_transfer_copy_room(transfer, bytes))))
		return -ENOMEM;
	transfer->local_index = copy_index(copy, pages->local_index, pages->count, ret_local);
	transfer->remote_index =
	    copy_index(copy + (copy ? pages->count : 0), pages->remote_index, pages->count, ret_remote);
	return 0;
}

static int set_pages(struct weft_engine *engine, struct wf_transfer *transfer, const struct pages *pages)
{
	struct wf_slice *slice = &transfer->one;
	uint64_t total = 0, local, remote;
	int error;

	transfer->slice = slice;
	transfer->slices = 1;
	error = wf_request_ends(engine, slice, pages->region, pages->remote, pages->access);
	if (!error && pages->count && !pages->page_bytes)
		error = -EINVAL;
	if (!error)
		error = copy_indices(transfer, pages, &local, &remote);
	if (!error && pages->count &&
	    (!pages_inside(local, pages->local_stride, pages->local, pages->page_bytes, slice->region->bytes) ||
	     !pages_inside(remote, pages->remote_stride, pages->remote_offset, pages->page_bytes,
			   slice->remote->bytes) ||
	     __builtin_mul_overflow(pages->count, pages->page_bytes, &total)))
		error = -ERANGE;
	if (!error)
		error = wf_request_peer(engine, slice->remote->peer, &transfer->peer);
	if (!error)
		error = wf_request_incarnation(transfer, slice);
	if (!error)
		error = wf_request_cards(transfer, slice);
	if (error)
		return error;
	transfer->paged = true;
	transfer->page_bytes = pages->page_bytes;
	transfer->local_stride = pages->local_stride;
	transfer->remote_stride = pages->remote_stride;
	slice->local = pages->local;
	slice->remote_offset = pages->remote_offset;
	wf_request_reach(transfer);
	error = wf_request_pages(transfer, pages->count);
	if (!error)
		wf_request_groups(transfer);
	return error;
}

static int submit_pages(struct weft_engine *engine, const struct pages *pages, const struct weft_op *op,
			weft_transfer *ret)
{
	struct wf_transfer *transfer;
	int error = wf_request_check(engine, op, true);

	if (error)
		return error;
	transfer = wf_transfer_take(engine, op);
	if (!transfer)
		return -EAGAIN;
	transfer->kind = pages->kind;
	wf_request_notify(transfer, op);
	return wf_request_post(transfer, wf_request_manifest(transfer, op, set_pages(engine, transfer, pages)), ret);
}

int wf_submit_write_pages(struct weft_engine *engine, const struct weft_write_pages *write, const struct weft_op *op,
			  weft_transfer *ret)
{
	struct pages pages = { .page_bytes = write->page_bytes,
			       .count = write->count,
			       .region = write->from,
			       .local_index = write->from_index,
			       .local_stride = write->from_stride ? write->from_stride : write->page_bytes,
			       .local = write->from_offset,
			       .remote = write->to,
			       .remote_index = write->to_index,
			       .remote_stride = write->to_stride ? write->to_stride : write->page_bytes,
			       .remote_offset = write->to_offset,
			       .access = WEFT_REMOTE_WRITE,
			       .kind = WF_WRITE };

	return submit_pages(engine, &pages, op, ret);
}

int wf_submit_read_pages(struct weft_engine *engine, const struct weft_read_pages *read, const struct weft_op *op,
			 weft_transfer *ret)
{
	struct pages pages = { .page_bytes = read->page_bytes,
			       .count = read->count,
			       .region = read->to,
			       .local_index = read->to_index,
			       .local_stride = read->to_stride ? read->to_stride : read->page_bytes,
			       .local = read->to_offset,
			       .remote = read->from,
			       .remote_index = read->from_index,
			       .remote_stride = read->from_stride ? read->from_stride : read->page_bytes,
			       .remote_offset = read->from_offset,
			       .access = WEFT_REMOTE_READ,
			       .kind = WF_READ };

	return suits_read(op) ? submit_pages(engine, &pages, op, ret) : -EINVAL;
}

/* ---- expectations ---- */

/* Whether the peer named is there: again when the expectation begins (expect.c). */
static int check_peer(struct weft_engine *engine, weft_peer handle, uint32_t *ret_life, void **ret_user)
{
	struct wf_peer *peer = wf_handle_get(&engine->peers, handle);
	bool down;

	if (!peer)
		return wf_request_no_such(engine, "peer", handle);
	*ret_life = atomic_load(&peer->lives_asked);
	*ret_user = atomic_load(&peer->user);
	down = wf_peer_is_down(peer);
	wf_handle_put(&engine->peers, handle);
	return down ? -EHOSTDOWN : 0;
}

int wf_submit_expect(struct weft_engine *engine, const struct wf_expectation *expectation, const struct weft_op *op,
		     weft_transfer *ret)
{
	struct wf_transfer *transfer;
	int error = wf_request_check(engine, op, false);
	uint32_t life = 0;
	void *user = NULL;

	if (!error && op && op->start_word) /* what lands before the call counts: there is nothing to start */
		error = -EINVAL;
	if (!error && expectation->peer)
		error = check_peer(engine, expectation->peer, &life, &user);
	if (error)
		return error;
	transfer = wf_transfer_take(engine, op);
	if (!transfer)
		return -EAGAIN;
	transfer->kind = WF_EXPECT;
	transfer->peer_handle = expectation->peer; /* without a reference: group 0 is its home, not the peer's */
	transfer->peer_life = life;
	transfer->peer_user = user; /* for a peer that is removed before the end */
	transfer->immediate = expectation->immediate;
	transfer->expected = expectation->count;
	return wf_request_post(transfer, 0, ret);
}

/* ---- cancelling ---- */

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
		return wf_cancel_children(engine, transfer, id);
	if (!atomic_compare_exchange_strong(&transfer->state, &running, running | ECANCELED))
		return -ENOENT;
	wf_engine_post(home, WF_NOTE_STOP, transfer, id);
	return 0;
}
