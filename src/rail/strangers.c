/*
 * Handles connections of strangers: port scanners, health checks, and anything else that connects to a rail's port and
 * does not speak libfabric. libfabric accepts them and waits for their first bytes for ever; 1.17 loses track of many
 * that leave again. Each holds a descriptor until the process has none left. Worse, an endpoint that is closed
 * meanwhile leaves them with a pointer to freed memory.
 *
 * A connection is a stranger's while nothing was ever sent on it, because libfabric answers a peer's request in the
 * turn that reads it. A connection that is silent for too long is no peer's. Nor is one whose bytes libfabric leaves
 * unread: libfabric has read earlier bytes, did not answer, and never looks again. Unread bytes are judged by turns,
 * not by time, because a peer's request lies unread for long where this process was stopped. Such a connection is shut
 * down, which makes libfabric close it. If libfabric still has not closed it many turns later, libfabric has lost it,
 * and it is closed here. All of this is safe because it runs on the worker that owns the rail, and only that worker
 * makes libfabric open or close these descriptors.
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

#define RAILS            64 /* per group */
#define DOORS            (RAILS * WF_ENDS)
#define LOOKED_AT        512 /* descriptors per call */
#define PASS_NS          UINT64_C(1000000000)
#define SILENT_MS        5000u
#define CROWD            64    /* with more strangers than this, patience ends … */
#define SILENT_CROWD_MS  250u  /* … after this time */
#define KNOWN_STEP       1024u /* descriptors by which the memory of known ones grows */
#define LOST_TURNS       10u   /* turns of progress in which libfabric handles every socket that it still watches */
#define EVENTS_PER_TURN  128u  /* events that libfabric 2.x handles per turn; 1.17: 1024 */
#define TCP_STATE_LISTEN 10    /* from <netinet/tcp.h>, which <linux/tcp.h> excludes */

/* The address at which an endpoint listens. */
union door {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

enum state { QUIET, UNREAD, SHUT }; /* UNREAD: has bytes that libfabric did not read yet; SHUT: was shut down */

/* What is known about a descriptor. */
struct known {
	uint64_t cookie; /* identifies the connection, because descriptors are reused */
	uint32_t turn;   /* in which it entered this state */
	enum state state;
};

struct wf_strangers {
	DIR *descriptors; /* of this process; opened early, because later there may be no descriptor left */
	struct wf_rail *rail[RAILS];
	uint32_t rails, doors, turns, found, before; /* found: in this pass; before: in the last one */
	uint64_t next_ns;                            /* time of the next pass */
	bool passing, no_room;
	union door door[DOORS];
	struct known *known; /* by descriptor, up to the highest one of a stranger */
	uint32_t known_room;
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

	/* The descriptor's owner may close it at this moment. The bare system call keeps ThreadSanitizer from
	 * reporting that. */
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
	return rail->quirks && rail->quirks->sockets && rail->end[end].ep &&
	       !fi_getname(&rail->end[end].ep->fid, door, &bytes);
}

/* Bytes that still wait to be sent count as sent. */
static bool is_strangers(int fd, struct tcp_info *info)
{
	socklen_t bytes = sizeof(*info);

	memset(info, 0, sizeof(*info));
	return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &bytes) && info->tcpi_state != TCP_STATE_LISTEN &&
	       bytes >= offsetof(struct tcp_info, tcpi_data_segs_out) + sizeof(info->tcpi_data_segs_out) &&
	       !info->tcpi_data_segs_out && !info->tcpi_notsent_bytes;
}

static bool has_unread(int fd)
{
	int unread = 0;

	return ioctl(fd, FIONREAD, &unread) || unread;
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
	free(strangers->known);
	free(strangers);
}

void wf_strangers_watch(struct wf_strangers *strangers, struct wf_rail *rail)
{
	if (!strangers || strangers->rails == RAILS)
		return;
	strangers->rail[strangers->rails++] = rail;
	rail->strangers = strangers;
}

/* Returns NULL without memory; a later pass tries again. */
static struct known *known_of(struct wf_strangers *strangers, int fd, uint64_t cookie)
{
	uint32_t room = ((uint32_t)fd / KNOWN_STEP + 1) * KNOWN_STEP;
	struct known *known;

	if (room > strangers->known_room) {
		known = realloc(strangers->known, room * sizeof(*known));
		if (!known)
			return NULL;
		memset(known + strangers->known_room, 0, (room - strangers->known_room) * sizeof(*known));
		strangers->known = known;
		strangers->known_room = room;
	}
	known = &strangers->known[fd];
	if (known->cookie != cookie)
		*known = (struct known){ .cookie = cookie };
	return known;
}

static void now_is(struct wf_strangers *strangers, struct known *known, enum state state)
{
	if (known->state != state)
		known->turn = strangers->turns;
	known->state = state;
}

/* True after enough turns in one state for libfabric to have handled every socket that it watches, even if all
 * strangers were ready. */
static bool is_lost(const struct wf_strangers *strangers, const struct known *known)
{
	return strangers->turns - known->turn >= LOST_TURNS + (strangers->before + strangers->found) / EVENTS_PER_TURN;
}

/* Returns 1 when it shuts the connection down, once in its life. */
static uint32_t judge(struct wf_strangers *strangers, int fd)
{
	uint32_t limit = strangers->before > CROWD || strangers->found > CROWD ? SILENT_CROWD_MS : SILENT_MS;
	struct known *known;
	struct tcp_info info;
	uint64_t cookie = 0;
	socklen_t bytes = sizeof(cookie);

	if (!is_strangers(fd, &info) || getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) ||
	    !(known = known_of(strangers, fd, cookie)))
		return 0;
	strangers->found++;
	if (known->state == SHUT) {
		if (is_lost(strangers, known)) {
			known->cookie = 0;
			close(fd);
		}
		return 0;
	}
	now_is(strangers, known, has_unread(fd) ? UNREAD : QUIET);
	if (known->state == UNREAD ? !is_lost(strangers, known) : info.tcpi_last_data_recv < limit)
		return 0;
	/* Reading only: a peer's request that comes at this moment is still read, and can be answered. */
	shutdown(fd, SHUT_RD);
	now_is(strangers, known, SHUT);
	return 1;
}

bool wf_strangers_no_room(const struct wf_strangers *strangers)
{
	return strangers->no_room;
}

/* Notes whether the process can still open a descriptor, and so whether libfabric can accept anyone. */
static void look_for_room(struct wf_strangers *strangers)
{
	int fd = fcntl(dirfd(strangers->descriptors), F_DUPFD_CLOEXEC, 0);

	strangers->no_room = fd < 0 && errno == EMFILE;
	if (fd >= 0)
		close(fd);
}

uint32_t wf_strangers_look(struct wf_strangers *strangers, uint64_t now_ns)
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
	for (uint32_t i = 0; i < strangers->rails; i++)
		for (enum wf_end end = 0; end < WF_ENDS; end++)
			strangers->doors += take_door(strangers->rail[i], end, &strangers->door[strangers->doors]);
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

/* ---- when an endpoint is opened ---- */

#define PATIENCE_US 1000 /* the kernel rounds it up to a tick */

/* libfabric 1.17 reads a stranger's first bytes from a blocking socket, header and body one after the other: a
 * stranger that sends half of them would hold the worker for good. An accepted socket inherits this limit from the
 * listener. A peer's connection does not block once it is made. */
void wf_strangers_limit_reads(struct wf_rail *rail, enum wf_end end)
{
	const struct timeval limit = { 0, PATIENCE_US };
	struct dirent *entry;
	struct tcp_info info;
	union door door;
	DIR *descriptors;

	if (!take_door(rail, end, &door) || !(descriptors = opendir("/proc/self/fd")))
		return;
	while ((entry = readdir(descriptors))) {
		int fd = atoi(entry->d_name);

		if (fd > 2 && is_at(&door, 1, fd) && !is_strangers(fd, &info) && info.tcpi_state == TCP_STATE_LISTEN)
			setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	}
	closedir(descriptors);
}

/* ---- before an endpoint is closed ---- */

/* The doors of endpoints that are about to close. */
struct leaving {
	union door door[WF_ENDS];
	int listener[WF_ENDS];
	uint32_t doors, listeners;
	uint32_t strangers, descriptors; /* strangers found there; descriptors of the process */
};

static void for_all_at(struct leaving *leaving, DIR *descriptors, void (*act)(struct leaving *leaving, int fd))
{
	struct dirent *entry;

	rewinddir(descriptors);
	while ((entry = readdir(descriptors))) {
		int fd = atoi(entry->d_name);

		leaving->descriptors++;
		if (fd > 2 && is_at(leaving->door, leaving->doors, fd))
			act(leaving, fd);
	}
}

/* Includes the listener, so nobody comes after this. The next turn reads and answers those that have spoken. */
static void turn_away(struct leaving *leaving, int fd)
{
	struct tcp_info info;

	if (is_strangers(fd, &info)) {
		leaving->strangers++;
		if (!has_unread(fd))
			shutdown(fd, SHUT_RD);
	} else if (info.tcpi_state == TCP_STATE_LISTEN && leaving->listeners < WF_ENDS) {
		leaving->listener[leaving->listeners++] = fd;
		shutdown(fd, SHUT_RDWR);
	}
}

/* libfabric has lost what it still holds now, and nobody would look at this door again. */
static void close_lost(struct leaving *leaving, int fd)
{
	struct tcp_info info;

	for (uint32_t i = 0; i < leaving->listeners; i++)
		if (leaving->listener[i] == fd) /* libfabric closes it with the endpoint */
			return;
	if (is_strangers(fd, &info))
		close(fd);
}

static void leave(struct wf_rail *rail, struct leaving *leaving, DIR *descriptors)
{
	struct fi_cq_data_entry none;

	for_all_at(leaving, descriptors, turn_away);
	if (!leaving->strangers)
		return;
	/* Reading nothing makes libfabric look at its sockets. errno is cleared, because libfabric takes an old
	 * value for the reason why a connection ended. */
	for (uint32_t i = 0; i < LOST_TURNS + leaving->descriptors / EVENTS_PER_TURN; i++) {
		errno = 0;
		fi_cq_read(rail->cq, &none, 0);
	}
	for_all_at(leaving, descriptors, close_lost);
}

/* Includes the outgoing endpoint: no peer connects to it, but libfabric listens there too, and scanners find it. */
void wf_strangers_leave(struct wf_rail *rail, enum wf_end which)
{
	struct leaving leaving = { 0 };
	DIR *own = NULL;

	for (enum wf_end end = which; end < WF_ENDS; end++)
		leaving.doors += take_door(rail, end, &leaving.door[leaving.doors]);
	if (!leaving.doors)
		return;
	if (!rail->strangers && !(own = opendir("/proc/self/fd")))
		return;
	leave(rail, &leaving, own ? own : rail->strangers->descriptors);
	if (own)
		closedir(own);
	else
		rail->strangers->passing = false; /* the pass was disturbed: start again */
}
