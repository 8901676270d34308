/*
 * Which NICs, GPUs and cores belong together.
 *
 * wf_topo_open() reads a machine through hwloc (this host, or a saved XML file), wf_topo_plan() turns it and
 * a list of NICs into groups: the memory a group is near (GPUs or a NUMA node), the rails its one worker
 * owns, its cores. Both are pure: nothing is pinned, opened or remembered. Called by the engine at open and
 * by `weft topo`; a struct wf_topo is not written after open, so any thread may read it.
 *
 * No environment variable is read here: who honours WEFT_TOPOLOGY_XML hands its value to wf_topo_open().
 */
#ifndef WF_TOPO_H
#define WF_TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wf_topo;

struct wf_topo_pci {
	uint32_t domain; /* more than 16 bits behind Intel VMD */
	uint8_t bus, dev, fn;
};

/* A NIC as the caller knows it. Looked for by PCI address, then by interface, then by name. */
struct wf_topo_nic {
	const char *name;      /* unique in the list: an override file names rails by it */
	const char *interface; /* its netdev or RDMA device, or NULL */
	bool has_pci;
	struct wf_topo_pci pci;
	uint64_t bits_per_second; /* 0: not known */
};

struct wf_topo_gpu {
	struct wf_topo_pci pci;
	int numa;      /* OS index, -1: not known */
	char name[64]; /* what the PCI database calls it, or "GPU" */
};

struct wf_topo_node {
	int numa;    /* OS index */
	int package; /* OS index of its socket, -1: not known */
	uint64_t memory_bytes;
	size_t core_count, thread_count;
	uint32_t *cores; /* OS index of the first thread of each physical core */
};

#define WF_TOPO_BRIDGES 8
struct wf_topo_bridge {
	bool host;              /* a root: only domain and bus of pci count */
	struct wf_topo_pci pci; /* of the bridge's upstream side */
};
/* Where a device sits: what a picture needs. */
struct wf_topo_spot {
	bool located; /* false: everything below is empty */
	int numa, package;
	bool has_pci; /* it, or what it hangs on, is a PCI device: this one */
	struct wf_topo_pci pci;
	size_t bridge_count; /* nearest first, the furthest left out when there are more */
	struct wf_topo_bridge bridges[WF_TOPO_BRIDGES];
};

enum wf_topo_memory { WF_TOPO_MEMORY_NUMA, WF_TOPO_MEMORY_GPU };

struct wf_topo_group {
	enum wf_topo_memory memory;
	int numa; /* OS index of its NUMA node, -1: not known or several */
	size_t gpu_count, rail_count, core_count;
	uint32_t *gpus;  /* indices into wf_topo_gpus(), in PCI order */
	uint32_t *rails; /* indices into the caller's list, nearest first; no rail is in two groups */
	uint32_t *cores; /* OS indices: one allowed thread of each physical core; empty when nothing is known */
	int worker;      /* OS index of the core for the group's thread, -1 when there are no cores */
	char *reason;    /* one sentence for people */
};

struct wf_topo_plan {
	bool this_host; /* false: from XML, so a core may not exist here and a failed pin is no error */
	size_t count;   /* 0 only when there are no NICs */
	size_t found;   /* groups before max_groups merged them */
	struct wf_topo_group *groups;
};

/* Zeros and NULLs are the defaults. */
struct wf_topo_options {
	uint32_t max_groups;      /* merge neighbours until at most this many are left; 0: no limit */
	const char *groups_path;  /* an override file, docs/TOPOLOGY.md; NULL: none */
	const char *allowed_cpus; /* "0-3,8": only these; default: this process's mask (or all of an XML's) */
};

/* The file is trusted, like a configuration file: hwloc reads it, and ends the process on some that are broken. Check one
 * that may be with `weft topo --xml`, which reads it in a child process first.
 * error (may be NULL) gets a sentence on failure and is left alone on success. -ENOENT, -EACCES, …: the file cannot be
 * read; -EINVAL: hwloc finds no topology in it. */
int wf_topo_open(const char *xml_path, struct wf_topo **ret_topo, char *error, size_t error_bytes);
void wf_topo_close(struct wf_topo *topo); /* NULL is fine */

/* -EINVAL: the override file or a CPU list is wrong (error says where); -ENOENT, …: it cannot be read. */
int wf_topo_plan(const struct wf_topo *topo, const struct wf_topo_nic *nics, size_t count,
		 const struct wf_topo_options *options, struct wf_topo_plan **ret_plan, char *error,
		 size_t error_bytes);
void wf_topo_plan_free(struct wf_topo_plan *plan); /* NULL is fine */

/* The index of the group to use for memory of the GPU at this PCI address ("53:00.0", "0000:53:00.0"): its own, else
 * the nearest. -EINVAL: not an address; -ENOENT: no such GPU, no group, or topo is NULL. */
int wf_topo_group_of_gpu(const struct wf_topo *topo, const struct wf_topo_plan *plan, const char *pci);
/* The same for host memory: the first group on that node, -ENOENT when it has none. */
int wf_topo_group_of_numa(const struct wf_topo_plan *plan, int numa);

/* What the machine has. The arrays live as long as topo; the return value is their length. */
size_t wf_topo_gpus(const struct wf_topo *topo, const struct wf_topo_gpu **ret_gpus);
size_t wf_topo_nodes(const struct wf_topo *topo, const struct wf_topo_node **ret_nodes);
const char *wf_topo_machine(const struct wf_topo *topo); /* its product name, "" when not known */

/* The NICs hwloc itself knows: RDMA devices when there are any, else network interfaces with a PCI device. */
size_t wf_topo_nics(const struct wf_topo *topo, const struct wf_topo_nic **ret_nics);

void wf_topo_locate(const struct wf_topo *topo, const struct wf_topo_nic *nic, struct wf_topo_spot *ret_spot);
void wf_topo_locate_gpu(const struct wf_topo *topo, const struct wf_topo_gpu *gpu, struct wf_topo_spot *ret_spot);

#define WF_TOPO_PCI_BYTES 20
/* The domain is left out when it is 0. */
const char *wf_topo_pci_text(struct wf_topo_pci pci, char text[WF_TOPO_PCI_BYTES]);
/* "0-11,24": 0-based OS indices as "a-b" ranges. Always terminated; returns the length it would have. */
size_t wf_topo_cpus_text(const uint32_t *cpus, size_t count, char *text, size_t bytes);

#endif
