/*
 * Numbered handles: a slot and its generation. A closed handle is refused, never followed. An object that one thread
 * uses is not freed by another: every look-up holds a reference until the caller puts it back.
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
	pthread_mutex_t lock;                                     /* for add and the last put; no piece ever takes it */
	_Atomic(struct wf_handle_slot *) chunk[WF_HANDLE_CHUNKS]; /* chunk i holds 64 << i slots and never moves */
	uint32_t slots, first_free;                               /* slot numbers start at 1 */
	_Atomic uint64_t live;
	void (*release)(void *object); /* the last reference is gone */
};

void wf_handles_init(struct wf_handles *handles, void (*release)(void *object));
void wf_handles_destroy(struct wf_handles *handles);

/* The object starts with one reference, the owner's. */
int wf_handle_add(struct wf_handles *handles, void *object, uint64_t *ret_handle);
void *wf_handle_get(struct wf_handles *handles, uint64_t handle); /* NULL: unknown or retired, or 2^26 use it */
/* Takes no reference: for callers that know that nobody frees the object meanwhile. */
void *wf_handle_peek(struct wf_handles *handles, uint64_t handle);
void wf_handle_ref(struct wf_handles *handles, uint64_t handle); /* the caller already holds a reference */
void wf_handle_put(struct wf_handles *handles, uint64_t handle);
/* From now on get() refuses the handle. The owner's reference stays and must be put. Returns NULL if it was not
 * live. */
void *wf_handle_retire(struct wf_handles *handles, uint64_t handle);
/* Undoes retire(), for the owner. */
void wf_handle_revive(struct wf_handles *handles, uint64_t handle);
/* Retires the handle only if the owner holds the sole reference, walkers of each() not counted: else -EBUSY, or -ENOENT if it is
 * not live. */
int wf_handle_retire_idle(struct wf_handles *handles, uint64_t handle);
/* Number of references, including the owner's. The caller holds one, or walks. */
uint32_t wf_handle_references(struct wf_handles *handles, uint64_t handle);
/* Calls fn for every live object, and keeps it meanwhile. That is no reference: the object is not in use by it. */
void wf_handles_each(struct wf_handles *handles, void (*fn)(void *object, void *context), void *context);
/* Runs at the very end, on the only thread left: calls fn, then release, for every object that still has references,
 * live or not. */
void wf_handles_purge(struct wf_handles *handles, void (*fn)(void *object));
#endif
