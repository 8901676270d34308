/* Making, checking and mapping shared memory; share.h says what it is. */
#include "local/share.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int seal(struct wf_share *share, bool for_us)
{
	/* The seal on writing must come before the one that forbids more seals. */
	if (for_us && fcntl(share->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE))
		return -errno;
	return fcntl(share->fd, F_ADD_SEALS, SEALS) ? -errno : 0;
}

static int make(size_t bytes, bool for_us, unsigned int flags, struct wf_share *ret_share)
{
	struct wf_share share = { .bytes = bytes, .fd = memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags) };
	int error;

	if (share.fd < 0)
		return -errno;
	if (ftruncate(share.fd, (off_t)bytes)) {
		error = -errno;
		close(share.fd);
		return error;
	}
	fchmod(share.fd, S_IRUSR | S_IWUSR); /* other users cannot open it anew, for more than we gave them */
	share.at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, share.fd, 0);
	error = share.at == MAP_FAILED ? -errno : seal(&share, for_us);
	if (share.at == MAP_FAILED)
		share.at = NULL;
	if (error) {
		wf_share_close(&share);
		return error;
	}
	*ret_share = share;
	return 0;
}

int wf_share_make(size_t bytes, bool for_us, struct wf_share *ret_share)
{
	return make(bytes, for_us, 0, ret_share);
}

int wf_share_make_huge(size_t bytes, struct wf_share *ret_share)
{
	return make(bytes, false, MFD_HUGETLB | MFD_HUGE_2MB, ret_share);
}

int wf_share_map(int fd, size_t bytes, bool writable, void **ret_at)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat file;
	void *at;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &file) || (size_t)file.st_size != bytes)
		return -EPROTO;
	at = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	*ret_at = at;
	return 0;
}

bool wf_share_is_huge(int fd)
{
	struct statfs system;

	return fstatfs(fd, &system) || system.f_type == HUGETLBFS_MAGIC;
}

void wf_share_close(struct wf_share *share)
{
	if (share->at)
		munmap(share->at, share->bytes);
	if (share->fd >= 0)
		close(share->fd);
	*share = (struct wf_share){ .fd = -1 };
}
