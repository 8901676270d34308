/* Letters over a Unix socket; letter.h says what they are. */
#include "local/letter.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* More than a letter may bring, so that what is too much is seen. */
#define FDS_SEEN 2

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(FDS_SEEN * sizeof(int))];
};

int wf_letter_send(int socket, struct wf_letter *letter, int fd)
{
	struct iovec data = { letter, sizeof(*letter) };
	union control control = { 0 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };

	letter->magic = WF_LETTER_MAGIC;
	letter->version = WF_LETTER_VERSION;
	if (fd >= 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(fd));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static bool brings(const struct wf_letter *letter, int fd_count)
{
	switch (letter->kind) {
	case WF_LETTER_HELLO:
	case WF_LETTER_WELCOME:
		return fd_count == 1;
	case WF_LETTER_OPEN:
	case WF_LETTER_RING:
		return fd_count == 0;
	case WF_LETTER_OPENED:
		return fd_count == (letter->file_bytes || letter->way == WF_WAY_FILE ? 1 : 0);
	default:
		return false;
	}
}

/* One part of a card's memory; whether all of them are as long as the region shows when they are there (wf_device_open()). */
static bool is_part(const struct wf_letter *letter)
{
	if (!letter->parts)
		return letter->way == WF_WAY_NONE && !letter->part;
	return letter->parts <= WF_DEVICE_PARTS && letter->part < letter->parts && !letter->file_bytes &&
	       letter->part_bytes &&
	       (letter->way == WF_WAY_FILE || (letter->way == WF_WAY_IPC && letter->parts == 1)) &&
	       (letter->part || letter->offset < letter->part_bytes);
}

/* A region lies within the address space, and within its file if it has one. */
static bool is_region(const struct wf_letter *letter)
{
	if (!letter->bytes || letter->base > UINT64_MAX - letter->bytes || !letter->life || !is_part(letter))
		return false;
	return !letter->file_bytes ||
	       (letter->offset <= letter->file_bytes && letter->bytes <= letter->file_bytes - letter->offset);
}

bool wf_letter_check(const struct wf_letter *letter, size_t bytes, int fd_count)
{
	if (bytes != sizeof(*letter) || letter->magic != WF_LETTER_MAGIC || letter->version != WF_LETTER_VERSION ||
	    !brings(letter, fd_count))
		return false;
	if (letter->kind != WF_LETTER_OPENED)
		return true;
	return letter->status
		   ? letter->status < 0 && letter->status >= -4095 && !letter->file_bytes && letter->way == WF_WAY_NONE
		   : is_region(letter);
}

static int take_fds(struct msghdr *message, int fds[FDS_SEEN])
{
	int count = 0;

	for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at))
		if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) {
			int more = (int)((at->cmsg_len - CMSG_LEN(0)) / sizeof(int));

			more = more > FDS_SEEN - count ? FDS_SEEN - count : more;
			memcpy(fds + count, CMSG_DATA(at), (size_t)more * sizeof(int));
			count += more;
		}
	return count;
}

/* Looks before it takes: what a letter brings too much stays in the socket, where nobody has to close it now. */
int wf_letter_receive(int socket, struct wf_closer *closer, struct wf_letter *ret_letter, int *ret_fd)
{
	struct iovec data = { ret_letter, sizeof(*ret_letter) };
	union control control;
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control)
	};
	int fds[FDS_SEEN], count;
	ssize_t got = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	char byte;

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	count = take_fds(&message, fds);
	if (got && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && wf_letter_check(ret_letter, (size_t)got, count) &&
	    recv(socket, &byte, 1, MSG_DONTWAIT) == 1) {
		*ret_fd = count ? fds[0] : -1;
		return 1;
	}
	for (int i = 0; i < count; i++)
		wf_closer_close(closer, fds[i]);
	return got ? -EPROTO : -ECONNRESET;
}
