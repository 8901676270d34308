/* Threads without signals, and crews of them; crew.h says for whom. Any thread. */
#include "worker/crew.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* The application's signals are for its own threads. Those that a fault raises stay: a handler of the process, or none, is to
 * see them. */
int wf_thread_create(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS };
	sigset_t mask, before;
	int error;

	sigfillset(&mask);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&mask, faults[i]);
	pthread_sigmask(SIG_SETMASK, &mask, &before);
	error = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

/* A worker is pinned, and a thread inherits that. The process's first thread says where we may run. */
static void leave_the_workers_core(void)
{
	cpu_set_t set;

	if (!sched_getaffinity(getpid(), sizeof(set), &set))
		pthread_setaffinity_np(pthread_self(), sizeof(set), &set); /* where it is refused we share the core */
}

static void *run_errand(void *argument)
{
	struct wf_errand *errand = argument;

	leave_the_workers_core();
	errand->work(errand->context);
	return NULL;
}

int wf_errand_start(struct wf_errand *errand, void (*work)(void *context), void *context)
{
	errand->work = work;
	errand->context = context;
	return -wf_thread_create(&errand->thread, run_errand, errand);
}

bool wf_errand_ended(struct wf_errand *errand)
{
	return !pthread_tryjoin_np(errand->thread, NULL);
}

struct hand {
	pthread_t thread;
	void (*work)(void *context, uint32_t number);
	void *context;
	uint32_t number;
};

static void *work_once(void *argument)
{
	struct hand *hand = argument;

	hand->work(hand->context, hand->number);
	return NULL;
}

void wf_crew_run(uint32_t count, void (*work)(void *context, uint32_t number), void *context)
{
	struct hand *hands = count > 1 ? calloc(count, sizeof(*hands)) : NULL;
	uint32_t helpers = 0;

	for (; hands && helpers + 1 < count; helpers++) {
		struct hand *hand = &hands[helpers];

		*hand = (struct hand){ .work = work, .context = context, .number = helpers };
		if (wf_thread_create(&hand->thread, work_once, hand))
			break;
	}
	for (uint32_t number = helpers; number < count; number++)
		work(context, number);
	for (uint32_t i = 0; i < helpers; i++)
		pthread_join(hands[i].thread, NULL);
	free(hands);
}
