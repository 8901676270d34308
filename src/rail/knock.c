/*
 * Asks a peer's kernel whether anybody listens at the peer's addresses: it makes a TCP connection to each and ends it
 * at once. libfabric says nothing when the process behind an idle connection dies, and then refuses posts for ever as
 * if it were connecting; the kernel of a live host says at once that nobody is there. Nothing here waits. Runs on the
 * peer's home worker.
 */
#include "rail/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct wf_knock {
	uint32_t doors, refused;
	bool answered;                      /* somebody is there, or the kernel cannot tell */
	struct pollfd door[WF_KNOCK_DOORS]; /* fd -1: has its answer */
};

static void settle(struct wf_knock *knock, struct pollfd *door, int error)
{
	if (error == ECONNREFUSED)
		knock->refused++;
	else
		knock->answered = true;
	if (door->fd >= 0)
		close(door->fd);
	door->fd = -1;
}

struct wf_knock *wf_knock_open(void)
{
	return calloc(1, sizeof(struct wf_knock));
}

void wf_knock_at(struct wf_knock *knock, const uint8_t *address, uint8_t bytes)
{
	/* Ends by a reset, because libfabric 1.17 keeps the descriptors of strangers that leave in good order. */
	struct linger at_once = { .l_onoff = 1 };
	struct sockaddr_storage to = { 0 };
	struct pollfd *door = &knock->door[knock->doors];

	if (bytes > sizeof(to) || knock->doors == WF_KNOCK_DOORS)
		return;
	memcpy(&to, address, bytes);
	knock->doors++;
	door->events = POLLOUT;
	door->fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (door->fd >= 0)
		setsockopt(door->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	if (door->fd < 0 || (connect(door->fd, (struct sockaddr *)&to, bytes) && errno != EINPROGRESS))
		settle(knock, door, errno);
}

enum wf_knock_answer wf_knock_look(struct wf_knock *knock)
{
	if (poll(knock->door, knock->doors, 0) > 0)
		for (uint32_t i = 0; i < knock->doors; i++) {
			struct pollfd *door = &knock->door[i];
			int error = 0;
			socklen_t length = sizeof(error);

			if (door->fd < 0 || !door->revents)
				continue;
			getsockopt(door->fd, SOL_SOCKET, SO_ERROR, &error, &length);
			settle(knock, door, error);
		}
	if (knock->answered || !knock->doors)
		return WF_KNOCK_ANSWERED;
	return knock->refused == knock->doors ? WF_KNOCK_REFUSED : WF_KNOCK_WAITING;
}

void wf_knock_close(struct wf_knock *knock)
{
	for (uint32_t i = 0; knock && i < knock->doors; i++)
		if (knock->door[i].fd >= 0)
			close(knock->door[i].fd);
	free(knock);
}
