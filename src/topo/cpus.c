/* CPU lists as text, physical cores, and who gets which. Pure; any thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/impl.h"

#define CPU_MAX 65536 /* no machine has more: a larger number is a slip */

/* One part of a list, added to set. hwloc passes over what it does not understand, so a part that adds nothing is wrong. */
static int take_range(const char *text, hwloc_bitmap_t part, hwloc_bitmap_t set)
{
	if (text[0] == '-' || text[strspn(text, "0123456789-")] || hwloc_bitmap_list_sscanf(part, text) ||
	    hwloc_bitmap_iszero(part) || hwloc_bitmap_last(part) < 0 || hwloc_bitmap_last(part) >= CPU_MAX)
		return -EINVAL;
	return hwloc_bitmap_or(set, set, part) ? -ENOMEM : 0;
}

int wf_topo_cpus_parse(const char *text, hwloc_bitmap_t set, char *error, size_t error_bytes)
{
	hwloc_bitmap_t part = hwloc_bitmap_alloc();
	char *copy = strdup(text), *rest = copy;
	int rc = copy && part ? 0 : -ENOMEM;

	hwloc_bitmap_zero(set);
	for (char *item; !rc && (item = strsep(&rest, ","));)
		rc = take_range(item, part, set);
	free(copy);
	hwloc_bitmap_free(part);
	if (rc == -EINVAL)
		wf_topo_fail(rc, error, error_bytes,
			     "'%s' is not a list of CPUs such as 0-3,8, counting up and below %d", text, CPU_MAX);
	else if (rc)
		wf_topo_fail(rc, error, error_bytes, "out of memory");
	return rc;
}

size_t wf_topo_cpus_text(const uint32_t *cpus, size_t count, char *text, size_t bytes)
{
	size_t length = 0;

	if (bytes)
		text[0] = '\0';
	for (size_t i = 0, next; i < count; i = next) {
		char *at = length < bytes ? text + length : NULL;
		size_t room = at ? bytes - length : 0;

		for (next = i + 1; next < count && cpus[next] == cpus[next - 1] + 1;)
			next++;
		length += (size_t)snprintf(at, room, next - i > 1 ? "%s%u-%u" : "%s%u", i ? "," : "", cpus[i],
					   cpus[next - 1]);
	}
	return length;
}

/* One thread of each core: the first that is allowed. A machine that shows no cores has only threads. */
int wf_topo_physical_cores(const struct wf_topo *topo, hwloc_const_cpuset_t within, hwloc_const_cpuset_t allowed,
			   hwloc_bitmap_t ret_cores)
{
	hwloc_obj_type_t type =
	    hwloc_get_nbobjs_by_type(topo->hwloc, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
	hwloc_bitmap_t threads = hwloc_bitmap_alloc();
	hwloc_obj_t core = NULL;
	int rc = threads ? 0 : -ENOMEM;

	hwloc_bitmap_zero(ret_cores);
	while (!rc && (core = hwloc_get_next_obj_inside_cpuset_by_type(topo->hwloc, within, type, core))) {
		rc = allowed ? hwloc_bitmap_and(threads, core->cpuset, allowed)
			     : hwloc_bitmap_copy(threads, core->cpuset);
		if (!rc && !hwloc_bitmap_iszero(threads))
			rc = hwloc_bitmap_set(ret_cores, (unsigned)hwloc_bitmap_first(threads));
		rc = rc ? -ENOMEM : 0;
	}
	hwloc_bitmap_free(threads);
	return rc;
}

static bool splits(const struct wf_topo_draft_group *group)
{
	return !group->cores;
}

/* Core 0 takes the interrupts and the kernel's chores: a spinning thread there suffers and hurts. */
static bool is_first_core(const struct wf_topo *topo, uint32_t cpu)
{
	hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topo->hwloc, cpu);
	hwloc_obj_t core = pu ? hwloc_get_ancestor_obj_by_type(topo->hwloc, HWLOC_OBJ_CORE, pu) : NULL;

	return cpu == 0 || (core && hwloc_bitmap_isset(core->cpuset, 0));
}

/* The cores a group may choose from, and its turn among the groups that choose from the same. */
static int find_pool(struct wf_topo_draft *draft, size_t index, hwloc_bitmap_t pool, size_t *ret_turn)
{
	struct wf_topo_draft_group *group = &draft->groups[index];
	hwloc_topology_t hwloc = draft->topo->hwloc;
	hwloc_bitmap_t near = hwloc_bitmap_alloc();
	bool anywhere = hwloc_bitmap_iszero(group->nodes);
	int rc;

	if (!near)
		return -ENOMEM;
	rc = anywhere ? hwloc_bitmap_copy(near, hwloc_topology_get_topology_cpuset(hwloc))
		      : hwloc_cpuset_from_nodeset(hwloc, near, group->nodes);
	rc = rc ? -ENOMEM : wf_topo_physical_cores(draft->topo, near, draft->allowed, pool);
	group->far = !rc && !anywhere && hwloc_bitmap_iszero(pool);
	if (group->far)
		rc = wf_topo_physical_cores(draft->topo, hwloc_topology_get_topology_cpuset(hwloc), draft->allowed,
					    pool);
	hwloc_bitmap_free(near);
	*ret_turn = group->sharers = 0;
	for (size_t i = 0; i < draft->group_count; i++) {
		if (!splits(&draft->groups[i]) || !hwloc_bitmap_isequal(draft->groups[i].nodes, group->nodes))
			continue;
		*ret_turn += i < index;
		group->sharers++;
	}
	group->pool = (size_t)(hwloc_bitmap_weight(pool) > 0 ? hwloc_bitmap_weight(pool) : 0);
	/* A share of one core must not be the first core while there is any other. */
	if (!rc && group->pool > 1 && group->pool < 2 * group->sharers &&
	    is_first_core(draft->topo, (uint32_t)hwloc_bitmap_first(pool))) {
		hwloc_bitmap_clr(pool, (unsigned)hwloc_bitmap_first(pool));
		group->pool--;
	}
	return rc;
}

static int choose_worker(const struct wf_topo *topo, const struct wf_topo_group *group, hwloc_const_bitmap_t taken)
{
	int fallback = -1;

	for (size_t i = 0; i < group->core_count; i++) {
		if (is_first_core(topo, group->cores[i]))
			continue;
		if (!hwloc_bitmap_isset(taken, group->cores[i]))
			return (int)group->cores[i];
		if (fallback < 0)
			fallback = (int)group->cores[i];
	}
	return fallback >= 0 ? fallback : group->core_count ? (int)group->cores[0] : -1;
}

/* The turn-th of sharers even parts, in order; when there are fewer cores than groups, one core for several. */
static int give(struct wf_topo_group *group, hwloc_const_bitmap_t pool, size_t turn, size_t sharers)
{
	size_t count = (size_t)hwloc_bitmap_weight(pool), at = 0;
	size_t from = turn * count / sharers, to = (turn + 1) * count / sharers;
	int cpu = -1;

	if (to == from && count)
		to = from + 1;
	group->cores = calloc(to - from + 1, sizeof(*group->cores));
	if (!group->cores)
		return -ENOMEM;
	for (; (cpu = hwloc_bitmap_next(pool, cpu)) >= 0; at++)
		if (at >= from && at < to)
			group->cores[group->core_count++] = (uint32_t)cpu;
	return 0;
}

int wf_topo_give_cores(struct wf_topo_draft *draft, struct wf_topo_plan *plan)
{
	hwloc_bitmap_t pool = hwloc_bitmap_alloc(), taken = hwloc_bitmap_alloc();
	int rc = pool && taken ? 0 : -ENOMEM;

	for (size_t i = 0; !rc && i < plan->count; i++)
		if (draft->groups[i].worker >= 0)
			hwloc_bitmap_set(taken, (unsigned)draft->groups[i].worker);
	for (size_t i = 0; !rc && i < plan->count; i++) {
		struct wf_topo_draft_group *from = &draft->groups[i];
		struct wf_topo_group *group = &plan->groups[i];
		size_t turn = 0;

		if (!splits(from)) {
			rc = give(group, from->cores, 0, 1);
		} else {
			rc = find_pool(draft, i, pool, &turn);
			rc = rc ? rc : give(group, pool, turn, from->sharers);
		}
		group->worker = from->worker >= 0 ? from->worker : choose_worker(draft->topo, group, taken);
		if (group->worker >= 0)
			hwloc_bitmap_set(taken, (unsigned)group->worker);
	}
	hwloc_bitmap_free(pool);
	hwloc_bitmap_free(taken);
	return rc;
}
