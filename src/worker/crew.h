/*
 * Threads of weft's own besides the workers: made without the application's signals. A crew does slow, rare work on several
 * at once for a caller that waits.
 */
#ifndef WF_WORKER_CREW_H
#define WF_WORKER_CREW_H

#include <pthread.h>
#include <stdint.h>

int wf_thread_create(pthread_t *thread, void *(*run)(void *argument),
		     void *argument); /* 0 or an errno, as pthread_create() */

/* Calls work for 0 to count - 1, each on a thread of its own where there is one to be had, and returns when all are done. The
 * caller's own thread is one of them. */
void wf_crew_run(uint32_t count, void (*work)(void *context, uint32_t number), void *context);
#endif
