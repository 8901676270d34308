/* weft topo --json: the same facts for programs. PCI addresses are written in full, cores as numbers. */
#include "topo_view.h"

#include <inttypes.h>

static void print_string(const char *text, FILE *to)
{
	fputc('"', to);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c == '"' || *c == '\\')
			fprintf(to, "\\%c", *c);
		else if (*c < 0x20 || *c >= 0x7f)
			fprintf(to, "\\u%04x",
				*c < 0x80 ? *c : 0xfffd); /* names are ASCII; junk must not break the JSON */
		else
			fputc(*c, to);
	}
	fputc('"', to);
}

static void print_pci(struct wf_topo_pci pci, FILE *to)
{
	fprintf(to, "\"%04x:%02x:%02x.%x\"", pci.domain, pci.bus, pci.dev, pci.fn);
}

static void print_number(const char *key, int value, FILE *to)
{
	if (value < 0)
		fprintf(to, "\"%s\": null", key);
	else
		fprintf(to, "\"%s\": %d", key, value);
}

static void print_cores(const uint32_t *cores, size_t count, FILE *to)
{
	fprintf(to, "\"cores\": [");
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%" PRIu32, i ? ", " : "", cores[i]);
	fputc(']', to);
}

static void print_rate(uint64_t bits_per_second, FILE *to)
{
	if (bits_per_second)
		fprintf(to, "\"bits_per_second\": %" PRIu64, bits_per_second);
	else
		fprintf(to, "\"bits_per_second\": null");
}

static void print_group(const struct topo_view *view, size_t index, FILE *to)
{
	const struct wf_topo_group *group = &view->plan->groups[index];

	fprintf(to, "\t\t{\n\t\t\t\"group\": %zu,\n\t\t\t\"memory\": {\"type\": \"%s\", \"gpus\": [", index,
		group->memory == WF_TOPO_MEMORY_GPU ? "gpu" : "numa");
	for (size_t g = 0; g < group->gpu_count; g++) {
		fputs(g ? ", " : "", to);
		print_pci(view->gpus[group->gpus[g]].pci, to);
	}
	fprintf(to, "], ");
	print_number("numa", group->numa, to);
	fprintf(to, "},\n\t\t\t\"rails\": [");
	for (size_t r = 0; r < group->rail_count; r++) {
		fputs(r ? ", " : "", to);
		print_string(view->nics[group->rails[r]].name, to);
	}
	fprintf(to, "],\n\t\t\t");
	print_rate(topo_group_bps(view, group), to);
	fprintf(to, ",\n\t\t\t");
	print_cores(group->cores, group->core_count, to);
	fprintf(to, ",\n\t\t\t");
	print_number("worker", group->worker, to);
	fprintf(to, ",\n\t\t\t\"reason\": ");
	print_string(group->reason, to);
	fprintf(to, "\n\t\t}%s\n", index + 1 < view->plan->count ? "," : "");
}

static void print_devices(const struct topo_view *view, bool gpus, FILE *to)
{
	size_t printed = 0;

	for (size_t d = 0; d < view->device_count; d++) {
		const struct topo_device *device = &view->devices[d];

		if (device->is_gpu != gpus)
			continue;
		fprintf(to, "%s\t\t{\"name\": ", printed++ ? ",\n" : "");
		if (gpus) {
			print_string(view->gpus[device->index].name, to);
			fprintf(to, ", \"pci\": ");
			print_pci(view->gpus[device->index].pci, to);
		} else {
			const struct wf_topo_nic *nic = &view->nics[device->index];

			print_string(nic->name, to);
			fprintf(to, ", \"pci\": ");
			if (nic->has_pci)
				print_pci(nic->pci, to);
			else
				fprintf(to, "null");
			fprintf(to, ", ");
			print_rate(nic->bits_per_second, to);
		}
		fprintf(to, ", ");
		print_number("numa", device->spot.numa, to);
		fprintf(to, ", ");
		print_number("group", device->group, to);
		fputc('}', to);
	}
	fputs(printed ? "\n" : "", to);
}

void topo_print_json(const struct topo_view *view, FILE *to)
{
	fprintf(to, "{\n\t\"machine\": ");
	print_string(wf_topo_machine(view->topo), to);
	fprintf(to, ",\n\t\"this_host\": %s,\n\t", view->plan->this_host ? "true" : "false");
	print_rate(view->bits_per_second, to);
	fprintf(to, ",\n\t\"groups\": [\n");
	for (size_t i = 0; i < view->plan->count; i++)
		print_group(view, i, to);
	fprintf(to, "\t],\n\t\"nodes\": [\n");
	for (size_t n = 0; n < view->node_count; n++) {
		const struct wf_topo_node *node = &view->nodes[n];

		fprintf(to, "\t\t{");
		print_number("numa", node->numa, to);
		fprintf(to, ", ");
		print_number("socket", node->package, to);
		fprintf(to, ", \"memory_bytes\": %" PRIu64 ", \"threads\": %zu, ", node->memory_bytes,
			node->thread_count);
		print_cores(node->cores, node->core_count, to);
		fprintf(to, "}%s\n", n + 1 < view->node_count ? "," : "");
	}
	fprintf(to, "\t],\n\t\"gpus\": [\n");
	print_devices(view, true, to);
	fprintf(to, "\t],\n\t\"nics\": [\n");
	print_devices(view, false, to);
	fprintf(to, "\t]\n}\n");
}
