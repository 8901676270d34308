/* What the files of src/rail/ share. No other folder includes it. */
#ifndef WF_RAIL_INTERNAL_H
#define WF_RAIL_INTERNAL_H

#include "rail/addresses.h"
#include "rail/quirks.h"
#include "rail/rail.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define WF_QUEUE_OPS_MAX 1024u /* more operations in flight only add latency on any known link */

/* One endpoint with the objects bound to it alone. Both endpoints of a rail complete into one queue, unless the outgoing one
 * may have to rest. */
struct wf_endpoint {
	struct fid_ep *ep;
	struct fid_av *av;
	struct fid_eq *eq;
	struct fid_cq *cq; /* of its own; NULL: the rail's */
	uint32_t posted;   /* operations that its own queue has not told of yet */
	bool shared;       /* an engine of this process may use its memory: it rests instead of closing */
	struct wf_addresses addresses;
};

/* Failed operations that were read from the completion queue and not yet handed on (cq.c). */
struct wf_failures {
	struct wf_completion *entry;
	uint32_t count, next, room;
};

#define WF_ODD_FAILURES 1u /* some may wait to be handed on */
#define WF_ODD_STAGED   2u /* for good */

struct wf_rail {
	struct wf_local
	    *local; /* NULL: a NIC's. Else the rail to this host's processes, and nothing of libfabric is open */
	struct wf_allocations *allocations; /* that its peers may map; NULL: none */
	struct wf_devices *devices;         /* NULL: it meets no card's memory */
	_Atomic uint32_t odd;               /* WF_ODD_*: what keeps a poll from being a plain one */
	_Atomic(struct wf_staged *)
	    staged; /* operations on cards' memory that pass through chunks (staged.c); NULL: none yet */
	pthread_mutex_t staged_lock; /* readying cards */
	bool unquiet;                /* a card went on when copies were taken back */
	bool host_open[WF_ENDS];     /* the local rail's endpoints are */
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
	struct wf_resting *resting;     /* outgoing endpoints that are done with; the newest first */
	struct wf_strangers *strangers; /* watches its connections; NULL: nobody does */
	struct wf_abandoned *abandoned; /* NULL: the rail does not use sockets */
	uint64_t rma_flags;             /* FI_DELIVERY_COMPLETE where it must be asked for */
	uint64_t immediate_flags;       /* for writes that carry an immediate */
	uint32_t receive_frames;
	bool own_first; /* the next poll begins with the outgoing endpoint's own queue */
	bool unrung;    /* the last post of the outgoing endpoint carried FI_MORE */
	bool needs_local;
	bool wait_fd; /* the CQ was opened with a descriptor */
	struct wf_rail_limits limits;
	struct wf_rail_error error;
};

/* Calls fi_endpoint() on a port of the rail's range, or on any port for an endpoint that is not published.
 * -EADDRINUSE, -EACCES: no port is free and permitted; the error is that of the last port tried. */
int wf_rail_endpoint(struct wf_rail *rail, bool published, struct fid_ep **ret_ep);
/* shm: returns whether a completed plain write to this address has landed. */
bool wf_rail_copies_directly(const struct wf_rail *rail, const uint8_t *address, uint8_t bytes);
/* shm: whether the endpoint belongs to this process, and whether it has closed. */
bool wf_rail_in_process(const uint8_t *address, uint8_t bytes);
bool wf_rail_has_closed(const uint8_t *address, uint8_t bytes);

/* resting.c */
int wf_resting_begin(struct wf_rail *rail, struct wf_endpoint *end, bool readable); /* -ENOMEM: nothing has changed */
struct wf_endpoint *wf_resting_readable(struct wf_rail *rail); /* it may have completed more; NULL: none does */
void wf_resting_read(struct wf_rail *rail);                    /* nothing that completes there is believed any more */
void wf_resting_unregister(struct wf_rail *rail);              /* before memory of the rail is unregistered */
void wf_resting_look(struct wf_rail *rail);                    /* call often */
bool wf_resting_full(const struct wf_rail *rail);              /* no other may begin to rest */
bool wf_resting_end(struct wf_rail *rail);       /* false: some stay open for good, and the domain with them */
void wf_rail_close_end(struct wf_endpoint *end); /* rail.c: closes what is open of it */

void wf_strangers_leave(struct wf_rail *rail, enum wf_end which);     /* call before wf_rail_shut() */
void wf_strangers_limit_reads(struct wf_rail *rail, enum wf_end end); /* call after enabling the endpoint */
/* abandoned.c */
struct wf_abandoned *wf_abandoned_open(void);              /* NULL: no memory */
void wf_abandoned_removed(struct wf_abandoned *abandoned); /* an address lost its last user; NULL is fine */
void wf_abandoned_close(struct wf_abandoned *abandoned);
void wf_rail_note_error(struct wf_rail *rail, int provider_error, const char *text);

/* staged.c */
struct wf_card;
struct wf_staged;
int wf_staged_prepare(struct wf_rail *rail, struct wf_card *card); /* any thread that may register memory */
int wf_staged_rma(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count,
		  int *ret_error);
int wf_staged_advance(struct wf_staged *staged, struct wf_completion *completions,
		      int max); /* returns those that have ended */
/* Leaves out what is not over for the poster yet. */
int wf_staged_filter(struct wf_staged *staged, struct wf_completion *completions, int count);
bool wf_staged_is_busy(
    const struct wf_staged *staged);               /* no descriptor tells when it goes on: the worker must not sleep */
bool wf_staged_shut(struct wf_staged *staged);     /* false: a card may still copy into memory of a read */
void wf_staged_reopened(struct wf_staged *staged); /* nothing of the old endpoint completes any more */
void wf_staged_close(struct wf_staged *staged);    /* NULL is fine */
/* post.c: past the stages. memory.c: for our own use. */
int wf_rail_rma_by_nic(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count,
		       bool more, int *ret_error);
int wf_rail_register_local(struct wf_rail *rail, void *base, uint64_t bytes, struct fid_mr **ret_mr);

/* options.c */
uint32_t wf_fi_version(void); /* the API version to ask for: the newest known here that the library at hand has */
void wf_rail_tame(struct wf_rail *rail); /* adjusts fi_info before limits are read from it and the rail is opened */
void wf_rail_ask(struct wf_rail *rail, struct fid_ep *ep); /* asks what only an open endpoint can answer */
#endif
