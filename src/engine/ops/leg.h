/*
 * One leg of an operation on a peer's card (legs.h): what it covers, its transfer to or from the room, and what its owner is asked for.
 * For legs.c alone. On the peer's home.
 */
#ifndef WF_ENGINE_LEG_H
#define WF_ENGINE_LEG_H

#include "engine/core/rooms.h"
#include "engine/ops/transfer.h"
#include "wire/frame.h"
#include "wire/land.h"

#define WF_LEGS WF_ROOM_CHUNKS /* each has its chunk */

enum wf_leg_state {
	WF_LEG_FREE,
	WF_LEG_FILLING, /* a read's: the owner fills the chunk … */
	WF_LEG_FILLED,  /* … and has */
	WF_LEG_MOVING,  /* its transfer is under way, or has ended and that was not looked at yet */
	WF_LEG_LANDING, /* a write's: the owner copies it on */
};

struct wf_leg {
	struct wf_legs *legs;
	enum wf_leg_state state;
	struct wf_transfer *transfer; /* NULL: nobody waits for it any more */
	struct wf_transfer *child;    /* MOVING; NULL: it has ended */
	int status;                   /* the child's */
	bool quiet;                   /* and whether nothing of it may still arrive */
	bool lost;                    /* the connection that it began in is over */
	bool told;                    /* the channel has the message */
	uint64_t number;              /* by which the owner answers */
	const struct wf_slice *slice; /* of the transfer, while there is one … */
	bool lands;                   /* … and whether that is reached through the room */
	uint64_t unit, count, bytes;
	struct wf_message message;
	uint8_t content[WF_FRAME_PAYLOAD];
};

struct wf_legs {
	struct wf_peer *peer;
	struct wf_link transfers; /* that are not over, those with something to begin in turn */
	struct wf_remote *room;   /* NULL: none */
	bool asked, spoiled;
	uint64_t question, numbers;
	weft_transfer asker;
	bool told; /* the channel has the question */
	struct wf_message ask;
	uint8_t ask_content[WF_LAND_HEADER];
	struct wf_timer timer;
	struct wf_note note;
	struct wf_leg leg[WF_LEGS];
};

/* Whether it has units that no leg covers yet. */
static inline bool wf_leg_any_left(const struct wf_transfer *transfer)
{
	return atomic_load_explicit(&transfer->next_unit, memory_order_relaxed) < transfer->units;
}

/* The next units of the transfer, of this slice, are the leg's. */
void wf_leg_claim(struct wf_leg *leg, struct wf_transfer *transfer, const struct wf_slice *slice);
/* Asks the owner's card to copy. */
void wf_leg_ask(struct wf_leg *leg, enum wf_leg_state state);
/* Begins its transfer. False: there is no slot for it now. */
bool wf_leg_move(struct wf_leg *leg);
#endif
