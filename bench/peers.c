/*
 * What a peer costs, the 10th and the 10,000th: the time of this side's calls and turns from weft_peer_add() until the
 * peer is up, the memory they leave allocated, and what a turn with nothing to do takes. Over simulated NICs, by manual
 * progress, so that nothing else runs in this process.
 *
 * The peers are real engines, in processes of some hundred each that are killed when the next one takes over: a peer that
 * says nothing stays up here, since nobody is asked for signs of life for an hour.
 *
 * usage: peers [--json] [--peers N] [--sim SPEC]
 */
#include "other.h"
#include "sim/setup.h"

#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 20, FIRST = 10, A_HOST = 250, BLOB = 8192 };

struct cost {
	double ns, bytes;
};

struct host {
	pid_t pid;
	int fd;
	int left;
};

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "peers: %s: %s\n", what, weft_strerror(rc));
	exit(1);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * WEFT_SECOND + (uint64_t)ts.tv_nsec;
}

static double allocated(void)
{
	struct mallinfo2 info = mallinfo2();

	return (double)(info.uordblks + info.hblkhd);
}

static struct weft_config settings(void)
{
	struct weft_config config = WEFT_CONFIG_INIT;

	config.provider = "simfab";
	config.flags = WEFT_MANUAL_PROGRESS;
	config.heartbeat_ns = config.peer_limit_ns = 3600 * WEFT_SECOND;
	return config;
}

/* ---- the peers' side ---- */

/* Each byte asked for: one engine more, its address, and its turns until the next is asked for. */
static void serve(int fd)
{
	struct weft_config config = settings();
	uint8_t blob[BLOB];
	char asked;

	config.max_transfers = 1;
	config.message_frames = 8;
	alarm(300);
	while (recv(fd, &asked, 1, 0) == 1) {
		weft_engine *engine;
		size_t bytes = sizeof blob;

		check(weft_open(&config, &engine), "weft_open");
		check(weft_address(engine, blob, &bytes), "weft_address");
		if (send(fd, &bytes, sizeof bytes, 0) < 0 || send(fd, blob, bytes, 0) < 0)
			return;
		while (recv(fd, &asked, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN)
			weft_progress(engine);
	}
}

/* Forks, so only a process without an engine may: see keep_hosts(). */
static void start_host(struct host *host)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		check(-errno, "socketpair");
	host->pid = fork();
	check(host->pid < 0 ? -errno : 0, "fork");
	if (!host->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		serve(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	host->fd = pair[0];
	host->left = A_HOST;
}

static void end_host(struct host *host)
{
	if (!host->pid)
		return;
	kill(host->pid, SIGKILL);
	waitpid(host->pid, NULL, 0);
	close(host->fd);
	host->pid = 0;
}

/* A process that hands addresses on, and starts and kills those who have them. */
static void keep_hosts(int fd)
{
	struct host host = { 0 };
	uint8_t blob[BLOB];
	size_t bytes;
	char asked;

	alarm(600);
	while (recv(fd, &asked, 1, 0) == 1) {
		if (!host.left) {
			end_host(&host);
			start_host(&host);
		}
		host.left--;
		if (send(host.fd, &asked, 1, 0) != 1 || recv(host.fd, &bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes ||
		    bytes > sizeof blob || recv(host.fd, blob, bytes, MSG_WAITALL) != (ssize_t)bytes)
			break;
		if (send(fd, &bytes, sizeof bytes, 0) < 0 || send(fd, blob, bytes, 0) < 0)
			break;
	}
	end_host(&host);
}

static size_t next_address(int fd, uint8_t *blob)
{
	size_t bytes = 0;

	if (send(fd, "", 1, MSG_NOSIGNAL) != 1 || recv(fd, &bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes ||
	    bytes > BLOB || recv(fd, blob, bytes, MSG_WAITALL) != (ssize_t)bytes)
		check(-EPIPE, "an address of a peer");
	return bytes;
}

/* ---- this side ---- */

static struct cost add_one(weft_engine *engine, weft_queue *queue, int fd)
{
	static uint8_t blob[BLOB];
	size_t bytes = next_address(fd, blob);
	uint64_t deadline = bench_now_ns() + 10 * WEFT_SECOND, start;
	double before = allocated();
	struct cost cost;
	struct weft_event event;
	weft_peer peer;

	start = cpu_ns();
	check(weft_peer_add(engine, blob, bytes, &peer), "weft_peer_add");
	cost.ns = (double)(cpu_ns() - start);
	for (bool up = false, first = true; !up; first = false) {
		int happened;

		start = cpu_ns();
		happened = weft_progress(engine);
		/* Turns in which nothing happens are the peer's time, not ours. */
		if (first || happened)
			cost.ns += (double)(cpu_ns() - start);
		while (weft_queue_poll(queue, &event, 1) == 1) {
			up |= event.type == WEFT_EVENT_PEER_UP;
			weft_event_release(&event);
		}
		check(bench_now_ns() > deadline ? -ETIMEDOUT : 0, "waiting for a peer");
	}
	cost.bytes = allocated() - before;
	return cost;
}

static double idle_turn_ns(weft_engine *engine)
{
	uint64_t start = cpu_ns();

	for (int i = 0; i < 10000; i++)
		weft_progress(engine);
	return (double)(cpu_ns() - start) / 10000;
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

/* The median of a window of peers: a table that doubles just then is not what a peer costs. The mean of all shows it. */
static struct cost middle(const struct cost *cost)
{
	double ns[WINDOW], bytes[WINDOW];

	for (int i = 0; i < WINDOW; i++) {
		ns[i] = cost[i].ns;
		bytes[i] = cost[i].bytes;
	}
	qsort(ns, WINDOW, sizeof *ns, ascending);
	qsort(bytes, WINDOW, sizeof *bytes, ascending);
	return (struct cost){ ns[WINDOW / 2], bytes[WINDOW / 2] };
}

static void report(const struct cost *cost, int peers, const double idle[2], bool json)
{
	struct cost early = middle(cost + FIRST - WINDOW / 4), late = middle(cost + peers - WINDOW), mean = { 0 };

	for (int i = 0; i < peers; i++) {
		mean.ns += cost[i].ns / peers;
		mean.bytes += cost[i].bytes / peers;
	}
	if (json) {
		printf("{\"peers\": %d, \"time_us\": [%.2f, %.2f, %.2f], \"time_ratio\": %.3f, \"bytes\": [%.0f, %.0f, %.0f], "
		       "\"memory_ratio\": %.3f, \"idle_turn_ns\": [%.1f, %.1f], \"simulated\": true}\n",
		       peers, early.ns / 1e3, late.ns / 1e3, mean.ns / 1e3, late.ns / early.ns, early.bytes, late.bytes,
		       mean.bytes, late.bytes / early.bytes, idle[0], idle[1]);
		return;
	}
	printf("adding a peer, until it is up, over simulated NICs (processor time of this side)\n"
	       "%-24s %12s %12s %12s %8s\n", "", "10th", "last", "mean of all", "ratio");
	printf("%-24s %9.1f us %9.1f us %9.1f us %8.2f\n", "time", early.ns / 1e3, late.ns / 1e3, mean.ns / 1e3,
	       late.ns / early.ns);
	printf("%-24s %10.0f B %10.0f B %10.0f B %8.2f\n", "memory", early.bytes, late.bytes, mean.bytes,
	       late.bytes / early.bytes);
	printf("%-24s %9.1f ns %9.1f ns\n%d peers; 10th and last are medians of %d around it\n", "a turn with nothing to do",
	       idle[0], idle[1], peers, WINDOW);
}

static int start_keeper(void)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || (pid = fork()) < 0)
		check(-errno, "starting the peers' side");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		keep_hosts(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	return pair[0];
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "peers", required_argument, NULL, 'n' },
		{ "sim", required_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	const char *sim = "verbs,nics=1,rate=inf,latency=0,handshake=0,tx=256,rx=256";
	struct weft_config config = settings();
	int peers = 10000, fd, option;
	bool json = false;
	weft_engine *engine;
	weft_queue *queue;
	struct cost *cost;
	double idle[2] = { 0 };
	char why[256];

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'j')
			json = true;
		else if (option == 'n')
			peers = atoi(optarg);
		else if (option == 's')
			sim = optarg;
		else
			peers = 0;
	}
	if (peers < 2 * WINDOW || optind != argc) {
		fprintf(stderr, "usage: peers [--json] [--peers N] [--sim SPEC], N at least %d\n", 2 * WINDOW);
		return 2;
	}
	if (wf_sim_setup(sim, why, sizeof why)) {
		fprintf(stderr, "peers: %s\n", why);
		return 1;
	}
	fd = start_keeper();
	cost = calloc((size_t)peers, sizeof *cost);
	check(cost ? weft_open(&config, &engine) : -ENOMEM, "weft_open");
	check(weft_queue_open(engine, &queue), "weft_queue_open");
	for (int i = 0; i < peers; i++) {
		cost[i] = add_one(engine, queue, fd);
		if (i + 1 == FIRST)
			idle[0] = idle_turn_ns(engine);
	}
	idle[1] = idle_turn_ns(engine);
	report(cost, peers, idle, json);
	close(fd);
	/* Ten thousand goodbyes to the dead would only wait. */
	_exit(fflush(stdout) ? 1 : 0);
}
