/*
 * Called by `--sim NAME[,key=value...]` of weft bench, info and topo before any libfabric call and before any thread,
 * because it changes the environment.
 */
#ifndef SIM_SETUP_H
#define SIM_SETUP_H

#include <stddef.h>

/* Validates the specification, finds the provider and sets FI_PROVIDER_PATH, SIMFAB and, unless already set and if
 * the machine has one, WEFT_TOPOLOGY_XML. Returns 0, or a negative errno with a sentence in `error`.
 * With card=efa the program starts over, once, with the modelled card preloaded. */
int wf_sim_setup(const char *spec, char *error, size_t error_bytes);

/* Returns the provider name of the simulated NICs in the environment's specification: "simfab"; with as=efa or
 * card=efa "efa" or "efa-direct". */
const char *wf_sim_provider(void);

/* Returns a description for headlines: that NICs are simulated and what a post costs, or with card=efa which part is real. The
 * text is good until the next call. */
const char *wf_sim_kind(void);

#endif
