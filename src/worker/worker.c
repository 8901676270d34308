/* The worker's loop, its sleep and its inbox; worker.h says what it is. */
#include "worker/worker.h"
#include "base/hot.h"
#include "base/time.h"
#include "worker/crew.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOTES_PER_TURN 64
#define CLOCK_TURNS    8            /* between two looks at the clock, at most */
#define SPIN_NS        (50 * WF_US) /* after the last thing that happened, before sleeping */
/* Naps while a rail has no wait object. The nap grows with the time since anything happened, within these limits: */
#define NAP_FIRST_NS  (50 * WF_US) /* the shortest */
#define NAP_BUSY_NS   (50 * WF_US) /* while something is in flight */
#define NAP_QUIET_NS  (2 * WF_MS)  /* the longest, until it has been quiet for NAP_DEEP_NS */
#define NAP_DEEP_NS   (200 * WF_MS)
#define NAP_LONG_NS   (5 * WF_MS) /* the shortest after that; it is the quiet time divided by NAP_PART, … */
#define NAP_PART      500
#define NAP_LAST_NS   (51 * WF_MS) /* … and never longer: two naps between two housekeepings, which wake us anyway */
#define LOOK_NS       (20 * WF_US) /* after a nap, look for this long before the next */
#define DEEP_SLEEP_NS (20 * WF_MS) /* quiet for this long: sleep until a descriptor or a timer wakes us */
#define SLEEP_LAST_NS (1000 * WF_MS)
#define SLEEP_WELL_NS (3600 * WF_S) /* the same where descriptors tell everything: a timer or nothing */
#define SLEEPER_NS    (1000 * WF_MS) /* no news for this long: what wakes us now is likely a sign of life, and soon read */

/* Not write(), which is a cancellation point: the caller may hold a lock, and has not told anyone yet what it posted. */
static bool wake(struct wf_worker *worker)
{
	uint64_t one = 1;

	return syscall(SYS_write, worker->wake_fd, &one, sizeof(one)) == sizeof(one);
}

bool wf_worker_post(struct wf_worker *worker, const struct wf_item *note)
{
	/* Sequentially consistent with the store and load in nap(): either we see it asleep or it sees our ticket, which we
	 * have before the note is there: a note of ours that is still missing does not hide another's behind it. */
	if (!wf_ring_push(&worker->inbox, note))
		return false;
	if (atomic_load(&worker->sleeping))
		wake(worker); /* when it fails the counter is full, so it is readable: awake already */
	return true;
}

void wf_worker_tell(struct wf_worker *worker, struct wf_node *node)
{
	/* The push is sequentially consistent, as in wf_worker_post(). */
	wf_mpsc_push(&worker->told, node);
	if (atomic_load(&worker->sleeping))
		wake(worker);
}

static int take_notes(struct wf_worker *worker)
{
	struct wf_item note;
	int taken = 0;

	while (taken < NOTES_PER_TURN && wf_ring_pop(&worker->inbox, &note)) {
		taken++;
		worker->ops->note(worker->context, &note);
	}
	return taken;
}

/* The clock costs as much as the rest of a turn that finds nothing. So it is read every few turns, and at once when the
 * kernel's tick has passed or the worker has slept: between turns that follow each other it hardly moves. */
WF_HOT void wf_worker_read_clock(struct wf_worker *worker)
{
	uint64_t tick_ns = wf_tick_ns();

	if (worker->clock_turns && tick_ns == worker->tick_ns) {
		worker->clock_turns--;
		return;
	}
	worker->tick_ns = tick_ns;
	worker->clock_turns = CLOCK_TURNS - 1;
	worker->now_ns = wf_now_ns();
}

WF_HOT static int turn(struct wf_worker *worker)
{
	int happened;

	wf_worker_read_clock(worker);
	worker->faint = 0;
	happened = take_notes(worker);
	/* Not counted: the housekeeping of an idle engine must not keep it awake. */
	if (worker->now_ns / WF_MS >= worker->timers.tick)
		wf_timers_run(&worker->timers, worker->now_ns);
	return happened + worker->ops->turn(worker->context, worker->now_ns);
}

static uint64_t within(uint64_t value, uint64_t least, uint64_t most)
{
	return value < least ? least : value > most ? most : value;
}

/* Even with descriptors to wake us the naps stay short at first: a provider may have read only a part of what its descriptor
 * announced, and will not announce the rest. */
static uint64_t nap_by_descriptors(const struct wf_worker *worker, uint64_t quiet)
{
	bool sleeper = worker->now_ns - worker->news_ns > SLEEPER_NS;
	uint64_t part = sleeper ? quiet / 2 : quiet / 16;

	if (worker->descriptors_tell_all && (sleeper || quiet > DEEP_SLEEP_NS))
		return SLEEP_WELL_NS;
	if (quiet > DEEP_SLEEP_NS)
		return SLEEP_LAST_NS;
	return part > NAP_FIRST_NS ? part : NAP_FIRST_NS;
}

/* How long to nap at most, given how long nothing has happened. */
static uint64_t nap_limit(struct wf_worker *worker)
{
	uint64_t quiet = worker->now_ns - worker->idle_ns;

	if (worker->ops->can_sleep(worker->context))
		return nap_by_descriptors(worker, quiet);
	if (worker->ops->in_flight(worker->context))
		return NAP_BUSY_NS;
	if (quiet > NAP_DEEP_NS)
		return within(quiet / NAP_PART, NAP_LONG_NS, NAP_LAST_NS);
	return within(quiet / 4, NAP_FIRST_NS, NAP_QUIET_NS);
}

void wf_worker_watch(struct wf_worker *worker, int fd)
{
	/* Edge triggered: some providers leave theirs readable for good, and only what is new should wake us. What
	 * happens between our last look and the sleep is an edge too, and is kept for it. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.fd = fd };

	epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void sleep_for(struct wf_worker *worker, uint64_t limit_ns)
{
	struct timespec timeout = { .tv_sec = (time_t)(limit_ns / WF_S), .tv_nsec = (long)(limit_ns % WF_S) };
	struct epoll_event events[8];
	uint64_t drained;
	int got = epoll_pwait2(worker->epoll_fd, events, 8, &timeout, NULL);

	if (got < 0 && errno == ENOSYS) /* before Linux 5.11: whole milliseconds */
		got = epoll_wait(worker->epoll_fd, events, 8, (int)((limit_ns + WF_MS - 1) / WF_MS));
	if (got <= 0)
		return;
	for (int i = 0; i < got; i++)
		if (events[i].data.fd !=
		    worker->wake_fd) {       /* that one is for notes, which say themselves what they are */
			worker->idle_ns = 0; /* look closely again for a while */
			worker->woken = true;
		}
	/* Nonblocking: nothing to drain is no error. */
	if (read(worker->wake_fd, &drained, sizeof(drained)) < 0)
		return;
}

static bool is_over(struct wf_worker *worker)
{
	return atomic_load_explicit(&worker->stopping, memory_order_acquire) &&
	       (!worker->ops->may_stop || worker->ops->may_stop(worker->context));
}

static void nap(struct wf_worker *worker)
{
	uint64_t limit, next, now;

	atomic_store(&worker->sleeping, 1);
	if (wf_ring_awaits(&worker->inbox) || wf_mpsc_any(&worker->told) || is_over(worker)) {
		atomic_store(&worker->sleeping, 0);
		return;
	}
	limit = nap_limit(worker);
	if (limit > worker->nap_most_ns)
		limit = worker->nap_most_ns;
	next = wf_timers_next(&worker->timers);
	/* Now, not when the turn began: one that closed an endpoint or lost its CPU took long enough to sleep past what is
	 * due. */
	now = wf_now_ns();
	if (next != WF_NEVER)
		limit = next <= now ? 0 : limit < next - now ? limit : next - now;
	sleep_for(worker, limit);
	worker->clock_turns = 0;
	atomic_store(&worker->sleeping, 0);
}

static void something_happened(struct wf_worker *worker)
{
	if (worker->looks)
		wf_spin_learn(&worker->spin, !worker->napped);
	worker->idle_ns = 0;
	worker->news_ns = worker->now_ns;
	worker->looks = worker->napped = worker->woken = false;
}

/* Nothing happened in this turn: look again, or nap. *look_until: no nap before then. */
static void idle(struct wf_worker *worker, uint64_t *look_until)
{
	uint64_t quiet;

	if (!worker->idle_ns) {
		worker->idle_ns = worker->now_ns;
		if (!worker->napped)
			worker->looks = wf_spin_worth_it(&worker->spin);
	}
	quiet = worker->now_ns - worker->idle_ns;
	if (worker->now_ns < *look_until)
		return;
	if (quiet <= SPIN_NS && (worker->looks || worker->woken || worker->ops->in_flight(worker->context)))
		return;
	if (!worker->nap_most_ns || (quiet <= SPIN_NS && !worker->ops->can_sleep(worker->context))) {
		sched_yield(); /* nothing would wake us: look on, but let others have the core first */
		worker->clock_turns = 0;
		return;
	}
	worker->napped = true;
	nap(worker);
	*look_until = quiet < DEEP_SLEEP_NS && worker->looks ? wf_now_ns() + LOOK_NS : 0;
}

/* ---- the thread ---- */

static void set_phase(struct wf_worker *worker, enum wf_worker_phase phase)
{
	pthread_mutex_lock(&worker->lock);
	worker->phase = phase;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
}

/* With the lock held: whether it got there in time. */
static bool await_phase(struct wf_worker *worker, enum wf_worker_phase phase, uint64_t limit_ns)
{
	uint64_t at = wf_deadline(wf_now_ns(), limit_ns);
	struct timespec limit = { .tv_sec = (time_t)(at / WF_S), .tv_nsec = (long)(at % WF_S) };
	int error = 0;

	while (worker->phase < phase && !error)
		error = at == WF_NEVER ? pthread_cond_wait(&worker->changed, &worker->lock)
				       : pthread_cond_timedwait(&worker->changed, &worker->lock, &limit);
	return worker->phase >= phase;
}

/* Nothing touches the worker after this: the thread that waits for it may free it, or gone() does. */
static void finish(struct wf_worker *worker)
{
	bool abandoned;

	pthread_mutex_lock(&worker->lock);
	worker->phase = WF_WORKER_FINISHED;
	abandoned = worker->abandoned;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
	if (abandoned)
		worker->ops->gone(worker->context);
}

static void *loop(void *argument)
{
	struct wf_worker *worker = argument;
	uint64_t look_until = 0;

	/* A nap of 50 us should take 50 us: the kernel's default is to add as much again. */
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);

	if (worker->cpu >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(worker->cpu, &set);
		/* A container may forbid it; running unpinned is slower, not wrong. */
		pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	}
	worker->start_status = worker->ops->start(worker->context);
	set_phase(worker, worker->start_status ? WF_WORKER_FINISHED : WF_WORKER_LOOPING);
	if (worker->start_status)
		return NULL;
	while (!is_over(worker)) {
		/* Signs of life are answered and change nothing else: a worker that heard no more sleeps on as deeply. */
		if (turn(worker) > worker->faint)
			something_happened(worker);
		else
			idle(worker, &look_until);
	}
	set_phase(worker, WF_WORKER_STOPPING);
	worker->ops->stop(worker->context);
	finish(worker);
	return NULL;
}

static int start_thread(struct wf_worker *worker)
{
	int error = wf_thread_create(&worker->thread, loop, worker);

	if (error)
		return -error;
	pthread_mutex_lock(&worker->lock);
	await_phase(worker, WF_WORKER_LOOPING, WF_NEVER);
	pthread_mutex_unlock(&worker->lock);
	if (worker->start_status)
		pthread_join(worker->thread, NULL);
	return worker->start_status;
}

static void init_lock(struct wf_worker *worker)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&worker->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&worker->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

int wf_worker_open(struct wf_worker *worker, const struct wf_worker_ops *ops, void *context, uint64_t inbox, int cpu,
		   bool has_thread)
{
	int error;

	memset(worker, 0, sizeof(*worker));
	worker->ops = ops;
	worker->context = context;
	worker->cpu = cpu;
	init_lock(worker);
	worker->nap_most_ns = WF_NEVER;
	worker->now_ns = worker->news_ns = wf_now_ns();
	wf_mpsc_init(&worker->told);
	wf_timers_init(&worker->timers, worker->now_ns);
	worker->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	error = worker->wake_fd < 0 || worker->epoll_fd < 0 ? -errno : 0;
	if (!error) {
		wf_worker_watch(worker, worker->wake_fd);
		error = wf_ring_init(&worker->inbox, inbox);
	}
	if (!error)
		error = has_thread ? start_thread(worker) : ops->start(context);
	worker->has_thread = has_thread;
	if (error)
		wf_worker_close(worker);
	return error;
}

WF_HOT int wf_worker_turn(struct wf_worker *worker)
{
	int happened, who = wf_worker_claim(worker, WF_IN_TURN);

	if (who)
		return who == WF_AT_WORK ? 0 : -EBUSY;
	happened = turn(worker);
	wf_worker_leave(worker);
	return happened;
}

void wf_worker_ask_to_stop(struct wf_worker *worker)
{
	if (worker->wake_fd < 0)
		return;
	atomic_store(&worker->stopping, 1);
	wake(worker);
}

int wf_worker_stop(struct wf_worker *worker, const struct wf_worker_limits *limits)
{
	bool finished;

	if (worker->wake_fd < 0)
		return 0;
	if (!worker->has_thread) {
		worker->ops->stop(worker->context);
		return 0;
	}
	wf_worker_ask_to_stop(worker);
	pthread_mutex_lock(&worker->lock);
	finished = await_phase(worker, WF_WORKER_STOPPING, limits->turn_ns) &&
		   await_phase(worker, WF_WORKER_FINISHED, limits->stop_ns);
	worker->abandoned = !finished;
	pthread_mutex_unlock(&worker->lock);
	if (finished)
		pthread_join(worker->thread, NULL);
	else
		pthread_detach(worker->thread);
	return finished ? 0 : -ETIMEDOUT;
}

void wf_worker_close(struct wf_worker *worker)
{
	if (worker->wake_fd < 0)
		return;
	close(worker->wake_fd);
	if (worker->epoll_fd >= 0)
		close(worker->epoll_fd);
	worker->wake_fd = -1;
	wf_ring_destroy(&worker->inbox);
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->lock);
}
