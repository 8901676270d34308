/*
 * Which NICs, GPUs and cores belong together. One process; nothing is sent.
 *
 *   build/journey/08-topology [--provider NAME | --sim MACHINE]
 */
#include "near.h"

static void name_of(const struct fi_info *info, char *text, size_t room)
{
	const struct fi_bus_attr *bus = info->nic ? info->nic->bus_attr : NULL;

	if (bus && bus->bus_type == FI_BUS_PCI)
		snprintf(text, room, "%04x:%02x:%02x.%x", bus->attr.pci.domain_id, bus->attr.pci.bus_id,
			 bus->attr.pci.device_id, bus->attr.pci.function_id);
	else
		snprintf(text, room, "no place on the bus");
}

int main(int argc, char **argv)
{
	struct pair nobody = { .provider = provider_take(&argc, argv) };
	struct fi_info *infos[MAX_NICS];
	char last[32] = "?";
	int count, groups = 0;

	count = nics_find(&nobody, infos);
	near_load();
	/* guide: groups */
	for (int i = 0; i < count; i++) {
		struct place place = near_place(infos[i]);
		char bus[32];

		if (strcmp(place.gpu, last)) { /* libfabric lists the NICs in the bus's order */
			snprintf(last, sizeof(last), "%s", place.gpu);
			printf("group %d: ", groups++);
			if (*place.gpu)
				printf("GPU %s, ", place.gpu);
			if (place.numa >= 0)
				printf("NUMA node %d, %u cores\n", place.numa, place.cores);
			else
				printf("no GPU, no NUMA node known\n");
		}
		name_of(infos[i], bus, sizeof(bus));
		printf("  %-20s %s", infos[i]->domain_attr->name, bus);
		if (infos[i]->nic && infos[i]->nic->link_attr)
			printf("  %zu Gbit/s", infos[i]->nic->link_attr->speed / 1000000000);
		printf("\n");
	}
	/* guide end */
	printf("%d NIC%s in %d group%s%s\n", count, count == 1 ? "" : "s", groups, groups == 1 ? "" : "s",
	       getenv("SIMFAB") ? " (simulated)" : "");
	for (int i = 0; i < count; i++)
		fi_freeinfo(infos[i]);
	near_unload();
	return 0;
}
