/*
 * Which rails go to which worker: asks src/topo/ where the NICs sit and lays the groups out accordingly. NICs without a
 * place on the bus (tcp, shm) form one group whose worker is not pinned; local rails that are alone have a worker each. Runs on the
 * thread that opens the engine.
 */
#include "engine/core/layout.h"
#include "base/log.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static bool any_on_bus(const struct wf_nics *nics)
{
	for (uint32_t i = 0; i < nics->count; i++)
		if (nics->nic[i].has_pci)
			return true;
	return false;
}

/* Workers spin while they are busy, so more of them than cores, less one for the application, would slow each other down.
 * config.max_workers overrides this. */
uint32_t wf_layout_most_workers(void)
{
	cpu_set_t allowed;
	int cores = sched_getaffinity(0, sizeof(allowed), &allowed) ? 1 : CPU_COUNT(&allowed);

	return cores > 2 ? (uint32_t)cores - 1 : 1;
}

/* A file of groups asks for as many as it has. */
static uint32_t most_groups(const struct weft_config *config)
{
	if (config->max_workers)
		return config->max_workers;
	return config->groups ? 0 : wf_layout_most_workers();
}

static int plan_by_topology(const struct weft_config *config, const char *xml, const struct wf_nics *nics,
			    const struct wf_log *log, struct wf_layout *layout)
{
	struct wf_topo_nic *list = calloc(nics->count, sizeof(*list));
	struct wf_topo_options options = { .max_groups = most_groups(config), .groups_path = config->groups };
	char error[256] = "out of memory";
	int status = -ENOMEM;

	for (uint32_t i = 0; list && i < nics->count; i++) {
		const struct wf_nic *nic = &nics->nic[i];

		list[i] =
		    (struct wf_topo_nic){ .name = nic->name,
					  .interface = nic->name,
					  .has_pci = nic->has_pci,
					  .pci = { nic->pci_domain, nic->pci_bus, nic->pci_device, nic->pci_function },
					  .bits_per_second = nic->link_bps };
	}
	if (list)
		status = wf_topo_open(xml, &layout->topo, error, sizeof(error));
	if (!status)
		status = wf_topo_plan(layout->topo, list, nics->count, &options, &layout->plan, error, sizeof(error));
	free(list);
	if (status)
		wf_log(log, WEFT_LOG_ERROR, "topology: %s", error);
	else if (layout->plan->found > layout->plan->count)
		wf_log(log, WEFT_LOG_INFO, "topology: %zu groups merged into %zu, a worker each: %s",
		       layout->plan->found, layout->plan->count,
		       config->max_workers ? "max_workers" : "the cores of this process less one");
	return status;
}

int wf_layout_make(const struct weft_config *config, const struct wf_nics *nics, const struct wf_log *log,
		   struct wf_layout *ret_layout)
{
	const char *xml = config->topology ? config->topology : getenv("WEFT_TOPOLOGY_XML");
	int status = 0;

	memset(ret_layout, 0, sizeof(*ret_layout));
	/* One that was asked for is read even if no NIC needs it: what is wrong with it must not stay unsaid. */
	if (any_on_bus(nics) || config->topology || config->groups)
		status = plan_by_topology(config, xml, nics, log, ret_layout);
	if (status)
		wf_layout_free(ret_layout);
	else if (!ret_layout->plan && nics->nic[0].local)
		ret_layout->apart = nics->count;
	return status;
}

uint32_t wf_layout_groups(const struct wf_layout *layout)
{
	return layout->plan ? (uint32_t)layout->plan->count : layout->apart ? layout->apart : 1;
}

uint32_t wf_layout_rails(const struct wf_layout *layout, uint32_t group, uint32_t nics)
{
	return layout->plan ? (uint32_t)layout->plan->groups[group].rail_count : layout->apart ? 1 : nics;
}

uint32_t wf_layout_rail(const struct wf_layout *layout, uint32_t group, uint32_t place)
{
	return layout->plan ? layout->plan->groups[group].rails[place] : layout->apart ? group : place;
}

int wf_layout_core(const struct wf_layout *layout, uint32_t group)
{
	/* A core of a saved or simulated topology is not one of ours. */
	return layout->plan && layout->plan->this_host ? layout->plan->groups[group].worker : -1;
}

int wf_layout_group_near(const struct wf_layout *layout, const char *near)
{
	char *end;
	long numa;

	if (!strncmp(near, "numa:", 5)) {
		numa = strtol(near + 5, &end, 10);
		if (*end || end == near + 5 || numa < 0 || numa > 4096)
			return -EINVAL;
		return layout->plan ? wf_topo_group_of_numa(layout->plan, (int)numa) : -ENOENT;
	}
	return wf_topo_group_of_gpu(layout->topo, layout->plan, near);
}

uint32_t wf_layout_found(const struct wf_layout *layout)
{
	return layout->plan ? (uint32_t)layout->plan->found : layout->apart ? layout->apart : 1;
}

void wf_layout_free(struct wf_layout *layout)
{
	wf_topo_plan_free(layout->plan);
	wf_topo_close(layout->topo);
	memset(layout, 0, sizeof(*layout));
}
