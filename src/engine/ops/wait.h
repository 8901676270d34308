/*
 * Waiting for one operation: ends with WEFT_KEEP_END go to no queue. They stay in their slot until weft_transfer_wait() takes
 * them, so a slot whose end is kept has no other user meanwhile.
 */
#ifndef WF_ENGINE_WAIT_H
#define WF_ENGINE_WAIT_H

#include "weft.h"

#include <stdbool.h>

struct wf_transfer;

/* 0: the end is in *event. -ETIMEDOUT, -ENOENT, -ESHUTDOWN. On an application's thread. */
int wf_wait(struct weft_engine *engine, weft_transfer id, uint64_t timeout_ns, struct weft_event *event,
	    size_t event_bytes);
/* Its end has come, and stays. On the thread that ends it, which does nothing with it afterwards. */
void wf_wait_ended(struct wf_transfer *transfer);
/* The engine closes: wakes every waiter, and waits until they have left. False: one has not in time. */
bool wf_wait_shut(struct weft_engine *engine, uint64_t limit_ns);
/* Frees what ends hold that nobody took. When no other thread is left. */
void wf_wait_discard(struct weft_engine *engine);
#endif
