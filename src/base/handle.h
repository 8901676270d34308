/*
 * Numbered handles: a slot and its generation. A handle that was closed is refused, never followed, and an object in
 * use by one thread is not freed by another: whoever looks one up holds a reference until it puts it back.
 */
#ifndef WF_BASE_HANDLE_H
#define WF_BASE_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define WF_HANDLE_CHUNKS 20

struct wf_handle_slot {
	_Atomic uint64_t state; /* generation:31 live:1 references:32 */
	void *object;
	uint32_t next_free;
};

struct wf_handles {
	pthread_mutex_t lock; /* add, and the last put: never on the way of a piece */
	_Atomic(struct wf_handle_slot *) chunk[WF_HANDLE_CHUNKS]; /* chunk i holds 64 << i slots and never moves */
	uint32_t slots, first_free;                               /* slot numbers start at 1 */
	_Atomic uint64_t live;
	void (*release)(void *object); /* the last reference is gone */
};

void wf_handles_init(struct wf_handles *handles, void (*release)(void *object));
void wf_handles_destroy(struct wf_handles *handles);

int wf_handle_add(struct wf_handles *handles, void *object, uint64_t *ret_handle); /* with one reference, the owner's */
void *wf_handle_get(struct wf_handles *handles, uint64_t handle);                  /* NULL: unknown or retired */
/* The same without a reference: for one who knows that nobody frees it meanwhile. */
void *wf_handle_peek(struct wf_handles *handles, uint64_t handle);
void wf_handle_ref(struct wf_handles *handles, uint64_t handle); /* for one who holds a reference */
void wf_handle_put(struct wf_handles *handles, uint64_t handle);
/* From now on get() refuses it. The owner's reference stays and must be put. NULL: it was not live. */
void *wf_handle_retire(struct wf_handles *handles, uint64_t handle);
/* The same, but only when nobody but the owner holds a reference: -EBUSY otherwise, -ENOENT when not live. */
int wf_handle_retire_idle(struct wf_handles *handles, uint64_t handle);
/* How many hold it, the owner included. For one who holds a reference. */
uint32_t wf_handle_references(struct wf_handles *handles, uint64_t handle);
/* Calls fn for every live object, which is referenced meanwhile. */
void wf_handles_each(struct wf_handles *handles, void (*fn)(void *object, void *context), void *context);
/* At the very end, on the only thread left: fn, then release, for every object that still has references, live or not. */
void wf_handles_purge(struct wf_handles *handles, void (*fn)(void *object));
#endif
