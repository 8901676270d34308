/*
 * The table of simulated machines. Read only, used from any thread.
 *
 * p5 is what fi_info and lspci printed on a real p5.48xlarge. Each GPU has a root bus R = 0x44 + 0x11 * gpu;
 * below it R:00.0 and (R+1):00.0 are the switch, (R+2):DD.F its downstream ports, and the device in slot
 * s = 8 * DD + F sits on bus R + 3 + s: NICs in slots 8..11 (so 79..82 for the first GPU), the GPU in 12,
 * an NVMe disk in 13. The other EC2 machines were not captured: the same tree with their published NIC
 * counts and rates, so their bus numbers are made up.
 *
 * post_ns: 450 ns were published for a post on EFA, driver and doorbell included. libfabric's share was counted on the modelled
 * card: about 1,000 instructions (scripts/provider-cost; docs/lab/efa-card.md), which is 0.2 to 0.3 us.
 */
#include "machine.h"

#include <stdio.h>
#include <string.h>

#define GBIT 1000000000ull
#define USEC 1000ull
#define MSEC 1000000ull

#define EFA_MACHINE                                                                                                    \
	.personality = SIM_EFA, .sockets = 2, .cores_per_socket = 48, .threads_per_core = 2, .gpus = 8,                \
	.first_root_bus = 0x44, .root_bus_step = 0x11, .nic_vendor = 0x1d0f, .nic_driver = "efa",                      \
	.fabric_name = "efa", .post_ns = 450, .latency_ns = 15 * USEC, .handshake_ns = 2 * MSEC, .rx_size = 8192,      \
	.mtu = 8760, .inject_size = 4096, .iov_limit = 4, .reorder = 8, .max_msg_size = UINT64_MAX

static const struct sim_machine machines[] = {
	{ EFA_MACHINE, .name = "p5", .about = "p5.48xlarge: 8 H100, 32 x 100 Gbit/s EFA", .captured = 1,
	  .nics_per_gpu = 4, .gpu_device = 0x2330, .gpu_name = "NVIDIA H100 80GB HBM3", .nic_device = 0xefa1,
	  .nic_version = "6", .rate_bps = 100 * GBIT, .op_ns = 1250, .tx_size = 4096 },
	{ EFA_MACHINE, .name = "p5en", .about = "p5en.48xlarge: 8 H200, 16 x 200 Gbit/s EFA", .nics_per_gpu = 2,
	  .gpu_device = 0x2335, .gpu_name = "NVIDIA H200", .nic_device = 0xefa2, .nic_version = "7",
	  .rate_bps = 200 * GBIT, .op_ns = 1000, .tx_size = 4096 },
	{ EFA_MACHINE, .name = "p6-b200", .about = "p6-b200.48xlarge: 8 B200, 8 x 400 Gbit/s EFA", .nics_per_gpu = 1,
	  .gpu_device = 0x2901, .gpu_name = "NVIDIA B200", .nic_device = 0xefa3, .nic_version = "8",
	  .rate_bps = 400 * GBIT, .op_ns = 1000, .tx_size = 4096 },
	{ EFA_MACHINE, .name = "p6-b300", .about = "p6-b300.48xlarge: 8 B300, 16 x 400 Gbit/s EFA", .nics_per_gpu = 2,
	  .gpu_device = 0x3182, .gpu_name = "NVIDIA B300", .nic_device = 0xefa3, .nic_version = "8",
	  .rate_bps = 400 * GBIT, .op_ns = 1000, .tx_size = 2048 },
	{ .name = "verbs",
	  .about = "two sockets, 2 GPUs, 2 x 200 Gbit/s RC-like NICs: ordered, local keys",
	  .personality = SIM_VERBS,
	  .sockets = 2,
	  .cores_per_socket = 16,
	  .threads_per_core = 2,
	  .gpus = 2,
	  .nics_per_gpu = 1,
	  .first_root_bus = 0x14,
	  .root_bus_step = 0x80,
	  .gpu_device = 0x2330,
	  .gpu_name = "NVIDIA H100 80GB HBM3",
	  .nic_prefix = "mlx5_",
	  .nic_vendor = 0x15b3,
	  .nic_device = 0x101e,
	  .nic_driver = "mlx5_core",
	  .nic_version = "0",
	  .fabric_name = "IB-0xfe80000000000000",
	  .rate_bps = 200 * GBIT,
	  .op_ns = 100,
	  .latency_ns = 3 * USEC,
	  .handshake_ns = 0,
	  .tx_size = 2048,
	  .rx_size = 2048,
	  .mtu = 4096,
	  .inject_size = 192,
	  .iov_limit = 4,
	  .reorder = 0,
	  .max_msg_size = 8u << 20 },
	{ EFA_MACHINE, .name = "null", .about = "the p5's 32 NICs with no modelled time: measures software cost",
	  .timeless = 1, .nics_per_gpu = 4, .gpu_device = 0x2330, .gpu_name = "NVIDIA H100 80GB HBM3",
	  .nic_device = 0xefa1, .nic_version = "6", .rate_bps = 100 * GBIT, .op_ns = 0, .tx_size = 4096 },
};

const struct sim_machine *sim_machine_at(size_t index)
{
	return index < sizeof machines / sizeof machines[0] ? &machines[index] : NULL;
}

const struct sim_machine *sim_machine_find(const char *name)
{
	const struct sim_machine *machine;

	for (size_t i = 0; (machine = sim_machine_at(i)); i++)
		if (!strcmp(machine->name, name))
			return machine;
	return NULL;
}

int sim_machine_nics(const struct sim_machine *machine)
{
	return machine->gpus * machine->nics_per_gpu;
}

uint8_t sim_machine_nic_bus(const struct sim_machine *machine, int nic)
{
	int group = nic / machine->nics_per_gpu, place = nic % machine->nics_per_gpu;
	return (uint8_t)(machine->first_root_bus + group * machine->root_bus_step + 3 + SIM_SLOT_NIC + place);
}

void sim_machine_nic_name(const struct sim_machine *machine, int nic, char *name, size_t bytes)
{
	if (machine->nic_prefix)
		snprintf(name, bytes, "%s%d", machine->nic_prefix, nic);
	else
		snprintf(name, bytes, "rdmap%us0", sim_machine_nic_bus(machine, nic));
}

const char *sim_personality_name(enum sim_personality personality)
{
	static const char *const names[] = { "efa", "efa-direct", "verbs" };
	return names[personality];
}

const char *sim_copy_name(enum sim_copy copy)
{
	static const char *const names[] = { "full", "edges", "none" };
	return names[copy];
}
