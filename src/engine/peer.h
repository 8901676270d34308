/*
 * A peer: another engine. Its home worker owns its channel, its operations and its heartbeat. Each group has a lane to
 * it, owned by the group's worker: the paths (rail pairs) and the parts of transfers waiting there.
 */
#ifndef WF_ENGINE_PEER_H
#define WF_ENGINE_PEER_H

#include "engine/channel.h"
#include "engine/group.h"
#include "wire/blob.h"

struct weft_engine;

/* Whose word a book is. What the application has handed over is the peer's, and so is what a greeting says that was proved by
 * a secret sent there. A stranger has shown of one rail that it lives there, and says the rest. */
enum wf_word {
	WF_WORD_APPLICATION,
	WF_WORD_PROVED, /* a stranger's, as it came: one of these rails is its own */
	WF_WORD_MOVED,  /* a stranger's, since then: none may be */
};

/* A peer's rail addresses at one revision, and the secret that goes there and nowhere else: immutable, shared by the lanes. */
struct wf_book {
	_Atomic uint32_t references;
	uint32_t revision, count;
	uint64_t number; /* counts the peer's books: a lane never goes back to an older one */
	uint64_t secret; /* ours for whoever lives there. A lane greets and is greeted by that of its own book */
	enum wf_word word;
	struct wf_target *targets; /* our rails × its rails, by group: each lane has its own part and writes it */
	struct {
		uint32_t format, serial;
		uint8_t bytes;
		bool reachable; /* same provider as ours */
		bool looks;     /* must be told to look while it is written to */
		uint8_t address[WF_MAX_RAIL_ADDRESS];
	} rail[];
};

enum wf_path_state {
	WF_PATH_CLOSED,
	WF_PATH_OPENING, /* hello sent or to be sent */
	WF_PATH_UP,      /* a hello over the outgoing endpoint was answered: it carries pieces */
};

struct wf_path {
	uint64_t target;                        /* in the outgoing endpoint's address vector, while up */
	uint64_t talk;                          /* in the published endpoint's, while it talks */
	_Atomic uint64_t moved_ns;              /* when a piece last landed: the peer lives. Any worker reads it */
	uint64_t bytes;                         /* in flight */
	uint64_t window_bytes;                  /* at most so many */
	uint64_t landed_bytes, landed_since_ns; /* what the window follows where the link's speed is not known */
	uint32_t ops;                           /* in flight */
	uint8_t state, remote;                  /* the peer's rail at the other end */
	uint8_t tries;                          /* hellos to that rail that were not answered */
	bool talks;                             /* frames can be sent over it: the peer's rail was heard from */
	bool refused;                           /* no rail of the peer can be paired with it, and the log says so */
	uint8_t hellos_out;                     /* on the NIC */
	uint8_t talk_remote;                    /* the peer's rail that talk is the address of */
	uint64_t welcomes;  /* bit j: the peer's rail j said hello and waits for an answer over this rail of ours */
	uint64_t hello_ns;  /* say hello (again) at */
	uint64_t asked_ns;  /* when the last hello was sent; 0: it was answered, or there was none */
	uint64_t sought_ns; /* since when that rail of the peer is asked */
	uint64_t stuck_ns;  /* since when every post was refused with EAGAIN; 0: not */
	uint32_t question;  /* that hellos ask now: an answer to an older one says nothing about what happened since */
	/* Immediates the peer may not have read yet: posted, of them completed, of them asked about by a hello. */
	uint32_t immediates, immediates_done, immediates_asked, immediates_limit;
	uint32_t
	    granted; /* what the peer may have unread in this seat's completion queue, all its paths there together */
	uint32_t routes; /* group->routes when it was last judged (pairing.c) */
	uint32_t link;   /* the changes of its rail's device that it has followed */
};

/* The peer's rail j in the address vectors of seat i, by endpoint. */
struct wf_target {
	uint64_t target[WF_ENDS];
	uint32_t generation[WF_ENDS]; /* of the seat's endpoint it was inserted in; 0: it was not */
	uint32_t routes;              /* group->routes when the route was asked for; 0: it was not */
	uint32_t device;              /* that route leaves by; 0: none */
	uint8_t route;                /* enum wf_route */
	uint64_t since_ns;            /* when a stranger's was inserted (trial.c) */
	bool asked, answered;         /* by a hello */
	uint32_t question;            /* of its hello that waits for an answer */
};

/* What a lane learned from a hello or its answer, for the home. */
struct wf_heard {
	uint64_t handle; /* the peer's handle for us */
	uint64_t incarnation, credit, max_message;
	uint64_t secret; /* the peer's for us */
	uint64_t ours;   /* for the peer: that the greeting was proved by */
	uint32_t epoch, to_epoch;
	uint8_t kind;
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
	uint32_t ops;              /* pieces posted, of all paths */
	uint32_t alive;            /* parts not yet done */
	bool opened, closing, closed;
	uint64_t proof;          /* the peer's secret by its latest challenge; 0: there was none */
	struct wf_heard told;    /* the home, by this group */
	struct wf_heard hello;   /* the peer's latest that was proved, while it waits for an answer */
	struct wf_heard doubted; /* the latest that was not, while a challenge is to be sent; epoch 0: none */
	uint32_t doubted_place, doubted_remote; /* from there to there */
	uint64_t welcome_ns, welcome_until_ns;  /* try again at, and no longer than */
	uint32_t talk;                          /* where the next frame that the home cannot send goes */
	uint32_t routes;                        /* group->routes when all its paths were judged (pairing.c) */
	_Atomic uint32_t paths_up;              /* carry pieces */
	_Atomic uint32_t paths_talking;         /* carry frames */
	struct wf_path path[];                  /* by seat */
};

enum wf_peer_state { WF_PEER_CONNECTING, WF_PEER_UP, WF_PEER_DOWN, WF_PEER_REMOVED };
enum wf_peer_change { WF_PEER_OPEN = 1, WF_PEER_REMOVE, WF_PEER_CANCEL, WF_PEER_REPLACE, WF_PEER_RETRY };

struct wf_peer {
	struct weft_engine *engine;
	weft_peer handle;
	struct wf_group *home;
	_Atomic uint64_t incarnation;
	/* Whoever knows it was greeted by us where the peer lives: no frame without it is the peer's. It holds for all
	 * connections with this incarnation. That of the latest book; written with it, under the directory's lock. */
	_Atomic uint64_t secret;
	_Atomic uint64_t their_secret; /* theirs for us; the home writes. A stranger's is known from the start */
	_Atomic int state;             /* enum wf_peer_state; the home writes */
	_Atomic uint32_t epoch;        /* ours, of this connection; the home writes */
	_Atomic bool added;            /* by the application, not by a hello; written under the directory's lock */
	_Atomic uint32_t renewals; /* REPLACE and RETRY notes that the home has not read: down is no reason to refuse */
	_Atomic uint32_t replacements; /* of those, REPLACE: after it every lane says hello again */
	/* the home's */
	bool closing;
	char why[64]; /* it was last given up, or "" */
	uint32_t lanes_closing;
	uint32_t their_epoch; /* 0: not known */
	uint64_t their_handle, their_max_message;
	_Atomic uint64_t heard_ns; /* the home writes */
	uint64_t since_ns, pinged_ns;
	struct wf_timer tick;
	struct wf_timer doubt;  /* doubt.c */
	struct wf_knock *knock; /* while its kernel is asked */
	uint64_t doubted_ns, knocked_ns;
	uint32_t knocks, refusals; /* since then */
	_Atomic uint64_t met;      /* its rails that have answered, a bit each; lanes write */
	struct wf_channel channel;
	struct wf_link operations;                /* struct wf_transfer.link: begun, not ended */
	struct wf_link pumping, acking, settling; /* in the home group's lists */
	struct wf_link barriers;                  /* struct wf_inbound: entered before we did, the latest of them */
	uint32_t early;                           /* how many */
	struct wf_link
	    verdicts; /* of its checked writes: those on their way, and those that wait to be checked (verify.c) */
	struct wf_link *verifying; /* the one that is being checked, in the home's list; NULL: none */
	uint32_t verifications;    /* all of them */
	uint32_t talk_seat;        /* where frames go while it is up */
	/* Frames of messages that came in, counted when the first of a message arrives, and of those that were released by the
	 * application or dropped. The difference is held here, of whichever epoch, and bounded by the window. */
	_Atomic uint64_t taken;    /* the home writes */
	_Atomic uint64_t consumed; /* any thread */
	_Atomic uint32_t
	    answers[WF_ANSWERS];   /* slots of replies and of internal messages that are held for it (slots.c) */
	_Atomic uint64_t accepted; /* operations, for info: any thread counts */
	_Atomic uint64_t ended;    /* of those; the home writes */
	uint64_t bytes;            /* what it takes, for info */
	struct wf_book *book;      /* the latest; under the directory's lock */
	uint64_t moved_ns;         /* what greetings may still change it by; the same */
	struct wf_lane *lane[];    /* by group */
};

/* directory.c */
int wf_peer_add(struct weft_engine *engine, const struct wf_wire_address *address,
		weft_peer *ret_peer); /* by the application */
/* By a stranger's hello, on the worker that it arrived at: the secret of ours that proved it, and its own for us. */
int wf_peer_add_stranger(struct wf_group *from, const struct wf_wire_address *address, uint64_t secret, uint64_t theirs,
			 weft_peer *ret_peer);
struct wf_peer *wf_peer_find(struct weft_engine *engine, uint64_t incarnation); /* referenced; NULL: no such peer */
int wf_peer_remove(struct weft_engine *engine, weft_peer handle);
int wf_peer_replace(struct weft_engine *engine, weft_peer handle, const struct wf_wire_address *address);
/* Its rails have new addresses, by a greeting that this lane received. */
void wf_peer_moved(struct wf_lane *lane, const struct wf_wire_address *address);
uint32_t wf_peer_rails(struct wf_peer *peer); /* how many it has. Any thread */
/* Whether operations to it are refused. Any thread: what is submitted after an add or a replace is not. */
static inline bool wf_peer_is_down(struct wf_peer *peer)
{
	/* The state again: a renewal may have ended between the two looks. Pairs with connect_again() and renewed(). */
	return atomic_load_explicit(&peer->state, memory_order_acquire) == WF_PEER_DOWN &&
	       !atomic_load_explicit(&peer->renewals, memory_order_acquire) &&
	       atomic_load_explicit(&peer->state, memory_order_acquire) == WF_PEER_DOWN;
}
/* Its handle is refused from now on, and a hello from there is a stranger's. True: we did it. Any thread. */
bool wf_peer_retire(struct wf_peer *peer, bool stranger_only);
void wf_peer_release(void *peer);

/* peer.c */
void wf_peer_tick(struct wf_timer *timer, uint64_t now_ns);
void wf_peer_changed(struct wf_peer *peer, enum wf_peer_change change); /* on its home */
void wf_peer_heard(struct wf_peer *peer, const struct wf_heard *heard); /* on its home */
void wf_peer_alive(struct wf_peer *peer);                               /* on its home: a frame of this epoch came */
void wf_peer_down(struct wf_peer *peer, int why, const char *text);     /* on its home; it may be gone afterwards */
void wf_peer_paths_changed(struct wf_peer *peer);                       /* on its home */
void wf_peer_suspect(struct wf_peer *peer);                             /* on its home: it may be dead */
void wf_peer_trust(struct wf_peer *peer);                               /* on its home: no more of that */
void wf_peer_doubt(struct wf_timer *timer, uint64_t now_ns);
void wf_peer_lane_closed(struct wf_peer *peer); /* on its home */
/* Not later than that. On its home. */
static inline void wf_peer_set_tick(struct wf_peer *peer, uint64_t deadline_ns)
{
	if (!wf_link_linked(&peer->tick.link) || deadline_ns < peer->tick.deadline_ns)
		wf_timer_set(&peer->home->worker.timers, &peer->tick, deadline_ns);
}

/* The latest that any group has heard of it or delivered to it. Any worker. */
uint64_t wf_peer_last_sign_of_life(const struct wf_peer *peer);
/* A frame out of turn (ping, pong, bye) over whatever path is up: 0, -EAGAIN, -ENETDOWN. */
int wf_peer_send_plain(struct wf_peer *peer, uint8_t kind);
/* The same over another group's rails, when they reach it. */
void wf_peer_send_plain_by(struct wf_peer *peer, uint32_t group, uint8_t kind);
struct wf_tx_frame *
wf_peer_spare_tx(struct wf_peer *peer); /* all are out: the spare one when the home has no path anyway, or NULL */
/* One to build a frame in; NULL: not now. On its home. */
static inline struct wf_tx_frame *wf_peer_take_tx(struct wf_peer *peer)
{
	struct wf_tx_frame *frame = wf_group_take_tx(peer->home);

	return frame ? frame : wf_peer_spare_tx(peer);
}
/* Seals a frame of the home's and posts it on any path of the peer: 0, -EAGAIN, -ENETDOWN. It is not the caller's any more. */
int wf_peer_send_frame(struct wf_peer *peer, struct wf_tx_frame *frame);

/* pairing.c: on the lane's group */
bool wf_pair_usable(struct wf_lane *lane, const struct wf_seat *seat, uint32_t remote);
/* The first of the peer's rails from that one on that the seat may be paired with; -1: none. */
int wf_pair_pick(struct wf_lane *lane, const struct wf_seat *seat, uint32_t from);
void wf_lane_pair(
    struct wf_lane *lane); /* when it is opened: pairs each rail, and says hello as soon as it is planned */
void wf_lane_pair_again(struct wf_lane *lane); /* the peer's addresses have changed */
/* Any thread. */
int wf_path_info(struct weft_engine *engine, weft_peer handle, uint32_t rail, uint32_t remote,
		 struct weft_path_info *ret_info);

/* trial.c: on the lane's group */
/* Whether the peer's rail may be inserted, over sockets: a stranger's only while few of its kind are. False: not now. */
bool wf_trial_begin(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote);
void wf_trial_end(const struct wf_lane *lane, uint32_t place, uint32_t remote); /* it is forgotten */

/* lane.c: on the lane's group */
int wf_lane_init(struct wf_peer *peer, struct wf_group *group, struct wf_lane **ret_lane);
void wf_lane_free(struct wf_lane *lane);
void wf_lane_close(struct wf_lane *lane);
void wf_lane_maybe_closed(struct wf_lane *lane);                   /* after something of it ended */
void wf_lane_set_book(struct wf_lane *lane, struct wf_book *book); /* takes the reference */
void wf_lane_quiet(struct wf_lane *lane); /* the peer is down: close the paths, say hello seldom */
void wf_lane_path_failed(struct wf_lane *lane, struct wf_path *path, const char *why); /* a piece was not delivered */
void wf_lane_talk_failed(struct wf_lane *lane, struct wf_path *path, const char *why); /* a frame was not */
void wf_lane_seat_reset(struct wf_lane *lane, struct wf_seat *seat, enum wf_doom what);
void wf_lane_runnable(struct wf_lane *lane);
void wf_lane_send_copy(struct wf_lane *lane, void *frame); /* a frame another worker built; frees it */
int wf_lane_any_path(struct wf_lane *lane,
		     uint32_t first); /* the place of one that talks, from first on; -1: none does */
/* The address of the peer's rail in an endpoint of ours, inserted when it is not yet. -EAGAIN: the endpoint is closed. -EBUSY: a
 * stranger's, and others have yet to answer. */
int wf_lane_target(struct wf_lane *lane, struct wf_seat *seat, enum wf_end end, uint32_t remote, uint64_t *ret_target);
void wf_lane_forget_target(struct wf_lane *lane, struct wf_seat *seat,
			   uint32_t remote); /* in both endpoints; in use by no path */
void wf_lane_path_up(struct wf_lane *lane, struct wf_path *path, uint32_t remote, uint64_t target);
void wf_lane_talk_up(struct wf_lane *lane, struct wf_path *path, uint32_t remote, uint64_t target);
static inline struct wf_target *wf_target_of(const struct wf_lane *lane, uint32_t place, uint32_t remote)
{
	return &lane->targets[place * lane->book->count + remote];
}

/* greeting.c: on the lane's group */
void wf_lane_open(struct wf_lane *lane);
void wf_lane_plan(struct wf_lane *lane); /* sets the timer for the next hello or welcome that is due */
void wf_lane_hello_now(struct wf_lane *lane);
void wf_lane_immediate_done(struct wf_lane *lane, struct wf_path *path);
void wf_hello_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame);
void wf_welcome_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame);
void wf_challenge_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame);
/* newcomer.c. Of nobody we know: a peer, referenced, when the hello proves that it comes from where it says; else NULL. */
struct wf_peer *wf_newcomer_proves(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *hello,
				   const struct wf_wire_address *address);

struct wf_book *wf_book_make(struct weft_engine *engine, const struct wf_wire_address *address, uint64_t secret,
			     enum wf_word word);
bool wf_book_has(const struct wf_book *book, const struct wf_wire_address *address, uint32_t rail); /* there, in both */
bool wf_book_is(const struct wf_book *book,
		const struct wf_wire_address *address); /* every rail, at the same revision */
void wf_book_put(struct wf_book *book);
#endif
