/* Completion queues; queue.h says who does what. */
#include "engine/queue.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/engine.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS (20 * WF_US) /* a wait looks so long before it sleeps, where that pays off */

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

/* Not write() and read(), which are cancellation points: a thread that is cancelled must not take a lock with it. When its
 * counter is full it is readable, which is all we want. */
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
	/* Sequentially consistent with arm(): either it sees what we pushed or we see it armed. */
	wf_mpsc_push(&queue->items, &item->node);
	if (atomic_load(&queue->armed) && atomic_exchange(&queue->armed, 0))
		ring(queue);
}

WF_HOT void wf_queue_push_end(weft_queue *queue, struct wf_item_event *item)
{
	/* Whoever has taken the last end may close the queue: it is not in flight any more when it can be taken, and the
	 * closer waits until every worker has begun another turn and pushers are out of here. */
	atomic_fetch_sub(&queue->in_flight, 1);
	wf_queue_push(queue, item);
}

/* True: nothing is there, and whoever pushes next will write the fd. */
static bool arm(weft_queue *queue)
{
	atomic_store(&queue->armed, 1);
	return !wf_mpsc_any(&queue->items);
}

/* Apart from the look that comes first, which is to cost nothing when there is nothing. */
WF_HOT __attribute__((noinline)) static int take_events(weft_queue *queue, struct weft_event *events, int max)
{
	struct wf_node *node;
	int got = 0;

	pthread_mutex_lock(&queue->consumer);
	while (got < max && (node = wf_mpsc_pop(&queue->items))) {
		struct wf_item_event *item = wf_container(node, struct wf_item_event, node);

		memset(&events[got], 0, sizeof(events[got]));
		item->take(item, &events[got++]);
	}
	if (!got && atomic_load_explicit(&queue->fd_used, memory_order_relaxed)) {
		silence(queue);
		if (!arm(queue))
			ring(queue);
	}
	pthread_mutex_unlock(&queue->consumer);
	return got;
}

WF_HOT int wf_queue_poll(weft_queue *queue, struct weft_event *events, int max)
{
	/* The common empty look costs a few loads. */
	if (!atomic_load_explicit(&queue->fd_used, memory_order_relaxed) && !wf_mpsc_any(&queue->items))
		return 0;
	return take_events(queue, events, max);
}

/* A waiter's last, whether it returns or is cancelled. */
static void leave(void *object)
{
	weft_queue *queue = object;

	/* We may have eaten a wake-up that was meant for several: those who still sleep are to hear of the next. */
	if (atomic_load(&queue->waiters) > 1) {
		pthread_mutex_lock(&queue->consumer);
		if (!arm(queue))
			ring(queue);
		pthread_mutex_unlock(&queue->consumer);
	}
	/* The last we do with the queue: a closer waits for this. */
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
	/* The one place where a waiting thread may be cancelled. */
	pthread_cleanup_push(leave, queue);
	ppoll(&fd, 1, &timeout, NULL);
	pthread_cleanup_pop(0);
	/* With an application on the fd the next empty poll drains it; here several waiters may share one wake-up, and
	 * whoever finds nothing arms again. */
	if (!atomic_load(&queue->fd_used))
		silence(queue);
}

static int wait_once(weft_queue *queue, struct weft_event *events, int max, uint64_t deadline_ns)
{
	uint64_t start = wf_now_ns();
	bool look = false, slept = false, begun = false;

	for (;;) {
		int got = wf_queue_poll(queue, events, max);
		uint64_t now;

		if (got) {
			if (look)
				wf_spin_learn(&queue->spin, !slept);
			return got;
		}
		if (!begun) { /* what was there already teaches nothing */
			look = wf_spin_worth_it(&queue->spin);
			begun = true;
		}
		if (atomic_load_explicit(&queue->closed, memory_order_acquire))
			return -ESHUTDOWN;
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

int wf_queue_wait(weft_queue *queue, struct weft_event *events, int max, uint64_t timeout_ns)
{
	bool manual = wf_engine_is_manual(queue->engine);
	int got, state;

	/* Without a thread of ours the caller is inside the provider most of the time: it is not to end there. */
	if (manual)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	atomic_fetch_add(&queue->waiters, 1);
	got = wait_once(queue, events, max, wf_deadline(wf_now_ns(), timeout_ns));
	leave(queue);
	if (manual)
		pthread_setcancelstate(state, NULL);
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
	/* A waiter looks at closed before it sleeps and after: it leaves within one wake-up. */
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

	while (wf_queue_poll(queue, &event, 1) == 1)
		weft_event_release(&event);
	close(queue->fd);
	pthread_mutex_destroy(&queue->consumer);
	free(queue);
}

struct error_payload {
	struct wf_payload payload;
	struct weft_error error;
};

static void error_release(struct wf_payload *payload)
{
	free(wf_container(payload, struct error_payload, payload));
}

struct wf_payload *wf_error_payload(const struct weft_error *error, const struct weft_error **ret_error)
{
	struct error_payload *copy = error ? malloc(sizeof(*copy)) : NULL;

	*ret_error = NULL;
	if (!copy)
		return NULL;
	copy->payload.release = error_release;
	copy->error = *error;
	*ret_error = &copy->error;
	return &copy->payload;
}

struct notice_item {
	struct wf_item_event item;
	struct wf_payload *payload;
	const struct weft_error *error;
	struct wf_notice notice;
	struct weft_engine *engine;
};

static void notice_take(struct wf_item_event *item, struct weft_event *event)
{
	struct notice_item *notice = wf_container(item, struct notice_item, item);

	event->type = notice->notice.type;
	event->status = notice->notice.status;
	event->peer = notice->notice.peer;
	event->error = notice->error;
	event->owner = notice->payload;
	atomic_fetch_sub_explicit(&notice->engine->notices, 1, memory_order_relaxed);
	free(notice);
}

void wf_queue_notice(weft_queue *queue, const struct wf_notice *notice)
{
	struct notice_item *item = calloc(1, sizeof(*item));

	if (!item)
		return; /* the operations themselves still end; only the news is lost */
	item->item.take = notice_take;
	item->notice = *notice;
	item->engine = queue->engine;
	atomic_fetch_add_explicit(&queue->engine->notices, 1, memory_order_relaxed);
	item->payload = wf_error_payload(notice->error, &item->error);
	wf_queue_push(queue, &item->item);
}
