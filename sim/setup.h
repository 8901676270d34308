/*
 * What `--sim NAME[,key=value...]` of weft bench, info and topo calls, before any libfabric call and before threads:
 * it changes the environment.
 */
#ifndef SIM_SETUP_H
#define SIM_SETUP_H

#include <stddef.h>

/* Validates the specification, finds the provider and sets FI_PROVIDER_PATH, SIMFAB and, unless already set
 * and where the machine has one, WEFT_TOPOLOGY_XML. 0, or a negative errno with a sentence in `error`. */
int wf_sim_setup(const char *spec, char *error, size_t error_bytes);

/* What the simulated NICs of the environment's specification are called as a provider: "simfab"; with as=efa
 * "efa" or "efa-direct". */
const char *wf_sim_provider(void);

#endif
