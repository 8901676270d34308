/* TCP for the control connection. */
#include "net.h"
#include "control.h"
#include "options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int take_port(const char *text, struct cmd_net_address *address)
{
	uint64_t port = 0;
	int rc = cmd_parse_number(text, &port);
	if (rc < 0 || port > 65535)
		return rc == -EINVAL ? rc : -ERANGE;
	snprintf(address->port, sizeof address->port, "%u", (unsigned)port);
	return 0;
}

int cmd_net_parse(const char *text, bool bare_port, struct cmd_net_address *ret_address)
{
	struct cmd_net_address address = { .port = CMD_NET_PORT };
	const char *host = text, *end, *rest;
	int rc = bare_port && *text ? take_port(text, &address) : bare_port ? 0 : -EINVAL;

	if (rc != -EINVAL) {
		if (rc == 0)
			*ret_address = address;
		return rc;
	}
	if (*text == '[') {
		host = text + 1;
		end = strchr(host, ']');
		if (!end || end == host)
			return -EINVAL;
		rest = end + 1;
	} else {
		end = host + strcspn(host, ":");
		rest = end;
		/* Two colons without brackets: an IPv6 address, whose port could not be told from its end. */
		address.bare = *rest && strchr(rest + 1, ':');
		if (address.bare)
			end = rest = host + strlen(host);
	}
	size_t length = (size_t)(end - host);
	if (length >= sizeof address.host || (!length && !bare_port) || strcspn(text, " \t/") != strlen(text))
		return -EINVAL;
	memcpy(address.host, host, length);
	rc = !*rest ? 0 : *rest == ':' ? take_port(rest + 1, &address) : -EINVAL;
	if (rc == 0)
		*ret_address = address;
	return rc;
}

static bool is_v6(const char *text, size_t length, struct in6_addr *ret_address)
{
	char copy[64];

	snprintf(copy, sizeof copy, "%.*s", (int)length, text);
	return length < sizeof copy && inet_pton(AF_INET6, copy, ret_address) == 1;
}

/* What may be wrong with an IPv6 address that leads nowhere: its last group was meant as a port, or it is one
 * of a link and does not say which. */
static void add_hint(const struct cmd_net_address *address, char *why, size_t room)
{
	const char *host = address->host, *last = strrchr(host, ':');
	size_t used = strlen(why), scope = strcspn(host, "%");
	struct in6_addr in6;
	uint64_t port;

	if (address->bare && cmd_parse_number(last + 1, &port) == 0 && port >= 1024 && port <= 65535 &&
	    is_v6(host, scope < (size_t)(last - host) ? scope : (size_t)(last - host), &in6))
		snprintf(why + used, room - used, "; a port goes after brackets: [%.*s]:%s", (int)(last - host), host,
			 last + 1);
	else if (!host[scope] && is_v6(host, scope, &in6) && IN6_IS_ADDR_LINKLOCAL(&in6))
		snprintf(why + used, room - used,
			 "; a link-local address takes its device: %s%%DEVICE ('ip link' lists them)", host);
}

static int resolve(const struct cmd_net_address *address, int flags, struct addrinfo **ret_found, char *why,
		   size_t room)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV };
	int rc = getaddrinfo(address->host, address->port, &hints, ret_found);
	if (rc == 0)
		return 0;
	snprintf(why, room, "'%s' is not a known address: %s", address->host,
		 rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
	add_hint(address, why, room);
	return -ENOENT;
}

/* An IPv6 address needs them before a port. */
static const char *open_bracket(const char *host)
{
	return strchr(host, ':') ? "[" : "";
}

static const char *close_bracket(const char *host)
{
	return strchr(host, ':') ? "]" : "";
}

/* IPv4 too where the address is the one for all. */
static int listen_at(const struct addrinfo *at)
{
	int on = 1, off = 0, fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (at->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
	    bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 8) == 0)
		return fd;
	int rc = -errno;
	close(fd);
	return rc;
}

int cmd_net_listen(const struct cmd_net_address *given, char *why, size_t room)
{
	struct cmd_net_address address = *given;
	struct addrinfo *found;
	bool any = !address.host[0];

	if (any)
		snprintf(address.host, sizeof address.host, "::");
	int rc = resolve(&address, AI_PASSIVE, &found, why, room);
	int fd = rc < 0 ? rc : listen_at(found);
	if (rc == 0)
		freeaddrinfo(found);
	/* A host without IPv6. */
	if (any && (rc < 0 || fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)) {
		snprintf(address.host, sizeof address.host, "0.0.0.0");
		rc = resolve(&address, AI_PASSIVE, &found, why, room);
		fd = rc < 0 ? rc : listen_at(found);
		if (rc == 0)
			freeaddrinfo(found);
	}
	if (rc < 0 || fd >= 0)
		return rc < 0 ? rc : fd;
	rc = fd;
	if (rc == -EADDRINUSE)
		snprintf(why, room,
			 "port %s is in use: another 'weft bench --listen' or program uses it. End that one, "
			 "or choose "
			 "another port with --listen %s%s%s%sPORT ('ss -ltnp' shows which program)",
			 address.port, open_bracket(given->host), given->host, close_bracket(given->host),
			 given->host[0] ? ":" : "");
	else if (rc == -EACCES)
		snprintf(why, room, "port %s is reserved: choose one above 1023", address.port);
	else if (rc == -EADDRNOTAVAIL)
		snprintf(why, room, "%s is not an address of this host ('ip addr' shows which are)", address.host);
	else
		snprintf(why, room, "cannot listen on %s%s%s:%s: %s", open_bracket(address.host), address.host,
			 close_bracket(address.host), address.port, strerror(-rc));
	add_hint(&address, why, room);
	return rc;
}

/* A host that disappears without a word is noticed, and small frames do not wait for each other. */
static void tune(int fd)
{
	int on = 1, idle = 3, interval = 2, count = 3;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

int cmd_net_accept(int listener, uint64_t timeout_ns, char *why, size_t room)
{
	struct pollfd waiting = { .fd = listener, .events = POLLIN };
	int got = poll(&waiting, 1, (int)(timeout_ns / 1000000));

	if (got == 0 || (got < 0 && errno == EINTR))
		return -EAGAIN;
	int fd = got < 0 ? -1 : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0) {
		int rc = -errno;
		if (rc == -ECONNABORTED || rc == -EAGAIN || rc == -EINTR)
			return -EAGAIN;
		snprintf(why, room, "cannot accept connections: %s", strerror(-rc));
		return rc;
	}
	tune(fd);
	return fd;
}

static int connect_one(const struct addrinfo *to, uint64_t deadline)
{
	int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = 0;
	socklen_t length = sizeof error;

	if (fd < 0)
		return -errno;
	if (connect(fd, to->ai_addr, to->ai_addrlen) < 0 && errno != EINPROGRESS) {
		error = errno;
	} else {
		struct pollfd waiting = { .fd = fd, .events = POLLOUT };
		int got;
		do {
			uint64_t now = cmd_now_ns();
			got = now >= deadline ? 0 : poll(&waiting, 1, (int)((deadline - now) / 1000000) + 1);
		} while (got < 0 && errno == EINTR);
		if (got <= 0)
			error = got == 0 ? ETIMEDOUT : errno;
		else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
			error = errno;
	}
	if (!error)
		return fd;
	close(fd);
	return -error;
}

int cmd_net_connect(const struct cmd_net_address *address, uint64_t timeout_ns, char *why, size_t room)
{
	struct addrinfo *found;
	uint64_t deadline = cmd_now_ns() + timeout_ns;
	int fd = -ENOENT, rc = resolve(address, 0, &found, why, room);
	size_t used;

	if (rc < 0)
		return rc;
	for (struct addrinfo *to = found; to && fd < 0; to = to->ai_next)
		fd = connect_one(to, deadline);
	freeaddrinfo(found);
	if (fd >= 0) {
		tune(fd);
		return fd;
	}
	if (fd == -ECONNREFUSED)
		snprintf(why, room, "nobody listens at %s%s%s:%s: start 'weft bench --listen %s' there first",
			 open_bracket(address->host), address->host, close_bracket(address->host), address->port,
			 address->port);
	else
		snprintf(why, room, "cannot reach %s%s%s:%s: %s", open_bracket(address->host), address->host,
			 close_bracket(address->host), address->port, strerror(-fd));
	add_hint(address, why, room);
	if (fd == -ETIMEDOUT && (used = strlen(why)) < room)
		snprintf(why + used, room - used, "; a firewall may block it: it must admit port %s", address->port);
	return fd;
}

static int ends(int fd, bool other_end, struct sockaddr_storage *ret_address, socklen_t *ret_length)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)ret_address;
	struct sockaddr_in v4 = { .sin_family = AF_INET };

	*ret_length = sizeof *ret_address;
	int rc = other_end ? getpeername(fd, (struct sockaddr *)ret_address, ret_length)
			   : getsockname(fd, (struct sockaddr *)ret_address, ret_length);
	/* IPv4 through a socket for both is IPv4. */
	if (rc == 0 && v6->sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		memcpy(&v4.sin_addr, &v6->sin6_addr.s6_addr[12], 4);
		v4.sin_port = v6->sin6_port;
		memcpy(ret_address, &v4, *ret_length = sizeof v4);
	}
	return rc;
}

void cmd_net_other_end(int fd, struct sockaddr_storage *ret_address)
{
	socklen_t length;

	memset(ret_address, 0, sizeof *ret_address);
	if (ends(fd, true, ret_address, &length) < 0)
		ret_address->ss_family = AF_UNSPEC;
}

char *cmd_net_name(int fd, bool other_end, char *text, size_t room)
{
	struct sockaddr_storage address;
	socklen_t length;
	char host[NI_MAXHOST], port[NI_MAXSERV];

	snprintf(text, room, "?");
	if (ends(fd, other_end, &address, &length) == 0 &&
	    getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
			NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(text, room, address.ss_family == AF_INET6 ? "[%.60s]:%.6s" : "%.60s:%.6s", host, port);
	return text;
}

bool cmd_net_same_host(int fd)
{
	struct sockaddr_storage here, there;
	socklen_t length;

	if (ends(fd, false, &here, &length) < 0 || ends(fd, true, &there, &length) < 0 ||
	    here.ss_family != there.ss_family)
		return false;
	if (here.ss_family == AF_INET) {
		uint32_t a = ntohl(((struct sockaddr_in *)&here)->sin_addr.s_addr);
		uint32_t b = ntohl(((struct sockaddr_in *)&there)->sin_addr.s_addr);
		return a == b || (a >> 24 == 127 && b >> 24 == 127);
	}
	if (here.ss_family == AF_INET6)
		return memcmp(&((struct sockaddr_in6 *)&here)->sin6_addr, &((struct sockaddr_in6 *)&there)->sin6_addr,
			      sizeof(struct in6_addr)) == 0;
	return here.ss_family == AF_UNIX;
}
