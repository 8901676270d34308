/* Writes hwloc XML of made-up machines, so that each rule of src/topo can be tested on a suitable host. */
#ifndef TESTS_TOPO_MACHINE_H
#define TESTS_TOPO_MACHINE_H

#include <stdio.h>

#define MACHINE_PUS 256

struct machine {
	FILE *file;
	char path[64];
	int sockets, cores, threads; /* cores per socket, threads per core */
	int next_id, open_bridges;
};

/* Threads are numbered as Linux does: first threads of all cores, then second ones. */
void machine_start(struct machine *machine, int sockets, int cores, int threads);
/* Devices in between belong to the socket; before the first and after the last, to the machine. */
void machine_socket(struct machine *machine, int socket);
void machine_socket_end(struct machine *machine);
/* A host bridge over buses first to last; a bridge below it, itself on bus. Each has its own end call. */
void machine_root(struct machine *machine, int first, int last);
void machine_bridge(struct machine *machine, int bus, int first, int last);
void machine_end(struct machine *machine);
void machine_gpu(struct machine *machine, int bus);
void machine_nic(struct machine *machine, int bus, const char *name); /* RDMA */
void machine_net(struct machine *machine, int bus, const char *name); /* a network interface alone */
void machine_pci(struct machine *machine, int bus, int class, int vendor, int device);
/* Returns the file's path. machine_free() removes the file. */
const char *machine_finish(struct machine *machine);
void machine_free(struct machine *machine);

#endif
