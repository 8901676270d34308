/*
 * A card works while nobody polls: one thread per process carries out what is due on cards that have not been polled for a
 * while, and writes to the channels of armed queues. It sleeps for good while no card has anything to do. The thread that
 * polls does all the work as long as it polls.
 */
#include "card.h"

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 200000u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* the list and the thread's sleep; before any card's lock */
static pthread_cond_t something = PTHREAD_COND_INITIALIZER;
static struct card *cards;
static int thread_pid;
static _Atomic bool asleep;

static void look_after(struct card *card, uint64_t now)
{
	/* A thread that polls is quicker, and armed queues are not polled. */
	if (now - atomic_load_explicit(&card->polled_at, memory_order_relaxed) < sim_ticks_of_ns(PERIOD_NS))
		return;
	pthread_mutex_lock(&card->lock);
	card_progress(card, now);
	for (struct completion_queue *cq = card->cqs; cq; cq = cq->next)
		if (cq->armed && cq_waiting(cq))
			cq_notify(cq);
	pthread_mutex_unlock(&card->lock);
}

static bool look_around(void)
{
	uint64_t now = sim_ticks();
	bool busy = false;

	for (struct card *card = cards; card; card = card->next)
		if (atomic_load(&card->busy)) {
			busy = true;
			look_after(card, now);
		}
	return busy;
}

static void *tick(void *unused)
{
	const struct timespec period = { 0, PERIOD_NS };

	for (;;) {
		bool busy;

		pthread_mutex_lock(&mutex);
		busy = look_around();
		if (!busy) {
			atomic_store(&asleep, true);
			if (!look_around()) /* again: a post looks at `asleep` after it has counted itself */
				pthread_cond_wait(&something, &mutex);
			atomic_store(&asleep, false);
		}
		pthread_mutex_unlock(&mutex);
		nanosleep(&period, NULL);
	}
	return NULL;
}

void ticker_wake(void)
{
	if (!atomic_load(&asleep))
		return;
	pthread_mutex_lock(&mutex);
	pthread_cond_signal(&something);
	pthread_mutex_unlock(&mutex);
}

static int start_thread(void)
{
	sigset_t all, old;
	pthread_t thread;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, NULL, tick, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return rc;
	pthread_setname_np(thread, "efa-card");
	pthread_detach(thread);
	thread_pid = getpid();
	return 0;
}

int ticker_start(struct card *card)
{
	struct card *other;
	int rc = 0;

	pthread_mutex_lock(&mutex);
	for (other = cards; other && other != card; other = other->next)
		;
	if (!other) { /* a forked child has its parent's list, and no thread */
		card->next = cards;
		cards = card;
	}
	if (thread_pid != getpid())
		rc = start_thread();
	pthread_mutex_unlock(&mutex);
	return rc;
}

void ticker_stop(struct card *card)
{
	struct card **at;

	pthread_mutex_lock(&mutex);
	for (at = &cards; *at && *at != card; at = &(*at)->next)
		;
	if (*at)
		*at = card->next;
	pthread_mutex_unlock(&mutex);
}
