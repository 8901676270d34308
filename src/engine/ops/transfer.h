/*
 * A transfer: one accepted operation, from a pool sized at open. It is a cursor over units (pages, or cuts of a
 * contiguous range), never a list of expanded operations. Its home (the peer's home worker) begins it, watches its
 * deadline and ends it once; each group that carries data has a part.
 */
#ifndef WF_ENGINE_TRANSFER_H
#define WF_ENGINE_TRANSFER_H

#include "base/pages.h"
#include "engine/core/note.h"
#include "engine/core/queue.h"
#include "engine/core/region.h"
#include "engine/move/part.h"
#include "engine/ops/slots.h"
#include "engine/ops/words.h"
#include "engine/peer/channel_in.h"
#include "engine/peer/channel_out.h"
#include "worker/timer.h"

#include <stdalign.h>

struct weft_engine;
struct wf_group;
struct wf_lane;
struct wf_leg;
struct wf_peer;
struct wf_returned;

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

#define WF_LISTED_BYTES (64u << 10) /* most in one piece of a local rail that is a list of pages … */
#define WF_LISTED_CARD                                                                                                 \
	(32u << 20) /* … and where cards copy between each other: a launch costs what a small page costs */

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
	weft_peer peer_handle;  /* for the event; EXPECT: whom it is about, or 0 */
	void *peer_user;        /* for the event */
	_Atomic uint32_t holds; /* the end and the channel: back to the pool when both let go */

	/* what the groups take from each other while they move it */
	alignas(64) _Atomic uint64_t next_unit; /* groups claim from here */
	_Atomic(struct wf_returned *) returned; /* units that groups gave up (returned.h) */
	_Atomic uint64_t groups;                /* bit g: group g has a part */
	_Atomic uint32_t parts_left;
	_Atomic int may_still_land; /* a part's memory may still be touched */
	_Atomic uint64_t bytes;
	_Atomic uint64_t sum; /* of the parts' */

	/* data: set before it is begun and only read while it moves, so each worker keeps its copy of these lines */
	alignas(64) uint64_t units;
	uint64_t claim;
	uint64_t unit_bytes; /* a cut of a range or of a large page; for small pages how much to coalesce */
	bool paged;
	bool plain;      /* every page is a piece of its own, of memory that is registered as one */
	bool listed;     /* a local rail may take its pages as a list: many are one piece */
	bool cards;      /* an end is a card's memory: its runs are opened one by one (listed.c) */
	bool cards_both; /* both are */
	bool lands;      /* the peer's is reached through a room: it moves in legs (legs.h) */
	bool tiled;      /* a piece is no longer than reach: some of its memory has tiles, or is a card's */
	uint32_t slices;
	uint64_t reach;
	struct wf_slice *slice; /* &one, or in copy */
	struct wf_slice one;
	uint64_t page_bytes, cuts; /* units a page */
	uint64_t most_adjacent;    /* pages that may go as one range; 1: do not look */
	uint32_t ranges;           /* that may share an operation */
	uint64_t local_stride, remote_stride;
	const uint32_t *local_index, *remote_index; /* in copy; NULL: 0, 1, 2, … */
	uint64_t listed_bytes;                      /* LISTED: most in one piece */
	struct wf_page_list list;                   /* LISTED: the same once more, for the rail */
	enum weft_notify notify;
	uint32_t immediate;
	uint32_t peer_life; /* EXPECT: of the peer, when it was submitted */
	bool checked;       /* end-to-end (verify.c) */
	bool judged;        /* its notification is a manifest, and the receiver's verdict ends it */
	void *manifest;     /* JUDGED: the notification's message; kept like copy */
	size_t manifest_room;

	/* the rest */
	alignas(64) struct wf_message message;
	_Atomic uint64_t
	    kept;           /* its id while its end is kept for weft_transfer_wait() and not taken; else 0 (wait.c) */
	_Atomic int there;  /* that end has come */
	uint64_t call_mark; /* REPLY: of the connection that the call came in */
	_Atomic uint32_t
	    *answers;   /* REPLY, INTERNAL: the peer's, which counts it until the slot is free; NULL: not counted */
	bool strangers; /* the peer was never added, and the engine counts it as well */
	uint8_t payload[WEFT_NOTIFY_MAX];
	struct wf_inbound *reply; /* CALL: what its end delivers; NULL: an error, or not yet */
	struct wf_transfer *parent;
	_Atomic uint32_t children_left;
	uint32_t children;
	weft_transfer *child; /* in copy */
	bool sent, answered;  /* BARRIER: our message is there; theirs is here. CALL: the reply was delivered */
	bool begun, moving, parts_told; /* the home's: moving from the first part's start to PARTS_DONE */
	uint64_t expected;              /* EXPECT */
	int status;
	struct wf_op_words words;       /* words.c */
	struct wf_note parts_done_note; /* to its home: the last part is done */
	struct wf_note failed_note;     /* to its home: a part has failed */
	struct wf_timer timer;
	struct wf_leg *leg;       /* the one that it is a part of; NULL: none */
	uint32_t legs;            /* LANDS: of its that are not over … */
	struct wf_link legs_link; /* … and its place among those of the peer */
	struct wf_link link;      /* peer->operations, or group 0's expectations */

	void *copy; /* what the request brought: indices, slices, message; kept for the next user of this slot */
	size_t copy_room;
	struct wf_part part[]; /* by group */
};

#define WF_STOP_DONE 0xffffu /* state: ended, well or not: nothing stops it any more */

/* Replies and internal messages have no end event; engine->owed counts them. */
static inline bool wf_transfer_is_owed(const struct wf_transfer *transfer)
{
	return transfer->kind == WF_REPLY || transfer->kind == WF_INTERNAL;
}
/* A slot with its number and an empty message; then the rest. take() does both; when no slot is left it first ends what was
 * acknowledged. */
struct wf_transfer *wf_transfer_reserve(struct wf_pool *pool); /* NULL: all out */
void wf_transfer_prepare(struct wf_transfer *transfer, const struct weft_op *op);
struct wf_transfer *wf_transfer_take(struct weft_engine *engine, const struct weft_op *op); /* NULL: all out */
struct wf_transfer *wf_transfer_take_of(struct weft_engine *engine, struct wf_pool *pool, const struct weft_op *op);
void wf_transfer_abandon(struct wf_transfer *transfer);          /* never begun */
void wf_transfer_drop(struct wf_transfer *transfer);             /* one hold less */
bool wf_transfer_stop(struct wf_transfer *transfer, int status); /* true: we are the one who stopped it */
int wf_transfer_stop_status(struct wf_transfer *transfer);       /* 0, or the negative errno it stops for */
/* on its home */
void wf_transfer_begin(struct wf_transfer *transfer);
void wf_transfer_start(struct wf_transfer *transfer);   /* its word was reached */
void wf_transfer_stopped(struct wf_transfer *transfer); /* state says why: see to it */
void wf_transfer_failed(struct wf_transfer *transfer);  /* a part has: stop the others */
void wf_transfer_parts_done(struct wf_transfer *transfer);
/* The operation that an answer of this peer's is about; NULL: it has ended, or is none of that kind to this peer. */
struct wf_transfer *wf_transfer_asked(const struct wf_inbound *inbound, enum wf_transfer_kind kind);
void wf_transfer_end(struct wf_transfer *transfer, int status); /* a parent: on any thread */
void wf_transfer_child_put(struct wf_transfer *parent); /* one child less; the last ends the parent. Any thread */
/* the channel's word on its message */
void wf_transfer_message_over(struct wf_message *message, int status);
void wf_reply_arrived(struct wf_inbound *inbound);
#endif
