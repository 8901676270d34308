/* Asking the peer's data ports, one plain connection each. */
#include "reach.h"
#include "../common/control.h"

#include "wire/blob.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN = 4 };

void bench_reach_read(struct bench_reach *reach, const void *blob, size_t bytes)
{
	static struct wf_wire_address address; /* some kilobytes */

	reach->count = 0;
	if (wf_blob_unpack_address(blob, bytes, &address) < 0)
		return;
	for (uint32_t i = 0; i < address.count && reach->count < BENCH_REACH_MAX; i++) {
		const struct wf_wire_rail *rail = &address.rail[i];
		struct bench_place *place = &reach->place[reach->count];
		struct sockaddr family;

		/* Only these are known to be socket addresses. */
		if (strcmp(rail->provider, "tcp") != 0 || rail->address_bytes < sizeof family ||
		    rail->address_bytes > sizeof place->at)
			continue;
		memcpy(&place->at, rail->address, rail->address_bytes);
		place->length = rail->address_bytes;
		reach->count += place->at.ss_family == AF_INET || place->at.ss_family == AF_INET6;
	}
}

/* Only an address of this host can be bound. */
static bool is_own(const struct bench_place *place)
{
	struct sockaddr_storage at = place->at;
	int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool own;

	if (at.ss_family == AF_INET)
		((struct sockaddr_in *)&at)->sin_port = 0;
	else
		((struct sockaddr_in6 *)&at)->sin6_port = 0;
	own = fd >= 0 && bind(fd, (struct sockaddr *)&at, place->length) == 0;
	if (fd >= 0)
		close(fd);
	return own;
}

void bench_reach_drop_own(struct bench_reach *reach)
{
	struct bench_reach others = { .count = 0 };

	for (uint32_t i = 0; i < reach->count; i++) {
		if (!is_own(&reach->place[i]))
			others.place[others.count++] = reach->place[i];
	}
	if (others.count)
		*reach = others;
}

static void name_place(const struct bench_place *place, char *text, size_t room)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (getnameinfo((const struct sockaddr *)&place->at, place->length, host, sizeof host, port, sizeof port,
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		snprintf(text, room, "?");
	else
		snprintf(text, room, place->at.ss_family == AF_INET6 ? "[%.60s]:%.6s" : "%.60s:%.6s", host, port);
}

/* Those whose connection ended so; -1: all. */
static uint32_t list(const struct bench_reach *reach, int error, char *text, size_t room)
{
	uint32_t total = 0, shown = 0;
	size_t used = 0;
	char name[80];

	for (uint32_t i = 0; i < reach->count; i++)
		total += error < 0 || reach->place[i].error == error;
	text[0] = '\0';
	for (uint32_t i = 0; i < reach->count && shown < SHOWN; i++) {
		if (error >= 0 && reach->place[i].error != error)
			continue;
		name_place(&reach->place[i], name, sizeof name);
		used += (size_t)snprintf(text + used, room - used, "%s%s",
					 !shown               ? ""
					 : shown + 1 == total ? " and "
							      : ", ",
					 name);
		shown++;
		if (used >= room)
			return total;
	}
	if (shown < total)
		snprintf(text + used, room - used, " and %u more", total - shown);
	return total;
}

char *bench_reach_list(const struct bench_reach *reach, char *text, size_t room)
{
	list(reach, -1, text, room);
	return text;
}

static void begin(struct bench_place *place, struct pollfd *waiting)
{
	*waiting = (struct pollfd){ .fd = socket(place->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
				    .events = POLLOUT };
	place->error = ETIMEDOUT;
	if (waiting->fd < 0 ||
	    (connect(waiting->fd, (struct sockaddr *)&place->at, place->length) < 0 && errno != EINPROGRESS))
		place->error = errno;
}

void bench_reach_look(struct bench_reach *reach, uint64_t limit_ns)
{
	struct pollfd waiting[BENCH_REACH_MAX];
	uint64_t deadline = cmd_now_ns() + limit_ns, now;
	uint32_t left = 0;

	for (uint32_t i = 0; i < reach->count; i++) {
		begin(&reach->place[i], &waiting[i]);
		left += reach->place[i].error == ETIMEDOUT;
	}
	while (left && (now = cmd_now_ns()) < deadline) {
		if (poll(waiting, reach->count, (int)((deadline - now) / 1000000) + 1) < 0 && errno != EINTR)
			break;
		for (uint32_t i = 0; i < reach->count; i++) {
			socklen_t length = sizeof reach->place[i].error;

			if (waiting[i].fd < 0 || !waiting[i].revents || reach->place[i].error != ETIMEDOUT)
				continue;
			getsockopt(waiting[i].fd, SOL_SOCKET, SO_ERROR, &reach->place[i].error, &length);
			left--;
			close(waiting[i].fd);
			waiting[i].fd = -1;
		}
	}
	for (uint32_t i = 0; i < reach->count; i++) {
		if (waiting[i].fd >= 0)
			close(waiting[i].fd);
	}
}

/* For a reader on the peer's side these are the places of "this side", and we are "it". */
void bench_reach_say(const struct bench_reach *reach, const struct bench_reach *ours, bool to_peer, char *text,
		     size_t room)
{
	const char *whose = to_peer ? " of this side" : "";
	char names[400], own[400];
	size_t used;
	uint32_t dumb, refused, good;

	used = (size_t)snprintf(text, room, "%s",
				to_peer ? "it could open no data connection to this side"
					: "no data connection to the peer could be opened");
	dumb = list(reach, ETIMEDOUT, names, sizeof names);
	if (dumb)
		used += (size_t)snprintf(text + used, room - used, ": %s%s %s not answer", names, whose,
					 dumb > 1 ? "do" : "does");
	refused = list(reach, ECONNREFUSED, names, sizeof names);
	if (refused && used < room)
		used +=
		    (size_t)snprintf(text + used, room - used, "%s%s%s refused it", dumb ? ", " : ": ", names, whose);
	good = list(reach, 0, names, sizeof names);
	if (!dumb && !refused && good < reach->count && used < room)
		used += (size_t)snprintf(text + used, room - used, ": no route leads to %s%s",
					 bench_reach_list(reach, own, sizeof own), whose);
	if (used >= room)
		return;
	if (good)
		snprintf(text + used, room - used,
			 ", though %s%s %s connections; can %s reach %s of %s? A firewall must admit both "
			 "directions: --ports LOW-HIGH on each side names the ports",
			 names, whose, good > 1 ? "take" : "takes", to_peer ? "this side" : "the peer",
			 bench_reach_list(ours, own, sizeof own), to_peer ? "the peer" : "this side");
	else
		snprintf(text + used, room - used,
			 ". The control connection works, so a firewall may be in between: admit these ports, "
			 "or give both sides --ports LOW-HIGH and admit that range");
}
