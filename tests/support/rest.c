/* Stops a process, checks what each thread was doing, and lets the process go on if that was not a system call. */
#include "support/rest.h"
#include "support/peer.h"
#include "support/util.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TRIES 2000
#define LOOK  MS

static bool thread_at_rest(pid_t pid, const char *thread)
{
	char path[320], doing[16] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/syscall", (int)pid, thread);
	file = fopen(path, "r");
	if (!file)
		return true; /* it has ended */
	if (!fgets(doing, sizeof(doing), file))
		doing[0] = 0;
	fclose(file);
	return strncmp(doing, "-1", 2) && strncmp(doing, "running", 7);
}

static bool at_rest(pid_t pid)
{
	char path[64];
	struct dirent *entry;
	bool rests = true;
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	threads = opendir(path);
	while (threads && rests && (entry = readdir(threads)))
		rests = entry->d_name[0] == '.' || thread_at_rest(pid, entry->d_name);
	if (threads)
		closedir(threads);
	return rests;
}

/* State as in /proc: 'T' stopped, 'Z' dead and not waited for, 0 gone. */
static char state_of(pid_t pid)
{
	char path[64], line[512], *name_end = NULL;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (fgets(line, sizeof(line), file))
		name_end = strrchr(line, ')');
	fclose(file);
	return name_end && name_end[1] ? name_end[2] : 0;
}

/* Not by waitpid(): the process may have been stopped before, which is reported only once. */
static void stop(pid_t pid)
{
	uint64_t deadline = now_ns() + LIMIT;
	char state;

	assert_true(pid > 0); /* else we would stop ourselves */
	kill(pid, SIGSTOP);
	while ((state = state_of(pid)) && state != 'T' && state != 'Z') {
		assert_true(now_ns() < deadline);
		sched_yield();
	}
}

/* Looks at the process while it runs, where a waiting thread shows in its system call. Not for long: a thread that
 * is never seen waiting may still be stopped at the end of a system call. Only what is found after the stop counts. */
static void come_to_rest(pid_t pid)
{
	uint64_t deadline = now_ns() + LOOK;

	while (!at_rest(pid) && now_ns() < deadline)
		sched_yield();
}

void stop_at_rest(pid_t pid)
{
	stop(pid);
	if (strcmp(transport->provider, "shm"))
		return;
	for (int i = 0; i < TRIES && !at_rest(pid); i++) {
		kill(pid, SIGCONT);
		come_to_rest(pid);
		stop(pid);
	}
}
