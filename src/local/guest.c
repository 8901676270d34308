/*
 * Guests: other rails' lines to us. One is accepted, greets with its pipe, gets our board, and may then ask for memory by key and
 * put records into its pipe. Everything it says is another process's: who breaks the rules is shown out. Runs on the worker that
 * owns the rail, except wf_guests_await().
 */
#include "base/hot.h"
#include "base/time.h"
#include "local/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define GUESTS_MOST 4096u
#define GUESTS_OTHERS                                                                                                  \
	64u /* of other users: the socket's name is no secret on this host, and each guest takes a descriptor of ours */
#define ACCEPTS        16 /* per look */
#define LETTERS        64 /* per guest and look */
#define WRONG_KEYS     1024u
#define GREETING_NS    (5 * WF_S) /* by then a guest has greeted */
#define COPY_LIMIT_NS  (200 * WF_MS)
#define COPY_LOOK_NS   (20 * WF_US)
#define RECORDS_A_TURN 32 /* per guest, so that all have their turn */

/* Root and we ourselves could do worse. */
bool wf_local_is_other(int socket, pid_t *ret_pid)
{
	struct ucred credentials = { .uid = (uid_t)-1 };
	socklen_t bytes = sizeof(credentials);
	int error = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes);

	*ret_pid = error || credentials.pid <= 0 ? 0 : credentials.pid;
	return error || (credentials.uid && credentials.uid != geteuid());
}

static int add(struct wf_local *local, int socket)
{
	struct wf_guest *guest = calloc(1, sizeof(*guest));
	struct wf_guest **grown = NULL;
	uint32_t room = local->guest_room ? 2 * local->guest_room : 16;
	pid_t pid;
	bool other = wf_local_is_other(socket, &pid);
	int error = !guest ? -ENOMEM : other && local->others == GUESTS_OTHERS ? -EDQUOT : 0;

	pthread_mutex_lock(&local->guests_lock);
	if (!error && local->guests == local->guest_room) {
		grown = realloc(local->guest, room * sizeof(struct wf_guest *));
		error = grown ? 0 : -ENOMEM;
		if (grown) {
			local->guest = grown;
			local->guest_room = room;
		}
	}
	if (!error) {
		*guest = (struct wf_guest){ .local = local,
					    .index = local->guests,
					    .socket = socket,
					    .other = other,
					    .since_ns = wf_now_ns() };
		local->others += other;
		local->guest[local->guests++] = guest;
	}
	pthread_mutex_unlock(&local->guests_lock);
	if (!error) {
		error = wf_local_watch(local, socket, WF_WATCH_GUEST, guest->index);
		if (error)
			wf_guest_leave(guest);
		return 0;
	}
	free(guest);
	return error;
}

/* Until the next sweep. socket: one that has been accepted, or -1. */
static void stop_accepting(struct wf_local *local, int socket)
{
	epoll_ctl(local->epoll, EPOLL_CTL_DEL, local->listener, NULL);
	local->deaf = true;
	if (socket >= 0)
		wf_closer_shut(local->closer, socket);
}

void wf_guests_accept(struct wf_local *local)
{
	for (int i = 0; i < ACCEPTS; i++) {
		int socket = accept4(local->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (socket < 0 && errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)
			return;
		/* They would be announced again and again, and we would never sleep. */
		if (socket < 0 || wf_closer_is_full(local->closer)) {
			stop_accepting(local, socket);
			return;
		}
		if (local->guests == GUESTS_MOST || add(local, socket))
			wf_closer_shut(local->closer, socket);
	}
}

/* The last guest takes its place, and its events that name the old place are read in vain. */
void wf_guest_leave(struct wf_guest *guest)
{
	struct wf_local *local = guest->local;
	struct wf_guest *last;

	pthread_mutex_lock(&local->guests_lock);
	last = local->guest[--local->guests];
	local->guest[guest->index] = last;
	last->index = guest->index;
	if (guest->pipe.shared)
		munmap(guest->pipe.shared, sizeof(*guest->pipe.shared));
	pthread_mutex_unlock(&local->guests_lock);
	local->others -= guest->other;
	wf_local_unwatch(local, &guest->socket);
	free(guest);
	if (last != guest)
		wf_local_watch(local, last->socket, WF_WATCH_GUEST, last->index);
}

/* ---- letters ---- */

static int greeted(struct wf_guest *guest, int fd)
{
	struct wf_local *local = guest->local;
	struct wf_letter welcome = { .kind = WF_LETTER_WELCOME,
				     .base = (uintptr_t)local->proof,
				     .proof = { local->proof[0], local->proof[1] } };
	void *pipe;
	int error;

	if (guest->pipe.shared)
		return -EPROTO;
	error = wf_share_map(fd, sizeof(*guest->pipe.shared), true, &pipe);
	if (error)
		return error;
	pthread_mutex_lock(&local->guests_lock);
	guest->pipe.shared = pipe;
	pthread_mutex_unlock(&local->guests_lock);
	return wf_letter_send(guest->socket, &welcome, local->memory.share.fd);
}

/* An answer that finds no room is lost, and asked for again. */
static int asked(struct wf_guest *guest, const struct wf_letter *question)
{
	struct wf_letter answer;
	int fd = wf_local_memory_answer(&guest->local->memory, question->key, question->part, &answer), error;

	if (!answer.status) {
		pthread_mutex_lock(&guest->local->guests_lock);
		guest->rights |= answer.access;
		pthread_mutex_unlock(&guest->local->guests_lock);
	}
	error = wf_letter_send(guest->socket, &answer, fd);
	if (fd >= 0)
		close(fd);
	if (answer.status == -EKEYREJECTED && ++guest->wrong > WRONG_KEYS)
		return -EACCES;
	return error == -EAGAIN ? 0 : error;
}

void wf_guest_readable(struct wf_guest *guest)
{
	struct wf_letter letter;
	int fd = -1, got, error = 0;

	for (int i = 0; i < LETTERS && !error; i++) {
		got = wf_letter_receive(guest->socket, guest->local->closer, &letter, &fd);
		if (!got)
			return;
		if (got < 0)
			error = got;
		else if (letter.kind == WF_LETTER_HELLO)
			error = greeted(guest, fd);
		else if (!guest->pipe.shared)
			error = -EPROTO;
		else if (letter.kind == WF_LETTER_OPEN)
			error = asked(guest, &letter);
		else if (letter.kind != WF_LETTER_RING)
			error = -EPROTO;
		wf_closer_close(guest->local->closer, fd);
		fd = -1;
	}
	if (!error)
		return; /* the rest at the next look: the socket is still readable */
	/* What it sent before it ended is delivered; nothing is left after a breach of the rules. */
	if (error == -ECONNRESET && guest->pipe.shared && wf_pipe_any(&guest->pipe))
		return;
	wf_guest_leave(guest);
}

/* ---- records ---- */

static struct wf_posted_receive *next_receive(struct wf_local *local)
{
	return local->receives ? &local->receive[local->receive_first] : NULL;
}

static void receive_taken(struct wf_local *local)
{
	local->receive_first = local->receive_first + 1 == local->receive_room ? 0 : local->receive_first + 1;
	local->receives--;
}

/* Returns how many ends it wrote, or -EPROTO. */
WF_HOT static int read_guest(struct wf_guest *guest, struct wf_local_end *ends, int max)
{
	struct wf_local *local = guest->local;
	struct wf_record record;
	int count = 0, got = 0;

	while (count < max && (got = wf_pipe_look(&guest->pipe, &record)) > 0) {
		struct wf_posted_receive *receive = next_receive(local);

		if (record.kind == WF_RECORD_IMMEDIATE) {
			if (!(guest->rights & WEFT_REMOTE_WRITE))
				return -EPROTO; /* it comes after a write, and this one can write nowhere */
			wf_pipe_take(&guest->pipe, &record, NULL);
			ends[count++] = (struct wf_local_end){ .immediate = record.immediate };
			continue;
		}
		if (!receive)
			break; /* it waits for one */
		if (record.bytes > receive->bytes)
			return -EPROTO;
		wf_pipe_take(&guest->pipe, &record, receive->buffer);
		ends[count++] = (struct wf_local_end){ .context = receive->context, .bytes = record.bytes };
		receive_taken(local);
	}
	return got < 0 ? got : count;
}

/* A different guest goes first each time. */
WF_HOT int wf_guests_read(struct wf_local *local, struct wf_local_end *ends, int max)
{
	uint32_t guests = local->guests, at;
	int count = 0;

	if (!guests)
		return 0;
	at = local->guest_turn++ % guests;
	for (uint32_t i = 0; i < guests && count < max; i++) {
		struct wf_guest *guest = local->guest[at];
		int most = max - count < RECORDS_A_TURN ? max - count : RECORDS_A_TURN, got;

		at = at + 1 == guests ? 0 : at + 1;
		if (!guest->pipe.shared)
			continue;
		got = read_guest(guest, ends + count, most);
		if (got < 0) {
			wf_log(local->log, WEFT_LOG_WARN,
			       "rail local: a process breaks the pipe's rules: its line is closed");
			wf_guest_leave(guest);
			break;
		}
		count += got;
	}
	return count;
}

bool wf_guests_any(const struct wf_local *local)
{
	for (uint32_t i = 0; i < local->guests; i++)
		if (local->guest[i]->pipe.shared && wf_pipe_any(&local->guest[i]->pipe))
			return true;
	return false;
}

void wf_guests_sweep(struct wf_local *local)
{
	uint64_t now = wf_now_ns();

	for (uint32_t i = local->guests; i-- > 0;) {
		struct wf_guest *guest = local->guest[i];

		if (!guest->pipe.shared && now - guest->since_ns > GREETING_NS)
			wf_guest_leave(guest);
		else
			wf_guest_readable(guest); /* among them those that ended with records unread */
	}
}

/* ---- revocation ---- */

/* Under the lock. A guest whose socket has ended copies no more, and one that was told of no memory never did. */
static bool is_copying(const struct wf_guest *guest, uint32_t slot)
{
	struct pollfd ended = { .fd = guest->socket, .events = POLLRDHUP };
	bool any;

	if (!guest->pipe.shared || !guest->rights)
		return false;
	any = atomic_load(&guest->pipe.shared->copying) == (uint64_t)slot + 1;
	for (uint32_t i = 0; i < WF_PIPE_HOLDS; i++)
		any |= atomic_load(&guest->pipe.shared->holding[i]) == (uint64_t)slot + 1;
	return any && poll(&ended, 1, 0) <= 0;
}

static bool any_copies(struct wf_local *local, uint32_t slot, bool give_up)
{
	bool any = false;

	pthread_mutex_lock(&local->guests_lock);
	for (uint32_t i = 0; i < local->guests; i++)
		if (is_copying(local->guest[i], slot)) {
			any = true;
			if (give_up) /* the worker sees its end, and frees it */
				shutdown(local->guest[i]->socket, SHUT_RDWR);
		}
	pthread_mutex_unlock(&local->guests_lock);
	return any;
}

bool wf_guests_await(struct wf_local *local, uint32_t slot)
{
	struct timespec pause = { .tv_nsec = COPY_LOOK_NS };
	uint64_t until = wf_now_ns() + COPY_LIMIT_NS;

	while (any_copies(local, slot, false)) {
		if (wf_now_ns() > until)
			return !any_copies(local, slot, true);
		nanosleep(&pause, NULL);
	}
	return true;
}
