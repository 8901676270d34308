/* Files from outside: what is no topology, and groups files, right and wrong. Never a crash, always a sentence. */
#include "check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* hwloc reads the file; these it refuses without ending the process. tools/tests/test_topo.py has those on which it does. */
static void not_topologies(void **state)
{
	static const char *const texts[] = { "",
					     "hello\n",
					     "<html><body/></html>",
					     "<topology version=\"2.0\"></topology>",
					     "<topology version=\"9.0\"></topology>",
					     "<!-- never ends" };
	char error[400];

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		const char *path = check_file(texts[i], strlen(texts[i]));
		struct wf_topo *topo = NULL;
		int rc = wf_topo_open(path, &topo, error, sizeof(error));

		if (rc != -EINVAL || topo || !strstr(error, "cannot read it as a topology"))
			fail_msg("case %zu: %d %s", i, rc, error);
		unlink(path);
	}
}

static void not_files(void **state)
{
	char error[400];
	struct wf_topo *topo = NULL;

	assert_int_equal(wf_topo_open("/nonexistent/host.xml", &topo, error, sizeof(error)), -ENOENT);
	assert_int_equal(wf_topo_open("/tmp", &topo, error, sizeof(error)), -EINVAL);
	assert_int_equal(wf_topo_open("/dev/zero", &topo, error, sizeof(error)), -EINVAL);
	assert_null(topo);
}

static struct planned p5;

static int open_p5(void **state)
{
	if (wf_topo_open(TOPOLOGY_DIR "/p5.xml", &p5.topo, NULL, 0))
		return -1;
	p5.nic_count = wf_topo_nics(p5.topo, &p5.nics);
	return 0;
}

static int close_p5(void **state)
{
	wf_topo_close(p5.topo);
	return 0;
}

static int plan_file(const char *text, uint32_t max_groups, char *error, size_t error_bytes)
{
	struct wf_topo_options options = { .groups_path = check_file(text, strlen(text)), .max_groups = max_groups };
	int rc;

	p5.plan = NULL;
	error[0] = '\0';
	rc = wf_topo_plan(p5.topo, p5.nics, p5.nic_count, &options, &p5.plan, error, error_bytes);
	unlink(options.groups_path);
	return rc;
}

static void groups_file(void **state)
{
	char error[400];

	assert_int_equal(
	    plan_file("# ours\n"
		      "\n"
		      "group gpu=53:00.0,0000:64:00.0 rails=rdmap80s0,rdmap79s0 cores=4-7 worker=5 # order kept\n"
		      "\tgroup numa=1 rails=*\r\n",
		      2, error, sizeof(error)),
	    0);
	check_owners(&p5);
	assert_int_equal(p5.plan->count, 2);
	check_group(&p5, 0, "53:00.0 64:00.0 | rdmap80s0 rdmap79s0 | 4-7 | 5");
	assert_int_equal(p5.plan->groups[1].rail_count, 30);
	assert_int_equal(p5.plan->groups[1].numa, 1);
	assert_int_equal(p5.plan->groups[1].core_count, 48);
	assert_int_equal(p5.plan->groups[1].worker, 48);
	assert_non_null(strstr(p5.plan->groups[1].reason, "line 4"));
	wf_topo_plan_free(p5.plan);

	/* Cores left out follow the rails; a GPU nobody named uses the nearest group that has one. */
	assert_int_equal(plan_file("group gpu=97:00.0 rails=*", 0, error, sizeof(error)), 0);
	assert_int_equal(wf_topo_group_of_gpu(p5.topo, p5.plan, "53:00.0"), 0);
	assert_int_equal(p5.plan->groups[0].numa, 1);
	wf_topo_plan_free(p5.plan);
}

static void wrong_groups_files(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "", "no group" },
		{ "# nothing\n", "no group" },
		{ "\n\ngrup rails=*\n", ":3: a line starts with 'group'" },
		{ "group\n", ":1: a group needs 'rails='" },
		{ "group rails\n", ":1: expected key=value, not 'rails'" },
		{ "group rails=\n", ":1: nothing follows 'rails'" },
		{ "group rail=*\n", "not 'rail'" },
		{ "group rails=* rails=*\n", "given twice: 'rails'" },
		{ "group rails=*\ngroup rails=*\n", ":2: only one group" },
		{ "group rails=rdmap79s0,\n", "there is no NIC ''" },
		{ "group rails=rdmap7s0\n", "there is no NIC 'rdmap7s0'" },
		{ "group rails=rdmap79s0,rdmap79s0\n", "already in a group: 'rdmap79s0'" },
		{ "group rails=rdmap79s0\n", "is in no group" },
		{ "group gpu=53 rails=*\n", "not a PCI address" },
		{ "group gpu=99:00.0 rails=*\n", "there is no GPU '99:00.0'" },
		{ "group gpu=4f:00.0 rails=*\n", "there is no GPU '4f:00.0'" },
		{ "group gpu=53:00.0,53:00.0 rails=*\n", "already in a group: '53:00.0'" },
		{ "group numa=2 rails=*\n", "no NUMA node '2'" },
		{ "group numa=-1 rails=*\n", "no NUMA node '-1'" },
		{ "group numa=0x0 rails=*\n", "no NUMA node '0x0'" },
		{ "group rails=* cores=5-2\n", "not a list of CPUs" },
		{ "group rails=* cores=5-2,7\n", "not a list of CPUs" },
		{ "group rails=* cores=3-\n", "not a list of CPUs" },
		{ "group rails=* cores=1,,2\n", "not a list of CPUs" },
		{ "group rails=* cores=65536\n", "not a list of CPUs" },
		{ "group rails=* cores=0-200\n", "may not run on" },
		{ "group rails=* cores=x\n", "not a list of CPUs" },
		{ "group rails=* cores=0-3 worker=4\n", "none of the group's" },
		{ "group rails=* worker=0-1\n", "one core" },
		{ "group rails=* worker=1000\n", "may not run on core" },
		{ "group rails=* worker=one\n", "one core" },
	};
	char error[400];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int rc = plan_file(cases[i].text, 0, error, sizeof(error));

		if (rc != -EINVAL || !strstr(error, cases[i].says) || p5.plan)
			fail_msg("case %zu: %d %s", i, rc, error);
	}
	assert_int_equal(plan_file("group rails=rdmap79s0\ngroup rails=*\n", 1, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "at most 1"));
}

/* The same for a groups file: any change is either still right or refused with a sentence. */
static void mutated_groups_files(void **state)
{
	static const char text[] = "group gpu=53:00.0,64:00.0 rails=rdmap79s0,rdmap80s0 cores=0-11,14 worker=1\n"
				   "group numa=1 rails=* # the rest\n";
	unsigned random = 99;
	char changed[sizeof(text)], error[400];

	for (int round = 0; round < 2000; round++) {
		memcpy(changed, text, sizeof(text));
		for (int change = 0; change <= round % 3; change++) {
			random = random * 1664525u + 1013904223u;
			changed[(random >> 8) % (sizeof(text) - 1)] = round % 2
									  ? text[(random >> 16) % (sizeof(text) - 1)]
									  : (char)(random >> 24 ? random >> 24 : 1);
		}
		if (plan_file(changed, 0, error, sizeof(error)))
			assert_true(error[0] != '\0');
		else
			check_owners(&p5);
		wf_topo_plan_free(p5.plan);
	}
}

static void unreadable_groups_files(void **state)
{
	struct wf_topo_options options = { .groups_path = "/nonexistent/groups" };
	struct wf_topo_plan *plan = NULL;
	char error[400];

	assert_int_equal(wf_topo_plan(p5.topo, p5.nics, p5.nic_count, &options, &plan, error, sizeof(error)), -ENOENT);
	options.groups_path = "/tmp";
	assert_int_equal(wf_topo_plan(p5.topo, p5.nics, p5.nic_count, &options, &plan, error, sizeof(error)), -EINVAL);
	options.groups_path = check_file("group \0 rails=*", 15);
	assert_int_equal(wf_topo_plan(p5.topo, p5.nics, p5.nic_count, &options, &plan, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "binary"));
	unlink(options.groups_path);
	assert_null(plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(not_topologies),
		cmocka_unit_test(not_files),
		cmocka_unit_test_setup_teardown(groups_file, open_p5, close_p5),
		cmocka_unit_test_setup_teardown(wrong_groups_files, open_p5, close_p5),
		cmocka_unit_test_setup_teardown(mutated_groups_files, open_p5, close_p5),
		cmocka_unit_test_setup_teardown(unreadable_groups_files, open_p5, close_p5),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
