/* Packs and unpacks frame headers; frame.h has their meaning. */
#include "wire/frame.h"

#include <endian.h>
#include <errno.h>

#define MAGIC   0x4657
#define VERSION 1

/* The layout on the wire, little endian, without holes. Written and read in place, wherever a buffer begins and whatever else
 * it is used as: no copy of a hundred bytes on the way. */
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
} __attribute__((packed, may_alias));
_Static_assert(sizeof(struct layout) == WF_FRAME_HEADER, "the header has no holes");

void wf_frame_pack(const struct wf_frame *frame, void *buffer)
{
	struct layout *layout = buffer;

	layout->magic = htole16(MAGIC);
	layout->version = VERSION;
	layout->kind = frame->kind;
	layout->from_rail = frame->from_rail;
	layout->to_rail = frame->to_rail;
	layout->type = frame->type;
	layout->reserved = 0;
	layout->incarnation = htole64(frame->incarnation);
	layout->to_peer = htole64(frame->to_peer);
	layout->from_epoch = htole32(frame->from_epoch);
	layout->to_epoch = htole32(frame->to_epoch);
	layout->ack = htole64(frame->ack);
	layout->credit = htole64(frame->credit);
	layout->payload_bytes = htole32(frame->payload_bytes);
	layout->status = (int32_t)htole32((uint32_t)frame->status);
	layout->seq = htole64(frame->seq);
	layout->first = htole64(frame->first);
	layout->total = htole64(frame->total);
	layout->tag = htole64(frame->tag);
	layout->call = htole64(frame->call);
	layout->reserved2 = 0;
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
	const struct layout *layout = buffer;

	if (bytes < sizeof(*layout) || le16toh(layout->magic) != MAGIC)
		return -EPROTO;
	if (layout->version != VERSION)
		return -EPROTONOSUPPORT;
	ret_frame->kind = layout->kind;
	ret_frame->from_rail = layout->from_rail;
	ret_frame->to_rail = layout->to_rail;
	ret_frame->type = layout->type;
	ret_frame->incarnation = le64toh(layout->incarnation);
	ret_frame->to_peer = le64toh(layout->to_peer);
	ret_frame->from_epoch = le32toh(layout->from_epoch);
	ret_frame->to_epoch = le32toh(layout->to_epoch);
	ret_frame->ack = le64toh(layout->ack);
	ret_frame->credit = le64toh(layout->credit);
	ret_frame->payload_bytes = le32toh(layout->payload_bytes);
	ret_frame->status = (int32_t)le32toh((uint32_t)layout->status);
	ret_frame->seq = le64toh(layout->seq);
	ret_frame->first = le64toh(layout->first);
	ret_frame->total = le64toh(layout->total);
	ret_frame->tag = le64toh(layout->tag);
	ret_frame->call = le64toh(layout->call);
	if (ret_frame->kind < WF_FRAME_HELLO || ret_frame->kind >= WF_FRAME_LAST ||
	    ret_frame->payload_bytes > bytes - sizeof(*layout))
		return -EPROTO;
	return ret_frame->kind != WF_FRAME_MESSAGE || message_ok(ret_frame) ? 0 : -EPROTO;
}
