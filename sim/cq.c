/*
 * Completion queues. Reading one drives its endpoints' NICs: requests that are due are delivered and their completions
 * written straight into the caller's array. Runs on the application's thread; the hot path.
 */
#include "prov.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *efa_text(int status)
{
	switch (status) {
	case EFA_OK:
		return "success";
	case EFA_FLUSHED:
		return "flushed during queue pair destroy";
	case EFA_BAD_LKEY:
		return "invalid local key";
	case EFA_BAD_LENGTH:
		return "local length error";
	case EFA_BAD_ADDRESS:
		return "invalid remote address or key";
	case EFA_BAD_QPN:
		return "destination queue pair number does not exist";
	case EFA_RNR:
		return "receiver not ready: no receive posted";
	case EFA_REMOTE_LENGTH:
		return "receiver buffer too small";
	case EFA_UNRESPONSIVE:
		return "unresponsive receiver";
	case EFA_UNKNOWN_PEER:
		return "unknown peer";
	case EFA_UNREACHABLE:
		return "no route to the receiver";
	case 4096:
		return "internal error (injected)";
	default:
		return "error";
	}
}

void cq_push(struct completion_queue *cq, const struct completion *completion)
{
	if (cq->ready_count == cq->size) { /* no overrun protection */
		cq->lost++;
		return;
	}
	if (cq->ready_count == cq->ready_capacity) {
		size_t capacity = cq->ready_capacity ? cq->ready_capacity * 2 : 64;
		struct completion *grown = malloc(capacity * sizeof *grown);

		if (!grown)
			abort();
		for (size_t i = 0; i < cq->ready_count; i++)
			grown[i] = cq->ready[(cq->ready_head + i) % cq->ready_capacity];
		free(cq->ready);
		cq->ready = grown;
		cq->ready_head = 0;
		cq->ready_capacity = capacity;
	}
	cq->ready[(cq->ready_head + cq->ready_count++) % cq->ready_capacity] = *completion;
}

void cq_push_error(struct completion_queue *cq, const struct fi_cq_err_entry *error)
{
	if (cq->error_head + cq->error_count == cq->error_capacity) {
		size_t capacity = cq->error_capacity * 2 + 16;
		struct fi_cq_err_entry *grown = malloc(capacity * sizeof *grown);

		if (!grown)
			abort();
		if (cq->error_count)
			memcpy(grown, cq->errors + cq->error_head, cq->error_count * sizeof *grown);
		free(cq->errors);
		cq->errors = grown;
		cq->error_head = 0;
		cq->error_capacity = capacity;
	}
	cq->errors[cq->error_head + cq->error_count++] = *error;
}

static inline void *put(const struct completion_queue *cq, void *at, const struct completion *c)
{
	struct fi_cq_tagged_entry *entry = at; /* the shorter formats are prefixes of this one */

	entry->op_context = c->context;
	if (cq->format >= FI_CQ_FORMAT_MSG) {
		entry->flags = c->flags;
		entry->len = c->bytes;
	}
	if (cq->format >= FI_CQ_FORMAT_DATA) {
		entry->buf = NULL;
		entry->data = c->data;
	}
	if (cq->format == FI_CQ_FORMAT_TAGGED)
		entry->tag = 0;
	return (char *)at + cq->entry_bytes;
}

struct reading {
	struct completion_queue *cq;
	char *at;
	fi_addr_t *from;
	size_t count, done;
	uint64_t now;
};

static inline void give(struct reading *r, const struct completion *c)
{
	r->at = put(r->cq, r->at, c);
	if (r->from)
		r->from[r->done] = c->from;
	r->done++;
}

/* More requests are in flight than the queue holds: those that would have come on top of a full queue are lost. */
static void lose_overrun(struct endpoint *ep, uint64_t now)
{
	for (uint32_t at = ep->head + (uint32_t)ep->tx_cq->size; at != ep->rung; at++) {
		struct request *request = &ep->requests[ep->order[at & ep->mask]];

		if (request->due > now)
			break;
		if (request->completes == 1) {
			request->completes = 2;
			ep->tx_cq->lost++;
		}
	}
}

/* Delivers what is due, in order. With `r` completions go to the reader, else to the transmit queue's backlog. */
static inline void progress_tx(struct endpoint *ep, struct reading *r, uint64_t now)
{
	struct guard guard = { 0 };
	size_t budget = 64;
	int status;

	if (UNLIKELY(ep->rung - ep->head > ep->tx_cq->size))
		lose_overrun(ep, now);
	while (ep->head != ep->rung && (r ? r->done < r->count : budget-- > 0)) {
		uint32_t index = ep->order[ep->head & ep->mask];
		struct request *request = &ep->requests[index];
		struct completion c;

		if (request->due > now)
			break;
		/* Posted long ago, so no longer in the cache. Entries past the newest are stale, which does no harm. */
		__builtin_prefetch(&ep->requests[ep->order[(ep->head + 4) & ep->mask]]);
		ep->head++;
		switch (deliver(ep, request, now, &guard, &status)) {
		case OUT_DONE:
			if (UNLIKELY(!r)) {
				ep_finish(ep, index);
				break;
			}
			c = (struct completion){ .context = request->context,
						 .flags = request->flags,
						 .from = FI_ADDR_NOTAVAIL };
			if (LIKELY(request->completes == 1))
				give(r, &c);
			ep_free_request(ep, index);
			break;
		case OUT_WAIT:
			slow_add(ep, index);
			break;
		case OUT_ERROR:
			ep_finish_error(ep, index, status);
			guard_release(&guard);
			return; /* the caller learns of it before later completions */
		case OUT_SILENT:
			break;
		}
	}
	guard_release(&guard);
}

/* Returns true if an error arrived, which ends the read. */
static bool receive_one(struct endpoint *ep, struct reading *r, const struct wire_arrival *arrival)
{
	struct completion c = { .context = (void *)(uintptr_t)arrival->context,
				.bytes = arrival->bytes,
				.data = arrival->has_data ? arrival->data : 0 };
	struct fi_cq_err_entry error;

	c.flags = arrival->event == WIRE_IMMEDIATE ? FI_RMA | FI_REMOTE_WRITE : FI_MSG | FI_RECV;
	if (arrival->has_data)
		c.flags |= FI_REMOTE_CQ_DATA;
	if (arrival->event == WIRE_TRUNCATED) {
		error = (struct fi_cq_err_entry){ .op_context = c.context,
						  .flags = c.flags,
						  .len = c.bytes,
						  .data = c.data,
						  .olen = arrival->extra,
						  .err = FI_ETRUNC,
						  .prov_errno = EFA_REMOTE_LENGTH };
		cq_push_error(r->cq, &error);
		return true;
	}
	c.from = r->from ? av_reverse(ep->av, &arrival->from) : FI_ADDR_NOTAVAIL;
	give(r, &c);
	return false;
}

static inline struct wire_arrival *next_arrival(struct endpoint *ep)
{
	struct wire_arrival *slot = &ep->arrivals[ep->arrival_next & ep->arrival_mask];

	/* Acquire: pairs with the release in wire_push_arrival. */
	return atomic_load_explicit(&slot->sequence, memory_order_acquire) == ep->arrival_next + 1 ? slot : NULL;
}

static inline void release_arrival(struct endpoint *ep)
{
	wire_release_arrival(ep->wire, ep->arrival_next++);
}

/*
 * A sender fills a claimed arrival within nanoseconds, unless it was killed at that moment. Others must not wait for it
 * for ever: after a time that no living sender needs, it is skipped.
 */
static void pass_over_dead(struct endpoint *ep)
{
	uint64_t now = sim_ticks();

	if (!ep->claimed_since) {
		ep->claimed_since = now;
	} else if (now - ep->claimed_since > sim_ticks_of_ns(300000000)) {
		ep->claimed_since = 0;
		release_arrival(ep);
	}
}

static inline void progress_rx(struct endpoint *ep, struct reading *r, size_t limit)
{
	struct wire_arrival *arrival;

	while (r->done < limit && (arrival = next_arrival(ep))) {
		bool stop;

		if (arrival->visible_at) { /* handed over when posted, still on the wire */
			if (!r->now)
				r->now = sim_ticks();
			if (arrival->visible_at > r->now)
				return;
		}
		stop = receive_one(ep, r, arrival);

		release_arrival(ep);
		ep->claimed_since = 0;
		if (stop)
			return;
	}
	if (UNLIKELY(r->done < limit && !(++ep->idle_reads % 64) && wire_arrival_claimed(ep->wire)))
		pass_over_dead(ep);
}

static void drain_ready(struct reading *r)
{
	struct completion_queue *cq = r->cq;

	while (r->done < r->count && cq->ready_count) {
		give(r, &cq->ready[cq->ready_head]);
		cq->ready_head = (cq->ready_head + 1) % cq->ready_capacity;
		cq->ready_count--;
	}
}

static inline uint64_t read_clock(const struct completion_queue *cq)
{
	if (!cq->dom->config->spec.timeless)
		return sim_ticks();
	for (uint32_t i = 0; i < cq->endpoint_count; i++)
		if (UNLIKELY(cq->endpoints[i]->slow_count))
			return sim_ticks();
	return 0;
}

static bool idle(const struct endpoint *ep)
{
	return ep->head == ep->rung && !ep->slow_count;
}

static inline void progress(struct completion_queue *cq, struct endpoint *ep, struct reading *r)
{
	struct domain *dom = cq->dom;

	/* Not ringing is a misuse; being refused the post that would have rung is not. The requests still wait for a
	 * doorbell. */
	if (UNLIKELY(dom->strict) && ep->rung != ep->tail && !ep->refused)
		strict_fail("CQ of NIC %d read while %u requests posted with FI_MORE wait for a doorbell", dom->nic,
			    ep->tail - ep->rung);
	if (UNLIKELY(dom->counts_polls))
		atomic_fetch_add_explicit(&ep->wire->polls, 1, memory_order_relaxed);
	/* Arrivals get half of the array first: a flood of either kind must not starve the other. */
	if (ep->rx_cq == cq)
		progress_rx(ep, r, r->done + (r->count - r->done + 1) / 2);
	if (!idle(ep)) {
		if (!r->now)
			r->now = read_clock(cq);
		if (UNLIKELY(ep->slow_count)) {
			slow_progress(ep, r->now);
			if (ep->tx_cq == cq)
				drain_ready(r);
		}
		if (LIKELY(!cq->error_count) && ep->tx_cq)
			progress_tx(ep, ep->tx_cq == cq && r->count ? r : NULL, r->now);
	}
	if (ep->rx_cq == cq && r->done < r->count && !cq->error_count)
		progress_rx(ep, r, r->count);
}

static inline ssize_t cq_read_inside(struct completion_queue *cq, void *buf, size_t count, fi_addr_t *from)
{
	struct reading r = { .cq = cq, .at = buf, .from = from, .count = count };

	if (UNLIKELY(cq->error_count))
		return -FI_EAVAIL;
	if (UNLIKELY(cq->ready_count))
		drain_ready(&r);
	for (uint32_t i = 0; i < cq->endpoint_count && !cq->error_count; i++) {
		/* A read with room for nothing also makes progress: completions wait for the next read. */
		progress(cq, cq->endpoints[i], &r);
		if (r.done == count && count)
			break;
	}
	if (r.done)
		return (ssize_t)r.done;
	return cq->error_count ? -FI_EAVAIL : -FI_EAGAIN;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *from)
{
	struct completion_queue *cq = container_of(fid, struct completion_queue, fid);
	ssize_t n;

	dom_enter(cq->dom, "fi_cq_read");
	if (UNLIKELY(cq->dom->poll_ticks))
		sim_spin(cq->dom->poll_ticks);
	n = cq_read_inside(cq, buf, count, from);
	dom_leave(cq->dom);
	return n;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return cq_readfrom(fid, buf, count, NULL);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
	struct completion_queue *cq = container_of(fid, struct completion_queue, fid);
	ssize_t rc = -FI_EAGAIN;

	dom_enter(cq->dom, "fi_cq_readerr");
	if (cq->error_count) {
		const struct fi_cq_err_entry *error = &cq->errors[cq->error_head];

		buf->op_context = error->op_context;
		buf->flags = error->flags;
		buf->len = error->len;
		buf->buf = NULL;
		buf->data = error->data;
		buf->tag = 0;
		buf->olen = error->olen;
		buf->err = error->err;
		buf->prov_errno = error->prov_errno;
		buf->err_data_size = 0; /* on entry it is the caller's room for error data: there is none to return */
		cq->error_head++;
		if (!--cq->error_count)
			cq->error_head = 0;
		rc = 1;
	}
	dom_leave(cq->dom);
	return rc;
}

static ssize_t cq_sread(struct fid_cq *cq, void *buf, size_t count, const void *cond, int timeout)
{
	return -FI_ENOSYS;
}

static ssize_t cq_sreadfrom(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *from, const void *cond, int timeout)
{
	return -FI_ENOSYS;
}

static int cq_signal(struct fid_cq *cq)
{
	return -FI_ENOSYS;
}

static const char *cq_strerror(struct fid_cq *cq, int prov_errno, const void *err_data, char *buf, size_t len)
{
	const char *text = efa_text(prov_errno);

	if (buf && len)
		snprintf(buf, len, "%s", text);
	return text;
}

static int cq_close(struct fid *fid)
{
	struct completion_queue *cq = container_of(fid, struct completion_queue, fid.fid);

	if (atomic_load(&cq->refs))
		return -FI_EBUSY;
	atomic_fetch_sub(&cq->dom->refs, 1);
	free(cq->endpoints);
	free(cq->ready);
	free(cq->errors);
	free(cq);
	return 0;
}

static struct fi_ops cq_fid_ops = {
	.size = sizeof cq_fid_ops,
	.close = cq_close,
	.bind = stub_bind,
	.control = stub_control,
	.ops_open = stub_ops_open,
};

static struct fi_ops_cq cq_ops = {
	.size = sizeof cq_ops,
	.read = cq_read,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_signal,
	.strerror = cq_strerror,
};

int cq_add_endpoint(struct completion_queue *cq, struct endpoint *ep)
{
	struct endpoint **grown = realloc(cq->endpoints, (cq->endpoint_count + 1) * sizeof *grown);

	if (!grown)
		return -FI_ENOMEM;
	cq->endpoints = grown;
	cq->endpoints[cq->endpoint_count++] = ep;
	return 0;
}

void cq_remove_endpoint(struct completion_queue *cq, struct endpoint *ep)
{
	for (uint32_t i = 0; i < cq->endpoint_count; i++)
		if (cq->endpoints[i] == ep)
			cq->endpoints[i--] = cq->endpoints[--cq->endpoint_count];
}

int cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **ret_cq, void *context)
{
	static const size_t bytes[] = {
		[FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
		[FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
		[FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
		[FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
	};
	struct domain *dom = container_of(fid, struct domain, fid);
	const struct sim_spec *spec = &dom->config->spec;
	struct completion_queue *cq;

	if (attr->wait_obj != FI_WAIT_NONE)
		return -FI_ENOSYS; /* as EFA without a wait object */
	if (attr->format > FI_CQ_FORMAT_TAGGED)
		return -FI_ENOSYS;
	cq = calloc(1, sizeof *cq);
	if (!cq)
		return -FI_ENOMEM;
	if (attr->format == FI_CQ_FORMAT_UNSPEC)
		attr->format = FI_CQ_FORMAT_TAGGED;
	cq->dom = dom;
	cq->format = attr->format;
	cq->entry_bytes = bytes[attr->format];
	cq->size = attr->size ? attr->size : spec->tx + spec->rx;
	/* EFA: never smaller than its two queues together. Room for more must be asked for on top of that. */
	if (spec->personality != SIM_VERBS && cq->size < dom->queues)
		cq->size = dom->queues;
	if (spec->cq && cq->size > spec->cq)
		cq->size = spec->cq;
	attr->size = cq->size;
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &cq_fid_ops;
	cq->fid.ops = &cq_ops;
	atomic_fetch_add(&dom->refs, 1);
	*ret_cq = &cq->fid;
	return 0;
}
