/* What the files of src/topo share. Nobody else includes this. */
#ifndef WF_TOPO_IMPL_H
#define WF_TOPO_IMPL_H

#include <hwloc.h>

#include "topo/topo.h"

struct wf_topo {
	hwloc_topology_t hwloc;
	bool this_host;
	size_t gpu_count, node_count, nic_count;
	struct wf_topo_gpu *gpus;
	hwloc_obj_t *gpu_objects;
	struct wf_topo_node *nodes;
	struct wf_topo_nic *nics;
};

/* The plan while it is made: who owns what, by number. Groups are dense and in order. */
struct wf_topo_draft {
	const struct wf_topo *topo;
	const struct wf_topo_nic *nics;
	size_t nic_count, group_count;
	hwloc_obj_t *nic_objects;   /* NULL: not located */
	int *nic_group, *gpu_group; /* -1: none yet */
	unsigned *nic_rank;         /* the order a file gives; all 0: by closeness */
	hwloc_const_cpuset_t allowed;
	struct wf_topo_draft_group {
		enum wf_topo_memory memory;
		hwloc_bitmap_t nodes; /* OS indices of its NUMA nodes; empty: not known */
		hwloc_bitmap_t cores; /* set by an override; NULL: split those of its nodes */
		int worker;           /* set by an override; -1: choose */
		unsigned line;        /* of the override file; 0: found by rule */
		hwloc_obj_t meeting;  /* where its NICs and GPUs meet; NULL: not one place */
		unsigned merged;      /* how many groups max_groups made one of */
		bool dealt, shared;   /* NICs as near to several GPUs were dealt out; a GPU without a NIC joined */
		size_t pool, sharers; /* cores.c: cores there were, groups they were split among */
		bool far;             /* cores.c: none of its nodes' cores may be used */
	} * groups;
};

/* Everything that says why something failed goes through this: error may be NULL. Returns code. */
int wf_topo_fail(int code, char *error, size_t error_bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* locate.c */
hwloc_obj_t wf_topo_find_nic(const struct wf_topo *topo, const struct wf_topo_nic *nic);
hwloc_obj_t wf_topo_find_pci(const struct wf_topo *topo, struct wf_topo_pci pci);
/* "53:00.0" or "0000:53:00.0". -EINVAL: not an address; -ENOENT: topo has no such device, or is NULL. */
int wf_topo_find_pci_text(const struct wf_topo *topo, const char *text, hwloc_obj_t *ret_object);
hwloc_obj_t wf_topo_node_of(const struct wf_topo *topo, hwloc_obj_t object); /* NULL: not known */
bool wf_topo_is_under(hwloc_obj_t object, hwloc_obj_t ancestor);
unsigned wf_topo_depth(hwloc_obj_t object);
unsigned wf_topo_common_depth(hwloc_obj_t a, hwloc_obj_t b);
struct wf_topo_pci wf_topo_pci_of(hwloc_obj_t pcidev);

/* cpus.c */
int wf_topo_cpus_parse(const char *text, hwloc_bitmap_t set, char *error, size_t error_bytes);
int wf_topo_give_cores(struct wf_topo_draft *draft, struct wf_topo_plan *plan);
int wf_topo_physical_cores(const struct wf_topo *topo, hwloc_const_cpuset_t within, hwloc_const_cpuset_t allowed,
			   hwloc_bitmap_t ret_cores);

/* draft.c, rules.c, override.c: fill a draft. */
int wf_topo_group_by_rule(struct wf_topo_draft *draft);
int wf_topo_merge(struct wf_topo_draft *draft, size_t max_groups);
int wf_topo_group_by_file(struct wf_topo_draft *draft, const char *path, char *error, size_t error_bytes);
void wf_topo_draft_find_nodes(struct wf_topo_draft *draft);
int wf_topo_draft_order(struct wf_topo_draft *draft);
int wf_topo_draft_add(struct wf_topo_draft *draft, enum wf_topo_memory memory); /* the new index or -ENOMEM */

/* reason.c */
char *wf_topo_reason(const struct wf_topo_draft *draft, size_t index, const struct wf_topo_group *group);

#endif
