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

/* A peer's rail addresses at one revision: immutable, shared by the lanes. */
struct wf_book {
	_Atomic uint32_t references;
	uint32_t revision, count;
	struct {
		uint32_t format, serial;
		uint8_t bytes;
		bool reachable; /* same provider as ours */
		uint8_t address[WF_MAX_RAIL_ADDRESS];
	} rail[];
};

enum wf_path_state {
	WF_PATH_CLOSED,
	WF_PATH_OPENING, /* hello sent or to be sent */
	WF_PATH_UP,
};

struct wf_path {
	uint64_t target; /* in the rail's address vector, while up */
	uint64_t bytes;  /* in flight */
	uint64_t window_bytes; /* at most so many */
	uint64_t landed_bytes, landed_since_ns; /* what the window follows where the link's speed is not known */
	uint32_t ops;    /* in flight */
	uint8_t state, remote; /* the peer's rail at the other end */
	uint8_t tries;
	uint64_t hello_ns;   /* say hello (again) at */
	uint64_t stuck_ns;   /* since when every post was refused with EAGAIN; 0: not */
	/* Immediates the peer may not have read yet: posted, of them completed, of them asked about by a hello. */
	uint32_t immediates, immediates_done, immediates_asked, immediates_limit;
	uint32_t granted; /* what the peer may have unread in this seat's completion queue, all its paths there together */
};

/* The peer's rail j in the address vector of seat i. */
struct wf_target {
	uint64_t target;
	uint32_t generation; /* of the seat's endpoint it was inserted in; 0: it was not */
};

struct wf_lane {
	struct wf_group *group;
	struct wf_peer *peer;
	struct wf_link link;     /* group->lanes */
	struct wf_link runnable; /* group->runnable */
	struct wf_link parts;    /* struct wf_part with something to give */
	struct wf_book *book;
	struct wf_target *targets; /* seats × the book's rails */
	struct wf_timer timer;   /* hellos */
	uint64_t quantum;        /* bytes it may still give before the next lane's turn */
	uint32_t in_flight;      /* frames posted; pieces are counted by their parts */
	uint32_t ops;            /* pieces posted, of all paths */
	uint32_t alive;          /* parts not yet done */
	bool opened, closing, closed;
	uint32_t talk; /* where the next frame that the home cannot send goes */
	_Atomic uint32_t paths_up;
	_Atomic uint64_t last_ok_ns; /* a delivery to the peer completed: it lives */
	struct wf_path path[]; /* by seat */
};

enum wf_peer_state { WF_PEER_CONNECTING, WF_PEER_UP, WF_PEER_DOWN, WF_PEER_REMOVED };
enum wf_peer_change { WF_PEER_OPEN = 1, WF_PEER_REMOVE, WF_PEER_CANCEL, WF_PEER_REPLACE };

/* What a lane learned from a hello or its answer, for the home. */
struct wf_heard {
	uint64_t handle; /* the peer's handle for us */
	uint64_t incarnation, credit, max_message;
	uint32_t epoch, to_epoch;
	uint8_t kind;
};

struct wf_peer {
	struct weft_engine *engine;
	weft_peer handle;
	struct wf_group *home;
	_Atomic uint64_t incarnation;
	_Atomic int state;        /* enum wf_peer_state; the home writes */
	_Atomic uint32_t epoch;   /* ours, of this connection; the home writes */
	_Atomic bool added;       /* by the application, not by a hello */
	/* the home's */
	bool closing;
	char why[64];             /* it was last given up, or "" */
	uint32_t lanes_closing;
	uint32_t their_epoch;     /* 0: not known */
	uint64_t their_handle, their_max_message;
	_Atomic uint64_t heard_ns; /* the home writes */
	uint64_t since_ns, pinged_ns;
	uint64_t home_replaces;   /* incarnation the operations now belong to */
	struct wf_timer tick;
	struct wf_channel channel;
	struct wf_link operations; /* struct wf_transfer.link: begun, not ended */
	struct wf_link pumping, acking, settling; /* in the home group's lists */
	struct wf_link barriers;   /* struct wf_inbound: entered before we did, the latest of them */
	uint32_t early;            /* how many */
	struct wf_link verdicts;   /* of its checked writes, on their way (verify.c) */
	uint32_t verifications;    /* those, and what is still being checked */
	uint32_t talk_seat;        /* where frames go while it is up */
	_Atomic uint64_t consumed; /* frames of messages the application has released, this epoch */
	_Atomic uint64_t accepted; /* operations, for info: any thread counts */
	_Atomic uint64_t ended;    /* of those; the home writes */
	uint64_t bytes;            /* what it takes, for info */
	struct wf_book *book;      /* the latest, for lanes that open */
	pthread_mutex_t book_lock;
	struct wf_lane *lane[];    /* by group */
};

/* peer.c */
/* from: the worker that a stranger's hello arrived at; NULL: the application adds it. */
int wf_peer_add(struct weft_engine *engine, const struct wf_wire_address *address, struct wf_group *from, weft_peer *ret_peer);
int wf_peer_remove(struct weft_engine *engine, weft_peer handle);
int wf_peer_replace(struct weft_engine *engine, weft_peer handle, const struct wf_wire_address *address);
void wf_peer_release(void *peer);
void wf_peer_changed(struct wf_peer *peer, enum wf_peer_change change); /* on its home */
void wf_peer_heard(struct wf_peer *peer, const struct wf_heard *heard); /* on its home */
void wf_peer_alive(struct wf_peer *peer);                               /* on its home: a frame of this epoch came */
void wf_peer_down(struct wf_peer *peer, int why, const char *text);     /* on its home; it may be gone afterwards */
void wf_peer_paths_changed(struct wf_peer *peer);                       /* on its home */
void wf_peer_lane_closed(struct wf_peer *peer);                         /* on its home */
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
struct wf_tx_frame *wf_peer_spare_tx(struct wf_peer *peer); /* all are out: the spare one when the home has no path anyway, or NULL */
/* One to build a frame in; NULL: not now. On its home. */
static inline struct wf_tx_frame *wf_peer_take_tx(struct wf_peer *peer)
{
	struct wf_tx_frame *frame = wf_group_take_tx(peer->home);

	return frame ? frame : wf_peer_spare_tx(peer);
}
/* Seals a frame of the home's and posts it on any path of the peer: 0, -EAGAIN, -ENETDOWN. It is not the caller's any more. */
int wf_peer_send_frame(struct wf_peer *peer, struct wf_tx_frame *frame);

/* lane.c: on the lane's group */
int wf_lane_init(struct wf_peer *peer, struct wf_group *group, struct wf_lane **ret_lane);
void wf_lane_free(struct wf_lane *lane);
void wf_lane_open(struct wf_lane *lane);
void wf_lane_close(struct wf_lane *lane);
void wf_lane_maybe_closed(struct wf_lane *lane); /* after something of it ended */
void wf_lane_set_book(struct wf_lane *lane, struct wf_book *book); /* takes the reference */
void wf_lane_hello_now(struct wf_lane *lane);
void wf_lane_quiet(struct wf_lane *lane); /* the peer is down: close the paths, say hello seldom */
void wf_lane_path_failed(struct wf_lane *lane, struct wf_path *path, const char *why);
void wf_lane_immediate_done(struct wf_lane *lane, struct wf_path *path);
void wf_lane_seat_reset(struct wf_lane *lane, struct wf_seat *seat);
void wf_lane_runnable(struct wf_lane *lane);
void wf_lane_send_copy(struct wf_lane *lane, void *frame); /* a frame another worker built; frees it */
int wf_lane_any_path(struct wf_lane *lane, uint32_t first); /* the place of one that is up, from first on; -1: none is */
void wf_hello_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame);
void wf_welcome_arrived(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *frame);

struct wf_book *wf_book_make(struct weft_engine *engine, const struct wf_wire_address *address);
void wf_book_put(struct wf_book *book);
#endif
