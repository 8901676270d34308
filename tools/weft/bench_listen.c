/*
 * weft bench --listen: serves one driver after another, each over its own control connection. While one is
 * served, a thread turns others away: they know at once why they wait.
 */
#include "bench.h"
#include "commands.h"
#include "net.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS	  (200 * WEFT_MILLISECOND)
#define REFUSE_NS (500 * WEFT_MILLISECOND)

struct porter {
	int listener;
	atomic_bool done; /* set by the serving thread, read by the porter's */
	bool running;
	pthread_t thread;
	struct cmd_control control;
};

static void refuse(struct porter *porter, int fd)
{
	/* What it says is read first: closing with bytes unread would take our answer back. */
	if (cmd_control_open(&porter->control, fd) == 0 &&
	    cmd_control_expect(&porter->control, CMD_FRAME_HELLO, REFUSE_NS) == 0)
		cmd_control_send_error(&porter->control, -EBUSY, "it is serving another benchmark");
	cmd_control_close(&porter->control);
}

static void *mind_the_door(void *context)
{
	struct porter *porter = context;
	char why[300];

	while (!atomic_load(&porter->done)) {
		int fd = cmd_net_accept(porter->listener, LOOK_NS, why, sizeof why);
		if (fd >= 0)
			refuse(porter, fd);
		else if (fd != -EAGAIN)
			break; /* the serving thread meets the same error later, and reports it */
	}
	return NULL;
}

/* Without a porter newcomers wait in the listener's queue, which is no failure. */
static void start_porter(struct porter *porter, int listener)
{
	sigset_t all, before;

	porter->listener = listener;
	atomic_init(&porter->done, false);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for the thread that serves */
	porter->running = pthread_create(&porter->thread, NULL, mind_the_door, porter) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop_porter(struct porter *porter)
{
	atomic_store(&porter->done, true);
	if (porter->running)
		pthread_join(porter->thread, NULL);
}

static int serve_one(int fd, const struct bench_options *options)
{
	struct cmd_control *control = malloc(sizeof *control);
	char who[80], why[600] = "";
	int rc;

	if (!control) {
		close(fd);
		fprintf(stderr, "weft bench: out of memory\n");
		return -ENOMEM;
	}
	cmd_net_name(fd, true, who, sizeof who);
	if (!options->quiet)
		fprintf(stderr, "weft bench: %s connected\n", who);
	rc = cmd_control_open(control, fd);
	if (rc == 0)
		rc = bench_peer_serve(control, options, why, sizeof why);
	if (rc < 0)
		fprintf(stderr, "weft bench: %s: %s\n", who, why);
	else if (!options->quiet)
		fprintf(stderr, "weft bench: %s is done: %s\n", who, why);
	cmd_control_close(control);
	free(control);
	return rc;
}

int bench_listen(const struct bench_options *options)
{
	static struct porter porter;
	struct cmd_net_address address;
	char text[80], why[300];
	int rc = cmd_net_parse(options->listen, true, &address);

	if (rc == -ERANGE) {
		fprintf(stderr, "weft bench: --listen %s: a port is a number from 0 to 65535\n",
			options->listen);
		return CMD_USAGE;
	}
	if (rc < 0) {
		fprintf(stderr,
			"weft bench: --listen cannot be '%s': it takes a port, or an address and a port: "
			"--listen 192.0.2.1:" CMD_NET_PORT "\n",
			options->listen);
		return CMD_USAGE;
	}
	int listener = cmd_net_listen(&address, why, sizeof why);
	if (listener < 0) {
		fprintf(stderr, "weft bench: %s\n", why);
		return CMD_FAILED;
	}
	bench_signals_catch();
	cmd_net_name(listener, false, text, sizeof text);
	printf("listening on %s; on the other host run: weft bench HOST:%s\n", text, strrchr(text, ':') + 1);
	fflush(stdout);
	rc = 0;
	while (!bench_interrupted) {
		int fd = cmd_net_accept(listener, LOOK_NS, why, sizeof why);
		if (fd == -EAGAIN)
			continue;
		if (fd < 0) {
			fprintf(stderr, "weft bench: %s\n", why);
			rc = fd;
			break;
		}
		start_porter(&porter, listener);
		rc = serve_one(fd, options);
		stop_porter(&porter);
		if (options->once)
			break;
		rc = 0; /* one driver's failure was reported; the next one is served all the same */
	}
	close(listener);
	return rc < 0 ? CMD_FAILED : CMD_OK;
}
