/* Ends that are kept for those who wait; wait.h says who calls what on which thread. */
#include "engine/ops/wait.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/ops/request.h"
#include "engine/ops/transfer.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wake_all(struct weft_engine *engine)
{
	atomic_fetch_add(&engine->kept_ends, 1);
	syscall(SYS_futex, &engine->kept_ends, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void wf_wait_ended(struct wf_transfer *transfer)
{
	struct weft_engine *engine = transfer->engine; /* a waiter may take it, and the slot be used anew, at once */

	/* Sequentially consistent with wf_wait(): either it sees this end or we see that it waits. */
	atomic_store(&transfer->there, 1);
	if (atomic_load(&engine->kept_waiters))
		wake_all(engine);
}

/* Sleeps until another end has come since seen was read, or the deadline; it may return early. */
static void sleep_until(struct weft_engine *engine, uint32_t seen, uint64_t deadline_ns)
{
	uint64_t now = wf_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
	struct timespec timeout;

	if (wf_engine_is_manual(engine)) {
		if (wf_engine_progress(engine) <= 0)
			sched_yield();
		return;
	}
	left = left < 3600 * WF_S ? left : 3600 * WF_S;
	timeout = (struct timespec){ .tv_sec = (time_t)(left / WF_S), .tv_nsec = (long)(left % WF_S) };
	syscall(SYS_futex, &engine->kept_ends, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
}

/* One of those who wait for the same operation takes its end, the others find that it is gone. */
static int look(struct wf_transfer *transfer, weft_transfer id, struct weft_event *event, size_t event_bytes)
{
	if (atomic_load(&transfer->kept) != id)
		return -ENOENT;
	if (!atomic_load(&transfer->there))
		return -EAGAIN;
	if (!atomic_compare_exchange_strong(&transfer->kept, &id, 0))
		return -ENOENT;
	wf_item_take(&transfer->item, event, event_bytes);
	return 0;
}

static int wait_for(struct weft_engine *engine, struct wf_transfer *transfer, weft_transfer id, uint64_t deadline_ns,
		    struct weft_event *event, size_t event_bytes)
{
	for (;;) {
		uint32_t seen = atomic_load(&engine->kept_ends);
		/* Nothing is taken from an engine that closes: what an event points to would go with it. */
		int status = atomic_load(&engine->closing) ? -ESHUTDOWN : look(transfer, id, event, event_bytes);

		if (status != -EAGAIN)
			return status;
		if (wf_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		sleep_until(engine, seen, deadline_ns);
	}
}

int wf_wait(struct weft_engine *engine, weft_transfer id, uint64_t timeout_ns, struct weft_event *event,
	    size_t event_bytes)
{
	struct wf_transfer *transfer;
	int status = -ENOENT;

	atomic_fetch_add(&engine->kept_waiters, 1);
	transfer = wf_transfer_find(engine, id);
	if (transfer)
		status = wait_for(engine, transfer, id, wf_deadline(wf_now_ns(), timeout_ns), event, event_bytes);
	if (status == -ENOENT)
		wf_request_no_such(engine, "transfer", id);
	/* The last we do with the engine: a closer waits for this. */
	atomic_fetch_sub(&engine->kept_waiters, 1);
	return status;
}

bool wf_wait_shut(struct weft_engine *engine, uint64_t limit_ns)
{
	uint64_t limit = wf_deadline(wf_now_ns(), limit_ns);

	while (atomic_load(&engine->kept_waiters)) {
		if (wf_now_ns() > limit)
			return false;
		wake_all(engine);
		sched_yield();
	}
	return true;
}

void wf_wait_discard(struct weft_engine *engine)
{
	for (uint32_t i = 0; engine->internals.base && i < wf_transfer_slots(engine); i++) {
		struct wf_transfer *transfer = wf_transfer_at(engine, i);
		struct weft_event event;

		if (!atomic_load(&transfer->kept) || !atomic_load(&transfer->there))
			continue;
		wf_item_take(&transfer->item, &event, sizeof(event));
		weft_event_release(&event);
	}
}
