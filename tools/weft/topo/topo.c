/* weft topo: shows the machine, its NICs and GPUs, and the groups weft makes of them. */
#include "../commands.h"
#include "../common/options.h"
#include "view.h"
#include "../common/topology.h"
#include "../common/transport.h"

#include "engine/core/layout.h"

#include <weft.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/setup.h"

struct topo_options {
	bool json;
	const char *svg, *xml, *sim, *groups, *cpus, *provider;
	uint64_t max_groups;
};

/* NICs copied out of weft_nic_each(), whose strings live only during its call. */
struct nic_list {
	struct wf_topo_nic *nics;
	int *ranks;
	size_t count;
	int best;
	bool simulated;
	const char *provider; /* only of this one; NULL: of any */
};

static const struct cmd_usage usage = {
	.command = "weft topo",
	.synopsis = "[OPTION]...",
	.about = "Shows sockets, PCI switches, GPUs, NICs and cores, and which of them weft groups together "
		 "and why.",
	.examples = "  weft topo                               this host\n"
		    "  weft topo --svg host.svg                the same as a picture\n"
		    "  weft topo --sim p5 --json               a simulated p5, as JSON\n"
		    "  lstopo host.xml; weft topo --xml host.xml    the topology of another host\n"
		    "  weft topo --groups groups.conf          check a groups file before using it\n",
	.more = "See weft-topo(1).",
};

static int read_options(int argc, char **argv, struct topo_options *ret)
{
	const struct cmd_option options[] = {
		{ "json", CMD_FLAG, &ret->json, NULL, "print JSON", 0, 0, NULL, NULL, false },
		{ "svg", CMD_STRING, &ret->svg, "FILE", "draw a picture to FILE ('-': standard output)", 0, 0, NULL,
		  NULL, false },
		{ "xml", CMD_STRING, &ret->xml, "FILE", "read an hwloc XML file and use the NICs in it", 0, 0, NULL,
		  NULL, false },
		{ "sim", CMD_STRING, &ret->sim, "NAME[,K=V]", "use a simulated machine: p5, p5en, p6-b200, …", 0, 0,
		  NULL, NULL, false },
		{ "groups", CMD_STRING, &ret->groups, "FILE", "take the groups from FILE, not from the rules", 0, 0,
		  NULL, NULL, false },
		{ "max-groups", CMD_NUMBER, &ret->max_groups, "N", "merge groups until there are at most N", 1,
		  UINT32_MAX, NULL, NULL, false },
		{ "cpus", CMD_STRING, &ret->cpus, "LIST",
		  "use only these CPUs, as 0-3,8; default: those that this process may use", 0, 0, NULL, NULL, false },
		{ "provider", CMD_STRING, &ret->provider, "NAME",
		  "show the NICs of this provider; default: the best available", 0, 0, NULL, NULL, false },
		{ 0 },
	};
	int rc = cmd_options_parse(&usage, options, argc, argv, NULL, 0);

	if (!rc && ret->xml && ret->sim) {
		fprintf(stderr, "weft topo: --xml and --sim exclude each other\n");
		return -1;
	}
	if (!rc && ret->json && ret->svg && strcmp(ret->svg, "-") == 0) {
		fprintf(stderr, "weft topo: --json and --svg - both write to standard output; give --svg a file\n");
		return -1;
	}
	return rc;
}

/* Lower is better. What is not known (a simulated NIC) is somebody's special hardware. */
static int rank_of(const char *provider)
{
	static const char *const plain[] = { "tcp", "net", "sockets", "udp", "shm", "sm2", "local" };

	if (strncmp(provider, "efa", 3) == 0)
		return 0;
	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		if (strncmp(provider, plain[i], strlen(plain[i])) == 0)
			return 2 + (int)i;
	return 1;
}

static int keep_nic(void *context, const struct weft_nic *nic)
{
	struct nic_list *list = context;
	size_t room = list->count + 1;
	struct wf_topo_nic *nics = realloc(list->nics, room * sizeof(*nics));
	int *ranks = nics ? realloc(list->ranks, room * sizeof(*ranks)) : NULL;
	struct wf_topo_nic *kept;

	list->nics = nics ? nics : list->nics;
	list->ranks = ranks ? ranks : list->ranks;
	if (!nics || !ranks)
		return -ENOMEM;
	if ((!nic->usable && !list->provider) || !nic->name ||
	    (list->provider && strcmp(nic->provider, list->provider) != 0))
		return 0;
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->nics[i].name, nic->name) == 0 && list->ranks[i] == rank_of(nic->provider))
			return 0; /* the same NIC by another address */
	kept = &list->nics[list->count];
	*kept = (struct wf_topo_nic){ .name = strdup(nic->name), .bits_per_second = nic->link_bps };
	if (!kept->name)
		return -ENOMEM;
	kept->has_pci = nic->pci && sscanf(nic->pci, "%x:%hhx:%hhx.%hhx", &kept->pci.domain, &kept->pci.bus,
					   &kept->pci.dev, &kept->pci.fn) == 4;
	list->simulated |= cmd_transport_is_simulated(nic->provider);
	list->ranks[list->count] = rank_of(nic->provider);
	if (!list->count || list->ranks[list->count] < list->best)
		list->best = list->ranks[list->count];
	list->count++;
	return 0;
}

static void free_nics(struct nic_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free((char *)list->nics[i].name);
	free(list->nics);
	free(list->ranks);
}

/* The NICs an engine would take by default: all of the best provider's. */
static int list_nics(const struct topo_options *options, const char *xml, struct nic_list *list)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	size_t kept = 0;
	int rc;

	list->provider = config.provider = options->provider;
	config.topology = xml;
	rc = weft_nic_each(&config, keep_nic, list);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < list->count; i++) {
		if (list->ranks[i] == list->best)
			list->nics[kept++] = list->nics[i];
		else
			free((char *)list->nics[i].name);
	}
	list->count = kept;
	return 0;
}

static int write_svg(const struct topo_view *view, const char *path)
{
	FILE *to = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
	bool failed;

	if (!to) {
		fprintf(stderr, "weft topo: %s: %s\n", path, strerror(errno));
		return CMD_FAILED;
	}
	topo_print_svg(view, to);
	failed = ferror(to) || fflush(to);
	if ((to != stdout && fclose(to)) || failed) {
		fprintf(stderr, "weft topo: %s: %s\n", path, strerror(errno));
		return CMD_FAILED;
	}
	return CMD_OK;
}

static int show(const struct topo_options *options, const struct topo_view *view)
{
	int status = CMD_OK;

	if (options->svg)
		status = write_svg(view, options->svg);
	if (options->json)
		topo_print_json(view, stdout);
	else if (!options->svg)
		topo_print_text(view, stdout);
	return status;
}

/* A host that does not say what it is has its own name. */
static void name_machine(struct topo_view *view)
{
	const char *name = wf_topo_machine(view->topo);

	if (!*name && view->plan->this_host && gethostname(view->machine, sizeof(view->machine) - 1) == 0)
		return;
	snprintf(view->machine, sizeof(view->machine), "%s", name);
}

static int plan_and_show(const struct topo_options *options, const struct wf_topo *topo, const char *source,
			 const struct wf_topo_nic *nics, size_t count, bool simulated)
{
	struct wf_topo_options plan_options = {
		.max_groups = (uint32_t)options->max_groups,
		.groups_path = options->groups,
		.allowed_cpus = options->cpus,
	};
	size_t most = options->groups ? SIZE_MAX : wf_layout_most_workers();
	struct wf_topo_plan *plan;
	struct topo_view view;
	char why[400];
	int status = CMD_FAILED, rc;

	rc = wf_topo_plan(topo, nics, count, &plan_options, &plan, why, sizeof(why));
	if (rc) {
		fprintf(stderr, "weft topo: %s\n", why);
		return rc == -EINVAL && options->cpus && !options->groups ? CMD_USAGE : CMD_FAILED;
	}
	if (topo_view_open(&view, topo, nics, count, plan)) {
		fprintf(stderr, "weft topo: out of memory\n");
	} else {
		view.source = source;
		view.simulated = simulated;
		if (!options->xml && !options->cpus)
			view.engine_groups = plan->found < most ? plan->found : most;
		name_machine(&view);
		status = show(options, &view);
		topo_view_close(&view);
	}
	wf_topo_plan_free(plan);
	return status;
}

static int run(const struct topo_options *options)
{
	const char *xml = options->xml ? options->xml : getenv("WEFT_TOPOLOGY_XML");
	const struct wf_topo_nic *found;
	struct nic_list list = { 0 };
	struct wf_topo *topo;
	char why[400];
	size_t count;
	int status;

	xml = xml && *xml ? xml : NULL;
	/* The simulator's own files need no check. */
	if ((xml && !options->sim && cmd_topology_check(xml, why, sizeof(why))) ||
	    wf_topo_open(xml, &topo, why, sizeof(why))) {
		fprintf(stderr, "weft topo: %s\n", why);
		return CMD_FAILED;
	}
	count = wf_topo_nics(topo, &found);
	if (!options->xml) {
		int rc = list_nics(options, xml, &list);

		if (rc)
			fprintf(stderr, "weft topo: the library lists no NICs (%s); showing what hwloc sees\n",
				weft_strerror(rc));
		if (options->provider && !list.count) {
			fprintf(stderr, "weft topo: provider '%s' has no NIC here; 'weft info' lists the NICs\n",
				options->provider);
			free_nics(&list);
			wf_topo_close(topo);
			return CMD_FAILED;
		}
		if (!rc && list.count) {
			found = list.nics;
			count = list.count;
		}
	}
	status = plan_and_show(options, topo, xml, found, count, options->sim || list.simulated);
	free_nics(&list);
	wf_topo_close(topo);
	return status;
}

int weft_cmd_topo(int argc, char **argv)
{
	struct topo_options options = { 0 };
	char why[400];
	int rc = read_options(argc, argv, &options);

	if (rc)
		return rc == CMD_OPTIONS_HELP ? CMD_OK : CMD_USAGE;
	if (options.sim && wf_sim_setup(options.sim, why, sizeof(why))) {
		fprintf(stderr, "weft topo: --sim %s: %s\n", options.sim, why);
		return CMD_USAGE;
	}
	return run(&options);
}
