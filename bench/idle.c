/*
 * What an idle engine costs: opens an engine with some rails and one peer, leaves it alone, and then reads the CPU time
 * of both processes. Nothing here passes or fails.
 *
 * usage: idle [--json] [--settle S] [--seconds N] [--workers N] [--only TEXT]
 */
#include "other.h"
#include "sim/setup.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct result {
	double here, there; /* share of one core */
	double wakes;       /* per second, of this process */
};

static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw;
}

static void leave_alone(double seconds)
{
	struct timespec time = { .tv_sec = (time_t)seconds,
				 .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };

	nanosleep(&time, NULL);
}

/* Separate rails on this host: 127.0.0.1, 127.0.0.2, … */
static const char *loopbacks(int count)
{
	static char text[1024];
	size_t at = 0;

	for (int i = 1; i <= count; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s127.0.0.%d", i > 1 ? "," : "", i);
	return text;
}

struct row {
	const char *name, *provider, *rails;
	uint32_t workers; /* 0: the engine's own choice */
};

static int measure(const struct row *row, double settle, double seconds, struct result *result)
{
	static struct other other;
	struct weft_config config = WEFT_CONFIG_INIT;
	weft_engine *engine = NULL;
	weft_queue *queue;
	weft_remote remote;
	weft_peer peer;
	uint64_t start, wall, here, there = 0, there_end = 0;
	long woken;
	int error;

	config.provider = row->provider;
	config.rails = row->rails;
	config.max_workers = row->workers;
	if ((error = other_start(&other, &config, 4096)) || (error = weft_engine_open(&config, &engine, NULL, 0)) ||
	    (error = weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue)) ||
	    (error = other_connect(&other, engine, queue, &peer, &remote)))
		goto stop;
	leave_alone(settle); /* every path is open, and naps have grown; they reach their full length after 26 s */
	if ((error = other_cpu_ns(&other, &there)))
		goto stop;
	start = now_ns();
	here = cpu_ns();
	woken = switches();
	leave_alone(seconds);
	wall = now_ns() - start;
	result->here = (double)(cpu_ns() - here) / (double)wall;
	result->wakes = (double)(switches() - woken) * 1e9 / (double)wall;
	error = other_cpu_ns(&other, &there_end);
	result->there = (double)(there_end - there) / (double)wall;
stop:
	weft_engine_close(engine);
	other_stop(&other);
	return error;
}

static void report(const struct row *row, const struct result *result, bool json, bool first)
{
	if (json)
		printf("%s{\"name\": \"%s\", \"here_percent\": %.3f, \"peer_percent\": %.3f, "
		       "\"wakes_per_s\": %.1f}",
		       first ? "[" : ",\n ", row->name, 100 * result->here, 100 * result->there, result->wakes);
	else
		printf("%-24s %8.3f %8.3f %12.1f\n", row->name, 100 * result->here, 100 * result->there, result->wakes);
	fflush(stdout);
}

static int measure_all(const char *only, uint32_t workers, double settle, double seconds, bool json)
{
	const struct row rows[] = { { "tcp, 1 rail", "tcp", "127.0.0.1", workers },
				    { "tcp, 4 rails", "tcp", "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4", workers },
				    { "tcp, 32 rails", "tcp", loopbacks(32), workers },
				    { "local", "local", NULL, workers },
				    { "shm", "shm", NULL, workers },
				    { "simulated p5, 32 rails", "simfab", NULL, workers },
				    { "simulated p5, 8 workers", "simfab", NULL, 8 } };
	bool first = true;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct result result = { 0 };
		int error;

		if (only && !strstr(rows[i].name, only))
			continue;
		error = measure(&rows[i], settle, seconds, &result);
		if (error) {
			fprintf(stderr, "idle: %s: %s\n", rows[i].name, weft_strerror(error));
			return 1;
		}
		report(&rows[i], &result, json, first);
		first = false;
	}
	if (json)
		puts(first ? "[]" : "]");
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "seconds", required_argument, NULL, 's' },
		{ "workers", required_argument, NULL, 'w' },
		{ "only", required_argument, NULL, 'o' },
		{ "settle", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	double seconds = 2, settle = 27;
	const char *only = NULL;
	uint32_t workers = 0;
	bool json = false;
	char why[256];
	int option;

	while ((option = getopt_long(argc, argv, "js:t:w:o:h", options, NULL)) != -1) {
		if (option == 'j')
			json = true;
		else if (option == 's' && atof(optarg) > 0)
			seconds = atof(optarg);
		else if (option == 't' && atof(optarg) > 0)
			settle = atof(optarg);
		else if (option == 'w' && atoi(optarg) > 0)
			workers = (uint32_t)atoi(optarg);
		else if (option == 'o')
			only = optarg;
		else {
			fprintf(stderr,
				"usage: idle [--json] [--settle S] [--seconds N] [--workers N] [--only TEXT]\n");
			return 2;
		}
	}
	if (wf_sim_setup("p5", why, sizeof(why))) {
		fprintf(stderr, "idle: %s\n", why);
		return 1;
	}
	if (!json)
		printf("idle for %.1f s with one peer, after %.1f s, in turn; processor use in %% of a core\n%-24s %8s "
		       "%8s %12s\n",
		       seconds, settle, "", "here", "peer", "wake-ups/s");
	return measure_all(only, workers, settle, seconds, json);
}
