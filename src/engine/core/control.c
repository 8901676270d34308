/* Control requests; control.h says what they are. */
#include "engine/core/control.h"
#include "base/time.h"
#include "engine/core/engine.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

void wf_engine_post(struct wf_group *to, enum wf_note_kind what, void *object, uint64_t value)
{
	while (!wf_group_post(to, what, object, value))
		if (!wf_engine_is_manual(to->engine) || wf_engine_progress(to->engine) < 0)
			sched_yield();
}

struct control {
	wf_control_fn fn;
	wf_control_late late;
	void *context;
	_Atomic int status;
	_Atomic uint32_t references; /* groups and the caller */
	pthread_mutex_t lock;
	pthread_cond_t done;   /* by the monotonic clock: the wall's may be set meanwhile */
	uint32_t left;         /* groups that have not run it; under lock */
	bool nobody_waits;     /* under lock */
	struct wf_note note[]; /* by group, when a worker asks */
};

static void control_put(struct control *control, uint32_t count)
{
	if (atomic_fetch_sub(&control->references, count) != count)
		return;
	pthread_cond_destroy(&control->done);
	pthread_mutex_destroy(&control->lock);
	free(control);
}

void wf_control_run(struct wf_group *group, void *object)
{
	struct control *control = object;
	int status = control->fn(group, control->context), none = 0;
	bool late;

	if (status)
		atomic_compare_exchange_strong(&control->status, &none, status);
	pthread_mutex_lock(&control->lock);
	late = !--control->left && control->nobody_waits && control->late;
	if (!control->left)
		pthread_cond_signal(&control->done);
	pthread_mutex_unlock(&control->lock);
	if (late)
		control->late(group, control->context);
	control_put(control, 1);
}

void wf_control_discard(void *object)
{
	control_put(object, 1);
}

static int control_here(struct weft_engine *engine, wf_control_fn fn, void *context)
{
	int status = 0;

	for (uint32_t g = 0; g < engine->groups; g++) {
		struct wf_worker *worker = &engine->group[g].worker;
		int error;

		/* Another thread's turn is short. */
		while (wf_worker_claim(worker, WF_AT_WORK))
			sched_yield();
		error = fn(&engine->group[g], context);
		wf_worker_leave(worker);
		status = status ? status : error;
	}
	return status;
}

static struct control *make_control(wf_control_fn fn, wf_control_late late, void *context, uint32_t groups)
{
	struct control *control = calloc(1, sizeof(*control) + groups * sizeof(control->note[0]));
	pthread_condattr_t monotonic;

	if (!control)
		return NULL;
	control->fn = fn;
	control->late = late;
	control->context = context;
	control->left = groups;
	atomic_store(&control->references, groups + 1);
	pthread_mutex_init(&control->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&control->done, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return control;
}

int wf_engine_control(struct weft_engine *engine, wf_control_fn fn, wf_control_late late, void *context)
{
	struct control *control;
	struct timespec limit;
	uint64_t at;
	int status = 0, state;

	if (wf_engine_is_manual(engine))
		return control_here(engine, fn, context);
	control = make_control(fn, late, context, engine->groups);
	if (!control)
		return -ENOMEM;
	for (uint32_t g = 0; g < engine->groups; g++)
		wf_engine_post(&engine->group[g], WF_NOTE_CONTROL, control, 0);
	at = wf_deadline(wf_now_ns(), engine->settings.control_ns);
	limit = (struct timespec){ .tv_sec = (time_t)(at / WF_S), .tv_nsec = (long)(at % WF_S) };
	/* Only a provider that hangs inside a call gets us past the limit; context is late's then, or stays. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&control->lock);
	while (control->left && !status)
		status = -pthread_cond_timedwait(&control->done, &control->lock, &limit);
	if (!control->left)
		status = 0;
	control->nobody_waits = status;
	pthread_mutex_unlock(&control->lock);
	pthread_setcancelstate(state, NULL);
	if (!status)
		status = atomic_load(&control->status);
	control_put(control, 1);
	return status;
}

int wf_engine_control_later(struct wf_group *group, wf_control_fn fn, wf_control_late late, void *context)
{
	struct weft_engine *engine = group->engine;
	struct control *control = make_control(fn, late, context, engine->groups);

	if (!control)
		return -ENOMEM;
	control->nobody_waits = true;
	for (uint32_t g = 0; g < engine->groups; g++) {
		wf_note_init(&control->note[g], WF_NOTE_CONTROL, control);
		wf_note_tell(group, &engine->group[g], &control->note[g]);
	}
	control_put(control, 1);
	return 0;
}

static int do_nothing(struct wf_group *group, void *context)
{
	return 0;
}

int wf_engine_turn_each(struct weft_engine *engine)
{
	return wf_engine_control(engine, do_nothing, NULL, NULL);
}
