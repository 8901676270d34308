/*
 * Finds out whether a completion of libfabric's shm means that the bytes are in the peer's memory. It does if the
 * provider copies them there itself, by process_vm_writev(). Otherwise small writes complete when they are in the
 * peer's queue, and delivery must be asked for. Called when a peer's address is inserted, on the worker that owns the
 * rail.
 *
 * The provider tries process_vm_writev() on the first peer that it maps and keeps the answer for all; if permitted, it
 * uses it for every plain write. Releases 2.0 to 2.4 do not try it on a peer of the same process. From 2.5 on delivery
 * costs little, and newer releases may do anything that the interface allows: there weft always asks for it.
 */
#include "rail/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#define RELEASE(major, minor) (100 * (major) + (minor)) /* the way providers number their versions */

/* Returns where the process has mapped the file; 0: nowhere, no such process, or we may not look. */
static uintptr_t mapped_at(pid_t pid, const struct stat *file)
{
	unsigned long long start, inode;
	unsigned int major_number, minor_number;
	uintptr_t found = 0;
	char path[32], line[512];
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	while (maps && !found && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%llx-%*x %*s %*x %x:%x %llu", &start, &major_number, &minor_number, &inode) == 4 &&
		    inode == file->st_ino && makedev(major_number, minor_number) == file->st_dev)
			found = (uintptr_t)start;
	if (maps)
		fclose(maps);
	return found;
}

/* Returns whether we may touch the memory of the process that owns this endpoint. The process id alone does not
 * prove which process it is, because the peer may live in another PID namespace; that it has mapped the endpoint's
 * file does. */
static bool reaches(pid_t pid, const char *name)
{
	struct iovec local = { .iov_len = 1 }, remote = { .iov_len = 1 };
	char path[sizeof("/dev/shm/") + UINT8_MAX + 1], byte;
	struct stat file;

	snprintf(path, sizeof(path), "/dev/shm/%s", name);
	if (stat(path, &file))
		return errno == ENOENT; /* nobody is there, so no bytes can be lost */
	local.iov_base = &byte;
	remote.iov_base = (void *)mapped_at(pid, &file);
	return remote.iov_base && process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1;
}

/* Returns the length of what stands before the endpoint's name in its address, and copies both; 0: not one of shm's. */
static int parse(const uint8_t *address, uint8_t bytes, char text[UINT8_MAX + 1], int *ret_pid)
{
	int prefix = 0;

	memcpy(text, address, bytes);
	text[bytes] = 0;
	return sscanf(text, "fi_shm://%n%d:", &prefix, ret_pid) == 1 ? prefix : 0;
}

/* A process of another PID namespace may have our number too: callers must do no harm then. */
bool wf_rail_in_process(const uint8_t *address, uint8_t bytes)
{
	char text[UINT8_MAX + 1];
	int pid;

	return parse(address, bytes, text, &pid) && pid == getpid();
}

bool wf_rail_has_closed(const uint8_t *address, uint8_t bytes)
{
	char text[UINT8_MAX + 1], path[sizeof("/dev/shm/") + sizeof(text)];
	int pid, prefix = parse(address, bytes, text, &pid);

	snprintf(path, sizeof(path), "/dev/shm/%s", text + prefix);
	return access(path, F_OK) && errno == ENOENT;
}

bool wf_rail_copies_directly(const struct wf_rail *rail, const uint8_t *address, uint8_t bytes)
{
	uint32_t release = FI_MAJOR(rail->info->fabric_attr->prov_version);
	char name[UINT8_MAX + 1];
	int pid, prefix;

	if (release < RELEASE(1, 14) || release >= RELEASE(2, 5) || getenv("FI_SHM_DISABLE_CMA") ||
	    (rail->info->caps & FI_HMEM) || !(rail->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR))
		return false;
	prefix = parse(address, bytes, name, &pid);
	if (!prefix || (pid == getpid() && release >= RELEASE(2, 0)))
		return false;
	return reaches(pid, name + prefix);
}
