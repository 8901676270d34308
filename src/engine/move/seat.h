/*
 * A rail's place in its group: the rail, what is posted on it, how fast it moves, and what it counts. Opened and closed here;
 * frames.h sends and receives on it, reset.h closes and reopens its endpoints, retire.h removes addresses. The group's worker
 * alone touches a seat, but for `up` and the counters, which any thread may read.
 */
#ifndef WF_ENGINE_SEAT_H
#define WF_ENGINE_SEAT_H

#include "engine/core/note.h"
#include "rail/rail.h"
#include "wire/blob.h"
#include "wire/frame.h"
#include "worker/crew.h"
#include "worker/timer.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct wf_group;
struct wf_lane;

/* An outgoing frame: its buffer is registered with the group's rails where they ask for that. */
struct wf_tx_frame {
	struct wf_wr wr;
	struct wf_tx_frame *next;
	struct wf_seat *seat; /* NULL: free */
	struct wf_lane *lane; /* NULL: it is stuck, and no lane waits for it */
	uint64_t posted_ns;
	uint64_t target;
	enum wf_end end; /* where it is posted */
	uint8_t *buffer;
	uint32_t filled; /* bytes that may not be zero, in the part that short frames are padded to */
	bool faint;      /* a sign of life: its completion is not news */
	bool asks;       /* a hello or a question on the outgoing endpoint, of which a path may have few there */
	bool stuck;      /* on the NIC for longer than a peer may be silent */
};

struct wf_rx_frame {
	struct wf_wr wr;
	struct wf_note note; /* to the home of its sender, and back */
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

/* The same; a reader that sees the count sees what came before it. */
static inline void wf_count_after(_Atomic uint64_t *counter, uint64_t amount)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
			      memory_order_release);
}

/* Written by the worker, read by any thread: relaxed atomics. */
struct wf_seat_counters {
	_Atomic uint64_t writes, reads, sends, bytes, errors, retries, reopened, mapped_bytes;
};

/* How fast a rail moves bytes, as housekeeping measures it. */
struct wf_pace {
	uint64_t rate;                /* bytes per second, recently: a lower bound … */
	bool known;                   /* … that is exact, because the rail was busy the whole time */
	uint64_t landed, in_flight;   /* at the last measurement */
	uint64_t queue, queue_landed; /* the longest queue not yet gone, and what had landed when it was seen */
	uint64_t took_ns;             /* recently, from a post to its completion or from a hello to its answer */
};

/* Up at once, down slowly. */
static inline void wf_pace_took(struct wf_pace *pace, uint64_t took_ns)
{
	pace->took_ns = took_ns > pace->took_ns ? took_ns : pace->took_ns - (pace->took_ns - took_ns) / 8;
}

/* What is reset: the outgoing endpoint, to take pieces back, which no peer notices; or both. */
enum wf_reset { WF_RESET_NONE, WF_RESET_OUTGOING, WF_RESET_RAIL };

/* Whether the rail is in the hands of a thread beside the worker. The worker does not touch it then. */
enum wf_away { WF_HERE, WF_AWAY_CLOSING, WF_AWAY_OPENING };

struct wf_seat {
	struct wf_group *group;
	struct wf_rail *rail; /* NULL until the worker has opened it */
	struct wf_nic *nic;
	uint32_t index;               /* of the rail in the engine and in our address */
	uint32_t place;               /* in the group */
	uint32_t generation[WF_ENDS]; /* of each endpoint: addresses inserted in an older one are void */
	_Atomic int up;               /* both endpoints are open, and the rail is here */
	bool published;               /* the published one is open */
	bool listening;               /* it is, and the rail is here */
	uint32_t ops;    /* posted on the outgoing endpoint: pieces, hellos, frames for which the other is deaf */
	uint32_t frames; /* posted on the published one */
	uint64_t last_ok_ns;
	struct wf_pace pace;
	uint64_t nudged_ns; /* when a nudge was last sent (stripe.c) */
	uint64_t opened_ns;
	uint32_t reopen_tries;
	uint64_t deaf_ns;        /* when it was last to be reopened because a message is missing, … */
	uint32_t deaf_tries;     /* … and how often soon after the last time */
	uint32_t granted;        /* immediates that all peers together may have unread in its completion queue */
	enum wf_reset reset_due; /* to be reset at the end of this turn, or when what may still land has */
	uint64_t due_ns, drain_look_ns;
	const char *why;  /* the reason, for the application; NULL: it is not told */
	bool due_to_stop; /* only because of stopped parts */
	struct wf_timer reopen;
	enum wf_away away;
	enum wf_reset resetting; /* what is being closed, or was and is to be opened */
	int reopen_status;       /* of the errand that opens it */
	bool beside;             /* the errand has a thread */
	struct wf_errand errand;
	struct wf_note back_note; /* the errand is done */
	struct wf_rail_memory tx_memory, rx_memory;
	struct wf_rx_frame *rx;
	struct wf_rx_frame **rx_idle; /* receives to be posted: next turn, or when the provider has room */
	uint32_t rx_idle_count;
	bool rx_refused; /* the provider has no room: not every turn tries */
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

/* Whether the worker may use this endpoint now. */
static inline bool wf_seat_is_open(const struct wf_seat *seat, enum wf_end end)
{
	return !seat->away && wf_rail_is_open(seat->rail, end);
}

int wf_seat_open(struct wf_seat *seat);
void wf_seat_close(struct wf_seat *seat); /* does nothing if it is not open */
void wf_seat_watch(struct wf_seat *seat); /* the worker sleeps on the rail's descriptor, if it has one */
#endif
