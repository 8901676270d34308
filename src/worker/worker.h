/*
 * A worker: the one thread that owns a group's rails. It takes notes from its inbox (any thread posts them), runs what
 * is due, gives its group a turn, and sleeps when there is nothing to do. What a turn and a note mean is the layer
 * above's business. Workers tell each other things through a second queue, which has no limit and which the turn empties.
 * Without a thread the application runs it through weft_engine_progress().
 */
#ifndef WF_WORKER_WORKER_H
#define WF_WORKER_WORKER_H

#include "base/mpsc.h"
#include "base/ring.h"
#include "base/spin.h"
#include "worker/timer.h"

#include <pthread.h>

struct wf_worker_ops {
	int (*start)(void *context); /* first on the thread, after pinning: 0 or a negative errno */
	void (*note)(void *context, const struct wf_item *note);
	int (*turn)(void *context, uint64_t now_ns); /* how much happened */
	bool (*in_flight)(void *context);            /* something is on a NIC: stay close */
	bool (*can_sleep)(void *context);            /* whatever happens next shows on a watched descriptor */
	bool (*may_stop)(void *context);             /* asked to, the thread turns on until it may; NULL: at once */
	void (*stop)(void *context);                 /* last on the thread */
	void (*gone)(void *context);                 /* after it, and only when nobody waited: it may free the worker */
};

enum wf_worker_phase { WF_WORKER_STARTING, WF_WORKER_LOOPING, WF_WORKER_STOPPING, WF_WORKER_FINISHED };

struct wf_worker {
	const struct wf_worker_ops *ops;
	void *context;
	int cpu; /* -1: not pinned */
	bool has_thread;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;     /* the phase; by the monotonic clock */
	enum wf_worker_phase phase; /* under lock, like the next two */
	bool abandoned;             /* nobody waits for its end */
	int start_status;
	int wake_fd, epoll_fd;
	uint64_t now_ns;      /* as of this turn or one just before it; the worker's own */
	uint64_t tick_ns;     /* the kernel's tick when it was read … */
	uint32_t clock_turns; /* … and for how many turns more it will do */
	uint64_t idle_ns;     /* since when nothing happened; 0: busy */
	uint64_t news_ns;     /* when last something did */
	int faint;            /* of what happened in this turn, mere signs of life: the layer above counts them here */
	struct wf_spin spin;
	bool looks, napped; /* since something happened: it looks before it naps; it has napped */
	bool woken;         /* by a descriptor, and nothing has come of it yet */
	/* The layer above sets it in a turn: something that no descriptor tells of is waited for, and this is how long the worker may
	 * nap. 0: not at all; WF_NEVER: there is no such thing. */
	uint64_t nap_most_ns;
	/* The layer above sets it: can_sleep() knows of whatever a descriptor has announced and was not read. */
	bool descriptors_tell_all;
	struct wf_timers timers;
	struct wf_ring inbox;
	struct wf_mpsc told; /* by other workers, for the turn to take */
	alignas(64) _Atomic int sleeping;
	_Atomic int stopping;
	_Atomic int running; /* manual progress: what the current worker does, enum wf_running … */
	int cancel_state;    /* … and whether its thread could be cancelled before */
};

int wf_worker_open(struct wf_worker *worker, const struct wf_worker_ops *ops, void *context, uint64_t inbox, int cpu,
		   bool has_thread);
/* A descriptor that becomes readable when there is something to do. Closing it ends the watch. On the worker. */
void wf_worker_watch(struct wf_worker *worker, int fd);
/* Any thread. False: the inbox is full. */
bool wf_worker_post(struct wf_worker *worker, const struct wf_item *note);
/* Any thread. Never fails: the node is part of what it tells of. */
void wf_worker_tell(struct wf_worker *worker, struct wf_node *node);
/* Manual progress: one turn. -EBUSY when another thread is in one; 0 when another is at work. */
int wf_worker_turn(struct wf_worker *worker);
void wf_worker_read_clock(struct wf_worker *worker); /* now_ns may be as old as the last turn before it */

/* Manual progress: returns 0 if the caller is now the worker, until it leaves; else what the current one does. At work:
 * sending a message, or in a control request. A worker cannot be cancelled: a provider's calls may be cancellation points,
 * and nobody could take its place. */
enum wf_running { WF_NOBODY, WF_IN_TURN, WF_AT_WORK };
static inline int wf_worker_claim(struct wf_worker *worker, enum wf_running as)
{
	int who = WF_NOBODY;

	/* Pairs with the release in leave. */
	atomic_compare_exchange_strong_explicit(&worker->running, &who, as, memory_order_acquire, memory_order_relaxed);
	if (!who)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &worker->cancel_state);
	return who;
}

static inline void wf_worker_leave(struct wf_worker *worker)
{
	int cancel_state = worker->cancel_state;

	/* Pairs with the next claim, which sees what we did. */
	atomic_store_explicit(&worker->running, WF_NOBODY, memory_order_release);
	pthread_setcancelstate(cancel_state, NULL);
}

/* To send: only where no note is unread that would come after us. */
static inline bool wf_worker_enter(struct wf_worker *worker)
{
	if (worker->has_thread || wf_worker_claim(worker, WF_AT_WORK))
		return false;
	if (!wf_ring_awaits(&worker->inbox))
		return true;
	wf_worker_leave(worker);
	return false;
}

void wf_worker_ask_to_stop(
    struct wf_worker *worker); /* it does so in its own time; for several, before the first is waited for */
/* How long to wait for a worker's last turn to end, and then for ops->stop. */
struct wf_worker_limits {
	uint64_t turn_ns, stop_ns;
};
/* Joins; ops->stop has run when it returns 0. Notes may still be posted. -ETIMEDOUT: it hangs in a call, and everything it may
 * touch must stay until ops->gone is called on its thread. */
int wf_worker_stop(struct wf_worker *worker, const struct wf_worker_limits *limits);
void wf_worker_close(struct wf_worker *worker); /* frees what it had */
#endif
