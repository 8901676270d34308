/*
 * What SIMFAB="NAME[,key=value...]" says, parsed. Used by the provider at fi_getinfo and by `--sim`, so that
 * both accept and refuse the same text. No libfabric here.
 */
#ifndef SIM_SPEC_H
#define SIM_SPEC_H

#include "machine.h"

#include <stdbool.h>

#define SIM_NEVER UINT64_MAX

struct sim_spec {
	struct sim_machine machine; /* the table's, or what a machine file changed */
	char machine_name[64];
	char host[64];     /* name=: which host this process is, for faults and logs */
	char control[256]; /* control=: path of the fault file, empty for none */
	bool timeless;     /* complete at the next CQ read, never look at a clock */

	enum sim_personality personality;
	enum sim_copy copy;
	uint64_t nics, tx, rx, cq, reorder, seed;
	uint64_t rate_bps; /* per NIC and direction; 0: infinite */
	uint64_t latency_ns, jitter_ns, op_ns, post_ns, poll_ns;
	uint64_t handshake_ns, handshake_depth;
	uint64_t unresponsive_ns; /* silence until a request fails; SIM_NEVER */
	uint64_t rnr_ns, rnr_retries;
	uint64_t pages;    /* registration budget of a NIC, in 4 KiB pages */
	uint64_t mr_pages; /* of them in one region open to remote writes; not verbs */
	uint64_t strict, target_progress;
	bool card_efa;     /* card=efa: these NICs are cards below EFA's own provider (efa/), not a provider */
	bool as_efa;       /* as=efa: the provider is called "efa" and lists both of EFA's fabrics */
	uint64_t emulated; /* writes go by messages, as on cards without RDMA writes */
	uint64_t rdma_api; /* and for programs that ask for an older API than this; major << 16 | minor */
};

/* One row per key: the parser, `weft sim --help` and the manual's table read the same list. */
struct sim_knob {
	const char *name;
	const char *values;
	const char *about;
};
const struct sim_knob *sim_knob_at(size_t index); /* NULL past the last */

/* 0, or -EINVAL with one line of why in `error`. */
int sim_spec_parse(const char *text, struct sim_spec *ret_spec, char *error, size_t error_bytes);

/* The same NICs under another personality: EFA's second fabric. */
void sim_spec_become(struct sim_spec *spec, enum sim_personality personality);

/* "15us", "2ms", "never"; a bare number is nanoseconds. 0 or -EINVAL. */
int sim_parse_time(const char *text, uint64_t *ret_ns);

#endif
