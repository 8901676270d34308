/* Starts a program of the journey and reads the one line it prints. The main thread; ends what it started. */
#include "ladder.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 120000, WORDS = 32 };

/* Beside this program in a build folder, else where they are installed. */
static int find(const char *program, char *path, size_t room)
{
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (length > 0) {
		self[length] = 0;
		if ((size_t)snprintf(path, room, "%s/journey/%s", dirname(self), program) < room && !access(path, X_OK))
			return 0;
	}
	snprintf(path, room, "%s/%s", JOURNEY_INSTALL_DIR, program);
	return access(path, X_OK) ? -errno : 0;
}

static pid_t start(const char *path, const char *const *arguments, int complaints, int *ret_fd)
{
	char *argv[WORDS + 2] = { (char *)(uintptr_t)path };
	pid_t parent = getpid(), child;
	int fds[2];

	for (int i = 0; i < WORDS && arguments[i]; i++)
		argv[i + 1] = (char *)(uintptr_t)arguments[i]; /* exec takes them so and changes nothing */
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent && dup2(fds[1], STDOUT_FILENO) >= 0 && dup2(complaints, STDERR_FILENO) >= 0)
			execv(path, argv);
		_exit(127);
	}
	close(fds[1]);
	if (child < 0) {
		close(fds[0]);
		return -errno;
	}
	*ret_fd = fds[0];
	return child;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* All it prints, until it ends or has had its time. */
static bool read_all(int fd, char *text, size_t room)
{
	int64_t end = now_ms() + PATIENCE_MS;
	size_t used = 0;

	for (;;) {
		struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
		int64_t left = end - now_ms();
		ssize_t got;

		if (left <= 0 || poll(&poll_fd, 1, (int)left) == 0)
			return false;
		got = read(fd, text + used, room - 1 - used);
		if (got <= 0) {
			text[used] = 0;
			return got == 0;
		}
		used += (size_t)got;
		if (used == room - 1)
			used = 0; /* more than a line: not what is expected, which is said below */
	}
}

/* Why a program failed: the first line it complained with. Both of its processes may have said the same. */
static void read_complaint(int complaints, char *text, size_t room)
{
	ssize_t got = pread(complaints, text, room - 1, 0);

	text[got > 0 ? got : 0] = 0;
	text[strcspn(text, "\n")] = 0;
}

int ladder_run(const char *program, const char *const *arguments, struct ladder_sample *ret_sample, char *why,
	       size_t room)
{
	struct ladder_sample s = { 0 };
	char path[PATH_MAX], text[1024];
	int fd = -1, complaints, status = 0, rc = find(program, path, sizeof(path));
	pid_t child;
	bool ended;

	if (rc) {
		snprintf(why, room, "%s is neither beside this program nor in %s", program, JOURNEY_INSTALL_DIR);
		return rc;
	}
	complaints = memfd_create("complaints", MFD_CLOEXEC);
	child = complaints < 0 ? -errno : start(path, arguments, complaints, &fd);
	if (child < 0) {
		snprintf(why, room, "%s: %s", path, strerror(-child));
		if (complaints >= 0)
			close(complaints);
		return child;
	}
	ended = read_all(fd, text, sizeof(text));
	close(fd);
	if (!ended)
		kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (!ended || status)
		read_complaint(complaints, text, sizeof(text));
	close(complaints);
	if (!ended || status) {
		snprintf(why, room, "%s %s%s%.180s", program, ended ? "failed" : "did not end in two minutes",
			 text[0] ? ": " : "", text);
		return -EIO;
	}
	if (!ret_sample)
		return 0;
	if (sscanf(text, "writes=%lf page=%lf wall=%lf cpu=%lf workers=%d nics=%d line=%lf", &s.writes, &s.page_bytes,
		   &s.wall_s, &s.cpu_s, &s.workers, &s.nics, &s.line_bps) != 7) {
		snprintf(why, room, "%s does not say what it measured: %.80s", program, text);
		return -EPROTO;
	}
	*ret_sample = s;
	return 0;
}
