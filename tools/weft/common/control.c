/* Frames over a non-blocking stream socket, each call with a deadline. */
#include "control.h"
#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC    UINT32_C(0x54464557) /* "WEFT" */
#define ERROR_NS UINT64_C(1000000000)

uint64_t cmd_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

__attribute__((format(printf, 3, 4))) static int fail(struct cmd_control *control, int error, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(control->error, sizeof control->error, format, list);
	va_end(list);
	return error;
}

int cmd_control_open(struct cmd_control *control, int fd)
{
	int flags = fcntl(fd, F_GETFL);
	control->fd = fd;
	control->error[0] = '\0';
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return fail(control, -errno, "the control connection cannot be used: %s", strerror(errno));
	return 0;
}

void cmd_control_close(struct cmd_control *control)
{
	if (control->fd >= 0)
		close(control->fd);
	control->fd = -1;
}

static int lost(struct cmd_control *control, int error)
{
	if (error)
		return fail(control, -error, "the control connection to the peer failed: %s", strerror(error));
	return fail(control, -ECONNRESET, "the peer closed the control connection");
}

/* Waits until the descriptor is ready or the deadline passes. */
static int wait_ready(struct cmd_control *control, short events, uint64_t deadline)
{
	struct pollfd waiting = { .fd = control->fd, .events = events };
	for (;;) {
		uint64_t now = cmd_now_ns();
		if (now >= deadline)
			return fail(control, -ETIMEDOUT, "the peer did not answer on the control connection in time");
		uint64_t left_ms = (deadline - now + 999999) / 1000000;
		int got = poll(&waiting, 1, left_ms > 1000 ? 1000 : (int)left_ms);
		if (got > 0)
			return 0;
		if (got < 0 && errno != EINTR)
			return lost(control, errno);
	}
}

static int write_all(struct cmd_control *control, const void *from, size_t bytes, uint64_t deadline)
{
	const uint8_t *at = from;
	while (bytes) {
		ssize_t put = send(control->fd, at, bytes, MSG_NOSIGNAL);
		if (put > 0) {
			at += put;
			bytes -= (size_t)put;
		} else if (put < 0 && errno != EAGAIN && errno != EINTR) {
			return errno == EPIPE ? lost(control, 0) : lost(control, errno);
		} else {
			int rc = wait_ready(control, POLLOUT, deadline);
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

static int read_all(struct cmd_control *control, void *to, size_t bytes, uint64_t deadline)
{
	uint8_t *at = to;
	while (bytes) {
		ssize_t got = recv(control->fd, at, bytes, 0);
		if (got > 0) {
			at += got;
			bytes -= (size_t)got;
		} else if (got == 0) {
			return lost(control, 0);
		} else if (errno != EAGAIN && errno != EINTR) {
			return lost(control, errno == ECONNRESET ? 0 : errno);
		} else {
			int rc = wait_ready(control, POLLIN, deadline);
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

int cmd_control_send(struct cmd_control *control, enum cmd_frame type, const void *payload, size_t bytes,
		     uint64_t timeout_ns)
{
	uint8_t header[CMD_CONTROL_HEADER];
	uint64_t deadline = cmd_now_ns() + timeout_ns;
	struct cmd_pack pack;
	int rc;

	if (bytes > CMD_CONTROL_MAX)
		return fail(control, -EMSGSIZE, "%zu bytes do not fit into one control frame", bytes);
	cmd_pack_start(&pack, header, sizeof header);
	cmd_pack_u32(&pack, MAGIC);
	cmd_pack_u32(&pack, CMD_CONTROL_VERSION);
	cmd_pack_u32(&pack, type);
	cmd_pack_u32(&pack, (uint32_t)bytes);
	rc = write_all(control, header, sizeof header, deadline);
	return rc < 0 ? rc : write_all(control, payload, bytes, deadline);
}

void cmd_control_send_error(struct cmd_control *control, int error, const char *text)
{
	uint8_t payload[512];
	char kept[sizeof control->error];
	struct cmd_pack pack;

	snprintf(kept, sizeof kept, "%s", text);
	cmd_pack_start(&pack, payload, sizeof payload);
	cmd_pack_u32(&pack, (uint32_t)-error);
	cmd_pack_text(&pack, kept);
	cmd_control_send(control, CMD_FRAME_ERROR, payload, pack.used, ERROR_NS);
}

static int take_error(struct cmd_control *control)
{
	struct cmd_unpack unpack;
	char text[sizeof control->error - 16];

	cmd_unpack_start(&unpack, control->buffer, control->bytes);
	uint32_t error = cmd_unpack_u32(&unpack);
	cmd_unpack_text(&unpack, text, sizeof text);
	if (!cmd_unpack_done(&unpack) || error == 0 || error > 4095)
		return fail(control, -EPROTO, "the peer sent a malformed error");
	return fail(control, -(int)error, "the peer says: %s", text);
}

/* Whether what came, be it less than a header, is something else's. */
static bool is_strange(const uint8_t *header)
{
	uint8_t ours[4];
	struct cmd_pack pack;
	bool strange = false;

	cmd_pack_start(&pack, ours, sizeof ours);
	cmd_pack_u32(&pack, MAGIC);
	for (size_t i = 0; i < sizeof ours; i++)
		strange |= header[i] && header[i] != ours[i];
	return strange;
}

int cmd_control_receive(struct cmd_control *control, uint64_t timeout_ns)
{
	uint8_t header[CMD_CONTROL_HEADER] = { 0 };
	uint64_t deadline = cmd_now_ns() + timeout_ns;
	struct cmd_unpack unpack;
	int rc = read_all(control, header, sizeof header, deadline);

	if (rc < 0 && !is_strange(header))
		return rc;
	cmd_unpack_start(&unpack, header, sizeof header);
	if (cmd_unpack_u32(&unpack) != MAGIC)
		return fail(control, -EPROTO,
			    "the other side is not 'weft bench': its data on the control connection is not ours");
	uint32_t version = cmd_unpack_u32(&unpack);
	if (version != CMD_CONTROL_VERSION)
		return fail(control, -EPROTONOSUPPORT,
			    "the peer uses version %u of the benchmark's protocol, this weft version %d: "
			    "use the same weft on both hosts",
			    version, CMD_CONTROL_VERSION);
	uint32_t type = cmd_unpack_u32(&unpack), bytes = cmd_unpack_u32(&unpack);
	if (type < CMD_FRAME_HELLO || type > CMD_FRAME_LAST || bytes > CMD_CONTROL_MAX)
		return fail(control, -EPROTO, "the peer sent a malformed frame (type %u, %u bytes)", type, bytes);
	rc = read_all(control, control->buffer, bytes, deadline);
	if (rc < 0)
		return rc;
	control->bytes = bytes;
	control->type = (enum cmd_frame)type;
	return type == CMD_FRAME_ERROR ? take_error(control) : 0;
}

int cmd_control_expect(struct cmd_control *control, enum cmd_frame type, uint64_t timeout_ns)
{
	int rc = cmd_control_receive(control, timeout_ns);
	if (rc == 0 && control->type != type)
		return fail(control, -EPROTO, "the peer sent frame %d instead of %d", control->type, type);
	return rc;
}

bool cmd_control_wait(struct cmd_control *control, uint64_t timeout_ns)
{
	struct pollfd waiting = { .fd = control->fd, .events = POLLIN };
	return poll(&waiting, 1, (int)(timeout_ns / 1000000)) > 0;
}

bool cmd_control_pending(struct cmd_control *control)
{
	return cmd_control_wait(control, 0);
}
