/*
 * Connections of strangers: port scanners, health checks, whoever connects to a rail's port and does not speak libfabric. libfabric
 * accepts them and waits for their first bytes for ever, 1.17 loses track of many that leave again, and both hold a
 * descriptor each until the process has none left. Worse, an endpoint that is closed meanwhile leaves them with a pointer to freed memory.
 *
 * A connection is a stranger's while nothing was ever sent on it: libfabric answers a peer's request at once. One that is silent for
 * too long is shut down, which makes libfabric close it; one that libfabric still has not closed many passes later is lost
 * to it, and is closed here. All of this is safe because only the worker that owns the rail, on which this runs, makes
 * libfabric open or close these descriptors.
 */
#include "rail/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DOORS	       (2 * 64)  /* endpoints of a group's rails */
#define LOOKED_AT      512       /* descriptors in one go */
#define PASS_NS	       UINT64_C(1000000000)
#define SILENT_MS      5000u
#define CROWD	       64        /* so many at once: no more patience … */
#define SILENT_CROWD_MS 250u     /* … than this */
#define SHUT_STEP      1024u     /* by so many descriptors what is remembered grows */
#define LOST_TURNS     10u       /* of libfabric's progress after it was shut down */
#define EVENTS_A_TURN  128u      /* that libfabric sees to, 2.x; 1.17: 1024 */
#define TCP_STATE_LISTEN 10      /* <netinet/tcp.h>, which <linux/tcp.h> excludes */

/* The address an endpoint listens at. */
union door {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* A connection that was shut down. */
struct shut {
	uint64_t cookie; /* which connection it was: descriptors are used again */
	uint32_t turn;   /* in which it was shut down */
};

struct wf_strangers {
	DIR *descriptors; /* of this process: opened early, for later there may be none left to open it with */
	uint32_t doors, turns, found, before; /* found: in this pass; before: in the last */
	uint64_t next_ns; /* the next pass */
	bool passing, no_room;
	union door door[DOORS];
	struct shut *shut; /* by descriptor: as many as the highest of a stranger's asked for */
	uint32_t shut_room;
};

static bool is_name_of(const union door *door, const struct sockaddr_storage *name)
{
	if (name->ss_family != door->any.sa_family)
		return false;
	if (name->ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)name;

		return v4->sin_port == door->v4.sin_port && v4->sin_addr.s_addr == door->v4.sin_addr.s_addr;
	}
	return ((const struct sockaddr_in6 *)name)->sin6_port == door->v6.sin6_port &&
	       !memcmp(&((const struct sockaddr_in6 *)name)->sin6_addr, &door->v6.sin6_addr, sizeof(struct in6_addr));
}

static bool is_at(const union door *door, uint32_t doors, int fd)
{
	struct sockaddr_storage name;
	socklen_t bytes = sizeof(name);

	/* Of anybody's descriptor, which its owner may close just now: the bare call, which ThreadSanitizer does not take for use. */
	if (syscall(SYS_getsockname, fd, &name, &bytes))
		return false;
	for (uint32_t i = 0; i < doors; i++)
		if (is_name_of(&door[i], &name))
			return true;
	return false;
}

static bool take_door(const struct wf_rail *rail, enum wf_end end, union door *door)
{
	size_t bytes = sizeof(*door);

	memset(door, 0, sizeof(*door));
	return rail->quirks && rail->quirks->sockets && rail->end[end].ep && !fi_getname(&rail->end[end].ep->fid, door, &bytes);
}

/* The first bytes of whoever speaks may still lie unread in the socket. */
static bool is_strangers(int fd, struct tcp_info *info)
{
	socklen_t bytes = sizeof(*info);
	int unread = 0;

	memset(info, 0, sizeof(*info));
	return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &bytes) && info->tcpi_state != TCP_STATE_LISTEN &&
	       bytes >= offsetof(struct tcp_info, tcpi_data_segs_out) + sizeof(info->tcpi_data_segs_out) &&
	       !info->tcpi_data_segs_out && !ioctl(fd, FIONREAD, &unread) && !unread;
}

/* ---- now and then ---- */

struct wf_strangers *wf_strangers_open(void)
{
	struct wf_strangers *strangers = calloc(1, sizeof(*strangers));

	if (strangers && !(strangers->descriptors = opendir("/proc/self/fd"))) {
		free(strangers);
		return NULL;
	}
	return strangers;
}

void wf_strangers_close(struct wf_strangers *strangers)
{
	if (!strangers)
		return;
	closedir(strangers->descriptors);
	free(strangers->shut);
	free(strangers);
}

/* What is remembered of a descriptor; NULL: no memory, and a later pass tries again. */
static struct shut *shut_of(struct wf_strangers *strangers, int fd)
{
	uint32_t room = ((uint32_t)fd / SHUT_STEP + 1) * SHUT_STEP;
	struct shut *shut;

	if (room > strangers->shut_room) {
		shut = realloc(strangers->shut, room * sizeof(*shut));
		if (!shut)
			return NULL;
		memset(shut + strangers->shut_room, 0, (room - strangers->shut_room) * sizeof(*shut));
		strangers->shut = shut;
		strangers->shut_room = room;
	}
	return &strangers->shut[fd];
}

/* Turns after which libfabric has seen to every socket that it watches, also where all strangers are ready at once. */
static uint32_t lost_turns(const struct wf_strangers *strangers)
{
	return LOST_TURNS + (strangers->before + strangers->found) / EVENTS_A_TURN;
}

/* 1 for one that is shut down now, once in its life. */
static uint32_t judge(struct wf_strangers *strangers, int fd)
{
	uint32_t limit = strangers->before > CROWD || strangers->found > CROWD ? SILENT_CROWD_MS : SILENT_MS;
	struct shut *shut;
	struct tcp_info info;
	uint64_t cookie = 0;
	socklen_t bytes = sizeof(cookie);

	if (!is_strangers(fd, &info) || getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) ||
	    !(shut = shut_of(strangers, fd)))
		return 0;
	strangers->found++;
	if (shut->cookie == cookie) {
		if (strangers->turns - shut->turn < lost_turns(strangers))
			return 0;
		shut->cookie = 0;
		close(fd);
		return 0;
	}
	if (info.tcpi_last_data_recv < limit)
		return 0;
	shutdown(fd, SHUT_RDWR);
	shut->cookie = cookie;
	shut->turn = strangers->turns;
	return 1;
}

bool wf_strangers_no_room(const struct wf_strangers *strangers)
{
	return strangers->no_room;
}

/* Whether the process can still open anything, and libfabric accept anyone. */
static void look_for_room(struct wf_strangers *strangers)
{
	int fd = fcntl(dirfd(strangers->descriptors), F_DUPFD_CLOEXEC, 0);

	strangers->no_room = fd < 0 && errno == EMFILE;
	if (fd >= 0)
		close(fd);
}

uint32_t wf_strangers_look(struct wf_strangers *strangers, struct wf_rail *const *rails, uint32_t count, uint64_t now_ns)
{
	uint32_t closed = 0;

	strangers->turns++;
	if (!strangers->passing) {
		if (now_ns < strangers->next_ns && strangers->before <= CROWD)
			return 0;
		look_for_room(strangers);
		rewinddir(strangers->descriptors);
		strangers->passing = true;
		strangers->next_ns = now_ns + PASS_NS;
	}
	strangers->doors = 0;
	for (uint32_t i = 0; i < count; i++)
		for (enum wf_end end = 0; end < WF_ENDS; end++)
			if (rails[i] && strangers->doors < DOORS && take_door(rails[i], end, &strangers->door[strangers->doors]))
				strangers->doors++;
	for (int i = 0; i < LOOKED_AT; i++) {
		struct dirent *entry = readdir(strangers->descriptors);
		int fd = entry ? atoi(entry->d_name) : -1;
		if (!entry) {
			strangers->passing = false;
			strangers->before = strangers->found;
			strangers->found = 0;
			break;
		}
		if (fd > 2 && is_at(strangers->door, strangers->doors, fd))
			closed += judge(strangers, fd);
	}
	return closed;
}

/* ---- before an endpoint is closed ---- */

void wf_strangers_leave(struct wf_rail *rail, enum wf_end end)
{
	struct fi_cq_data_entry none;
	union door door;
	struct dirent *entry;
	DIR *descriptors = take_door(rail, end, &door) ? opendir("/proc/self/fd") : NULL;

	if (!descriptors)
		return;
	while ((entry = readdir(descriptors))) {
		int fd = atoi(entry->d_name);
		struct tcp_info info;

		if (fd > 2 && is_at(&door, 1, fd) && (is_strangers(fd, &info) || info.tcpi_state == TCP_STATE_LISTEN))
			shutdown(fd, SHUT_RDWR); /* the listener too: nobody comes after this */
	}
	closedir(descriptors);
	/* Reading nothing makes libfabric look at its sockets. It takes an old errno for why a connection ended. */
	for (int i = 0; rail->cq && i < 4; i++) {
		errno = 0;
		fi_cq_read(rail->cq, &none, 0);
	}
}
