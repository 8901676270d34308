/* Frames as they come from a peer: read or refused; a payload lies within what came; what is read packs the
 * same again. */
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct wf_frame frame, again;
	uint8_t packed[WF_FRAME_BYTES];
	uint8_t *copy = malloc(bytes ? bytes : 1); /* its own block, so that a read past it shows */

	if (!copy)
		return 0;
	memcpy(copy, data, bytes);
	memset(&frame, 0, sizeof(frame));
	memset(&again, 0, sizeof(again));
	if (!wf_frame_unpack(copy, bytes, &frame)) {
		if (frame.payload_bytes > bytes - WF_FRAME_HEADER || frame.payload_bytes > WF_FRAME_PAYLOAD)
			abort();
		wf_frame_pack(&frame, packed);
		memset(packed + WF_FRAME_HEADER, 0, frame.payload_bytes);
		if (wf_frame_unpack(packed, WF_FRAME_HEADER + frame.payload_bytes, &again) ||
		    again.seq != frame.seq || again.first != frame.first || again.total != frame.total ||
		    again.kind != frame.kind || again.status != frame.status)
			abort();
	}
	free(copy);
	return 0;
}
