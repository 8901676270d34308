/* Bytes over the control socket, with a limit; both sides use it. */
#include "support/command.h"
#include "support/util.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

static int ready(int fd, short events, uint64_t deadline)
{
	struct pollfd poller = { .fd = fd, .events = events };
	uint64_t now = now_ns();
	int got = poll(&poller, 1, deadline > now ? (int)((deadline - now + MS - 1) / MS) : 0);

	if (got < 0)
		return errno == EINTR ? 0 : -errno;
	return got || now < deadline ? 0 : -ETIME;
}

int command_put(int fd, const void *data, size_t bytes, uint64_t limit_ns)
{
	uint64_t deadline = now_ns() + limit_ns;
	const char *at = data;

	while (bytes) {
		ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
		int error;

		if (sent > 0) {
			at += sent;
			bytes -= (size_t)sent;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -EPIPE;
		error = ready(fd, POLLOUT, deadline);
		if (error)
			return error;
	}
	return 0;
}

int command_get(int fd, void *data, size_t bytes, uint64_t limit_ns)
{
	uint64_t deadline = now_ns() + limit_ns;
	char *at = data;

	while (bytes) {
		ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
		int error;

		if (got > 0) {
			at += got;
			bytes -= (size_t)got;
			continue;
		}
		if (!got || (errno != EAGAIN && errno != EINTR))
			return -EPIPE;
		error = ready(fd, POLLIN, deadline);
		if (error)
			return error;
	}
	return 0;
}
