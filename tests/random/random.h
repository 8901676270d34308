/*
 * Random public calls: several threads on several engines, in one process or in two, with no synchronisation beyond
 * what the header asks for. Peers, regions, remotes and queues come and go under operations; engines are closed and
 * opened anew while the others go on. Each accepted operation must end once and in time, each call must return a
 * documented value, and nothing may crash: the sanitizers judge that.
 */
#ifndef RANDOM_H
#define RANDOM_H

#include "support/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <weft.h>

#define ENGINES   8 /* most per process */
#define PROCESSES 2
#define THREADS   32
#define PEERS     8 /* tables of each engine: a thread that finds a free slot fills it */
#define REGIONS   6
#define REMOTES   12
#define QUEUES    4
#define TRANSFERS 64 /* the latest, to cancel */
#define ENDS      6  /* kept for a thread to wait for; fewer than max_transfers, which they count among */
#define CALLS     32 /* the latest that came in, to answer late or twice */
#define KEPT      16 /* events that a thread releases later */
#define TICKETS   (1u << 14)
#define CHUNK     (256u << 10) /* bytes per region */
#define BLOB      4096

/* What processes tell each other: the latest blobs of each engine, and of engines that are gone. */
struct blob {
	uint32_t bytes;
	uint8_t data[BLOB];
};
struct board {
	pthread_mutex_t lock;
	struct {
		struct blob address, old_address, region[REGIONS];
	} engine[PROCESSES * ENGINES];
};

/* A queue is a pointer: each user counts itself in, and the closer waits until nobody is left. */
struct outlet {
	_Atomic(weft_queue *) queue;
	_Atomic int users; /* -1: being opened or closed */
};

struct call {
	_Atomic uint64_t peer, call;
};

struct station {
	uint32_t number; /* on the board */
	_Atomic(weft_engine *) engine;
	_Atomic int users;   /* threads in a call or holding an event */
	_Atomic int leaving; /* about to be closed: nobody may enter any more */
	_Atomic int gone;    /* for good */
	_Atomic uint32_t life;
	struct outlet outlet[QUEUES];
	_Atomic(weft_queue *) bed; /* nothing ever arrives there: a thread sleeps on it when the engine closes */
	_Atomic int abed;          /* its thread number while it waits */
	_Atomic uint64_t peer[PEERS], region[REGIONS], remote[REMOTES], transfer[TRANSFERS];
	_Atomic uint64_t
	    end[ENDS]; /* transfers whose end is kept and not taken; 0: free, UINT64_MAX: about to be submitted */
	_Atomic uint32_t transfers, calls;
	struct call call[CALLS];
	char *memory; /* a chunk for each region */
};

struct kept {
	struct station *station;
	struct weft_event event;
};

struct caller {
	pthread_t thread;
	uint32_t number;
	uint64_t seed;
	struct kept kept[KEPT];
	uint32_t kept_count;
	_Atomic uint64_t made;                  /* calls; the watchdog reads it */
	uint64_t done, failed, arrived, closed; /* operations; messages and the like; engines */
	_Atomic(const char *) in;               /* the current call, for the watchdog */
	_Atomic uint64_t since_ns;
};

struct world {
	struct board *board;
	struct station station[ENGINES];
	uint32_t engines, processes, process, threads;
	struct weft_config config;
	uint64_t seed, end_ns;
	_Atomic int stop;
	bool verbose;
};
extern struct world world;

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Picks a slot of a table: mostly a filled one, sometimes an empty or stale one. */
#define HANDLE(caller, table) atomic_load(&(table)[pick(caller, COUNT(table))])

/* Makes the call known to the watchdog. */
#define CALL(caller, name, status, allowed, ...)                                                                       \
	do {                                                                                                           \
		enter_call(caller, #name);                                                                             \
		status = name(__VA_ARGS__);                                                                            \
		leave_call(caller);                                                                                    \
		check(caller, #name, status, allowed);                                                                 \
	} while (0)

static const int nothing[] = { 0 };

/* util.c */
uint64_t pick(struct caller *caller, uint64_t below); /* 0 to below - 1 */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Checks what a call returned: 0, or one of a list that ends with 0. */
void check(struct caller *caller, const char *call, int status, const int *allowed);
void enter_call(struct caller *caller, const char *call);
void leave_call(struct caller *caller);
/* Tickets: one tag per operation that must end. 0: none is left. */
uint64_t ticket_take(const struct station *station, const struct outlet *outlet, uint64_t deadline_ns);
void ticket_ended(const struct station *station, uint64_t tag, const char *how);
void ticket_void(uint64_t tag);                                                /* its submission was refused */
void tickets_void(const struct station *station, const struct outlet *outlet); /* outlet NULL: any */
void tickets_check(void);                                                      /* none may be overdue */

/* station.c */
bool station_enter(struct station *station);
void station_leave(struct station *station);
void station_open(struct station *station, struct caller *caller);
/* Waits for all others to leave, then closes the engine and opens another in its place, unless it goes for good. */
void station_close(struct station *station, struct caller *caller, bool for_good);
void *station_sleeper(void *station);
weft_queue *outlet_enter(struct outlet *outlet);
void outlet_leave(struct outlet *outlet);
void release_kept(struct caller *caller, bool all); /* those of stations that are leaving, or all */

/* objects.c */
void add_peer(struct caller *caller, struct station *station);
void remove_peer(struct caller *caller, struct station *station);
void replace_peer(struct caller *caller, struct station *station);
void cancel_peer(struct caller *caller, struct station *station);
void import_remote(struct caller *caller, struct station *station);
void close_remote(struct caller *caller, struct station *station);
void export_region(struct caller *caller, struct station *station);
void register_region(struct caller *caller, struct station *station);
void close_region(struct caller *caller, struct station *station);
void revoke_region(struct caller *caller, struct station *station);

/* calls.c */
void random_call(struct caller *caller, struct station *station);
#endif
