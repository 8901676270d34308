/*
 * Error entries as some providers make them: without a context, so that nobody knows which operation failed, with a
 * negative code, and twice. Two processes on simulated NICs, whose control file asks for them. An unseen failure is
 * found by the rail's limit and the operation done again, or it ends by its deadline; a witness on the same NICs is
 * served all the while.
 */
#include "sim/control.h"
#include "sim/setup.h"
#include "support/silent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct transport simulated = { "sim", "simfab", NULL, 4 };

static struct silent silent;
static struct sim_control *control;
static char path[] = "/tmp/odd-errors-XXXXXX";

static int open_all(void **state)
{
	char spec[256], error[256];
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	unlink(path); /* the first to open it creates it */
	assert_int_equal(sim_control_open(path, &control), 0);
	snprintf(spec, sizeof(spec), "p5,nics=4,rate=inf,copy=full,strict=1,control=%s,name=here", path);
	if (wf_sim_setup(spec, error, sizeof(error)))
		fail_msg("%s", error);
	transport = &simulated;
	silent_open(&silent);
	/* The other is a host of its own, so that rules can name it. */
	snprintf(spec, sizeof(spec), "p5,nics=4,rate=inf,copy=full,strict=1,control=%s,name=other", path);
	setenv("SIMFAB", spec, 1);
	silent_connect(&silent);
	return 0;
}

static int close_all(void **state)
{
	silent_disconnect(&silent);
	silent_close(&silent);
	sim_control_close(control);
	unlink(path);
	return 0;
}

static int set(const char *rule)
{
	char error[256];
	int number = sim_control_set(control, rule, error, sizeof(error));

	if (number < 0)
		fail_msg("%s: %s", rule, error);
	return number;
}

static void clear(int number)
{
	assert_true(atomic_load(&control->rules[number].fired) > 0); /* else nothing was tested */
	assert_int_equal(sim_control_clear(control, number), 1);
}

static void a_few_without_context(void **state)
{
	int rule = set("host=here,peer=other,op=write,count=3,fault=anonymous:13");

	silent_is_back(&silent); /* a write is done, and its bytes are there */
	clear(rule);
}

static void all_without_context(void **state)
{
	int rule = set("host=here,peer=other,fault=anonymous:9");

	/* Nothing reaches it any more: it gives us up by its limit, and then is silent, which we notice by ours. */
	silent.gone_ns = now_ns() + PEER_LIMIT + HEARTBEAT;
	silent_submit(&silent, SHORT);
	silent_submit(&silent, LONG);
	silent_drain(&silent);
	silent_ended(&silent, 0, OP_KINDS, -ETIMEDOUT, 0);
	silent_ended(&silent, OP_KINDS, 2 * OP_KINDS, -EHOSTDOWN, 0);
	clear(rule);
	silent_is_back(&silent);
}

static void a_few_with_negative_codes(void **state)
{
	int rule = set("host=here,peer=other,op=write,count=5,fault=negative:13");

	silent_is_back(&silent);
	clear(rule);
}

/* After the first report the write is posted again, on the same NIC or another; the second report must not count
 * against that. */
static void a_few_reported_twice(void **state)
{
	int rule = set("host=here,peer=other,op=write,count=40,fault=twice:13");

	for (int i = 0; i < 20; i++)
		silent_is_back(&silent);
	clear(rule);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_few_without_context),
		cmocka_unit_test(all_without_context),
		cmocka_unit_test(a_few_with_negative_codes),
		cmocka_unit_test(a_few_reported_twice),
	};

	return cmocka_run_group_tests_name("odd-errors", tests, open_all, close_all);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
