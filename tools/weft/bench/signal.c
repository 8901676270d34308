/* Ctrl-C during a benchmark. */
#include "bench.h"

volatile sig_atomic_t bench_interrupted;

static void on_signal(int signum)
{
	bench_interrupted = signum;
}

/* Called again after an engine is opened: libfabric's shm installs handlers of its own, which end the
 * process. */
void bench_signals_catch(void)
{
	/* SA_RESETHAND: a second signal ends the process. */
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

void bench_signals_ignore(void)
{
	signal(SIGINT, SIG_IGN);
}
