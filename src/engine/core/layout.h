/* The engine's layout: which rails each group has, and the core its worker is pinned to. */
#ifndef WF_ENGINE_LAYOUT_H
#define WF_ENGINE_LAYOUT_H

#include "rail/rail.h"
#include "topo/topo.h"

struct wf_layout {
	struct wf_topo *topo; /* NULL: no NIC has a place on the bus, all are one group */
	struct wf_topo_plan *plan;
	uint32_t apart; /* without a plan: the number of local rails, a group each; 0: all are one group */
};

int wf_layout_make(const struct weft_config *config, const struct wf_nics *nics, const struct wf_log *log,
		   struct wf_layout *ret_layout);
void wf_layout_free(struct wf_layout *layout);
uint32_t wf_layout_groups(const struct wf_layout *layout);
uint32_t wf_layout_rails(const struct wf_layout *layout, uint32_t group, uint32_t nics); /* nics: all of them */
uint32_t wf_layout_rail(const struct wf_layout *layout, uint32_t group, uint32_t place); /* its index in the list */
/* Groups that the topology has, before they were merged because there are too few cores for a worker each. */
uint32_t wf_layout_found(const struct wf_layout *layout);
uint32_t wf_layout_most_workers(void);                              /* that this process has cores for */
int wf_layout_core(const struct wf_layout *layout, uint32_t group); /* -1: do not pin */
/* The group near a GPU ("53:00.0") or a NUMA node ("numa:1"). -EINVAL: no such name, -ENOENT: no such group. */
int wf_layout_group_near(const struct wf_layout *layout, const char *near);
#endif
