/*
 * What an engine costs that has nothing to do: opened with some rails and one peer, left alone, and the processor
 * time of both processes looked at after. Nothing here passes or fails.
 *
 * usage: idle [--json] [--seconds N]
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
	double here, there; /* of one core */
	double wakes;	    /* a second, this process */
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

/* Rails of their own on this host: 127.0.0.1, 127.0.0.2, … */
static const char *loopbacks(int count)
{
	static char text[1024];
	size_t at = 0;

	for (int i = 1; i <= count; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s127.0.0.%d", i > 1 ? "," : "", i);
	return text;
}

static int measure(const char *provider, const char *rails, double seconds, struct result *result)
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

	config.provider = provider;
	config.rails = rails;
	if ((error = other_start(&other, &config, 4096)) || (error = weft_open(&config, &engine)) ||
	    (error = weft_queue_open(engine, &queue)) ||
	    (error = other_connect(&other, engine, queue, &peer, &remote)))
		goto stop;
	leave_alone(2.5); /* until every path is open and naps are as long as they get */
	if ((error = other_cpu_ns(&other, &there)))
		goto stop;
	start = bench_now_ns();
	here = bench_cpu_ns();
	woken = switches();
	leave_alone(seconds);
	wall = bench_now_ns() - start;
	result->here = (double)(bench_cpu_ns() - here) / (double)wall;
	result->wakes = (double)(switches() - woken) * 1e9 / (double)wall;
	error = other_cpu_ns(&other, &there_end);
	result->there = (double)(there_end - there) / (double)wall;
stop:
	weft_close(engine);
	other_stop(&other);
	return error;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "seconds", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const struct {
		const char *name, *provider, *rails;
	} row[] = { { "tcp, 1 rail", "tcp", "127.0.0.1" },
		    { "tcp, 4 rails", "tcp", "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4" },
		    { "tcp, 32 rails", "tcp", loopbacks(32) },
		    { "shm", "shm", NULL },
		    { "simulated p5, 32 rails", "simfab", NULL } };
	const int rows = (int)(sizeof(row) / sizeof(row[0]));
	double seconds = 2;
	bool json = false;
	char why[256];
	int option;

	while ((option = getopt_long(argc, argv, "js:h", options, NULL)) != -1) {
		if (option == 'j')
			json = true;
		else if (option == 's' && atof(optarg) > 0)
			seconds = atof(optarg);
		else {
			fprintf(stderr, "usage: idle [--json] [--seconds N]\n");
			return 2;
		}
	}
	if (wf_sim_setup("p5", why, sizeof(why))) {
		fprintf(stderr, "idle: %s\n", why);
		return 1;
	}
	if (!json)
		printf("idle for %.1f s with one peer; processor use in %% of a core\n%-24s %8s %8s %12s\n",
		       seconds, "", "here", "peer", "wake-ups/s");
	for (int i = 0; i < rows; i++) {
		struct result result = { 0 };
		int error = measure(row[i].provider, row[i].rails, seconds, &result);

		if (error) {
			fprintf(stderr, "idle: %s: %s\n", row[i].name, weft_strerror(error));
			return 1;
		}
		if (json)
			printf("%s{\"name\": \"%s\", \"here_percent\": %.3f, \"peer_percent\": %.3f, "
			       "\"wakes_per_s\": %.1f}%s\n",
			       i ? " " : "[", row[i].name, 100 * result.here, 100 * result.there,
			       result.wakes, i + 1 < rows ? "," : "]");
		else
			printf("%-24s %8.3f %8.3f %12.1f\n", row[i].name, 100 * result.here,
			       100 * result.there, result.wakes);
	}
	return 0;
}
