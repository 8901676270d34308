/*
 * A host for tests: one simulated NIC opened through libfabric with everything bound, and loops that end by a
 * deadline. Two of them in one process are two hosts.
 */
#ifndef SIM_TESTS_RIG_H
#define SIM_TESTS_RIG_H

#include "../../tests/support/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <sys/types.h>

#define RIG_BYTES    (1u << 20)
#define RIG_DEADLINE 10000000000ull /* ns: no test waits longer for anything */

struct rig {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	uint8_t *memory; /* RIG_BYTES, registered for everything */
	uint8_t address[32];
	struct fi_context2 context[64];
};

struct rig_options {
	const char *spec;
	int nic;
	enum fi_threading threading;
	bool no_eq;
	size_t cq_size;
	uint64_t cq_flags; /* extra bind flags */
};

struct fi_info *rig_info(const char *spec, const struct fi_info *hints); /* NULL: none */
struct fi_info *rig_hints(enum fi_threading threading);
void rig_open(struct rig *rig, const struct rig_options *options);
void rig_open_spec(struct rig *rig, const char *spec); /* the usual: NIC 0, FI_THREAD_DOMAIN */
void rig_close(struct rig *rig);
fi_addr_t rig_connect(struct rig *from, struct rig *to);
uint64_t rig_key(struct rig *rig);

/* Posts a write of `bytes` from offset 0 to the other's offset 0, with context[slot]. */
ssize_t rig_write(struct rig *from, fi_addr_t to, struct rig *target, size_t bytes, int slot, uint64_t flags);
ssize_t rig_send(struct rig *from, fi_addr_t to, size_t bytes, int slot);
ssize_t rig_recv(struct rig *rig, size_t offset, size_t bytes, int slot);

/* Waits for one completion, driving `other` too (NULL for none). Returns 1 with *entry, or -FI_EAVAIL with *error. */
int rig_wait(struct rig *rig, struct rig *other, struct fi_cq_data_entry *entry, struct fi_cq_err_entry *error);
void rig_expect(struct rig *rig, struct rig *other, void *context);                      /* a successful one */
struct fi_cq_err_entry rig_expect_error(struct rig *rig, struct rig *other, int status); /* a failed one */
/* Checks that nothing arrives for this long. */
void rig_expect_nothing(struct rig *rig, uint64_t ns);

/* Runs `body` in a child; returns true if abort() stopped it with `message` in its stderr. */
bool rig_dies(void (*body)(void), const char *message);

/* Opens a control file for this test, removed at the end. */
struct sim_control *rig_control(char path[64]);

#endif
