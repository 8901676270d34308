/*
 * Posting: the last step of a write before it is the NIC's. Fills libfabric's message structures on the stack and
 * hands them over; nothing here waits, retries or allocates. Runs on the worker that owns the rail.
 */
#include "rail/internal.h"

#include <errno.h>
#include <stdio.h>

_Static_assert(sizeof(((struct wf_wr *)0)->provider) >= sizeof(struct fi_context2), "room for the provider's context");

/* Everything but "try again" is worth a text; the caller decides what it ruins. */
static int posted(struct wf_rail *rail, ssize_t result)
{
	if (result == 0)
		return 0;
	if (result == -FI_EAGAIN)
		return -EAGAIN;
	wf_rail_note_error(rail, (int)-result, fi_strerror((int)-result));
	return (int)result;
}

int wf_rail_rma(struct wf_rail *rail, struct wf_wr *wr, const struct wf_rma *rma)
{
	struct iovec local = { .iov_base = rma->local, .iov_len = rma->bytes };
	struct fi_rma_iov remote = { .addr = rma->remote, .len = rma->bytes, .key = rma->key };
	void *desc = rma->desc;
	struct fi_msg_rma message = {
		.msg_iov = &local,
		.desc = &desc,
		.iov_count = 1,
		.addr = rma->target,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.context = wr,
		.data = rma->immediate,
	};
	uint64_t flags = FI_COMPLETION | (rma->more ? FI_MORE : 0);

	if (wr->kind == WF_WR_READ)
		return posted(rail, fi_readmsg(rail->ep, &message, flags));
	flags |= rail->rma_flags;
	if (rma->has_immediate)
		flags |= FI_REMOTE_CQ_DATA;
	return posted(rail, fi_writemsg(rail->ep, &message, flags));
}

int wf_rail_send(struct wf_rail *rail, struct wf_wr *wr, const void *buffer, void *desc, size_t bytes, uint64_t target)
{
	wr->kind = WF_WR_SEND;
	return posted(rail, fi_send(rail->ep, buffer, bytes, desc, target, wr));
}

int wf_rail_receive(struct wf_rail *rail, struct wf_wr *wr, void *buffer, void *desc, size_t bytes)
{
	wr->kind = WF_WR_RECEIVE;
	return posted(rail, fi_recv(rail->ep, buffer, bytes, desc, FI_ADDR_UNSPEC, wr));
}
