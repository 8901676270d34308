/* What providers do differently, in one table. Only src/rail/ reads it. */
#ifndef WF_RAIL_QUIRKS_H
#define WF_RAIL_QUIRKS_H

#include <stdbool.h>
#include <stdint.h>

struct wf_quirks {
	const char *provider;          /* libfabric's name */
	const char *fabric;            /* only this fabric of the provider; NULL: any */
	const char *name;              /* weft's name for it */
	int rank;                      /* preference when none is asked for: smaller is better */
	bool by_default;               /* false: only when asked for by name */
	bool crashes;                  /* it crashes the process: treated as absent */
	bool delivery_implied;         /* a completed write is in the peer's memory without asking for delivery */
	bool direct;                   /* shm: the same holds per peer, where it copies directly: direct.c */
	bool close_quiesces;           /* nothing lands at the peer after our endpoint is closed */
	uint32_t window_ops;           /* to one peer; 0: derived from the provider's queue */
	uint64_t window_bytes;         /* to one peer; 0: derived from the link's speed */
	bool immediate_needs_delivery; /* a write with an immediate completes early unless delivery is asked for */
	bool no_empty_immediate;       /* a write of no bytes with an immediate fails */
	bool one_range;                /* it offers several ranges per operation and misplaces them */
	bool target_looks;  /* the peer must poll to drain its queue, even for writes, and nothing wakes it */
	bool sockets;       /* the kernel's TCP sockets: the kernel chooses the device */
	bool shares_memory; /* engines of one process go on using an outgoing endpoint's memory: resting.c */
	bool no_wait;       /* its wait object costs more than it saves */
	/* it cannot take a removed address again, and has room for this many; 0: no such limit */
	uint32_t keep_addresses;
	/* it numbers messages by peer, and removing an address forgets the numbers on one side only: this many unused ones stay */
	uint32_t idle_addresses;
	bool holds_back; /* it may take writes and reads before it has met the peer, and post them later as they came */
	bool rings_immediates; /* writes with one go without FI_MORE: the provider may repeat them as they were */
	uint32_t frame_least;  /* shorter messages take longer than this many bytes */
	uint32_t most_pages;   /* most pages in one region that peers may write to; 0: no known limit */
	bool emulates;         /* emulates writes where the card has none; FI_OPT_EFA_EMULATED_WRITE tells */
	bool own_shm;          /* it takes another way to peers of the same host, unless FI_LOCAL_COMM is left out */
	/* it posts rx_attr->size buffers of its own: this many are enough; 0: it does not */
	uint32_t receives;
	/* closing an endpoint with a message on it that nobody has read makes it use what it has freed */
	bool read_before_close;
	/* its queue has room for FI_UNIVERSE_SIZE peers, which may be more than the card's holds */
	bool sized_by_universe;
	/* another thread may register memory while the worker posts, whatever FI_THREAD_DOMAIN says */
	bool registers_beside;
};

/* Takes both names from fi_info; fabric may be NULL. Never returns NULL: the last row is for all others. */
const struct wf_quirks *wf_quirks_of(const char *provider, const char *fabric);
#endif
