/*
 * Moves the bytes of a work request that is due, and reports it at the target. The sender's side does all of it (by
 * process_vm_writev between processes), so nothing of the target runs: as with a card, its program may be asleep or
 * stopped. With the sender's card's lock.
 */
#include "card.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define RNR_FOREVER 7u

static size_t total_of(const struct iovec *iov, size_t count)
{
	size_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

static void copy_here(const struct iovec *to, size_t to_count, const struct iovec *from, size_t from_count)
{
	size_t i = 0, j = 0, at_to = 0, at_from = 0;

	while (i < to_count && j < from_count) {
		size_t n = to[i].iov_len - at_to, left = from[j].iov_len - at_from;

		if (left < n)
			n = left;
		if (n)
			memmove((char *)to[i].iov_base + at_to, (char *)from[j].iov_base + at_from, n);
		at_to += n;
		at_from += n;
		if (at_to == to[i].iov_len) {
			i++;
			at_to = 0;
		}
		if (at_from == from[j].iov_len) {
			j++;
			at_from = 0;
		}
	}
}

struct path {
	const struct iovec *mine, *theirs;
	size_t mine_count, theirs_count, bytes;
};

/* 0 or a status. A process that is gone has no queue pairs: its kernel has destroyed them. */
static int move(const struct target *target, const struct path *path, bool outward)
{
	ssize_t n;

	if (!path->bytes)
		return 0;
	if (wire_is_local(target->ep_map)) {
		if (outward)
			copy_here(path->theirs, path->theirs_count, path->mine, path->mine_count);
		else
			copy_here(path->mine, path->mine_count, path->theirs, path->theirs_count);
		return 0;
	}
	if (outward)
		n = process_vm_writev(target->ep->head.pid, path->mine, path->mine_count, path->theirs,
				      path->theirs_count, 0);
	else
		n = process_vm_readv(target->ep->head.pid, path->mine, path->mine_count, path->theirs,
				     path->theirs_count, 0);
	if (n == (ssize_t)path->bytes)
		return 0;
	if (n < 0 && errno == ESRCH)
		return CARD_BAD_QPN;
	if (n < 0 && errno != EFAULT)
		card_say("cannot reach the memory of process %d: %s", (int)target->ep->head.pid, strerror(errno));
	return CARD_BAD_ADDRESS;
}

/* What the request sends from or reads into. 0 or a status. */
static int own_side(struct card *card, struct request *request, struct iovec iov[CARD_SQ_SGE], size_t *ret_count)
{
	uint32_t access = request->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
	uint16_t pd = QP_PD(request->qp->wire->address.reserved);

	if (request->inlined) {
		iov[0] = (struct iovec){ request->data, request->bytes };
		*ret_count = 1;
		return 0;
	}
	for (size_t i = 0; i < request->count; i++) {
		const struct ibv_sge *sge = &request->sge[i];

		if (sge->length && !region_find(card->wire, sge->lkey, sge->addr, sge->length, access, pd))
			return CARD_BAD_LKEY;
		iov[i] = (struct iovec){ (void *)(uintptr_t)sge->addr, sge->length };
	}
	*ret_count = request->count;
	return 0;
}

/* No receive is posted. A queue pair tries as often as it was told to, then the program is told. */
static enum outcome back_off(struct request *request, uint64_t now, int *ret_status)
{
	uint32_t tries = request->qp->rnr_retry;

	if (request->qp->datagrams)
		return OUT_DONE;
	if (tries != RNR_FOREVER && request->tries >= tries) {
		*ret_status = CARD_RNR;
		return OUT_ERROR;
	}
	request->due = now + 1 + (sim_ticks_of_ns(model.spec.rnr_ns) << (request->tries < 10 ? request->tries : 10));
	request->tries++;
	return OUT_WAIT;
}

static struct wire_arrival arrival_of(const struct request *request, bool immediate)
{
	struct wire_arrival arrival = { .event = immediate ? WIRE_IMMEDIATE : WIRE_MESSAGE,
					.bytes = request->bytes,
					.data = request->imm,
					.has_data = request->opcode == IBV_WR_SEND_WITH_IMM ||
						    request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM,
					.from = request->qp->wire->address };

	return arrival;
}

/* Leaves out the first bytes of a buffer: a datagram's payload starts behind its header. */
static size_t skip(struct iovec *iov, size_t count, size_t bytes)
{
	size_t left = bytes;

	for (size_t i = 0; i < count && left; i++) {
		size_t n = iov[i].iov_len < left ? iov[i].iov_len : left;

		iov[i].iov_base = (char *)iov[i].iov_base + n;
		iov[i].iov_len -= n;
		left -= n;
	}
	return bytes - left;
}

static enum outcome take_message(struct request *request, struct target *target, const struct iovec *mine, size_t count,
				 int *ret_status)
{
	struct wire_arrival arrival = arrival_of(request, false);
	struct wire_taken buffer;
	struct path path = { .mine = mine, .mine_count = count, .bytes = request->bytes };
	size_t header = 0;

	if (!wire_take_buffer(target->ep, &buffer))
		return OUT_WAIT;
	if (request->qp->datagrams)
		header = skip(buffer.iov, buffer.count, CARD_GRH);
	arrival.context = buffer.context;
	arrival.bytes = request->bytes + header;
	path.theirs = buffer.iov;
	path.theirs_count = buffer.count;
	if (request->bytes > total_of(buffer.iov, buffer.count)) {
		arrival.event = WIRE_TRUNCATED;
		*ret_status = CARD_REMOTE_LENGTH;
	} else {
		*ret_status = move(target, &path, true);
	}
	if (!*ret_status || arrival.event == WIRE_TRUNCATED)
		wire_push_arrival(target->ep, &arrival);
	return *ret_status && !request->qp->datagrams ? OUT_ERROR : OUT_DONE;
}

/* A write's immediate takes a receive with it, unless the target's queue pair takes them unsolicited. */
static enum outcome take_immediate(struct request *request, struct target *target)
{
	struct wire_arrival arrival = arrival_of(request, true);
	struct wire_taken buffer;

	arrival.extra = QP_UNSOLICITED(target->ep->address.reserved);
	if (!arrival.extra) {
		if (!wire_take_buffer(target->ep, &buffer))
			return OUT_WAIT;
		arrival.context = buffer.context;
	}
	wire_push_arrival(target->ep, &arrival);
	if (request->fault == SIM_FAULT_DUP && arrival.extra)
		wire_push_arrival(target->ep, &arrival);
	return OUT_DONE;
}

static int move_rdma(struct request *request, struct target *target, const struct iovec *mine, size_t count)
{
	bool outward = request->opcode != IBV_WR_RDMA_READ;
	struct iovec theirs = { (void *)(uintptr_t)request->remote, request->bytes };
	struct path path = { mine, &theirs, count, 1, request->bytes };
	uint32_t access = outward ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct wire_mr *mr = region_find(target->nic, request->key, request->remote, request->bytes, access,
					 QP_PD(target->ep->address.reserved));
	int status = CARD_BAD_ADDRESS;

	if (!mr) {
		if (request->key && request->key >> 26 != target->nic->nic)
			strict_fail("key %#x belongs to NIC %u of the peer, used towards its NIC %u", request->key,
				    request->key >> 26, target->nic->nic);
		return status;
	}
	/* Sequentially consistent, then look again: pairs with ibv_dereg_mr. */
	atomic_fetch_add(&mr->users, 1);
	if (atomic_load(&mr->key) == request->key)
		status = model.spec.copy == SIM_COPY_NONE ? 0 : move(target, &path, outward);
	atomic_fetch_sub_explicit(&mr->users, 1, memory_order_release);
	return status;
}

static enum outcome at_target(struct request *request, struct target *target, const struct iovec *mine, size_t count,
			      int *ret_status)
{
	if (request->opcode == IBV_WR_SEND || request->opcode == IBV_WR_SEND_WITH_IMM) {
		if (request->bytes > model.spec.machine.mtu + CARD_HEADER) {
			*ret_status = CARD_BAD_LENGTH;
			return OUT_ERROR;
		}
		return take_message(request, target, mine, count, ret_status);
	}
	if (request->bytes > CARD_RDMA_SIZE) {
		*ret_status = CARD_BAD_LENGTH;
		return OUT_ERROR;
	}
	*ret_status = move_rdma(request, target, mine, count);
	if (*ret_status)
		return OUT_ERROR;
	return request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? take_immediate(request, target) : OUT_DONE;
}

/* Nothing comes back. Fails once that has lasted long enough, or never. */
static enum outcome silent(struct request *request, uint64_t now, int *ret_status)
{
	uint64_t limit = sim_ticks_of_ns(model.spec.unresponsive_ns);

	if (request->qp->datagrams)
		return OUT_DONE;
	if (!request->since)
		request->since = now;
	if (limit != UINT64_MAX && now - request->since >= limit) {
		*ret_status = CARD_UNRESPONSIVE;
		return OUT_ERROR;
	}
	request->due = now + sim_ticks_of_ns(100000) + 1;
	return OUT_WAIT;
}

/* Asked at most once a millisecond: it is a system call. */
static bool alive(struct target *target, uint64_t now)
{
	if (now < target->alive_at || wire_is_local(target->ep_map))
		return true;
	target->alive_at = now + sim_ticks_of_ns(1000000);
	return wire_owner_alive(target->ep_map);
}

static bool accepts(const struct request *request, const struct target *target)
{
	const struct wire_address *address = &target->ep->address;

	return address->qkey == request->qkey && QP_DATAGRAMS(address->reserved) == request->qp->datagrams;
}

static enum outcome refuse(const struct request *request, int status, int *ret_status)
{
	if (request->qp->datagrams && status == CARD_BAD_QPN)
		return OUT_DONE; /* a datagram is simply lost */
	*ret_status = status;
	return OUT_ERROR;
}

enum outcome deliver(struct card *card, struct request *request, uint64_t now, int *ret_status)
{
	struct iovec mine[CARD_SQ_SGE];
	struct target *target;
	enum outcome out;
	size_t count = 0;
	int status = request->status;

	*ret_status = 0;
	if (request->fault == SIM_FAULT_DROP)
		return OUT_SILENT;
	if (request->fault == SIM_FAULT_ERROR)
		status = (int)request->fault_argument;
	if (request->fault == SIM_FAULT_RNR && request->tries < request->fault_argument)
		return back_off(request, now, ret_status);
	if (!status)
		status = own_side(card, request, mine, &count);
	if (status)
		return refuse(request, status, ret_status);
	target = target_find(card, &request->gid, request->qpn);
	if (fault_active() && fault_silent(card, target))
		return silent(request, now, ret_status);
	request->since = 0;
	if (target && !alive(target, now)) {
		target_forget(card, target);
		target = NULL;
	}
	if (!target || !accepts(request, target))
		return refuse(request, CARD_BAD_QPN, ret_status);
	/* Sequentially consistent, then look: pairs with ibv_destroy_qp, which waits for those counted in. */
	atomic_fetch_add(&target->ep->users, 1);
	if (atomic_load(&target->ep->head.state) != WIRE_LIVE)
		out = refuse(request, CARD_BAD_QPN, ret_status);
	else
		out = at_target(request, target, mine, count, ret_status);
	atomic_fetch_sub_explicit(&target->ep->users, 1, memory_order_release);
	return out == OUT_WAIT ? back_off(request, now, ret_status) : out;
}
