/* Files from outside: broken and hostile XML, and groups files, right and wrong. Never a crash, always a
 * sentence. */
#include "check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef TOPOLOGY_DIR
#define TOPOLOGY_DIR "sim/topology"
#endif

#ifndef MUTATIONS
#define MUTATIONS 300
#endif

static char *p5_text;
static size_t p5_bytes;

static int load_p5(void **state)
{
	FILE *file = fopen(TOPOLOGY_DIR "/p5.xml", "r");

	p5_text = malloc(1 << 20);
	if (!file || !p5_text)
		return -1;
	p5_bytes = fread(p5_text, 1, 1 << 20, file);
	fclose(file);
	return p5_bytes ? 0 : -1;
}

static int free_p5(void **state)
{
	free(p5_text);
	return 0;
}

/* 0 or the error; whatever opens must also plan. */
static int try_open(const char *path, char *error, size_t error_bytes)
{
	struct wf_topo *topo = NULL;
	struct wf_topo_plan *plan = NULL;
	const struct wf_topo_nic *nics;
	size_t count;
	int rc;

	error[0] = '\0';
	rc = wf_topo_open(path, &topo, error, error_bytes);
	if (rc) {
		assert_null(topo);
		assert_true(error[0] != '\0');
		return rc;
	}
	count = wf_topo_nics(topo, &nics);
	if (!wf_topo_plan(topo, nics, count, NULL, &plan, error, error_bytes))
		wf_topo_plan_free(plan);
	wf_topo_close(topo);
	return 0;
}

static int try_text(const char *text, size_t bytes, char *error, size_t error_bytes)
{
	const char *path = check_file(text, bytes);
	int rc = try_open(path, error, error_bytes);

	unlink(path);
	return rc;
}

static void not_topologies(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "", "empty" },
		{ "hello\n", "not XML" },
		{ "<html><body/></html>", "no hwloc topology" },
		{ "<topology version=\"2.0\">", "cut off" },
		{ "<topology version=\"2.0\"", "cut off" },
		{ "<topology><object type=\"Machine\"/></topology>", "hwloc 1.x" },
		{ "<topology version=\"1.0\"></topology>", "another hwloc" },
		{ "<topology version=\"9.0\"></topology>", "another hwloc" },
		{ "<topology version=\"two\"></topology>", "not a number" },
		{ "<topology version=\"2.0\"></topology>", "sense" },
		{ "<topology version=\"2.0\"/>junk", "not XML" },
		{ "<topology version=\"2.0\"/><topology version=\"2.0\"/>", "follows" },
		{ "<topology version=\"2.0\"></object>", "not open" },
		{ "<topology version=\"2.0\"><object type=x/></topology>", "quoted" },
		{ "<topology version=\"2.0\"><object type/></topology>", "name=" },
		{ "<topology version=\"2.0\"><object type=\"x></topology>", "no end" },
		{ "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"4294967295\" cpuset=\"0x1\" "
		  "nodeset=\"0x1\"/></topology>",
		  "os_index" },
		{ "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0xf...f\"/></topology>", "no end" },
		{ "<!DOCTYPE t [<!ENTITY a \"b\">]><topology version=\"2.0\"/>", "DOCTYPE" },
		{ "<topology version=\"2.0\"><![CDATA[x]]></topology>", "not what hwloc writes" },
		{ "<topology version=\"2.0\"><object type=\"a\x1b[2J\"/></topology>", "control character" },
		{ "<!-- never ends", "cut off" },
	};
	char error[400];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int rc = try_text(cases[i].text, strlen(cases[i].text), error, sizeof(error));

		if (rc != -EINVAL || !strstr(error, cases[i].says))
			fail_msg("case %zu: %d %s", i, rc, error);
	}
	assert_int_equal(try_text("<topo\0logy>", 11, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "binary"));
}

static void not_files(void **state)
{
	char path[] = "/tmp/weft-topo-big-XXXXXX", error[400];
	int fd = mkstemp(path);

	assert_int_equal(try_open("/nonexistent/host.xml", error, sizeof(error)), -ENOENT);
	assert_int_equal(try_open("/tmp", error, sizeof(error)), -EINVAL);
	assert_int_equal(try_open("/dev/zero", error, sizeof(error)), -EINVAL);
	assert_int_equal(ftruncate(fd, (off_t)1 << 32), 0);
	assert_int_equal(try_open(path, error, sizeof(error)), -E2BIG);
	close(fd);
	unlink(path);
}

static void nested(void **state)
{
	enum { DEEP = 200000 };
	char *text = malloc(DEEP * 16 + 64), *at = text, error[400];

	at += sprintf(at, "<topology version=\"2.0\">");
	for (int i = 0; i < DEEP; i++)
		at += sprintf(at, "<info>");
	assert_int_equal(try_text(text, (size_t)(at - text), error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "too deep"));
	free(text);
}

static void truncated(void **state)
{
	char error[400];

	for (size_t bytes = 0; bytes < p5_bytes - 2; bytes += 1009)
		assert_int_equal(try_text(p5_text, bytes, error, sizeof(error)), -EINVAL);
}

/* Bytes changed at random: open or refuse, but stay alive. */
static void mutated(void **state)
{
	char *text = malloc(p5_bytes), error[400];
	unsigned random = 12345;

	for (int round = 0; round < MUTATIONS; round++) {
		memcpy(text, p5_text, p5_bytes);
		for (int change = 0; change <= round % 4; change++) {
			size_t at, from;

			random = random * 1664525u + 1013904223u;
			at = (random >> 8) % p5_bytes;
			random = random * 1664525u + 1013904223u;
			from = (random >> 8) % p5_bytes;
			/* Half take a byte from elsewhere in the file: more of them pass the first look. */
			text[at] = round % 2 ? p5_text[from] : (char)(random >> 24);
		}
		try_text(text, p5_bytes, error, sizeof(error));
	}
	free(text);
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
	assert_int_equal(wf_topo_group_of_gpu(p5.topo, p5.plan, (struct wf_topo_pci){ .bus = 0x53 }), 0);
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
		{ "group gpu=53 rails=*\n", "no PCI address" },
		{ "group gpu=99:00.0 rails=*\n", "there is no GPU '99:00.0'" },
		{ "group gpu=4f:00.0 rails=*\n", "there is no GPU '4f:00.0'" },
		{ "group gpu=53:00.0,53:00.0 rails=*\n", "already in a group: '53:00.0'" },
		{ "group numa=2 rails=*\n", "no NUMA node '2'" },
		{ "group numa=-1 rails=*\n", "no NUMA node '-1'" },
		{ "group numa=0x0 rails=*\n", "no NUMA node '0x0'" },
		{ "group rails=* cores=5-2\n", "counts down" },
		{ "group rails=* cores=0-200\n", "may not run on" },
		{ "group rails=* cores=x\n", "no list of CPUs" },
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
		cmocka_unit_test(nested),
		cmocka_unit_test_setup_teardown(truncated, load_p5, free_p5),
		cmocka_unit_test_setup_teardown(mutated, load_p5, free_p5),
		cmocka_unit_test_setup_teardown(groups_file, open_p5, close_p5),
		cmocka_unit_test_setup_teardown(wrong_groups_files, open_p5, close_p5),
		cmocka_unit_test_setup_teardown(mutated_groups_files, open_p5, close_p5),
		cmocka_unit_test_setup_teardown(unreadable_groups_files, open_p5, close_p5),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
