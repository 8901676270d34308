/* Where a NIC is, from hwloc. One thread; the topology is read once. */
#include "near.h"

#include <hwloc.h>

static hwloc_topology_t topology;

void near_load(void)
{
	const char *xml = getenv("WEFT_TOPOLOGY_XML");

	if (hwloc_topology_init(&topology) || (xml && hwloc_topology_set_xml(topology, xml)) ||
	    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL) || hwloc_topology_load(topology))
		die("hwloc cannot read the topology%s%s", xml ? " in " : "", xml ? xml : "");
}

void near_unload(void)
{
	hwloc_topology_destroy(topology);
}

static hwloc_obj_t device_of(const struct fi_info *info)
{
	const struct fi_bus_attr *bus = info->nic ? info->nic->bus_attr : NULL;

	if (!bus || bus->bus_type != FI_BUS_PCI)
		return NULL; /* an interface of the kernel's has no place of its own */
	return hwloc_get_pcidev_by_busid(topology, bus->attr.pci.domain_id, bus->attr.pci.bus_id,
					 bus->attr.pci.device_id, bus->attr.pci.function_id);
}

static bool is_gpu(hwloc_obj_t device)
{
	return device->attr->pcidev.class_id >> 8 == 0x03;
}

/* guide: near */
/* How many bridges up from the NIC the GPU is reached; -1 when only through the processor. */
static int bridges_between(hwloc_obj_t nic, hwloc_obj_t gpu)
{
	int up = 0;

	for (hwloc_obj_t at = nic->parent; at && at->type == HWLOC_OBJ_BRIDGE; at = at->parent, up++)
		for (hwloc_obj_t other = gpu->parent; other; other = other->parent)
			if (other == at)
				return up;
	return -1;
}
/* guide end */

static hwloc_obj_t node_of(hwloc_obj_t device)
{
	hwloc_obj_t near = device ? hwloc_get_non_io_ancestor_obj(topology, device) : NULL;
	int first = near ? hwloc_bitmap_first(near->nodeset) : -1;

	return first < 0 ? NULL : hwloc_get_numanode_obj_by_os_index(topology, (unsigned)first);
}

struct place near_place(const struct fi_info *info)
{
	struct place place = { .numa = -1 };
	hwloc_obj_t nic = device_of(info), node = node_of(nic), gpu = NULL;
	int best = -1;

	if (node) {
		place.numa = (int)node->os_index;
		place.cores = (unsigned)hwloc_get_nbobjs_inside_cpuset_by_type(topology, node->cpuset, HWLOC_OBJ_CORE);
	}
	while (nic && (gpu = hwloc_get_next_pcidev(topology, gpu))) {
		int bridges = is_gpu(gpu) ? bridges_between(nic, gpu) : -1;

		if (bridges < 0 || (best >= 0 && bridges >= best))
			continue;
		best = bridges;
		snprintf(place.gpu, sizeof(place.gpu), "%04x:%02x:%02x.%x", gpu->attr->pcidev.domain,
			 gpu->attr->pcidev.bus, gpu->attr->pcidev.dev, gpu->attr->pcidev.func);
	}
	return place;
}

unsigned near_core(const struct fi_info *info, unsigned wanted)
{
	hwloc_obj_t node = node_of(device_of(info)), core;
	hwloc_const_cpuset_t cpus = node ? node->cpuset : hwloc_topology_get_topology_cpuset(topology);
	int count = hwloc_get_nbobjs_inside_cpuset_by_type(topology, cpus, HWLOC_OBJ_CORE);

	core = count > 0 ? hwloc_get_obj_inside_cpuset_by_type(topology, cpus, HWLOC_OBJ_CORE, wanted % (unsigned)count)
			 : NULL;
	return core ? (unsigned)hwloc_bitmap_first(core->cpuset) : wanted;
}
