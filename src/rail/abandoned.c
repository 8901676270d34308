/*
 * Closes connections to addresses that nobody uses any more. libfabric connects when something is first sent to an
 * address and keeps that connection when the address leaves its vector: a peer that makes us send to many addresses
 * would use up the process's descriptors. This file shuts such a connection down. libfabric takes that for a peer that
 * has left, and closes the connection.
 *
 * The kernel tells which sockets belong to libfabric and this rail: those in the set (epoll) that the rail's domain
 * waits on, which is the set with the socket at which the published endpoint listens. It holds neither the
 * application's sockets nor another engine's. A socket in it is abandoned if we connected it (its port is not one at
 * which we listen) to an address that neither endpoint's vector holds. All of this is safe because it runs on the
 * worker that owns the rail, and only that worker makes libfabric open or close these descriptors. Where the kernel
 * does not tell, nothing is closed.
 */
#include "rail/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOKED_AT  1024 /* sockets per call */
#define LINE       256  /* longest line that the kernel writes */
#define FIND_AGAIN 100  /* calls until the next search, if the set was not found */
#define PROGRESS   4    /* how often libfabric gets to look at what was shut down */

union name {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

struct wf_abandoned {
	int set; /* its /proc/self/fdinfo/ file, opened early because later there may be no descriptor left; -1: not found */
	uint32_t wait;    /* calls until the next search */
	uint32_t removed; /* addresses removed since the last pass began */
	uint32_t found;   /* abandoned sockets in this pass … */
	uint32_t left;    /* … and in the last pass; 0 means that all are closed */
	bool passing;
	size_t kept; /* bytes of text not parsed yet */
	char text[4096 + 1];
};

/* ---- names ---- */

static bool same_host(const union name *a, const union name *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return false;
	if (a->any.sa_family == AF_INET)
		return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
	return a->any.sa_family == AF_INET6 && !memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof(a->v6.sin6_addr));
}

static uint16_t port_of(const union name *name)
{
	return name->any.sa_family == AF_INET ? name->v4.sin_port : name->v6.sin6_port;
}

static bool door_of(const struct wf_rail *rail, enum wf_end end, union name *ret_name)
{
	size_t bytes = sizeof(*ret_name);

	memset(ret_name, 0, sizeof(*ret_name));
	return rail->end[end].ep && !fi_getname(&rail->end[end].ep->fid, ret_name, &bytes);
}

/* The descriptor's owner may close it at this moment. The bare system call keeps ThreadSanitizer from reporting
 * that. */
static bool own_name(int fd, union name *ret_name)
{
	socklen_t bytes = sizeof(*ret_name);

	memset(ret_name, 0, sizeof(*ret_name));
	return !syscall(SYS_getsockname, fd, ret_name, &bytes) &&
	       (ret_name->any.sa_family == AF_INET || ret_name->any.sa_family == AF_INET6);
}

/* Also works for a socket that is still connecting, for which getpeername() fails. */
static bool peers_name(int fd, sa_family_t family, union name *ret_name)
{
	socklen_t bytes = family == AF_INET ? sizeof(ret_name->v4) : sizeof(ret_name->v6);

	memset(ret_name, 0, sizeof(*ret_name));
	return !syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERNAME, ret_name, &bytes) &&
	       ret_name->any.sa_family == family;
}

static bool is_socket(int fd, unsigned long inode)
{
	struct statx status;

	return !syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &status) &&
	       S_ISSOCK(status.stx_mode) && status.stx_ino == inode;
}

/* ---- the set that libfabric waits on ---- */

/* "tfd: 5 events: 19 data: ffff pos:0 ino:61ef sdev:1" */
static bool parse(const char *line, int *ret_fd, unsigned long *ret_inode)
{
	unsigned int events;
	unsigned long long data;
	long long position;

	return sscanf(line, "tfd: %d events: %x data: %llx pos:%lld ino:%lx", ret_fd, &events, &data, &position,
		      ret_inode) == 5;
}

/* Returns the next line, valid until the next call; NULL at the end, or if the text is not the kernel's. */
static char *next_line(struct wf_abandoned *abandoned, int fd, size_t *ret_bytes)
{
	char *end = memchr(abandoned->text, '\n', abandoned->kept);

	if (!end) {
		ssize_t got = abandoned->kept < LINE ? read(fd, abandoned->text + abandoned->kept,
							    sizeof(abandoned->text) - 1 - abandoned->kept)
						     : 0;

		if (got <= 0)
			return NULL;
		abandoned->kept += (size_t)got;
		end = memchr(abandoned->text, '\n', abandoned->kept);
		if (!end)
			return NULL;
	}
	*end = 0;
	*ret_bytes = (size_t)(end - abandoned->text) + 1;
	return abandoned->text;
}

static void line_read(struct wf_abandoned *abandoned, size_t bytes)
{
	abandoned->kept -= bytes;
	memmove(abandoned->text, abandoned->text + bytes, abandoned->kept);
}

static bool listens_at(struct wf_abandoned *abandoned, int set, const union name *door)
{
	bool listens = false;
	size_t bytes;
	char *line;

	abandoned->kept = 0;
	while (!listens && (line = next_line(abandoned, set, &bytes))) {
		unsigned long inode;
		union name name;
		int fd, listening = 0;
		socklen_t room = sizeof(listening);

		listens = parse(line, &fd, &inode) && is_socket(fd, inode) && own_name(fd, &name) &&
			  same_host(&name, door) && port_of(&name) == port_of(door) &&
			  !syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &room) && listening;
		line_read(abandoned, bytes);
	}
	abandoned->kept = 0;
	return listens;
}

static int open_set(struct wf_abandoned *abandoned, const char *number, const union name *door)
{
	char path[64], target[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%.16s", number);
	if (readlink(path, target, sizeof(target) - 1) < 0 || strcmp(target, "anon_inode:[eventpoll]"))
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%.16s", number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && !listens_at(abandoned, fd, door)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void find_set(struct wf_abandoned *abandoned, const struct wf_rail *rail)
{
	struct dirent *entry;
	union name door;
	DIR *descriptors;

	if (abandoned->wait) {
		abandoned->wait--;
		return;
	}
	abandoned->wait = FIND_AGAIN;
	descriptors = door_of(rail, WF_PUBLISHED, &door) ? opendir("/proc/self/fd") : NULL;
	while (descriptors && abandoned->set < 0 && (entry = readdir(descriptors)))
		abandoned->set = open_set(abandoned, entry->d_name, &door);
	if (descriptors)
		closedir(descriptors);
}

/* ---- judging ---- */

/* Finds the name at once if it is spelled as the kernel spells it. Addresses that a peer spelled otherwise are
 * compared one by one. */
static bool is_used(struct wf_rail *rail, const union name *peer)
{
	uint8_t bytes = (uint8_t)(peer->any.sa_family == AF_INET ? sizeof(peer->v4) : sizeof(peer->v6));

	for (enum wf_end end = 0; end < WF_ENDS; end++)
		if (wf_addresses_have(&rail->end[end].addresses, (const uint8_t *)peer, bytes))
			return true;
	for (enum wf_end end = 0; end < WF_ENDS; end++)
		for (uint32_t i = 0; i < rail->end[end].addresses.count; i++) {
			const struct wf_address *entry = &rail->end[end].addresses.entry[i];
			union name name = { 0 };

			memcpy(&name, entry->address, entry->bytes < sizeof(name) ? entry->bytes : sizeof(name));
			if (same_host(&name, peer) && port_of(&name) == port_of(peer))
				return true;
		}
	return false;
}

static bool is_abandoned(struct wf_rail *rail, const union name *doors, uint32_t count, int fd, unsigned long inode)
{
	union name own, peer;

	if (!is_socket(fd, inode) || !own_name(fd, &own) || !same_host(&own, &doors[0]))
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (port_of(&own) == port_of(&doors[i]))
			return false; /* the listener, or a connection that a peer made to it */
	return peers_name(fd, own.any.sa_family, &peer) && !is_used(rail, &peer);
}

/* Reading nothing makes libfabric look at its sockets. errno is cleared, because libfabric takes an old value for
 * the reason why a connection ended. */
static void progress(struct wf_rail *rail)
{
	struct fi_cq_data_entry none;

	for (int i = 0; rail->cq && i < PROGRESS; i++) {
		errno = 0;
		fi_cq_read(rail->cq, &none, 0);
	}
}

/* ---- for the worker ---- */

static void look(struct wf_rail *rail, struct wf_abandoned *abandoned)
{
	uint32_t count = 0, shut = 0;
	union name doors[WF_ENDS];
	size_t bytes = 0;
	char *line = NULL;

	if (!door_of(rail, WF_PUBLISHED, &doors[count++]))
		return;
	count += door_of(rail, WF_OUTGOING, &doors[count]);
	for (int i = 0; i < LOOKED_AT && (line = next_line(abandoned, abandoned->set, &bytes)); i++) {
		unsigned long inode;
		int fd;

		if (parse(line, &fd, &inode) && is_abandoned(rail, doors, count, fd, inode)) {
			shutdown(fd, SHUT_RDWR);
			shut++;
		}
		line_read(abandoned, bytes);
	}
	abandoned->found += shut;
	if (!line) {
		abandoned->passing = false;
		abandoned->left = abandoned->found;
	}
	if (shut)
		progress(rail);
}

void wf_rail_close_abandoned(struct wf_rail *rail)
{
	struct wf_abandoned *abandoned = rail->abandoned;

	if (!abandoned)
		return;
	if (abandoned->set < 0)
		find_set(abandoned, rail);
	if (abandoned->set < 0)
		return;
	if (!abandoned->passing) {
		if (!abandoned->removed && !abandoned->left)
			return;
		if (lseek(abandoned->set, 0, SEEK_SET))
			return;
		abandoned->removed = abandoned->found = 0;
		abandoned->kept = 0;
		abandoned->passing = true;
	}
	look(rail, abandoned);
}

uint32_t wf_rail_abandoned(const struct wf_rail *rail)
{
	const struct wf_abandoned *abandoned = rail->abandoned;

	return abandoned && abandoned->set >= 0 ? abandoned->removed + abandoned->left : 0;
}

/* ---- for rail.c ---- */

struct wf_abandoned *wf_abandoned_open(void)
{
	struct wf_abandoned *abandoned = calloc(1, sizeof(*abandoned));

	if (abandoned)
		abandoned->set = -1;
	return abandoned;
}

void wf_abandoned_removed(struct wf_abandoned *abandoned)
{
	if (abandoned)
		abandoned->removed++;
}

void wf_abandoned_close(struct wf_abandoned *abandoned)
{
	if (abandoned && abandoned->set >= 0)
		close(abandoned->set);
	free(abandoned);
}
