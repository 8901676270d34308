/*
 * memcpy: copies pages at random places in one thread: the most that the machine's memory allows. "warm" copies one page over and
 * over. "shared" takes memory of a memfd, as memory of weft_memory_alloc() is. "kernel" copies to another process by
 * process_vm_writev(), 64 pages per call: the limit for memory that weft did not allocate.
 */
#include "fab.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANGES 64

struct job {
	uint64_t bytes, region, slots;
	double seconds;
	bool warm, json, shared, kernel;
	char *from, *to;
	uint32_t *from_index, *to_index;
	pid_t other; /* who has to, at the same address */
};

static char *map(const struct job *job)
{
	int fd = job->shared ? memfd_create("memcpy", MFD_CLOEXEC) : -1;
	char *memory;

	if (job->shared && (fd < 0 || ftruncate(fd, (off_t)job->region)))
		fab_check(-errno, "memfd");
	memory = mmap(NULL, job->region, PROT_READ | PROT_WRITE, job->shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS,
		      fd, 0);
	if (memory == MAP_FAILED)
		fab_check(-errno, "memory");
	if (fd >= 0)
		close(fd);
	madvise(memory, job->region, MADV_HUGEPAGE);
	memset(memory, 1, job->region);
	return memory;
}

/* The child's memory is its own once it has written there. */
static void start_other(struct job *job)
{
	int ready[2];
	char byte = 0;

	if (pipe(ready))
		fab_check(-errno, "pipe");
	job->other = fork();
	if (!job->other) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memset(job->to, 2, job->region);
		if (write(ready[1], &byte, 1) == 1)
			pause();
		_exit(1);
	}
	if (job->other < 0 || read(ready[0], &byte, 1) != 1)
		fab_check(-ECHILD, "the second process");
	close(ready[0]);
	close(ready[1]);
}

static void copy_by_kernel(const struct job *job, uint64_t *at, int pages)
{
	struct iovec near[RANGES], far[RANGES];

	for (int i = 0; i < pages; i++) {
		near[i] = (struct iovec){ job->from + job->from_index[*at] * job->bytes, job->bytes };
		far[i] = (struct iovec){ job->to + job->to_index[*at] * job->bytes, job->bytes };
		*at = *at + 1 < job->slots ? *at + 1 : 0;
	}
	if (process_vm_writev(job->other, near, (unsigned long)pages, far, (unsigned long)pages, 0) !=
	    (ssize_t)((uint64_t)pages * job->bytes))
		fab_check(-errno, "process_vm_writev");
}

static void copy_here(const struct job *job, uint64_t *at, int pages)
{
	for (int i = 0; i < pages; i++) {
		memcpy(job->to + job->to_index[*at] * job->bytes, job->from + job->from_index[*at] * job->bytes,
		       job->bytes);
		__asm__ volatile("" ::: "memory");
		*at = *at + 1 < job->slots ? *at + 1 : 0;
	}
}

static int parse(int argc, char **argv, struct job *job)
{
	static const struct option longs[] = { { "page-size", 1, 0, 'b' }, { "region", 1, 0, 'r' },
					       { "seconds", 1, 0, 't' },   { "warm", 0, 0, 'w' },
					       { "json", 0, 0, 'j' },      { "shared", 0, 0, 's' },
					       { "kernel", 0, 0, 'k' },    { 0 } };
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'b')
			job->bytes = strtoull(optarg, NULL, 0);
		else if (c == 'r')
			job->region = strtoull(optarg, NULL, 0);
		else if (c == 't')
			job->seconds = strtod(optarg, NULL);
		else if (c == 'w')
			job->warm = true;
		else if (c == 'j')
			job->json = true;
		else if (c == 's')
			job->shared = true;
		else if (c == 'k')
			job->kernel = true;
		else
			return -1;
	}
	return !job->bytes || job->bytes > job->region || !(job->seconds > 0 && job->seconds < 3600) ||
		       (job->shared && job->kernel)
		   ? -1
		   : 0;
}

int main(int argc, char **argv)
{
	struct job job = { .bytes = 65536, .region = 256u << 20, .seconds = 0.5 };
	uint64_t at = 0, pages = 0, start, ns;

	if (parse(argc, argv, &job))
		return 2;
	job.slots = job.warm ? 1 : job.region / job.bytes;
	job.from_index = malloc(job.slots * sizeof(uint32_t));
	job.to_index = malloc(job.slots * sizeof(uint32_t));
	if (!job.from_index || !job.to_index)
		fab_check(-ENOMEM, "memory");
	job.from = map(&job);
	job.to = map(&job);
	fab_shuffle(job.from_index, job.slots, 1);
	fab_shuffle(job.to_index, job.slots, 2);
	if (job.kernel)
		start_other(&job);
	start = now_ns();
	do {
		if (job.kernel)
			copy_by_kernel(&job, &at, RANGES);
		else
			copy_here(&job, &at, RANGES);
		pages += RANGES;
		ns = now_ns() - start;
	} while ((double)ns < job.seconds * 1e9);
	if (job.kernel) {
		kill(job.other, SIGKILL);
		waitpid(job.other, NULL, 0);
	}
	printf(job.json ? "{\"tool\": \"memcpy\", \"page_size\": %llu, \"warm\": %s, \"gbps\": %.3f, \"mops\": "
			  "%.6f}\n"
			: "memcpy of %llu bytes (warm: %s): %.3f Gbit/s, %.6f million pages/s\n",
	       (unsigned long long)job.bytes, job.warm ? "true" : "false", (double)(pages * job.bytes) * 8 / (double)ns,
	       (double)pages * 1e3 / (double)ns);
	return 0;
}
