/* weft bench: reads the options and becomes the driver, the listening side, or the peer the driver started.
 */
#include "bench.h"
#include "../commands.h"
#include "../common/options.h"
#include "../common/topology.h"
#include "sim/setup.h"
#include "sim/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The peer a driver started: the control connection is inherited, the driver reads our errors over it. */
static int be_peer(const struct bench_options *options)
{
	struct cmd_control *control = malloc(sizeof *control);
	char why[600];

	if (!control || fcntl((int)options->peer_fd, F_GETFD) < 0) {
		fprintf(stderr, "weft bench: --peer-fd is for weft itself\n");
		free(control);
		return CMD_USAGE;
	}
	bench_signals_ignore();
	int rc = cmd_control_open(control, (int)options->peer_fd);
	if (rc == 0)
		rc = bench_peer_serve(control, options, false, why, sizeof why);
	cmd_control_close(control);
	free(control);
	return rc < 0 ? CMD_FAILED : CMD_OK;
}

/* One of several that another process of this program started: it prints, we measure. */
static int be_client(struct bench_options *options)
{
	static struct bench_summary summary;
	struct cmd_control *leader = malloc(sizeof *leader);
	int rc;

	if (!leader || fcntl((int)options->party_fd, F_GETFD) < 0) {
		fprintf(stderr, "weft bench: --party-fd is for weft itself\n");
		free(leader);
		return CMD_USAGE;
	}
	rc = cmd_control_open(leader, (int)options->party_fd);
	options->leader = leader;
	if (rc == 0)
		bench_drive(options, &summary);
	if (rc == 0)
		rc = bench_summary_send(&summary, leader, 10 * WEFT_SECOND);
	cmd_control_close(leader);
	free(leader);
	return rc < 0 || summary.error[0] ? CMD_FAILED : CMD_OK;
}

/* Simulated NICs are set up in the environment, so that a peer process started later has them too. */
static int set_up_sim(struct bench_options *options)
{
	static struct bench_faults faults;
	static char with_control[4096];
	char why[256] = "";
	struct sim_spec spec;

	if (!options->sim)
		return CMD_OK;
	/* First: it may start the program over. */
	if (wf_sim_setup(options->sim, why, sizeof why) < 0) {
		fprintf(stderr, "weft bench: --sim %s: %s\n", options->sim, why);
		return CMD_USAGE;
	}
	if (options->schedule.count) {
		options->faults = &faults;
		if (bench_faults_open(&faults, &options->schedule, options->duration_ns, options->sim, with_control,
				      sizeof with_control, why, sizeof why) < 0) {
			fprintf(stderr, "weft bench: --sim %s: %s\n", options->sim, why);
			return CMD_USAGE;
		}
	}
	if (options->faults && wf_sim_setup(with_control, why, sizeof why) < 0) {
		fprintf(stderr, "weft bench: --sim %s: %s\n", options->sim, why);
		return CMD_USAGE;
	}
	/* What does not move cannot be checked: no verdict is better than a wrong one. */
	options->sim_copies = sim_spec_parse(options->sim, &spec, why, sizeof why) == 0 && spec.copy == SIM_COPY_FULL;
	if (!options->sim_copies) {
		options->params.verify = false;
		options->not_verified = "the simulated NICs do not move every byte";
	}
	return CMD_OK;
}

/* Before the run, not after it. What is there is left as it is until there is something to write. */
static int check_histogram(const char *path)
{
	char copy[PATH_MAX];
	struct stat info;
	int error = stat(path, &info) < 0 ? errno : 0;

	snprintf(copy, sizeof copy, "%s", path);
	if (error == ENOENT)
		error = access(dirname(copy), W_OK | X_OK) < 0 ? errno : 0;
	else if (!error)
		error = S_ISDIR(info.st_mode) ? EISDIR : access(path, W_OK) < 0 ? errno : 0;
	if (error)
		fprintf(stderr, "weft bench: --histogram %s: %s\n", path, strerror(error));
	return -error;
}

int weft_cmd_bench(int argc, char **argv)
{
	static struct bench_options options;
	static struct bench_summary summary;
	int rc = bench_options_read(argc, argv, &options);

	if (rc == CMD_OPTIONS_HELP)
		return CMD_OK;
	if (rc < 0)
		return CMD_USAGE;
	if (options.is_peer)
		return be_peer(&options);
	if (options.histogram && !options.is_client && check_histogram(options.histogram) < 0)
		return CMD_FAILED;
	if (!options.sim && !options.is_client && cmd_topology_check_environment("weft bench") < 0)
		return CMD_FAILED;
	rc = set_up_sim(&options);
	if (rc == CMD_OK && bench_fit(&options) < 0)
		return CMD_USAGE;
	if (rc == CMD_OK && options.is_listener)
		return bench_listen(&options);
	if (rc == CMD_OK && options.is_client)
		return be_client(&options);
	if (rc == CMD_OK && (options.clients > 1 || options.direction == BENCH_BOTH))
		return bench_party(&options);
	if (rc == CMD_OK && options.sizes.count)
		return bench_sweep(&options);
	if (rc == CMD_OK)
		bench_drive(&options, &summary);
	if (options.faults)
		bench_faults_close(options.faults);
	return rc == CMD_OK ? bench_report(&summary) : rc;
}
