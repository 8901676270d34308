/* Completion queues; queue.h says who does what. */
#include "engine/core/queue.h"
#include "base/hot.h"
#include "base/sized.h"
#include "base/time.h"
#include "engine/core/engine.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS (20 * WF_US) /* how long a wait polls before it sleeps, where that pays off */

int wf_queue_init(struct weft_engine *engine, weft_queue **ret_queue)
{
	weft_queue *queue = aligned_alloc(64, (sizeof(*queue) + 63) & ~(size_t)63);

	if (!queue)
		return -ENOMEM;
	memset(queue, 0, sizeof(*queue));
	queue->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (queue->fd < 0) {
		free(queue);
		return -errno;
	}
	queue->engine = engine;
	wf_list_init(&queue->link);
	pthread_mutex_init(&queue->consumer, NULL);
	wf_mpsc_init(&queue->items);
	*ret_queue = queue;
	return 0;
}

/* Not write() and read(), which are cancellation points: a cancelled thread must not take a lock with it. A full
 * counter is readable, which is all that is needed. */
static void ring(weft_queue *queue)
{
	uint64_t one = 1;

	syscall(SYS_write, queue->fd, &one, sizeof(one));
}

static void silence(weft_queue *queue)
{
	uint64_t drained;

	syscall(SYS_read, queue->fd, &drained, sizeof(drained));
}

WF_HOT void wf_queue_push(weft_queue *queue, struct wf_item_event *item)
{
	/* Sequentially consistent with arm(): either it sees what we pushed, or we see it armed. */
	wf_mpsc_push(&queue->items, &item->node);
	if (atomic_load(&queue->armed) && atomic_exchange(&queue->armed, 0))
		ring(queue);
}

WF_HOT void wf_queue_push_end(weft_queue *queue, struct wf_item_event *item)
{
	/* A thread that has taken the last end may close the queue. The operation is no longer in flight when its
	 * end can be taken, and the closer waits until every worker has begun another turn and pushers have left. */
	atomic_fetch_sub(&queue->in_flight, 1);
	wf_queue_push(queue, item);
}

/* Returns true if nothing is there, so that the next pusher will write the fd. */
static bool arm(weft_queue *queue)
{
	atomic_store(&queue->armed, 1);
	return !wf_mpsc_any(&queue->items);
}

/* A program built with an older header gets the fields that it knows; one with a newer header gets zeros for those
 * that we do not. */
__attribute__((noinline)) static void take_other(struct wf_item_event *item, struct weft_event *event,
						 size_t event_bytes)
{
	struct weft_event whole = { 0 };

	item->take(item, &whole);
	wf_sized_write(event, event_bytes, &whole, sizeof(whole));
}

WF_HOT void wf_item_take(struct wf_item_event *item, struct weft_event *event, size_t event_bytes)
{
	if (__builtin_expect(event_bytes != sizeof(*event), 0)) {
		take_other(item, event, event_bytes);
		return;
	}
	memset(event, 0, sizeof(*event));
	item->take(item, event);
}

/* Not part of the first look, which must cost nothing when there is nothing. */
WF_HOT __attribute__((noinline)) static int take_events(weft_queue *queue, struct weft_event *events,
							size_t event_bytes, int max)
{
	struct wf_node *node;
	int got = 0;

	pthread_mutex_lock(&queue->consumer);
	while (got < max && (node = wf_mpsc_pop(&queue->items))) {
		wf_item_take(wf_container(node, struct wf_item_event, node), events, event_bytes);
		events = (struct weft_event *)((char *)events + event_bytes);
		got++;
	}
	if (!got && atomic_load_explicit(&queue->fd_used, memory_order_relaxed)) {
		silence(queue);
		if (!arm(queue))
			ring(queue);
	}
	pthread_mutex_unlock(&queue->consumer);
	return got;
}

WF_HOT int wf_queue_poll(weft_queue *queue, struct weft_event *events, size_t event_bytes, int max)
{
	/* The common empty look costs a few loads. */
	if (!atomic_load_explicit(&queue->fd_used, memory_order_relaxed) && !wf_mpsc_any(&queue->items))
		return 0;
	return take_events(queue, events, event_bytes, max);
}

/* A waiter's last step, whether it returns or is cancelled. */
static void leave(void *object)
{
	weft_queue *queue = object;

	/* We may have consumed a wake-up that was meant for several: those that still sleep must hear of the next. */
	if (atomic_load(&queue->waiters) > 1) {
		pthread_mutex_lock(&queue->consumer);
		if (!arm(queue))
			ring(queue);
		pthread_mutex_unlock(&queue->consumer);
	}
	/* The last access to the queue: a closer waits for this. */
	atomic_fetch_sub(&queue->waiters, 1);
}

/* Sleeps until someone pushes, the queue shuts or the deadline. Spurious returns are fine. */
static void sleep_until(weft_queue *queue, uint64_t deadline_ns)
{
	struct pollfd fd = { .fd = queue->fd, .events = POLLIN };
	uint64_t now = wf_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
	struct timespec timeout = { .tv_sec = (time_t)(left / WF_S), .tv_nsec = (long)(left % WF_S) };
	bool quiet;

	if (left > 3600 * WF_S)
		timeout = (struct timespec){ .tv_sec = 3600 };
	pthread_mutex_lock(&queue->consumer);
	quiet = arm(queue);
	pthread_mutex_unlock(&queue->consumer);
	if (!quiet || atomic_load(&queue->closed))
		return;
	/* The only place where a waiting thread may be cancelled: with manual progress there is none (worker.h). */
	pthread_cleanup_push(leave, queue);
	ppoll(&fd, 1, &timeout, NULL);
	pthread_cleanup_pop(0);
	/* If the application uses the fd, its next empty poll drains it. Here several waiters may share one wake-up,
	 * and a waiter that finds nothing arms again. */
	if (!atomic_load(&queue->fd_used))
		silence(queue);
}

static int wait_once(weft_queue *queue, struct weft_event *events, size_t event_bytes, int max, uint64_t deadline_ns)
{
	uint64_t start = wf_now_ns();
	bool look = false, slept = false, begun = false;

	for (;;) {
		uint64_t now;
		int got;

		/* Nothing is taken from an engine that closes: what an event points to would go with it. */
		if (atomic_load(&queue->engine->closing) || atomic_load(&queue->closed))
			return -ESHUTDOWN;
		got = wf_queue_poll(queue, events, event_bytes, max);
		if (got) {
			if (look)
				wf_spin_learn(&queue->spin, !slept);
			return got;
		}
		if (!begun) { /* events that were already there teach nothing */
			look = wf_spin_worth_it(&queue->spin);
			begun = true;
		}
		now = wf_now_ns();
		if (now >= deadline_ns)
			return 0;
		if (wf_engine_is_manual(queue->engine)) {
			if (wf_engine_progress(queue->engine) <= 0 && now - start > SPIN_NS)
				sched_yield();
		} else if (!look || now - start > SPIN_NS) {
			sleep_until(queue, deadline_ns);
			slept = true;
		}
	}
}

int wf_queue_wait(weft_queue *queue, struct weft_event *events, size_t event_bytes, int max, uint64_t timeout_ns)
{
	int got;

	atomic_fetch_add(&queue->waiters, 1);
	got = wait_once(queue, events, event_bytes, max, wf_deadline(wf_now_ns(), timeout_ns));
	leave(queue);
	return got;
}

int wf_queue_fd(weft_queue *queue)
{
	atomic_store(&queue->fd_used, 1);
	pthread_mutex_lock(&queue->consumer);
	if (!arm(queue))
		ring(queue);
	pthread_mutex_unlock(&queue->consumer);
	return queue->fd;
}

bool wf_queue_shut(weft_queue *queue, uint64_t limit_ns)
{
	uint64_t limit = wf_deadline(wf_now_ns(), limit_ns);

	atomic_store_explicit(&queue->closed, 1, memory_order_release);
	/* A waiter checks closed before it sleeps and after: it leaves within one wake-up. */
	while (atomic_load(&queue->waiters) || atomic_load(&queue->pushers)) {
		if (wf_now_ns() > limit)
			return false;
		ring(queue);
		sched_yield();
	}
	return true;
}

void wf_queue_free(weft_queue *queue)
{
	struct weft_event event;

	while (wf_queue_poll(queue, &event, sizeof(event), 1) == 1)
		weft_event_release(&event);
	close(queue->fd);
	pthread_mutex_destroy(&queue->consumer);
	free(queue);
}

struct error_payload {
	struct wf_payload payload;
	struct weft_error error;
	char later[WF_SIZED_ROOM]; /* zeros, where a newer header has fields */
};

static void error_release(struct wf_payload *payload)
{
	free(wf_container(payload, struct error_payload, payload));
}

struct wf_payload *wf_error_payload(const struct weft_error *error, const struct weft_error **ret_error)
{
	struct error_payload *copy = error ? calloc(1, sizeof(*copy)) : NULL;

	*ret_error = NULL;
	if (!copy)
		return NULL;
	copy->payload.release = error_release;
	copy->error = *error;
	*ret_error = &copy->error;
	return &copy->payload;
}

struct announced_item {
	struct wf_item_event item;
	struct wf_payload *payload;
	const struct weft_error *error;
	struct wf_announcement what;
	struct weft_engine *engine;
};

static void announced_take(struct wf_item_event *item, struct weft_event *event)
{
	struct announced_item *announced = wf_container(item, struct announced_item, item);

	event->type = announced->what.type;
	event->status = announced->what.status;
	event->peer = announced->what.peer;
	event->peer_user = announced->what.peer_user;
	event->error = announced->error;
	event->owner = announced->payload;
	atomic_fetch_sub_explicit(&announced->engine->announced, 1, memory_order_relaxed);
	free(announced);
}

void wf_queue_announce(weft_queue *queue, const struct wf_announcement *what)
{
	struct announced_item *item = calloc(1, sizeof(*item));

	if (!item)
		return; /* the operations themselves still end; only this event is lost */
	item->item.take = announced_take;
	item->what = *what;
	item->engine = queue->engine;
	atomic_fetch_add_explicit(&queue->engine->announced, 1, memory_order_relaxed);
	item->payload = wf_error_payload(what->error, &item->error);
	wf_queue_push(queue, &item->item);
}
