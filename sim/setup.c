/*
 * Points libfabric at the simulated NICs. Called once, by the command line, on the main thread.
 */
#include "setup.h"
#include "control.h"
#include "preload.h"
#include "spec.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROVIDER "libsimfab-fi.so"

#ifndef SIM_INSTALL_DIR
#define SIM_INSTALL_DIR "/usr/local/lib/weft"
#endif

static bool holds(const char *dir, const char *file)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof path, "%s/%s", dir, file) < sizeof path && !access(path, R_OK);
}

/* Builds the directory of the running program plus `below`, if the provider is there. */
static bool beside_program(const char *below, char *dir, size_t bytes)
{
	char program[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);

	if (n <= 0)
		return false;
	program[n] = 0;
	return (size_t)snprintf(dir, bytes, "%s%s", dirname(program), below) < bytes && holds(dir, PROVIDER);
}

static bool on_provider_path(char *dir, size_t bytes)
{
	const char *given = getenv("FI_PROVIDER_PATH");
	char copy[4096], *next = copy, *item;

	if (!given || strlen(given) >= sizeof copy)
		return false;
	strcpy(copy, given);
	while ((item = strsep(&next, ":")))
		if (*item && (size_t)snprintf(dir, bytes, "%s", item) < bytes && holds(dir, PROVIDER))
			return true;
	return false;
}

static bool find_provider(char *dir, size_t bytes)
{
	/* Seen from the command; from tests; from the simulator's own programs; from an installation. */
	static const char *const places[] = { "/sim", "/../sim", "/../../sim", "" };

	if (on_provider_path(dir, bytes))
		return true;
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
		if (beside_program(places[i], dir, bytes))
			return true;
	snprintf(dir, bytes, "%s", SIM_INSTALL_DIR);
	return holds(dir, PROVIDER);
}

/* Checked here, where somebody reads the message, and not only in the provider's log. */
static int check_control(const char *path, char *error, size_t error_bytes)
{
	struct sim_control *control;
	char copy[PATH_MAX];
	int rc = *path ? sim_control_view(path, &control) : -ENOENT;

	/* A missing file is created, if possible. */
	snprintf(copy, sizeof copy, "%s", path);
	if (rc == -ENOENT && (!*path || !access(dirname(copy), W_OK | X_OK)))
		return 0;
	if (rc == -ENOENT)
		rc = -errno;
	if (rc)
		snprintf(error, error_bytes, "%s: %s", path, rc == -EINVAL ? "not a control file" : strerror(-rc));
	else
		sim_control_close(control);
	return rc;
}

static int no_environment(char *error, size_t error_bytes)
{
	snprintf(error, error_bytes, "cannot change the environment: %s", strerror(errno));
	return -ENOMEM;
}

/* Cards below libfabric's own provider: nothing of ours is a provider, and what libfabric calls must be preloaded. */
static int use_card(const char *dir, char *error, size_t error_bytes)
{
	char library[PATH_MAX + 32];
	int rc;

	if (!sim_preload_find(dir, library, sizeof library)) {
		snprintf(error, error_bytes,
			 "card=efa: this build has no modelled card; it needs infiniband/efadv.h (libibverbs-dev)");
		return -ENOENT;
	}
	rc = sim_preload_restart(library);
	if (rc)
		snprintf(error, error_bytes, "card=efa: cannot start over with %s preloaded: %s", library,
			 strerror(-rc));
	return rc;
}

int wf_sim_setup(const char *spec, char *error, size_t error_bytes)
{
	char dir[PATH_MAX], topology[PATH_MAX + 128], path[PATH_MAX + 4096];
	const char *given = getenv("FI_PROVIDER_PATH");
	struct sim_spec parsed;
	int rc = sim_spec_parse(spec, &parsed, error, error_bytes);

	if (!rc)
		rc = check_control(parsed.control, error, error_bytes);
	if (rc)
		return rc;
	if (!find_provider(dir, sizeof dir)) {
		snprintf(error, error_bytes,
			 "the simulated provider (" PROVIDER ") is neither beside this program nor in " SIM_INSTALL_DIR
			 "; set FI_PROVIDER_PATH to its directory");
		return -ENOENT;
	}
	if (given && *given && !strstr(given, dir))
		snprintf(path, sizeof path, "%s:%s", dir, given);
	else
		snprintf(path, sizeof path, "%s", given && *given ? given : dir);
	snprintf(topology, sizeof topology, "%s/topology/%s.xml", dir, parsed.machine_name);
	if (setenv("SIMFAB", spec, 1) || (!access(topology, R_OK) && setenv("WEFT_TOPOLOGY_XML", topology, 0)))
		return no_environment(error, error_bytes);
	if (parsed.card_efa)
		return use_card(dir, error, error_bytes);
	return setenv("FI_PROVIDER_PATH", path, 1) ? no_environment(error, error_bytes) : 0;
}

const char *wf_sim_provider(void)
{
	const char *text = getenv("SIMFAB");
	struct sim_spec spec;
	char error[256];

	if (!text || sim_spec_parse(text, &spec, error, sizeof error) || !(spec.as_efa || spec.card_efa))
		return "simfab";
	return spec.personality == SIM_EFA_DIRECT ? "efa-direct" : "efa";
}

const char *wf_sim_kind(void)
{
	static char kind[80];
	const char *text = getenv("SIMFAB");
	struct sim_spec spec;
	char error[256];

	if (!text || sim_spec_parse(text, &spec, error, sizeof error))
		return "simulated NICs";
	if (spec.card_efa)
		return "simulated card, real EFA provider";
	if (!spec.post_ns)
		return "simulated NICs, posts take no CPU time";
	snprintf(kind, sizeof kind, "simulated NICs, a post takes %" PRIu64 " ns of CPU", spec.post_ns);
	return kind;
}
