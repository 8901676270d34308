/* What providers do differently, in one table. Only src/rail/ reads it. */
#ifndef WF_RAIL_QUIRKS_H
#define WF_RAIL_QUIRKS_H

#include <stdbool.h>
#include <stdint.h>

struct wf_quirks {
	const char *provider;  /* libfabric's name */
	const char *fabric;    /* of that provider only this fabric; NULL: any */
	const char *name;      /* weft's name for it */
	int rank;              /* which to prefer when none is asked for: smaller is better */
	bool by_default;       /* false: only when asked for by name */
	bool crashes;          /* it takes the process with it: as if it were not there */
	bool delivery_implied; /* a completed write is in the peer's memory without asking for it */
	bool direct;           /* so is one of shm where it copies directly, which is found out by peer: direct.c */
	bool close_quiesces;   /* nothing lands at the peer after our endpoint is closed */
	uint32_t window_ops;   /* to one peer; 0: from the provider's queue */
	uint64_t window_bytes; /* to one peer; 0: from the link's speed */
	bool immediate_needs_delivery; /* a write with an immediate completes early unless delivery is asked for */
	bool no_empty_immediate;       /* a write of no bytes with an immediate fails */
	bool one_range;                /* it offers several ranges an operation and misplaces them */
	bool target_looks; /* a peer must look for its queue to drain, even of one-sided writes, and nothing wakes it */
	bool sockets;      /* the kernel's TCP sockets: it decides by which device they send */
	bool no_wait;      /* its wait object costs more than it saves */
	uint32_t
	    keep_addresses; /* it cannot take an address again that was removed, and has room for so many; 0: it can */
	uint32_t frame_least; /* shorter messages take longer */
	uint32_t most_pages;  /* in one region that peers may write to; 0: no limit is known */
	bool emulates;        /* where the card cannot write; FI_OPT_EFA_EMULATED_WRITE tells */
	bool own_shm;         /* it takes another way to peers of the same host, unless FI_LOCAL_COMM is left out */
	uint32_t
	    receives; /* it posts as many buffers of its own as rx_attr->size says: so many will do; 0: it does not */
	bool
	    registers_beside; /* memory may be registered by another thread while the worker posts, whatever FI_THREAD_DOMAIN says */
};

/* Both names as fi_info has them; fabric may be NULL. Never NULL: the last row is for all others. */
const struct wf_quirks *wf_quirks_of(const char *provider, const char *fabric);
#endif
