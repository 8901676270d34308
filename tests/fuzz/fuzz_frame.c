/* Frames as they come from a peer: accepted or refused; a payload lies within the received bytes; an accepted one
 * seals the same again. */
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct wf_frame *frame, *again;
	uint8_t *copy = malloc(bytes ? bytes : 1); /* its own block, so that a read past it shows */

	if (!copy)
		return 0;
	memcpy(copy, data, bytes);
	if (!wf_frame_open(copy, bytes, &frame)) {
		struct wf_frame first = *frame;

		if (frame->payload_bytes > bytes - WF_FRAME_HEADER ||
		    (frame->kind == WF_FRAME_MESSAGE && frame->payload_bytes > WF_FRAME_PAYLOAD))
			abort();
		wf_frame_seal(frame);
		if (wf_frame_bytes(frame) != WF_FRAME_HEADER + first.payload_bytes ||
		    wf_frame_open(copy, bytes, &again) ||
		    memcmp(&again->greeting, &first.greeting, sizeof(first.greeting)) || again->kind != first.kind ||
		    again->token != first.token || again->to_peer != first.to_peer)
			abort();
	}
	free(copy);
	return 0;
}
