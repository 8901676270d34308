/*
 * The provider's entry point and the specifications in use. libfabric calls fi_prov_ini once when it loads
 * the DSO, and config_current runs at each fi_getinfo: the environment is read then, so one process can play
 * several hosts by changing SIMFAB between opens.
 */
#include "prov.h"

#include <rdma/providers/fi_prov.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct config *configs;
static int configs_pid;

/* Not libfabric's log: its symbols are versioned, and this DSO loads into any release. */
void sim_log(const char *format, ...)
{
	va_list arguments;
	char line[512];

	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	fprintf(stderr, "simfab: %s\n", line);
}

static struct config *make_config(const char *text)
{
	struct config *config = calloc(1, sizeof *config);
	char error[256];
	int rc;

	if (!config)
		return NULL;
	if (sim_spec_parse(text, &config->spec, error, sizeof error)) {
		static char complained[1024]; /* libfabric asks several times over: say it once (under the mutex) */

		if (strncmp(complained, text, sizeof complained - 1))
			sim_log("SIMFAB=%s: %s", text, error);
		snprintf(complained, sizeof complained, "%s", text);
		goto free_config;
	}
	if (config->spec.card_efa)
		goto free_config; /* these NICs are efa/'s, below another provider */
	snprintf(config->text, sizeof config->text, "%s", text);
	config->pid = getpid();
	if (config->spec.control[0]) {
		rc = sim_control_open(config->spec.control, &config->control);
		if (rc) {
			sim_log("control file '%s': %s", config->spec.control,
				rc == -EINVAL ? "not a control file" : strerror(-rc));
			goto free_config;
		}
		atomic_store(&config->control->seed, config->spec.seed);
	} else {
		config->control = calloc(1, sizeof *config->control);
		if (!config->control)
			goto free_config;
	}
	if (config->spec.as_efa && config->spec.personality == SIM_EFA) {
		config->direct = malloc(sizeof *config);
		if (!config->direct)
			goto free_control;
		*config->direct = *config;
		sim_spec_become(&config->direct->spec, SIM_EFA_DIRECT);
	}
	return config;
free_control:
	if (config->spec.control[0])
		sim_control_close(config->control);
	else
		free(config->control);
free_config:
	free(config);
	return NULL;
}

const struct config *config_current(void)
{
	const char *text = getenv("SIMFAB");
	struct config *config;

	if (!text || !*text)
		return NULL;
	pthread_mutex_lock(&mutex);
	if (configs_pid != getpid()) {
		configs_pid = getpid();
		wire_reap();
	}
	/* A forked child is another host, whose default name differs: it does not use its parent's. */
	for (config = configs; config; config = config->next)
		if (config->pid == getpid() && !strcmp(config->text, text))
			break;
	if (!config && (config = make_config(text))) {
		config->next = configs;
		configs = config;
	}
	pthread_mutex_unlock(&mutex);
	return config;
}

static void cleanup(void)
{
	pthread_mutex_lock(&mutex);
	while (configs) {
		struct config *config = configs;

		configs = config->next;
		if (config->spec.control[0])
			sim_control_close(config->control);
		else
			free(config->control);
		free(config->direct);
		free(config);
	}
	pthread_mutex_unlock(&mutex);
}

static struct fi_provider provider = {
	.version = FI_VERSION(1, 0),
	/* At least what any application asks for; the structs used here have not changed since 1.5. */
	.fi_version = FI_VERSION(2, 100),
	.name = "simfab",
	.getinfo = info_get,
	.fabric = fabric_open,
	.cleanup = cleanup,
};

struct fi_provider *fi_prov_ini(void);

FI_EXT_INI
{
	const char *text = getenv("SIMFAB");
	struct sim_spec spec;
	char error[256];

	sim_clock_start();
	/* Once for the process: libfabric asks for the name here. It takes the newer of two of one name. */
	if (text && !sim_spec_parse(text, &spec, error, sizeof error) && spec.as_efa) {
		provider.name = "efa";
		provider.version = FI_VERSION(1000, 0);
	}
	return &provider;
}
