/*
 * weft topo, shared by its files: the machine and its groups laid out for showing. topo.c collects,
 * view.c sorts devices by where they sit, text.c, json.c and svg.c print. One thread,
 * nothing outlives the command.
 */
#ifndef WEFT_TOOLS_TOPO_VIEW_H
#define WEFT_TOOLS_TOPO_VIEW_H

#include "topo/topo.h"

#include <stdio.h>

struct topo_device {
	bool is_gpu;
	size_t index; /* into gpus or nics */
	int group;    /* -1: none */
	struct wf_topo_spot spot;
};

/* Devices that are shown together: one switch or root of one NUMA node. GPUs first, then NICs, by address. */
struct topo_place {
	int package, numa; /* -1: not known */
	bool has_bridge;
	struct wf_topo_bridge bridge;
	size_t count;
	struct topo_device *devices; /* in topo_view.devices */
};

struct topo_view {
	const struct wf_topo *topo;
	const struct wf_topo_plan *plan;
	const struct wf_topo_nic *nics;
	const struct wf_topo_gpu *gpus;
	const struct wf_topo_node *nodes;
	size_t nic_count, gpu_count, node_count, package_count, core_count, thread_count;
	uint64_t bits_per_second; /* of all NICs; 0: one is not known */
	const char *source;       /* where the topology comes from, for people */
	char machine[128];        /* what it is, or this host's name; "" when not known */
	bool simulated;           /* its NICs are */
	size_t engine_groups;     /* that an engine of this process makes of them by default; 0: not of this process */
	size_t device_count, place_count;
	struct topo_device *devices;
	struct topo_place *places;
};

/* Everything the view points to must outlive it. */
int topo_view_open(struct topo_view *view, const struct wf_topo *topo, const struct wf_topo_nic *nics, size_t nic_count,
		   const struct wf_topo_plan *plan);
void topo_view_close(struct topo_view *view);

#define TOPO_TEXT 64
/* "100 Gbit/s", "3.2 Tbit/s", "" when not known. Returns text. */
char *topo_rate_text(uint64_t bits_per_second, char text[TOPO_TEXT]);
/* "PCI switch 45:00.0", "PCI root 44", "" for none. */
char *topo_bridge_text(const struct topo_place *place, char text[TOPO_TEXT]);
/* "GPU 53:00.0", "4 GPUs", "NUMA node 0", "several NUMA nodes". */
char *topo_memory_text(const struct topo_view *view, const struct wf_topo_group *group, char text[TOPO_TEXT]);
uint64_t topo_group_bps(const struct topo_view *view, const struct wf_topo_group *group);

void topo_print_text(const struct topo_view *view, FILE *to);
void topo_print_json(const struct topo_view *view, FILE *to);
void topo_print_svg(const struct topo_view *view, FILE *to);

#endif
