/* libfabric by hand; raw.h says what for. */
#include "hostile/raw.h"
#include "support/util.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA_BYTES 65536u

/* What the stranger itself needs: without it there is no attack, and so no test. */
static void demand(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "the stranger has no %s\n", what);
	abort();
}

static int post_receive(struct raw *raw, struct raw_receive *receive)
{
	memset(&receive->request, 0, sizeof(receive->request));
	return (int)fi_recv(raw->ep, receive->buffer, WF_FRAME_BYTES, raw->desc, FI_ADDR_UNSPEC,
			    &receive->request.context);
}

static void make_memory(struct raw *raw)
{
	size_t bytes = (RAW_RECEIVES + 1) * (size_t)WF_FRAME_BYTES + DATA_BYTES;

	raw->memory = aligned_alloc(4096, bytes);
	demand(raw->memory, "memory");
	memset(raw->memory, 0, bytes);
	raw->out = raw->memory;
	raw->data = raw->memory + (RAW_RECEIVES + 1) * (size_t)WF_FRAME_BYTES;
	if (raw->nics.nic[0].info->domain_attr->mr_mode & FI_MR_LOCAL) {
		demand(!fi_mr_reg(raw->domain, raw->memory, bytes, FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0, 7, 0,
				  &raw->mr, NULL),
		       "registration");
		raw->desc = fi_mr_desc(raw->mr);
	}
	for (uint32_t i = 0; i < RAW_RECEIVES; i++) {
		raw->receive[i].buffer = raw->memory + (i + 1) * (size_t)WF_FRAME_BYTES;
		demand(!post_receive(raw, &raw->receive[i]), "receive");
	}
}

static void open_endpoint(struct raw *raw)
{
	struct fi_info *info = raw->nics.nic[0].info;
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE, .size = 1024 };
	struct fi_av_attr av = { .type = info->domain_attr->av_type };

	info->tx_attr->op_flags = info->rx_attr->op_flags = 0;
	demand(!fi_fabric(info->fabric_attr, &raw->fabric, NULL), "fabric");
	demand(!fi_domain(raw->fabric, info, &raw->domain, NULL), "domain");
	demand(!fi_cq_open(raw->domain, &cq, &raw->cq, NULL), "completion queue");
	demand(!fi_av_open(raw->domain, &av, &raw->av, NULL), "address vector");
	demand(!fi_endpoint(raw->domain, info, &raw->ep, NULL), "endpoint");
	demand(!fi_ep_bind(raw->ep, &raw->cq->fid, FI_TRANSMIT | FI_RECV), "completions");
	demand(!fi_ep_bind(raw->ep, &raw->av->fid, 0), "addresses");
	demand(!fi_enable(raw->ep), "enabled endpoint");
}

void raw_open(struct raw *raw, const struct weft_config *config)
{
	struct wf_wire_rail *rail = &raw->address.rail[0];
	char text[256];
	size_t length = sizeof(rail->address);

	memset(raw, 0, sizeof(*raw));
	if (wf_nics_find(config, true, &raw->nics, text, sizeof(text)))
		demand(false, text);
	open_endpoint(raw);
	make_memory(raw);
	demand(!fi_getname(&raw->ep->fid, rail->address, &length), "name");
	rail->address_bytes = (uint8_t)length;
	rail->address_format = raw->nics.nic[0].info->addr_format;
	rail->serial = 1;
	memcpy(rail->provider, raw->nics.nic[0].provider, sizeof(rail->provider));
	memcpy(rail->name, raw->nics.nic[0].name, sizeof(rail->name));
	raw->patience = LIMIT;
	raw->address.incarnation = UINT64_C(0xbad0bad0bad0bad0);
	raw->address.revision = 1;
	raw->address.count = 1;
}

void raw_close(struct raw *raw)
{
	if (raw->ep)
		fi_close(&raw->ep->fid);
	if (raw->mr)
		fi_close(&raw->mr->fid);
	if (raw->av)
		fi_close(&raw->av->fid);
	if (raw->cq)
		fi_close(&raw->cq->fid);
	if (raw->domain)
		fi_close(&raw->domain->fid);
	if (raw->fabric)
		fi_close(&raw->fabric->fid);
	wf_nics_free(&raw->nics);
	free(raw->memory);
	memset(raw, 0, sizeof(*raw));
}

void raw_aim(struct raw *raw, const void *address, size_t bytes)
{
	demand(!wf_blob_unpack_address(address, bytes, &raw->theirs), "victim's address");
	demand(fi_av_insert(raw->av, raw->theirs.rail[0].address, 1, &raw->victim, 0, NULL) == 1, "way to the victim");
}

void raw_forget(struct raw *raw, fi_addr_t victim)
{
	fi_av_remove(raw->av, &victim, 1, 0);
}

/* ---- completions ---- */

static void turn(struct raw *raw)
{
	struct fi_cq_data_entry entry[16];
	struct fi_cq_err_entry error = { 0 };
	ssize_t got = fi_cq_read(raw->cq, entry, 16);

	for (ssize_t i = 0; i < got; i++) {
		struct raw_request *request = entry[i].op_context;

		if (!request)
			continue;
		request->bytes = entry[i].len;
		request->done = true;
	}
	if (got == -FI_EAVAIL && fi_cq_readerr(raw->cq, &error, 0) == 1 && error.op_context) {
		struct raw_request *request = error.op_context;

		request->status = error.err ? -abs(error.err) : -FI_EIO;
		request->done = true;
	}
}

static int wait_for(struct raw *raw, struct raw_request *request)
{
	uint64_t limit = now_ns() + raw->patience;

	while (!request->done && now_ns() < limit)
		turn(raw);
	return request->done ? request->status : -FI_ETIMEDOUT;
}

/* A request that never completes stays with the provider and is not reused. */
static struct raw_request *fresh_request(void)
{
	struct raw_request *request = calloc(1, sizeof(*request));

	demand(request, "memory");
	return request;
}

static int finish(struct raw *raw, struct raw_request *request, ssize_t posted)
{
	int status = posted ? (int)posted : wait_for(raw, request);

	if (posted || request->done)
		free(request);
	return status;
}

bool raw_send_bytes(struct raw *raw, const void *bytes, size_t count)
{
	struct raw_request *request = fresh_request();
	uint64_t limit = now_ns() + raw->patience;
	ssize_t posted;

	memmove(raw->out, bytes, count);
	while ((posted = fi_send(raw->ep, raw->out, count, raw->desc, raw->victim, &request->context)) == -FI_EAGAIN &&
	       now_ns() < limit)
		turn(raw);
	return !finish(raw, request, posted);
}

bool raw_send(struct raw *raw, const struct wf_frame *header, const void *payload)
{
	struct wf_frame *frame = (struct wf_frame *)raw->out;

	*frame = *header;
	if (payload)
		memmove(frame->payload, payload, header->payload_bytes);
	wf_frame_seal(frame);
	return raw_send_bytes(raw, frame, WF_FRAME_HEADER + header->payload_bytes);
}

bool raw_receive(struct raw *raw, uint64_t limit_ns, struct wf_frame **ret_frame)
{
	static uint8_t copy[WF_FRAME_BYTES] __attribute__((aligned(64)));
	uint64_t limit = now_ns() + limit_ns;

	do {
		turn(raw);
		for (uint32_t i = 0; i < RAW_RECEIVES; i++) {
			struct raw_receive *receive = &raw->receive[(raw->next + i) % RAW_RECEIVES];
			uint64_t bytes = receive->request.bytes;
			bool good = receive->request.done && !receive->request.status;

			if (!receive->request.done)
				continue;
			raw->next = (raw->next + i + 1) % RAW_RECEIVES;
			memcpy(copy, receive->buffer, sizeof(copy));
			post_receive(raw, receive);
			if (good && !wf_frame_open(copy, bytes, ret_frame))
				return true;
		}
	} while (now_ns() < limit);
	return false;
}

/* Over tcp a write that is not delivered also completes: it has left. */
static ssize_t post_write(struct raw *raw, struct raw_request *request, struct fi_rma_iov at, uint64_t immediate)
{
	struct iovec from = { raw->data, at.len };
	struct fi_msg_rma message = { .msg_iov = &from,
				      .desc = &raw->desc,
				      .iov_count = 1,
				      .addr = raw->victim,
				      .rma_iov = &at,
				      .rma_iov_count = 1,
				      .data = immediate,
				      .context = &request->context };

	return fi_writemsg(raw->ep, &message,
			   FI_COMPLETION | (immediate ? FI_REMOTE_CQ_DATA : 0) |
			       (strcmp(raw->nics.nic[0].provider, "tcp") ? 0 : FI_DELIVERY_COMPLETE));
}

static int rma(struct raw *raw, bool write, struct fi_rma_iov at, uint64_t immediate)
{
	struct raw_request *request = fresh_request();
	uint64_t limit = now_ns() + raw->patience;
	ssize_t posted;

	do {
		posted = write ? post_write(raw, request, at, immediate)
			       : fi_read(raw->ep, raw->data, at.len, raw->desc, raw->victim, at.addr, at.key,
					 &request->context);
		if (posted == -FI_EAGAIN)
			turn(raw);
	} while (posted == -FI_EAGAIN && now_ns() < limit);
	return finish(raw, request, posted);
}

int raw_write(struct raw *raw, uint64_t key, uint64_t at, uint64_t bytes)
{
	return rma(raw, true, (struct fi_rma_iov){ at, bytes, key }, 0);
}

int raw_write_immediate(struct raw *raw, uint64_t key, uint64_t at, uint64_t bytes, uint32_t immediate)
{
	return rma(raw, true, (struct fi_rma_iov){ at, bytes, key }, immediate);
}

int raw_read(struct raw *raw, uint64_t key, uint64_t at, uint64_t bytes)
{
	return rma(raw, false, (struct fi_rma_iov){ at, bytes, key }, 0);
}

/* ---- greetings ---- */

struct wf_frame raw_hello(const struct raw *raw, const struct wf_wire_address *as)
{
	return (struct wf_frame){ .kind = WF_FRAME_HELLO,
				  .incarnation = as->incarnation,
				  .from_epoch = 1,
				  .greeting = { .handle = 1,
						.sought = raw->theirs.incarnation,
						.secret = RAW_SECRET,
						.credit = 1024,
						.max_message = 4 << 20,
						.revision = as->revision,
						.immediates = 1,
						.from_rail = raw->from_rail } };
}

bool raw_greet(struct raw *raw, const struct wf_frame *hello, const struct wf_wire_address *as)
{
	uint8_t blob[WF_FRAME_PAYLOAD];
	size_t bytes = sizeof(blob);
	struct wf_frame frame = *hello;

	demand(!wf_blob_pack_address(as, blob, &bytes), "address");
	frame.payload_bytes = (uint32_t)bytes;
	return raw_send(raw, &frame, blob);
}

/* ---- a connection ---- */

static bool answer(struct raw *raw, const struct raw_link *link, const struct wf_frame *hello)
{
	struct wf_frame welcome = raw_hello(raw, &raw->address);

	welcome.kind = WF_FRAME_WELCOME;
	welcome.from_epoch = link->epoch;
	welcome.to_epoch = hello->from_epoch;
	welcome.to_peer = hello->greeting.handle;
	welcome.token = hello->greeting.secret;
	welcome.greeting.question = hello->greeting.question + (uint32_t)raw->misquote;
	return raw_greet(raw, &welcome, &raw->address);
}

bool raw_connect(struct raw *raw, struct raw_link *link)
{
	struct wf_frame hello = raw_hello(raw, &raw->address), *frame;
	uint64_t limit = now_ns() + raw->patience;

	if (!link->epoch)
		*link = (struct raw_link){ .epoch = 1 };
	hello.from_epoch = link->epoch;
	if (!raw_greet(raw, &hello, &raw->address))
		return false;
	while (now_ns() < limit && raw_receive(raw, raw->patience, &frame)) {
		if (frame->kind == WF_FRAME_HELLO && !answer(raw, link, frame))
			return false;
		if (frame->kind == WF_FRAME_CHALLENGE) {
			hello.token = frame->greeting.secret;
			if (frame->token != RAW_SECRET || !raw_greet(raw, &hello, &raw->address))
				return false;
		}
		if (frame->kind != WF_FRAME_WELCOME || frame->to_epoch != link->epoch)
			continue;
		link->handle = frame->greeting.handle;
		link->token = frame->greeting.secret;
		link->their_epoch = frame->from_epoch;
		link->credit = frame->greeting.credit;
		link->max_message = frame->greeting.max_message;
		return true;
	}
	return false;
}

struct wf_frame raw_frame(const struct raw *raw, const struct raw_link *link, uint8_t kind)
{
	return (struct wf_frame){ .kind = kind,
				  .incarnation = raw->address.incarnation,
				  .to_peer = link->handle,
				  .from_epoch = link->epoch,
				  .to_epoch = link->their_epoch,
				  .token = link->token,
				  .ack = link->expected,
				  .credit = link->expected + 1024 };
}

bool raw_message(struct raw *raw, struct raw_link *link, uint8_t type, uint64_t call, const void *payload,
		 uint32_t bytes)
{
	struct wf_frame frame = raw_frame(raw, link, WF_FRAME_MESSAGE);

	frame.type = type;
	frame.seq = frame.first = link->seq;
	frame.total = frame.payload_bytes = bytes;
	frame.subject = call;
	if (!raw_send(raw, &frame, payload))
		return false;
	link->seq++;
	return true;
}

bool raw_hear(struct raw *raw, struct raw_link *link, uint64_t limit_ns, struct wf_frame **ret_frame)
{
	uint64_t limit = now_ns() + limit_ns;
	struct wf_frame *frame, pong;

	do {
		if (!raw_receive(raw, 10 * MS, &frame))
			continue;
		if (frame->kind == WF_FRAME_HELLO) {
			answer(raw, link, frame);
			continue;
		}
		if (frame->to_epoch != link->epoch || wf_frame_is_greeting(frame->kind) ||
		    wf_frame_is_about_grants(frame->kind))
			continue;
		link->acked = frame->ack > link->acked ? frame->ack : link->acked;
		link->credit = frame->credit > link->credit ? frame->credit : link->credit;
		if (frame->kind != WF_FRAME_MESSAGE && frame->kind != WF_FRAME_PING)
			continue;
		if (frame->kind == WF_FRAME_MESSAGE && frame->seq == link->expected)
			link->expected++;
		else if (frame->kind == WF_FRAME_MESSAGE)
			continue; /* it came before */
		pong = raw_frame(raw, link, WF_FRAME_PONG);
		raw_send(raw, &pong, NULL);
		if (frame->kind == WF_FRAME_MESSAGE) {
			*ret_frame = frame;
			return true;
		}
	} while (now_ns() < limit);
	return false;
}
