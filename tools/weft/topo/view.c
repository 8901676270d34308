/* Sorts devices by where they sit, so that each printer only walks a list. */
#include "view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool same_bridge(const struct wf_topo_bridge *a, const struct wf_topo_bridge *b)
{
	return a->host == b->host && a->pci.domain == b->pci.domain && a->pci.bus == b->pci.bus &&
	       a->pci.dev == b->pci.dev && a->pci.fn == b->pci.fn;
}

static bool passes(const struct topo_device *device, const struct wf_topo_bridge *bridge)
{
	for (size_t i = 0; i < device->spot.bridge_count; i++)
		if (same_bridge(&device->spot.bridges[i], bridge))
			return true;
	return false;
}

/* The switch to draw a device under: the lowest it shares with a device of the other kind, else with any
 * other, else its root. */
static const struct wf_topo_bridge *shown_under(const struct topo_view *view, const struct topo_device *device)
{
	const struct wf_topo_spot *spot = &device->spot;

	for (int other_kind = 1; other_kind >= 0; other_kind--)
		for (size_t i = 0; i < spot->bridge_count; i++)
			for (size_t d = 0; d < view->device_count; d++) {
				const struct topo_device *other = &view->devices[d];

				if (other != device && (!other_kind || other->is_gpu != device->is_gpu) &&
				    passes(other, &spot->bridges[i]))
					return &spot->bridges[i];
			}
	return spot->bridge_count ? &spot->bridges[spot->bridge_count - 1] : NULL;
}

static uint64_t pci_key(struct wf_topo_pci pci)
{
	return (uint64_t)pci.domain << 24 | (uint64_t)pci.bus << 16 | (uint64_t)pci.dev << 8 | pci.fn;
}

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* Unknown (-1) comes last. */
static int compare_number(int a, int b)
{
	return compare((unsigned)a, (unsigned)b);
}

static int by_place(const void *left, const void *right)
{
	const struct topo_place *a = left, *b = right;
	int order = compare_number(a->package, b->package);

	if (!order)
		order = compare_number(a->numa, b->numa);
	if (!order)
		order = compare(!a->has_bridge, !b->has_bridge);
	return order ? order : compare(pci_key(a->bridge.pci), pci_key(b->bridge.pci));
}

static bool belongs(const struct topo_view *view, const struct topo_place *place, const struct topo_device *device)
{
	const struct wf_topo_bridge *bridge = shown_under(view, device);

	return place->package == device->spot.package && place->numa == device->spot.numa &&
	       place->has_bridge == (bridge != NULL) && (!bridge || same_bridge(bridge, &place->bridge));
}

static void find_places(struct topo_view *view)
{
	for (size_t d = 0; d < view->device_count; d++) {
		const struct topo_device *device = &view->devices[d];
		const struct wf_topo_bridge *bridge = shown_under(view, device);
		size_t p = 0;

		while (p < view->place_count && !belongs(view, &view->places[p], device))
			p++;
		if (p < view->place_count)
			continue;
		view->places[view->place_count++] = (struct topo_place){
			.package = device->spot.package,
			.numa = device->spot.numa,
			.has_bridge = bridge != NULL,
			.bridge = bridge ? *bridge : (struct wf_topo_bridge){ 0 },
		};
	}
	qsort(view->places, view->place_count, sizeof(*view->places), by_place);
}

/* Puts the devices in the order of their places: gpus were listed before NICs, and stay so within a place. */
static int sort_devices(struct topo_view *view)
{
	struct topo_device *sorted = calloc(view->device_count + 1, sizeof(*sorted));
	size_t at = 0;

	if (!sorted)
		return -ENOMEM;
	for (size_t p = 0; p < view->place_count; p++) {
		struct topo_place *place = &view->places[p];

		place->devices = &sorted[at];
		for (size_t d = 0; d < view->device_count; d++)
			if (belongs(view, place, &view->devices[d]))
				place->devices[place->count++] = view->devices[d];
		at += place->count;
	}
	free(view->devices);
	view->devices = sorted;
	return 0;
}

static void count_up(struct topo_view *view)
{
	bool known = view->nic_count > 0;

	for (size_t n = 0; n < view->nic_count; n++) {
		known = known && view->nics[n].bits_per_second;
		view->bits_per_second += view->nics[n].bits_per_second;
	}
	if (!known)
		view->bits_per_second = 0;
	for (size_t n = 0; n < view->node_count; n++) {
		bool seen = false;

		for (size_t i = 0; i < n; i++)
			seen = seen || view->nodes[i].package == view->nodes[n].package;
		view->package_count += !seen;
		view->core_count += view->nodes[n].core_count;
		view->thread_count += view->nodes[n].thread_count;
	}
}

static void find_groups(struct topo_view *view)
{
	for (size_t i = 0; i < view->plan->count; i++) {
		const struct wf_topo_group *group = &view->plan->groups[i];

		for (size_t g = 0; g < group->gpu_count; g++)
			view->devices[group->gpus[g]].group = (int)i;
		for (size_t r = 0; r < group->rail_count; r++)
			view->devices[view->gpu_count + group->rails[r]].group = (int)i;
	}
}

int topo_view_open(struct topo_view *view, const struct wf_topo *topo, const struct wf_topo_nic *nics, size_t nic_count,
		   const struct wf_topo_plan *plan)
{
	int rc;

	*view = (struct topo_view){ .topo = topo, .plan = plan, .nics = nics, .nic_count = nic_count };
	view->gpu_count = wf_topo_gpus(topo, &view->gpus);
	view->node_count = wf_topo_nodes(topo, &view->nodes);
	view->device_count = view->gpu_count + nic_count;
	view->devices = calloc(view->device_count + 1, sizeof(*view->devices));
	view->places = calloc(view->device_count + 1, sizeof(*view->places));
	if (!view->devices || !view->places) {
		topo_view_close(view);
		return -ENOMEM;
	}
	for (size_t d = 0; d < view->device_count; d++) {
		struct topo_device *device = &view->devices[d];

		device->is_gpu = d < view->gpu_count;
		device->index = device->is_gpu ? d : d - view->gpu_count;
		device->group = -1;
		if (device->is_gpu)
			wf_topo_locate_gpu(topo, &view->gpus[device->index], &device->spot);
		else
			wf_topo_locate(topo, &nics[device->index], &device->spot);
	}
	count_up(view);
	find_groups(view);
	find_places(view);
	rc = sort_devices(view);
	if (rc)
		topo_view_close(view);
	return rc;
}

void topo_view_close(struct topo_view *view)
{
	free(view->devices);
	free(view->places);
	view->devices = NULL;
	view->places = NULL;
}

char *topo_rate_text(uint64_t bits_per_second, char text[TOPO_TEXT])
{
	static const struct {
		double unit;
		const char *name;
	} units[] = { { 1e12, "Tbit/s" }, { 1e9, "Gbit/s" }, { 1e6, "Mbit/s" }, { 1e3, "kbit/s" }, { 1, "bit/s" } };
	size_t u = 0;

	text[0] = '\0';
	if (!bits_per_second)
		return text;
	while (u + 1 < sizeof(units) / sizeof(*units) && (double)bits_per_second < units[u].unit)
		u++;
	snprintf(text, TOPO_TEXT, "%.4g %s", (double)bits_per_second / units[u].unit, units[u].name);
	return text;
}

char *topo_bridge_text(const struct topo_place *place, char text[TOPO_TEXT])
{
	char pci[WF_TOPO_PCI_BYTES];

	text[0] = '\0';
	if (place->has_bridge && place->bridge.host)
		snprintf(text, TOPO_TEXT, "PCI root %02x", place->bridge.pci.bus);
	else if (place->has_bridge)
		snprintf(text, TOPO_TEXT, "PCI switch %s", wf_topo_pci_text(place->bridge.pci, pci));
	return text;
}

char *topo_memory_text(const struct topo_view *view, const struct wf_topo_group *group, char text[TOPO_TEXT])
{
	char pci[WF_TOPO_PCI_BYTES];

	if (group->gpu_count == 1)
		snprintf(text, TOPO_TEXT, "GPU %s", wf_topo_pci_text(view->gpus[group->gpus[0]].pci, pci));
	else if (group->gpu_count)
		snprintf(text, TOPO_TEXT, "%zu GPUs", group->gpu_count);
	else if (group->numa >= 0)
		snprintf(text, TOPO_TEXT, "NUMA node %d", group->numa);
	else
		snprintf(text, TOPO_TEXT, "several NUMA nodes");
	return text;
}

uint64_t topo_group_bps(const struct topo_view *view, const struct wf_topo_group *group)
{
	uint64_t total = 0;

	for (size_t r = 0; r < group->rail_count; r++) {
		if (!view->nics[group->rails[r]].bits_per_second)
			return 0;
		total += view->nics[group->rails[r]].bits_per_second;
	}
	return total;
}
