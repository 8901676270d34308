/*
 * Deadlines: a wheel of one-millisecond slots, owned by one worker, and behind it a wheel with one slot per lap for later
 * deadlines, so that ten thousand peers' timers are not visited each lap. Setting and clearing are O(1). The worker's turn runs
 * what is due, whatever the provider does.
 */
#ifndef WF_WORKER_TIMER_H
#define WF_WORKER_TIMER_H

#include "base/list.h"

#include <stdint.h>

#define WF_WHEEL_SLOTS 1024
#define WF_WHEEL_LAPS  64 /* a timer further away than this many laps is visited once per this many */

struct wf_timer {
	struct wf_link link;
	uint64_t deadline_ns;
	void (*fire)(struct wf_timer *timer, uint64_t now_ns); /* the timer is clear when called */
};

struct wf_timers {
	struct wf_link slot[WF_WHEEL_SLOTS]; /* due within a lap from tick */
	struct wf_link lap[WF_WHEEL_LAPS];   /* due later: goes to its slot when its lap begins */
	uint64_t tick;                       /* everything due before it has been run */
	uint64_t count;
};

void wf_timers_init(struct wf_timers *timers, uint64_t now_ns);
void wf_timer_init(struct wf_timer *timer, void (*fire)(struct wf_timer *timer, uint64_t now_ns));
/* Replaces an earlier deadline. A deadline of WF_NEVER clears. */
void wf_timer_set(struct wf_timers *timers, struct wf_timer *timer, uint64_t deadline_ns);
void wf_timer_clear(struct wf_timers *timers, struct wf_timer *timer);
/* Runs what is due, a bounded number per call. Returns how many fired. */
int wf_timers_run(struct wf_timers *timers, uint64_t now_ns);
uint64_t wf_timers_next(const struct wf_timers *timers); /* not later than the earliest deadline; WF_NEVER: none */
#endif
