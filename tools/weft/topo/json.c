/* weft topo --json: the same facts for programs. PCI addresses are written in full, cores as numbers. */
#include "../common/json.h"
#include "view.h"

static void put_pci(struct cmd_json *json, const char *name, struct wf_topo_pci pci)
{
	char text[WF_TOPO_PCI_BYTES];

	snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.dev, pci.fn);
	cmd_json_text(json, name, text);
}

/* What is not known is null, not -1 or 0. */
static void put_index(struct cmd_json *json, const char *name, int index)
{
	if (index < 0)
		cmd_json_null(json, name);
	else
		cmd_json_number(json, name, (uint64_t)index);
}

static void put_rate(struct cmd_json *json, uint64_t bits_per_second)
{
	if (bits_per_second)
		cmd_json_number(json, "bits_per_second", bits_per_second);
	else
		cmd_json_null(json, "bits_per_second");
}

static void put_cores(struct cmd_json *json, const uint32_t *cores, size_t count)
{
	cmd_json_open(json, "cores", '[');
	for (size_t i = 0; i < count; i++)
		cmd_json_number(json, NULL, cores[i]);
	cmd_json_close(json, ']');
}

static void put_group(struct cmd_json *json, const struct topo_view *view, size_t index)
{
	const struct wf_topo_group *group = &view->plan->groups[index];

	cmd_json_open(json, NULL, '{');
	cmd_json_number(json, "group", index);
	cmd_json_open(json, "memory", '{');
	cmd_json_text(json, "type", group->memory == WF_TOPO_MEMORY_GPU ? "gpu" : "numa");
	cmd_json_open(json, "gpus", '[');
	for (size_t g = 0; g < group->gpu_count; g++)
		put_pci(json, NULL, view->gpus[group->gpus[g]].pci);
	cmd_json_close(json, ']');
	put_index(json, "numa", group->numa);
	cmd_json_close(json, '}');
	cmd_json_open(json, "rails", '[');
	for (size_t r = 0; r < group->rail_count; r++)
		cmd_json_text(json, NULL, view->nics[group->rails[r]].name);
	cmd_json_close(json, ']');
	put_rate(json, topo_group_bps(view, group));
	put_cores(json, group->cores, group->core_count);
	put_index(json, "worker", group->worker);
	cmd_json_text(json, "reason", group->reason);
	cmd_json_close(json, '}');
}

static void put_devices(struct cmd_json *json, const struct topo_view *view, bool gpus)
{
	cmd_json_open(json, gpus ? "gpus" : "nics", '[');
	for (size_t d = 0; d < view->device_count; d++) {
		const struct topo_device *device = &view->devices[d];

		if (device->is_gpu != gpus)
			continue;
		cmd_json_open(json, NULL, '{');
		if (gpus) {
			cmd_json_text(json, "name", view->gpus[device->index].name);
			put_pci(json, "pci", view->gpus[device->index].pci);
		} else {
			const struct wf_topo_nic *nic = &view->nics[device->index];

			cmd_json_text(json, "name", nic->name);
			if (device->spot.has_pci)
				put_pci(json, "pci", device->spot.pci);
			else
				cmd_json_null(json, "pci");
			put_rate(json, nic->bits_per_second);
		}
		put_index(json, "numa", device->spot.numa);
		put_index(json, "group", device->group);
		cmd_json_close(json, '}');
	}
	cmd_json_close(json, ']');
}

void topo_print_json(const struct topo_view *view, FILE *to)
{
	struct cmd_json json;

	cmd_json_start(&json, to);
	cmd_json_open(&json, NULL, '{');
	if (*view->machine)
		cmd_json_text(&json, "machine", view->machine);
	else
		cmd_json_null(&json, "machine");
	cmd_json_bool(&json, "simulated", view->simulated);
	cmd_json_bool(&json, "this_host", view->plan->this_host);
	put_rate(&json, view->bits_per_second);
	if (view->engine_groups)
		cmd_json_number(&json, "engine_groups", view->engine_groups);
	else
		cmd_json_null(&json, "engine_groups");
	cmd_json_open(&json, "groups", '[');
	for (size_t i = 0; i < view->plan->count; i++)
		put_group(&json, view, i);
	cmd_json_close(&json, ']');
	cmd_json_open(&json, "nodes", '[');
	for (size_t n = 0; n < view->node_count; n++) {
		const struct wf_topo_node *node = &view->nodes[n];

		cmd_json_open(&json, NULL, '{');
		put_index(&json, "numa", node->numa);
		put_index(&json, "socket", node->package);
		cmd_json_number(&json, "memory_bytes", node->memory_bytes);
		cmd_json_number(&json, "threads", node->thread_count);
		put_cores(&json, node->cores, node->core_count);
		cmd_json_close(&json, '}');
	}
	cmd_json_close(&json, ']');
	put_devices(&json, view, true);
	put_devices(&json, view, false);
	cmd_json_close(&json, '}');
	cmd_json_end(&json);
}
