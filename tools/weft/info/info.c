/* weft info: what this host has for weft, what an engine makes of it, and what that costs. */
#include "../commands.h"
#include "info.h"
#include "../common/options.h"
#include "../common/topology.h"
#include "sim/setup.h"

#include <stdio.h>
#include <string.h>

static struct {
	struct cmd_transport_options transport;
	const char *sim;
	uint64_t peers, peers_fd;
	bool json, is_peers;
} given = { .peers = 16 };

static const struct cmd_usage usage = {
	.command = "weft info",
	.synopsis = "[OPTION]...",
	.about = "Lists the NICs that weft can use, opens an engine, and shows its rails, "
		 "their limits, its configuration and the memory it takes: with one peer, and for each further "
		 "one.",
	.examples = "  weft info\n"
		    "  weft info --provider tcp --rails 4\n"
		    "  weft info --json\n",
	.more = "See weft-info(1).",
};

static const struct cmd_option table[] = {
	CMD_TRANSPORT_OPTIONS(given.transport),
	{ .name = "peers",
	  .type = CMD_NUMBER,
	  .value = &given.peers,
	  .argument = "N",
	  .max = 1024,
	  .help = "number of further peers for measuring the memory per peer (default 16)" },
	CMD_SIM_OPTION(given.sim),
	{ .name = "json", .type = CMD_FLAG, .value = &given.json, .help = "print one JSON object" },
	{ .name = "verbose",
	  .type = CMD_FLAG,
	  .value = &given.transport.verbose,
	  .help = "print the engine's log too" },
	{ .name = "peers-fd",
	  .type = CMD_NUMBER,
	  .value = &given.peers_fd,
	  .argument = "N",
	  .max = 1 << 20,
	  .given = &given.is_peers },
	{ 0 },
};

static int keep_nic(void *context, const struct weft_nic *nic)
{
	struct info *info = context;
	struct info_nic *kept = &info->nic[info->nics];

	if (info->nics == INFO_NICS_MAX)
		return 1;
	snprintf(kept->name, sizeof kept->name, "%s", nic->name ? nic->name : "");
	snprintf(kept->provider, sizeof kept->provider, "%s", nic->provider ? nic->provider : "");
	snprintf(kept->address, sizeof kept->address, "%s", nic->address ? nic->address : "");
	snprintf(kept->pci, sizeof kept->pci, "%s", nic->pci ? nic->pci : "");
	kept->link_bps = nic->link_bps;
	kept->usable = nic->usable;
	info->nics++;
	return 0;
}

static int set_up_sim(void)
{
	char why[256] = "";
	if (given.sim && wf_sim_setup(given.sim, why, sizeof why) < 0) {
		fprintf(stderr, "weft info: --sim %s: %s\n", given.sim, why);
		return CMD_USAGE;
	}
	return CMD_OK;
}

static int gather(struct info *info)
{
	struct weft_config any = WEFT_CONFIG_INIT;

	info->options = given.transport;
	info->json = given.json;
	info->simulated = given.sim != NULL;
	info->extra_peers = given.peers;
	memset(info->nic, 1, sizeof info->nic); /* touched before it is measured */
	uint64_t before = info_resident_bytes();
	weft_nic_each(&any, keep_nic, info);
	uint64_t after = info_resident_bytes();
	info->memory.libfabric_bytes = after > before ? after - before : 0;
	int rc = cmd_transport_choose(&info->options, &info->transport, info->error, sizeof info->error);
	if (rc < 0)
		return rc;
	cmd_transport_config(&info->options, &info->transport, &info->config);
	info_measure(info);
	return 0;
}

int weft_cmd_info(int argc, char **argv)
{
	static struct info info;
	int rc = cmd_options_parse(&usage, table, argc, argv, NULL, 0);

	if (rc == CMD_OPTIONS_HELP)
		return CMD_OK;
	if (rc < 0)
		return CMD_USAGE;
	/* Without a word an engine as the library opens it; what is named is for peers of this host, as in weft bench. */
	given.transport.same_host = given.transport.provider != NULL;
	given.transport.simulated = given.sim != NULL;
	if (given.is_peers)
		return info_peers_serve((int)given.peers_fd, &given.transport, given.peers);
	if (!given.sim && cmd_topology_check_environment("weft info") < 0)
		return CMD_FAILED;
	rc = set_up_sim();
	if (rc != CMD_OK)
		return rc;
	if (gather(&info) < 0) {
		fprintf(stderr, "weft info: %s\n", info.error);
		return CMD_USAGE;
	}
	if (info.opened)
		cmd_transport_warn("weft info", &info.options, info.rails);
	info_report(&info);
	if (info.error[0])
		fprintf(stderr, "weft info: %s\n", info.error);
	return info.opened ? CMD_OK : CMD_FAILED;
}
