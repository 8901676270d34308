/*
 * The machines that the simulator knows: how many NICs and GPUs, where they sit on the PCI tree, how fast and how deep
 * they are. Plain data, no libfabric: the provider, the topology writer and `weft sim` all read it.
 */
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_NICS 64

/* Which provider the NICs behave like. docs/SIMULATOR.md says what each personality enforces. */
enum sim_personality { SIM_EFA, SIM_EFA_DIRECT, SIM_VERBS };

/* How much of each request's payload is really copied. */
enum sim_copy { SIM_COPY_FULL, SIM_COPY_EDGES, SIM_COPY_NONE };

struct sim_machine {
	const char *name;
	const char *about;
	enum sim_personality personality;
	int captured; /* 1: attributes read off a real machine; 0: derived from published figures */
	int timeless; /* no modelled time at all */

	/* topology */
	int sockets, cores_per_socket, threads_per_core;
	int gpus, nics_per_gpu;
	uint8_t first_root_bus, root_bus_step;
	uint16_t gpu_device; /* PCI device id, vendor NVIDIA */
	const char *gpu_name;
	const char *nic_prefix; /* NULL: named after the bus, rdmap<bus>s0 */
	uint16_t nic_vendor, nic_device;
	const char *nic_driver;
	const char *nic_version;
	const char *fabric_name;

	/* the NIC's own figures */
	uint64_t rate_bps, op_ns, latency_ns, handshake_ns;
	uint64_t post_ns; /* CPU time of a post */
	uint32_t tx_size, rx_size, mtu, inject_size, iov_limit, reorder;
	uint64_t max_msg_size;
};

const struct sim_machine *sim_machine_find(const char *name);
const struct sim_machine *sim_machine_at(size_t index); /* NULL past the last */

int sim_machine_nics(const struct sim_machine *machine);

/* Returns the bus of NIC `nic` (device 0, function 0), and its name, e.g. rdmap79s0. */
uint8_t sim_machine_nic_bus(const struct sim_machine *machine, int nic);
void sim_machine_nic_name(const struct sim_machine *machine, int nic, char *name, size_t bytes);

const char *sim_personality_name(enum sim_personality personality);
const char *sim_copy_name(enum sim_copy copy);

/* PCI layout of one group: root complex port, switch, then one downstream port per slot (see machine.c). */
#define SIM_SLOT_NIC  8
#define SIM_SLOT_GPU  12
#define SIM_SLOT_NVME 13
#define SIM_SLOTS     14

#endif
