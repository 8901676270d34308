/*
 * A rail: one NIC through libfabric, with everything opened on it. This header is all that the layers above see of
 * libfabric. Everything but wf_nics_*() is called by the one worker that owns the rail (FI_THREAD_DOMAIN).
 */
#ifndef WF_RAIL_RAIL_H
#define WF_RAIL_RAIL_H

#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fi_info;

/* ---- NICs there are (nics.c) ---- */

struct wf_nic {
	char name[64];     /* device or interface */
	char provider[32]; /* weft's name for it: "tcp" whatever libfabric's release calls it */
	char address[64];  /* for people */
	uint64_t link_bps; /* 0: not known */
	bool has_pci;
	uint16_t pci_domain;
	uint8_t pci_bus, pci_device, pci_function;
	bool by_default; /* false: loopback and wrappers, taken only when asked for by name */
	int rank;        /* of its provider: smaller is better */
	struct fi_info *info;
};

struct wf_nics {
	uint32_t count;
	struct wf_nic *nic;
};

/* All NICs that config allows, or everything there is when selected is false. -ENODEV, -ENOPROTOOPT with a text. */
int wf_nics_find(const struct weft_config *config, bool selected, struct wf_nics *ret_nics, char *error,
		 size_t error_bytes);
void wf_nics_free(struct wf_nics *nics);

/* ---- a rail (rail.c) ---- */

#define WF_IMMEDIATES_ROOM 4096u /* completions nobody here asked for: peers' immediates, which they ration among them */

struct wf_rail_limits {
	uint64_t max_bytes; /* of one operation */
	uint32_t queue_ops; /* operations posted at most */
	uint32_t window_ops; /* to one peer at most */
	uint64_t window_bytes;
	bool adapts; /* the link's speed is not known: the window follows what completes */
	uint32_t inject_bytes;
	uint32_t frame_least; /* shorter messages are sent with zeros behind them */
	uint32_t rma_ranges; /* in one operation */
	bool empty_immediate; /* a write of no bytes can carry one */
	uint32_t address_format;
	bool delivery_complete; /* a completed write is in the peer's memory */
	bool close_quiesces;    /* nothing lands after the endpoint is closed */
	bool immediate;         /* writes can carry 32 bits */
	bool waits;             /* has a descriptor to sleep on */
	bool target_looks;      /* writes need the peer to look now and then, and nothing but a frame tells it to */
};

struct wf_rail;

int wf_rail_open(const struct wf_nic *nic, uint32_t receive_frames, const struct wf_log *log, struct wf_rail **ret_rail);
void wf_rail_close(struct wf_rail *rail);

/* Closes the endpoint and what hangs on it and opens a new one: whatever was posted is ours again and nothing of it
 * completes. Registrations stay. On failure the rail is left without an endpoint; call again later. */
int wf_rail_reopen(struct wf_rail *rail);
void wf_rail_shut(struct wf_rail *rail); /* the first half of it */
bool wf_rail_is_open(const struct wf_rail *rail);

const struct wf_rail_limits *wf_rail_limits(const struct wf_rail *rail);
int wf_rail_address(struct wf_rail *rail, uint8_t *address, uint8_t *bytes); /* *bytes: room, then length */

/* The provider's words for the last error this rail saw. */
struct wf_rail_error {
	int provider_error;
	char text[128];
};
const struct wf_rail_error *wf_rail_last_error(const struct wf_rail *rail);

/* ---- peers' addresses (rail.c) ---- */
/* -EMLINK: the provider's table is full for good; reopening the rail empties it. */
int wf_rail_insert(struct wf_rail *rail, const uint8_t *address, uint8_t bytes, uint64_t *ret_target);
void wf_rail_remove(struct wf_rail *rail, uint64_t target);

/* ---- memory (memory.c) ---- */
struct wf_rail_memory {
	void *mr;   /* the provider's object; NULL: not registered */
	void *desc; /* goes with every local buffer in it */
	uint64_t key, base;
};
/* access is WEFT_REMOTE_*; key is the wish for providers that let us choose. */
int wf_rail_register(struct wf_rail *rail, void *base, uint64_t bytes, uint32_t access, uint64_t key,
		     struct wf_rail_memory *ret_memory);
void wf_rail_unregister(struct wf_rail_memory *memory);
bool wf_rail_needs_local(const struct wf_rail *rail); /* local buffers must be registered too */

/* ---- posting (post.c) ---- */

enum wf_wr_kind { WF_WR_WRITE, WF_WR_READ, WF_WR_SEND, WF_WR_RECEIVE };

/* What is on the NIC. Part of a structure of the layers above; theirs again when it completes. */
struct wf_wr {
	enum wf_wr_kind kind;
	void *provider[8]; /* struct fi_context2; most providers leave it alone, so it comes last */
};

/* What a run of operations has in common, and what each has of its own. */
struct wf_rma_run {
	void *desc;
	uint64_t target, key;
	uint32_t immediate;
	bool has_immediate, read;
};
/* Small pages share an operation where the provider takes several ranges in one. */
#define WF_RMA_RANGES 4
struct wf_rma_range {
	void *local;
	uint64_t bytes, remote;
};
struct wf_rma {
	struct wf_wr *wr;
	void *local;
	uint64_t bytes, remote;
	const struct wf_rma_range *ranges; /* in place of local and remote when there are several; NULL: one */
	int range_count;
};

/* Posts up to count of them, ringing at the last unless more follows at once: how many were posted. When not all were,
 * *ret_error is -EAGAIN (read completions and try again) or another negative errno. */
int wf_rail_rma(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count, bool more,
		int *ret_error);
/* 0, -EAGAIN (nothing was posted; read completions and try again) or another negative errno. */
bool wf_rail_unrung(const struct wf_rail *rail); /* the last that was posted still waits for a post that rings */
int wf_rail_send(struct wf_rail *rail, struct wf_wr *wr, const void *buffer, void *desc, size_t bytes, uint64_t target);
/* For up to inject_bytes: the buffer is ours again at once and nothing completes. */
int wf_rail_inject(struct wf_rail *rail, const void *buffer, size_t bytes, uint64_t target);
int wf_rail_receive(struct wf_rail *rail, struct wf_wr *wr, void *buffer, void *desc, size_t bytes);

/* ---- completions (cq.c) ---- */

struct wf_completion {
	struct wf_wr *wr; /* NULL: an immediate arrived (status 0), or an error the provider could not place */
	int status;
	uint32_t immediate;
	uint64_t bytes; /* received */
};
/* How many, 0 for none, or a negative errno: the rail itself is broken. */
int wf_rail_poll(struct wf_rail *rail, struct wf_completion *completions, int max);
int wf_rail_poll_events(struct wf_rail *rail); /* drains the event queue: 0, or the error found there */
/* The descriptor to sleep on, after saying that now is a safe moment; -EAGAIN: it is not, poll first. */
int wf_rail_wait_fd(struct wf_rail *rail);
int wf_rail_try_wait(struct wf_rail *rail);

const char *wf_rail_libfabric_version(void);
#endif
