/* The other process and the socket to it. Nothing here is RDMA. */
#include "common.h"

#include "../sim/setup.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONNECT_S = 10 };

void die(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	exit(1);
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Removes "name value" from the arguments; NULL where it is not there. */
static const char *take(int *argc, char **argv, const char *name)
{
	for (int i = 1; i + 1 < *argc; i++) {
		const char *value = argv[i + 1];

		if (strcmp(argv[i], name))
			continue;
		memmove(&argv[i], &argv[i + 2], (size_t)(*argc - i - 1) * sizeof(*argv));
		*argc -= 2;
		return value;
	}
	return NULL;
}

const char *provider_take(int *argc, char **argv)
{
	const char *sim = take(argc, argv, "--sim"), *provider = take(argc, argv, "--provider");
	char why[400];

	if (sim && wf_sim_setup(sim, why, sizeof(why)))
		die("--sim %s: %s", sim, why);
	return provider ? provider : getenv("SIMFAB") ? wf_sim_provider() : "tcp";
}

uint64_t option(int argc, char **argv, const char *name, uint64_t otherwise)
{
	for (int i = 1; i + 1 < argc; i++) {
		char *end;
		uint64_t value;

		if (strcmp(argv[i], name))
			continue;
		value = strtoull(argv[i + 1], &end, 10);
		if (end == argv[i + 1] || *end)
			die("%s needs a number, not '%s'", name, argv[i + 1]);
		return value;
	}
	return otherwise;
}

bool flag(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return false;
}

static int listen_once(const char *port)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM, .ai_family = AF_INET }, *found;
	int one = 1, fd, accepted;

	if (getaddrinfo(NULL, port, &hints, &found))
		die("--listen needs a port, not '%s'", port);
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 1))
		die("port %s: %s", port, strerror(errno));
	freeaddrinfo(found);
	accepted = accept(fd, NULL, NULL);
	if (accepted < 0)
		die("accept: %s", strerror(errno));
	close(fd);
	return accepted;
}

/* The other side may start a little later, so a port that nobody listens at yet is tried again for a while. */
static int connect_to(const char *where)
{
	uint64_t give_up = now_ns() + CONNECT_S * UINT64_C(1000000000);
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = AF_INET }, *found;
	const char *colon = strrchr(where, ':');
	char host[256];
	int fd, failed;

	if (!colon || colon == where || (size_t)(colon - where) >= sizeof(host))
		die("--connect needs HOST:PORT, not '%s'", where);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - where), where);
	if (getaddrinfo(host, colon + 1, &hints, &found))
		die("there is no host '%s'", host);
	do {
		fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		failed = fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) ? errno : 0;
		if (failed && fd >= 0)
			close(fd);
		if (failed)
			poll(NULL, 0, 20); /* milliseconds, until the next try */
	} while (failed == ECONNREFUSED && now_ns() < give_up);
	if (failed)
		die("%s: %s (is the other side started with --listen?)", where, strerror(failed));
	freeaddrinfo(found);
	return fd;
}

/* Before any libfabric call: providers have threads and memory that a fork would not copy whole. */
static void fork_other(struct pair *pair)
{
	int fds[2];
	pid_t parent = getpid();

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) || (pair->child = fork()) < 0)
		die("cannot start a second process: %s", strerror(errno));
	pair->starts = pair->child != 0;
	pair->fd = fds[!pair->starts];
	close(fds[pair->starts]);
	if (!pair->starts) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1); /* it died before the line above */
	}
	snprintf(pair->source, sizeof(pair->source), "127.0.0.1");
}

struct pair pair_start(int *argc, char **argv)
{
	struct pair pair = { .provider = provider_take(argc, argv) };
	const char *port = take(argc, argv, "--listen"), *where = take(argc, argv, "--connect");
	struct sockaddr_storage own;
	socklen_t bytes = sizeof(own);

	pair.from = take(argc, argv, "--from");
	if (pair.from && strcmp(pair.provider, "tcp"))
		die("--from is for tcp: other NICs have no address of the host's");
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!port && !where) {
		fork_other(&pair);
		return pair;
	}
	pair.starts = where != NULL;
	pair.fd = where ? connect_to(where) : listen_once(port);
	if (getsockname(pair.fd, (struct sockaddr *)&own, &bytes) ||
	    getnameinfo((struct sockaddr *)&own, bytes, pair.source, sizeof(pair.source), NULL, 0, NI_NUMERICHOST))
		die("cannot tell our own address");
	return pair;
}

void pair_send(const struct pair *pair, const void *data, size_t bytes)
{
	if (send(pair->fd, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
		die("the other process is gone");
}

void pair_receive(const struct pair *pair, void *data, size_t bytes)
{
	if (bytes &&
	    (!pair_readable(pair, PATIENCE_S * 1000) || recv(pair->fd, data, bytes, MSG_WAITALL) != (ssize_t)bytes))
		die("the other process is gone, or silent for %d s", PATIENCE_S);
}

void pair_meet(const struct pair *pair)
{
	char here = 'x';

	pair_send(pair, &here, 1);
	pair_receive(pair, &here, 1);
}

bool pair_readable(const struct pair *pair, int timeout_ms)
{
	struct pollfd poll_fd = { .fd = pair->fd, .events = POLLIN };

	return poll(&poll_fd, 1, timeout_ms) > 0;
}

int pair_end(struct pair *pair)
{
	int status = 0;

	if (pair->child > 0 && waitpid(pair->child, &status, 0) != pair->child)
		return 1;
	close(pair->fd);
	return status ? 1 : 0;
}

void *memory_take(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory for %zu bytes", bytes);
	return memory;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	return x ^ (x >> 27);
}

void pattern_fill(void *base, size_t bytes, uint64_t seed)
{
	uint64_t *words = base;

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = mix(seed << 32 | (uint32_t)i);
}

bool pattern_holds(const void *base, size_t bytes, uint64_t seed)
{
	const uint64_t *words = base;

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		if (words[i] != mix(seed << 32 | (uint32_t)i))
			return false;
	return true;
}
