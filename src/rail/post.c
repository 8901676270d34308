/*
 * Posting: the last step of a write before the NIC has it. Fills libfabric's message structures on the stack and hands
 * them over; nothing here waits, retries or allocates. Runs on the worker that owns the rail.
 */
#include "base/hot.h"
#include "rail/host.h"

#include <errno.h>
#include <stdio.h>

_Static_assert(sizeof(((struct wf_wr *)0)->provider) >= sizeof(struct fi_context2), "room for the provider's context");

/* Every error but "try again" is recorded with its text; the caller decides what it affects. */
static int posted(struct wf_rail *rail, ssize_t result)
{
	if (result == 0)
		return 0;
	if (result == -FI_EAGAIN)
		return -EAGAIN;
	wf_rail_note_error(rail, (int)-result, fi_strerror((int)-result));
	return (int)result;
}

/* Fills several ranges of one operation into the caller's arrays. */
static void fill_ranges(const struct wf_rma *rma, const struct wf_rma_run *run, struct iovec *local,
			struct fi_rma_iov *remote, void **desc)
{
	for (int i = 0; i < rma->range_count; i++) {
		local[i].iov_base = rma->ranges[i].local;
		local[i].iov_len = remote[i].len = rma->ranges[i].bytes;
		remote[i].addr = rma->ranges[i].remote;
		remote[i].key = run->key;
		desc[i] = run->desc;
	}
}

static int rma_by_nic(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count,
		      bool more, int *ret_error)
{
	struct fid_ep *ep = rail->end[WF_OUTGOING].ep;
	struct iovec local[WF_RMA_RANGES];
	struct fi_rma_iov remote[WF_RMA_RANGES];
	void *desc[WF_RMA_RANGES] = { run->desc };
	struct fi_msg_rma message = {
		.msg_iov = local,
		.desc = desc,
		.iov_count = 1,
		.addr = run->target,
		.rma_iov = remote,
		.rma_iov_count = 1,
		.data = run->immediate,
	};
	ssize_t (*submit)(struct fid_ep *, const struct fi_msg_rma *, uint64_t) =
	    run->read ? ep->rma->readmsg : ep->rma->writemsg;
	uint64_t flags =
	    FI_COMPLETION | (run->read ? 0 : rail->rma_flags) | (run->has_immediate ? rail->immediate_flags : 0);
	bool each = run->alone || (run->has_immediate && rail->quirks->rings_immediates);
	int silent = each ? 0 : more ? count : count - 1;

	if (run->read && rail->unrung) { /* see rings_later(); the caller posts something that rings */
		*ret_error = -EAGAIN;
		return 0;
	}
	remote[0].key = run->key;
	for (int i = 0; i < count; i++) {
		bool ring = i >= silent;
		ssize_t result;

		if (__builtin_expect(rma[i].ranges != NULL, 0)) {
			fill_ranges(&rma[i], run, local, remote, desc);
			message.iov_count = message.rma_iov_count = (size_t)rma[i].range_count;
		} else {
			local[0].iov_base = rma[i].local;
			local[0].iov_len = remote[0].len = rma[i].bytes;
			remote[0].addr = rma[i].remote;
			message.iov_count = message.rma_iov_count = 1;
		}
		message.context = rma[i].wr->provider;
		result = submit(ep, &message, ring ? flags : flags | FI_MORE);
		/* Earlier posts with FI_MORE still wait for a doorbell: tries this one again as the last of the
		 * batch. */
		if (result == -FI_EAGAIN && !ring && rail->unrung) {
			result = submit(ep, &message, flags);
			ring = true;
		}
		if (result) {
			*ret_error = posted(rail, result);
			return i;
		}
		rail->unrung = !ring;
	}
	return count;
}

int wf_rail_rma(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count, bool more,
		int *ret_error)
{
	int posted_count;

	if (rail->local)
		return wf_host_rma(rail, run, rma, count, more, ret_error);
	if (__builtin_expect(run->cards, 0))
		return wf_staged_rma(rail, run, rma, count, ret_error);
	posted_count = rma_by_nic(rail, run, rma, count, more, ret_error);
	rail->end[WF_OUTGOING].posted += (uint32_t)posted_count;
	return posted_count;
}

int wf_rail_rma_by_nic(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count,
		       bool more, int *ret_error)
{
	return rma_by_nic(rail, run, rma, count, more, ret_error);
}

bool wf_rail_unrung(const struct wf_rail *rail)
{
	return rail->unrung;
}

static int sent(struct wf_rail *rail, enum wf_end end, ssize_t result)
{
	if (!result && end == WF_OUTGOING)
		rail->unrung = false;
	return posted(rail, result);
}

int wf_rail_send(struct wf_rail *rail, enum wf_end end, struct wf_wr *wr, const struct wf_outbound *out)
{
	int error;

	if (rail->local)
		return -EMSGSIZE; /* what is longer than can be injected is no frame */
	wr->kind = WF_WR_SEND;
	wr->failed = 0;
	error =
	    sent(rail, end, fi_send(rail->end[end].ep, out->buffer, out->bytes, out->desc, out->target, wr->provider));
	rail->end[end].posted += !error;
	return error;
}

WF_HOT int wf_rail_inject(struct wf_rail *rail, enum wf_end end, const struct wf_outbound *out)
{
	if (rail->local)
		return wf_host_send(rail, out);
	return sent(rail, end, fi_inject(rail->end[end].ep, out->buffer, out->bytes, out->target));
}

WF_HOT int wf_rail_receive(struct wf_rail *rail, struct wf_wr *wr, void *buffer, void *desc, size_t bytes)
{
	wr->kind = WF_WR_RECEIVE;
	wr->failed = 0;
	if (rail->local)
		return wf_local_receive(rail->local, wr, buffer, bytes);
	return posted(rail, fi_recv(rail->end[WF_PUBLISHED].ep, buffer, bytes, desc, FI_ADDR_UNSPEC, wr->provider));
}
