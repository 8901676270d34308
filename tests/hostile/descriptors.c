/*
 * The process's descriptors: over tcp the victim connects to any address that a hello claims. At each of these a
 * listener never says a word, or does not even accept the connection. The victim must not keep such connections, nor
 * touch a socket that is not its own.
 */
#include "hostile/attacks.h"
#include "hostile/world.h"

#include <dirent.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#define LISTENERS 400
#define FULL      24  /* listeners without room for another connection, which leave the connecting side waiting */
#define ROOM      140 /* that may be open at a time: those on trial, those that go, and a few of our own */
#define NAMES     6
#define RAILS     64

static uint16_t port[LISTENERS];
static pid_t silent;

static int listen_somewhere(int backlog, struct sockaddr_in *ret_name)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t bytes = sizeof(*ret_name);

	*ret_name = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (const struct sockaddr *)ret_name, bytes) || listen(fd, backlog) ||
	    getsockname(fd, (struct sockaddr *)ret_name, &bytes))
		_exit(1);
	return fd;
}

/* Runs in a process of its own, which holds its ends of the connections. */
static void be_silent(int to)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < LISTENERS; i++) {
		struct sockaddr_in name;

		listen_somewhere(i < FULL ? 0 : 16, &name);
		port[i] = name.sin_port;
		for (int j = 0; i < FULL && j < 2; j++)
			connect(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
				(const struct sockaddr *)&name, sizeof(name));
	}
	if (write(to, port, sizeof(port)) != sizeof(port))
		_exit(1);
	for (;;)
		pause();
}

int silent_listeners(void **state)
{
	int ends[2];

	if (!world_is("tcp"))
		return world_open(state);
	if (pipe(ends) || (silent = fork()) < 0)
		return -1;
	if (!silent)
		be_silent(ends[1]);
	close(ends[1]);
	for (size_t got = 0; got < sizeof(port);) {
		ssize_t more = read(ends[0], (char *)port + got, sizeof(port) - got);

		if (more <= 0)
			return -1;
		got += (size_t)more;
	}
	close(ends[0]);
	return world_open(state);
}

int silence_ends(void **state)
{
	if (silent > 0) {
		kill(silent, SIGKILL);
		waitpid(silent, NULL, 0);
	}
	silent = 0;
	return world_close(state);
}

static uint32_t descriptors(void)
{
	DIR *open = opendir("/proc/self/fd");
	uint32_t count = 0;

	assert_non_null(open);
	while (readdir(open))
		count++;
	closedir(open);
	return count;
}

static void set_port(struct wf_wire_rail *rail, uint16_t to)
{
	memcpy(rail->address + offsetof(struct sockaddr_in, sin_port), &to, sizeof(to));
}

/* Connections that a stranger made it open are closed again. */
static void closes_what_it_opened(uint32_t before)
{
	uint64_t limit = now_ns() + LIMIT;
	uint32_t now;

	do {
		friend_works();
		now = descriptors();
	} while (now > before + 8 && now_ns() < limit);
	if (now > before + 8)
		fail_msg("%u descriptors, %u before", now, before);
}

/* The application's own connections, from the rail's address to those that the strangers claim. */
static int connect_ourselves(uint16_t to)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = to };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&name, sizeof(name)), 0);
	return fd;
}

static void is_ours_still(int fd)
{
	char byte;

	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1); /* 0: somebody has shut it down */
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
	close(fd);
}

/* Names that prove nothing, each at another address. */
void names_at_silent_addresses(void **state)
{
	struct wf_wire_address as = world.stranger.address;
	uint32_t before, most = 0;
	int ours[8];

	if (!world_is("tcp"))
		skip();
	for (int i = 0; i < 8; i++)
		ours[i] = connect_ourselves(port[LISTENERS - 1 - i]);
	friend_works();
	before = descriptors();
	for (int i = 0; i < LISTENERS; i++) {
		struct wf_frame hello;
		uint32_t now;

		as.incarnation++;
		set_port(&as.rail[0], port[i]);
		hello = raw_hello(&world.stranger, &as);
		assert_true(raw_greet(&world.stranger, &hello, &as));
		usleep(20000);
		now = descriptors();
		most = now > most ? now : most;
	}
	assert_in_range(most, before, before + ROOM);
	closes_what_it_opened(before);
	for (int i = 0; i < 8; i++)
		is_ours_still(ours[i]);
	/* A peer that lives where it says still gets in. */
	assert_true(raw_connect(&world.stranger, &(struct raw_link){ 0 }));
}

/* Only its last rail is where it says; at the others it lets the victim say hello in vain. */
void rails_at_silent_addresses(void **state)
{
	struct wf_wire_address *as = &world.stranger.address;
	struct wf_wire_rail own = as->rail[0];
	struct raw_link link[NAMES] = { 0 };
	uint32_t before, most = 0;
	uint64_t end;

	if (!world_is("tcp"))
		skip();
	friend_works();
	before = descriptors();
	as->count = RAILS;
	for (int i = 0; i < NAMES; i++) {
		as->incarnation++;
		for (int j = 0; j < RAILS; j++) {
			as->rail[j] = own;
			if (j != RAILS - 1)
				set_port(&as->rail[j], port[(i * RAILS + j) % LISTENERS]);
		}
		world.stranger.from_rail = RAILS - 1;
		assert_true(raw_connect(&world.stranger, &link[i]));
	}
	end = now_ns() + 4 * S;
	for (int i = 0; now_ns() < end; i++) {
		struct wf_frame pong, *frame;
		uint32_t now = descriptors();

		most = now > most ? now : most;
		pong = raw_frame(&world.stranger, &link[i % NAMES], WF_FRAME_PONG);
		pong.incarnation = as->incarnation - NAMES + 1 + (uint64_t)(i % NAMES);
		raw_send(&world.stranger, &pong, NULL);
		raw_receive(&world.stranger, 10 * MS, &frame);
	}
	assert_in_range(most, before, before + ROOM);
	friend_works();
}
