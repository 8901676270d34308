/* Packs and unpacks frame headers; frame.h has their meaning. */
#include "wire/frame.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define MAGIC   0x4657
#define VERSION 1

/* The layout on the wire, little endian, without holes: one copy each way instead of twenty. */
struct layout {
	uint16_t magic;
	uint8_t version, kind, from_rail, to_rail, type, reserved;
	uint64_t incarnation, to_peer;
	uint32_t from_epoch, to_epoch;
	uint64_t ack, credit;
	uint32_t payload_bytes;
	int32_t status;
	uint64_t seq, first, total, tag, call;
	uint64_t reserved2;
};
_Static_assert(sizeof(struct layout) == WF_FRAME_HEADER, "the header has no holes");

void wf_frame_pack(const struct wf_frame *frame, void *buffer)
{
	struct layout layout = {
		.magic = htole16(MAGIC),
		.version = VERSION,
		.kind = frame->kind,
		.from_rail = frame->from_rail,
		.to_rail = frame->to_rail,
		.type = frame->type,
		.incarnation = htole64(frame->incarnation),
		.to_peer = htole64(frame->to_peer),
		.from_epoch = htole32(frame->from_epoch),
		.to_epoch = htole32(frame->to_epoch),
		.ack = htole64(frame->ack),
		.credit = htole64(frame->credit),
		.payload_bytes = htole32(frame->payload_bytes),
		.status = (int32_t)htole32((uint32_t)frame->status),
		.seq = htole64(frame->seq),
		.first = htole64(frame->first),
		.total = htole64(frame->total),
		.tag = htole64(frame->tag),
		.call = htole64(frame->call),
	};

	memcpy(buffer, &layout, sizeof(layout));
}

uint8_t wf_frame_kind(const void *buffer)
{
	return ((const uint8_t *)buffer)[offsetof(struct layout, kind)];
}

/* The parts of a message must fit together whatever a peer claims. */
static bool message_ok(const struct wf_frame *frame)
{
	uint64_t index = frame->seq - frame->first, frames = wf_frames_of(frame->total);
	uint64_t expected;

	if (frame->type < WF_MESSAGE_SEND || frame->type >= WF_MESSAGE_LAST || frame->seq < frame->first ||
	    index >= frames)
		return false;
	expected = index + 1 < frames ? WF_FRAME_PAYLOAD : frame->total - index * WF_FRAME_PAYLOAD;
	return frame->payload_bytes == expected;
}

int wf_frame_unpack(const void *buffer, size_t bytes, struct wf_frame *ret_frame)
{
	struct layout layout;

	if (bytes < sizeof(layout))
		return -EPROTO;
	memcpy(&layout, buffer, sizeof(layout));
	if (le16toh(layout.magic) != MAGIC)
		return -EPROTO;
	if (layout.version != VERSION)
		return -EPROTONOSUPPORT;
	*ret_frame = (struct wf_frame){
		.kind = layout.kind,
		.from_rail = layout.from_rail,
		.to_rail = layout.to_rail,
		.type = layout.type,
		.incarnation = le64toh(layout.incarnation),
		.to_peer = le64toh(layout.to_peer),
		.from_epoch = le32toh(layout.from_epoch),
		.to_epoch = le32toh(layout.to_epoch),
		.ack = le64toh(layout.ack),
		.credit = le64toh(layout.credit),
		.payload_bytes = le32toh(layout.payload_bytes),
		.status = (int32_t)le32toh((uint32_t)layout.status),
		.seq = le64toh(layout.seq),
		.first = le64toh(layout.first),
		.total = le64toh(layout.total),
		.tag = le64toh(layout.tag),
		.call = le64toh(layout.call),
	};
	if (ret_frame->kind < WF_FRAME_HELLO || ret_frame->kind >= WF_FRAME_LAST ||
	    ret_frame->payload_bytes > bytes - sizeof(layout))
		return -EPROTO;
	return ret_frame->kind != WF_FRAME_MESSAGE || message_ok(ret_frame) ? 0 : -EPROTO;
}
