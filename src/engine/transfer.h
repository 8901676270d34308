/*
 * A transfer: one accepted operation, from a pool sized at open. It is a cursor over units (pages, or cuts of a
 * contiguous range), never a list of expanded operations. Its home (the peer's home worker) begins it, watches its
 * deadline and ends it once; each group that carries data has a part.
 */
#ifndef WF_ENGINE_TRANSFER_H
#define WF_ENGINE_TRANSFER_H

#include "engine/channel.h"
#include "engine/queue.h"
#include "engine/region.h"
#include "worker/timer.h"

#include <stdalign.h>

struct weft_engine;
struct wf_group;
struct wf_lane;
struct wf_peer;
struct wf_piece;
struct wf_seat;

enum wf_transfer_kind {
	WF_WRITE = 1,
	WF_READ,
	WF_SEND,
	WF_CALL,
	WF_REPLY,
	WF_BARRIER,
	WF_EXPECT,
	WF_PARENT, /* of a scatter or barrier: ends when its children have */
	WF_INTERNAL,
};

/* A contiguous range, cut into units of unit_bytes. */
struct wf_slice {
	struct wf_region *region; /* referenced */
	struct wf_remote *remote; /* referenced */
	uint64_t local, remote_offset, bytes;
	uint64_t first_unit;
};

/* Units that a group claimed and gave back. */
struct wf_spare {
	struct wf_spare *next;
	uint64_t unit, units;
};

/* One group's share. Owned by the group's worker from PART until done. */
struct wf_part {
	/* The first line is what each piece touches; on lines of their own, so that groups do not take them from each other. */
	alignas(64) struct wf_transfer *transfer;
	struct wf_lane *lane;
	uint64_t next, end;     /* units claimed and not yet posted */
	struct wf_piece *again; /* pieces that failed, to be posted first */
	uint64_t bytes;         /* landed */
	uint32_t in_flight;
	uint32_t quantum; /* bytes it may still give before the next part's turn */
	bool counted;     /* its pieces carry immediates */
	bool checked;     /* their hashes are summed */
	bool alive;
	bool gave_up; /* handed over: claims nothing any more */
	bool unquiet; /* a posted piece was taken back on a provider that cannot promise it will not land */

	weft_transfer id;       /* which life of the slot: a stop meant for the last one is not for this */
	uint64_t sum;           /* of the hashes of what landed, when checked */
	uint32_t slice;         /* where the cursor is */
	struct wf_link link;    /* lane->parts, or group->stopping */
	uint64_t stop_ns;       /* told to stop at; 0: not */
	struct wf_spare *spare; /* given back by others, ours to do */
};

struct wf_transfer {
	struct wf_item_event item;
	struct wf_payload *error_payload;
	const struct weft_error *error;
	struct weft_engine *engine;
	struct wf_pool *pool; /* where it comes from: the engine's transfers, answers or internals */
	uint32_t number;      /* the slot's, from 1 on; answers come after the transfers */
	/* generation << 32 | why it stops (0: it does not). One word, so that a late cancel cannot hit a successor. */
	_Atomic uint64_t state;
	weft_transfer id;
	_Atomic(struct wf_group *) home; /* where a cancel goes; NULL: to the children. Groups outlive every transfer */
	enum wf_transfer_kind kind;
	weft_queue *queue; /* NULL: nobody wants to know */
	uint64_t tag, deadline_ns;
	struct wf_peer *peer;   /* referenced until the end */
	weft_peer peer_handle;  /* for the event */
	_Atomic uint32_t holds; /* the end and the channel: back to the pool when both let go */

	/* what the groups take from each other while they move it */
	alignas(64) _Atomic uint64_t next_unit; /* groups claim from here */
	_Atomic(struct wf_spare *) spares;
	_Atomic uint64_t groups; /* bit g: group g has a part */
	_Atomic uint32_t parts_left;
	_Atomic int unquiet; /* a part's memory may still be touched */
	_Atomic uint64_t bytes;
	_Atomic uint64_t sum; /* of the parts' */

	/* data: set before it is begun and only read while it moves, so each worker keeps its copy of these lines */
	alignas(64) uint64_t units;
	uint64_t claim;
	uint64_t unit_bytes; /* a cut of a range or of a large page; for small pages how much to coalesce */
	bool paged;
	bool plain; /* every page is a piece of its own, of memory that is registered as one */
	bool tiled; /* some of its memory, of either end, has tiles: a piece is no longer than reach */
	uint32_t slices;
	uint64_t reach;
	struct wf_slice *slice; /* &one, or in copy */
	struct wf_slice one;
	uint64_t page_bytes, cuts; /* units a page */
	uint64_t most_adjacent;    /* pages that may go as one range; 1: do not look */
	uint32_t ranges;           /* that may share an operation */
	uint64_t local_stride, remote_stride;
	const uint32_t *local_index, *remote_index; /* in copy; NULL: 0, 1, 2, … */
	enum weft_notify_kind notify;
	uint32_t immediate;
	bool checked;   /* end-to-end (verify.c) */
	void *manifest; /* CHECKED: the notification's message; kept like copy */
	size_t manifest_room;

	/* the rest */
	alignas(64) struct wf_message message;
	uint64_t call_mark; /* REPLY: of the connection that the call came in */
	_Atomic uint32_t
	    *answers;   /* REPLY, INTERNAL: the peer's, which counts it until the slot is free; NULL: not counted */
	bool strangers; /* the peer was never added, and the engine counts it as well */
	uint8_t payload[WEFT_NOTIFY_MAX];
	struct wf_transfer *parent;
	_Atomic uint32_t children_left;
	uint32_t children;
	weft_transfer *child;           /* in copy */
	bool sent, answered;            /* BARRIER: our message is there; theirs is here */
	bool begun, moving, parts_told; /* the home's: moving from the first part's start to PARTS_DONE */
	uint64_t expected;              /* EXPECT */
	int status;
	struct wf_timer timer;
	struct wf_link link; /* peer->operations, or group 0's expectations */

	void *copy; /* what the request brought: indices, slices, message; kept for the next user of this slot */
	size_t copy_room;
	struct wf_part part[]; /* by group */
};

#define WF_STOP_DONE 0xffffu /* state: ended, well or not: nothing stops it any more */

/* submit.c and family.c, on the caller's thread */
int wf_submit_write(struct weft_engine *engine, const struct weft_write *write, const struct weft_op *op,
		    weft_transfer *ret);
int wf_submit_read(struct weft_engine *engine, const struct weft_read *read, const struct weft_op *op,
		   weft_transfer *ret);
int wf_submit_pages(struct weft_engine *engine, const struct weft_pages *pages, const struct weft_op *op,
		    weft_transfer *ret);
int wf_submit_scatter(struct weft_engine *engine, const struct weft_write *parts, uint32_t count,
		      const struct weft_op *op, weft_transfer *ret);

struct wf_outgoing {
	weft_peer peer;
	enum wf_transfer_kind kind;
	uint8_t type;
	int status;
	uint64_t tag, call, bytes;
	const void *data;
};
int wf_submit_message(struct weft_engine *engine, const struct wf_outgoing *outgoing, const struct weft_op *op,
		      weft_transfer *ret);
int wf_submit_barrier(struct weft_engine *engine, const weft_peer *peers, uint32_t count, uint64_t id,
		      const struct weft_op *op, weft_transfer *ret);
int wf_submit_expect(struct weft_engine *engine, uint32_t immediate, uint64_t count, const struct weft_op *op,
		     weft_transfer *ret);
int wf_submit_cancel(struct weft_engine *engine, weft_transfer id);
int wf_cancel_children(struct weft_engine *engine, struct wf_transfer *parent, weft_transfer id);

/* transfer.c */
/* Of one that no event ends, engine->owed counts how many are on their way. */
static inline bool wf_transfer_is_owed(const struct wf_transfer *transfer)
{
	return transfer->kind == WF_REPLY || transfer->kind == WF_INTERNAL;
}
/* A slot with its number and an empty message; then the rest. take() does both, and settles when no slot is left. */
struct wf_transfer *wf_transfer_reserve(struct wf_pool *pool); /* NULL: all out */
void wf_transfer_prepare(struct wf_transfer *transfer, const struct weft_op *op);
struct wf_transfer *wf_transfer_take(struct weft_engine *engine, const struct weft_op *op); /* NULL: all out */
struct wf_transfer *wf_transfer_take_of(struct weft_engine *engine, struct wf_pool *pool, const struct weft_op *op);
/* slots.c */
/* Every slot there is, of all pools: 0 to wf_transfer_slots() - 1. */
uint32_t wf_transfer_slots(const struct weft_engine *engine);
struct wf_transfer *wf_transfer_at(const struct weft_engine *engine, uint32_t index);
int wf_transfers_open(struct weft_engine *engine);
uint32_t wf_answers_share(const struct weft_engine *engine); /* replies that one peer may hold in any case */
/* A reply or an internal message takes a slot for this peer: 0, or -EAGAIN when the peer has its share. Any thread. */
int wf_answer_count(struct wf_transfer *transfer, struct wf_peer *peer);
void wf_answer_uncount(struct wf_transfer *transfer); /* before the slot is free, and while the peer is there */
void wf_transfers_close(struct weft_engine *engine);
void *wf_transfer_copy_room(struct wf_transfer *transfer, size_t bytes); /* NULL: no memory */
void *wf_transfer_manifest_room(struct wf_transfer *transfer, size_t bytes);
void wf_transfer_abandon(struct wf_transfer *transfer);       /* never begun */
void wf_transfer_drop(struct wf_transfer *transfer);          /* one hold less */
bool wf_transfer_stop(struct wf_transfer *transfer, int why); /* true: we are the one who stopped it */
int wf_transfer_why(struct wf_transfer *transfer);            /* 0, or the negative errno it stops for */
struct wf_transfer *wf_transfer_find(struct weft_engine *engine, weft_transfer id);
/* on its home */
void wf_transfer_begin(struct wf_transfer *transfer);
void wf_transfer_stopped(struct wf_transfer *transfer); /* state says why: see to it */
void wf_transfer_parts_done(struct wf_transfer *transfer);
/* The operation that an answer of this peer's is about; NULL: it has ended, or is none of that kind to this peer. */
struct wf_transfer *wf_transfer_asked(const struct wf_inbound *inbound, enum wf_transfer_kind kind);
void wf_transfer_judged(struct wf_transfer *transfer, int status); /* the receiver's word on a checked one */
void wf_transfer_end(struct wf_transfer *transfer, int status);
void wf_transfer_child_put(struct wf_transfer *parent); /* one child less; the last ends the parent. Any thread */
void wf_transfer_set_error(struct wf_transfer *transfer, const struct weft_error *error);
/* the channel's word on its message */
void wf_transfer_message_over(struct wf_message *message, int why);
void wf_reply_arrived(struct wf_inbound *inbound);
void wf_barrier_arrived(struct wf_inbound *inbound);

void wf_spares_free(struct wf_spare *spare);
#endif
