/* weft topo as text: the tree of sockets, nodes, switches and devices, then the groups and why. */
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *plural(size_t count)
{
	return count == 1 ? "" : "s";
}

static void print_title(const struct topo_view *view, FILE *to)
{
	const char *name = view->machine;
	char rate[TOPO_TEXT];

	fprintf(to, "%s%s%s%zu socket%s, %zu NUMA node%s, %zu cores, %zu GPU%s, %zu NIC%s", name,
		view->simulated ? " (simulated)" : "", *name || view->simulated ? ": " : "", view->package_count,
		plural(view->package_count), view->node_count, plural(view->node_count), view->core_count,
		view->gpu_count, plural(view->gpu_count), view->nic_count, plural(view->nic_count));
	topo_rate_text(view->bits_per_second, rate);
	fprintf(to, "%s%s\n", *rate ? ", " : "", rate);
	if (view->source)
		fprintf(to, "from %s\n", view->source);
}

static void print_device(const struct topo_view *view, const struct topo_device *device, const char *stem, bool last,
			 FILE *to)
{
	char pci[WF_TOPO_PCI_BYTES] = "", rate[TOPO_TEXT], group[24] = "";

	if (device->group >= 0)
		snprintf(group, sizeof(group), "group %d", device->group);
	fprintf(to, "%s%s ", stem, last ? "└─" : "├─");
	if (device->is_gpu) {
		const struct wf_topo_gpu *gpu = &view->gpus[device->index];

		fprintf(to, "GPU  %-16s %-12s %-12s %s", gpu->name, wf_topo_pci_text(gpu->pci, pci), "", group);
	} else {
		const struct wf_topo_nic *nic = &view->nics[device->index];

		if (device->spot.has_pci)
			wf_topo_pci_text(device->spot.pci, pci);
		fprintf(to, "NIC  %-16s %-12s %-12s %s", nic->name, pci, topo_rate_text(nic->bits_per_second, rate),
			group);
	}
	fputc('\n', to);
}

static void print_place(const struct topo_view *view, const struct topo_place *place, bool last, FILE *to)
{
	char text[TOPO_TEXT];

	topo_bridge_text(place, text);
	fprintf(to, "  %s %s\n", last ? "└─" : "├─", *text ? text : "not on PCI");
	for (size_t d = 0; d < place->count; d++)
		print_device(view, &place->devices[d], last ? "     " : "  │  ", d + 1 == place->count, to);
}

static void print_places(const struct topo_view *view, int numa, FILE *to)
{
	size_t last = SIZE_MAX;

	for (size_t p = 0; p < view->place_count; p++)
		if (view->places[p].numa == numa)
			last = p;
	for (size_t p = 0; p < view->place_count; p++)
		if (view->places[p].numa == numa)
			print_place(view, &view->places[p], p == last, to);
}

static char *cpus_text(const uint32_t *cpus, size_t count)
{
	size_t bytes = wf_topo_cpus_text(cpus, count, NULL, 0) + 1;
	char *text = malloc(bytes);

	if (text)
		wf_topo_cpus_text(cpus, count, text, bytes);
	return text;
}

static void print_node(const struct topo_view *view, const struct wf_topo_node *node, FILE *to)
{
	char *cores = cpus_text(node->cores, node->core_count);

	fputc('\n', to);
	if (node->package >= 0)
		fprintf(to, "socket %d, ", node->package);
	fprintf(to, "NUMA node %d: ", node->numa);
	if (node->memory_bytes)
		fprintf(to, "%.4g GiB, ", (double)node->memory_bytes / (1 << 30));
	if (node->core_count)
		fprintf(to, "core%s %s", plural(node->core_count), cores ? cores : "?");
	else
		fprintf(to, "no cores");
	if (node->thread_count > node->core_count)
		fprintf(to, " (%zu threads)", node->thread_count);
	fputc('\n', to);
	print_places(view, node->numa, to);
	free(cores);
}

static void print_group(const struct topo_view *view, size_t index, FILE *to)
{
	const struct wf_topo_group *group = &view->plan->groups[index];
	char memory[TOPO_TEXT], rate[TOPO_TEXT];
	char *cores = cpus_text(group->cores, group->core_count);
	int column = 12;

	fprintf(to, "\ngroup %zu: %s", index, topo_memory_text(view, group, memory));
	if (group->memory == WF_TOPO_MEMORY_GPU && group->numa >= 0)
		fprintf(to, " on NUMA node %d", group->numa);
	topo_rate_text(topo_group_bps(view, group), rate);
	fprintf(to, ", %zu rail%s%s%s\n  rails  ", group->rail_count, plural(group->rail_count), *rate ? ", " : "",
		rate);
	for (size_t r = 0; r < group->rail_count; r++) {
		const char *name = view->nics[group->rails[r]].name;

		if (r && column + (int)strlen(name) > 100) {
			fprintf(to, "\n         ");
			column = 12;
		}
		column += fprintf(to, " %s", name);
	}
	if (group->worker >= 0)
		fprintf(to, "\n  cores   %s, worker on %d", cores ? cores : "?", group->worker);
	fprintf(to, "\n  because %s\n", group->reason);
	free(cores);
}

void topo_print_text(const struct topo_view *view, FILE *to)
{
	bool unplaced = false;

	print_title(view, to);
	for (size_t n = 0; n < view->node_count; n++)
		print_node(view, &view->nodes[n], to);
	for (size_t p = 0; p < view->place_count; p++)
		unplaced = unplaced || view->places[p].numa < 0;
	if (unplaced) {
		fprintf(to, "\nNUMA node not known\n");
		print_places(view, -1, to);
	}
	for (size_t i = 0; i < view->plan->count; i++)
		print_group(view, i, to);
	if (view->engine_groups && view->engine_groups < view->plan->count)
		fprintf(to,
			"\nAn engine of this process merges these into %zu: each group needs a worker, and "
			"this process has cores for %zu\n"
			"besides the application. 'weft bench --workers %zu' (max_workers) keeps them apart; "
			"--max-groups %zu shows the merged groups.\n",
			view->engine_groups, view->engine_groups, view->plan->count, view->engine_groups);
	if (!view->plan->count)
		fprintf(to, "\nno NIC, so no group: see 'weft doctor'\n");
}
