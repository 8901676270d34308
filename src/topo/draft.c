/* The plan in the making: adding, ordering and merging groups. Pure; called by plan.c, rules.c and
 * override.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topo/impl.h"

int wf_topo_draft_add(struct wf_topo_draft *draft, enum wf_topo_memory memory)
{
	struct wf_topo_draft_group *groups;
	hwloc_bitmap_t nodes;

	groups = realloc(draft->groups, (draft->group_count + 1) * sizeof(*groups));
	if (!groups)
		return -ENOMEM;
	draft->groups = groups;
	nodes = hwloc_bitmap_alloc();
	if (!nodes)
		return -ENOMEM;
	groups[draft->group_count] =
	    (struct wf_topo_draft_group){ .memory = memory, .nodes = nodes, .worker = -1, .merged = 1 };
	return (int)draft->group_count++;
}

/* Groups were made deepest switch first; people expect the order of their GPUs. */
int wf_topo_draft_order(struct wf_topo_draft *draft)
{
	size_t count = draft->group_count, placed = 0;
	struct wf_topo_draft_group *groups = calloc(count + 1, sizeof(*groups));
	int *to = calloc(count + 1, sizeof(*to));

	if (!groups || !to) {
		free(groups);
		free(to);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++)
		to[i] = -1;
	for (size_t g = 0; g < draft->topo->gpu_count; g++) {
		int from = draft->gpu_group[g];

		if (from < 0 || to[from] >= 0)
			continue;
		groups[placed] = draft->groups[from];
		to[from] = (int)placed++;
	}
	for (size_t g = 0; g < draft->topo->gpu_count; g++)
		if (draft->gpu_group[g] >= 0)
			draft->gpu_group[g] = to[draft->gpu_group[g]];
	for (size_t n = 0; n < draft->nic_count; n++)
		if (draft->nic_group[n] >= 0)
			draft->nic_group[n] = to[draft->nic_group[n]];
	free(to);
	free(draft->groups);
	draft->groups = groups;
	return 0;
}

/* A group lives where its nearest rail does: the worker talks to the NIC far more than to the GPU. */
void wf_topo_draft_find_nodes(struct wf_topo_draft *draft)
{
	const struct wf_topo *topo = draft->topo;

	for (size_t i = 0; i < draft->group_count; i++) {
		hwloc_obj_t gpu = NULL, best = NULL, node = NULL;

		if (!hwloc_bitmap_iszero(draft->groups[i].nodes))
			continue; /* a file said so */
		for (size_t g = 0; g < topo->gpu_count && !gpu; g++)
			if (draft->gpu_group[g] == (int)i)
				gpu = topo->gpu_objects[g];
		for (size_t n = 0; n < draft->nic_count; n++) {
			hwloc_obj_t nic = draft->nic_objects[n];

			if (draft->nic_group[n] == (int)i && nic && wf_topo_node_of(topo, nic) &&
			    (!best || (gpu && wf_topo_common_depth(nic, gpu) > wf_topo_common_depth(best, gpu))))
				best = nic;
		}
		if (best)
			node = wf_topo_node_of(topo, best);
		else if (gpu)
			node = wf_topo_node_of(topo, gpu);
		if (node)
			hwloc_bitmap_set(draft->groups[i].nodes, node->os_index);
	}
}

static void join(struct wf_topo_draft *draft, size_t into, size_t gone)
{
	struct wf_topo_draft_group *a = &draft->groups[into], *b = &draft->groups[gone];

	/* Unknown with known stays known: the worker is near one of them at least. */
	hwloc_bitmap_or(a->nodes, a->nodes, b->nodes);
	hwloc_bitmap_free(b->nodes);
	a->memory = a->memory == WF_TOPO_MEMORY_GPU ? a->memory : b->memory;
	a->meeting = a->meeting == b->meeting ? a->meeting : NULL;
	a->merged += b->merged;
	a->dealt = a->dealt || b->dealt;
	a->shared = a->shared || b->shared;
	draft->group_count--;
	memmove(b, b + 1, (draft->group_count - gone) * sizeof(*b));
	for (size_t n = 0; n < draft->nic_count; n++)
		if (draft->nic_group[n] >= (int)gone)
			draft->nic_group[n] = draft->nic_group[n] == (int)gone ? (int)into : draft->nic_group[n] - 1;
	for (size_t g = 0; g < draft->topo->gpu_count; g++)
		if (draft->gpu_group[g] >= (int)gone)
			draft->gpu_group[g] = draft->gpu_group[g] == (int)gone ? (int)into : draft->gpu_group[g] - 1;
}

/* The lightest pair of one NUMA node, or the lightest neighbours when no node has two groups. */
static void lightest_pair(const struct wf_topo_draft *draft, const size_t *rails, size_t *ret_a, size_t *ret_b)
{
	size_t best = SIZE_MAX;

	for (int same = 1; same >= 0 && best == SIZE_MAX; same--)
		for (size_t a = 0; a < draft->group_count; a++)
			for (size_t b = a + 1; b < draft->group_count; b++) {
				bool fits = same ? hwloc_bitmap_isequal(draft->groups[a].nodes, draft->groups[b].nodes)
						 : b == a + 1;

				if (!fits || rails[a] + rails[b] >= best)
					continue;
				best = rails[a] + rails[b];
				*ret_a = a;
				*ret_b = b;
			}
}

int wf_topo_merge(struct wf_topo_draft *draft, size_t max_groups)
{
	size_t *rails = calloc(draft->group_count + 1, sizeof(*rails));

	if (!rails)
		return -ENOMEM;
	for (size_t n = 0; n < draft->nic_count; n++)
		if (draft->nic_group[n] >= 0)
			rails[draft->nic_group[n]]++;
	while (max_groups && draft->group_count > max_groups) {
		size_t a = 0, b = 1;

		lightest_pair(draft, rails, &a, &b);
		rails[a] += rails[b];
		memmove(&rails[b], &rails[b + 1], (draft->group_count - b) * sizeof(*rails));
		join(draft, a, b);
	}
	free(rails);
	return 0;
}
