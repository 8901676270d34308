/*
 * What a peer costs, the 10th and the 10,000th: the time of this side's calls and turns from weft_peer_add() until the
 * peer is up, the memory that they leave allocated, and what a turn with nothing to do takes. Runs over simulated NICs
 * with manual progress, so that nothing else runs in the process.
 *
 * The peers are real engines, in processes of some hundred each that are killed when the next one takes over. A silent
 * peer stays up here, since heartbeats are an hour apart.
 *
 * One add takes 60 to 120 us depending on the load, so a single one says nothing. Around the 10,000th, rounds of a few
 * adds alternate with rounds of a few around the 10th of a fresh engine in a process of its own, and medians are
 * compared.
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

enum {
	ROUNDS = 60,
	WARM = 5,   /* adds of a round before those that count: after a pause the caches are cold */
	COUNT = 10, /* adds that count: the 6th to the 15th of a fresh engine */
	SAMPLES = ROUNDS * COUNT,
	WINDOW = ROUNDS * (WARM + COUNT),
	FIRST = 10,
	SETTLED = 16, /* turns without any event, after which nothing is under way */
	A_HOST = 250,
	BLOB = 8192
};

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

/* For each byte received: opens one more engine, sends its address, and drives it until the next request. */
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

		check(weft_engine_open(&config, &engine, NULL, 0), "weft_engine_open");
		check(weft_engine_address(engine, blob, &bytes), "weft_engine_address");
		if (send(fd, &bytes, sizeof bytes, 0) < 0 || send(fd, blob, bytes, 0) < 0)
			return;
		while (recv(fd, &asked, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN)
			weft_engine_progress(engine);
	}
}

/* Forks, so only a process without an engine may call it: see keep_hosts(). */
static void start_host(struct host *host, int engines)
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
	host->left = engines;
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

/* A process that passes addresses on, and starts and kills the hosts that have them. */
static void keep_hosts(int fd, int engines_a_host)
{
	struct host host = { 0 };
	uint8_t blob[BLOB];
	size_t bytes;
	char asked;

	alarm(600);
	while (recv(fd, &asked, 1, 0) == 1) {
		if (!host.left) {
			end_host(&host);
			start_host(&host, engines_a_host);
		}
		host.left--;
		if (send(host.fd, &asked, 1, 0) != 1 ||
		    recv(host.fd, &bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes || bytes > sizeof blob ||
		    recv(host.fd, blob, bytes, MSG_WAITALL) != (ssize_t)bytes)
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
	uint64_t deadline = now_ns() + 10 * WEFT_SECOND, start;
	double before = allocated();
	struct cost cost;
	struct weft_event event;
	weft_peer peer;

	start = thread_cpu_ns();
	check(weft_peer_add(engine, blob, bytes, NULL, &peer), "weft_peer_add");
	cost.ns = (double)(thread_cpu_ns() - start);
	for (bool up = false, first = true; !up; first = false) {
		int happened;

		start = thread_cpu_ns();
		happened = weft_engine_progress(engine);
		/* Turns in which nothing happens are the peer's time, not ours. */
		if (first || happened)
			cost.ns += (double)(thread_cpu_ns() - start);
		while (weft_queue_poll(queue, &event, sizeof(event), 1) == 1) {
			up |= event.type == WEFT_EVENT_PEER_UP;
			weft_event_release(&event);
		}
		check(now_ns() > deadline ? -ETIMEDOUT : 0, "waiting for a peer");
	}
	cost.bytes = allocated() - before;
	/* The peer may be killed once we ask for the next one: leave nothing on its way to it. */
	for (int quiet = 0; quiet < SETTLED;)
		quiet = weft_engine_progress(engine) ? 0 : quiet + 1;
	return cost;
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

static double median(double *sample, int count)
{
	qsort(sample, (size_t)count, sizeof *sample, ascending);
	return sample[count / 2];
}

static double idle_turn_ns(weft_engine *engine)
{
	double batch[21];

	for (int k = 0; k < 21; k++) {
		uint64_t start = thread_cpu_ns();

		for (int i = 0; i < 1000; i++)
			weft_engine_progress(engine);
		batch[k] = (double)(thread_cpu_ns() - start) / 1000;
	}
	return median(batch, 21);
}

/* ---- the 10th peer, in processes of their own ---- */

/* Forks for each byte received, so only a process without an engine may call it. The answer is the cost of the adds. */
static void keep_fresh(int fd, int addresses)
{
	char asked;

	alarm(600);
	while (recv(fd, &asked, 1, 0) == 1) {
		pid_t pid = fork();

		check(pid < 0 ? -errno : 0, "fork");
		if (!pid) {
			struct weft_config config = settings();
			struct cost cost[WARM + COUNT];
			weft_engine *engine;
			weft_queue *queue;

			check(weft_engine_open(&config, &engine, NULL, 0), "weft_engine_open");
			check(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
			for (int i = 0; i < WARM + COUNT; i++)
				cost[i] = add_one(engine, queue, addresses);
			_exit(send(fd, cost + WARM, COUNT * sizeof *cost, 0) < 0);
		}
		waitpid(pid, NULL, 0);
	}
}

static void fresh_round(int fd, struct cost *cost)
{
	if (send(fd, "", 1, MSG_NOSIGNAL) != 1 ||
	    recv(fd, cost, COUNT * sizeof *cost, MSG_WAITALL) != COUNT * sizeof *cost)
		check(-EPIPE, "a fresh engine");
}

/* ---- the result ---- */

/* Medians: a table that happens to double is not the cost of a peer. The mean shows it. */
static struct cost middle(const struct cost *cost, int count)
{
	double ns[SAMPLES], bytes[SAMPLES];

	for (int i = 0; i < count; i++) {
		ns[i] = cost[i].ns;
		bytes[i] = cost[i].bytes;
	}
	return (struct cost){ median(ns, count), median(bytes, count) };
}

/* Ratio per round, then the median: a machine that is slow for some rounds slows both sides of those. */
static double time_ratio(const struct cost *early, const struct cost *late)
{
	double ratio[ROUNDS];

	for (int i = 0; i < ROUNDS; i++)
		ratio[i] = middle(late + i * COUNT, COUNT).ns / middle(early + i * COUNT, COUNT).ns;
	return median(ratio, ROUNDS);
}

struct result {
	struct cost early[SAMPLES], late[SAMPLES], sum;
	int peers, added;
	double idle[2];
};

static void report(const struct result *result, bool json)
{
	struct cost early = middle(result->early, SAMPLES), late = middle(result->late, SAMPLES);
	double ratio = time_ratio(result->early, result->late);
	struct cost mean = { result->sum.ns / result->added, result->sum.bytes / result->added };

	if (json) {
		printf("{\"peers\": %d, \"time_us\": [%.2f, %.2f, %.2f], \"time_ratio\": %.3f, \"bytes\": "
		       "[%.0f, %.0f, %.0f], "
		       "\"memory_ratio\": %.3f, \"idle_turn_ns\": [%.1f, %.1f], \"simulated\": true}\n",
		       result->peers, early.ns / 1e3, late.ns / 1e3, mean.ns / 1e3, ratio, early.bytes, late.bytes,
		       mean.bytes, late.bytes / early.bytes, result->idle[0], result->idle[1]);
		return;
	}
	printf("adding a peer, until it is up, over simulated NICs (processor time of this side)\n"
	       "%-26s %12s %12s %12s %8s\n",
	       "", "10th", "last", "mean of all", "ratio");
	printf("%-26s %9.1f us %9.1f us %9.1f us %8.2f\n", "time", early.ns / 1e3, late.ns / 1e3, mean.ns / 1e3, ratio);
	printf("%-26s %10.0f B %10.0f B %10.0f B %8.2f\n", "memory", early.bytes, late.bytes, mean.bytes,
	       late.bytes / early.bytes);
	printf("%-26s %9.1f ns %9.1f ns\n", "a turn with nothing to do", result->idle[0], result->idle[1]);
	printf("%d peers; 10th: the median of the %dth to %dth of %d engines, last: of as many around the "
	       "%dth, in turn with\n"
	       "them. The ratio of times is the median of the %d turns'.\n",
	       result->peers, WARM + 1, WARM + COUNT, ROUNDS, result->peers, ROUNDS);
}

static void measure(struct result *result, int addresses, int fresh)
{
	struct weft_config config = settings();
	weft_engine *engine;
	weft_queue *queue;

	check(weft_engine_open(&config, &engine, NULL, 0), "weft_engine_open");
	check(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	for (int i = 0, rounds = 0; rounds < ROUNDS; i++) {
		int place = i - (result->peers - WINDOW / 2);
		struct cost cost;

		if (place >= 0 && place % (WARM + COUNT) == 0)
			fresh_round(fresh, result->early + rounds * COUNT);
		cost = add_one(engine, queue, addresses);
		result->added++;
		result->sum.ns += cost.ns;
		result->sum.bytes += cost.bytes;
		if (i + 1 == FIRST)
			result->idle[0] = idle_turn_ns(engine);
		if (place >= 0 && (place %= WARM + COUNT) >= WARM) {
			result->late[rounds * COUNT + place - WARM] = cost;
			rounds += place + 1 == WARM + COUNT;
		}
	}
	result->idle[1] = idle_turn_ns(engine);
}

static int start_helper(void (*help)(int fd, int argument), int argument)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || (pid = fork()) < 0)
		check(-errno, "starting a helper");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		help(pair[1], argument);
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
	static struct result result;
	int addresses, option;
	bool json = false;
	char why[256];

	result.peers = 10000;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'j')
			json = true;
		else if (option == 'n')
			result.peers = atoi(optarg);
		else if (option == 's')
			sim = optarg;
		else
			result.peers = 0;
	}
	if (result.peers < WINDOW || optind != argc) {
		fprintf(stderr, "usage: peers [--json] [--peers N] [--sim SPEC], N at least %d\n", WINDOW);
		return 2;
	}
	if (wf_sim_setup(sim, why, sizeof why)) {
		fprintf(stderr, "peers: %s\n", why);
		return 1;
	}
	addresses = start_helper(keep_hosts, A_HOST);
	measure(&result, addresses, start_helper(keep_fresh, addresses));
	report(&result, json);
	/* Skips ten thousand goodbyes to dead peers, which would only wait. */
	_exit(fflush(stdout) ? 1 : 0);
}
