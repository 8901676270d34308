/* What the topology tests share: opening, planning, and comparing a group with words. */
#ifndef TESTS_TOPO_CHECK_H
#define TESTS_TOPO_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "topo/topo.h"

#include "machine.h"

struct planned {
	struct wf_topo *topo;
	struct wf_topo_plan *plan;
	const struct wf_topo_nic *nics;
	size_t nic_count;
};

/* Uses the NICs of the XML if nics is NULL. Fails the test if either step fails. */
void check_plan(struct planned *planned, const char *xml, const struct wf_topo_nic *nics, size_t count,
		const struct wf_topo_options *options);
void check_plan_free(struct planned *planned);

/* Compares with "gpus | rails | cores | worker", such as "53:00.0 | rdmap79s0 rdmap80s0 | 0-11 | 1"; also checks
 * that every NIC has one owner. */
void check_group(const struct planned *planned, size_t index, const char *expected);
void check_owners(const struct planned *planned);

/* Makes a file with this text; the caller unlinks it. */
const char *check_file(const char *text, size_t bytes);

#endif
