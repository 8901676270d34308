/*
 * weft: moves memory between machines over every NIC they have.
 *
 * The only public header. Handles are opaque, there are no inlines, and it compiles alone as C11 and as C++11.
 *
 *  - Every function that can fail returns 0 (or a count) or a negative errno. weft_strerror() and weft_error_hint() explain it.
 *    Each comment lists the codes of its call. Besides those, any call may return -EINVAL: a pointer is NULL that may not be,
 *    a handle's engine is another one, or a value is out of its bounds.
 *  - Outputs come last and are written only on success, unless the comment says otherwise.
 *  - Nothing waits for a peer except weft_queue_wait() and weft_transfer_wait() (until their timeout), weft_engine_close(),
 *    weft_region_close() and weft_region_revoke() (bounded).
 *  - Everything that ends, arrives or changes is an event. There are no callbacks on weft's threads except the log function.
 *  - Peers, regions, remotes and transfers are numbered handles. The library refuses a stale one with -ENOENT.
 *
 * Structures grow at their end, and a program keeps running on a newer library (docs/decisions/13-abi-that-grows.md):
 *  - A structure that the program fills begins with its size: struct weft_op op = { .size = sizeof(op), .tag = 7 };
 *    in C++11: weft_op op = {}; op.size = sizeof(op). -EINVAL: the size is not set. -E2BIG: the program was built with a newer
 *    header and uses a field that this library does not have.
 *  - A structure that the library fills has its size passed beside it: weft_rail_info(engine, 0, &info, sizeof(info)). Fields
 *    that this library does not know are 0.
 *  - A structure that the library owns and shows (struct weft_error, struct weft_nic) is followed by zeros: a field that this
 *    library does not know reads as 0.
 *  - Enumerations grow: expect values that this header does not list, and ignore what they announce.
 *
 * docs/THREADING.md says for each function which threads may call it and whether it blocks. Each function has a manual page.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. weft_version_number() is the library's: a program that needs a later field compares them. */
#define WEFT_VERSION_MAJOR  0
#define WEFT_VERSION_MINOR  1
#define WEFT_VERSION_PATCH  0
#define WEFT_VERSION_NUMBER (WEFT_VERSION_MAJOR * 1000000 + WEFT_VERSION_MINOR * 1000 + WEFT_VERSION_PATCH)

#define WEFT_MICROSECOND UINT64_C(1000)
#define WEFT_MILLISECOND UINT64_C(1000000)
#define WEFT_SECOND      UINT64_C(1000000000)
#define WEFT_FOREVER     UINT64_MAX /* a timeout that never passes: only when asked for by this name */

#define WEFT_MAX_ENUM 0x7fffffff /* no value of any enumeration: makes them all as wide as an int, for values to come */

typedef struct weft_engine weft_engine;
typedef struct weft_queue weft_queue;
typedef uint64_t weft_peer;     /* 0 is no peer */
typedef uint64_t weft_region;   /* 0 is no region */
typedef uint64_t weft_remote;   /* a peer's region, imported; 0 is none */
typedef uint64_t weft_transfer; /* an accepted operation; 0 is none */

/* ---- errors ---------------------------------------------------------------------------------------------- */

enum weft_scope {
	WEFT_SCOPE_NONE,
	WEFT_SCOPE_OPERATION,
	WEFT_SCOPE_PEER,
	WEFT_SCOPE_RAIL,
	WEFT_SCOPE_ENGINE,
	WEFT_SCOPE_MAX_ENUM = WEFT_MAX_ENUM
};

/* Why something failed. In an event it belongs to the library and lives until weft_event_release(). */
struct weft_error {
	enum weft_scope scope; /* what the error ruins: this operation, the peer, a rail, everything */
	int provider_error;    /* the provider's own number; 0: the error is not the provider's */
	char rail[32];         /* the NIC; "": none is to blame */
	char peer[64];         /* the peer's name (struct weft_peer_config); "": it has none, or none is concerned */
	char text[256];        /* what happened, in the provider's words where it had any */
	const char *hint;      /* what to do about it, or NULL. A constant: it stays valid */
};

/* Constants, for 0 and for any errno, negative or not; weft_strerror() never returns NULL. */
const char *weft_strerror(int error);
const char *weft_error_hint(int error); /* what to do, or NULL */
const char *weft_version(void);         /* the library's, "0.1.0" */
int weft_version_number(void);          /* the library's, as WEFT_VERSION_NUMBER */

/* ---- engine ---------------------------------------------------------------------------------------------- */

enum weft_log_level { WEFT_LOG_ERROR, WEFT_LOG_WARN, WEFT_LOG_INFO, WEFT_LOG_DEBUG, WEFT_LOG_MAX_ENUM = WEFT_MAX_ENUM };
/* Called on any thread, also weft's own; must not call weft. text is valid during the call. */
typedef void (*weft_log_fn)(void *context, enum weft_log_level level, const char *text);

#define WEFT_MANUAL_PROGRESS (1u << 0) /* no threads: the application calls weft_engine_progress() */
/* Only peers added here may reach us. By default every engine that says hello may (docs/SECURITY.md). */
#define WEFT_REFUSE_UNKNOWN (1u << 1)
/* Peers of this host are reached over the local rail (docs/decisions/16-local-rail.md): their memory is written and read over it
 * alone, and over the NICs where the kernel lets nobody copy. Not where config names a provider or rails: everything then goes
 * over those, unless this flag asks for the local rail beside them. */
#define WEFT_WITH_LOCAL (1u << 2)
/* No local rail, whatever config names: peers of this host are reached like others. */
#define WEFT_NO_LOCAL (1u << 3)

/* Zero means "the default" in every field except size. */
struct weft_config {
	size_t size; /* sizeof(struct weft_config) */
	/* require this provider: "efa", "efa-direct", "verbs", "tcp", "local", "shm", …; default: the best there is */
	const char *provider;
	const char *rails;    /* only these NICs: names or local addresses, comma separated */
	const char *avoid;    /* none of these; "local" is the local rail */
	const char *topology; /* an hwloc XML file to use in place of this host's topology; trusted: docs/TOPOLOGY.md */
	uint32_t max_rails;   /* use at most this many rails, local ones beside them not counted */
	uint32_t max_workers; /* start at most this many worker threads; default: one per group of rails */
	uint32_t flags;       /* WEFT_MANUAL_PROGRESS | … */
	uint32_t max_transfers;  /* operations accepted and not yet taken from their queue; default 1024 */
	uint32_t message_frames; /* receive buffers per rail; default 64 */
	uint32_t max_strangers;  /* most peers that came by a hello and were not added; default 1024 */
	uint64_t max_message;    /* largest message to send or accept; default 4 MiB */
	/* bytes of messages one peer may have waiting here unread, incomplete ones and those of earlier
	 * connections included; peers that were never added have 32 windows together; default 8 MiB,
	 * 128 MiB at most */
	uint64_t peer_window;
	uint64_t piece_bytes;  /* contiguous transfers are cut into pieces of this; default from the rails */
	uint64_t timeout_ns;   /* deadline of operations that name none; default 30 s */
	uint64_t heartbeat_ns; /* heartbeat interval; default 500 ms */
	/* a peer that is silent for longer is down; default 3 s. A dead process over tcp is noticed sooner */
	uint64_t peer_limit_ns;
	/* a path on which nothing lands for longer than this and what its bytes in flight take is suspect; default 1 s */
	uint64_t rail_limit_ns;
	weft_log_fn log; /* default: nothing is printed */
	void *log_context;
	/* a file that says which rails and cores make a group (docs/TOPOLOGY.md); default: from the topology */
	const char *groups;
	/* peers connect to these ports, for a firewall: "20000-20100"; default: any. One port per rail and engine of a
	 * host. Providers without ports (shm, efa) ignore it */
	const char *ports;
	uint64_t close_limit_ns; /* how long weft_engine_close() waits for a worker inside its provider; default 5 s */
};
#define WEFT_CONFIG_INIT                                                                                               \
	{                                                                                                              \
		sizeof(struct weft_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0           \
	}

/* Opens every rail that config allows and starts the workers. config may be NULL: all defaults. It and its texts are copied.
 * ret_error may be NULL; on failure the first error_bytes of a struct weft_error say why, in the words that the log gets.
 * -EINVAL, -E2BIG: config. -EOPNOTSUPP: a flag that this library does not know. -ENODEV: no usable NIC. -ENOPROTOOPT: no such
 * provider. -ENOENT, -EPROTO, -EACCES: a file that config names. -EMLINK: too many NICs. -EADDRINUSE: no port of config.ports is
 * free; -EACCES: the last one tried is reserved for the system. -ENOMEM, and what the provider returns. */
int weft_engine_open(const struct weft_config *config, weft_engine **ret_engine, struct weft_error *ret_error,
		     size_t error_bytes);

/* Stops accepting, waits up to 200 ms for accepted replies to reach their callers, cancels what else is in flight, drains,
 * joins, frees, in bounded time. Peers find their operations to us ended with -EHOSTDOWN. All queues close with it; no other
 * call may run or follow on the engine or its queues except weft_queue_wait() and weft_transfer_wait(), which return -ESHUTDOWN.
 * Release events before. NULL: nothing happens.
 * -ETIMEDOUT: a worker hangs inside its provider, or a thread does not leave a wait. The engine is closed all the same, but
 * registered memory must stay as it is: what that worker uses is freed when it comes back, if ever. -EPERM: in the child of a
 * fork, which must not use the engine. */
int weft_engine_close(weft_engine *engine);

/* Manual progress only: one turn of every rail. Returns how many things happened. Messages need no turn to go out: weft_send(),
 * weft_call() and weft_reply() send them at once when they can. -EINVAL: the engine has threads. -EBUSY: another thread is in
 * it. */
int weft_engine_progress(weft_engine *engine);

#define WEFT_BLOB_MAX 16384 /* bytes: no blob is larger */

/* This engine's address blob, to be given to peers. It changes only when a rail itself failed and was reopened (after
 * WEFT_EVENT_RAIL_UP): known peers are told over the other rails, later ones need the new blob. *bytes is the room on entry and
 * the length on return. -ENOBUFS: it does not fit; *bytes is what is needed. */
int weft_engine_address(weft_engine *engine, void *blob, size_t *bytes);

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
	WEFT_EVENT_RAIL_UP,   /* a rail is open again; it carries work when peers answer over it */
	WEFT_EVENT_MAX_ENUM = WEFT_MAX_ENUM
};

struct weft_event {
	enum weft_event_type type;
	int status;                     /* 0 or a negative errno */
	uint64_t tag;                   /* the caller's */
	weft_peer peer;                 /* 0: none, or several */
	void *peer_user;                /* the peer's (struct weft_peer_config) when the event was made; NULL: none */
	weft_transfer transfer;         /* END, REPLY, COUNTED */
	uint64_t bytes;                 /* moved, or of data */
	const void *data;               /* the library's, until weft_event_release() */
	uint64_t call;                  /* CALL: hand it to weft_reply() */
	const struct weft_error *error; /* details of a failure, or NULL; the library's, until weft_event_release() */
	void *owner;                    /* the library's */
	/* END: nothing of the operation can touch memory any more (false only for providers that cannot promise it) */
	bool quiescent;
};

#define WEFT_QUEUE_LISTEN                                                                                              \
	(1u << 0) /* messages, calls, notifications and changes of peers and rails come to this queue */

/* A queue takes the ends of operations that name it in op.queue. One queue of an engine may listen as well: the one opened with
 * WEFT_QUEUE_LISTEN. It also gets what came since the engine opened. The queue closes with its engine at the latest.
 * -EBUSY: another queue listens already. -EOPNOTSUPP: a flag that this library does not know. -ENOMEM, -EMFILE. */
int weft_queue_open(weft_engine *engine, uint32_t flags, weft_queue **ret_queue);

/* Moves listening here from another queue; what that one has stays there. -ENOTCONN: no queue was opened with WEFT_QUEUE_LISTEN. */
int weft_queue_listen(weft_queue *queue);

/* NULL: nothing happens. -EBUSY: it listens, operations that name it are in flight, or a thread does not leave
 * weft_queue_wait(). */
int weft_queue_close(weft_queue *queue);

/* Takes up to max events and returns how many. event_bytes is sizeof(struct weft_event), the distance between two of them.
 * Every event with data or error must be given to weft_event_release() when read; for others that does no harm.
 * weft_queue_wait() returns 0 when timeout_ns passes first. -ESHUTDOWN (wait): the engine or the queue closes; the events that
 * are left go with it. */
int weft_queue_poll(weft_queue *queue, struct weft_event *events, size_t event_bytes, int max);
int weft_queue_wait(weft_queue *queue, struct weft_event *events, size_t event_bytes, int max, uint64_t timeout_ns);
/* Gives back what the event's data and error point to, and clears them. NULL: nothing happens. */
void weft_event_release(struct weft_event *event);

/* A descriptor that polls readable while events wait; the queue owns it. Poll the queue until it returns 0 before you sleep on
 * the descriptor again. */
int weft_queue_fd(weft_queue *queue);

/* ---- memory ---------------------------------------------------------------------------------------------- */

#define WEFT_REMOTE_WRITE (1u << 0) /* peers may write it */
#define WEFT_REMOTE_READ  (1u << 1) /* peers may read it */

#define WEFT_NEAR_REQUIRED (1u << 2) /* weft_region_register_near(): fail where no rail is near */

/* The memory stays the caller's and must stay mapped until weft_region_close(). Any region can be the local side of our own
 * operations. It may be a card's (GPU's): that is found out, and the rails near the card are used. Peers of this host reach a card's
 * memory over the local rail, others over NICs through pinned memory of ours, 64 MiB, of which each peer is lent 4; our own operations
 * take it over any rail but shm's. Over NICs counted writes to or from it have up to 512 KiB. Whether a transfer must wait for the
 * card's kernels is the caller's affair. Takes as long as the provider takes to register the memory with every rail (pinning: seconds
 * for many GB); operations and peers are served meanwhile. Where it has more pages than the NIC takes at once with peers' writes (EFA:
 * 1 Mi, which is 4 GiB of pages of 4 KiB) it is registered in parts, which matters only to counted writes (below).
 * -EFBIG: more parts than a descriptor has room for (over 32 rails 120, 472 GiB). -EOPNOTSUPP: an access bit that this library
 * does not know, or a card's memory with access for peers where the engine has neither a local rail nor memory to pin. -E2BIG: a
 * card's memory of over 256 allocations. -EINVAL: part of it is a card's and part is not. -EIO: the card's driver fails. -ENOMEM:
 * often the locked-memory limit. -ETIMEDOUT after 60 s: a worker hangs inside its provider; what was registered by then is undone when
 * it comes back. -EMLINK: too many regions. And what the provider returns. */
int weft_region_register(weft_engine *engine, void *base, uint64_t bytes, uint32_t access, weft_region *ret_region);
/* The same for memory that is in or near a GPU (its PCI address, "0000:53:00.0") or a NUMA node ("numa:1"): operations
 * from and to it use the rails near it. NULL: as weft_region_register(). Near is a wish: on a host without such a GPU or node,
 * and with NICs that have no place on the bus (tcp, shm), all rails are used and the log says so.
 * -ENXIO: that is so and access has WEFT_NEAR_REQUIRED. -EINVAL: near is neither form. Else as weft_region_register(). */
int weft_region_register_near(weft_engine *engine, void *base, uint64_t bytes, uint32_t access, const char *near,
			      weft_region *ret_region);
/* Peers' operations on it fail from now on; the memory is the caller's alone again. Over tcp, and where RDMA is emulated (efa),
 * peers are asked to leave it first, which takes as long as they answer: 0.5 s for one that hangs, over efa up to 5 s, and 10 s
 * for all. -EBUSY: our own operations use it. -ENOENT: no such region. -ETIMEDOUT: as for registering. */
int weft_region_close(weft_engine *engine, weft_region region);
/* The descriptor for peers: base, length, access, incarnation, a key per rail or per part on it. *bytes as for
 * weft_engine_address(). -ENOBUFS, -ENOENT: no such region. */
int weft_region_export(weft_engine *engine, weft_region region, void *blob, size_t *bytes);
/* Takes the access granted to peers back; the region stays usable locally. Peers that imported it get -ESTALE once they have
 * heard of it; until then the provider refuses them, except shm's of libfabric 1.17, which checks no keys.
 * Peers are asked first as for weft_region_close(); what they have in flight then may end with -ESTALE.
 * -EBUSY: our own operations use it. -ENOENT: no such region. -ETIMEDOUT, -ENOMEM and what the provider returns; an error leaves
 * everything as it was. */
int weft_region_revoke(weft_engine *engine, weft_region region);

/* Memory for regions that peers of this host map (over the local rail): they copy there without a system call. To other peers it is
 * memory like any other. Zeros; of huge pages where the host has enough of them free, on a NUMA node ("numa:1") if it has room;
 * NULL: anywhere. Register it, or a part of it, as any memory; a peer that holds the descriptor of a part can map the whole.
 * weft_engine_close() frees what is left. -ENOMEM. -EINVAL: no bytes, or near is not of that form. */
int weft_memory_alloc(weft_engine *engine, uint64_t bytes, const char *near, void **ret_memory);
/* -EBUSY: a region lies in it; close that first. -ENOENT: not what weft_memory_alloc() returned for this engine. */
int weft_memory_free(weft_engine *engine, void *memory);

/* ---- peers ----------------------------------------------------------------------------------------------- */

#define WEFT_PEER_NAME_MAX 63 /* characters */

struct weft_peer_config {
	size_t size;      /* sizeof(struct weft_peer_config) */
	const char *name; /* copied; in errors, logs and infos. NULL: none. -ENAMETOOLONG: over WEFT_PEER_NAME_MAX */
	void *user;       /* comes back in the peer's events */
};

/* Returns at once; paths open in the background and WEFT_EVENT_PEER_UP follows. Operations may be submitted before. A known
 * peer keeps its handle; if it was down it is tried again. config may be NULL: no name, no user pointer, and a known peer keeps
 * those it has. The blob is copied.
 * -EPROTO, -EBADMSG, -EPROTONOSUPPORT: the blob is not one, damaged, or of another version. -EHOSTUNREACH: no rail of the peer
 * has our provider. -EMLINK: too many peers. -ENAMETOOLONG, -E2BIG: config. -ENOMEM,
 * -ESHUTDOWN. */
int weft_peer_add(weft_engine *engine, const void *blob, size_t bytes, const struct weft_peer_config *config,
		  weft_peer *ret_peer);
/* Another name and user pointer, also for a peer that came by itself; events made before keep the old ones.
 * -ENOENT: no such peer. -ENAMETOOLONG, -E2BIG: config. */
int weft_peer_set(weft_engine *engine, weft_peer peer, const struct weft_peer_config *config);
/* Its operations end with -ECANCELED. The handle is refused from now on. -ENOENT: no such peer. */
int weft_peer_remove(weft_engine *engine, weft_peer peer);
/* The peer restarted or moved: the handle, name and user pointer stay, operations in flight end with -EHOSTDOWN, remotes become
 * stale. Operations may be submitted at once, as after weft_peer_add(). -EALREADY: the blob's engine is a peer already, under
 * another handle. -ENOENT: no such peer. Else as weft_peer_add(). */
int weft_peer_replace(weft_engine *engine, weft_peer peer, const void *blob, size_t bytes);
/* Cancels every operation to the peer: each still ends exactly once. -ENOENT: no such peer. */
int weft_peer_cancel(weft_engine *engine, weft_peer peer);
/* The handles of all peers, those that came by themselves included, in no order. *count is the room on entry and the number on
 * return. -ENOBUFS: they do not fit; *count is how many there are now. */
int weft_peer_list(weft_engine *engine, weft_peer *peers, uint32_t *count);

/* -ESTALE: the descriptor is not of the peer's present incarnation. -ENOENT: no such peer. -EPROTO, -EBADMSG, -EPROTONOSUPPORT:
 * the blob is not one, damaged, or of another version. -EMLINK: too many remotes. -ENOMEM. The blob is copied. */
int weft_remote_import(weft_engine *engine, weft_peer peer, const void *blob, size_t bytes, weft_remote *ret_remote);
/* -EBUSY: operations use it; take their ends first. -ENOENT: no such remote. */
int weft_remote_close(weft_engine *engine, weft_remote remote);

/* ---- operations ------------------------------------------------------------------------------------------ */

enum weft_notify {
	WEFT_NOTIFY_NOTHING,
	WEFT_NOTIFY_FENCED, /* one event at the receiver when everything has landed, exactly once */
	WEFT_NOTIFY_COUNTED, /* each write carries .immediate, an empty one too; the receiver counts with weft_expect() */
	WEFT_NOTIFY_MAX_ENUM = WEFT_MAX_ENUM
};
#define WEFT_NOTIFY_MAX 64 /* bytes of payload a fenced notification carries */

/* For writes with a fenced notification: the receiver compares what it has with what we sent (XXH3 of every piece) before it
 * delivers the notification; the transfer ends when it has. The end is -EBADMSG when they differ: then nobody was notified. Both
 * sides read all the bytes once. Such a notification may arrive after messages that were sent later. */
#define WEFT_CHECKSUM (1u << 0)
/* The end is kept for weft_transfer_wait() and goes to no queue: op.queue must be NULL, ret_transfer must not. Until it is taken
 * the operation counts among max_transfers. */
#define WEFT_KEEP_END (1u << 1)

/*
 * Words: 64-bit numbers by which operations start and say that they have ended, with no thread of the program's in between. A CUDA
 * stream writes one with cuStreamWriteValue64() and waits for one with cuStreamWaitValue64(…, CU_STREAM_WAIT_VALUE_GEQ); kernels
 * and threads do it with a store that is a release and a load that is an acquire. Words are the program's and lie on multiples of
 * 8 bytes, in memory that the CPU reads and writes: pinned or managed memory will do, a card's own will not. A word has reached a
 * value when (int64_t)(word - value) >= 0, so it may wrap around.
 *
 * start_word: the operation is accepted at once, and its request is copied; it starts when the word has reached start_value, and
 * only then is its memory read or written. Its deadline counts from the submission. Until it starts, whatever ends an operation
 * ends it as any other, and nothing of it has touched memory. It is not for weft_expect() (-EINVAL). Operations that wait for one
 * word start in the order of their values, and those for one value in the order submitted; no other order is promised: messages
 * arrive in the order in which they start, so one that waits comes after those that did not. A word should only go on: one that
 * goes back may not have been seen. A worker whose operations wait looks all the time while words change, and naps when none has
 * for 20 ms: for a thousandth of the time since, 50 us to 1 ms.
 *
 * end_word: gets a value when the operation has ended, before its event is in its queue, and after all that the end says holds:
 * end_value when it ended well, with the status 0, else end_failed_value, or end_value + WEFT_WORD_FAILED where that is 0. Both
 * have reached end_value, so that a stream that waits for that never hangs (another end_failed_value: -EINVAL). The
 * word itself and the event say which it was. The word can do without a queue. An operation that was refused writes nothing. Where the
 * event would have quiescent = false, the word cannot say so.
 *
 * Both words must stay mapped until the operation's end is in its queue, or its end_word is written; else until
 * weft_engine_close() has returned, as registered memory. Closing writes every end_word that is not written yet, also where a worker
 * hangs.
 *
 * notify_word: FENCED notifications only. The peer's engine stores notify_word_value at notify_word_offset, a multiple of 8, of that
 * remote (a region of the peer's with WEFT_REMOTE_WRITE, whose base is on a multiple of 8) when it delivers the notification, once,
 * after everything has landed and was found right; then the event is queued. Without a queue that listens there is no event. The
 * end is -EREMOTEIO when the peer's engine does not allow that: then nobody was notified. An operation that failed after its
 * notification had left may still be notified, and the word stored. Of a scatter, the peer whose remote it is gets the word.
 */
#define WEFT_WORD_FAILED (UINT64_C(1) << 62)

/* What every operation takes. NULL in place of one: no end event is delivered, the default deadline holds. */
struct weft_op {
	size_t size;                /* sizeof(struct weft_op) */
	weft_queue *queue;          /* where the end goes; NULL: nowhere */
	uint64_t tag;               /* comes back in the end */
	uint64_t timeout_ns;        /* 0: the engine's default; WEFT_FOREVER: none */
	uint32_t flags;             /* WEFT_CHECKSUM | WEFT_KEEP_END */
	enum weft_notify notify;    /* writes, and FENCED reads: whether the peer is told */
	uint64_t notify_tag;        /* FENCED: the receiver's event.tag */
	const void *notify_payload; /* FENCED: copied */
	uint32_t notify_bytes;      /* of the payload */
	uint32_t immediate;         /* COUNTED */
	const uint64_t *start_word; /* it starts when this has reached … */
	uint64_t start_value;       /* … this. NULL: at once */
	uint64_t *end_word;         /* gets one of the next two when it has ended; NULL: nothing is written */
	uint64_t end_value;         /* well */
	uint64_t end_failed_value;  /* or not; 0: end_value + WEFT_WORD_FAILED */
	weft_remote notify_word;    /* FENCED: where the peer stores a word when it is notified; 0: nowhere */
	uint64_t notify_word_offset;
	uint64_t notify_word_value;
};

/* All operations return at once: 0 and (when ret_transfer is not NULL) a handle for weft_transfer_cancel() and
 * weft_transfer_wait(), or a negative errno and nothing was started. Memory named by an accepted operation must stay as it is
 * until its end; request structures and index arrays are copied before the call returns. Zero bytes, pages or parts are legal and
 * end like the rest.
 *
 * What every operation may return: -EAGAIN: max_transfers are in flight or not taken; take events and try again. -EINVAL, -E2BIG:
 * a structure. -EOPNOTSUPP: a flag or notification that this library does not know. -ESHUTDOWN: the engine closes. -ENOMEM.
 * What every operation that names a peer, or memory of one, may return too: -ENOENT: no such peer, region or remote. -EHOSTDOWN:
 * the peer is down.
 * What every operation on memory may return too: -ERANGE: outside the region. -EACCES: not granted. -ESTALE: revoked, of an
 * earlier incarnation, or a card's memory that was freed. -EBUSY: the region is being closed or revoked. -EMSGSIZE: a counted
 * write is larger than the rails take at once, or than 64 MiB where either memory is registered in parts; or the list of pages of
 * a write with WEFT_CHECKSUM does not fit a message. -EOPNOTSUPP: counted writes, or empty ones, over rails that cannot (shm); a
 * card's memory with WEFT_CHECKSUM, or of a peer of another host that has no memory to pin for it.
 *
 * Ends have one of: 0; -ETIMEDOUT, -ECANCELED, -EHOSTDOWN; -EIO: the provider's error; -EREMOTEIO: the peer's memory refused the
 * access; -ENETDOWN: no rail is left; -EBADMSG: the checksum; -EMSGSIZE: larger than the peer takes, or either end's max_message is too
 * small to reach a card's memory over NICs; -ESTALE, -EBUSY where said. */

struct weft_write {
	size_t size; /* sizeof(struct weft_write) */
	weft_region from;
	uint64_t from_offset;
	weft_remote to;
	uint64_t to_offset;
	uint64_t bytes;
};
int weft_write(weft_engine *engine, const struct weft_write *write, const struct weft_op *op,
	       weft_transfer *ret_transfer);

struct weft_read {
	size_t size; /* sizeof(struct weft_read) */
	weft_remote from;
	uint64_t from_offset;
	weft_region to;
	uint64_t to_offset;
	uint64_t bytes;
};
/* -EINVAL also: a counted notification or a checksum, for which the peer would have to take part. */
int weft_read(weft_engine *engine, const struct weft_read *read, const struct weft_op *op, weft_transfer *ret_transfer);

/* Page i goes from from_offset + from_index[i] * from_stride to to_offset + to_index[i] * to_stride. */
struct weft_write_pages {
	size_t size; /* sizeof(struct weft_write_pages) */
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
int weft_write_pages(weft_engine *engine, const struct weft_write_pages *pages, const struct weft_op *op,
		     weft_transfer *ret_transfer);

/* As struct weft_write_pages, the other way. Pages that overlap in our memory end up with one of theirs. */
struct weft_read_pages {
	size_t size; /* sizeof(struct weft_read_pages) */
	uint64_t page_bytes;
	uint64_t count;
	weft_remote from;
	const uint32_t *from_index;
	uint64_t from_stride;
	uint64_t from_offset;
	weft_region to;
	const uint32_t *to_index;
	uint64_t to_stride;
	uint64_t to_offset;
};
/* -EINVAL also: as weft_read(). */
int weft_read_pages(weft_engine *engine, const struct weft_read_pages *pages, const struct weft_op *op,
		    weft_transfer *ret_transfer);

/* Many writes, to many peers, that end as one. A fenced notification goes to every peer named. All parts have the same size
 * field, which is the distance between two of them. */
int weft_scatter(weft_engine *engine, const struct weft_write *parts, uint32_t count, const struct weft_op *op,
		 weft_transfer *ret_transfer);

/* A message ends when the peer's engine has it. Messages to one peer arrive in the order sent. data is copied. receiver_tag is the
 * receiver's event.tag. -EMSGSIZE: larger than max_message. */
int weft_send(weft_engine *engine, weft_peer peer, uint64_t receiver_tag, const void *data, uint64_t bytes,
	      const struct weft_op *op, weft_transfer *ret_transfer);

/* A call ends with the reply, an error, or at its deadline: WEFT_EVENT_REPLY. data is copied. -EMSGSIZE: larger than
 * max_message. */
int weft_call(weft_engine *engine, weft_peer peer, uint64_t receiver_tag, const void *data, uint64_t bytes,
	      const struct weft_op *op, weft_transfer *ret_transfer);
/* Answers event.call of a WEFT_EVENT_CALL. status is 0 or a negative errno of the application's; data is copied. With an op that
 * names a queue, WEFT_EVENT_END says when the caller's engine has the reply, or why it never will (-ESTALE: the caller came
 * back as another incarnation). A reply that nobody waits for any more is dropped.
 * Replies do not count among max_transfers: they have as many slots of their own, so that calls both ways never wait for each
 * other. -EAGAIN: all of those hold replies that their callers' engines have not acknowledged, or ends that were not taken; take
 * events and try again. A peer that was never added holds at most an eighth of them, all such peers together half, and a peer
 * that holds an eighth leaves the last slots to others: -EAGAIN may be for this peer alone. Do not keep others waiting for it.
 * -EMSGSIZE: larger than max_message. */
int weft_reply(weft_engine *engine, weft_peer peer, uint64_t call, int status, const void *data, uint64_t bytes,
	       const struct weft_op *op, weft_transfer *ret_transfer);

/* Ends when every peer named has entered a barrier with the same id that names us. peers is copied. */
int weft_barrier(weft_engine *engine, const weft_peer *peers, uint32_t count, uint64_t id, const struct weft_op *op,
		 weft_transfer *ret_transfer);

/* WEFT_EVENT_COUNTED on op->queue when count more writes with this immediate have landed; those that landed before the call
 * count. With a peer, it ends with -EHOSTDOWN when that peer goes down and with -ECANCELED when it is removed or cancelled; with 0 for the
 * peer, any peer's writes are meant and only the deadline ends it early. A NIC does not say who sent an immediate: peers that are
 * to be told apart must use different ones. Ends with -EBUSY when the immediate is expected already. Of immediates that nobody
 * expects yet the 4096 that arrived last are remembered, of all peers together: what came before 4096 different others is
 * forgotten, and the log says so. */
int weft_expect(weft_engine *engine, weft_peer peer, uint32_t immediate, uint64_t count, const struct weft_op *op,
		weft_transfer *ret_transfer);

/* The operation still ends exactly once, with -ECANCELED unless it ended first. -ENOENT: it has ended. */
int weft_transfer_cancel(weft_engine *engine, weft_transfer transfer);
/* Waits for the end of one operation that was submitted with WEFT_KEEP_END, whatever queues do meanwhile, and writes its end to
 * *ret_event (event_bytes is sizeof(struct weft_event)), to be given to weft_event_release(). -ETIMEDOUT: timeout_ns passed
 * first; the operation goes on and may be waited for again. -ENOENT: no such operation, it has no WEFT_KEEP_END, or its end was
 * taken already. -ESHUTDOWN: the engine closes. */
int weft_transfer_wait(weft_engine *engine, weft_transfer transfer, uint64_t timeout_ns, struct weft_event *ret_event,
		       size_t event_bytes);

/* ---- what is going on ------------------------------------------------------------------------------------ */

struct weft_engine_info {
	uint32_t rails, groups, workers;
	uint64_t incarnation;
	uint64_t memory_bytes; /* the engine's own pools and buffers */
	uint64_t peers, transfers_in_flight;
	char provider[32], libfabric[16];
};
/* info_bytes is sizeof(*ret_info), here and below. */
int weft_engine_info(weft_engine *engine, struct weft_engine_info *ret_info, size_t info_bytes);
/* The configuration in effect, defaults filled in. Its texts belong to the engine and live as long. */
int weft_engine_config(weft_engine *engine, struct weft_config *ret_config, size_t config_bytes);

enum weft_rail_state { WEFT_RAIL_UP, WEFT_RAIL_DOWN, WEFT_RAIL_MAX_ENUM = WEFT_MAX_ENUM };

struct weft_rail_info {
	char name[64]; /* the NIC */
	char provider[32];
	char address[64]; /* for people */
	enum weft_rail_state state;
	uint32_t group;
	uint64_t link_bps;     /* 0: not known */
	uint64_t max_message;  /* the provider's limit for one operation */
	uint64_t window_bytes; /* most in flight to one peer */
	uint32_t window_ops;
	uint32_t queue_ops; /* the provider's limit */
	uint32_t inject_bytes;
	bool delivery_complete; /* a completion means: in the peer's memory */
	bool waits;             /* the worker can sleep on it */
	bool emulated; /* the provider writes by messages, which take CPU time at the peer (EFA without RDMA writes) */
	uint64_t writes, reads, sends, bytes, errors, retries, reopened; /* since open */
	/* of the bytes of a local rail, those copied to and from memory that the peer's weft_memory_alloc() gave and we map; the
	 * kernel copied the others */
	uint64_t mapped_bytes;
	uint64_t
	    card_bytes; /* of the bytes, those that a card copied: between memories, or to and from chunks for a NIC */
};
/* rail counts from 0. -ENOENT: no such rail. */
int weft_rail_info(weft_engine *engine, uint32_t rail, struct weft_rail_info *ret_info, size_t info_bytes);

struct weft_peer_info {
	bool up;
	bool added;     /* by weft_peer_add(); false: it came by itself */
	uint32_t rails; /* of the peer */
	uint32_t paths; /* rail pairs open */
	uint64_t incarnation;
	uint64_t in_flight; /* operations */
	/* what all paths to it carried since it was first known: operations given to NICs that did not fail, and their bytes */
	uint64_t writes, written_bytes, reads, read_bytes;
	void *user;
	char name[WEFT_PEER_NAME_MAX + 1];
	bool local; /* it is on this host, and its memory is reached over the local rail */
};
/* -ENOENT: no such peer. */
int weft_peer_info(weft_engine *engine, weft_peer peer, struct weft_peer_info *ret_info, size_t info_bytes);

enum weft_path_state {
	WEFT_PATH_UNUSED,    /* not tried: another of the peer's rails answers */
	WEFT_PATH_SILENT,    /* tried, not answered */
	WEFT_PATH_UP,        /* carries work */
	WEFT_PATH_ANSWERED,  /* has answered, carries nothing now */
	WEFT_PATH_ELSEWHERE, /* not used: the kernel sends there by another device than the rail's */
	WEFT_PATH_NO_ROUTE,  /* not used: the kernel has no route there, or the peer's rail is of another provider */
	WEFT_PATH_MAX_ENUM = WEFT_MAX_ENUM
};
struct weft_path_info {
	enum weft_path_state state;
	char address[64]; /* the peer's rail, "10.0.0.2:4711"; "" where its address says nothing to people */
	/* the device the kernel sends by, "lo" within one host; "": not the kernel's to decide, or no route */
	char by[32];
	uint64_t writes, written_bytes, reads, read_bytes; /* what this rail pair really carried: see weft_peer_info */
};
/* What is between one of our rails and one of the peer's (from 0 to weft_peer_info.rails). Waits for the worker's turn.
 * -ENOENT: no such peer, rail, or rail of the peer. -ETIMEDOUT: a worker hangs inside its provider. -ENOMEM. */
int weft_path_info(weft_engine *engine, weft_peer peer, uint32_t rail, uint32_t peer_rail,
		   struct weft_path_info *ret_info, size_t info_bytes);

/* A NIC, shown to the function of weft_nic_each(): it and its texts are the library's and valid during the call. */
struct weft_nic {
	const char *name, *provider, *address;
	uint64_t link_bps;
	const char *pci; /* "0000:4f:00.0", or NULL */
	bool usable;     /* false: left out by default (loopback, wrappers), can be asked for by name */
};
/* Every NIC weft could use here, engine or no engine: calls fn for each, on this thread, until it returns non-zero.
 * -EINVAL, -E2BIG: config. -ENODEV: none. -ENOPROTOOPT: no such provider. -ENOMEM. */
int weft_nic_each(const struct weft_config *config, int (*fn)(void *context, const struct weft_nic *nic),
		  void *context);

#ifdef __cplusplus
}
#endif
#endif
