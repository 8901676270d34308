/*
 * make-topology NAME|FILE: prints the hwloc XML of a simulated machine or of a machine file, for WEFT_TOPOLOGY_XML and
 * the topology tests. A stand-alone program; the files in sim/topology/ are its output (the test `sim-topology` keeps
 * them equal).
 *
 * Each GPU's host bridge hangs below its socket's package, so hwloc says which NUMA node the group is near. The
 * hardware does not say which 12 of the 48 cores belong to it; the reader divides them.
 */
#include "spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned next_gp_index = 1;

/* hwloc prints sets as 32-bit words, most significant first. `sibling` is the distance to a core's second
 * thread. */
static void print_cpuset(const char *attribute, int first, int count, int sibling, int threads)
{
	uint32_t word[32] = { 0 };
	int top = 0;

	for (int t = 0; t < threads; t++)
		for (int i = first + t * sibling; i < first + t * sibling + count; i++) {
			word[i / 32] |= 1u << (i % 32);
			if (i / 32 > top)
				top = i / 32;
		}
	printf(" %s=\"", attribute);
	for (int i = top; i >= 0; i--)
		printf("0x%08x%s", word[i], i ? "," : "");
	printf("\"");
}

static void print_sets(const struct sim_machine *m, int first_core, int cores, int threads, unsigned nodes)
{
	int all = m->sockets * m->cores_per_socket;

	print_cpuset("cpuset", first_core, cores, all, threads);
	print_cpuset("complete_cpuset", first_core, cores, all, threads);
	printf(" nodeset=\"0x%08x\" complete_nodeset=\"0x%08x\" gp_index=\"%u\"", nodes, nodes, next_gp_index++);
}

static void indent(int depth)
{
	printf("%*s", depth * 2, "");
}

/* Prints one device below downstream port `slot` of the switch on bus `ports`. */
static void print_device(int ports, int slot, const char *type, const char *os_device)
{
	int bus = ports + 1 + slot;

	indent(6);
	printf("<object type=\"Bridge\" gp_index=\"%u\" bridge_type=\"1-1\" depth=\"3\" "
	       "bridge_pci=\"0000:[%02x-%02x]\" pci_busid=\"0000:%02x:%02x.%d\" "
	       "pci_type=\"0604 [1d0f:0200] [1d0f:0200] 01\" pci_link_speed=\"63.015385\">\n",
	       next_gp_index++, bus, bus, ports, slot / 8, slot % 8);
	indent(7);
	printf("<object type=\"PCIDev\" gp_index=\"%u\" pci_busid=\"0000:%02x:00.0\" pci_type=\"%s\" "
	       "pci_link_speed=\"63.015385\">\n",
	       next_gp_index++, bus, type);
	indent(8);
	printf("<object type=\"OSDev\" gp_index=\"%u\" %s/>\n", next_gp_index++, os_device);
	indent(7);
	printf("</object>\n");
	indent(6);
	printf("</object>\n");
}

static void print_group(const struct sim_machine *m, int group)
{
	int root = m->first_root_bus + group * m->root_bus_step, last = root + 3 + SIM_SLOTS - 1;
	char type[64], os[128], name[32];

	indent(3);
	printf("<object type=\"Bridge\" gp_index=\"%u\" bridge_type=\"0-1\" depth=\"0\" "
	       "bridge_pci=\"0000:[%02x-%02x]\">\n",
	       next_gp_index++, root, last);
	for (int level = 0; level < 2; level++) {
		indent(4 + level);
		printf("<object type=\"Bridge\" gp_index=\"%u\" bridge_type=\"1-1\" depth=\"%d\" "
		       "bridge_pci=\"0000:[%02x-%02x]\" pci_busid=\"0000:%02x:00.0\" "
		       "pci_type=\"0604 [1d0f:0200] [1d0f:0200] 01\" pci_link_speed=\"63.015385\">\n",
		       next_gp_index++, level + 1, root + 1 + level, last, root + level);
	}
	for (int i = 0; i < m->nics_per_gpu; i++) {
		int nic = group * m->nics_per_gpu + i;

		sim_machine_nic_name(m, nic, name, sizeof name);
		snprintf(type, sizeof type, "0200 [%04x:%04x] [%04x:%04x] 00", m->nic_vendor, m->nic_device,
			 m->nic_vendor, m->nic_device);
		snprintf(os, sizeof os, "name=\"%s\" osdev_type=\"3\"", name);
		print_device(root + 2, SIM_SLOT_NIC + i, type, os);
	}
	snprintf(type, sizeof type, "0302 [10de:%04x] [10de:16c1] a1", m->gpu_device);
	snprintf(os, sizeof os, "name=\"cuda%d\" subtype=\"CUDA\" osdev_type=\"5\"", group);
	print_device(root + 2, SIM_SLOT_GPU, type, os);
	snprintf(os, sizeof os, "name=\"nvme%dn1\" osdev_type=\"0\"", group + 1);
	print_device(root + 2, SIM_SLOT_NVME, "0108 [1d0f:cd01] [1d0f:cd01] 00", os);
	for (int level = 1; level >= 0; level--) {
		indent(4 + level);
		printf("</object>\n");
	}
	indent(3);
	printf("</object>\n");
}

static void print_core(const struct sim_machine *m, int core, unsigned node)
{
	int all = m->sockets * m->cores_per_socket;

	indent(3);
	printf("<object type=\"Core\" os_index=\"%d\"", core);
	print_sets(m, core, 1, m->threads_per_core, node);
	printf(">\n");
	for (int t = 0; t < m->threads_per_core; t++) {
		indent(4);
		printf("<object type=\"PU\" os_index=\"%d\"", core + t * all);
		print_sets(m, core + t * all, 1, 1, node);
		printf("/>\n");
	}
	indent(3);
	printf("</object>\n");
}

static void print_package(const struct sim_machine *m, int socket)
{
	int first = socket * m->cores_per_socket;
	/* Divided as evenly as possible. */
	int from = m->gpus * socket / m->sockets, to = m->gpus * (socket + 1) / m->sockets;
	unsigned node = 1u << socket;

	indent(2);
	printf("<object type=\"Package\" os_index=\"%d\"", socket);
	print_sets(m, first, m->cores_per_socket, m->threads_per_core, node);
	printf(">\n");
	indent(3);
	printf("<object type=\"NUMANode\" os_index=\"%d\"", socket);
	print_sets(m, first, m->cores_per_socket, m->threads_per_core, node);
	printf(" local_memory=\"%llu\"/>\n", 1024ull << 30);
	for (int i = 0; i < m->cores_per_socket; i++)
		print_core(m, first + i, node);
	for (int i = from; i < to; i++)
		print_group(m, i);
	indent(2);
	printf("</object>\n");
}

static void print_machine(const struct sim_machine *m)
{
	int cores = m->sockets * m->cores_per_socket;
	unsigned nodes = (1u << m->sockets) - 1;

	printf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
	       "<topology version=\"2.0\">\n");
	indent(1);
	printf("<object type=\"Machine\" os_index=\"0\"");
	print_sets(m, 0, cores, m->threads_per_core, nodes);
	print_cpuset("allowed_cpuset", 0, cores, cores, m->threads_per_core);
	printf(" allowed_nodeset=\"0x%08x\">\n", nodes);
	indent(2);
	printf("<info name=\"Backend\" value=\"simulated\"/>\n");
	indent(2);
	printf("<info name=\"SimulatedMachine\" value=\"%s\"/>\n", m->name);
	for (int socket = 0; socket < m->sockets; socket++)
		print_package(m, socket);
	indent(1);
	printf("</object>\n</topology>\n");
}

int main(int argc, char **argv)
{
	struct sim_spec spec;
	char error[256] = "which machine?";

	if (argc != 2 || sim_spec_parse(argv[1], &spec, error, sizeof error)) {
		fprintf(stderr, "%s: %s\nusage: %s NAME|FILE\n", argv[0], error, argv[0]);
		return 2;
	}
	print_machine(&spec.machine);
	return fflush(stdout) ? 1 : 0;
}
