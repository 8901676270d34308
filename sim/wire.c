/*
 * Segments in /dev/shm: creates, finds and removes them, and tells whether their owner lives. Set-up paths only, on any
 * thread (one process-wide mutex). The rings used while running are in ring.c.
 */
#include "wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC   0x31455249574d4953ull
#define VERSION 1u
#define BUCKETS 16384u /* two segments per peer and NIC, and thousands of peers */
#define DIR_SHM "/dev/shm"

struct wire_map {
	struct wire_map *next;
	struct wire_head *head;
	size_t bytes;
	int32_t pid;
	uint32_t id;
	int refs;
	int fd; /* the creator's holds the lock that says it lives; a visitor's queries that lock */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct wire_map *table[BUCKETS];

static void segment_path(char *path, size_t bytes, int32_t pid, uint32_t id)
{
	snprintf(path, bytes, DIR_SHM "/simfab-%u-%d-%08x", (unsigned)geteuid(), (int)pid, id);
}

static struct wire_map **bucket(int32_t pid, uint32_t id)
{
	return &table[(id ^ (uint32_t)pid * 31u) % BUCKETS];
}

static uint32_t random_id(void)
{
	uint32_t id = 0;

	while (!id)
		if (getrandom(&id, sizeof id, 0) != sizeof id)
			id = (uint32_t)getpid();
	return id;
}

static struct wire_map *remember(void *memory, size_t bytes, int32_t pid, uint32_t id, int fd)
{
	struct wire_map *map = calloc(1, sizeof *map);

	if (!map)
		return NULL;
	map->head = memory;
	map->bytes = bytes;
	map->pid = pid;
	map->id = id;
	map->fd = fd;
	map->refs = 1;
	pthread_mutex_lock(&mutex);
	map->next = *bucket(pid, id);
	*bucket(pid, id) = map;
	pthread_mutex_unlock(&mutex);
	return map;
}

/*
 * The file is locked before it gets its real name, so a file with that name and no lock belongs to a dead process.
 * POSIX locks end with the process, zombie or not, and are not inherited by fork.
 */
static int create_file(size_t bytes, uint32_t id)
{
	char path[PATH_MAX], draft[PATH_MAX];
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };
	int fd;

	segment_path(path, sizeof path, getpid(), id);
	snprintf(draft, sizeof draft, DIR_SHM "/.simfab-%d-%08x", (int)getpid(), id);
	fd = open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_SETLK, &lock) || rename(draft, path)) {
		unlink(draft);
		close(fd);
		return -1;
	}
	return fd;
}

struct wire_map *wire_create(enum wire_kind kind, size_t bytes)
{
	uint32_t id = random_id();
	int fd = create_file(bytes, id);
	struct wire_head *head;
	struct wire_map *map;

	if (fd < 0)
		return NULL;
	head = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (head == MAP_FAILED) {
		close(fd);
		return NULL;
	}
	/* Peers copy with process_vm_writev, which Yama may reserve to ancestors. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	head->version = VERSION;
	head->kind = kind;
	head->pid = getpid();
	head->id = id;
	head->bytes = bytes;
	map = remember(head, bytes, head->pid, id, fd);
	if (!map) {
		munmap(head, bytes);
		close(fd);
		return NULL;
	}
	atomic_store(&head->state, WIRE_LIVE);
	head->magic = MAGIC;
	return map;
}

static struct wire_map *find_mapped(int32_t pid, uint32_t id)
{
	struct wire_map *map;

	pthread_mutex_lock(&mutex);
	for (map = *bucket(pid, id); map; map = map->next)
		if (map->pid == pid && map->id == id) {
			map->refs++;
			break;
		}
	pthread_mutex_unlock(&mutex);
	return map;
}

struct wire_map *wire_attach(int32_t pid, uint32_t id, enum wire_kind kind)
{
	struct wire_map *map = find_mapped(pid, id);
	struct wire_head *head;
	char path[PATH_MAX];
	struct stat st;
	int fd;

	if (map)
		return map;
	segment_path(path, sizeof path, pid, id);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) || (size_t)st.st_size < sizeof *head)
		goto close_file;
	head = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (head == MAP_FAILED)
		goto close_file;
	if (head->magic != MAGIC || head->version != VERSION || head->kind != kind ||
	    head->bytes != (uint64_t)st.st_size)
		goto unmap;
	if (kind == WIRE_NIC) { /* the endpoint's segment tells whether the owner lives; this saves descriptors */
		close(fd);
		fd = -1;
	}
	map = remember(head, (size_t)st.st_size, pid, id, fd);
	if (map)
		return map;
unmap:
	munmap(head, (size_t)st.st_size);
close_file:
	if (fd >= 0)
		close(fd);
	return NULL;
}

void wire_detach(struct wire_map *map)
{
	struct wire_map **at;

	if (!map)
		return;
	pthread_mutex_lock(&mutex);
	if (--map->refs) {
		pthread_mutex_unlock(&mutex);
		return;
	}
	for (at = bucket(map->pid, map->id); *at != map; at = &(*at)->next)
		;
	*at = map->next;
	pthread_mutex_unlock(&mutex);
	munmap(map->head, map->bytes);
	if (map->fd >= 0)
		close(map->fd);
	free(map);
}

void wire_destroy(struct wire_map *map)
{
	char path[PATH_MAX];

	if (!map)
		return;
	atomic_store(&map->head->state, WIRE_CLOSED);
	segment_path(path, sizeof path, map->pid, map->id);
	unlink(path);
	/* Others of this process may keep it mapped for as long as they have the address; they need no lock to know its owner. */
	pthread_mutex_lock(&mutex);
	close(map->fd);
	map->fd = -1;
	pthread_mutex_unlock(&mutex);
	wire_detach(map);
}

void *wire_memory(struct wire_map *map)
{
	return map->head;
}

bool wire_is_local(struct wire_map *map)
{
	return map->pid == getpid();
}

static bool file_locked(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };

	return fcntl(fd, F_GETLK, &lock) || lock.l_type != F_UNLCK;
}

bool wire_owner_alive(struct wire_map *map)
{
	return wire_is_local(map) || file_locked(map->fd);
}

void wire_reap(void)
{
	char prefix[64], path[PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(DIR_SHM);

	if (!dir)
		return;
	snprintf(prefix, sizeof prefix, "simfab-%u-", (unsigned)geteuid());
	while ((entry = readdir(dir))) {
		int pid, fd;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) ||
		    sscanf(entry->d_name + strlen(prefix), "%d-", &pid) != 1 || pid == getpid())
			continue; /* our own: closing a descriptor here would drop our lock on it */
		snprintf(path, sizeof path, DIR_SHM "/%s", entry->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (!file_locked(fd))
			unlink(path);
		close(fd);
	}
	closedir(dir);
}

void wire_retire(_Atomic uint32_t *users)
{
	/* A copy takes microseconds. Only a copier that was killed half-way keeps its count, so a second is long
	 * enough. */
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (atomic_load_explicit(users, memory_order_acquire)) {
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - start.tv_sec > 1)
			break;
	}
	atomic_store(users, 0);
}
