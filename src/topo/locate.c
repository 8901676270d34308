/* Finds devices in the topology and says how near two of them are. Pure look-ups, any thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "topo/impl.h"

struct wf_topo_pci wf_topo_pci_of(hwloc_obj_t pcidev)
{
	const struct hwloc_pcidev_attr_s *attr = &pcidev->attr->pcidev;

	return (struct wf_topo_pci){ attr->domain, attr->bus, attr->dev, attr->func };
}

hwloc_obj_t wf_topo_find_pci(const struct wf_topo *topo, struct wf_topo_pci pci)
{
	return hwloc_get_pcidev_by_busid(topo->hwloc, pci.domain, pci.bus, pci.dev, pci.fn);
}

int wf_topo_find_pci_text(const struct wf_topo *topo, const char *text, hwloc_obj_t *ret_object)
{
	/* hwloc ignores what follows an address. */
	if (!strchr(text, ':') || !strchr(text, '.') || text[strspn(text, "0123456789abcdefABCDEF:.")])
		return -EINVAL;
	if (!topo)
		return -ENOENT;
	errno = 0;
	*ret_object = hwloc_get_pcidev_by_busidstring(topo->hwloc, text);
	if (*ret_object)
		return 0;
	return errno == EINVAL ? -EINVAL : -ENOENT;
}

/* The PCI device of an interface, or the interface itself when it hangs on none but its place is known. */
static hwloc_obj_t find_interface(const struct wf_topo *topo, const char *name)
{
	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(topo->hwloc, o));) {
		hwloc_obj_osdev_type_t type = o->attr->osdev.type;

		if ((type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) || !o->name ||
		    strcmp(o->name, name) != 0)
			continue;
		if (o->parent->type == HWLOC_OBJ_PCI_DEVICE)
			return o->parent;
		return wf_topo_node_of(topo, o) ? o : NULL;
	}
	return NULL;
}

hwloc_obj_t wf_topo_find_nic(const struct wf_topo *topo, const struct wf_topo_nic *nic)
{
	hwloc_obj_t found = nic->has_pci ? wf_topo_find_pci(topo, nic->pci) : NULL;

	if (!found && nic->interface)
		found = find_interface(topo, nic->interface);
	if (!found && nic->name)
		found = find_interface(topo, nic->name);
	return found;
}

/* The node all of an object's cores are near to. A device under the whole of a two-node machine is near
 * neither; memory-only nodes (GPU memory, CXL) that share a node's cores come after it and are not chosen. */
hwloc_obj_t wf_topo_node_of(const struct wf_topo *topo, hwloc_obj_t object)
{
	hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topo->hwloc, object);

	if (!place || !place->cpuset || hwloc_bitmap_iszero(place->cpuset))
		return NULL;
	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(topo->hwloc, HWLOC_OBJ_NUMANODE, o));)
		if (o->cpuset && hwloc_bitmap_isincluded(place->cpuset, o->cpuset))
			return o;
	return NULL;
}

bool wf_topo_is_under(hwloc_obj_t object, hwloc_obj_t ancestor)
{
	while (object && object != ancestor)
		object = object->parent;
	return object != NULL;
}

unsigned wf_topo_depth(hwloc_obj_t object)
{
	unsigned depth = 0;

	for (; object->parent; object = object->parent)
		depth++;
	return depth;
}

unsigned wf_topo_common_depth(hwloc_obj_t a, hwloc_obj_t b)
{
	while (a && !wf_topo_is_under(b, a))
		a = a->parent;
	return a ? wf_topo_depth(a) : 0;
}

static void spot_of(const struct wf_topo *topo, hwloc_obj_t object, struct wf_topo_spot *spot)
{
	hwloc_obj_t node, package;

	*spot = (struct wf_topo_spot){ .numa = -1, .package = -1 };
	if (!object)
		return;
	node = wf_topo_node_of(topo, object);
	package = hwloc_get_ancestor_obj_by_type(topo->hwloc, HWLOC_OBJ_PACKAGE, node ? node : object);
	spot->located = true;
	spot->has_pci = object->type == HWLOC_OBJ_PCI_DEVICE;
	if (spot->has_pci)
		spot->pci = wf_topo_pci_of(object);
	spot->numa = node ? (int)node->os_index : -1;
	spot->package = package ? (int)package->os_index : -1;
	for (hwloc_obj_t o = object->parent; o && spot->bridge_count < WF_TOPO_BRIDGES; o = o->parent) {
		struct wf_topo_bridge *bridge = &spot->bridges[spot->bridge_count];
		const struct hwloc_bridge_attr_s *attr;

		if (o->type != HWLOC_OBJ_BRIDGE)
			continue;
		attr = &o->attr->bridge;
		bridge->host = attr->upstream_type == HWLOC_OBJ_BRIDGE_HOST;
		if (bridge->host)
			bridge->pci = (struct wf_topo_pci){ attr->downstream.pci.domain,
							    attr->downstream.pci.secondary_bus, 0, 0 };
		else
			bridge->pci = (struct wf_topo_pci){ attr->upstream.pci.domain, attr->upstream.pci.bus,
							    attr->upstream.pci.dev, attr->upstream.pci.func };
		spot->bridge_count++;
	}
}

void wf_topo_locate(const struct wf_topo *topo, const struct wf_topo_nic *nic, struct wf_topo_spot *ret_spot)
{
	spot_of(topo, wf_topo_find_nic(topo, nic), ret_spot);
}

void wf_topo_locate_gpu(const struct wf_topo *topo, const struct wf_topo_gpu *gpu, struct wf_topo_spot *ret_spot)
{
	spot_of(topo, wf_topo_find_pci(topo, gpu->pci), ret_spot);
}

const char *wf_topo_pci_text(struct wf_topo_pci pci, char text[WF_TOPO_PCI_BYTES])
{
	if (pci.domain)
		snprintf(text, WF_TOPO_PCI_BYTES, "%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.dev, pci.fn);
	else
		snprintf(text, WF_TOPO_PCI_BYTES, "%02x:%02x.%x", pci.bus, pci.dev, pci.fn);
	return text;
}
