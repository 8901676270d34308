/* Turns a topology and a list of NICs into groups: by rule or by file, then merged, then given cores. Pure. */
#include <errno.h>
#include <stdlib.h>

#include "topo/impl.h"

static void draft_free(struct wf_topo_draft *draft)
{
	for (size_t i = 0; i < draft->group_count; i++) {
		hwloc_bitmap_free(draft->groups[i].nodes);
		hwloc_bitmap_free(draft->groups[i].cores);
	}
	free(draft->groups);
	free(draft->nic_objects);
	free(draft->nic_group);
	free(draft->nic_rank);
	free(draft->gpu_group);
}

static int draft_start(struct wf_topo_draft *draft)
{
	draft->nic_objects = calloc(draft->nic_count + 1, sizeof(*draft->nic_objects));
	draft->nic_group = calloc(draft->nic_count + 1, sizeof(*draft->nic_group));
	draft->nic_rank = calloc(draft->nic_count + 1, sizeof(*draft->nic_rank));
	draft->gpu_group = calloc(draft->topo->gpu_count + 1, sizeof(*draft->gpu_group));
	if (!draft->nic_objects || !draft->nic_group || !draft->nic_rank || !draft->gpu_group)
		return -ENOMEM;
	for (size_t n = 0; n < draft->nic_count; n++) {
		draft->nic_objects[n] = wf_topo_find_nic(draft->topo, &draft->nics[n]);
		draft->nic_group[n] = -1;
	}
	for (size_t g = 0; g < draft->topo->gpu_count; g++)
		draft->gpu_group[g] = -1;
	return 0;
}

/* What this process may run on: hwloc has already left out what the cgroup forbids. */
static int find_allowed(const struct wf_topo *topo, const char *text, hwloc_bitmap_t allowed, char *error,
			size_t error_bytes)
{
	hwloc_const_cpuset_t machine = hwloc_topology_get_allowed_cpuset(topo->hwloc);
	int rc;

	if (text) {
		rc = wf_topo_cpus_parse(text, allowed, error, error_bytes);
		if (rc)
			return rc;
		hwloc_bitmap_and(allowed, allowed, machine);
		if (hwloc_bitmap_iszero(allowed))
			return wf_topo_fail(-EINVAL, error, error_bytes, "none of CPUs '%s' is on this machine", text);
		return 0;
	}
	if (topo->this_host && !hwloc_get_cpubind(topo->hwloc, allowed, HWLOC_CPUBIND_PROCESS)) {
		hwloc_bitmap_and(allowed, allowed, machine);
		if (!hwloc_bitmap_iszero(allowed))
			return 0;
	}
	return hwloc_bitmap_copy(allowed, machine) ? wf_topo_fail(-ENOMEM, error, error_bytes, "out of memory") : 0;
}

static uint64_t order_of(hwloc_obj_t nic)
{
	const struct hwloc_pcidev_attr_s *pci;

	if (!nic || nic->type != HWLOC_OBJ_PCI_DEVICE)
		return UINT64_MAX;
	pci = &nic->attr->pcidev;
	return (uint64_t)pci->domain << 24 | (uint64_t)pci->bus << 16 | (uint64_t)pci->dev << 8 | pci->func;
}

/* How deep the NIC meets the nearest of the group's GPUs: deeper is nearer. */
static unsigned closeness(const struct wf_topo_draft *draft, int group, hwloc_obj_t nic)
{
	unsigned best = 0;

	for (size_t g = 0; nic && g < draft->topo->gpu_count; g++) {
		unsigned depth;

		if (draft->gpu_group[g] != group)
			continue;
		depth = wf_topo_common_depth(nic, draft->topo->gpu_objects[g]);
		best = depth > best ? depth : best;
	}
	return best;
}

static bool nearer(const struct wf_topo_draft *draft, int group, uint32_t a, uint32_t b)
{
	hwloc_obj_t x = draft->nic_objects[a], y = draft->nic_objects[b];
	unsigned near_x = closeness(draft, group, x), near_y = closeness(draft, group, y);

	if (draft->nic_rank[a] != draft->nic_rank[b])
		return draft->nic_rank[a] < draft->nic_rank[b];
	if (near_x != near_y)
		return near_x > near_y;
	return order_of(x) != order_of(y) ? order_of(x) < order_of(y) : a < b;
}

static int fill_group(const struct wf_topo_draft *draft, size_t index, struct wf_topo_group *group)
{
	const struct wf_topo_draft_group *from = &draft->groups[index];
	size_t rails = 0, gpus = 0;

	for (size_t n = 0; n < draft->nic_count; n++)
		rails += draft->nic_group[n] == (int)index;
	for (size_t g = 0; g < draft->topo->gpu_count; g++)
		gpus += draft->gpu_group[g] == (int)index;
	group->memory = from->memory;
	group->numa = hwloc_bitmap_weight(from->nodes) == 1 ? hwloc_bitmap_first(from->nodes) : -1;
	group->rails = calloc(rails + 1, sizeof(*group->rails));
	group->gpus = calloc(gpus + 1, sizeof(*group->gpus));
	if (!group->rails || !group->gpus)
		return -ENOMEM;
	for (size_t g = 0; g < draft->topo->gpu_count; g++)
		if (draft->gpu_group[g] == (int)index)
			group->gpus[group->gpu_count++] = (uint32_t)g;
	for (uint32_t n = 0; n < draft->nic_count; n++) {
		size_t at = group->rail_count;

		if (draft->nic_group[n] != (int)index)
			continue;
		for (; at > 0 && nearer(draft, (int)index, n, group->rails[at - 1]); at--)
			group->rails[at] = group->rails[at - 1];
		group->rails[at] = n;
		group->rail_count++;
	}
	return 0;
}

static int fill_plan(struct wf_topo_draft *draft, struct wf_topo_plan **ret_plan)
{
	struct wf_topo_plan *plan = calloc(1, sizeof(*plan));
	int rc = 0;

	if (!plan)
		return -ENOMEM;
	plan->this_host = draft->topo->this_host;
	plan->groups = calloc(draft->group_count + 1, sizeof(*plan->groups));
	if (!plan->groups)
		rc = -ENOMEM;
	else
		plan->count = draft->group_count;
	for (size_t i = 0; !rc && i < plan->count; i++)
		rc = fill_group(draft, i, &plan->groups[i]);
	if (!rc)
		rc = wf_topo_give_cores(draft, plan);
	for (size_t i = 0; !rc && i < plan->count; i++) {
		plan->groups[i].reason = wf_topo_reason(draft, i, &plan->groups[i]);
		rc = plan->groups[i].reason ? 0 : -ENOMEM;
	}
	if (rc) {
		wf_topo_plan_free(plan);
		return rc;
	}
	*ret_plan = plan;
	return 0;
}

int wf_topo_plan(const struct wf_topo *topo, const struct wf_topo_nic *nics, size_t count,
		 const struct wf_topo_options *options, struct wf_topo_plan **ret_plan, char *error, size_t error_bytes)
{
	static const struct wf_topo_options defaults;
	struct wf_topo_draft draft = { .topo = topo, .nics = nics, .nic_count = count };
	size_t found = 0;
	hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
	bool explained = false;
	int rc;

	if (!options)
		options = &defaults;
	rc = allowed ? draft_start(&draft) : -ENOMEM;
	if (!rc) {
		rc = find_allowed(topo, options->allowed_cpus, allowed, error, error_bytes);
		explained = rc;
		draft.allowed = allowed;
	}
	if (!rc && options->groups_path) {
		rc = wf_topo_group_by_file(&draft, options->groups_path, error, error_bytes);
		if (!rc && options->max_groups && draft.group_count > options->max_groups)
			rc = wf_topo_fail(-EINVAL, error, error_bytes, "%s: %zu groups, but at most %u are asked for",
					  options->groups_path, draft.group_count, options->max_groups);
		explained = rc;
	} else if (!rc) {
		rc = wf_topo_group_by_rule(&draft);
		found = draft.group_count;
		if (!rc)
			rc = wf_topo_merge(&draft, options->max_groups);
	}
	if (!rc)
		rc = fill_plan(&draft, ret_plan);
	if (!rc)
		(*ret_plan)->found = found ? found : (*ret_plan)->count;
	if (rc && !explained)
		wf_topo_fail(rc, error, error_bytes, "out of memory");
	draft_free(&draft);
	hwloc_bitmap_free(allowed);
	return rc;
}

void wf_topo_plan_free(struct wf_topo_plan *plan)
{
	if (!plan)
		return;
	for (size_t i = 0; i < plan->count; i++) {
		free(plan->groups[i].gpus);
		free(plan->groups[i].rails);
		free(plan->groups[i].cores);
		free(plan->groups[i].reason);
	}
	free(plan->groups);
	free(plan);
}

int wf_topo_group_of_gpu(const struct wf_topo *topo, const struct wf_topo_plan *plan, const char *pci)
{
	hwloc_obj_t wanted;
	unsigned deepest = 0;
	int best = -ENOENT;
	int rc = wf_topo_find_pci_text(topo, pci, &wanted);

	if (rc)
		return rc;
	for (size_t i = 0; i < plan->count; i++)
		for (size_t g = 0; g < plan->groups[i].gpu_count; g++) {
			hwloc_obj_t gpu = topo->gpu_objects[plan->groups[i].gpus[g]];
			unsigned depth = wf_topo_common_depth(wanted, gpu);

			if (gpu == wanted)
				return (int)i;
			if (best < 0 || depth > deepest) {
				best = (int)i;
				deepest = depth;
			}
		}
	/* Groups of NUMA nodes only (a file may say so): the one on the GPU's node, else the first. */
	if (best < 0 && plan->count) {
		hwloc_obj_t node = wf_topo_node_of(topo, wanted);
		int near = node ? wf_topo_group_of_numa(plan, (int)node->os_index) : -ENOENT;

		best = near >= 0 ? near : 0;
	}
	return best;
}

int wf_topo_group_of_numa(const struct wf_topo_plan *plan, int numa)
{
	for (size_t i = 0; i < plan->count; i++)
		if (plan->groups[i].numa == numa)
			return (int)i;
	return -ENOENT;
}
