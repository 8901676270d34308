/*
 * A peer: another engine. Its home worker owns its two channels, its operations and its heartbeat: peer.c says what happens to
 * it as connections come and go. Each group has a lane to it (lane.h).
 */
#ifndef WF_ENGINE_PEER_H
#define WF_ENGINE_PEER_H

#include "engine/core/note.h"
#include "engine/move/frames.h"
#include "engine/ops/slots.h"
#include "engine/peer/book.h"
#include "engine/peer/channel_in.h"
#include "engine/peer/channel_out.h"
#include "engine/peer/lane.h"

struct weft_engine;

enum wf_peer_state { WF_PEER_CONNECTING, WF_PEER_UP, WF_PEER_DOWN, WF_PEER_REMOVED };
enum wf_peer_change { WF_PEER_OPEN = 1, WF_PEER_REMOVE, WF_PEER_CANCEL, WF_PEER_REPLACE, WF_PEER_RETRY };

struct wf_peer {
	struct weft_engine *engine;
	weft_peer handle;
	struct wf_group *home;
	_Atomic uint64_t incarnation;
	/* Our greetings bring it where the peer lives: a frame without it is not the peer's. It holds for all connections with this
	 * incarnation. That of the latest book; written with it, under the directory's lock. */
	_Atomic uint64_t secret;
	_Atomic uint64_t their_secret;     /* theirs for us; the home writes. A stranger's is known from the start */
	_Atomic int state;                 /* enum wf_peer_state; the home writes */
	_Atomic uint32_t epoch;            /* ours, of this connection; the home writes */
	_Atomic bool added;                /* by the application, not by a hello; written under the directory's lock */
	_Atomic(void *) user;              /* the application's; any thread */
	char name[WEFT_PEER_NAME_MAX + 1]; /* "": none; under the engine's name_lock */
	_Atomic uint32_t renewals; /* REPLACE and RETRY notes that the home has not read: down is no reason to refuse */
	_Atomic uint32_t replacements; /* of those, REPLACE: after it every lane says hello again */
	/* the home's */
	bool closing;
	char down_text[64]; /* the reason why it was last given up, or "" */
	uint32_t lanes_closing;
	uint32_t their_epoch; /* 0: not known */
	uint64_t their_handle, their_max_message;
	_Atomic uint64_t heard_ns; /* the home writes */
	uint64_t since_ns, pinged_ns, pardoned_ns;
	/* When a provider took the first hello since then: its limit begins. 0: they are still connecting. Lanes write */
	_Atomic uint64_t asked_ns;
	struct wf_timer tick;
	struct wf_timer doubt;  /* doubt.c */
	struct wf_knock *knock; /* while its kernel is asked */
	uint64_t doubted_ns, knocked_ns;
	uint32_t knocks, refusals; /* since then */
	_Atomic uint64_t met;      /* its rails that have answered, a bit each; lanes write */
	struct wf_channel_out out;
	struct wf_channel_in in;
	struct wf_note open_note; /* to its home, when a stranger's hello made it */
	struct wf_note gone_note; /* to group 0: nothing is expected of it any more (expect.c) */
	/* Expectations take another way than the change that ends them, so they say which life of the peer they are of. Each cancel,
	 * replacement and new try begins one: asked for by the application, entered by the home. */
	_Atomic uint32_t lives_asked, gone_life; /* gone_life: the latest that is over */
	uint32_t life;                           /* the home's */
	struct wf_link operations;               /* struct wf_transfer.link: begun, not ended */
	struct wf_link pumping, acking, ending;  /* in the home group's lists */
	struct wf_link barriers;                 /* struct wf_inbound: entered before we did, the latest of them */
	uint32_t early;                          /* how many */
	/* of its checked writes: those on their way, and those that wait to be checked (verify.c) */
	struct wf_link verdicts;
	struct wf_link *verifying; /* the one that is being checked, in the home's list; NULL: none */
	uint32_t verifications;    /* all of them */
	struct wf_legs *legs;      /* of operations on its cards' memory (legs.h); NULL: there were none */
	struct wf_room
	    *room; /* that it has of ours; NULL: none. And its copies there, and those of them that were answered */
	uint32_t landings;
	struct wf_link landed;
	uint32_t talk_seat; /* where frames go while it is up */
	/* Frames of messages that came in, counted when a message's first one arrives, and frames of messages that were released or
	 * dropped. The difference is held here, over all epochs, and bounded by the window. */
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

/* Whether operations to it are refused. Any thread: what is submitted after an add or a replace is not. */
static inline bool wf_peer_is_down(struct wf_peer *peer)
{
	/* The state again: a renewal may have ended between the two looks. Pairs with connect_again() and renewed(). */
	return atomic_load_explicit(&peer->state, memory_order_acquire) == WF_PEER_DOWN &&
	       !atomic_load_explicit(&peer->renewals, memory_order_acquire) &&
	       atomic_load_explicit(&peer->state, memory_order_acquire) == WF_PEER_DOWN;
}

void wf_peer_tick(struct wf_timer *timer, uint64_t now_ns);
void wf_peer_changed(struct wf_peer *peer, enum wf_peer_change change); /* on its home */
void wf_peer_heard(struct wf_peer *peer, const struct wf_heard *heard); /* on its home */
void wf_peer_heard_note(struct wf_heard_note *told);                    /* the same; frees it */
void wf_peer_alive(struct wf_peer *peer);                               /* on its home: a frame of this epoch came */
void wf_peer_down(struct wf_peer *peer, int status, const char *text);  /* on its home */
/* On its home: the process of the engine that has our secret has ended. */
void wf_peer_process_ended(struct wf_peer *peer, uint64_t secret);
void wf_peer_paths_changed(struct wf_peer *peer); /* on its home */
void wf_peer_lane_closed(struct wf_peer *peer);   /* on its home */
/* A hello to it is on its way. Any worker. */
static inline void wf_peer_was_asked(struct wf_peer *peer, uint64_t now_ns)
{
	uint64_t never = 0;

	if (!atomic_load_explicit(&peer->asked_ns, memory_order_relaxed))
		atomic_compare_exchange_strong(&peer->asked_ns, &never, now_ns);
}
/* Not later than that. On its home. */
static inline void wf_peer_set_tick(struct wf_peer *peer, uint64_t deadline_ns)
{
	if (!wf_link_linked(&peer->tick.link) || deadline_ns < peer->tick.deadline_ns)
		wf_timer_set(&peer->home->worker.timers, &peer->tick, deadline_ns);
}

/* The latest that any group has heard of it or delivered to it. Any worker. */
uint64_t wf_peer_last_sign_of_life(const struct wf_peer *peer);
#endif
