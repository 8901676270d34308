/*
 * Threads of weft's own besides the workers: made without the application's signals. A crew does slow, rare work on several
 * at once for a caller that waits; an errand does some for a worker that does not.
 */
#ifndef WF_WORKER_CREW_H
#define WF_WORKER_CREW_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

int wf_thread_create(pthread_t *thread, void *(*run)(void *argument),
		     void *argument); /* 0 or an errno, as pthread_create() */

/* Slow work for a worker that does not wait. */
struct wf_errand {
	pthread_t thread;
	void (*work)(void *context);
	void *context;
};
/* Calls work on a thread of its own, which runs on any core though the caller may be pinned. 0, or a negative errno: there is
 * no thread. The errand stays where it is until it ends. */
int wf_errand_start(struct wf_errand *errand, void (*work)(void *context), void *context);
/* Whether its thread has ended, and is freed. Telling its worker is the last that work does, so it ends soon after that; on a full
 * machine it may wait for a CPU before, and the worker should not wait with it: it asks again. */
bool wf_errand_ended(struct wf_errand *errand);

/* Calls work for 0 to count - 1, each on a thread of its own where there is one to be had, and returns when all are done. The
 * caller's own thread is one of them. */
void wf_crew_run(uint32_t count, void (*work)(void *context, uint32_t number), void *context);
#endif
