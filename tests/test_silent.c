/*
 * Real providers that lie or stay silent: a peer that is stopped and continues later, one that was never there, one
 * that refuses, one that is killed. No provider says what happened, or says it in time; every operation still ends by
 * its deadline with the right cause, and a second peer is served all the while.
 */
#include "support/silent.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static struct silent silent;

static bool over_shm(void)
{
	return !strcmp(transport->provider, "shm");
}

/* libfabric 1.17's shared memory has a spin lock in each process's segment. A process that is stopped or killed
 * while it holds its own lock blocks every caller inside libfabric for as long: nothing can be promised then. So
 * over shm the peer is outside of libfabric when it goes: it makes progress by hand. */
static int open_all(void **state)
{
	silent_open(&silent);
	silent.other_flags = over_shm() ? WEFT_MANUAL_PROGRESS : 0;
	return 0;
}

static int close_all(void **state)
{
	silent_close(&silent);
	return 0;
}

/* Over shared memory a write or read needs no help from the other process, as long as its memory is there. */
static uint32_t one_sided(void)
{
	return over_shm() ? 1u << OP_WRITE | 1u << OP_COUNTED | 1u << OP_READ : 0;
}

static void stop_other(void)
{
	int status;

	if (over_shm())
		peer_tell(&silent.other, COMMAND_QUIET, 1);
	kill(silent.other.pid, SIGSTOP);
	assert_int_equal(waitpid(silent.other.pid, &status, WUNTRACED), silent.other.pid); /* it has stopped */
	assert_true(WIFSTOPPED(status));
	silent.gone_ns = now_ns();
}

static void continue_other(void)
{
	kill(silent.other.pid, SIGCONT);
	if (over_shm())
		peer_tell(&silent.other, COMMAND_QUIET, 0);
}

static void stopped_and_continued(void **state)
{
	silent_connect(&silent);
	stop_other();
	silent_submit(&silent, SHORT);
	silent_submit(&silent, LONG);
	silent_drain(&silent);
	silent_ended(&silent, 0, OP_KINDS, -ETIMEDOUT, one_sided());
	silent_ended(&silent, OP_KINDS, 2 * OP_KINDS, -EHOSTDOWN, one_sided());
	silent_is_down(&silent);
	continue_other();
	silent_is_back(&silent);
	silent_disconnect(&silent);
}

/* Stopped for less than the limit: only operations with too short a deadline fail. */
static void stopped_shortly(void **state)
{
	silent_connect(&silent);
	stop_other();
	silent.gone_ns = 0; /* not for long */
	silent_submit(&silent, SHORT / 3);
	silent_drain(&silent);
	silent_ended(&silent, 0, OP_KINDS, -ETIMEDOUT, one_sided());
	continue_other();
	silent_is_back(&silent);
	silent_disconnect(&silent);
}

/* Over tcp its port refuses, over shared memory its file is missing. */
static void never_there(void **state)
{
	struct blob address, descriptor;

	silent_ghost(&address, &descriptor);
	silent_never_answers(&silent, &address, &descriptor);
}

/* Killed with everything in flight. Stopped first, so that nothing was done: over shared memory the counted write
 * then waits for a delivery that never comes, and gets no error either. */
static void killed(void **state)
{
	silent_connect(&silent);
	stop_other();
	silent_submit(&silent, SHORT);
	silent_submit(&silent, LONG);
	peer_kill(&silent.other);
	silent.gone_ns = now_ns();
	silent.refuses = strcmp(transport->provider, "shm") != 0;
	silent_drain(&silent);
	silent_ended(&silent, 0, OP_KINDS, -ETIMEDOUT, one_sided());
	silent_ended(&silent, OP_KINDS, 2 * OP_KINDS, -EHOSTDOWN, one_sided());
	silent_is_down(&silent);
	silent_disconnect(&silent);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stopped_and_continued),
		cmocka_unit_test(stopped_shortly),
		cmocka_unit_test(never_there),
		cmocka_unit_test(killed),
	};

	return cmocka_run_group_tests_name("silent", tests, open_all, close_all);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
