/*
 * The local rail as a whole: opening, its name, its descriptors, its turn, and how it sleeps. local.h says for whom. Runs on the
 * worker that owns the rail.
 */
#include "base/hot.h"
#include "base/random.h"
#include "base/time.h"
#include "local/internal.h"

#include <errno.h>
#include <poll.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 128
#define SETTLE_NS                                                                                                      \
	(50 * WF_MS) /* most that a worker waits for cards whose copies are taken back: they take microseconds */
#define CLOSE_NS   WF_S
#define LOOK_TURNS 64 /* most turns between two looks at the descriptors: a system call each */
#define EVENTS     32

/* An address: the boot of the machine, then random bytes, then a version. */
#define BOOT    0
#define NAME    16
#define VERSION 32

/* ---- the address ---- */

static int read_boot_id(uint8_t ret_id[16])
{
	char text[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC), digits = 0;
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	memset(ret_id, 0, 16);
	for (ssize_t i = 0; i < got && digits < 32; i++) {
		const char *hex = "0123456789abcdef", *digit = text[i] ? strchr(hex, text[i]) : NULL;

		if (digit) {
			ret_id[digits / 2] = (uint8_t)(ret_id[digits / 2] << 4 | (digit - hex));
			digits++;
		}
	}
	return digits == 32 ? 0 : -ENODEV;
}

void wf_local_address(const struct wf_local *local, uint8_t ret_address[WF_LOCAL_ADDRESS])
{
	memcpy(ret_address, local->address, WF_LOCAL_ADDRESS);
}

bool wf_local_is_here(const struct wf_local *local, const uint8_t *address, size_t bytes)
{
	return bytes == WF_LOCAL_ADDRESS && !memcmp(address + BOOT, local->address + BOOT, NAME - BOOT) &&
	       !memcmp(address + VERSION, local->address + VERSION, WF_LOCAL_ADDRESS - VERSION);
}

/* Abstract: it begins with a zero byte, and no file system knows it. */
socklen_t wf_local_socket_name(const uint8_t *address, struct sockaddr_un *ret_name)
{
	static const char prefix[] = "weft-", hex[] = "0123456789abcdef";
	char *at = ret_name->sun_path + 1;

	*ret_name = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(at, prefix, sizeof(prefix) - 1);
	at += sizeof(prefix) - 1;
	for (int i = NAME; i < VERSION; i++) {
		*at++ = hex[address[i] >> 4];
		*at++ = hex[address[i] & 15];
	}
	return (socklen_t)(at - (char *)ret_name);
}

/* ---- opening and closing ---- */

int wf_local_watch(struct wf_local *local, int fd, enum wf_watched what, uint32_t index)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP, .data.u64 = (uint64_t)what << 32 | index };

	if (!epoll_ctl(local->epoll, EPOLL_CTL_ADD, fd, &event))
		return 0;
	/* A guest that got another number. */
	return errno == EEXIST && !epoll_ctl(local->epoll, EPOLL_CTL_MOD, fd, &event) ? 0 : -errno;
}

void wf_local_unwatch(struct wf_local *local, int *fd)
{
	if (*fd < 0)
		return;
	epoll_ctl(local->epoll, EPOLL_CTL_DEL, *fd, NULL);
	wf_closer_shut(local->closer, *fd);
	*fd = -1;
}

/* Those who have connected and were not accepted may have sent letters. */
static void stop_listening(struct wf_local *local)
{
	int socket;

	if (local->listener < 0)
		return;
	shutdown(local->listener, SHUT_RDWR); /* from here on nobody connects */
	while ((socket = accept4(local->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		wf_closer_shut(local->closer, socket);
	epoll_ctl(local->epoll, EPOLL_CTL_DEL, local->listener, NULL);
	close(local->listener);
	local->listener = -1;
}

int wf_local_listen(struct wf_local *local)
{
	struct sockaddr_un name;
	socklen_t bytes;
	uint64_t random[2];
	int error = wf_random(&random[0]);

	if (!error)
		error = wf_random(&random[1]);
	if (error)
		return error;
	memcpy(local->address + NAME, random, sizeof(random));
	bytes = wf_local_socket_name(local->address, &name);
	local->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (local->listener < 0)
		return -errno;
	if (bind(local->listener, (struct sockaddr *)&name, bytes) || listen(local->listener, BACKLOG) ||
	    wf_local_watch(local, local->listener, WF_WATCH_LISTENER, 0)) {
		error = -errno;
		close(local->listener);
		local->listener = -1;
	}
	return error;
}

static int prepare(struct wf_local *local, uint32_t receives)
{
	int error = read_boot_id(local->address + BOOT);

	local->address[VERSION] = WF_LETTER_VERSION;
	if (!error)
		error = wf_random(&local->proof[0]);
	if (!error)
		error = wf_random(&local->proof[1]);
	if (error)
		return error;
	local->receive_room = receives;
	local->receive = calloc(receives, sizeof(*local->receive));
	if (!local->receive)
		return -ENOMEM;
	local->closer = wf_closer_make();
	if (!local->closer)
		return -ENOMEM;
	local->epoll = epoll_create1(EPOLL_CLOEXEC);
	return local->epoll < 0 ? -errno : wf_local_memory_open(&local->memory);
}

int wf_local_open(uint32_t receives, const struct wf_log *log, struct wf_local **ret_local)
{
	struct wf_local *local = calloc(1, sizeof(*local));
	int error;

	if (!local)
		return -ENOMEM;
	local->log = log;
	local->epoll = local->listener = local->memory.share.fd = -1;
	pthread_mutex_init(&local->guests_lock, NULL);
	pthread_mutex_init(&local->copiers_lock, NULL);
	wf_list_init(&local->waiting);
	wf_list_init(&local->landed);
	error = prepare(local, receives);
	if (error) {
		wf_local_close(local);
		return error;
	}
	*ret_local = local;
	return 0;
}

void wf_local_use_devices(struct wf_local *local, struct wf_devices *devices)
{
	local->devices = devices;
}

bool wf_local_take_back(struct wf_local *local, int end)
{
	bool over;

	wf_copies_fail(local, NULL, 0);
	wf_cargo_fail(local, NULL);
	over = wf_cargo_settle(local, SETTLE_NS);
	for (uint32_t i = 0; i < local->line_room; i++) {
		struct wf_line *line = local->line[i];

		if (!line)
			continue;
		line->users[end] = 0;
		if (!line->users[0] && !line->users[1])
			wf_line_free(line);
	}
	return over;
}

void wf_local_leave(struct wf_local *local)
{
	for (int end = 0; end < WF_LOCAL_ENDS; end++)
		(void)wf_local_take_back(local, end);
	while (local->guests)
		wf_guest_leave(local->guest[local->guests - 1]);
	stop_listening(local);
	local->deaf = false;
	local->receives = local->receive_first = 0;
	local->ends = local->end_first = local->posted = 0;
}

void wf_local_close(struct wf_local *local)
{
	if (!local)
		return;
	wf_local_leave(local);
	wf_cargo_settle(local, CLOSE_NS);
	wf_cargo_close(local);
	if (local->memory.region)
		wf_local_memory_close(&local->memory);
	if (local->epoll >= 0)
		close(local->epoll);
	wf_closer_leave(local->closer);
	pthread_mutex_destroy(&local->guests_lock);
	pthread_mutex_destroy(&local->copiers_lock);
	free(local->line);
	free(local->guest);
	free(local->receive);
	free(local);
}

/* ---- memory ---- */

int wf_local_register(struct wf_local *local, void *base, uint64_t bytes, uint32_t access,
		      const struct wf_local_file *file, uint64_t *ret_key)
{
	return wf_local_memory_add(&local->memory, base, bytes, access, file, ret_key);
}

int wf_local_register_device(struct wf_local *local, const struct wf_device_memory *device, uint32_t access,
			     uint64_t *ret_key)
{
	return wf_local_memory_add_device(&local->memory, device, access, ret_key);
}

bool wf_local_unregister(struct wf_local *local, uint64_t key)
{
	return wf_guests_await(local, wf_local_memory_end(&local->memory, key));
}

/* ---- frames ---- */

WF_HOT int wf_local_receive(struct wf_local *local, void *context, void *buffer, size_t bytes)
{
	uint32_t at = local->receive_first + local->receives;

	if (local->receives == local->receive_room)
		return -EAGAIN;
	local->receive[at < local->receive_room ? at : at - local->receive_room] =
	    (struct wf_posted_receive){ context, buffer, bytes };
	local->receives++;
	return 0;
}

/* ---- the turn ---- */

static void look_at(struct wf_local *local, enum wf_watched what, uint32_t index)
{
	struct wf_line *line = index < local->line_room ? local->line[index] : NULL;

	if (what == WF_WATCH_LISTENER)
		wf_guests_accept(local);
	else if (what == WF_WATCH_GUEST && index < local->guests)
		wf_guest_readable(local->guest[index]);
	else if (what == WF_WATCH_LINE && line)
		wf_line_readable(line);
	else if (what == WF_WATCH_PROCESS && line)
		wf_line_process_ended(line);
}

/* An event may belong to a descriptor that was closed meanwhile. The new owner of its number then reads in vain. */
static void look(struct wf_local *local)
{
	struct epoll_event event[EVENTS];
	int got = epoll_wait(local->epoll, event, EVENTS, 0);

	for (int i = 0; i < got; i++)
		look_at(local, (enum wf_watched)(event[i].data.u64 >> 32), (uint32_t)event[i].data.u64);
}

static int tell_died(struct wf_local *local, struct wf_local_end *ends, int max)
{
	int count = 0;

	for (uint32_t i = 0; i < local->line_room && count < max && local->died; i++) {
		struct wf_line *line = local->line[i];

		if (!line || !line->died)
			continue;
		line->died = false;
		local->died--;
		ends[count++] = (struct wf_local_end){ .status = -EHOSTDOWN, .bytes = wf_line_target(line) };
	}
	return count;
}

static int tell_ends(struct wf_local *local, struct wf_local_end *ends, int max)
{
	int count = 0;

	for (; count < max && local->ends; count++) {
		ends[count] = local->end[local->end_first % WF_LOCAL_OPS];
		local->end_first++;
		local->ends--;
		local->posted--;
	}
	return count;
}

WF_HOT int wf_local_poll(struct wf_local *local, struct wf_local_end *ends, int max)
{
	uint64_t tick = wf_tick_ns();
	int count;

	if (local->slept || ++local->turns >= LOOK_TURNS || tick != local->tick_ns) {
		local->tick_ns = tick;
		local->turns = 0;
		local->slept = false;
		atomic_store_explicit(&local->memory.board->asleep, 0, memory_order_relaxed);
		look(local);
	}
	count = wf_guests_read(local, ends, max);
	if (__builtin_expect(local->died != 0, 0))
		count += tell_died(local, ends + count, max - count);
	if (local->jobs || local->cargoes)
		wf_local_go(local);
	return local->ends ? count + tell_ends(local, ends + count, max - count) : count;
}

void wf_local_sweep(struct wf_local *local)
{
	if (local->deaf && !wf_closer_is_full(local->closer))
		local->deaf = wf_local_watch(local, local->listener, WF_WATCH_LISTENER, 0) != 0;
	wf_guests_sweep(local);
	for (uint32_t i = 0; i < local->line_room; i++)
		if (local->line[i])
			wf_opened_sweep(local->line[i]);
}

int wf_local_wait_fd(const struct wf_local *local)
{
	return local->epoll;
}

int wf_local_try_wait(struct wf_local *local)
{
	struct pollfd letters = { .fd = local->epoll, .events = POLLIN };

	if (local->jobs || local->ends || local->died || local->cargoes)
		return -EAGAIN;
	local->slept = true;
	/* Pairs with wf_line_ring(): we see the record, or its writer sees that we sleep. */
	atomic_store(&local->memory.board->asleep, 1);
	atomic_thread_fence(memory_order_seq_cst);
	/* What was announced once and read in part is not announced again. */
	return wf_guests_any(local) || poll(&letters, 1, 0) == 1 ? -EAGAIN : 0;
}
