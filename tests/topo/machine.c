#include "machine.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The PUs of one core (core >= 0), one thread of it, one socket (core < 0), or everything (socket < 0). */
static void print_set(struct machine *machine, const char *name, int socket, int core, int thread)
{
	uint32_t words[MACHINE_PUS / 32] = { 0 };
	int total = machine->sockets * machine->cores, top = 0;

	for (int t = 0; t < machine->threads; t++)
		for (int c = 0; c < total; c++) {
			int pu = t * total + c;

			if ((socket >= 0 && c / machine->cores != socket) ||
			    (core >= 0 && c % machine->cores != core) || (thread >= 0 && t != thread))
				continue;
			words[pu / 32] |= 1u << pu % 32;
			top = pu / 32 > top ? pu / 32 : top;
		}
	fprintf(machine->file, " %s=\"", name);
	for (int w = top; w >= 0; w--)
		fprintf(machine->file, "%s0x%08x", w < top ? "," : "", words[w]);
	fputc('"', machine->file);
}

static void print_object(struct machine *machine, const char *type, int index, int socket, int core, int thread)
{
	uint32_t nodes = socket < 0 ? (1u << machine->sockets) - 1 : 1u << socket;

	fprintf(machine->file, "<object type=\"%s\" os_index=\"%d\"", type, index);
	print_set(machine, "cpuset", socket, core, thread);
	print_set(machine, "complete_cpuset", socket, core, thread);
	if (socket < 0) {
		print_set(machine, "allowed_cpuset", socket, core, thread);
		fprintf(machine->file, " allowed_nodeset=\"0x%08x\"", nodes);
	}
	fprintf(machine->file, " nodeset=\"0x%08x\" complete_nodeset=\"0x%08x\" gp_index=\"%d\"", nodes, nodes,
		machine->next_id++);
}

void machine_start(struct machine *machine, int sockets, int cores, int threads)
{
	int fd;

	*machine = (struct machine){ .sockets = sockets, .cores = cores, .threads = threads, .next_id = 1 };
	strcpy(machine->path, "/tmp/weft-topo-XXXXXX");
	fd = mkstemp(machine->path);
	machine->file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!machine->file)
		abort();
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
	      "<topology version=\"2.0\">\n",
	      machine->file);
	print_object(machine, "Machine", 0, -1, -1, -1);
	fputs(">\n", machine->file);
}

void machine_socket(struct machine *machine, int socket)
{
	print_object(machine, "Package", socket, socket, -1, -1);
	fputs(">\n", machine->file);
	print_object(machine, "NUMANode", socket, socket, -1, -1);
	fputs(" local_memory=\"1073741824\"/>\n", machine->file);
	for (int c = 0; c < machine->cores; c++) {
		print_object(machine, "Core", c, socket, c, -1);
		fputs(">\n", machine->file);
		for (int t = 0; t < machine->threads; t++) {
			print_object(machine, "PU", t * machine->sockets * machine->cores + socket * machine->cores + c,
				     socket, c, t);
			fputs("/>\n", machine->file);
		}
		fputs("</object>\n", machine->file);
	}
}

void machine_socket_end(struct machine *machine)
{
	fputs("</object>\n", machine->file);
}

void machine_root(struct machine *machine, int first, int last)
{
	fprintf(machine->file,
		"<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"0-1\" depth=\"0\" "
		"bridge_pci=\"0000:[%02x-%02x]\">\n",
		machine->next_id++, first, last);
	machine->open_bridges++;
}

void machine_bridge(struct machine *machine, int bus, int first, int last)
{
	fprintf(machine->file,
		"<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"1-1\" depth=\"%d\" "
		"bridge_pci=\"0000:[%02x-%02x]\" "
		"pci_busid=\"0000:%02x:%02x.0\" pci_type=\"0604 [1d0f:0200] [1d0f:0200] 01\" "
		"pci_link_speed=\"63.0\">\n",
		machine->next_id, machine->open_bridges, first, last, bus, first % 32);
	machine->next_id++;
	machine->open_bridges++;
}

void machine_end(struct machine *machine)
{
	fputs("</object>\n", machine->file);
	machine->open_bridges--;
}

static void open_pci(struct machine *machine, int bus, int class, int vendor, int device)
{
	fprintf(machine->file,
		"<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"0000:%02x:00.0\" pci_type=\"%04x "
		"[%04x:%04x] [%04x:%04x] 00\" "
		"pci_link_speed=\"63.0\">\n",
		machine->next_id++, bus, class, vendor, device, vendor, device);
}

void machine_pci(struct machine *machine, int bus, int class, int vendor, int device)
{
	open_pci(machine, bus, class, vendor, device);
	fputs("</object>\n", machine->file);
}

void machine_gpu(struct machine *machine, int bus)
{
	machine_pci(machine, bus, 0x0302, 0x10de, 0x2330);
}

static void device(struct machine *machine, int bus, const char *name, int type)
{
	open_pci(machine, bus, 0x0200, 0x15b3, 0x1021);
	fprintf(machine->file, "<object type=\"OSDev\" gp_index=\"%d\" name=\"%s\" osdev_type=\"%d\"/>\n</object>\n",
		machine->next_id++, name, type);
}

void machine_nic(struct machine *machine, int bus, const char *name)
{
	device(machine, bus, name, 3);
}

void machine_net(struct machine *machine, int bus, const char *name)
{
	device(machine, bus, name, 2);
}

const char *machine_finish(struct machine *machine)
{
	fputs("</object>\n</topology>\n", machine->file);
	if (fclose(machine->file))
		abort();
	machine->file = NULL;
	return machine->path;
}

void machine_free(struct machine *machine)
{
	unlink(machine->path);
}
