/*
 * A group: the rails near one GPU or NUMA node and the worker that owns them. Each rail sits in a seat. Everything in
 * here is touched by that worker alone, but the few fields marked otherwise.
 */
#ifndef WF_ENGINE_GROUP_H
#define WF_ENGINE_GROUP_H

#include "rail/rail.h"
#include "wire/blob.h"
#include "wire/frame.h"
#include "worker/worker.h"

#include <stdalign.h>
#include <stddef.h>

struct weft_engine;
struct wf_lane;
struct wf_part;
struct wf_path;
struct wf_transfer;

/*
 * One write or read on its way: the work request, and what it covers so that another rail can do it again. Memory that
 * the NIC cannot reach will be staged here: a piece then waits for its copy before it is posted and again after it has
 * landed, and the worker goes on with others meanwhile.
 */
struct wf_piece {
	/* One cache line up to wr.kind: with thousands in flight each costs a miss when posted and one when it lands. */
	alignas(64) union {
		struct wf_piece *next; /* not posted: free list, or its part's list of pieces to post again */
		uint64_t posted_ns;
	};
	struct wf_part *part;
	struct wf_seat *seat; /* NULL: not posted */
	struct wf_path *path;
	uint64_t unit; /* what it covers of the transfer, from here on */
	uint64_t bytes;
	uint32_t units, attempts;
	struct wf_wr wr;
};
_Static_assert(offsetof(struct wf_piece, wr) + offsetof(struct wf_wr, provider) == 64, "what we touch is one line");

/* An outgoing frame: its buffer is registered with the group's rails where they ask for that. */
struct wf_tx_frame {
	struct wf_wr wr;
	struct wf_tx_frame *next;
	struct wf_seat *seat; /* NULL: free */
	struct wf_lane *lane; /* NULL: it is stuck, and nobody waits for it */
	uint64_t posted_ns;
	enum wf_end end; /* where it is posted */
	uint8_t *buffer;
	uint32_t filled; /* bytes of it that may be other than zero, of those that a short frame is filled up with */
	bool faint;      /* a sign of life: that it has left is no news */
	bool stuck;      /* on the NIC for longer than a peer may be silent */
};

static inline struct wf_frame *wf_tx_header(const struct wf_tx_frame *frame)
{
	return (struct wf_frame *)frame->buffer;
}

struct wf_rx_frame {
	struct wf_wr wr;
	struct wf_seat *seat;
	uint32_t bytes;
	bool posted;
	uint8_t *buffer;
};

/* For a counter that one thread writes and others may read: no locked operation. */
static inline void wf_count(_Atomic uint64_t *counter, uint64_t amount)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
			      memory_order_relaxed);
}

/* The same; who sees the count sees what came before it. */
static inline void wf_count_after(_Atomic uint64_t *counter, uint64_t amount)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
			      memory_order_release);
}

/* Written by the worker, read by whoever asks: relaxed atomics. */
struct wf_seat_counters {
	_Atomic uint64_t writes, reads, sends, bytes, errors, retries, reopened;
};

/* How fast a rail moves what is posted on it, as housekeeping sees it. In bytes. */
struct wf_pace {
	uint64_t rate;                /* per second, lately: at least so much … */
	bool known;                   /* … and no more, because there was always something to move */
	uint64_t landed, in_flight;   /* when it last looked */
	uint64_t queue, queue_landed; /* the longest queue that is not gone yet, and what had landed then */
	uint64_t took_ns; /* for a piece from the post to its completion, lately, or for a hello to be answered */
};

/* Up at once, down slowly. */
static inline void wf_pace_took(struct wf_pace *pace, uint64_t took_ns)
{
	pace->took_ns = took_ns > pace->took_ns ? took_ns : pace->took_ns - (pace->took_ns - took_ns) / 8;
}

/* What is reset: the outgoing endpoint, to take pieces back, which no peer notices; or both. */
enum wf_doom { WF_DOOM_NOTHING, WF_DOOM_OUTGOING, WF_DOOM_RAIL };

struct wf_seat {
	struct wf_group *group;
	struct wf_rail *rail; /* NULL until the worker has opened it */
	struct wf_nic *nic;
	uint32_t index;               /* of the rail in the engine and in our address */
	uint32_t place;               /* in the group */
	uint32_t generation[WF_ENDS]; /* of each endpoint: addresses inserted in an older one are void */
	_Atomic int up;               /* both endpoints are open */
	bool listening;               /* the published one is */
	uint32_t ops;                 /* posted on the outgoing endpoint: pieces and hellos */
	uint32_t frames;              /* posted on the published one */
	uint64_t last_ok_ns;
	struct wf_pace pace;
	uint64_t nudged_ns; /* when a peer that is written to was last kept awake */
	uint64_t opened_ns;
	uint32_t reopen_tries;
	uint32_t granted;    /* immediates that peers may have unread in its completion queue, together */
	enum wf_doom doomed; /* to be reset at the end of this turn, or when what may still land has */
	uint64_t doomed_ns, drain_look_ns;
	const char *why;     /* NULL: the application need not know */
	bool doomed_to_stop; /* for the sake of stopped parts alone */
	struct wf_timer reopen;
	struct wf_rail_memory tx_memory, rx_memory;
	struct wf_rx_frame *rx;
	struct wf_rx_frame **rx_idle; /* receives to be posted: next turn, or when the provider has room */
	uint32_t rx_idle_count;
	bool rx_refused; /* the provider takes no more for now: not every turn asks */
	struct wf_rail_limits limits;
	struct wf_seat_counters count;
	struct wf_retired { /* addresses that no lane uses any more, still in the rail's vector (retire.c) */
		uint64_t since_ns;
		enum wf_end end;
		uint32_t generation; /* of that end */
		uint8_t bytes, address[WF_MAX_RAIL_ADDRESS];
	} * retired;
	uint32_t retired_count, retired_room;
};

#define WF_TRIALS 64

struct wf_group {
	struct weft_engine *engine;
	uint32_t index;
	struct wf_worker worker;
	uint32_t seats;
	struct wf_seat *seat;
	uint32_t turn; /* which seat goes first */
	bool leaving;  /* the engine closes */
	bool doomed;   /* a seat of ours is */

	uint32_t piece_count, pieces_used; /* those above have never been taken: nobody needs to look at them */
	struct wf_piece *piece, *piece_free;
	uint32_t tx_count;
	struct wf_tx_frame *tx, *tx_free;
	struct wf_tx_frame tx_spare; /* to build a frame in that another group gets a copy of: never posted here */
	uint8_t *tx_buffers, *rx_buffers;
	size_t tx_bytes, rx_bytes;
	uint32_t knocking;   /* peers homed here whose kernel is being asked */
	uint32_t on_nic;     /* pieces and frames posted */
	uint32_t frames_out; /* of those, frames */
	uint32_t stuck;      /* of those, frames that never leave: no reason to stay awake */
	struct
	    wf_rest { /* what failed on a rail: not taken for something new while the failure may be reported again */
		struct wf_piece *piece;
		struct wf_tx_frame *tx;
		uint32_t tx_count;
	} rest[2]; /* since housekeeping last looked, and since before that */

	struct wf_link lanes;           /* all */
	struct wf_link runnable;        /* those with pieces to give, in turn */
	struct wf_link pumping;         /* peers homed here with frames to send */
	struct wf_link acking;          /* peers homed here that are owed an acknowledgement at the end of this turn */
	struct wf_link settling;        /* peers homed here that have acknowledged messages since the last turn */
	struct wf_newcomers *newcomers; /* who says hello and is not known (newcomer.c) */
	struct wf_trial {               /* rails of strangers that were sent to and have not answered (trial.c) */
		struct wf_lane *lane;   /* NULL: none */
		uint32_t place, remote;
		uint64_t since_ns;
	} trial[WF_TRIALS];
	void *verifications; /* kept for the next (verify.c) */
	uint32_t verifications_kept;
	struct wf_link verifying; /* what peers homed here say they wrote, being checked: one of each (verify.c) */
	struct wf_link stopping;  /* parts told to stop with pieces still on a NIC */
	struct wf_timer housekeeping;
	uint32_t routes;                /* grows when the kernel's routes change (pairing.c) */
	uint32_t questions;             /* about them that were asked */
	bool judging;                   /* not all lanes were judged by the latest: the first of the list are next */
	struct wf_timer pairing;        /* goes on with that */
	struct wf_routes *kernel;       /* whom to ask, from start to stop; NULL: nobody needs to */
	struct wf_strangers *strangers; /* NULL: no rail is over sockets, or there is no way to look */
	uint64_t routes_ns;             /* not looked at before then */
	uint64_t kept_ns;               /* when it last ran */
	uint64_t resumed_ns; /* we ourselves stood still until then: nobody else is to blame for what is late */

	/* notes for other workers whose inbox was full: sent again next turn */
	struct wf_deferred {
		struct wf_group *to;
		struct wf_item note;
	} * deferred;
	uint32_t deferred_count, deferred_room;
};

/* Notes: word 0 says what, word 1 is the object, word 2 a value. */
enum wf_note {
	WF_NOTE_CONTROL,     /* a control request of the API: run it, tell the caller */
	WF_NOTE_BEGIN,       /* transfer → its home */
	WF_NOTE_STOP,        /* transfer → its home: cancelled */
	WF_NOTE_PART,        /* transfer → a group: take your part */
	WF_NOTE_PART_STOP,   /* transfer → a group; value: its id */
	WF_NOTE_PARTS_DONE,  /* transfer → its home */
	WF_NOTE_LANE_OPEN,   /* lane → its group */
	WF_NOTE_LANE_CLOSE,  /* lane → its group */
	WF_NOTE_LANE_CLOSED, /* peer → its home */
	WF_NOTE_LANE_BOOK,   /* lane → its group; value: the book */
	WF_NOTE_LANE_QUIET,  /* lane → its group: the peer is down; value: say hello at once */
	WF_NOTE_HEARD,       /* peer → its home; value: struct wf_heard, to be freed */
	WF_NOTE_SUSPECT,     /* peer → its home: the last path of a group to it has failed */
	WF_NOTE_PATHS,       /* peer → its home: a path came or went */
	WF_NOTE_FRAME,       /* frame received → the sender's home; returned with RX_BACK */
	WF_NOTE_RX_BACK,
	WF_NOTE_SEND,    /* lane → its group; value: a frame, to be freed */
	WF_NOTE_PEER,    /* peer → its home; value: enum wf_peer_change */
	WF_NOTE_CREDIT,  /* peer → its home: messages were read */
	WF_NOTE_COUNTED, /* → group 0: immediate in word 1, how many in word 2 */
};

extern const struct wf_worker_ops wf_group_ops;

int wf_group_init(struct wf_group *group, struct weft_engine *engine, uint32_t index, uint32_t seats);
void wf_group_free(struct wf_group *group);
void wf_group_discard_notes(struct wf_group *group); /* after its worker has stopped */

/* To another group's worker, or to oneself at once when already there. Only on a worker thread. */
void wf_group_tell(struct wf_group *from, struct wf_group *to, enum wf_note what, void *object, uint64_t value);
/* From an application's thread. False: the inbox is full. */
bool wf_group_post(struct wf_group *to, enum wf_note what, void *object, uint64_t value);
int wf_group_settle(struct wf_group *group, void *unused); /* ends what peers have acknowledged; on the worker */
int wf_group_read_completions(struct wf_group *group, struct wf_seat *seat); /* how much happened */
void wf_group_send_frames(struct wf_group *group); /* what peers homed here have to send; on the worker */
void wf_group_handle(struct wf_group *group, const struct wf_item *note);

/* Routes of rails over sockets (pairing.c). */
void wf_pairing_start(struct wf_group *group);
void wf_pairing_stop(struct wf_group *group);
void wf_pairing_look(struct wf_group *group, uint64_t now_ns); /* on the worker */

int wf_newcomers_open(struct wf_group *group); /* newcomer.c */
void wf_newcomers_close(struct wf_group *group);

void wf_housekeeping_start(struct wf_group *group); /* housekeeping.c; on the worker, for as long as it runs */

/* Seats (seat.c). */
int wf_seat_open(struct wf_seat *seat);
void wf_seat_close(struct wf_seat *seat);
void wf_seat_doom(struct wf_seat *seat, enum wf_doom what, const char *why); /* reset it at the end of the turn */
void wf_seat_refresh(
    struct wf_seat *seat); /* the same for the outgoing endpoint, when nothing is on it that anybody waits for */
void wf_seat_doom_to_stop(struct wf_seat *seat); /* unless what was told to stop leaves it by itself meanwhile */
void wf_seat_see_to_doomed(struct wf_seat *seat);
void wf_seat_post_receives(struct wf_seat *seat);
int wf_seat_receive_again(struct wf_seat *seat, struct wf_rx_frame *frame);
void wf_seat_retire(struct wf_seat *seat, enum wf_end end, const uint8_t *address,
		    uint8_t bytes); /* once for each insertion */
void wf_seat_remove_retired(struct wf_seat *seat);
static inline uint64_t wf_group_now(const struct wf_group *group)
{
	return group->worker.now_ns;
}

/* Frames out (frame path of seat.c). */
/* NULL: all are out. */
static inline struct wf_tx_frame *wf_group_take_tx(struct wf_group *group)
{
	struct wf_tx_frame *frame = group->tx_free;

	if (frame)
		group->tx_free = frame->next;
	return frame;
}

static inline void wf_group_give_tx(struct wf_group *group, struct wf_tx_frame *frame)
{
	frame->seat = NULL;
	frame->next = group->tx_free;
	group->tx_free = frame;
}

/* One that may never have come to be posted: nobody has seen how much was written to it. */
static inline void wf_group_give_unsent_tx(struct wf_group *group, struct wf_tx_frame *frame)
{
	frame->filled = WF_FRAME_BYTES;
	wf_group_give_tx(group, frame);
}

/* A sealed one. 0: it is the NIC's, or was copied and is free again; else it stays the caller's. */
int wf_seat_send(struct wf_seat *seat, enum wf_end end, struct wf_lane *lane, uint64_t target,
		 struct wf_tx_frame *frame);

void wf_seat_disown_frame(struct wf_tx_frame *frame);            /* its lane need not wait for it */
void wf_seat_frame_left(struct wf_tx_frame *frame, bool failed); /* the NIC: it is free again */

/* A batch ended in a refusal and what was posted has not been rung for. False: there is nothing to ring with; then completions
 * must not be read, for some providers hang. */
bool wf_seat_ring(struct wf_seat *seat);
void wf_seat_doom_unrung(struct wf_seat *seat); /* the last resort */

/* What the provider reported as failed it may report again: it is free when housekeeping has looked twice (part.c). */
void wf_group_rest_piece(struct wf_group *group, struct wf_piece *piece);
void wf_group_rest_tx(struct wf_group *group, struct wf_tx_frame *frame);
void wf_group_end_rests(struct wf_group *group); /* at each look */

struct wf_piece *wf_group_fresh_piece(struct wf_group *group); /* one never used before; NULL: all are out */

static inline struct wf_piece *wf_group_take_piece(struct wf_group *group)
{
	struct wf_piece *piece = group->piece_free;

	if (!piece)
		return wf_group_fresh_piece(group);
	group->piece_free = piece->next;
	return piece;
}

static inline void wf_group_give_piece(struct wf_group *group, struct wf_piece *piece)
{
	piece->seat = NULL;
	piece->next = group->piece_free;
	group->piece_free = piece;
}
#endif
