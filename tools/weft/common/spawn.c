/* A second process on this host: this same program again, with a socket to it. */
#include "spawn.h"
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

/* In the child between fork and exec: nothing but system calls, the parent may have threads. */
static void become(int fd, pid_t parent, char *const *argv)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1); /* it died before we could ask to be told */
	/* Ctrl-C reaches the whole foreground group; the one that started us decides when we end. */
	signal(SIGINT, SIG_IGN);
	fcntl(fd, F_SETFD, 0);
	execv("/proc/self/exe", argv);
	_exit(127);
}

int cmd_spawn(const char *const *words, pid_t *ret_child, int *ret_fd)
{
	int pair[2], count = 0;
	char number[16], *argv[CMD_SPAWN_WORDS + 2];
	pid_t parent = getpid();

	for (; words[count] && count < CMD_SPAWN_WORDS; count++)
		argv[count] = (char *)(uintptr_t)words[count]; /* exec takes them so and changes nothing */
	argv[count] = number;
	argv[count + 1] = NULL;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	snprintf(number, sizeof number, "%d", pair[1]);
	pid_t child = fork();
	if (child < 0) {
		int rc = -errno;
		close(pair[0]);
		close(pair[1]);
		return rc;
	}
	if (child == 0)
		become(pair[1], parent, argv);
	close(pair[1]);
	*ret_child = child;
	*ret_fd = pair[0];
	return 0;
}

static bool wait_for(pid_t child, int *status, uint64_t limit_ns)
{
	uint64_t deadline = cmd_now_ns() + limit_ns;
	for (;;) {
		pid_t got = waitpid(child, status, WNOHANG);
		if (got == child || (got < 0 && errno == ECHILD))
			return true;
		if (cmd_now_ns() >= deadline)
			return false;
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
}

void cmd_reap(pid_t child, bool ended_badly, char *why, size_t room)
{
	int status = 0, sent = 0;

	why[0] = '\0';
	/* Its control connection is closed, so it is on its way out; how it ended matters only by itself. */
	if (!wait_for(child, &status, ended_badly ? SECOND : 10 * SECOND)) {
		kill(child, sent = SIGTERM);
		if (!wait_for(child, &status, 2 * SECOND)) {
			kill(child, sent = SIGKILL);
			wait_for(child, &status, 2 * SECOND);
		}
	}
	/* One that another signal had ended takes its time to go where the CPUs are busy. */
	if (sent && !(WIFSIGNALED(status) && WTERMSIG(status) != sent)) {
		snprintf(why, room, "the peer process (pid %d) did not respond and was ended by force", (int)child);
		return;
	}
	if (WIFSIGNALED(status))
		snprintf(why, room, "the peer process (pid %d) was killed by signal %d (%s)", (int)child,
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WIFEXITED(status) && WEXITSTATUS(status) && !ended_badly)
		snprintf(why, room, "the peer process (pid %d) ended with status %d", (int)child, WEXITSTATUS(status));
}
