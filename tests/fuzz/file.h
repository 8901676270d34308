/* Bytes as a file that has a name: for parsers that open one. */
#ifndef FUZZ_FILE_H
#define FUZZ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int fuzz_file(const uint8_t *data, size_t bytes, char *path, size_t room)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
		abort();
	snprintf(path, room, "/proc/self/fd/%d", fd);
	return fd;
}
#endif
