/* Threads that close what may take long; closer.h says what. */
#include "local/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 8u  /* at a time */
#define LETTERS 64u /* that a socket may hold unread; one with more is closed by a thread */

struct closing {
	struct closing *next;
	int fd;
};

struct wf_closer {
	pthread_mutex_t lock;
	struct closing *first;  /* waits for a thread */
	uint32_t waiting;       /* of them */
	uint32_t threads, idle; /* all, and those that close nothing now: they take what waits, or end */
	bool left;              /* the last thread frees it */
};

struct wf_closer *wf_closer_make(void)
{
	struct wf_closer *closer = calloc(1, sizeof(*closer));

	if (closer)
		pthread_mutex_init(&closer->lock, NULL);
	return closer;
}

static void release(struct wf_closer *closer)
{
	pthread_mutex_destroy(&closer->lock);
	free(closer);
}

static void *close_all(void *argument)
{
	struct wf_closer *closer = argument;
	struct closing *closing;
	bool last;

	pthread_mutex_lock(&closer->lock);
	while ((closing = closer->first)) {
		closer->first = closing->next;
		closer->waiting--;
		closer->idle--;
		pthread_mutex_unlock(&closer->lock);
		close(closing->fd);
		free(closing);
		pthread_mutex_lock(&closer->lock);
		closer->idle++;
	}
	closer->idle--;
	last = !--closer->threads && closer->left;
	pthread_mutex_unlock(&closer->lock);
	if (last)
		release(closer);
	return NULL;
}

static int begin_thread(struct wf_closer *closer)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	sigfillset(&all); /* signals are the application's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attributes, close_all, closer);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

/* A thread for what no thread is about to take, if there may be one more. Where none can be made it waits on. Returns whether
 * something waits and all threads are taken. */
static bool start_thread(struct wf_closer *closer)
{
	bool waits, start;

	pthread_mutex_lock(&closer->lock);
	waits = closer->waiting > closer->idle;
	start = waits && closer->threads < THREADS;
	closer->threads += start;
	closer->idle += start;
	pthread_mutex_unlock(&closer->lock);
	if (start && begin_thread(closer)) {
		pthread_mutex_lock(&closer->lock);
		closer->threads--;
		closer->idle--;
		pthread_mutex_unlock(&closer->lock);
		start = false;
	}
	return waits && !start;
}

static void close_beside(struct wf_closer *closer, int fd)
{
	struct closing *closing = malloc(sizeof(*closing));

	if (!closing) {
		close(fd);
		return;
	}
	pthread_mutex_lock(&closer->lock);
	*closing = (struct closing){ closer->first, fd };
	closer->first = closing;
	closer->waiting++;
	pthread_mutex_unlock(&closer->lock);
	(void)start_thread(closer);
}

/* Only files of memory have seals, and they close at once. */
void wf_closer_close(struct wf_closer *closer, int fd)
{
	if (fd < 0)
		return;
	if (fcntl(fd, F_GET_SEALS) >= 0)
		close(fd);
	else
		close_beside(closer, fd);
}

/* Takes letters that bring no descriptor. With credentials asked for, each letter brings these, so that an empty one differs from
 * the end; and there is no room for descriptors, so that one with any shows, and stays. Returns whether nothing is left. */
static bool drain(int socket)
{
	int on = 1;

	if (setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)))
		return false;
	for (uint32_t i = 0; i < LETTERS; i++) {
		union {
			struct cmsghdr header;
			char bytes[CMSG_SPACE(sizeof(struct ucred))];
		} control;
		char byte;
		struct iovec data = { &byte, 1 };
		struct msghdr message = { .msg_iov = &data,
					  .msg_iovlen = 1,
					  .msg_control = control.bytes,
					  .msg_controllen = sizeof(control) };

		if (recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT) < 0) {
			if (errno == EAGAIN)
				return true;
			continue; /* that of the other side, told once, before its letters */
		}
		if (!message.msg_controllen)
			return true;
		if (message.msg_flags & MSG_CTRUNC)
			return false;
		if (recv(socket, &byte, 1, MSG_DONTWAIT) < 0)
			return false;
	}
	return false;
}

void wf_closer_shut(struct wf_closer *closer, int socket)
{
	shutdown(socket, SHUT_RDWR); /* from here on nothing more arrives */
	if (drain(socket))
		close(socket);
	else
		close_beside(closer, socket);
}

bool wf_closer_is_full(struct wf_closer *closer)
{
	return start_thread(closer);
}

void wf_closer_leave(struct wf_closer *closer)
{
	bool last;

	if (!closer)
		return;
	(void)start_thread(closer);
	pthread_mutex_lock(&closer->lock);
	closer->left = true;
	last = !closer->threads;
	pthread_mutex_unlock(&closer->lock);
	if (last)
		release(closer);
}
