/*
 * Finds which device the kernel sends by. A rail over sockets is only a source address, and the kernel routes by
 * destination: the rail's device carries the traffic only if the route from that address leaves by that device.
 * rtnetlink answers by the same rules and tables as apply to the socket's own packets; a question takes microseconds.
 * Finding which devices have the rails' addresses takes longer on a host with many devices, so that happens once per
 * change of the tables. A struct wf_routes belongs to one worker; any thread may call wf_route_between() and
 * wf_address_text().
 */
#include "rail/internal.h"
#include "wire/blob.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRIES        2    /* the second on a new socket */
#define LISTING_MOST 4096 /* datagrams, of about a hundred addresses each */
#define HEARD_MOST   512  /* more than the watching socket holds */

/* An internet address without its port: family, bytes, length. */
struct host {
	uint8_t family, bytes;
	uint8_t address[16];
};

/* One of our addresses and the device that has it. */
struct own {
	struct host host;
	struct link {
		/* 0: no device that could carry anything (lo, a dummy), or an address that lo has without listing it */
		uint32_t device;
		bool runs;
	} link, listed;   /* the known link, and the one found by the listing in progress */
	uint32_t changes; /* how often link changed */
};

struct wf_routes {
	int watch;       /* socket that hears of changes; -1: none */
	int fd;          /* socket for questions; -1: the next question opens it */
	uint32_t number; /* of the last question; its answer repeats it */
	bool listed;     /* own[].link matches the tables */
	bool unanswered; /* a question had no answer since changes were last asked for */
	uint32_t count;
	struct own own[WF_MAX_RAILS];
	_Alignas(struct nlmsghdr) char answer[8192]; /* the largest datagram of a listing fits */
};

/* The address may be unaligned: it comes from a peer. */
static bool take_host(const void *sockaddr, size_t bytes, struct host *host)
{
	struct sockaddr_in6 v6 = { 0 };
	struct sockaddr_in v4 = { 0 };

	memset(host, 0, sizeof(*host));
	memcpy(&v4, sockaddr, bytes < sizeof(v4) ? bytes : sizeof(v4));
	if (bytes >= sizeof(v4) && v4.sin_family == AF_INET) {
		host->bytes = sizeof(v4.sin_addr);
		memcpy(host->address, &v4.sin_addr, host->bytes);
	} else if (bytes >= sizeof(v6) && v4.sin_family == AF_INET6) {
		memcpy(&v6, sockaddr, sizeof(v6));
		host->bytes = sizeof(v6.sin6_addr);
		memcpy(host->address, &v6.sin6_addr, host->bytes);
	}
	host->family = (uint8_t)v4.sin_family;
	return host->bytes;
}

/* ---- asking ---- */

/* Drops the socket, so that what is left to be read there answers no later question. */
static void leave(struct wf_routes *routes)
{
	if (routes->fd >= 0)
		close(routes->fd);
	routes->fd = -1;
}

static bool ask(struct wf_routes *routes, struct nlmsghdr *question)
{
	question->nlmsg_seq = ++routes->number;
	if (routes->fd < 0)
		routes->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	return routes->fd >= 0 && send(routes->fd, question, question->nlmsg_len, 0) == (ssize_t)question->nlmsg_len;
}

/* The kernel has answered by the time that send() returns, and continues a listing while we read. Returns NULL if it
 * has not, or if the message does not answer the last question. */
static struct nlmsghdr *hear(struct wf_routes *routes, size_t *ret_bytes)
{
	struct nlmsghdr *header = (struct nlmsghdr *)routes->answer;
	ssize_t got = recv(routes->fd, routes->answer, sizeof(routes->answer), MSG_DONTWAIT | MSG_TRUNC);

	if (got < (ssize_t)sizeof(*header) || (size_t)got > sizeof(routes->answer) || !NLMSG_OK(header, (size_t)got) ||
	    header->nlmsg_seq != routes->number)
		return NULL;
	*ret_bytes = (size_t)got;
	return header;
}

/* ---- the devices of our addresses ---- */

static bool name_of(const struct wf_routes *routes, uint32_t device, struct ifreq *request)
{
	memset(request, 0, sizeof(*request));
	request->ifr_ifindex = (int)device;
	return routes->fd >= 0 && !ioctl(routes->fd, SIOCGIFNAME, request);
}

/* If the device cannot be asked any more, a change will be announced. */
static struct link link_of(const struct wf_routes *routes, uint32_t device)
{
	struct link link = { device, true };
	struct ifreq request;

	if (!name_of(routes, device, &request) || ioctl(routes->fd, SIOCGIFFLAGS, &request))
		return link;
	link.runs = request.ifr_flags & IFF_RUNNING;
	if ((request.ifr_flags & IFF_LOOPBACK) ||
	    ((request.ifr_flags & IFF_NOARP) && !(request.ifr_flags & IFF_POINTOPOINT)))
		link.device = 0;
	return link;
}

/* IFA_LOCAL is our address, or IFA_ADDRESS if there is none. The first device that has it counts. */
static void list_address(struct wf_routes *routes, struct nlmsghdr *header)
{
	struct ifaddrmsg *message = NLMSG_DATA(header);
	struct rtattr *at = IFA_RTA(message), *found = NULL;

	for (int left = (int)IFA_PAYLOAD(header); RTA_OK(at, left); at = RTA_NEXT(at, left))
		if (at->rta_type == IFA_LOCAL || (at->rta_type == IFA_ADDRESS && !found))
			found = at;
	for (uint32_t i = 0; found && i < routes->count; i++) {
		struct own *own = &routes->own[i];

		if (!own->listed.device && own->host.family == message->ifa_family &&
		    RTA_PAYLOAD(found) == own->host.bytes &&
		    !memcmp(RTA_DATA(found), own->host.address, own->host.bytes))
			own->listed = link_of(routes, message->ifa_index);
	}
}

static bool list_family(struct wf_routes *routes, uint8_t family)
{
	struct {
		struct nlmsghdr header;
		struct ifaddrmsg address;
	} question = { .header = { .nlmsg_len = sizeof(question),
				   .nlmsg_type = RTM_GETADDR,
				   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		       .address = { .ifa_family = family } };
	struct nlmsghdr *header;
	size_t left;

	if (!ask(routes, &question.header))
		return false;
	for (int i = 0; i < LISTING_MOST && (header = hear(routes, &left)); i++)
		for (; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
			if (header->nlmsg_type == NLMSG_DONE)
				return true;
			if (header->nlmsg_type == RTM_NEWADDR &&
			    header->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifaddrmsg)))
				list_address(routes, header);
		}
	return false;
}

static bool has_family(const struct wf_routes *routes, uint8_t family)
{
	for (uint32_t i = 0; i < routes->count; i++)
		if (routes->own[i].host.family == family)
			return true;
	return false;
}

/* Lists all our addresses in one go: a host may have many devices, but we have few addresses. */
static bool list_own(struct wf_routes *routes)
{
	for (int i = 0; i < TRIES && !routes->listed; i++) {
		for (uint32_t j = 0; j < routes->count; j++)
			routes->own[j].listed = (struct link){ 0 };
		routes->listed = (!has_family(routes, AF_INET) || list_family(routes, AF_INET)) &&
				 (!has_family(routes, AF_INET6) || list_family(routes, AF_INET6));
		if (!routes->listed)
			leave(routes);
	}
	if (!routes->listed)
		return false;
	for (uint32_t i = 0; i < routes->count; i++) {
		struct own *own = &routes->own[i];

		own->changes += own->listed.device != own->link.device || own->listed.runs != own->link.runs;
		own->link = own->listed;
	}
	return true;
}

/* Returns NULL if the kernel cannot be asked. */
static struct own *own_of(struct wf_routes *routes, const struct host *host)
{
	struct own *own = routes->own;
	uint32_t i;

	for (i = 0; i < routes->count && memcmp(&routes->own[i].host, host, sizeof(*host)); i++)
		;
	if (i < routes->count) {
		own = &routes->own[i];
	} else {
		/* A group has at most WF_MAX_RAILS rails. */
		if (routes->count < WF_MAX_RAILS)
			own = &routes->own[routes->count++];
		*own = (struct own){ .host = *host };
		routes->listed = false;
	}
	return routes->listed || list_own(routes) ? own : NULL;
}

/* ---- routes ---- */

struct question {
	struct nlmsghdr header;
	struct rtmsg route;
	uint8_t attributes[64];
};

static void put_address(struct question *question, uint16_t type, const struct host *host)
{
	struct rtattr *attribute = (struct rtattr *)((char *)question + NLMSG_ALIGN(question->header.nlmsg_len));

	attribute->rta_type = type;
	attribute->rta_len = (unsigned short)RTA_LENGTH(host->bytes);
	memcpy(RTA_DATA(attribute), host->address, host->bytes);
	question->header.nlmsg_len = NLMSG_ALIGN(question->header.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
}

static struct nlmsghdr *ask_route(struct wf_routes *routes, const struct host *from, const struct host *to)
{
	struct question question = {
		.header = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
			    .nlmsg_type = RTM_GETROUTE,
			    .nlmsg_flags = NLM_F_REQUEST },
		.route = { .rtm_family = to->family,
			   .rtm_dst_len = (uint8_t)(8 * to->bytes),
			   .rtm_src_len = (uint8_t)(8 * from->bytes) },
	};
	struct nlmsghdr *header = NULL;
	size_t bytes;

	put_address(&question, RTA_DST, to);
	put_address(&question, RTA_SRC, from);
	for (int i = 0; i < TRIES && !header; i++) {
		header = ask(routes, &question.header) ? hear(routes, &bytes) : NULL;
		if (!header)
			leave(routes);
	}
	return header;
}

static uint32_t leaves_by(struct nlmsghdr *header)
{
	struct rtmsg *route = NLMSG_DATA(header);
	struct rtattr *at = RTM_RTA(route);
	uint32_t device = 0;

	for (int left = (int)RTM_PAYLOAD(header); RTA_OK(at, left); at = RTA_NEXT(at, left))
		if (at->rta_type == RTA_OIF && RTA_PAYLOAD(at) >= sizeof(device))
			memcpy(&device, RTA_DATA(at), sizeof(device));
	return device;
}

static struct wf_way judge(struct nlmsghdr *header, uint32_t own)
{
	struct rtmsg *route = NLMSG_DATA(header);
	struct wf_way way = { .route = WF_ROUTE_NONE };

	if (header->nlmsg_type != RTM_NEWROUTE || header->nlmsg_len < NLMSG_LENGTH(sizeof(*route)))
		return way; /* an error: unreachable, prohibited, no such source */
	if (route->rtm_type == RTN_LOCAL)
		way.route = WF_ROUTE_LOCAL;
	if (route->rtm_type != RTN_UNICAST)
		return way;
	way.device = leaves_by(header);
	way.route = !own || way.device == own ? WF_ROUTE_OWN : WF_ROUTE_OTHER;
	return way;
}

static bool find_way(struct wf_routes *routes, const struct host *from, const struct host *to, struct wf_way *ret_way)
{
	struct own *own = own_of(routes, from);
	struct nlmsghdr *header = own ? ask_route(routes, from, to) : NULL;

	if (header)
		*ret_way = judge(header, own->link.device);
	else
		routes->unanswered = true;
	return header;
}

bool wf_rail_route(struct wf_routes *routes, const struct wf_rail *rail, const uint8_t *address, uint8_t bytes,
		   struct wf_way *ret_way)
{
	struct host from, to;

	if (!rail->quirks->sockets || !rail->info->src_addr ||
	    !take_host(rail->info->src_addr, rail->info->src_addrlen, &from) || !take_host(address, bytes, &to) ||
	    from.family != to.family) {
		*ret_way = (struct wf_way){ .route = WF_ROUTE_OWN };
		return true;
	}
	return routes && find_way(routes, &from, &to, ret_way);
}

uint32_t wf_rail_link_changes(struct wf_routes *routes, const struct wf_rail *rail)
{
	struct own *own = NULL;
	struct host host;

	if (routes && rail->info->src_addr && take_host(rail->info->src_addr, rail->info->src_addrlen, &host))
		own = own_of(routes, &host);
	return own ? own->changes : 0;
}

void wf_routes_name(const struct wf_routes *routes, uint32_t device, char *name, size_t room)
{
	struct ifreq request;

	snprintf(name, room, "%s",
		 !device                                       ? ""
		 : routes && name_of(routes, device, &request) ? request.ifr_name
							       : "another device");
}

enum wf_route wf_route_between(const void *source, size_t source_bytes, const void *destination,
			       size_t destination_bytes)
{
	struct wf_routes *routes = NULL;
	struct wf_way way = { .route = WF_ROUTE_OWN };
	struct host from, to;

	if (take_host(source, source_bytes, &from) && take_host(destination, destination_bytes, &to) &&
	    from.family == to.family && (routes = calloc(1, sizeof(*routes)))) {
		routes->watch = routes->fd = -1;
		find_way(routes, &from, &to, &way);
	}
	wf_routes_close(routes);
	return way.route;
}

/* ---- changes ---- */

static int watch(void)
{
	struct sockaddr_nl name = { .nl_family = AF_NETLINK,
				    .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE |
						 RTMGRP_IPV4_RULE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE |
						 1u << (RTNLGRP_IPV6_RULE - 1) };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd >= 0 && !bind(fd, (struct sockaddr *)&name, sizeof(name)))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

struct wf_routes *wf_routes_open(void)
{
	struct wf_routes *routes = calloc(1, sizeof(*routes));

	if (!routes)
		return NULL;
	routes->watch = watch();
	/* Opened now, in the same namespace as the watch, and while there are descriptors left. */
	routes->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	return routes;
}

void wf_routes_close(struct wf_routes *routes)
{
	if (!routes)
		return;
	leave(routes);
	if (routes->watch >= 0)
		close(routes->watch);
	free(routes);
}

bool wf_routes_changed(struct wf_routes *routes)
{
	char some[16];
	bool changed;

	if (!routes || routes->watch < 0)
		return false;
	changed = routes->unanswered;
	/* Bounded: on a host whose routes change all the time the next call takes the rest. */
	for (int i = 0; i < HEARD_MOST; i++) {
		ssize_t got = recv(routes->watch, some, sizeof(some), MSG_DONTWAIT);

		if (got < 0 && errno != ENOBUFS) /* more changes than the socket's buffer holds */
			break;
		changed = true;
	}
	routes->unanswered = false;
	routes->listed = routes->listed && !changed;
	return changed;
}

/* ---- for people ---- */

void wf_address_text(const uint8_t *address, uint8_t bytes, char *text, size_t room)
{
	char host[INET6_ADDRSTRLEN];
	struct host its;
	uint16_t port;

	if (!take_host(address, bytes, &its)) {
		bool words = bytes && memchr(address, 0, bytes);

		for (uint8_t i = 0; words && address[i]; i++)
			words = address[i] >= ' ' && address[i] < 127;
		snprintf(text, room, "%s", words ? (const char *)address : "");
		return;
	}
	inet_ntop(its.family, its.address, host, sizeof(host));
	/* sin6_port has the same offset. */
	memcpy(&port, address + offsetof(struct sockaddr_in, sin_port), sizeof(port));
	snprintf(text, room, its.family == AF_INET6 ? "[%s]:%u" : "%s:%u", host, ntohs(port));
}
