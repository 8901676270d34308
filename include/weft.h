/*
 * weft: moves memory between machines over every NIC they have.
 *
 * The only public header. Handles are opaque, there are no inlines, and it compiles alone as C11 and as C++.
 *
 *  - Every function that can fail returns 0 or a negative errno; weft_strerror() and weft_error_hint() explain it.
 *  - Outputs come last and are written only on success.
 *  - Nothing here waits for a peer, except weft_queue_wait() (with its timeout) and weft_close() (bounded).
 *  - Everything that ends, arrives or changes is an event on a queue. There are no callbacks on weft's threads but
 *    the log function.
 *  - Peers, regions, remotes and transfers are numbered handles: a stale one is refused with -ENOENT, never followed.
 *
 * docs/THREADING.md says for each function which threads may call it and whether it blocks.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_MICROSECOND UINT64_C(1000)
#define WEFT_MILLISECOND UINT64_C(1000000)
#define WEFT_SECOND      UINT64_C(1000000000)
#define WEFT_FOREVER     UINT64_MAX /* a timeout that never passes: only when asked for by this name */

typedef struct weft_engine weft_engine;
typedef struct weft_queue weft_queue;
typedef uint64_t weft_peer;     /* 0 is no peer */
typedef uint64_t weft_region;   /* 0 is no region */
typedef uint64_t weft_remote;   /* a peer's region, imported; 0 is none */
typedef uint64_t weft_transfer; /* an accepted operation; 0 is none */

/* ---- engine ---------------------------------------------------------------------------------------------- */

enum weft_log_level { WEFT_LOG_ERROR, WEFT_LOG_WARN, WEFT_LOG_INFO, WEFT_LOG_DEBUG };
typedef void (*weft_log_fn)(void *context, enum weft_log_level level, const char *text);

#define WEFT_MANUAL_PROGRESS (1u << 0) /* no threads: the application calls weft_progress() */
#define WEFT_REFUSE_UNKNOWN                                                                                            \
	(1u << 1) /* only peers added here may reach us; the default accepts who says hello (docs/SECURITY.md) */

/* Zero means "the default" in every field but size. */
struct weft_config {
	size_t size; /* sizeof(struct weft_config) */
	const char *
	    provider; /* require this provider: "efa", "efa-direct", "verbs", "tcp", "shm", …; default: the best there is */
	const char *rails;       /* only these NICs: names or local addresses, comma separated */
	const char *avoid;       /* none of these */
	const char *topology;    /* an hwloc XML file to use in place of this host's topology */
	uint32_t max_rails;      /* at most so many rails */
	uint32_t max_workers;    /* at most so many worker threads; default: one for each group of rails */
	uint32_t flags;          /* WEFT_MANUAL_PROGRESS | … */
	uint32_t max_transfers;  /* operations accepted and not yet taken from their queue; default 1024 */
	uint32_t message_frames; /* receive buffers a rail; default 64 */
	uint64_t max_message;    /* largest message to send or accept; default 4 MiB */
	uint64_t
	    peer_window; /* bytes of messages one peer may have waiting here unread, incomplete ones and those of earlier
				    connections included; peers that were never added have 32 windows together; default 8 MiB,
				    128 MiB at most */
	uint64_t piece_bytes;  /* contiguous transfers are cut into pieces of this; default from the rails */
	uint64_t timeout_ns;   /* deadline of operations that name none; default 30 s */
	uint64_t heartbeat_ns; /* ask a silent peer so often; default 500 ms */
	uint64_t
	    peer_limit_ns; /* a peer silent for so long is down; default 3 s. A dead process over tcp is noticed sooner */
	uint64_t
	    rail_limit_ns; /* nothing lands on a path for this long, beyond what its bytes in flight take: it is suspect; default 1 s */
	weft_log_fn log; /* default: nothing is printed */
	void *log_context;
	const char *
	    groups; /* a file that says which rails and cores make a group (docs/TOPOLOGY.md); default: from the topology */
	const char *
	    ports; /* peers connect to these ports, for a firewall: "20000-20100"; default: any. A port per rail and engine of a
				  * host; -EADDRINUSE when none is free, -EACCES when the last that was tried is reserved for the system.
				  * Providers without ports (shm, efa) ignore it */
	uint32_t max_strangers; /* peers that came by a hello and were not added, at most; default 1024 */
};
#define WEFT_CONFIG_INIT                                                                                               \
	{                                                                                                              \
		sizeof(struct weft_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0              \
	}

int weft_open(const struct weft_config *config, weft_engine **ret_engine);

/* Stops accepting, gives replies that were accepted 200 ms to reach their callers, cancels what else is in flight, drains, joins,
 * frees, in bounded time. Peers find their operations to us ended with -EHOSTDOWN. All queues close with it; no
 * other call may be running or made on the engine or its queues but weft_queue_wait(), which returns -ESHUTDOWN. Events are
 * released before. -ETIMEDOUT: a worker hangs inside its provider, or a thread does not leave weft_queue_wait(). The engine is
 * closed all the same, but registered memory must stay as it is: what that worker uses is freed when it comes back, if ever. */
int weft_close(weft_engine *engine);

/* Manual progress only: one turn of every rail. Returns how many things happened, or a negative errno. Messages need no turn to
 * go out: weft_send(), weft_call() and weft_reply() send them at once when they can. */
int weft_progress(weft_engine *engine);

#define WEFT_BLOB_MAX 16384 /* bytes: no blob is larger */

/* This engine's address blob, to be given to peers. It changes only when a rail itself failed and was reopened
 * (after WEFT_EVENT_RAIL_UP): known peers are told over the other rails, those who come later need the new one. *bytes is the room on entry and the length on return
 * (-ENOBUFS when it does not fit; *bytes then says how much is needed). */
int weft_address(weft_engine *engine, void *blob, size_t *bytes);

/* ---- queues ---------------------------------------------------------------------------------------------- */

enum weft_event_type {
	WEFT_EVENT_NONE,
	WEFT_EVENT_END,       /* a transfer of ours ended: tag, transfer, status, bytes */
	WEFT_EVENT_REPLY,     /* a call of ours ended: tag, transfer, status, data and bytes of the reply */
	WEFT_EVENT_MESSAGE,   /* a peer sent a message: tag, data, bytes */
	WEFT_EVENT_CALL,      /* a peer calls: tag, data, bytes, call (for weft_reply) */
	WEFT_EVENT_NOTIFY,    /* a peer's transfer has landed: tag, data and bytes of its payload */
	WEFT_EVENT_COUNTED,   /* the expected number of writes has landed: tag of weft_expect() */
	WEFT_EVENT_PEER_UP,   /* a peer answers */
	WEFT_EVENT_PEER_DOWN, /* a peer is gone: status says why; its operations have ended or are ending */
	WEFT_EVENT_RAIL_DOWN, /* one of our rails failed and is being reopened: error says which and why */
	WEFT_EVENT_RAIL_UP,   /* and is open again; it carries work when peers answer over it */
};

enum weft_scope { WEFT_SCOPE_NONE, WEFT_SCOPE_OPERATION, WEFT_SCOPE_PEER, WEFT_SCOPE_RAIL, WEFT_SCOPE_ENGINE };

struct weft_error {
	enum weft_scope scope; /* what the error ruins: this operation, the peer, a rail, everything */
	int provider_error;    /* the provider's own number, 0 when the error is not the provider's */
	char rail[32];         /* the NIC, "" when none is to blame */
	char text[160];        /* what happened, in the provider's words where it had any */
	const char *hint;      /* what to do about it, NULL when nothing is known */
};

struct weft_event {
	enum weft_event_type type;
	int status; /* 0 or a negative errno */
	bool
	    quiescent; /* END: nothing of the operation can touch memory any more (true but for providers that cannot promise it) */
	uint64_t tag; /* the caller's */
	weft_peer peer;
	weft_transfer transfer;         /* END, REPLY */
	uint64_t bytes;                 /* moved, or of data */
	const void *data;               /* valid until weft_event_release() */
	uint64_t call;                  /* CALL: hand it to weft_reply() */
	const struct weft_error *error; /* details of a failure, or NULL; valid until weft_event_release() */
	void *owner;                    /* weft's */
};

/* A queue takes what ends with it as op.queue. Messages, calls, notifications and changes of peers and rails come to
 * the engine's listening queue: the first one opened, or the one last given to weft_queue_listen(). */
int weft_queue_open(weft_engine *engine, weft_queue **ret_queue);
int weft_queue_listen(weft_queue *queue);

/* Refused with -EBUSY while operations that name this queue are in flight. */
int weft_queue_close(weft_queue *queue);

/* Takes up to max events: how many, or a negative errno. Wait returns 0 when timeout_ns passes first. Every event
 * with data or error must be given to weft_event_release() when read (calling it for others does no harm). */
int weft_queue_poll(weft_queue *queue, struct weft_event *events, int max);
int weft_queue_wait(weft_queue *queue, struct weft_event *events, int max, uint64_t timeout_ns);
void weft_event_release(struct weft_event *event);

/* A descriptor that polls readable while events wait. The queue owns it. Poll the queue until it returns 0 before
 * sleeping on it again. */
int weft_queue_fd(weft_queue *queue);

/* ---- memory ---------------------------------------------------------------------------------------------- */

#define WEFT_REMOTE_WRITE (1u << 0) /* peers may write it */
#define WEFT_REMOTE_READ  (1u << 1) /* peers may read it */

#define WEFT_NEAR_REQUIRED (1u << 2) /* weft_region_register_near(): fail where no rail is near */

/* Any region can be the local side of our own operations. Takes as long as the provider takes to register the memory with every
 * rail (pinning: seconds for many GB); operations and peers are served meanwhile. -ETIMEDOUT after 60 s: a worker hangs inside
 * its provider. What was registered by then is undone when it comes back. The same for closing and revoking. Where it has more
 * pages than the NIC takes at once with peers' writes (EFA: 1 Mi, which is 4 GiB of pages of 4 KiB) it is registered in parts, which
 * nobody notices but for counted writes (below). -EFBIG: in more parts than a descriptor has room for (over 32 rails 120, 472 GiB). */
int weft_region_register(weft_engine *engine, void *base, uint64_t bytes, uint32_t access, weft_region *ret_region);
/* The same for memory that is in or near a GPU (its PCI address, "0000:53:00.0") or a NUMA node ("numa:1"): operations
 * from and to it use the rails near it. NULL: as weft_region_register(). Near is a wish: on a host without such a GPU or node,
 * and with NICs that have no place on the bus (tcp, shm), all rails are used and the log says so; with WEFT_NEAR_REQUIRED in
 * access that is -ENXIO. -EINVAL when near is neither form. */
int weft_region_register_near(weft_engine *engine, void *base, uint64_t bytes, uint32_t access, const char *near,
			      weft_region *ret_region);
/* -EBUSY while our own operations use it. Peers' operations on it fail from now on. */
int weft_region_close(weft_engine *engine, weft_region region);
/* The descriptor for peers: base, length, access, incarnation, a key for each rail or each part on it. As weft_address() for *bytes. */
int weft_region_export(weft_engine *engine, weft_region region, void *blob, size_t *bytes);
/* -EBUSY while our own operations use it; an error leaves everything as it was. Takes the access granted to peers back; the region stays usable locally. Peers that imported it get
 * -ESTALE once they have heard of it; until then the provider refuses them, except shm's of libfabric 1.17, which checks
 * no keys. */
int weft_region_revoke(weft_engine *engine, weft_region region);

/* ---- peers ----------------------------------------------------------------------------------------------- */

/* Returns at once; paths open in the background and WEFT_EVENT_PEER_UP follows. Operations may be submitted before. A known
 * peer keeps its handle; if it was down it is tried again. */
int weft_peer_add(weft_engine *engine, const void *blob, size_t bytes, weft_peer *ret_peer);
/* Its operations end with -ECANCELED. The handle is refused from now on. */
int weft_peer_remove(weft_engine *engine, weft_peer peer);
/* The peer restarted or moved: the handle stays, operations in flight end with -EHOSTDOWN, remotes become stale. Operations
 * may be submitted at once, as after weft_peer_add(). -EALREADY: the blob's engine is a peer already, under another handle. */
int weft_peer_replace(weft_engine *engine, weft_peer peer, const void *blob, size_t bytes);

/* -ESTALE when the descriptor is not of the peer's present incarnation. */
int weft_remote_import(weft_engine *engine, weft_peer peer, const void *blob, size_t bytes, weft_remote *ret_remote);
int weft_remote_close(weft_engine *engine, weft_remote remote);

/* ---- operations ------------------------------------------------------------------------------------------ */

enum weft_notify_kind {
	WEFT_NOTIFY_NOTHING,
	WEFT_NOTIFY_FENCED, /* one event at the receiver when everything has landed, exactly once */
	WEFT_NOTIFY_COUNTED, /* each write carries .immediate, an empty one too (-EOPNOTSUPP over shm); the receiver counts with weft_expect().
			      * -EMSGSIZE: larger than the rails take at once, or than 64 MiB where either memory is registered in parts */
};
#define WEFT_NOTIFY_MAX 64 /* bytes of payload a fenced notification carries */

struct weft_notify {
	enum weft_notify_kind kind;
	uint32_t immediate;  /* COUNTED */
	uint64_t tag;        /* FENCED: the receiver's event.tag */
	const void *payload; /* FENCED: copied */
	size_t payload_bytes;
};

/* For writes with a fenced notification: the receiver compares what it has with what we sent (XXH3 of every piece) before it
 * delivers the notification; the transfer ends when it has. -EBADMSG when they differ: then nobody was notified. Both sides
 * read all the bytes once. The list of pages must fit a message (max_message): -EMSGSIZE. Such a notification may
 * arrive after messages that were sent later. */
#define WEFT_CHECKSUM (1u << 0)

/* What every operation takes. NULL in place of one: no end event is delivered, the default deadline holds. */
struct weft_op {
	weft_queue *queue;   /* where the end goes; NULL: nowhere */
	uint64_t tag;        /* comes back in the end */
	uint64_t timeout_ns; /* 0: the engine's default; WEFT_FOREVER: none */
	struct weft_notify notify;
	uint32_t flags; /* WEFT_CHECKSUM */
};

/* All operations return at once: 0 and (when ret_transfer is not NULL) a handle for weft_cancel(), or a negative
 * errno and nothing was started. -EAGAIN means: max_transfers are in flight; take events and try again.
 * Memory named by an accepted operation must stay as it is until its end; request structures and index arrays are
 * copied before the call returns. Zero bytes, pages or parts are legal and end like the rest. */

struct weft_write {
	weft_region from;
	uint64_t from_offset;
	weft_remote to;
	uint64_t to_offset;
	uint64_t bytes;
};
int weft_write(weft_engine *engine, const struct weft_write *write, const struct weft_op *op,
	       weft_transfer *ret_transfer);

struct weft_read {
	weft_remote from;
	uint64_t from_offset;
	weft_region to;
	uint64_t to_offset;
	uint64_t bytes;
};
int weft_read(weft_engine *engine, const struct weft_read *read, const struct weft_op *op, weft_transfer *ret_transfer);

/* Page i goes from from_offset + from_index[i] * from_stride to to_offset + to_index[i] * to_stride. */
struct weft_pages {
	uint64_t page_bytes;
	uint64_t count;
	weft_region from;
	const uint32_t *from_index; /* NULL: 0, 1, 2, … */
	uint64_t from_stride;       /* 0: page_bytes */
	uint64_t from_offset;
	weft_remote to;
	const uint32_t *to_index;
	uint64_t to_stride;
	uint64_t to_offset;
};
int weft_write_pages(weft_engine *engine, const struct weft_pages *pages, const struct weft_op *op,
		     weft_transfer *ret_transfer);

/* Many writes, to many peers, that end as one. A fenced notification goes to every peer named. */
int weft_scatter(weft_engine *engine, const struct weft_write *parts, uint32_t count, const struct weft_op *op,
		 weft_transfer *ret_transfer);

/* A message ends when the peer's engine has it, with -EMSGSIZE when it is larger than the peer takes. Messages to one peer arrive in the order sent. data is copied.
 * receiver_tag is the receiver's event.tag. */
int weft_send(weft_engine *engine, weft_peer peer, uint64_t receiver_tag, const void *data, uint64_t bytes,
	      const struct weft_op *op, weft_transfer *ret_transfer);

/* A call ends with the reply, an error, or at its deadline: WEFT_EVENT_REPLY. */
int weft_call(weft_engine *engine, weft_peer peer, uint64_t receiver_tag, const void *data, uint64_t bytes,
	      const struct weft_op *op, weft_transfer *ret_transfer);
/* status is 0 or a negative errno of the application's. A reply no one waits for any more is dropped. Replies do not count among
 * max_transfers: they have as many slots of their own, so that calls both ways never wait for each other. -EAGAIN: all of those
 * hold replies that their callers' engines have not acknowledged yet; take events, so that theirs can come, and try again. A peer that was
 * never added holds an eighth of them at most, all such peers together half, and any peer that holds an eighth leaves the last slots to
 * others: so -EAGAIN may be for this peer alone. Do not keep others waiting for it. */
int weft_reply(weft_engine *engine, weft_peer peer, uint64_t call, int status, const void *data, uint64_t bytes);

/* Ends when every peer named has entered a barrier with the same id that names us. */
int weft_barrier(weft_engine *engine, const weft_peer *peers, uint32_t count, uint64_t id, const struct weft_op *op,
		 weft_transfer *ret_transfer);

/* WEFT_EVENT_COUNTED on op->queue when count more writes with this immediate have landed; those that landed before
 * the call count. One expectation an immediate at a time (-EBUSY). Ends with -ETIMEDOUT at its deadline. Of immediates that nobody
 * expects yet the 4096 that arrived last are remembered, of all peers together: what came before 4096 different others is
 * forgotten, and the log says so. */
int weft_expect(weft_engine *engine, uint32_t immediate, uint64_t count, const struct weft_op *op,
		weft_transfer *ret_transfer);

/* The operation still ends exactly once, with -ECANCELED unless it ended first. -ENOENT when it has ended already. */
int weft_cancel(weft_engine *engine, weft_transfer transfer);
int weft_cancel_peer(weft_engine *engine, weft_peer peer);

/* ---- what is going on ------------------------------------------------------------------------------------ */

enum weft_rail_state { WEFT_RAIL_UP, WEFT_RAIL_DOWN };

struct weft_rail_info {
	char name[64]; /* the NIC */
	char provider[32];
	char address[64]; /* for people */
	enum weft_rail_state state;
	uint32_t group;
	uint64_t link_bps;     /* 0: not known */
	uint64_t max_message;  /* the provider's limit for one operation */
	uint64_t window_bytes; /* in flight to one peer at most */
	uint32_t window_ops;
	uint32_t queue_ops; /* the provider's limit */
	uint32_t inject_bytes;
	bool delivery_complete; /* a completion means: in the peer's memory */
	bool waits;             /* the worker can sleep on it */
	bool emulated; /* the provider writes by messages, which take CPU time at the peer (EFA without RDMA writes) */
	uint64_t writes, reads, sends, bytes, errors, retries, reopened; /* since open */
};
struct weft_peer_info {
	bool up;
	uint32_t rails; /* of the peer */
	uint32_t paths; /* rail pairs open */
	uint64_t incarnation;
	uint64_t in_flight; /* operations */
};
struct weft_info {
	uint32_t rails, groups, workers;
	uint64_t incarnation;
	uint64_t memory_bytes; /* the engine's own pools and buffers */
	uint64_t peers, transfers_in_flight;
	char provider[32], libfabric[16];
};
int weft_engine_info(weft_engine *engine, struct weft_info *ret_info);
/* The configuration in effect, defaults filled in. ret_config->size says on entry how large the caller's structure is, as
 * WEFT_CONFIG_INIT does: -EINVAL when it cannot be. Its texts live as long as the engine. */
int weft_engine_config(weft_engine *engine, struct weft_config *ret_config);
int weft_rail_info(weft_engine *engine, uint32_t rail, struct weft_rail_info *ret_info);
int weft_peer_info(weft_engine *engine, weft_peer peer, struct weft_peer_info *ret_info);

enum weft_path_state {
	WEFT_PATH_UNUSED,    /* not tried: another of the peer's rails answers */
	WEFT_PATH_SILENT,    /* tried, not answered */
	WEFT_PATH_UP,        /* carries work */
	WEFT_PATH_ANSWERED,  /* has answered, carries nothing now */
	WEFT_PATH_ELSEWHERE, /* not used: the kernel sends there by another device than the rail's */
	WEFT_PATH_NO_ROUTE,  /* not used: the kernel has no route there, or the peer's rail is of another provider */
};
struct weft_path_info {
	enum weft_path_state state;
	char address[64]; /* the peer's rail, "10.0.0.2:4711"; "" where its address says nothing to people */
	char by
	    [32]; /* the device the kernel sends by, "lo" within one host; "": not the kernel's to decide, or no route */
};
/* What is between one of our rails and one of the peer's (from 0 to weft_peer_info.rails). Waits for the worker's turn. */
int weft_path_info(weft_engine *engine, weft_peer peer, uint32_t rail, uint32_t peer_rail,
		   struct weft_path_info *ret_info);

/* Every NIC weft could use here, engine or no engine: calls fn for each until it returns non-zero. */
struct weft_nic {
	const char *name, *provider, *address;
	uint64_t link_bps;
	const char *pci; /* "0000:4f:00.0", or NULL */
	bool usable;     /* false: left out by default (loopback, wrappers), can be asked for by name */
};
int weft_nics(const struct weft_config *config, int (*fn)(void *context, const struct weft_nic *nic), void *context);

const char *weft_strerror(int error);
const char *weft_error_hint(int error); /* what to do, or NULL */
const char *weft_version(void);

#ifdef __cplusplus
}
#endif
#endif
