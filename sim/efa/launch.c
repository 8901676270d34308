/*
 * Time: when each work request has been carried, by the model that simfab uses (../launch.c). A card's egress and each
 * target's ingress keep a virtual time; a request is due a latency after both have carried it. SRD keeps no order: a new
 * request may take the due time of one of the last few, which then comes later. All with the card's lock; the posting
 * thread, a polling one or the ticker.
 */
#include "card.h"

#define FIXED_SHIFT 20 /* of ticks per byte */

static uint64_t random_of(struct card *card)
{
	uint64_t x = card->random; /* xorshift64 */

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return card->random = x;
}

/* ---- requests by due time: a binary heap in which each knows its place ---- */

static bool before(const struct request *a, const struct request *b)
{
	return a->due < b->due || (a->due == b->due && a->number < b->number);
}

static void put(struct card *card, uint32_t place, struct request *request)
{
	card->heap[place] = request;
	request->place = place;
}

static void sift_up(struct card *card, uint32_t place)
{
	struct request *request = card->heap[place];

	while (place && before(request, card->heap[(place - 1) / 2])) {
		put(card, place, card->heap[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	put(card, place, request);
}

static void sift_down(struct card *card, uint32_t place)
{
	struct request *request = card->heap[place];

	for (;;) {
		uint32_t child = 2 * place + 1;

		if (child + 1 < card->heap_count && before(card->heap[child + 1], card->heap[child]))
			child++;
		if (child >= card->heap_count || !before(card->heap[child], request))
			break;
		put(card, place, card->heap[child]);
		place = child;
	}
	put(card, place, request);
}

static void forget_recent(struct card *card, const struct request *request)
{
	for (size_t i = 0; i < sizeof card->recent / sizeof card->recent[0]; i++)
		if (card->recent[i] == request)
			card->recent[i] = NULL;
}

static void take_out(struct card *card, uint32_t place)
{
	struct request *gone = card->heap[place], *last = card->heap[--card->heap_count];

	atomic_fetch_sub(&card->busy, 1);
	if (model.spec.reorder)
		forget_recent(card, gone);
	if (last == gone)
		return;
	put(card, place, last);
	sift_up(card, place);
	sift_down(card, last->place);
}

void heap_drop(struct card *card, struct queue_pair *qp)
{
	for (uint32_t i = card->heap_count; i-- > 0;)
		if (i < card->heap_count && card->heap[i]->qp == qp) {
			take_out(card, i);
			i = card->heap_count; /* places have changed */
		}
}

/* ---- the doorbell ---- */

static uint64_t cost_of(const struct card *card, uint64_t ticks_per_byte, uint64_t bytes)
{
	uint64_t cost = (bytes * ticks_per_byte + (1u << (FIXED_SHIFT - 1))) >> FIXED_SHIFT;

	return cost > card->op_ticks ? cost : card->op_ticks;
}

/* Takes `cost` ticks of someone's ingress, from `from` on; returns where they end. */
static uint64_t claim(_Atomic uint64_t *time, uint64_t from, uint64_t cost)
{
	uint64_t old = atomic_load_explicit(time, memory_order_relaxed), start;

	do
		start = old > from ? old : from;
	while (!atomic_compare_exchange_weak_explicit(time, &old, start + cost, memory_order_relaxed,
						      memory_order_relaxed));
	return start + cost;
}

static uint64_t carried_at(struct card *card, const struct request *request, const struct target *target, uint64_t now)
{
	uint64_t slow = fault_active() ? fault_slowness(card, target) : 1;
	uint64_t start = card->virtual_time > now ? card->virtual_time : now;
	uint64_t here = cost_of(card, card->ticks_per_byte, request->bytes) * slow;
	uint64_t rate = target ? atomic_load_explicit(&target->nic->ticks_per_byte, memory_order_relaxed) : 0;
	uint64_t there = cost_of(card, rate, request->bytes) * slow, end, other;

	if (request->opcode == IBV_WR_RDMA_READ) {
		end = claim(&card->wire->receive_time, now, here);
		other = target ? claim(&target->nic->respond_time, now, there) : end;
	} else {
		card->virtual_time = end = start + here;
		other = target ? claim(&target->nic->receive_time, start, there) : end;
	}
	return end > other ? end : other;
}

/* SRD's packets take many paths: one of the last few may come later in our place. */
static void reorder(struct card *card, struct request *request)
{
	uint64_t window = model.spec.reorder;
	struct request *other, **mine = &card->recent[request->number % 64];
	uint64_t due;

	*mine = request;
	other = card->recent[(request->number - (random_of(card) >> 32) % (window + 1)) % 64];
	if (!other || other == request || other->due >= request->due)
		return;
	due = other->due;
	other->due = request->due;
	request->due = due;
	sift_down(card, other->place);
}

void launch(struct card *card, struct request *request, uint64_t now)
{
	struct target *target = request->status ? NULL : target_find(card, &request->gid, request->qpn);

	request->number = card->posted++;
	if (fault_active())
		fault_mark(card, request, target);
	if (model.spec.timeless) {
		request->due = now;
	} else {
		request->due = carried_at(card, request, target, now) + card->latency_ticks;
		if (card->jitter_ticks)
			request->due += random_of(card) % (card->jitter_ticks + 1);
	}
	if (request->fault == SIM_FAULT_DELAY)
		request->due += sim_ticks_of_ns(request->fault_argument);
	card->heap[card->heap_count] = request;
	request->place = card->heap_count++;
	atomic_fetch_add(&card->busy, 1);
	if (model.spec.reorder && !request->fault)
		reorder(card, request);
	sift_up(card, request->place);
}

/* ---- what is due ---- */

/* The place in the send queue is free again once the completion has been read, as on a card: cq.c. */
static void finish(struct request *request, int status)
{
	struct queue_pair *qp = request->qp;
	struct completion done = { .wr_id = request->wr_id,
				   .qp = qp,
				   .qpn = qp->base.qp_base.qp_num,
				   .status = (uint32_t)status,
				   .of_send = true,
				   .slot = (uint32_t)(request - qp->requests),
				   .opcode = IBV_WC_SEND };

#ifdef HAVE_EFADV_UNSOLICITED
	if (request->opcode == IBV_WR_RDMA_WRITE || request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		done.opcode = IBV_WC_RDMA_WRITE; /* older drivers call everything a send, reads too; newer ones reads */
#endif
	if (request->fault != SIM_FAULT_OVERRUN)
		cq_push(qp->send_cq, &done);
}

void card_progress(struct card *card, uint64_t now)
{
	while (card->heap_count && card->heap[0]->due <= now) {
		struct request *request = card->heap[0];
		int status = 0;

		switch (deliver(card, request, now, &status)) {
		case OUT_DONE:
		case OUT_ERROR:
			take_out(card, 0);
			finish(request, status);
			break;
		case OUT_WAIT:
			sift_down(card, 0);
			break;
		case OUT_SILENT: /* its place in the queue is gone until the queue pair is destroyed */
			take_out(card, 0);
			break;
		}
	}
}
