/* Options, threads, the watchdog and the end; random.h says what this is. */
#include "random.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define STUCK_NS (90 * WEFT_SECOND) /* in one call: none may take this long, on any machine */

struct world world;
static struct caller callers[THREADS + 1]; /* the last one is the main thread */

static void log_line(void *context, enum weft_log_level level, const char *text)
{
	if (world.verbose)
		fprintf(stderr, "%.3f [%d] %s\n", (double)now_ns() / 1e9, (int)getpid(), text);
}

static void *call_at_random(void *argument)
{
	struct caller *caller = argument;

	while (!atomic_load(&world.stop)) {
		struct station *station = &world.station[pick(caller, world.engines)];

		release_kept(caller, false);
		if (pick(caller, 8000) == 0 && now_ns() < world.end_ns) {
			station_close(station, caller, false);
			continue;
		}
		if (!station_enter(station)) {
			usleep(100);
			continue;
		}
		random_call(caller, station);
		station_leave(station);
	}
	release_kept(caller, true);
	return NULL;
}

static void *watch(void *unused)
{
	uint64_t shown = now_ns(), made = 0, before = 0;

	while (!atomic_load(&world.stop)) {
		usleep(200000);
		for (uint32_t i = 0; i <= THREADS; i++) {
			const char *in = atomic_load(&callers[i].in);
			uint64_t since = atomic_load(&callers[i].since_ns), now = now_ns();

			if (in && now > since + STUCK_NS && atomic_load(&callers[i].in) == in &&
			    atomic_load(&callers[i].since_ns) == since)
				fail("%s() has not returned for %.0f s", in, (double)(now - since) / 1e9);
		}
		tickets_check();
		if (now_ns() - shown < 60 * WEFT_SECOND)
			continue;
		shown = now_ns();
		made = 0;
		for (uint32_t i = 0; i < world.threads; i++)
			made += callers[i].made;
		printf("random: process %u: %llu calls, %.0f s left\n", world.process, (unsigned long long)made,
		       shown < world.end_ns ? (double)(world.end_ns - shown) / 1e9 : 0.0);
		fflush(stdout);
		if (made == before)
			fail("nothing was called for a minute");
		before = made;
	}
	return NULL;
}

static void open_world(struct caller *caller)
{
	for (uint32_t e = 0; e < world.engines; e++) {
		struct station *station = &world.station[e];

		station->number = world.process * ENGINES + e;
		station->leaving = 1;
		station->memory = calloc(REGIONS, CHUNK);
		if (!station->memory)
			fail("no memory");
		station_open(station, caller);
	}
}

static int run(void)
{
	struct caller *own = &callers[THREADS];
	pthread_t watchdog, sleeper[ENGINES];
	struct caller all = { 0 };

	own->seed = world.seed * 977 + world.process + 1;
	open_world(own);
	for (uint32_t i = 0; i < world.threads; i++) {
		callers[i].number = i;
		callers[i].seed = (world.seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + world.process * 1000 + i;
		if (pthread_create(&callers[i].thread, NULL, call_at_random, &callers[i]))
			fail("no thread");
	}
	for (uint32_t e = 0; e < world.engines; e++)
		if (pthread_create(&sleeper[e], NULL, station_sleeper, &world.station[e]))
			fail("no thread");
	if (pthread_create(&watchdog, NULL, watch, NULL))
		fail("no thread");
	while (now_ns() < world.end_ns)
		usleep(10000);
	/* Closes one after the other, while the threads go on with the rest. */
	for (uint32_t e = 0; e < world.engines; e++) {
		while (!atomic_load(&world.station[e].gone)) {
			station_close(&world.station[e], own, true);
			usleep(1000);
		}
		pthread_join(sleeper[e], NULL);
	}
	atomic_store(&world.stop, 1);
	for (uint32_t i = 0; i < world.threads; i++)
		pthread_join(callers[i].thread, NULL);
	for (uint32_t i = 0; i <= THREADS; i++) {
		all.made += callers[i].made;
		all.done += callers[i].done;
		all.failed += callers[i].failed;
		all.arrived += callers[i].arrived;
		all.closed += callers[i].closed;
	}
	pthread_join(watchdog, NULL);
	for (uint32_t e = 0; e < world.engines; e++)
		free(world.station[e].memory);
	printf("random: process %u: %llu calls; operations: %llu done, %llu failed; %llu messages and notifications; "
	       "%llu engines "
	       "closed\n",
	       world.process, (unsigned long long)all.made, (unsigned long long)all.done,
	       (unsigned long long)all.failed, (unsigned long long)all.arrived, (unsigned long long)all.closed);
	return 0;
}

static void usage(int status)
{
	fprintf(status ? stderr : stdout, "usage: random [--seed N] [--minutes M] [--seconds S] [--provider "
					  "tcp|tcp4|shm] [--threads N] [--engines N]\n"
					  "              [--processes 1|2] [--verbose]\n");
	exit(status);
}

static double read_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", 1, 0, 's' },      { "minutes", 1, 0, 'm' },
		{ "seconds", 1, 0, 'S' },   { "provider", 1, 0, 'p' },
		{ "threads", 1, 0, 't' },   { "engines", 1, 0, 'e' },
		{ "processes", 1, 0, 'P' }, { "verbose", 0, 0, 'v' },
		{ "help", 0, 0, 'h' },      { 0 },
	};
	double seconds = 5;
	int option;

	world.config.provider = "tcp";
	world.seed = 1;
	world.threads = 4;
	world.engines = 3;
	world.processes = 1;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 's':
			world.seed = strtoull(optarg, NULL, 0);
			break;
		case 'm':
			seconds = 60 * strtod(optarg, NULL);
			break;
		case 'S':
			seconds = strtod(optarg, NULL);
			break;
		case 'p':
			world.config.provider = optarg;
			break;
		case 't':
			world.threads = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'e':
			world.engines = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'P':
			world.processes = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'v':
			world.verbose = true;
			break;
		default:
			usage(option == 'h' ? 0 : 2);
		}
	if (optind != argc || !world.threads || world.threads > THREADS || !world.engines || world.engines > ENGINES ||
	    !world.processes || world.processes > PROCESSES || seconds <= 0)
		usage(2);
	return seconds;
}

int main(int argc, char **argv)
{
	double seconds;
	pthread_mutexattr_t shared;
	pid_t child = 0;
	int status = 0;

	world.config = (struct weft_config)WEFT_CONFIG_INIT;
	seconds = read_options(argc, argv);
	if (!strcmp(world.config.provider, "tcp") || !strcmp(world.config.provider, "tcp4")) {
		world.config.rails = world.config.provider[3] ? "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4" : "127.0.0.1";
		world.config.provider = "tcp";
	}
	world.config.log = log_line;
	/* Short, so that peers are given up and rails reopened for real and by mistake. */
	world.config.heartbeat_ns = 50 * WEFT_MILLISECOND;
	world.config.peer_limit_ns = 500 * WEFT_MILLISECOND;
	world.config.rail_limit_ns = 300 * WEFT_MILLISECOND;
	world.config.peer_window = 2u << 20;
	world.config.max_message = 1u << 20;
	world.board = mmap(NULL, sizeof(*world.board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (world.board == MAP_FAILED)
		return 1;
	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&world.board->lock, &shared);
	world.end_ns = now_ns() + (uint64_t)(seconds * 1e9);
	printf("random: seed %llu, %.0f s, %u threads on %u engines in %u processes\n", (unsigned long long)world.seed,
	       seconds, world.threads, world.engines, world.processes);
	fflush(stdout);
	if (world.processes == 2 && !(child = fork())) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		world.process = 1;
		return run();
	}
	run();
	if (child > 0 && (waitpid(child, &status, 0) != child || status)) {
		fprintf(stderr, "random: the other process ended with %#x\n", status);
		return 1;
	}
	return 0;
}
