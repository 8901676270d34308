/* Frames of every shape: what is sealed comes back, and no bytes from outside are taken for more than they are. */
#include "wire/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

static uint64_t random_word(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

/* As a sender and a receiver do it, the latter in a block of its own, so that a read past it shows. */
static void pack(const struct wf_frame *frame, void *buffer)
{
	memcpy(buffer, frame, WF_FRAME_HEADER);
	wf_frame_seal(buffer);
	assert_int_equal(wf_frame_bytes(buffer), WF_FRAME_HEADER + frame->payload_bytes);
}

static int unpack(const void *buffer, size_t bytes, struct wf_frame *ret_frame)
{
	void *arrived = malloc(bytes + 1);
	struct wf_frame *frame;
	int error;

	assert_non_null(arrived);
	memcpy(arrived, buffer, bytes);
	error = wf_frame_open(arrived, bytes, &frame);
	if (!error)
		*ret_frame = *frame;
	free(arrived);
	return error;
}

static void pure_noise(void **state)
{
	static uint8_t noise[1024];

	for (int round = 0; round < 50000; round++) {
		size_t bytes = random_word() % sizeof(noise);
		struct wf_frame frame;

		for (size_t i = 0; i < bytes; i++)
			noise[i] = (uint8_t)random_word();
		assert_true(unpack(noise, bytes, &frame) < 0);
	}
}

static struct wf_frame message(uint64_t total, uint64_t index)
{
	uint64_t frames = wf_frames_of(total);

	return (struct wf_frame){ .kind = WF_FRAME_MESSAGE,
				  .type = WF_MESSAGE_REPLY,
				  .incarnation = random_word(),
				  .to_peer = random_word(),
				  .from_epoch = 5,
				  .to_epoch = 6,
				  .ack = random_word(),
				  .credit = random_word(),
				  .seq = 1000 + index,
				  .first = 1000,
				  .total = total,
				  .tag = random_word(),
				  .subject = random_word(),
				  .status = -EDOM,
				  .payload_bytes = (uint32_t)(index + 1 < frames ? WF_FRAME_PAYLOAD
										 : total - index * WF_FRAME_PAYLOAD) };
}

static void frame_round_trip(void **state)
{
	static const uint64_t total[] = {
		0, 1, WF_FRAME_PAYLOAD - 1, WF_FRAME_PAYLOAD, WF_FRAME_PAYLOAD + 1, 4u << 20
	};
	static uint8_t buffer[WF_FRAME_BYTES];

	for (size_t i = 0; i < sizeof(total) / sizeof(total[0]); i++)
		for (uint64_t index = 0; index < wf_frames_of(total[i]); index++) {
			struct wf_frame frame = message(total[i], index), back;

			memset(&back, 0xee, sizeof(back));
			pack(&frame, buffer);
			assert_int_equal(unpack(buffer, WF_FRAME_HEADER + frame.payload_bytes, &back), 0);
			assert_true(back.kind == frame.kind && back.type == frame.type && back.seq == frame.seq);
			assert_true(back.first == frame.first);
			assert_true(back.incarnation == frame.incarnation && back.to_peer == frame.to_peer);
			assert_true(back.ack == frame.ack && back.credit == frame.credit && back.tag == frame.tag);
			assert_true(back.subject == frame.subject && back.status == -EDOM && back.total == frame.total);
			assert_true(back.from_epoch == 5 && back.to_epoch == 6);
			assert_int_equal(back.payload_bytes, frame.payload_bytes);
			if (frame.payload_bytes)
				assert_int_equal(unpack(buffer, WF_FRAME_HEADER + frame.payload_bytes - 1, &back),
						 -EPROTO);
		}
	assert_int_equal(wf_frames_of(0), 1);
	assert_int_equal(wf_frames_of(WF_FRAME_PAYLOAD), 1);
	assert_int_equal(wf_frames_of(WF_FRAME_PAYLOAD + 1), 2);
}

static void greeting_round_trip(void **state)
{
	struct wf_greeting said = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, { 0 } };
	struct wf_frame frame = { .kind = WF_FRAME_WELCOME, .token = 11, .payload_bytes = 12, .greeting = said }, back;
	static uint8_t buffer[WF_FRAME_BYTES];

	pack(&frame, buffer);
	assert_int_equal(buffer[40], 1); /* the handle, at its place on the wire */
	assert_int_equal(buffer[88], 8); /* and the immediates */
	assert_int_equal(unpack(buffer, WF_FRAME_HEADER + 12, &back), 0);
	assert_true(back.token == 11 && back.payload_bytes == 12);
	assert_memory_equal(&back.greeting, &said, sizeof(said));
	frame.kind = WF_FRAME_CHALLENGE; /* has no address */
	pack(&frame, buffer);
	assert_int_equal(unpack(buffer, WF_FRAME_HEADER + 12, &back), -EPROTO);
}

static void grant_round_trip(void **state)
{
	struct wf_frame frame = { .kind = WF_FRAME_GRANT, .grant = { 1, 2, 3, 4, { 0 } } }, back;
	static uint8_t buffer[WF_FRAME_BYTES];

	pack(&frame, buffer);
	assert_int_equal(buffer[40], 1);
	assert_int_equal(buffer[44], 2);
	assert_int_equal(unpack(buffer, WF_FRAME_HEADER, &back), 0);
	assert_memory_equal(&back.grant, &frame.grant, sizeof(back.grant));
	frame.payload_bytes = 1;
	pack(&frame, buffer);
	assert_int_equal(unpack(buffer, WF_FRAME_HEADER + 1, &back), -EPROTO);
}

static int unpack_changed(struct wf_frame frame)
{
	static uint8_t buffer[WF_FRAME_BYTES];

	pack(&frame, buffer);
	return unpack(buffer, sizeof(buffer), &frame);
}

static void frames_that_do_not_fit(void **state)
{
	struct wf_frame frame = message(20000, 1);
	static uint8_t buffer[WF_FRAME_BYTES];

	assert_int_equal(unpack_changed(frame), 0);
	frame.seq = frame.first - 1;
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame.seq = frame.first + 3;
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame = message(20000, 2);
	frame.payload_bytes--;
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame = message(20000, 0);
	frame.total = UINT64_MAX;
	frame.seq = UINT64_MAX;
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame = message(100, 0);
	frame.type = 0;
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame.type = WF_MESSAGE_LAST;
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame = message(100, 0);
	frame.type = WF_MESSAGE_SEND; /* has no status */
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame.status = 0;
	assert_int_equal(unpack_changed(frame), 0);
	frame = message(100, 0);
	frame.status = 1;
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame.status = INT32_MIN;
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame = message(100, 0);
	frame.kind = 0;
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame.kind = WF_FRAME_LAST;
	assert_int_equal(unpack_changed(frame), -EPROTO);
	frame = message(100, 0);
	pack(&frame, buffer);
	buffer[2]++;
	assert_int_equal(unpack(buffer, sizeof(buffer), &frame), -EPROTONOSUPPORT);
	for (size_t bytes = 0; bytes < WF_FRAME_HEADER; bytes++)
		assert_int_equal(unpack(buffer, bytes, &frame), -EPROTO);
}

/* Whatever the bytes of a header say, what is accepted fits: the payload lies in the frame and in the
 * message. */
static void hostile_headers(void **state)
{
	static uint8_t buffer[WF_FRAME_BYTES];

	for (int round = 0; round < 300000; round++) {
		struct wf_frame frame = message(random_word() % 40000, 0), back;
		uint64_t index;

		pack(&frame, buffer);
		for (uint64_t i = random_word() % 5; i; i--)
			buffer[3 + random_word() % (WF_FRAME_HEADER - 3)] = (uint8_t)random_word();
		if (unpack(buffer, sizeof(buffer), &back))
			continue;
		assert_true(back.payload_bytes <= WF_FRAME_PAYLOAD);
		if (back.kind != WF_FRAME_MESSAGE) {
			assert_true(!back.payload_bytes || back.kind == WF_FRAME_HELLO ||
				    back.kind == WF_FRAME_WELCOME);
			continue;
		}
		index = back.seq - back.first;
		assert_true(index < wf_frames_of(back.total));
		assert_true(index * WF_FRAME_PAYLOAD + back.payload_bytes <= back.total);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pure_noise),
		cmocka_unit_test(frame_round_trip),
		cmocka_unit_test(greeting_round_trip),
		cmocka_unit_test(grant_round_trip),
		cmocka_unit_test(frames_that_do_not_fit),
		cmocka_unit_test(hostile_headers),
	};

	return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
