/*
 * A group: the rails near one GPU or NUMA node and the worker that owns them. Each rail sits in a seat. Everything in
 * here is touched by that worker alone, but the few fields marked otherwise.
 */
#ifndef WF_ENGINE_GROUP_H
#define WF_ENGINE_GROUP_H

#include "engine/core/note.h"
#include "engine/move/seat.h"
#include "engine/ops/words.h"
#include "worker/worker.h"

struct weft_engine;
struct wf_lane;
struct wf_piece;
struct wf_strangers;
struct wf_routes;

#define WF_TRIALS 64

struct wf_group {
	struct weft_engine *engine;
	uint32_t index;
	struct wf_worker worker;
	uint32_t seats;
	struct wf_seat *seat;
	uint32_t turn;         /* which seat goes first */
	bool leaving;          /* the engine closes */
	bool reset_due;        /* a seat of ours is */
	uint64_t slow_turn_ns; /* the turn in which a greeting took its provider long */

	uint32_t piece_count,
	    pieces_used; /* pieces from pieces_used on were never taken: no search needs to visit them */
	struct wf_piece *piece, *piece_free;
	uint32_t tx_count;
	struct wf_tx_frame *tx, *tx_free;
	struct wf_tx_frame tx_spare; /* to build a frame in that another group gets a copy of: never posted here */
	uint8_t *tx_buffers, *rx_buffers;
	size_t tx_bytes, rx_bytes;
	uint32_t knocking;     /* peers homed here whose kernel is being asked */
	uint32_t on_nic;       /* pieces and frames posted */
	uint32_t frames_out;   /* of those, frames */
	uint32_t stuck;        /* of those, frames that never leave: no reason to stay awake */
	struct wf_quarantine { /* what failed on a rail and may be reported again (quarantine.h) */
		struct wf_piece *piece;
		struct wf_tx_frame *tx;
		uint32_t tx_count;
	} quarantine[2]; /* since housekeeping last ran, and since before that */

	struct wf_link lanes;           /* all */
	struct wf_link runnable;        /* those with pieces to give, in turn */
	struct wf_link pumping;         /* peers homed here with frames to send */
	struct wf_link acking;          /* peers homed here that are owed an acknowledgement at the end of this turn */
	struct wf_link ending;          /* peers homed here that have acknowledged messages since the last turn */
	struct wf_newcomers *newcomers; /* senders of hellos that are not known (newcomer.c) */
	struct wf_trial {               /* strangers' rails that were sent to and have not answered (trial.c) */
		struct wf_lane *lane;   /* NULL: none */
		uint32_t place, remote;
		uint64_t since_ns;
	} trial[WF_TRIALS];
	void *verifications; /* kept for the next (verify.c) */
	uint32_t verifications_kept;
	uint64_t forged;          /* notifications that named memory which their sender may not write */
	struct wf_link verifying; /* checks of what peers homed here wrote: one per peer (verify.c) */
	struct wf_link landings;  /* copies between rooms and cards, for peers homed here (landing.h) */
	struct wf_link stopping;  /* parts told to stop with pieces still on a NIC */
	struct wf_timer housekeeping;
	uint32_t routes;                /* grows when the kernel's routes change (pairing.c) */
	uint32_t questions;             /* that the kernel was asked about routes */
	bool judging;                   /* not all lanes follow the latest routes yet: the first in the list are next */
	struct wf_timer pairing;        /* goes on with that */
	struct wf_routes *kernel;       /* the kernel's routes, from start to stop; NULL: no rail needs them */
	struct wf_strangers *strangers; /* NULL: no rail is over sockets, or there is no way to look */
	uint64_t routes_ns;             /* the next time to ask for routes */
	uint64_t kept_ns;               /* when housekeeping last ran */
	uint64_t resumed_ns;            /* we stood still until then: what is late is not a peer's or a rail's fault */

	struct wf_words words;    /* that operations homed here wait for */
	struct wf_own_notes own;  /* to ourselves, not heard yet */
	struct wf_counts *counts; /* two: immediates that group 0 is to be told of (expect.c). NULL: we are group 0 */
	uint32_t counting;        /* which of them is being filled */
};

extern const struct wf_worker_ops wf_group_ops;

int wf_group_init(struct wf_group *group, struct weft_engine *engine, uint32_t index, uint32_t seats);
void wf_group_free(struct wf_group *group);

int wf_group_end_acked(struct wf_group *group, void *unused); /* ends what peers have acknowledged; on the worker */
void wf_group_send_frames(struct wf_group *group);            /* what peers homed here have to send; on the worker */

static inline uint64_t wf_group_now(const struct wf_group *group)
{
	return group->worker.now_ns;
}

#endif
