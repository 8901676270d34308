/*
 * Lines: our connections to other rails of this host. A line is connected when something is first sent, and again after it broke:
 * connect, a letter with our pipe, a letter back with the peer's board. Runs on the worker that owns the rail.
 */
#include "base/hot.h"
#include "local/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define LETTERS 64 /* per look */

/* ---- the table ---- */

uint64_t wf_line_target(const struct wf_line *line)
{
	return (uint64_t)line->generation << 32 | line->index;
}

WF_HOT struct wf_line *wf_line_of(const struct wf_local *local, uint64_t target)
{
	uint32_t index = (uint32_t)target;
	struct wf_line *line = index < local->line_room ? local->line[index] : NULL;

	return line && line->generation == target >> 32 ? line : NULL;
}

static struct wf_line *find(const struct wf_local *local, const uint8_t *address)
{
	for (uint32_t i = 0; i < local->line_room; i++)
		if (local->line[i] && !memcmp(local->line[i]->address, address, WF_LOCAL_ADDRESS))
			return local->line[i];
	return NULL;
}

static int free_index(struct wf_local *local, uint32_t *ret_index)
{
	uint32_t room = local->line_room ? 2 * local->line_room : 16;
	struct wf_line **grown;

	for (uint32_t i = 0; i < local->line_room; i++)
		if (!local->line[i]) {
			*ret_index = i;
			return 0;
		}
	grown = realloc(local->line, room * sizeof(struct wf_line *));
	if (!grown)
		return -ENOMEM;
	memset(grown + local->line_room, 0, (room - local->line_room) * sizeof(struct wf_line *));
	*ret_index = local->line_room;
	local->line = grown;
	local->line_room = room;
	return 0;
}

static struct wf_line *add(struct wf_local *local, const uint8_t *address)
{
	static _Atomic uint32_t generations; /* only tells lines apart that had the same number */
	struct wf_line *line = calloc(1, sizeof(*line));
	uint32_t index;

	if (!line || free_index(local, &index)) {
		free(line);
		return NULL;
	}
	line->local = local;
	line->index = index;
	line->generation = atomic_fetch_add_explicit(&generations, 1, memory_order_relaxed) + 1;
	line->socket = line->pidfd = -1;
	line->share.fd = -1;
	memcpy(line->address, address, WF_LOCAL_ADDRESS);
	local->line[index] = line;
	return line;
}

int wf_local_insert(struct wf_local *local, int end, const uint8_t *address, size_t bytes, uint64_t *ret_target)
{
	struct wf_line *line;

	if (!wf_local_is_here(local, address, bytes))
		return -EHOSTUNREACH;
	line = find(local, address);
	if (!line && !(line = add(local, address)))
		return -ENOMEM;
	line->users[end]++;
	*ret_target = wf_line_target(line);
	return 0;
}

void wf_local_remove(struct wf_local *local, int end, const uint8_t *address)
{
	struct wf_line *line = find(local, address);

	if (!line || !line->users[end])
		return;
	line->users[end]--;
	if (!line->users[0] && !line->users[1])
		wf_line_free(line);
}

bool wf_local_has(const struct wf_local *local, int end, const uint8_t *address)
{
	const struct wf_line *line = find(local, address);

	return line && line->users[end];
}

/* ---- breaking ---- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void unwatch_process(struct wf_line *line)
{
	if (line->pidfd >= 0)
		epoll_ctl(line->local->epoll, EPOLL_CTL_DEL, line->pidfd, NULL);
	close_fd(&line->pidfd);
}

/* The process is watched on: its end may show only after that of its socket. */
void wf_line_break(struct wf_line *line, const char *why)
{
	struct wf_local *local = line->local;

	if (line->state == WF_LINE_CLOSED)
		return;
	line->state = WF_LINE_CLOSED;
	wf_copies_fail(local, line, -ECONNRESET);
	if (local->cargoes)
		wf_cargo_fail(local, line);
	line->held = 0;
	wf_opened_forget(line);
	if (local->begun == line)
		local->begun = NULL;
	wf_local_unwatch(local, &line->socket);
	wf_share_close(&line->share);
	if (line->board)
		wf_share_close(&(struct wf_share){ (void *)(uintptr_t)line->board, sizeof(*line->board), -1 });
	line->board = NULL;
	if (why)
		wf_log(local->log, WEFT_LOG_DEBUG, "rail local: the line to process %d has ended: %s", (int)line->pid,
		       why);
}

void wf_line_free(struct wf_line *line)
{
	wf_line_break(line, NULL);
	unwatch_process(line);
	line->local->died -= line->died;
	line->local->line[line->index] = NULL;
	free(line);
}

void wf_line_process_ended(struct wf_line *line)
{
	struct pollfd ended = { .fd = line->pidfd, .events = POLLIN };

	if (line->pidfd < 0 || poll(&ended, 1, 0) <= 0)
		return;
	unwatch_process(line);
	wf_line_break(line, "the process has ended");
	line->local->died += !line->died;
	line->died = true;
}

/* ---- connecting ---- */

static int connect_to(const uint8_t *address)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t bytes = wf_local_socket_name(address, &name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error;

	if (fd < 0)
		return -errno;
	if (!connect(fd, (struct sockaddr *)&name, bytes))
		return fd;
	error = -errno;
	close(fd);
	return error == -EAGAIN ? -EAGAIN : error == -ECONNREFUSED ? -EHOSTUNREACH : error;
}

static int greet(struct wf_line *line)
{
	struct wf_letter hello = { .kind = WF_LETTER_HELLO };
	int error = wf_share_make(sizeof(struct wf_pipe_shared), false, &line->share);

	if (error)
		return error;
	line->pipe = (struct wf_pipe_writer){ .shared = line->share.at };
	error = wf_letter_send(line->socket, &hello, line->share.fd);
	if (!error)
		error = wf_local_watch(line->local, line->socket, WF_WATCH_LINE, line->index);
	close_fd(&line->share.fd);
	return error;
}

static void tell_nobody_listens(struct wf_line *line)
{
	if (!line->told)
		wf_log(
		    line->local->log, WEFT_LOG_INFO,
		    "rail local: a peer of this host is not reached: nobody listens at its address. It has ended, or "
		    "lives in another network namespace");
	line->told = true;
}

static int begin(struct wf_line *line)
{
	int error;

	line->socket = connect_to(line->address);
	if (line->socket < 0) {
		error = line->socket;
		line->socket = -1;
		if (error == -EHOSTUNREACH)
			tell_nobody_listens(line);
		return error;
	}
	line->state = WF_LINE_GREETING;
	line->local->slept = true; /* look for the answer soon */
	error = greet(line);
	if (!error)
		return -EAGAIN;
	wf_line_break(line, "it could not be greeted");
	return error == -EAGAIN ? -EAGAIN : -EHOSTUNREACH;
}

WF_HOT int wf_line_ready(struct wf_line *line)
{
	return line->state == WF_LINE_UP ? 0 : line->state == WF_LINE_GREETING ? -EAGAIN : begin(line);
}

/* ---- the answer ---- */

static void watch_process(struct wf_line *line)
{
	unwatch_process(line);
	line->other = wf_local_is_other(line->socket, &line->pid);
	if (!line->pid)
		return; /* of a namespace that we do not see: the socket's end tells as much */
	line->pidfd = (int)syscall(SYS_pidfd_open, line->pid, 0);
	if (line->pidfd >= 0)
		wf_local_watch(line->local, line->pidfd, WF_WATCH_PROCESS, line->index);
}

/* Reads a random number that the process has told us: proves that the id is that process's, and that the kernel lets us. It lets root
 * read anyone's memory; but who owns that decides how long it takes (userfaultfd, a file system of its own), and we would wait. */
static int try_copying(const struct wf_line *line, const struct wf_letter *welcome)
{
	uint64_t proof[2];
	struct iovec near = { proof, sizeof(proof) }, far = { (void *)(uintptr_t)welcome->base, sizeof(proof) };

	if (line->other)
		return -EPERM;
	if (!line->pid)
		return -ESRCH;
	if (process_vm_readv(line->pid, &near, 1, &far, 1, 0) != sizeof(proof))
		return -errno;
	return memcmp(proof, welcome->proof, sizeof(proof)) ? -ESRCH : 0;
}

static void welcomed(struct wf_line *line, const struct wf_letter *welcome, int fd)
{
	void *board;

	if (line->state != WF_LINE_GREETING || wf_share_map(fd, sizeof(*line->board), false, &board)) {
		wf_line_break(line, "its welcome is wrong");
		return;
	}
	line->board = board;
	watch_process(line);
	line->copies = try_copying(line, welcome);
	if (line->copies)
		wf_log(line->local->log, WEFT_LOG_INFO,
		       "rail local: no copies by the kernel to process %d (%s): only memory that weft allocated is "
		       "reached",
		       (int)line->pid,
		       line->other  ? "another user's"
		       : !line->pid ? "of a pid namespace that we do not see"
				    : strerror(-line->copies));
	line->told = true;
	line->state = WF_LINE_UP;
}

void wf_line_readable(struct wf_line *line)
{
	struct wf_letter letter;
	int fd = -1, got = 0;

	/* Bounded: who sends without end must not hold the worker. The rest at the next look. */
	for (int i = 0; i < LETTERS && line->state != WF_LINE_CLOSED; i++) {
		got = wf_letter_receive(line->socket, line->local->closer, &letter, &fd);
		if (got <= 0)
			break;
		if (letter.kind == WF_LETTER_WELCOME)
			welcomed(line, &letter, fd);
		else if (letter.kind == WF_LETTER_OPENED)
			wf_opened_answered(line, &letter, fd);
		else
			wf_line_break(line, "it sent a letter that is not an answer");
		wf_closer_close(line->local->closer, fd);
		fd = -1;
	}
	if (got < 0) {
		wf_line_break(line, strerror(-got));
		wf_line_process_ended(line);
	}
}

/* ---- frames ---- */

void wf_line_ring(struct wf_line *line)
{
	struct wf_letter ring = { .kind = WF_LETTER_RING };

	/* Pairs with wf_local_try_wait(): it sees our record, or we see that it sleeps. */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&line->board->asleep, memory_order_relaxed))
		wf_letter_send(line->socket, &ring, -1); /* refused: others wait there, and wake it as well */
}

WF_HOT int wf_local_send(struct wf_local *local, uint64_t target, const void *frame, size_t bytes)
{
	struct wf_line *line = wf_line_of(local, target);
	struct wf_record record = { .kind = WF_RECORD_FRAME, .bytes = (uint16_t)bytes };
	int error;

	if (!line || bytes > WF_LOCAL_FRAME)
		return -EINVAL;
	error = wf_line_ready(line);
	if (!error)
		error = wf_pipe_put(&line->pipe, &record, frame);
	if (!error)
		wf_line_ring(line);
	else if (error == -EPROTO)
		wf_line_break(line, "it breaks the pipe's rules");
	return error;
}
