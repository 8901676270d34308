/* Where on the host a NIC is: its NUMA node, the GPU behind the same PCI switch, the cores that are near. */
#ifndef JOURNEY_NEAR_H
#define JOURNEY_NEAR_H

#include "common.h"

struct place {
	int numa;       /* -1: not known */
	char gpu[32];   /* PCI address; "" without one */
	unsigned cores; /* of that NUMA node */
};

/* Reads the host's topology, or the file that WEFT_TOPOLOGY_XML names (a simulated machine's). Call it once, before threads. */
void near_load(void);
void near_unload(void);
struct place near_place(const struct fi_info *info);
/* The wanted-th core of the NIC's NUMA node, by the operating system's number. */
unsigned near_core(const struct fi_info *info, unsigned wanted);

#endif
