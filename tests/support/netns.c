/* Network namespaces of the test's own; netns.h says what for. */
#include "support/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Without root: a user namespace in which we are root. */
static bool become_root(void)
{
	uid_t uid = getuid();
	char map[32];
	int fd, length = snprintf(map, sizeof(map), "0 %u 1", (unsigned int)uid);
	bool mapped;

	if (unshare(CLONE_NEWUSER))
		return false;
	fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
	mapped = fd >= 0 && write(fd, map, (size_t)length) == length;
	if (fd >= 0)
		close(fd);
	return mapped;
}

bool netns_allowed(void)
{
	bool allowed = (geteuid() == 0 || become_root()) && !unshare(CLONE_NEWNET);

	if (!allowed)
		fprintf(stderr, "no network namespace may be made here (%s): skipped\n", strerror(errno));
	else if (system("ip link set lo up 2>/dev/null")) {
		fprintf(stderr, "no ip command, or it may not change a namespace of our own: skipped\n");
		allowed = false;
	}
	return allowed;
}

int netns_make(void)
{
	int netns;

	assert_int_equal(unshare(CLONE_NEWNET), 0);
	netns_ip("link set lo up");
	netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	assert_true(netns >= 0);
	return netns;
}

void netns_enter(int netns)
{
	assert_int_equal(setns(netns, CLONE_NEWNET), 0);
}

void netns_ip(const char *format, ...)
{
	char command[256] = "ip ";
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(command + 3, sizeof(command) - 3, format, arguments);
	va_end(arguments);
	if (system(command)) /* runs in a child of this thread, and so in its namespace */
		fail_msg("%s: failed", command);
}
