/* The engine: everything one process opened. No globals. */
#ifndef WF_ENGINE_ENGINE_H
#define WF_ENGINE_ENGINE_H

#include "base/handle.h"
#include "base/log.h"
#include "base/pool.h"
#include "device/device.h"
#include "engine/ops/slots.h"
#include "engine/move/group.h"
#include "engine/core/layout.h"
#include "engine/core/queue.h"
#include "engine/core/settings.h"
#include "local/allocation.h"
#include "rail/rail.h"

struct wf_transfer;

struct weft_engine {
	struct wf_settings settings;
	struct weft_config config; /* as given, its texts our own copies */
	struct wf_log log;
	struct wf_log_first first_error; /* that was logged: why opening failed */
	uint64_t incarnation;
	_Atomic int closing;
	_Atomic uint32_t holders; /* its owner, and workers that close gave up on: the last one frees it */
	int pid;                  /* whose threads these are */
	char provider[32];

	struct wf_allocations allocations; /* memory that weft_memory_alloc() made */
	_Atomic(struct wf_rooms *) rooms;  /* for landing (rooms.h); NULL: none */
	struct wf_devices *devices;        /* cards whose memory is registered or met */
	struct wf_nics nics;
	struct wf_layout layout;
	uint32_t rails, groups;
	uint32_t locals; /* of the rails, the last: the local ones beside NICs, one per group */
	struct wf_group *group;
	struct wf_seat **seat;  /* by rail index */
	uint64_t largest_piece; /* that every rail takes */
	uint32_t rma_ranges;    /* in one operation, on every rail */
	bool empty_immediates;  /* writes of no bytes can carry one, on every rail */

	struct wf_handles peers, regions, remotes;
	pthread_mutex_t directory_lock;
	pthread_mutex_t name_lock; /* what the application calls its peers */
	void *directory;           /* peers by incarnation: tsearch */
	uint32_t strangers;        /* those of them that were never added; under the directory's lock */

	struct wf_pool transfers, answers;              /* what the application asks for, and what answers peers */
	struct wf_pool internals;                       /* what the engine tells them by itself */
	struct wf_pool inbounds;                        /* small messages that came in */
	struct wf_pool inframes;                        /* the same, of up to a frame */
	_Atomic uint64_t region_bytes;                  /* registered, all regions together */
	_Atomic uint64_t owed;                          /* replies and verdicts accepted and not acknowledged */
	_Atomic uint32_t strangers_answers[WF_ANSWERS]; /* slots held for peers that were never added */
	_Atomic uint64_t strangers_frames;              /* of messages held that strangers sent, gone ones included */
	_Atomic uint64_t announced;                     /* of peers and rails, in queues */
	_Atomic uint32_t kept_ends;                     /* grows when one comes that somebody may wait for (wait.c) */
	_Atomic uint32_t kept_waiters;                  /* threads in weft_transfer_wait() */
	_Atomic uint64_t copies_kept;                   /* bytes kept with transfers for the next user */

	pthread_mutex_t lock; /* queues, address */
	struct wf_link queues;
	struct wf_link withdrawals; /* regions that peers are asked to leave; under lock */
	_Atomic(weft_queue *) listener;
	_Atomic bool listener_given;     /* a queue was opened to listen; written under lock */
	struct wf_wire_address *address; /* ours; under lock */

	struct wf_counters *counters; /* immediates: group 0's */
	_Atomic uint64_t peer_bytes;
	_Atomic uint32_t epochs; /* the next connection's number: always growing, so that the newer of two is known */
};

/* On failure ret_error's text says why, where the log was told. */
int wf_engine_open(const struct weft_config *config, struct weft_engine **ret_engine, struct weft_error *ret_error);
int wf_engine_close(
    struct weft_engine *engine); /* 0; -ETIMEDOUT: a thread hangs, and what it uses stays until it does not */
void wf_engine_put(struct weft_engine *engine); /* one holder less: the last one frees it */
void wf_engine_worker_gone(void *group);        /* its worker ends, and weft_engine_close() did not wait for it */
int wf_engine_progress(struct weft_engine *engine);
static inline bool wf_engine_is_manual(const struct weft_engine *engine)
{
	return engine->settings.flags & WEFT_MANUAL_PROGRESS;
}
/* Our address blob as it is now; ret_revision may be NULL. */
int wf_engine_address(struct weft_engine *engine, void *blob, size_t *bytes, uint32_t *ret_revision);
/* A rail was opened or reopened: its new address. On its worker. */
int wf_engine_rail_address(struct weft_engine *engine, struct wf_seat *seat);
void wf_engine_announce(struct weft_engine *engine, enum weft_event_type type, int status, weft_peer peer,
			const struct weft_error *error);

struct wf_counters;
/* Those that share what goes to a peer of another host. */
static inline uint32_t wf_engine_nics(const struct weft_engine *engine)
{
	return engine->rails - engine->locals;
}

static inline bool wf_engine_has_local(const struct weft_engine *engine)
{
	return engine->locals || engine->nics.nic[0].local;
}
#endif
