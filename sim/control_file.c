/*
 * The control file as a file: created in one step, mapped, and never used before it has proved to be one. Any thread of
 * the provider, the command and tests.
 */
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC   0x4b46534d49535446ull
#define VERSION 1

int sim_control_fill(int fd)
{
	const struct sim_control header = { .magic = MAGIC, .version = VERSION, .seed = 1 };
	ssize_t put = pwrite(fd, &header, sizeof header, 0);

	if (put == (ssize_t)sizeof header)
		return 0;
	return put < 0 ? -errno : -ENOSPC;
}

/* Fills the file under another name first, so that nobody ever finds an incomplete control file. */
static int create(const char *path)
{
	char other[PATH_MAX];
	int fd, rc;

	if ((size_t)snprintf(other, sizeof other, "%s.XXXXXX", path) >= sizeof other)
		return -ENAMETOOLONG;
	fd = mkostemp(other, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = sim_control_fill(fd);
	close(fd);
	/* If another process was first, it has made the same file. */
	if (!rc && link(other, path) && errno != EEXIST)
		rc = -errno;
	unlink(other);
	return rc;
}

/* Returns -EINVAL for anything but a control file. Looks before it opens: opening a FIFO or a device has side
 * effects. */
static int open_existing(const char *path, int flags)
{
	struct sim_control header;
	struct stat st;
	int fd;

	if (stat(path, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof header &&
	    pread(fd, &header, sizeof header, 0) == (ssize_t)sizeof header && header.magic == MAGIC &&
	    header.version == VERSION)
		return fd;
	close(fd);
	return -EINVAL;
}

static int map(int fd, int protection, struct sim_control **ret_control)
{
	struct sim_control *control = mmap(NULL, sizeof *control, protection, MAP_SHARED, fd, 0);
	int rc = control == MAP_FAILED ? -errno : 0;

	close(fd);
	if (!rc)
		*ret_control = control;
	return rc;
}

int sim_control_open(const char *path, struct sim_control **ret_control)
{
	int fd = open_existing(path, O_RDWR);

	if (fd == -ENOENT) {
		int rc = create(path);

		if (rc)
			return rc;
		fd = open_existing(path, O_RDWR);
	}
	return fd < 0 ? fd : map(fd, PROT_READ | PROT_WRITE, ret_control);
}

int sim_control_view(const char *path, struct sim_control **ret_control)
{
	int fd = open_existing(path, O_RDONLY);

	return fd < 0 ? fd : map(fd, PROT_READ, ret_control);
}

void sim_control_close(struct sim_control *control)
{
	if (control)
		munmap(control, sizeof *control);
}
