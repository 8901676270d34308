/*
 * The rules by which NICs and GPUs become groups, on any host.
 *
 *  - A NIC meets the GPUs under the lowest object (PCI switch, host bridge, socket, machine) it shares with
 * any. Switches are taken deepest first.
 *  - GPUs and NICs that meet at a PCI bridge make one group: every one of those NICs is as near to each of
 * those GPUs, and one of them may use them all. Where they only share a socket, or are too many for one
 * thread, the NICs are dealt to the GPUs in PCI order, if there is one for each.
 *  - A NIC that meets only GPUs already served joins the poorest of their groups; a GPU left over joins the
 * nearest group; a NIC of unknown place joins the first.
 *  - Without GPUs there is a group for each NUMA node that has a NIC.
 *
 * Pure; called by wf_topo_plan() on any thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "topo/impl.h"

#define ONE_THREAD_RAILS 8 /* more rails than one worker keeps busy with small pages */

static hwloc_obj_t meeting_of(const struct wf_topo *topo, hwloc_obj_t nic)
{
	for (hwloc_obj_t place = nic; place; place = place->parent)
		for (size_t g = 0; g < topo->gpu_count; g++)
			if (wf_topo_is_under(topo->gpu_objects[g], place))
				return place;
	return NULL;
}

/* By count of rails: rates may be unknown, and a worker's load is in operations. */
static size_t rails_of(const struct wf_topo_draft *draft, int group)
{
	size_t rails = 0;

	for (size_t n = 0; n < draft->nic_count; n++)
		rails += draft->nic_group[n] == group;
	return rails;
}

static int poorest_under(const struct wf_topo_draft *draft, hwloc_obj_t place)
{
	const struct wf_topo *topo = draft->topo;
	int best = -1;

	for (size_t g = 0; g < topo->gpu_count; g++) {
		int group = draft->gpu_group[g];

		if (group >= 0 && wf_topo_is_under(topo->gpu_objects[g], place) &&
		    (best < 0 || rails_of(draft, group) < rails_of(draft, best)))
			best = group;
	}
	return best;
}

static bool before(const struct wf_topo_draft *draft, size_t a, size_t b)
{
	hwloc_obj_t x = draft->nic_objects[a], y = draft->nic_objects[b];

	if (!x || !y || x->type != HWLOC_OBJ_PCI_DEVICE || y->type != HWLOC_OBJ_PCI_DEVICE)
		return a < b;
	if (x->attr->pcidev.domain != y->attr->pcidev.domain)
		return x->attr->pcidev.domain < y->attr->pcidev.domain;
	if (x->attr->pcidev.bus != y->attr->pcidev.bus)
		return x->attr->pcidev.bus < y->attr->pcidev.bus;
	if (x->attr->pcidev.dev != y->attr->pcidev.dev)
		return x->attr->pcidev.dev < y->attr->pcidev.dev;
	if (x->attr->pcidev.func != y->attr->pcidev.func)
		return x->attr->pcidev.func < y->attr->pcidev.func;
	return a < b;
}

/* GPU i of k takes NICs i*m/k up to (i+1)*m/k, both in PCI order: neighbours on the bus stay together. */
static int deal(struct wf_topo_draft *draft, hwloc_obj_t place, const size_t *nics, size_t count, size_t gpus)
{
	size_t dealt = 0;

	for (size_t g = 0; g < draft->topo->gpu_count; g++) {
		int group;

		if (draft->gpu_group[g] >= 0 || !wf_topo_is_under(draft->topo->gpu_objects[g], place))
			continue;
		group = wf_topo_draft_add(draft, WF_TOPO_MEMORY_GPU);
		if (group < 0)
			return group;
		draft->gpu_group[g] = group;
		draft->groups[group].meeting = place;
		draft->groups[group].dealt = gpus > 1;
		for (size_t n = dealt * count / gpus; n < (dealt + 1) * count / gpus; n++)
			draft->nic_group[nics[n]] = group;
		dealt++;
	}
	return 0;
}

static int together(struct wf_topo_draft *draft, hwloc_obj_t place, const size_t *nics, size_t count)
{
	int group = wf_topo_draft_add(draft, WF_TOPO_MEMORY_GPU);

	if (group < 0)
		return group;
	draft->groups[group].meeting = place;
	for (size_t g = 0; g < draft->topo->gpu_count; g++)
		if (draft->gpu_group[g] < 0 && wf_topo_is_under(draft->topo->gpu_objects[g], place))
			draft->gpu_group[g] = group;
	for (size_t n = 0; n < count; n++)
		draft->nic_group[nics[n]] = group;
	return 0;
}

static int serve(struct wf_topo_draft *draft, hwloc_obj_t place, size_t *nics, size_t count)
{
	bool near = place->type == HWLOC_OBJ_BRIDGE;
	size_t unserved = 0;

	for (size_t i = 1; i < count; i++)
		for (size_t j = i; j > 0 && before(draft, nics[j], nics[j - 1]); j--) {
			size_t swap = nics[j];

			nics[j] = nics[j - 1];
			nics[j - 1] = swap;
		}
	for (size_t g = 0; g < draft->topo->gpu_count; g++)
		unserved += draft->gpu_group[g] < 0 && wf_topo_is_under(draft->topo->gpu_objects[g], place);
	if (!unserved) {
		for (size_t n = 0; n < count; n++)
			draft->nic_group[nics[n]] = poorest_under(draft, place);
		return 0;
	}
	if (count < unserved || (near && count <= ONE_THREAD_RAILS))
		return together(draft, place, nics, count);
	return deal(draft, place, nics, count, unserved);
}

/* A GPU without a NIC joins the group of the nearest one that has an owner, if that is nearer than a place so
 * deep. */
static void share_nearest(struct wf_topo_draft *draft, size_t gpu, int than)
{
	int deepest = than, best = -1;

	for (size_t n = 0; n < draft->nic_count; n++) {
		int group = draft->nic_group[n], depth;

		if (group < 0 || !draft->nic_objects[n])
			continue;
		depth = (int)wf_topo_common_depth(draft->nic_objects[n], draft->topo->gpu_objects[gpu]);
		if (depth > deepest ||
		    (best >= 0 && depth == deepest && rails_of(draft, group) > rails_of(draft, best))) {
			best = group;
			deepest = depth;
		}
	}
	draft->gpu_group[gpu] = best;
	if (best >= 0)
		draft->groups[best].shared = true;
}

/* Takes the NICs that meet GPUs at the deepest place left. 0 when there are none left. */
static int serve_deepest(struct wf_topo_draft *draft, const hwloc_obj_t *meetings, size_t *scratch)
{
	hwloc_obj_t place = NULL;
	size_t count = 0;
	int rc;

	for (size_t n = 0; n < draft->nic_count; n++)
		if (draft->nic_group[n] < 0 && meetings[n] &&
		    (!place || wf_topo_depth(meetings[n]) > wf_topo_depth(place)))
			place = meetings[n];
	if (!place)
		return 0;
	/* A NIC on the far socket is not for a GPU that can share a near one. */
	for (size_t g = 0; g < draft->topo->gpu_count; g++)
		if (draft->gpu_group[g] < 0)
			share_nearest(draft, g, (int)wf_topo_depth(place));
	for (size_t n = 0; n < draft->nic_count; n++)
		if (draft->nic_group[n] < 0 && meetings[n] == place)
			scratch[count++] = n;
	rc = serve(draft, place, scratch, count);
	return rc ? rc : 1;
}

static int group_by_gpu(struct wf_topo_draft *draft)
{
	hwloc_obj_t *meetings = calloc(draft->nic_count, sizeof(*meetings));
	size_t *scratch = calloc(draft->nic_count, sizeof(*scratch)), unplaced = 0;
	int rc = meetings && scratch ? 1 : -ENOMEM;

	for (size_t n = 0; rc > 0 && n < draft->nic_count; n++)
		meetings[n] = draft->nic_objects[n] ? meeting_of(draft->topo, draft->nic_objects[n]) : NULL;
	while (rc > 0)
		rc = serve_deepest(draft, meetings, scratch);
	for (size_t g = 0; !rc && draft->group_count && g < draft->topo->gpu_count; g++)
		if (draft->gpu_group[g] < 0)
			share_nearest(draft, g, -1);
	if (!rc)
		rc = wf_topo_draft_order(draft);
	for (size_t n = 0; !rc && n < draft->nic_count; n++)
		if (draft->nic_group[n] < 0)
			scratch[unplaced++] = n;
	if (!rc && unplaced && !draft->group_count)
		rc = serve(draft, hwloc_get_root_obj(draft->topo->hwloc), scratch, unplaced);
	else
		for (size_t n = 0; n < unplaced; n++)
			draft->nic_group[scratch[n]] = 0;
	free(meetings);
	free(scratch);
	return rc;
}

/* Where NICs of no place go when none has a place: the first node this process may run on. */
static hwloc_obj_t first_node(const struct wf_topo_draft *draft)
{
	hwloc_obj_t node = NULL;

	while ((node = hwloc_get_next_obj_by_type(draft->topo->hwloc, HWLOC_OBJ_NUMANODE, node)))
		if (node->cpuset && hwloc_bitmap_intersects(node->cpuset, draft->allowed))
			return node;
	return hwloc_get_obj_by_type(draft->topo->hwloc, HWLOC_OBJ_NUMANODE, 0);
}

static int group_by_node(struct wf_topo_draft *draft)
{
	const struct wf_topo *topo = draft->topo;
	hwloc_obj_t node = NULL;
	int group = -1;

	while ((node = hwloc_get_next_obj_by_type(topo->hwloc, HWLOC_OBJ_NUMANODE, node))) {
		group = -1;
		for (size_t n = 0; n < draft->nic_count; n++) {
			hwloc_obj_t nic = draft->nic_objects[n];

			if (!nic || wf_topo_node_of(topo, nic) != node)
				continue;
			if (group < 0)
				group = wf_topo_draft_add(draft, WF_TOPO_MEMORY_NUMA);
			if (group < 0 || hwloc_bitmap_set(draft->groups[group].nodes, node->os_index))
				return -ENOMEM;
			draft->nic_group[n] = group;
		}
	}
	if (!draft->group_count) {
		group = wf_topo_draft_add(draft, WF_TOPO_MEMORY_NUMA);
		node = first_node(draft);
		if (group < 0 || (node && hwloc_bitmap_set(draft->groups[group].nodes, node->os_index)))
			return -ENOMEM;
	}
	for (size_t n = 0; n < draft->nic_count; n++)
		if (draft->nic_group[n] < 0)
			draft->nic_group[n] = 0;
	return 0;
}

int wf_topo_group_by_rule(struct wf_topo_draft *draft)
{
	int rc;

	if (!draft->nic_count)
		return 0;
	if (!draft->topo->gpu_count)
		return group_by_node(draft);
	rc = group_by_gpu(draft);
	if (!rc)
		wf_topo_draft_find_nodes(draft);
	return rc;
}
