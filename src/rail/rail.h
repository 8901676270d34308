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

/* The ports peers may connect to; high 0: any. */
struct wf_ports {
	uint16_t low, high, next;
};

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
	struct wf_ports ports;
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
/* Takes config.ports to those that have ports. -EINVAL: not a range. */
int wf_nics_set_ports(struct wf_nics *nics, const char *ports, const struct wf_log *log);

/* ---- a rail (rail.c) ---- */

#define WF_IMMEDIATES_ROOM                                                                                             \
	4096u /* completions nobody here asked for: peers' immediates, which they ration among them; at most */

struct wf_rail_limits {
	uint64_t max_bytes;  /* of one operation */
	uint32_t queue_ops;  /* operations posted at most */
	uint32_t window_ops; /* to one peer at most */
	uint64_t window_bytes;
	uint64_t window_first; /* until it is known what the path carries */
	bool adapts;           /* the path's speed is not known: the window follows what completes */
	uint32_t inject_bytes;
	uint32_t frame_least; /* shorter messages are sent with zeros behind them */
	uint32_t rma_ranges;  /* in one operation */
	bool empty_immediate; /* a write of no bytes can carry one */
	uint32_t address_format;
	bool delivery_complete; /* a completed write is in the peer's memory */
	bool close_quiesces;    /* nothing lands after the endpoint is closed */
	bool immediate;         /* writes can carry 32 bits */
	uint32_t immediates;    /* of peers that the completion queue has room for besides what is ours */
	bool waits;             /* has a descriptor to sleep on */
	bool sockets;           /* the kernel's: it routes, and whoever does not listen refuses */
	bool emulated;          /* writes go by messages that the provider of the peer takes apart */
	bool target_looks;      /* writes need the peer to look now and then, and nothing but a frame tells it to */
};

struct wf_rail;

/*
 * A rail has two endpoints. The published one has the address that peers know: it receives, is written to and sends
 * frames, and is closed only when it fails itself. The outgoing one starts our own writes and reads. Closing it takes back
 * whatever was posted there, and no peer notices.
 */
enum wf_end { WF_PUBLISHED, WF_OUTGOING, WF_ENDS };

int wf_rail_open(const struct wf_nic *nic, uint32_t receive_frames, const struct wf_log *log,
		 struct wf_rail **ret_rail);
void wf_rail_close(struct wf_rail *rail);

/* Closes an endpoint: nothing of what was posted there touches memory any more. What it completed before may still be
 * read by wf_rail_poll(). Without the published endpoint there is no outgoing one either, nor anything left to read.
 * Registrations stay. */
void wf_rail_shut(struct wf_rail *rail, enum wf_end end);
/* Opens the endpoints that are closed. On failure call again later. */
int wf_rail_reopen(struct wf_rail *rail);
bool wf_rail_is_open(const struct wf_rail *rail, enum wf_end end);

const struct wf_rail_limits *wf_rail_limits(const struct wf_rail *rail);
int wf_rail_address(struct wf_rail *rail, uint8_t *address,
		    uint8_t *bytes); /* the published; *bytes: room, then length */

/* The provider's words for the last error this rail saw. */
struct wf_rail_error {
	int provider_error;
	char text[128];
};
const struct wf_rail_error *wf_rail_last_error(const struct wf_rail *rail);

/* ---- peers' addresses (rail.c), per endpoint ---- */
/* -EMLINK: the provider's table is full for good; reopening the endpoint empties it. */
int wf_rail_insert(struct wf_rail *rail, enum wf_end end, const uint8_t *address, uint8_t bytes, uint64_t *ret_target);
/* Once for each insertion; by then nothing that was posted to it is in flight. */
void wf_rail_remove(struct wf_rail *rail, enum wf_end end, const uint8_t *address, uint8_t bytes);

bool wf_rail_has(const struct wf_rail *rail, enum wf_end end, const uint8_t *address,
		 uint8_t bytes); /* it is inserted */
/* Over sockets: closes connections to addresses that were removed (abandoned.c). Often, and soon after removals. */
void wf_rail_close_abandoned(struct wf_rail *rail);
uint32_t wf_rail_abandoned(const struct wf_rail *rail); /* how many may still be open, as far as one can tell */

/* ---- the kernel's routes (route.c) ---- */
enum wf_route {
	WF_ROUTE_OWN,   /* leaves by the rail's own device, or is not for the kernel to decide */
	WF_ROUTE_LOCAL, /* an address of this host: no NIC carries it */
	WF_ROUTE_OTHER, /* leaves by another device */
	WF_ROUTE_NONE,
};
struct wf_way {
	enum wf_route route;
	uint32_t device; /* it leaves by; 0: none */
};
/* A worker's hold on the kernel's tables: one socket to ask on and one that hears of changes. Only that worker uses it. */
struct wf_routes;
struct wf_routes *wf_routes_open(void);           /* NULL: no memory; then there is nobody to ask */
void wf_routes_close(struct wf_routes *routes);   /* NULL is fine */
bool wf_routes_changed(struct wf_routes *routes); /* since it was last asked; or a question had no answer */
/* How what is sent from the rail to the address would go. False: nobody answered; *ret_way is as it was. */
bool wf_rail_route(struct wf_routes *routes, const struct wf_rail *rail, const uint8_t *address, uint8_t bytes,
		   struct wf_way *ret_way);
/* Another number whenever wf_routes_changed() and the rail's device is another, came up or went down. */
uint32_t wf_rail_link_changes(struct wf_routes *routes, const struct wf_rail *rail);
void wf_routes_name(const struct wf_routes *routes, uint32_t device, char *name, size_t room); /* "" for none */
/* How it goes between two socket addresses, asked for once. Any thread. */
enum wf_route wf_route_between(const void *source, size_t source_bytes, const void *destination,
			       size_t destination_bytes);
/* "10.0.0.2:4711"; "" for what says nothing to people. */
void wf_address_text(const uint8_t *address, uint8_t bytes, char *text, size_t room);

/* ---- whether anybody listens at a peer's addresses (knock.c) ---- */
#define WF_KNOCK_DOORS 64
enum wf_knock_answer { WF_KNOCK_WAITING, WF_KNOCK_REFUSED, WF_KNOCK_ANSWERED }; /* refused: by all of them */
struct wf_knock *wf_knock_open(void);                                           /* NULL: no memory */
void wf_knock_at(struct wf_knock *knock, const uint8_t *address, uint8_t bytes);
enum wf_knock_answer wf_knock_look(struct wf_knock *knock);
void wf_knock_close(struct wf_knock *knock); /* NULL is fine */

/* ---- connections that never become a peer's (strangers.c) ---- */
struct wf_strangers;
struct wf_strangers *wf_strangers_open(void);            /* NULL: there is no way to look, or no memory */
void wf_strangers_close(struct wf_strangers *strangers); /* NULL is fine */
/* Until it is closed, which comes before wf_strangers_close(). NULL is fine. */
void wf_strangers_watch(struct wf_strangers *strangers, struct wf_rail *rail);
/* To be called many times a second by the worker that owns the rails, after it has polled each: how many were closed. */
uint32_t wf_strangers_look(struct wf_strangers *strangers, uint64_t now_ns);
bool wf_strangers_no_room(
    const struct wf_strangers *strangers); /* the process had no descriptor left when it last looked */

/* ---- memory (memory.c) ---- */
/* A region of more pages than the provider takes at once is registered in tiles, which overlap as those of a roof do: whatever is
 * no longer than reach lies whole in the one that its offset says. */
struct wf_rail_tiles {
	uint32_t count;
	uint64_t step, reach;
	struct {
		void *mr, *desc;
		uint64_t key;
	} tile[];
};
struct wf_rail_memory {
	void *mr;   /* the provider's object; NULL: not registered, or in tiles */
	void *desc; /* goes with every local buffer in it */
	uint64_t key, base;
	struct wf_rail_tiles *tiles; /* NULL: registered as one */
};
/* access is WEFT_REMOTE_*, or what frames need, which no peer may touch by itself. */
#define WF_FRAMES_OUT (1u << 30)
#define WF_FRAMES_IN  (1u << 31)
/* -EFBIG: it has more pages than the provider takes at once, and would need more than so many tiles. */
int wf_rail_register(struct wf_rail *rail, void *base, uint64_t bytes, uint32_t access, uint32_t most_tiles,
		     struct wf_rail_memory *ret_memory);
void wf_rail_unregister(struct wf_rail_memory *memory);
bool wf_rail_needs_local(const struct wf_rail *rail); /* local buffers must be registered too */
/* Any thread may register and unregister while the worker goes on; false: only the worker may. */
bool wf_rail_registers_beside(const struct wf_rail *rail);

/* ---- posting (post.c) ---- */

enum wf_wr_kind { WF_WR_WRITE, WF_WR_READ, WF_WR_SEND, WF_WR_RECEIVE };

/* What is on the NIC. Part of a structure of the layers above; theirs again when it completes. Who posts a write or a read
 * sets both numbers. */
struct wf_wr {
	uint16_t kind;     /* enum wf_wr_kind */
	uint16_t failed;   /* its failure was reported; 0 when posted */
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

/* On the outgoing endpoint. Posts up to count of them, ringing at the last unless more follows at once: how many were posted. When not all were,
 * *ret_error is -EAGAIN (read completions and try again) or another negative errno. */
int wf_rail_rma(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count, bool more,
		int *ret_error);
/* 0, -EAGAIN (nothing was posted; read completions and try again) or another negative errno. */
bool wf_rail_unrung(const struct wf_rail *rail); /* the last that was posted still waits for a post that rings */
struct wf_outbound {
	const void *buffer;
	void *desc;
	size_t bytes;
	uint64_t target;
};
int wf_rail_send(struct wf_rail *rail, enum wf_end end, struct wf_wr *wr, const struct wf_outbound *out);
/* For up to inject_bytes: the buffer is ours again at once and nothing completes. */
int wf_rail_inject(struct wf_rail *rail, enum wf_end end, const struct wf_outbound *out);
/* On the published endpoint. */
int wf_rail_receive(struct wf_rail *rail, struct wf_wr *wr, void *buffer, void *desc, size_t bytes);

/* ---- completions (cq.c) ---- */

struct wf_completion {
	struct wf_wr *wr; /* NULL: an immediate arrived (status 0), or an error the provider could not place */
	int status;
	uint32_t immediate;
	uint64_t bytes; /* received */
};
/* Of both endpoints. How many, 0 for none, or a negative errno: the rail itself is broken. Of one operation at most one
 * failure is handed on before it is posted again, though some providers report it twice. */
int wf_rail_poll(struct wf_rail *rail, struct wf_completion *completions, int max);
int wf_rail_poll_events(struct wf_rail *rail,
			enum wf_end end); /* drains the event queue: 0, or the error found there */
/* The descriptor to sleep on, after saying that now is a safe moment; -EAGAIN: it is not, poll first. */
int wf_rail_wait_fd(struct wf_rail *rail);
int wf_rail_try_wait(struct wf_rail *rail);

void wf_rail_libfabric_version(char *text, size_t bytes);
#endif
