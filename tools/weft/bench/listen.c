/*
 * weft bench --listen: serves one benchmark after another, each connection by a process of its own, so that
 * several clients of one benchmark are served at once. Others are turned away meanwhile: they know at once
 * why they wait. This process opens no engine and starts no thread, so it may fork.
 */
#include "bench.h"
#include "../commands.h"
#include "../common/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS  (200 * WEFT_MILLISECOND)
#define FIRST_NS (2 * WEFT_SECOND)  /* a driver speaks at once; a stranger may never */
#define LAST_NS  (10 * WEFT_SECOND) /* for those that were told to end */

struct listener {
	const struct bench_options *options;
	int fd;
	pid_t child[BENCH_CLIENTS_MAX * 2]; /* of this benchmark; 0: none */
	uint32_t children;
	uint64_t party; /* what they share; 0: one alone */
	bool served, failed;
};

static int serve_one(struct cmd_control *control, const char *who, const struct bench_options *options)
{
	char why[600] = "";
	int rc = bench_peer_serve(control, options, true, why, sizeof why);

	if (rc < 0)
		fprintf(stderr, "weft bench: %s: %s\n", who, why);
	else if (!options->quiet)
		fprintf(stderr, "weft bench: %s is done: %s\n", who, why);
	cmd_control_close(control);
	return rc < 0 ? CMD_FAILED : CMD_OK;
}

/* Those that ended make room for the next. */
static void reap(struct listener *listener)
{
	for (size_t i = 0; i < sizeof listener->child / sizeof listener->child[0]; i++) {
		int status;

		if (!listener->child[i] || waitpid(listener->child[i], &status, WNOHANG) != listener->child[i])
			continue;
		listener->child[i] = 0;
		listener->children--;
		listener->failed |= !WIFEXITED(status) || WEXITSTATUS(status) != CMD_OK;
		if (WIFSIGNALED(status))
			fprintf(stderr, "weft bench: the process that served was killed by signal %d (%s)\n",
				WTERMSIG(status), strsignal(WTERMSIG(status)));
	}
}

static int start_child(struct listener *listener, struct cmd_control *control, const char *who)
{
	size_t place = 0;
	pid_t parent = getpid();

	while (place < sizeof listener->child / sizeof listener->child[0] && listener->child[place])
		place++;
	if (place == sizeof listener->child / sizeof listener->child[0])
		return -EBUSY;
	fflush(stdout);
	fflush(stderr);
	pid_t child = fork();
	if (child < 0)
		return -errno;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		close(listener->fd);
		if (getppid() != parent)
			_exit(CMD_FAILED);
		exit(serve_one(control, who, listener->options));
	}
	listener->child[place] = child;
	listener->children++;
	listener->served = true;
	return 0;
}

/* 0, or a negative errno: it was told or is gone, and so is the connection. */
static int admit(struct listener *listener, int fd)
{
	struct cmd_control *control = malloc(sizeof *control);
	char who[80];
	uint64_t party = 0;
	int rc;

	if (!control) {
		close(fd);
		return -ENOMEM;
	}
	cmd_net_name(fd, true, who, sizeof who);
	rc = cmd_control_open(control, fd);
	if (rc == 0)
		rc = cmd_control_expect(control, CMD_FRAME_HELLO, FIRST_NS);
	if (rc == 0)
		rc = bench_hello_unpack(control, &party);
	if (rc < 0) {
		fprintf(stderr, "weft bench: %s: %s\n", who,
			rc == -EPROTO && !control->error[0] ? "a malformed greeting" : control->error);
	} else if (listener->children && (!party || party != listener->party)) {
		cmd_control_send_error(control, -EBUSY, "it is serving another benchmark");
		rc = -EBUSY;
	} else {
		listener->party = party;
		if (!listener->options->quiet)
			fprintf(stderr, "weft bench: %s connected\n", who);
		rc = start_child(listener, control, who);
		if (rc < 0)
			cmd_control_send_error(control, rc, "it cannot serve more");
	}
	cmd_control_close(control); /* the child has its own */
	free(control);
	return rc;
}

/* Those that are done but for closing end well. */
static void end_children(struct listener *listener)
{
	uint64_t deadline = cmd_now_ns() + LAST_NS;

	/* Not the signal a terminal has sent them already: a second one ends at once. */
	for (size_t i = 0; i < sizeof listener->child / sizeof listener->child[0]; i++) {
		if (listener->child[i])
			kill(listener->child[i], SIGTERM);
	}
	while (listener->children && cmd_now_ns() < deadline) {
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
		reap(listener);
	}
	for (size_t i = 0; i < sizeof listener->child / sizeof listener->child[0]; i++) {
		if (listener->child[i])
			kill(listener->child[i], SIGKILL);
	}
	listener->failed |= listener->children;
}

static int serve(struct listener *listener)
{
	const struct bench_options *options = listener->options;
	char why[300];

	while (!bench_interrupted) {
		int fd = cmd_net_accept(listener->fd, listener->children ? LOOK_NS / 10 : LOOK_NS, why, sizeof why);
		reap(listener);
		int rc = fd >= 0 ? admit(listener, fd) : 0;
		if (fd < 0 && fd != -EAGAIN) {
			fprintf(stderr, "weft bench: %s\n", why);
			return CMD_FAILED;
		}
		if (options->once &&
		    ((rc < 0 && rc != -EBUSY && !listener->served) || (listener->served && !listener->children)))
			return rc < 0 || listener->failed ? CMD_FAILED : CMD_OK;
		if (!listener->children)
			listener->failed =
			    false; /* one benchmark's failure was reported; the next is served all the same */
	}
	end_children(listener);
	return listener->failed ? CMD_FAILED : CMD_OK;
}

int bench_listen(const struct bench_options *options)
{
	struct listener listener = { .options = options };
	struct cmd_net_address address;
	char text[80], why[300];
	int rc = cmd_net_parse(options->listen, true, &address);

	if (rc == -ERANGE) {
		fprintf(stderr, "weft bench: --listen %s: a port is a number from 0 to 65535\n", options->listen);
		return CMD_USAGE;
	}
	if (rc < 0) {
		fprintf(stderr,
			"weft bench: --listen cannot be '%s': it takes a port, or an address and a port: "
			"--listen 192.0.2.1:" CMD_NET_PORT "\n",
			options->listen);
		return CMD_USAGE;
	}
	listener.fd = cmd_net_listen(&address, why, sizeof why);
	if (listener.fd < 0) {
		fprintf(stderr, "weft bench: %s\n", why);
		return CMD_FAILED;
	}
	bench_signals_catch();
	cmd_net_name(listener.fd, false, text, sizeof text);
	if (strncmp(text, "127.", 4) == 0 || strncmp(text, "[::1]", 5) == 0)
		printf("listening on %s; on this host run: weft bench %s\n", text, text);
	else
		printf("listening on %s%s; on the other host run: weft bench HOST:%s\n", text,
		       strncmp(text, "[::]", 4) == 0 ? " (every address, IPv4 too)" : "", strrchr(text, ':') + 1);
	fflush(stdout);
	rc = serve(&listener);
	close(listener.fd);
	return rc;
}
