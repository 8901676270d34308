/*
 * Control requests: rare work that must run where the rails live. An application's thread has a function run on every group's
 * worker and waits for all of them; a worker can ask for the same without waiting. Also notes from application threads that must
 * arrive.
 */
#ifndef WF_ENGINE_CONTROL_H
#define WF_ENGINE_CONTROL_H

#include "engine/move/group.h"

typedef int (*wf_control_fn)(struct wf_group *group, void *context);
typedef void (*wf_control_late)(struct wf_group *group, void *context);

/* Runs fn on each worker and waits: 0, the first failure, -ENOMEM, or -ETIMEDOUT when a worker hangs. After -ETIMEDOUT the
 * context belongs to late, if it is not NULL: the last worker that gets through calls it, to undo what nobody waits for. */
int wf_engine_control(struct weft_engine *engine, wf_control_fn fn, wf_control_late late, void *context);
/* The same on a worker, which does not wait: late is called in any case, unless there is no memory (-ENOMEM). */
int wf_engine_control_later(struct wf_group *group, wf_control_fn fn, wf_control_late late, void *context);
/* Returns when every worker has begun a turn since: what it looked up before, it has let go of. -ETIMEDOUT, -ENOMEM. */
int wf_engine_turn_each(struct weft_engine *engine);
/* A note that must arrive, from an application's thread: a full inbox is waited for, and its worker empties it. */
void wf_engine_post(struct wf_group *to, enum wf_note_kind what, void *object, uint64_t value);

void wf_control_run(struct wf_group *group, void *control); /* the worker's side of WF_NOTE_CONTROL */
void wf_control_discard(void *control);                     /* a note that nobody reads any more */
#endif
