/* What arrives on the connection between two benchmark processes, and the numbers and texts unpacked from it. */
#include "tools/weft/common/control.h"
#include "tools/weft/common/pack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void unpack(const uint8_t *data, size_t bytes)
{
	struct cmd_unpack from;
	char text[64];
	uint8_t raw[16];

	cmd_unpack_start(&from, data, bytes);
	for (int i = 0; i < 8 && !from.failed; i++) {
		cmd_unpack_u32(&from);
		cmd_unpack_text(&from, text, sizeof(text));
		if (!from.failed && strlen(text) >= sizeof(text))
			abort();
		cmd_unpack_u64(&from);
		cmd_unpack_bytes(&from, raw, sizeof(raw));
	}
	cmd_unpack_done(&from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct cmd_control control;
	int pair[2];

	if (bytes > 60000)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		abort();
	if (send(pair[1], data, bytes, MSG_DONTWAIT) != (ssize_t)bytes) {
		close(pair[0]);
		close(pair[1]);
		return 0;
	}
	close(pair[1]);
	if (!cmd_control_open(&control, pair[0])) {
		while (!cmd_control_receive(&control, 1000000)) {
			if (control.bytes > CMD_CONTROL_MAX)
				abort();
			unpack(control.buffer, control.bytes);
		}
		cmd_control_close(&control);
	}
	unpack(data, bytes);
	return 0;
}
