/*
 * Which device the kernel sends by. A rail over sockets is only a source address, and the kernel routes by destination: its
 * device carries the traffic only where the route from that address leaves by that device. rtnetlink answers by the same rules
 * and tables as the socket's own packets; a question takes microseconds and nothing here waits. Any thread.
 */
#include "rail/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* An internet address without its port: a family, its bytes, how many. */
struct host {
	uint8_t family, bytes;
	uint8_t address[16];
};

/* The address may lie anywhere: what a peer sent is not aligned. */
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

static bool is_at(const struct sockaddr *sockaddr, const struct host *host)
{
	struct host its;

	return sockaddr && sockaddr->sa_family == host->family &&
	       take_host(sockaddr, host->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6), &its) &&
	       !memcmp(its.address, host->address, sizeof(its.address));
}

/* The index of the device that has the address. 0: none that could carry anything (lo, a dummy), or the address is one of those
 * that lo has without listing them. */
static uint32_t device_of(const struct host *host)
{
	struct ifaddrs *all, *at;
	uint32_t device = 0;

	if (getifaddrs(&all))
		return 0;
	for (at = all; at && !device; at = at->ifa_next) {
		bool linked = !(at->ifa_flags & IFF_LOOPBACK) &&
			      (!(at->ifa_flags & IFF_NOARP) || (at->ifa_flags & IFF_POINTOPOINT));

		if (linked && is_at(at->ifa_addr, host))
			device = if_nametoindex(at->ifa_name);
	}
	freeifaddrs(all);
	return device;
}

/* ---- asking ---- */

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

/* The kernel has answered by the time that send() returns. */
static ssize_t ask(const struct host *from, const struct host *to, void *answer, size_t room)
{
	struct question question = {
		.header = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)), .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST },
		.route = { .rtm_family = to->family, .rtm_dst_len = (uint8_t)(8 * to->bytes), .rtm_src_len = (uint8_t)(8 * from->bytes) },
	};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t got = -1;

	if (fd < 0)
		return -1;
	put_address(&question, RTA_DST, to);
	put_address(&question, RTA_SRC, from);
	if (send(fd, &question, question.header.nlmsg_len, 0) == (ssize_t)question.header.nlmsg_len)
		got = recv(fd, answer, room, MSG_DONTWAIT);
	close(fd);
	return got;
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

static enum wf_route judge(struct nlmsghdr *header, uint32_t own, uint32_t *ret_device)
{
	struct rtmsg *route = NLMSG_DATA(header);

	*ret_device = 0;
	if (header->nlmsg_type != RTM_NEWROUTE || header->nlmsg_len < NLMSG_LENGTH(sizeof(*route)))
		return WF_ROUTE_NONE; /* an error: unreachable, prohibited, no such source */
	if (route->rtm_type == RTN_LOCAL)
		return WF_ROUTE_LOCAL;
	if (route->rtm_type != RTN_UNICAST)
		return WF_ROUTE_NONE;
	*ret_device = leaves_by(header);
	return !own || *ret_device == own ? WF_ROUTE_OWN : WF_ROUTE_OTHER;
}

enum wf_route wf_rail_route(const struct wf_rail *rail, const uint8_t *address, uint8_t bytes, char *by, size_t room)
{
	by[0] = 0;
	if (!rail->quirks->sockets || !rail->info->src_addr)
		return WF_ROUTE_OWN;
	return wf_route_between(rail->info->src_addr, rail->info->src_addrlen, address, bytes, by, room);
}

enum wf_route wf_route_between(const void *source, size_t source_bytes, const void *destination, size_t destination_bytes,
			       char *by, size_t room)
{
	struct host from, to;
	_Alignas(struct nlmsghdr) char answer[1024];
	char name[IF_NAMESIZE];
	uint32_t device;
	enum wf_route found;
	ssize_t got;

	by[0] = 0;
	if (!take_host(source, source_bytes, &from) || !take_host(destination, destination_bytes, &to) ||
	    from.family != to.family)
		return WF_ROUTE_OWN;
	got = ask(&from, &to, answer, sizeof(answer));
	if (got < (ssize_t)sizeof(struct nlmsghdr) || !NLMSG_OK((struct nlmsghdr *)answer, (size_t)got))
		return WF_ROUTE_OWN; /* nobody to ask: no reason to go without */
	found = judge((struct nlmsghdr *)answer, device_of(&from), &device);
	if (device)
		snprintf(by, room, "%s", if_indextoname(device, name) ? name : "another device");
	return found;
}

/* ---- changes ---- */

int wf_routes_watch(void)
{
	struct sockaddr_nl name = { .nl_family = AF_NETLINK,
				    .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV4_RULE |
						 RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE | 1u << (RTNLGRP_IPV6_RULE - 1) };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd >= 0 && !bind(fd, (struct sockaddr *)&name, sizeof(name)))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

bool wf_routes_changed(int watch)
{
	char some[16];
	bool changed = false;

	/* Bounded: on a host whose routes change all the time the next look takes the rest. */
	for (int i = 0; watch >= 0 && i < 64; i++) {
		ssize_t got = recv(watch, some, sizeof(some), MSG_DONTWAIT);

		if (got < 0 && errno != ENOBUFS) /* more was said than it holds */
			break;
		changed = true;
	}
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
	memcpy(&port, address + offsetof(struct sockaddr_in, sin_port), sizeof(port)); /* sin6_port lies there too */
	snprintf(text, room, its.family == AF_INET6 ? "[%s]:%u" : "%s:%u", host, ntohs(port));
}
