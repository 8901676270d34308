/*
 * An idle engine with a peer of this host sleeps: with a heartbeat that is far off, seconds pass in which no thread of it wakes up, on
 * either side. A message wakes it, and then it sleeps again.
 */
#include "support/peer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUIET_S 3

static struct pair world;

/* How often threads of the process have gone to sleep, but for its first one. */
static uint64_t sleeps_of(pid_t pid)
{
	char path[300], line[200];
	uint64_t sum = 0, value;
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	assert_non_null(tasks);
	while ((entry = readdir(tasks))) {
		FILE *file;

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == pid)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, entry->d_name);
		file = fopen(path, "r");
		while (file && fgets(line, sizeof(line), file))
			if (sscanf(line, "voluntary_ctxt_switches: %lu", &value) == 1)
				sum += value;
		if (file)
			fclose(file);
	}
	closedir(tasks);
	return sum;
}

/* Seconds in which nobody wakes up come soon. A slow machine wakes nobody more often. */
static void comes_to_rest(void)
{
	uint64_t limit = now_ns() + LIMIT, here, there;

	do {
		assert_true(now_ns() < limit);
		here = sleeps_of(getpid());
		there = sleeps_of(world.there.pid);
		sleep(QUIET_S);
	} while (sleeps_of(getpid()) != here || sleeps_of(world.there.pid) != there);
	assert_true(here > 0 && there > 0);
}

static void sleeps_between_heartbeats(void **state)
{
	struct weft_config config = side_config();
	uint64_t before;

	config.heartbeat_ns = 600 * S;
	config.peer_limit_ns = 3600 * S;
	config.rail_limit_ns = 3600 * S;
	pair_open(&world, &config, &config, 1 << 20);
	assert_status(pair_write(&world, 0, 0, 1 << 20), 0);
	comes_to_rest();
	before = sleeps_of(getpid());
	assert_status(pair_write(&world, 0, 0, 4096), 0);
	comes_to_rest();
	assert_true(sleeps_of(getpid()) > before);
	pair_close(&world);
}

static int run(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(sleeps_between_heartbeats) };

	return cmocka_run_group_tests_name("idle", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
