/* Says in one sentence why a group is as it is. Called by wf_topo_plan(); a plan nobody can explain is not
 * trusted. */
#include <stdio.h>
#include <stdlib.h>

#include "topo/impl.h"

static const char *plural(size_t count)
{
	return count == 1 ? "" : "s";
}

static void say_place(FILE *out, hwloc_obj_t place)
{
	char pci[WF_TOPO_PCI_BYTES];

	if (place->type != HWLOC_OBJ_BRIDGE) {
		if (place->os_index != HWLOC_UNKNOWN_INDEX && place->parent)
			fprintf(out, "%s %u", hwloc_obj_type_string(place->type), place->os_index);
		else
			fprintf(out, "the %s", place->parent ? "socket" : "machine");
	} else if (place->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) {
		fprintf(out, "the PCI root of bus %02x", place->attr->bridge.downstream.pci.secondary_bus);
	} else {
		fprintf(out, "PCI switch %s", wf_topo_pci_text(wf_topo_pci_of(place), pci));
	}
}

static void say_gpus(FILE *out, const struct wf_topo_draft *draft, const struct wf_topo_group *group)
{
	char pci[WF_TOPO_PCI_BYTES];

	fprintf(out, "GPU%s", plural(group->gpu_count));
	for (size_t i = 0; i < group->gpu_count; i++)
		fprintf(out, "%s %s", i ? "," : "", wf_topo_pci_text(draft->topo->gpus[group->gpus[i]].pci, pci));
}

static void say_rule(FILE *out, const struct wf_topo_draft *draft, const struct wf_topo_draft_group *from,
		     const struct wf_topo_group *group)
{
	size_t far = 0, unplaced = 0, near;

	for (size_t i = 0; i < group->rail_count; i++) {
		hwloc_obj_t nic = draft->nic_objects[group->rails[i]];

		unplaced += !nic;
		far += nic && from->meeting && !wf_topo_is_under(nic, from->meeting);
	}
	near = group->rail_count - far - unplaced;
	fprintf(out, "%zu NIC%s ", near ? near : group->rail_count, plural(near ? near : group->rail_count));
	if (from->memory == WF_TOPO_MEMORY_NUMA) {
		if (group->numa >= 0)
			fprintf(out, "of NUMA node %d, no GPU", group->numa);
		else
			fprintf(out, "of several NUMA nodes, no GPU");
	} else {
		if (from->dealt)
			fprintf(out, "dealt to ");
		else
			fprintf(out, "near ");
		say_gpus(out, draft, group);
		if (from->meeting) {
			fprintf(out, from->dealt ? ", as near as others under " : ": they meet at ");
			say_place(out, from->meeting);
		}
	}
	if (far)
		fprintf(out, "; %zu NIC%s from further away", far, plural(far));
	if (unplaced)
		fprintf(out, "; the place of %zu NIC%s is not known", unplaced, plural(unplaced));
	if (from->shared)
		fprintf(out, "; a GPU without a NIC of its own shares them");
}

static void say_cores(FILE *out, const struct wf_topo_draft_group *from, const struct wf_topo_group *group)
{
	if (!group->core_count) {
		fprintf(out, "; no core is known to be allowed");
		return;
	}
	if (from->cores)
		return;
	if (from->far)
		fprintf(out, "; no core of its NUMA node is allowed, so cores of others");
	if (from->sharers > from->pool)
		fprintf(out, "; %zu groups share %zu core%s", from->sharers, from->pool, plural(from->pool));
	else if (from->sharers > 1)
		fprintf(out, "; %zu of %zu cores, split among %zu groups", group->core_count, from->pool,
			from->sharers);
	else
		fprintf(out, "; %zu core%s", group->core_count, plural(group->core_count));
}

/* NULL when out of memory. */
char *wf_topo_reason(const struct wf_topo_draft *draft, size_t index, const struct wf_topo_group *group)
{
	const struct wf_topo_draft_group *from = &draft->groups[index];
	size_t bytes;
	char *text = NULL;
	FILE *out = open_memstream(&text, &bytes);
	bool failed;

	if (!out)
		return NULL;
	if (from->line)
		fprintf(out, "line %u of the groups file", from->line);
	else
		say_rule(out, draft, from, group);
	if (from->merged > 1)
		fprintf(out, "; %u groups merged", from->merged);
	say_cores(out, from, group);
	failed = ferror(out);
	if (fclose(out) || failed) {
		free(text);
		return NULL;
	}
	return text;
}
