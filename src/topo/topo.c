/* Opens a topology and takes stock of it once: GPUs, NUMA nodes, NICs. See topo.h for who calls it. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/impl.h"

int wf_topo_fail(int code, char *error, size_t error_bytes, const char *format, ...)
{
	va_list args;

	if (!error || !error_bytes)
		return code;
	va_start(args, format);
	vsnprintf(error, error_bytes, format, args);
	va_end(args);
	return code;
}

/* The CUDA, OpenCL and NVML parts of hwloc would open contexts in the caller's process: PCI alone says
 * enough. */
static void leave_out_drivers(hwloc_topology_t hwloc)
{
#if HWLOC_API_VERSION >= 0x00020100
	static const char *const names[] = { "cuda", "nvml", "opencl", "gl", "rsmi", "levelzero", "pci" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, names[i]);
#else
	(void)hwloc;
#endif
}

/* hwloc would wait for ever on a pipe, and does not say why it cannot read a file. */
static int check_file(const char *path, char *error, size_t error_bytes)
{
	struct stat st;

	if (stat(path, &st) || access(path, R_OK))
		return wf_topo_fail(-errno, error, error_bytes, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return wf_topo_fail(-EINVAL, error, error_bytes, "%s: not a file", path);
	return 0;
}

static int load(struct wf_topo *topo, const char *xml_path, char *error, size_t error_bytes)
{
	int rc = xml_path ? check_file(xml_path, error, error_bytes) : 0;

	if (rc)
		return rc;
	if (hwloc_topology_init(&topo->hwloc))
		return wf_topo_fail(-ENOMEM, error, error_bytes, "hwloc cannot start: out of memory");
	leave_out_drivers(topo->hwloc);
	hwloc_topology_set_io_types_filter(topo->hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	if ((xml_path && hwloc_topology_set_xml(topo->hwloc, xml_path)) || hwloc_topology_load(topo->hwloc))
		return xml_path ? wf_topo_fail(-EINVAL, error, error_bytes, "%s: hwloc cannot read it as a topology",
					       xml_path)
				: wf_topo_fail(-EIO, error, error_bytes, "hwloc cannot read this host's topology");
	topo->this_host = hwloc_topology_is_thissystem(topo->hwloc);
	return 0;
}

/* Memory worth a group of its own. An integrated GPU or a management controller's display has none. */
static bool is_gpu(const struct hwloc_pcidev_attr_s *pci)
{
	enum { VGA = 0x0300, COMPUTE_3D = 0x0302, DISPLAY_OTHER = 0x0380, ACCELERATOR = 0x1200 };
	enum { NVIDIA = 0x10de, AMD = 0x1002, INTEL = 0x8086, HABANA = 0x1da3 };

	switch (pci->vendor_id) {
	case NVIDIA:
		return pci->class_id == VGA || pci->class_id == COMPUTE_3D || pci->class_id == DISPLAY_OTHER;
	case AMD:
		return pci->class_id == COMPUTE_3D || pci->class_id == DISPLAY_OTHER || pci->class_id == ACCELERATOR;
	case INTEL:
		return pci->class_id == DISPLAY_OTHER || pci->class_id == ACCELERATOR;
	case HABANA:
		return pci->class_id == ACCELERATOR;
	default:
		return false;
	}
}

/* "GH100 [H100 SXM5 80GB]" is H100 SXM5 80GB to people. Without a PCI database, the ones weft meets most. */
static void name_gpu(struct wf_topo_gpu *gpu, hwloc_obj_t object)
{
	static const struct {
		uint16_t device;
		const char *name;
	} known[] = { { 0x20b0, "A100" },  { 0x20b2, "A100 80GB" }, { 0x2330, "H100" }, { 0x2335, "H200" },
		      { 0x2342, "GH200" }, { 0x2901, "B200" },      { 0x3182, "B300" } };
	const char *model = hwloc_obj_get_info_by_name(object, "PCIDevice");
	const char *open = model ? strchr(model, '[') : NULL, *close = open ? strchr(open, ']') : NULL;

	if (close)
		snprintf(gpu->name, sizeof(gpu->name), "%.*s", (int)(close - open - 1), open + 1);
	else
		snprintf(gpu->name, sizeof(gpu->name), "%s", model ? model : "GPU");
	for (size_t i = 0; !model && i < sizeof(known) / sizeof(*known); i++)
		if (object->attr->pcidev.vendor_id == 0x10de && object->attr->pcidev.device_id == known[i].device)
			snprintf(gpu->name, sizeof(gpu->name), "%s", known[i].name);
}

static int by_pci(const void *left, const void *right)
{
	struct wf_topo_pci a = wf_topo_pci_of(*(const hwloc_obj_t *)left);
	struct wf_topo_pci b = wf_topo_pci_of(*(const hwloc_obj_t *)right);
	uint64_t x = (uint64_t)a.domain << 24 | (uint64_t)a.bus << 16 | (uint64_t)a.dev << 8 | a.fn;
	uint64_t y = (uint64_t)b.domain << 24 | (uint64_t)b.bus << 16 | (uint64_t)b.dev << 8 | b.fn;

	return x < y ? -1 : x > y;
}

static int find_gpus(struct wf_topo *topo)
{
	size_t room = 0;

	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(topo->hwloc, o));)
		room += is_gpu(&o->attr->pcidev);
	topo->gpus = calloc(room + 1, sizeof(*topo->gpus));
	topo->gpu_objects = calloc(room + 1, sizeof(hwloc_obj_t));
	if (!topo->gpus || !topo->gpu_objects)
		return -ENOMEM;
	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(topo->hwloc, o));)
		if (is_gpu(&o->attr->pcidev))
			topo->gpu_objects[topo->gpu_count++] = o;
	qsort(topo->gpu_objects, topo->gpu_count, sizeof(hwloc_obj_t), by_pci);
	for (size_t i = 0; i < topo->gpu_count; i++) {
		struct wf_topo_gpu *gpu = &topo->gpus[i];
		hwloc_obj_t object = topo->gpu_objects[i], node = wf_topo_node_of(topo, object);

		gpu->pci = wf_topo_pci_of(object);
		gpu->numa = node ? (int)node->os_index : -1;
		name_gpu(gpu, object);
	}
	return 0;
}

static int find_nodes(struct wf_topo *topo)
{
	int count = hwloc_get_nbobjs_by_type(topo->hwloc, HWLOC_OBJ_NUMANODE);
	hwloc_bitmap_t cores = hwloc_bitmap_alloc();
	int rc = 0;

	topo->nodes = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof(*topo->nodes));
	if (!topo->nodes || !cores)
		rc = -ENOMEM;
	for (hwloc_obj_t o = NULL; !rc && (o = hwloc_get_next_obj_by_type(topo->hwloc, HWLOC_OBJ_NUMANODE, o));) {
		struct wf_topo_node *node = &topo->nodes[topo->node_count++];
		hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topo->hwloc, HWLOC_OBJ_PACKAGE, o);
		int at = -1;

		node->numa = (int)o->os_index;
		node->package = package ? (int)package->os_index : -1;
		node->memory_bytes = o->attr->numanode.local_memory;
		rc = wf_topo_physical_cores(topo, o->cpuset, NULL, cores);
		if (rc)
			break;
		node->thread_count = (size_t)hwloc_bitmap_weight(o->cpuset);
		node->cores = calloc((size_t)hwloc_bitmap_weight(cores) + 1, sizeof(uint32_t));
		if (!node->cores)
			rc = -ENOMEM;
		while (!rc && (at = hwloc_bitmap_next(cores, at)) >= 0)
			node->cores[node->core_count++] = (uint32_t)at;
	}
	hwloc_bitmap_free(cores);
	return rc;
}

/* PCI's speed says nothing of the wire's: only a rate written down as one is believed. */
static uint64_t rate_of(hwloc_obj_t device)
{
	const char *text = hwloc_obj_get_info_by_name(device, "LinkBitsPerSecond");

	return text ? strtoull(text, NULL, 10) : 0;
}

static bool is_nic(hwloc_obj_t device, hwloc_obj_osdev_type_t type)
{
	return device->attr->osdev.type == type && device->name && device->parent->type == HWLOC_OBJ_PCI_DEVICE;
}

static int find_nics(struct wf_topo *topo)
{
	hwloc_obj_osdev_type_t type = HWLOC_OBJ_OSDEV_NETWORK;
	size_t room = 0;

	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(topo->hwloc, o)); room++)
		if (is_nic(o, HWLOC_OBJ_OSDEV_OPENFABRICS))
			type = HWLOC_OBJ_OSDEV_OPENFABRICS;
	topo->nics = calloc(room + 1, sizeof(*topo->nics));
	if (!topo->nics)
		return -ENOMEM;
	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(topo->hwloc, o));) {
		if (!is_nic(o, type))
			continue;
		topo->nics[topo->nic_count++] = (struct wf_topo_nic){
			.name = o->name,
			.interface = o->name,
			.has_pci = true,
			.pci = wf_topo_pci_of(o->parent),
			.bits_per_second = rate_of(o),
		};
	}
	return 0;
}

int wf_topo_open(const char *xml_path, struct wf_topo **ret_topo, char *error, size_t error_bytes)
{
	struct wf_topo *topo = calloc(1, sizeof(*topo));
	int rc;

	if (!topo)
		return wf_topo_fail(-ENOMEM, error, error_bytes, "out of memory");
	rc = load(topo, xml_path, error, error_bytes);
	if (rc)
		goto close_topo;
	rc = find_gpus(topo);
	if (!rc)
		rc = find_nodes(topo);
	if (!rc)
		rc = find_nics(topo);
	if (rc) {
		wf_topo_fail(rc, error, error_bytes, "out of memory");
		goto close_topo;
	}
	*ret_topo = topo;
	return 0;

close_topo:
	wf_topo_close(topo);
	return rc;
}

void wf_topo_close(struct wf_topo *topo)
{
	if (!topo)
		return;
	for (size_t i = 0; i < topo->node_count; i++)
		free(topo->nodes[i].cores);
	free(topo->nodes);
	free(topo->gpus);
	free(topo->gpu_objects);
	free(topo->nics);
	if (topo->hwloc)
		hwloc_topology_destroy(topo->hwloc);
	free(topo);
}

size_t wf_topo_gpus(const struct wf_topo *topo, const struct wf_topo_gpu **ret_gpus)
{
	*ret_gpus = topo->gpus;
	return topo->gpu_count;
}

size_t wf_topo_nodes(const struct wf_topo *topo, const struct wf_topo_node **ret_nodes)
{
	*ret_nodes = topo->nodes;
	return topo->node_count;
}

size_t wf_topo_nics(const struct wf_topo *topo, const struct wf_topo_nic **ret_nics)
{
	*ret_nics = topo->nics;
	return topo->nic_count;
}

const char *wf_topo_machine(const struct wf_topo *topo)
{
	static const char *const keys[] = { "DMIProductName", "SimulatedMachine", "CPUModel" };
	hwloc_obj_t machine = hwloc_get_root_obj(topo->hwloc);
	const char *name = NULL;

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && !name; i++)
		name = hwloc_obj_get_info_by_name(machine, keys[i]);
	return name ? name : "";
}
