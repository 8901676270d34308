/*
 * A rail: one NIC through libfabric, with everything opened on it. The layers above see nothing else of libfabric. Only
 * the worker that owns the rail calls these functions (FI_THREAD_DOMAIN), except wf_nics_*().
 */
#ifndef WF_RAIL_RAIL_H
#define WF_RAIL_RAIL_H

#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fi_info;
struct wf_allocations;
struct wf_device_memory;
struct wf_devices;

/* ---- discovery of NICs (nics.c) ---- */

/* The ports that peers may connect to; high 0: any. */
struct wf_ports {
	uint16_t low, high, next;
};

struct wf_page_list;

struct wf_nic {
	char name[64];     /* device or interface */
	char provider[32]; /* weft's name for it: "tcp" whatever libfabric's release calls it */
	char address[64];  /* for people */
	uint64_t link_bps; /* 0: unknown */
	bool has_pci;
	uint16_t pci_domain;
	uint8_t pci_bus, pci_device, pci_function;
	bool local;      /* no NIC: the way to processes of this host */
	bool by_default; /* false: loopback and wrappers, taken only when asked for by name */
	int rank;        /* preference of its provider: smaller is better */
	struct wf_ports ports;
	struct fi_info *info;
	struct wf_allocations *allocations; /* memory that a local rail's peers may map; NULL: none */
	struct wf_devices *devices;         /* cards whose memory it may meet; NULL: none */
};

struct wf_nics {
	uint32_t count;
	struct wf_nic *nic;
};

/* Finds all NICs that config allows, or all there are if selected is false. -ENODEV, -ENOPROTOOPT with a text. */
int wf_nics_find(const struct weft_config *config, bool selected, struct wf_nics *ret_nics, char *error,
		 size_t error_bytes);
void wf_nics_free(struct wf_nics *nics);
/* Appends local rails, one per group. Returns 0; -ENOMEM; -ENOSYS: this host does not let us have them, and nothing changed. */
int wf_nics_add_local(struct wf_nics *nics, uint32_t count, const struct wf_log *log);
/* Whether config wants local rails beside the NICs that it leaves. */
bool wf_nics_want_local(const struct weft_config *config);
/* Applies config.ports to the NICs that have ports. -EINVAL: not a range. */
int wf_nics_set_ports(struct wf_nics *nics, const char *ports, const struct wf_log *log);

/* ---- a rail (rail.c) ---- */

#define WF_IMMEDIATES_ROOM                                                                                             \
	4096u /* most completions that nobody here asked for: peers' immediates, which peers ration among them */

struct wf_rail_limits {
	uint64_t max_bytes;  /* limit per operation */
	uint32_t queue_ops;  /* most operations posted */
	uint32_t window_ops; /* most operations to one peer */
	uint64_t window_bytes;
	uint64_t window_first; /* until the path's rate is known */
	bool adapts;           /* the path's speed is unknown: the window follows what completes */
	uint32_t inject_bytes;
	uint32_t frame_least; /* shorter messages are padded with zeros */
	uint32_t rma_ranges;  /* ranges per operation */
	bool empty_immediate; /* a write of no bytes can carry an immediate */
	uint32_t address_format;
	bool delivery_complete; /* a completed write is in the peer's memory */
	bool close_quiesces;    /* nothing lands after the endpoint is closed */
	bool immediate;         /* writes can carry 32 bits */
	uint32_t immediates; /* peers' immediates that the completion queue has room for besides our own completions */
	bool waits;          /* has a descriptor to sleep on */
	bool sockets;        /* kernel sockets: the kernel routes, and refuses connections where nobody listens */
	bool emulated;       /* writes are messages that the peer's provider unpacks */
	bool dead_keys_kill; /* an emulated access by a key that is gone crashes the target inside its provider */
	bool outlives_keys;  /* a write that the provider is receiving goes on after its key is gone */
	bool local;          /* the way to this host's processes; completions tell of those that have ended */
	bool target_looks;   /* writes need the peer to poll now and then, and only a frame makes it do so */
	/* the peer's provider delivers our messages by number, and waits for one that failed: what sent it is not heard any more */
	bool numbers_messages;
	/* the provider may take writes and reads before it has met the peer: the first ring alone, until one has landed */
	bool holds_back;
};

struct wf_rail;

/*
 * A rail has two endpoints. The published one has the address that peers know: it receives, is written to and sends
 * frames, and closes only when it fails itself. The outgoing one starts our own writes and reads. Closing it takes back
 * everything that was posted there, and no peer notices.
 */
enum wf_end { WF_PUBLISHED, WF_OUTGOING, WF_ENDS };

int wf_rail_open(const struct wf_nic *nic, uint32_t receive_frames, const struct wf_log *log,
		 struct wf_rail **ret_rail);
void wf_rail_close(struct wf_rail *rail);

/* Closes an endpoint: nothing that was posted there touches memory any more. wf_rail_poll() may still read what it
 * completed before. Closing the published endpoint also closes the outgoing one, and leaves nothing to read.
 * Registrations stay. */
void wf_rail_shut(struct wf_rail *rail, enum wf_end end);
/* False: a card went on with copies when the outgoing endpoint was shut last, and they may still land. */
bool wf_rail_is_quiet(const struct wf_rail *rail);
/* Opens the endpoints that are closed. After a failure call it again later. */
int wf_rail_reopen(struct wf_rail *rail);
/* Closing and opening may take long and be done on another thread, if nobody uses the rail meanwhile except to register memory.
 * False: it takes no time, and the worker must do it. */
bool wf_rail_reopens_beside(const struct wf_rail *rail);
bool wf_rail_is_open(const struct wf_rail *rail, enum wf_end end);

const struct wf_rail_limits *wf_rail_limits(const struct wf_rail *rail);
int wf_rail_address(struct wf_rail *rail, uint8_t *address,
		    uint8_t *bytes); /* of the published endpoint; *bytes: room, then length */

/* The provider's words for the last error this rail saw. */
struct wf_rail_error {
	int provider_error;
	char text[128];
};
const struct wf_rail_error *wf_rail_last_error(const struct wf_rail *rail);

/* ---- peers' addresses (rail.c), per endpoint ---- */
/* -EMLINK: the provider's table is full for good; reopening the endpoint empties it. */
int wf_rail_insert(struct wf_rail *rail, enum wf_end end, const uint8_t *address, uint8_t bytes, uint64_t *ret_target);
/* Call once per insertion, when nothing that was posted to the address is in flight. */
void wf_rail_remove(struct wf_rail *rail, enum wf_end end, const uint8_t *address, uint8_t bytes);

/* Is the address one of this host's? A local rail's only. Any thread. */
bool wf_rail_is_here(const struct wf_rail *rail, const uint8_t *address, uint8_t bytes);
uint64_t wf_rail_card_bytes(const struct wf_rail *rail);   /* that cards copied for it. Any thread */
uint64_t wf_rail_mapped_bytes(const struct wf_rail *rail); /* of what it copied: to and from memory that both map */
bool wf_rail_has(const struct wf_rail *rail, enum wf_end end, const uint8_t *address,
		 uint8_t bytes); /* whether it is inserted */
/* Where messages are numbered (limits.numbers_messages): a message to the target failed, and none that this endpoint sends there later is
 * delivered. It holds for every user of the address until the endpoint closes. */
void wf_rail_note_lost(struct wf_rail *rail, enum wf_end end, uint64_t target);
bool wf_rail_has_lost(const struct wf_rail *rail, enum wf_end end, const uint8_t *address, uint8_t bytes);
/* Over sockets: closes connections to removed addresses (abandoned.c). Call it often, and soon after removals. */
void wf_rail_close_abandoned(struct wf_rail *rail);
uint32_t wf_rail_abandoned(const struct wf_rail *rail); /* estimate of how many may still be open */

/* ---- the kernel's routes (route.c) ---- */
enum wf_route {
	WF_ROUTE_OWN,   /* leaves by the rail's own device, or the kernel does not decide it */
	WF_ROUTE_LOCAL, /* an address of this host: no NIC carries it */
	WF_ROUTE_OTHER, /* leaves by another device */
	WF_ROUTE_NONE,
};
struct wf_way {
	enum wf_route route;
	uint32_t device; /* the device it leaves by; 0: none */
};
/* A worker's access to the kernel's routing tables: one socket for questions and one that hears of changes. Only
 * that worker uses it. */
struct wf_routes;
struct wf_routes *wf_routes_open(void);           /* NULL: no memory; then routes are not checked */
void wf_routes_close(struct wf_routes *routes);   /* NULL is fine */
bool wf_routes_changed(struct wf_routes *routes); /* since the last call; or a question had no answer */
/* Finds the way from the rail to the address. Returns false if nobody answered; *ret_way is then unchanged. */
bool wf_rail_route(struct wf_routes *routes, const struct wf_rail *rail, const uint8_t *address, uint8_t bytes,
		   struct wf_way *ret_way);
/* The number changes when wf_routes_changed() and the rail's device is another one, came up or went down. */
uint32_t wf_rail_link_changes(struct wf_routes *routes, const struct wf_rail *rail);
void wf_routes_name(const struct wf_routes *routes, uint32_t device, char *name, size_t room); /* "" for none */
/* Finds the way between two socket addresses, for a single question. Any thread. */
enum wf_route wf_route_between(const void *source, size_t source_bytes, const void *destination,
			       size_t destination_bytes);
/* "10.0.0.2:4711"; "" for an address without a readable form. */
void wf_address_text(const uint8_t *address, uint8_t bytes, char *text, size_t room);

/* ---- whether anybody listens at a peer's addresses (knock.c) ---- */
#define WF_KNOCK_DOORS 64
enum wf_knock_answer { WF_KNOCK_WAITING, WF_KNOCK_REFUSED, WF_KNOCK_ANSWERED }; /* refused: by all doors */
struct wf_knock *wf_knock_open(void);                                           /* NULL: no memory */
void wf_knock_at(struct wf_knock *knock, const uint8_t *address, uint8_t bytes);
enum wf_knock_answer wf_knock_look(struct wf_knock *knock);
void wf_knock_close(struct wf_knock *knock); /* NULL is fine */

/* ---- connections that never become a peer's (strangers.c) ---- */
struct wf_strangers;
struct wf_strangers *wf_strangers_open(void);            /* NULL: no way to look, or no memory */
void wf_strangers_close(struct wf_strangers *strangers); /* NULL is fine */
/* Watches the rail until it is closed, which must come before wf_strangers_close(). NULL is fine. */
void wf_strangers_watch(struct wf_strangers *strangers, struct wf_rail *rail);
/* The worker that owns the rails calls this many times per second, after polling each of them. Returns how many were
 * closed. */
uint32_t wf_strangers_look(struct wf_strangers *strangers, uint64_t now_ns);
bool wf_strangers_no_room(
    const struct wf_strangers *strangers); /* the process had no descriptor left at the last look */

/* ---- memory (memory.c) ---- */
/* A region of more pages than the provider takes at once is registered in overlapping tiles: any range no longer
 * than reach lies whole in tile offset / step. */
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
	void *desc; /* passed with every local buffer in it */
	uint64_t key, base;
	struct wf_rail_tiles *tiles; /* NULL: registered in one piece */
	struct wf_rail *host;        /* the local rail that it is registered with; NULL: a NIC's */
	struct wf_rail *resting;     /* the rail whose closed endpoints may still use it; NULL: none does */
};
/* access is WEFT_REMOTE_*, or one of these for frames, which no peer may access by RMA. */
#define WF_FRAMES_OUT (1u << 30)
#define WF_FRAMES_IN  (1u << 31)
/* -EFBIG: it has more pages than the provider takes at once, and would need more than most_tiles tiles. */
int wf_rail_register(struct wf_rail *rail, void *base, uint64_t bytes, uint32_t access, uint32_t most_tiles,
		     struct wf_rail_memory *ret_memory);
/* A card's memory, which stays until it is unregistered. A rail that cannot reach it leaves ret_memory empty: then it is in no
 * descriptor, and operations on it take other rails. */
int wf_rail_register_device(struct wf_rail *rail, const struct wf_device_memory *device, uint32_t access,
			    struct wf_rail_memory *ret_memory);
void wf_rail_unregister(struct wf_rail_memory *memory);
bool wf_rail_needs_local(const struct wf_rail *rail); /* local buffers must be registered too */
/* True: any thread may register and unregister while the worker goes on; false: only the worker may. */
bool wf_rail_registers_beside(const struct wf_rail *rail);

/* ---- posting (post.c) ---- */

enum wf_wr_kind { WF_WR_WRITE, WF_WR_READ, WF_WR_SEND, WF_WR_RECEIVE };

/* A posted work request. It is part of a structure of the layers above and is theirs again when it completes. The
 * poster of a write or a read sets both numbers. */
struct wf_wr {
	uint16_t kind;     /* enum wf_wr_kind */
	uint16_t failed;   /* its failure was reported; 0 when posted */
	void *provider[8]; /* struct fi_context2; comes last, because most providers leave it alone */
};

/* What the operations of a run have in common, and what each has of its own. */
struct wf_rma_run {
	void *desc; /* of a card's memory on a local rail: its struct wf_device_memory */
	uint64_t target, key;
	uint32_t immediate;
	bool has_immediate, read;
	bool alone; /* the provider may hold each back and post it later as it came: it rings for itself only */
	bool cards; /* either end is a card's memory */
	const struct wf_page_list *list; /* local rails: each operation is of some of its pages; NULL: ranges */
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
	union {
		const struct wf_rma_range *ranges; /* instead of local and remote if there are several; NULL: one */
		uint64_t first;                    /* of the run's list: the first page. local and remote: of page 0 */
	};
	int range_count;
};

/* Posts up to count operations on the outgoing endpoint, and rings at the last unless more follows at once. Returns
 * how many were posted. If not all were, *ret_error is -EAGAIN (read completions and try again) or another negative
 * errno. */
int wf_rail_rma(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count, bool more,
		int *ret_error);
/* Return 0, -EAGAIN (nothing was posted; read completions and try again) or another negative errno. */
bool wf_rail_unrung(const struct wf_rail *rail); /* the last post still waits for one that rings */
struct wf_outbound {
	const void *buffer;
	void *desc;
	size_t bytes;
	uint64_t target;
};
int wf_rail_send(struct wf_rail *rail, enum wf_end end, struct wf_wr *wr, const struct wf_outbound *out);
/* For up to inject_bytes: the buffer may be reused at once and nothing completes. */
int wf_rail_inject(struct wf_rail *rail, enum wf_end end, const struct wf_outbound *out);
/* On the published endpoint. */
int wf_rail_receive(struct wf_rail *rail, struct wf_wr *wr, void *buffer, void *desc, size_t bytes);

/* ---- completions (cq.c) ---- */

struct wf_completion {
	struct wf_wr *wr; /* NULL: an immediate arrived (status 0), or an error that the provider could not attribute */
	/* wr NULL and -EHOSTDOWN: the process behind a target has ended (local rails). wr and -ENOTRECOVERABLE: a card failed, not
	 * the path */
	int status;
	uint32_t immediate;
	uint64_t bytes; /* bytes received; or that target */
};
/* Reads completions of both endpoints. Returns their number, 0 for none, or a negative errno if the rail itself is
 * broken. Hands on at most one failure per posted operation, though some providers report it twice. */
int wf_rail_poll(struct wf_rail *rail, struct wf_completion *completions, int max);
int wf_rail_poll_events(struct wf_rail *rail,
			enum wf_end end); /* drains the event queue: returns 0, or the error found there */
/* Returns the descriptor to sleep on, after asking whether sleeping is safe now; -EAGAIN: it is not, poll first. */
int wf_rail_wait_fd(struct wf_rail *rail);
int wf_rail_try_wait(struct wf_rail *rail);

void wf_rail_libfabric_version(char *text, size_t bytes);
#endif
