/* Reads a topology file in a child process, so that a file on which hwloc aborts ends the child and not the command. */
#include "topology.h"

#include "topo/topo.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS_MAX = 20 }; /* the largest machines take well under one */

/* Everything the command will do with the file, so that nothing is left to fail later. */
static int read_and_plan(const char *path, char *why, size_t room)
{
	struct wf_topo_plan *plan = NULL;
	const struct wf_topo_nic *nics;
	struct wf_topo *topo;
	int rc = wf_topo_open(path, &topo, why, room);

	if (rc)
		return rc;
	size_t count = wf_topo_nics(topo, &nics);
	rc = wf_topo_plan(topo, nics, count, NULL, &plan, why, room);
	wf_topo_plan_free(plan);
	wf_topo_close(topo);
	return rc;
}

/* Sends the error over the pipe: the negative errno, then the sentence. */
static _Noreturn void be_child(const char *path, int to)
{
	static const int ends_by[] = { SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV };
	const struct rlimit no_core = { 0, 0 };
	int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
	char why[400] = "";

	/* What hwloc prints before it aborts means nothing to a user. */
	if (quiet >= 0)
		dup2(quiet, STDERR_FILENO);
	setrlimit(RLIMIT_CORE, &no_core);
	/* Libraries that libfabric loads catch these and exit, which would hide how hwloc ended. */
	for (size_t i = 0; i < sizeof ends_by / sizeof *ends_by; i++)
		signal(ends_by[i], SIG_DFL);
	alarm(SECONDS_MAX);
	int rc = read_and_plan(path, why, sizeof why);
	if (rc && (write(to, &rc, sizeof rc) != sizeof rc || write(to, why, strlen(why)) < 0))
		_exit(2);
	_exit(rc ? 1 : 0);
}

static int judge(const char *path, int status, int rc, char *why, size_t room)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && rc < 0)
		return rc; /* and the child's sentence */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(why, room, "%s: hwloc did not finish reading this topology file within %d s", path,
			 SECONDS_MAX);
	else
		snprintf(why, room, "%s: hwloc crashes on this topology file (%s); save it again with lstopo", path,
			 WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "its child process failed");
	return -EINVAL;
}

static int say(int rc, const char *what, char *why, size_t room)
{
	snprintf(why, room, "%s to check a topology file: %s", what, strerror(-rc));
	return rc;
}

int cmd_topology_check(const char *path, char *why, size_t room)
{
	int ends[2], status = 0, rc = 0;
	size_t used = 0;
	ssize_t got;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return say(-errno, "a pipe", why, room);
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		close(ends[0]);
		be_child(path, ends[1]);
	}
	close(ends[1]);
	if (child < 0) {
		rc = say(-errno, "a child process", why, room);
		close(ends[0]);
		return rc;
	}
	/* The end of the pipe is the end of the child, which its alarm bounds. */
	if (read(ends[0], &rc, sizeof rc) != sizeof rc)
		rc = 0;
	while (used < room - 1 && (got = read(ends[0], why + used, room - 1 - used)) > 0)
		used += (size_t)got;
	why[used] = '\0';
	close(ends[0]);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return judge(path, status, rc, why, room);
}

int cmd_topology_check_environment(const char *command)
{
	const char *path = getenv("WEFT_TOPOLOGY_XML");
	char why[400];
	int rc = path && *path ? cmd_topology_check(path, why, sizeof why) : 0;

	if (rc < 0)
		fprintf(stderr, "%s: WEFT_TOPOLOGY_XML: %s\n", command, why);
	return rc;
}
