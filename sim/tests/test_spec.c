/* What SIMFAB and fault rules may say: accepted values, refused ones, and that rules fire as specified. */
#include "../control.h"
#include "../setup.h"
#include "../spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_spec good(const char *text)
{
	struct sim_spec spec;
	char error[256] = "";

	if (sim_spec_parse(text, &spec, error, sizeof error))
		fail_msg("'%s' refused: %s", text, error);
	return spec;
}

static void bad(const char *text, const char *reason)
{
	struct sim_spec spec;
	char error[256] = "";

	assert_int_equal(sim_spec_parse(text, &spec, error, sizeof error), -EINVAL);
	if (!strstr(error, reason))
		fail_msg("'%s': expected '%s' in '%s'", text, reason, error);
}

static void machines(void **state)
{
	struct sim_spec p5 = good("p5");

	assert_int_equal(p5.nics, 32);
	assert_int_equal(p5.rate_bps, 100000000000ull);
	assert_int_equal(p5.tx, 4096);
	assert_int_equal(p5.rx, 8192);
	assert_int_equal(p5.post_ns, 450);
	assert_int_equal(good("p5,post_ns=0").post_ns, 0);
	assert_int_equal(good("null").post_ns, 0); /* it models no time */
	assert_int_equal(good("p5en").nics, 16);
	assert_int_equal(good("p6-b200").nics, 8);
	assert_int_equal(good("p6-b300").nics, 16);
	assert_int_equal(good("p6-b300").tx, 2048);
	assert_int_equal(good("verbs").nics, 2);
	assert_true(good("null").timeless);
}

static void values(void **state)
{
	struct sim_spec s = good("p5,nics=4,rate=2G,latency=15us,jitter=1.5ms,copy=edges,reorder=3,post_ns=450,"
				 "poll_ns=10,op_ns=7,tx=64,rx=32,cq=100,seed=9,strict=1,personality=efa-direct,"
				 "control=/tmp/x,name=a,unresponsive=never,target_progress=1");

	assert_int_equal(s.nics, 4);
	assert_int_equal(s.rate_bps, 2000000000ull);
	assert_int_equal(s.latency_ns, 15000);
	assert_int_equal(s.jitter_ns, 1500000);
	assert_int_equal(s.copy, SIM_COPY_EDGES);
	assert_int_equal(s.personality, SIM_EFA_DIRECT);
	assert_int_equal(s.machine.inject_size, 32);
	assert_int_equal(s.unresponsive_ns, SIM_NEVER);
	assert_string_equal(s.host, "a");
	assert_int_equal(good("p5,rate=inf").rate_bps, 0);
	assert_false(good("null,latency=1us").timeless);
}

static void refusals(void **state)
{
	bad("p7", "no machine 'p7'");
	bad("p5,nics=33", "has 32");
	bad("p5,nics=0", "bad value '0' for 'nics'");
	bad("p5,rate=fast", "bad value 'fast' for 'rate'");
	bad("p5,rate=-2G", "bad value");
	bad("p5,latency=15parsecs", "bad value");
	bad("p5,copy=some", "bad value");
	bad("p5,strict=2", "bad value");
	bad("p5,colour=red", "unknown key 'colour' ('weft sim knobs' lists");
	bad("p5,nics", "expected key=value");
	bad("/nonexistent/machine", "cannot read machine file");
}

static void machine_file(void **state)
{
	char path[] = "/tmp/simfab-machine-XXXXXX", text[64];
	int fd = mkstemp(path);
	FILE *file = fdopen(fd, "w");
	struct sim_spec s;

	fprintf(file, "# a small one\nlike p5\ngpus 2\nnics_per_gpu 2   # four in all\nrate 25G\nlatency 5us\n");
	fclose(file);
	snprintf(text, sizeof text, "%s,tx=99", path);
	s = good(text);
	unlink(path);
	assert_int_equal(s.nics, 4);
	assert_int_equal(s.rate_bps, 25000000000ull);
	assert_int_equal(s.tx, 99);
	assert_string_equal(s.machine_name, "custom");
}

static void setup_refuses(void **state)
{
	char error[256] = "";

	assert_int_equal(wf_sim_setup("p9", error, sizeof error), -EINVAL);
	assert_non_null(strstr(error, "no machine"));
}

static void setup_sets(void **state)
{
	char error[256] = "";

	unsetenv("WEFT_TOPOLOGY_XML");
	assert_int_equal(wf_sim_setup("p5en,nics=2", error, sizeof error), 0);
	assert_string_equal(getenv("SIMFAB"), "p5en,nics=2");
	assert_non_null(strstr(getenv("FI_PROVIDER_PATH"), "sim"));
	assert_non_null(strstr(getenv("WEFT_TOPOLOGY_XML"), "/topology/p5en.xml"));
	assert_int_equal(access(getenv("WEFT_TOPOLOGY_XML"), R_OK), 0);
}

static void rules_round_trip(void **state)
{
	static const char *const rules[] = {
		"nic=3,op=write,after=100,fault=error:15",
		"host=a,nic=1,peer=b,op=send,after=1,every=2,count=3,p=0.25,fault=drop",
		"fault=delay:2000000ns",
		"fault=dup",
		"fault=eagain:5",
		"fault=rnr:2",
		"nic=0,fault=down",
		"fault=slow:10",
		"host=a,fault=dead",
		"fault=overrun",
		"op=reg,fault=reg:12",
		"fault=internal",
		"fault=anonymous:13",
		"op=write,fault=negative:9",
		"op=send,fault=refuse:107",
		"op=reg,fault=stall:5000000ns",
	};
	struct sim_rule rule;
	char error[256], text[512];

	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		assert_int_equal(sim_rule_parse(rules[i], &rule, error, sizeof error), 0);
		sim_rule_format(&rule, text, sizeof text);
		assert_string_equal(text, rules[i]);
	}
	assert_int_equal(sim_rule_parse("nic=rdmap80s0,fault=down", &rule, error, sizeof error), 0);
	assert_int_equal(rule.nic, 1);
}

static void rules_refused(void **state)
{
	static const char *const rules[] = { "",
					     "nic=3",
					     "fault=melt",
					     "fault=error",
					     "fault=drop:3",
					     "p=2,fault=drop",
					     "nic=x,fault=drop",
					     "op=fly,fault=drop",
					     "fault=slow:0",
					     "x=1,fault=drop" };
	struct sim_rule rule;
	char error[256];

	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		error[0] = 0;
		assert_int_equal(sim_rule_parse(rules[i], &rule, error, sizeof error), -EINVAL);
		assert_true(error[0]);
	}
}

/* Writes which of 40 requests a rule affects, as a string of . and x. */
static void pattern(struct sim_control *control, const char *rule, char text[41])
{
	const struct sim_event event = { .host = "a", .peer = "b", .nic = 1, .op = SIM_OP_WRITE };
	char error[256];
	int number = sim_control_set(control, rule, error, sizeof error);
	uint64_t argument;

	assert_true(number >= 0);
	for (int i = 0; i < 40; i++)
		text[i] = sim_control_fire(control, &event, ~0u, &argument) ? 'x' : '.';
	text[40] = 0;
	assert_int_equal(sim_control_clear(control, number), 1);
}

static void rules_count(void **state)
{
	struct sim_control *control = calloc(1, sizeof *control);
	char text[41], again[41], other[41];

	pattern(control, "after=3,count=2,fault=drop", text);
	assert_string_equal(text, "...xx...................................");
	pattern(control, "every=10,fault=drop", text);
	assert_string_equal(text, ".........x.........x.........x.........x");
	pattern(control, "fault=eagain:3", text);
	assert_string_equal(text, "xxx.....................................");
	pattern(control, "nic=2,fault=drop", text);
	assert_null(strchr(text, 'x'));
	pattern(control, "op=read,fault=drop", text);
	assert_null(strchr(text, 'x'));
	pattern(control, "peer=c,fault=drop", text);
	assert_null(strchr(text, 'x'));
	pattern(control, "p=0.5,fault=drop", text);
	pattern(control, "p=0.5,fault=drop", again);
	assert_string_equal(text, again); /* replays */
	assert_non_null(strchr(text, 'x'));
	assert_non_null(strchr(text, '.'));
	atomic_store(&control->seed, 77);
	pattern(control, "p=0.5,fault=drop", other);
	assert_string_not_equal(text, other);
	assert_int_equal(atomic_load(&control->active_rules), 0);
	free(control);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machines),         cmocka_unit_test(values),        cmocka_unit_test(refusals),
		cmocka_unit_test(machine_file),     cmocka_unit_test(setup_refuses), cmocka_unit_test(setup_sets),
		cmocka_unit_test(rules_round_trip), cmocka_unit_test(rules_refused), cmocka_unit_test(rules_count),
	};

	return cmocka_run_group_tests_name("specifications", tests, NULL, NULL);
}
