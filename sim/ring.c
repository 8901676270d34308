/*
 * The two rings of an endpoint: posted receives (one owner posts, many senders take) and arrivals (many senders push,
 * the owner reads). Lock-free, so a sender that dies cannot hold anyone up; called while delivering and while reading a
 * CQ.
 */
#include "wire.h"

#include <string.h>

static size_t align64(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

size_t wire_endpoint_bytes(uint32_t buffers, uint32_t arrivals)
{
	return align64(sizeof(struct wire_endpoint)) + align64(buffers * sizeof(struct wire_buffer)) +
	       align64(arrivals * sizeof(struct wire_arrival));
}

void wire_endpoint_layout(struct wire_endpoint *ep, uint32_t buffers, uint32_t arrivals)
{
	ep->buffers = buffers;
	ep->arrivals = arrivals;
	ep->buffers_at = align64(sizeof *ep);
	ep->arrivals_at = ep->buffers_at + align64(buffers * sizeof(struct wire_buffer));
}

bool wire_post_buffer(struct wire_endpoint *ep, const struct iovec *iov, size_t count, void *context, uint32_t depth)
{
	uint64_t tail = atomic_load_explicit(&ep->buffer_tail, memory_order_relaxed);
	/* Acquire: the sender that moved the head past this slot has read it. */
	uint64_t head = atomic_load_explicit(&ep->buffer_head, memory_order_acquire);
	struct wire_buffer *buffer = &wire_buffers(ep)[tail & (ep->buffers - 1)];

	if (tail - head >= depth)
		return false;
	atomic_store_explicit(&buffer->context, (uint64_t)(uintptr_t)context, memory_order_relaxed);
	atomic_store_explicit(&buffer->count, count, memory_order_relaxed);
	for (size_t i = 0; i < count; i++) {
		atomic_store_explicit(&buffer->iov[i].base, (uint64_t)(uintptr_t)iov[i].iov_base, memory_order_relaxed);
		atomic_store_explicit(&buffer->iov[i].bytes, iov[i].iov_len, memory_order_relaxed);
	}
	/* Release: pairs with the acquire in wire_take_buffer. */
	atomic_store_explicit(&ep->buffer_tail, tail + 1, memory_order_release);
	return true;
}

bool wire_take_buffer(struct wire_endpoint *ep, struct wire_taken *ret_taken)
{
	uint64_t head = atomic_load_explicit(&ep->buffer_head, memory_order_acquire);

	for (;;) {
		struct wire_buffer *buffer = &wire_buffers(ep)[head & (ep->buffers - 1)];

		if (head == atomic_load_explicit(&ep->buffer_tail, memory_order_acquire))
			return false;
		/* Read first, claim after: the slot is written again only when the head has passed it. */
		ret_taken->context = atomic_load_explicit(&buffer->context, memory_order_relaxed);
		ret_taken->count = (size_t)atomic_load_explicit(&buffer->count, memory_order_relaxed) % (WIRE_IOV + 1);
		for (size_t i = 0; i < ret_taken->count; i++) {
			uint64_t base = atomic_load_explicit(&buffer->iov[i].base, memory_order_relaxed);

			ret_taken->iov[i].iov_base = (void *)(uintptr_t)base;
			ret_taken->iov[i].iov_len =
			    (size_t)atomic_load_explicit(&buffer->iov[i].bytes, memory_order_relaxed);
		}
		if (atomic_compare_exchange_weak_explicit(&ep->buffer_head, &head, head + 1, memory_order_acq_rel,
							  memory_order_acquire))
			return true;
	}
}

bool wire_push_arrival(struct wire_endpoint *ep, const struct wire_arrival *arrival)
{
	uint64_t tail = atomic_load_explicit(&ep->arrival_tail, memory_order_relaxed);
	struct wire_arrival *slot;

	do {
		/* Acquire: the owner has finished with the slots below its head. */
		uint64_t head = atomic_load_explicit(&ep->arrival_head, memory_order_acquire);

		/* Signed: a stale tail may lie behind the head; the exchange below then fails and reloads it. */
		if ((int64_t)(tail - head) >= (int64_t)atomic_load_explicit(&ep->arrival_limit, memory_order_relaxed)) {
			atomic_fetch_add_explicit(&ep->lost, 1, memory_order_relaxed);
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&ep->arrival_tail, &tail, tail + 1, memory_order_acq_rel,
							memory_order_relaxed));
	slot = &wire_arrivals(ep)[tail & (ep->arrivals - 1)];
	slot->context = arrival->context;
	slot->bytes = arrival->bytes;
	slot->extra = arrival->extra;
	slot->data = arrival->data;
	slot->visible_at = arrival->visible_at;
	slot->event = arrival->event;
	slot->has_data = arrival->has_data;
	slot->from = arrival->from;
	atomic_store_explicit(&slot->sequence, tail + 1, memory_order_release);
	return true;
}

void wire_release_arrival(struct wire_endpoint *ep, uint64_t place)
{
	/* Release: pairs with the acquire in wire_push_arrival. */
	atomic_store_explicit(&ep->arrival_head, place + 1, memory_order_release);
}

bool wire_arrival_claimed(struct wire_endpoint *ep)
{
	return atomic_load_explicit(&ep->arrival_tail, memory_order_relaxed) !=
	       atomic_load_explicit(&ep->arrival_head, memory_order_relaxed);
}
