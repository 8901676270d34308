/*
 * A lane: one group's way to a peer. It owns the paths, one per rail of the group, the addresses inserted for them, and the list
 * of the peer's parts that have pieces to give. Owned by the group's worker; the home reads what is atomic.
 */
#ifndef WF_ENGINE_LANE_H
#define WF_ENGINE_LANE_H

#include "engine/core/note.h"
#include "engine/move/group.h"
#include "engine/peer/book.h"
#include "engine/peer/carried.h"
#include "engine/peer/greeting.h"
#include "worker/timer.h"

struct wf_frame_copy;
struct wf_group;
struct wf_peer;
struct wf_seat;

enum wf_path_state {
	WF_PATH_CLOSED,
	WF_PATH_OPENING, /* hello sent or to be sent */
	WF_PATH_UP,      /* a hello over the outgoing endpoint was answered: it carries pieces */
};

struct wf_path {
	uint64_t target;                        /* in the outgoing endpoint's address vector, while up */
	uint64_t talk;                          /* in that of the endpoint that frames go by, while it talks */
	_Atomic uint64_t moved_ns;              /* when a piece last landed: the peer lives. Any worker reads it */
	uint64_t bytes;                         /* in flight */
	uint64_t window_bytes;                  /* limit of that */
	uint64_t landed_bytes, landed_since_ns; /* what the window follows where the link's speed is not known */
	uint32_t ops;                           /* in flight */
	uint8_t state, remote;                  /* the peer's rail at the other end */
	uint16_t unproved;       /* pieces that must land before the provider is known to hold none back */
	uint8_t tries;           /* hellos that were not answered: each waits longer */
	uint8_t asked, refusals; /* of them to that rail; hellos that the provider did not take yet */
	bool talks;              /* frames can be sent over it: the peer's rail was heard from */
	bool refused;            /* no rail of the peer can be paired with it, and the log says so */
	uint8_t hellos_out;      /* on the NIC */
	uint8_t talk_remote;     /* the peer's rail that talk is the address of */
	enum wf_end talk_end;    /* the published endpoint, or the outgoing one where that is deaf */
	uint64_t welcomes;  /* bit j: the peer's rail j said hello and waits for an answer over this rail of ours */
	uint64_t hello_ns;  /* say hello (again) at */
	uint64_t asked_ns;  /* when the last hello or question was sent; 0: it was answered, or there was none */
	uint64_t sought_ns; /* since when that rail of the peer is asked */
	uint64_t stuck_ns;  /* since when every post was refused with EAGAIN; 0: not */
	uint32_t question;  /* that hellos ask now: an answer to an older one says nothing about what happened since */
	/* Immediates the peer may not have read yet: posted, of them completed, of them asked about (grants.c). */
	uint32_t immediates, immediates_done, immediates_asked, immediates_limit;
	uint64_t ask_ns; /* ask (again) at */
	uint32_t
	    grant_question; /* the number of the question: an answer to an older one says nothing about what happened since */
	uint8_t ask_tries;
	uint64_t grants_due; /* bit j: the peer's rail j has asked and waits for an answer over this rail of ours */
	/* what the peer may have unread in this seat's completion queue, all its paths there together */
	uint32_t granted;
	uint32_t routes;             /* group->routes when it was last judged (pairing.c) */
	uint32_t link;               /* the changes of its rail's device that it has followed */
	struct wf_carried *carrying; /* for the rail that it goes to now */
	struct wf_carried carried;   /* for the first such rail; others are in its list */
};

struct wf_lane {
	struct wf_group *group;
	struct wf_peer *peer;
	struct wf_link link;     /* group->lanes */
	struct wf_link runnable; /* group->runnable */
	struct wf_link parts;    /* struct wf_part with something to give */
	struct wf_book *book;
	struct wf_target *targets; /* seats × the book's rails, in the book */
	struct wf_timer timer;     /* hellos */
	uint64_t quantum;          /* bytes it may still give before the next lane's turn */
	uint32_t in_flight;        /* frames posted; pieces are counted by their parts */
	uint32_t alive;            /* parts not yet done */
	bool opened, closing, closed;
	struct wf_note open_note, close_note, book_note, down_note;       /* to the group */
	struct wf_note closed_note, paths_note, suspect_note, ended_note; /* to the peer's home */
	uint64_t proof;          /* the peer's secret by its latest challenge; 0: there was none */
	struct wf_heard told;    /* the home, by this group */
	struct wf_heard hello;   /* the peer's latest that was proved, while it waits for an answer */
	struct wf_heard doubted; /* the latest that was not, while a challenge is to be sent; epoch 0: none */
	uint32_t doubted_place, doubted_remote; /* from there to there */
	uint64_t their_handle;                  /* for us, by the latest greeting … */
	uint32_t their_epoch;                   /* … and of which connection */
	uint64_t grant_ns, grant_until_ns;      /* try again to answer at, and no longer than */
	uint64_t welcome_ns, welcome_until_ns;  /* try again at, and no longer than */
	uint32_t talk;                          /* where the next frame that the home cannot send goes */
	uint32_t routes;                        /* group->routes when all its paths were judged (pairing.c) */
	_Atomic bool local;                     /* the path over the local rail carries pieces, and no other does */
	_Atomic uint32_t paths_up;              /* carry pieces */
	_Atomic uint32_t paths_talking;         /* carry frames */
	struct wf_path path[];                  /* by seat */
};

int wf_lane_init(struct wf_peer *peer, struct wf_group *group, struct wf_lane **ret_lane);
void wf_lane_free(struct wf_lane *lane);
void wf_lane_close(struct wf_lane *lane);
void wf_lane_maybe_closed(struct wf_lane *lane);     /* after something of it ended */
void wf_lane_take_book(struct wf_lane *lane);        /* the peer's latest */
void wf_lane_down(struct wf_lane *lane, bool hello); /* the peer is: close the paths; say hello at once, or seldom */
void wf_lane_path_failed(struct wf_lane *lane, struct wf_path *path, const char *text); /* a piece was not delivered */
void wf_lane_talk_failed(struct wf_lane *lane, struct wf_path *path, const char *text); /* a frame was not */
void wf_lane_target_ended(struct wf_lane *lane, struct wf_seat *seat,
			  uint64_t target); /* its process has; of any lane */
void wf_lane_seat_reset(struct wf_lane *lane, struct wf_seat *seat, enum wf_reset what);
void wf_lane_runnable(struct wf_lane *lane);
void wf_lane_send_copy(struct wf_frame_copy *copy); /* frees it */
int wf_lane_any_path(struct wf_lane *lane,
		     uint32_t first); /* the place of a path that talks, from first on; -1: none does */
/* The address of the peer's rail in an endpoint of ours, inserted when it is not yet. -EAGAIN: the endpoint is closed. -EBUSY: a
 * stranger's, and others have yet to answer. */
int wf_lane_target(struct wf_lane *lane, struct wf_seat *seat, enum wf_end end, uint32_t remote, uint64_t *ret_target);
void wf_lane_forget_target(struct wf_lane *lane, struct wf_seat *seat,
			   uint32_t remote); /* in both endpoints; in use by no path */
void wf_lane_path_up(struct wf_lane *lane, struct wf_path *path, uint32_t remote, uint64_t target);
/* A message to that rail failed on this endpoint, where messages are numbered: none after it is delivered. */
bool wf_lane_is_deaf(const struct wf_lane *lane, const struct wf_seat *seat, enum wf_end end, uint32_t remote);
/* The address of that rail is in the endpoint that wf_lane_talk_end() names. */
void wf_lane_talk_up(struct wf_lane *lane, struct wf_path *path, uint32_t remote);
/* The endpoint of ours that frames to that rail of the peer go by. */
enum wf_end wf_lane_talk_end(const struct wf_lane *lane, const struct wf_seat *seat, uint32_t remote);
/* From then on that rail of the peer is asked as if for the first time. */
static inline void wf_path_ask_anew(struct wf_path *path, uint64_t hello_ns)
{
	path->hello_ns = path->sought_ns = hello_ns;
	path->tries = path->asked = path->refusals = 0;
}

/* A peer of this host is reached over the local rail alone, except with what that may not copy. */
static inline bool wf_lane_passes_over(const struct wf_lane *lane, const struct wf_seat *seat, bool not_local)
{
	return seat->limits.local ? not_local : !not_local && atomic_load_explicit(&lane->local, memory_order_relaxed);
}

static inline struct wf_target *wf_target_of(const struct wf_lane *lane, uint32_t place, uint32_t remote)
{
	return &lane->targets[place * lane->book->count + remote];
}
#endif
