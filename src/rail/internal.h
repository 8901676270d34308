/* What the files of src/rail/ share. Nobody else includes it. */
#ifndef WF_RAIL_INTERNAL_H
#define WF_RAIL_INTERNAL_H

#include "rail/addresses.h"
#include "rail/quirks.h"
#include "rail/rail.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define WF_QUEUE_OPS_MAX 1024u /* more in flight only adds latency on any link we know */

/* One endpoint with what is bound to it alone. Both endpoints of a rail complete into one queue. */
struct wf_endpoint {
	struct fid_ep *ep;
	struct fid_av *av;
	struct fid_eq *eq;
	struct wf_addresses addresses;
};

/* Failed operations that were read from the completion queue and not yet handed on (cq.c). */
struct wf_failures {
	struct wf_completion *entry;
	uint32_t count, next, room;
};

struct wf_rail {
	struct fi_info *info;
	const struct wf_quirks *quirks;
	const struct wf_log *log;
	char name[64];
	struct wf_ports ports;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct wf_endpoint end[WF_ENDS]; /* by enum wf_end */
	struct wf_failures failures;
	struct wf_strangers *strangers; /* who watches it; NULL: nobody */
	struct wf_abandoned *abandoned; /* NULL: not over sockets */
	uint64_t rma_flags;             /* FI_DELIVERY_COMPLETE where it must be asked for */
	uint64_t immediate_flags;       /* for writes that carry one */
	uint32_t receive_frames;
	bool unrung; /* the last post of the outgoing endpoint carried FI_MORE */
	bool needs_local;
	bool wait_fd; /* the CQ was opened with one */
	struct wf_rail_limits limits;
	struct wf_rail_error error;
};

/* fi_endpoint() on a port of the rail's range, or on any for an endpoint that is not published. -EADDRINUSE, -EACCES: there is
 * none that is free and that we may have; why the last one was not. */
int wf_rail_endpoint(struct wf_rail *rail, bool published, struct fid_ep **ret_ep);
/* shm: whether a plain write to this address has landed when it completes. */
bool wf_rail_copies_directly(const struct wf_rail *rail, const uint8_t *address, uint8_t bytes);
void wf_strangers_leave(struct wf_rail *rail, enum wf_end which); /* before wf_rail_shut() closes the same endpoints */
void wf_strangers_limit_reads(struct wf_rail *rail, enum wf_end end); /* after it was enabled */
/* abandoned.c */
struct wf_abandoned *wf_abandoned_open(void);              /* NULL: no memory */
void wf_abandoned_removed(struct wf_abandoned *abandoned); /* an address has no user any more; NULL is fine, as below */
void wf_abandoned_close(struct wf_abandoned *abandoned);
void wf_rail_note_error(struct wf_rail *rail, int provider_error, const char *text);

/* options.c */
uint32_t wf_fi_version(void); /* the API to ask for: the newest we know, as far as the library at hand has it */
void wf_rail_tame(struct wf_rail *rail); /* fi_info as it is to be opened, before limits are read from it */
void wf_rail_ask(struct wf_rail *rail, struct fid_ep *ep); /* what only an open endpoint tells */
#endif
