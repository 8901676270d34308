/*
 * Copies to and from peers' memory: jobs in a queue, made a slice at a time, so that a long one holds up neither the worker nor the
 * jobs behind it. What lies side by side in the queue and in the same memory goes in one call. Runs on the worker that owns the
 * rail.
 */
#include "base/hot.h"
#include "local/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define RANGES     WF_RANGES /* in one call of the kernel */
#define LIST_PAGES 4096      /* of a list, in one call */
#define PAGE_COST  32        /* what a page of a list costs besides its bytes, in bytes */

static struct wf_job *job_at(struct wf_local *local, uint32_t i)
{
	return &local->job[(local->job_first + i) & (WF_JOBS - 1)];
}

/* ---- ends ---- */

void wf_copies_tell_end(struct wf_local *local, void *context, int status)
{
	if (context)
		local->end[(local->end_first + local->ends++) % WF_LOCAL_OPS] =
		    (struct wf_local_end){ .context = context, .status = status };
}

static void take_first(struct wf_local *local)
{
	wf_opened_used(job_at(local, 0)->opened);
	local->job_first++;
	local->jobs--;
}

/* The first job goes to the end of the queue. */
static void put_last(struct wf_local *local)
{
	struct wf_job job = *job_at(local, 0);

	local->job_first++;
	*job_at(local, local->jobs - 1) = job;
}

/* A part of an operation that failed: so does the operation, and its other parts are not made. */
static void fail_first(struct wf_local *local, int status)
{
	void *context;

	do {
		context = job_at(local, 0)->context;
		take_first(local);
	} while (!context && local->jobs);
	wf_copies_tell_end(local, context, status);
}

void wf_copies_fail(struct wf_local *local, const struct wf_line *line, int status)
{
	for (uint32_t left = local->jobs; left; left--) {
		struct wf_job *job = job_at(local, 0);

		if (line && job->line != line) {
			put_last(local);
			continue;
		}
		if (line)
			wf_copies_tell_end(local, job->context, status);
		else
			local->posted -= job->context != NULL;
		take_first(local);
	}
}

/* Returns whether the first job, whose bytes are copied, is over. If its immediate finds no room it waits for some. */
static bool end_first(struct wf_local *local)
{
	struct wf_job *job = job_at(local, 0);
	struct wf_record record = { .kind = WF_RECORD_IMMEDIATE, .immediate = job->immediate };
	struct wf_line *line = job->line;
	int error = job->has_immediate ? wf_pipe_put(&line->pipe, &record, NULL) : 0;

	if (error == -EAGAIN)
		return false;
	if (error) {
		wf_line_break(line, "it breaks the pipe's rules"); /* which ends its jobs */
		return true;
	}
	if (job->has_immediate)
		wf_line_ring(line);
	wf_copies_tell_end(local, job->context, 0);
	take_first(local);
	return true;
}

/* ---- a call ---- */

/* What one call copies: the first jobs of the queue, all to or from the same memory; or pages of the first, if it is a list. */
struct call {
	struct wf_line *line;
	struct wf_opened *opened;
	bool read;
	uint32_t count;
	uint64_t bytes;
	const struct wf_job *list; /* NULL: ranges */
	struct iovec near[RANGES], far[RANGES];
};

/* Where page i of the list begins in the owner's region. Its owner says how long that is: each page is checked, and one that lies
 * outside is given as UINT64_MAX. */
static inline uint64_t far_offset(const struct wf_job *job, uint64_t i, uint64_t page_bytes)
{
	uint64_t offset = job->far - job->opened->base + wf_page_offset(job->list->far_index, i, job->list->far_stride);

	return offset <= job->opened->bytes && job->opened->bytes - offset >= page_bytes ? offset : UINT64_MAX;
}

/* Pages of the first job. The kernel takes as many ranges as it gets; a copy of ours walks the list itself. */
static void gather_list(const struct wf_job *job, uint64_t budget, struct call *call)
{
	uint64_t page_bytes = job->list->page_bytes, pages = job->left / page_bytes, far;
	uint64_t most = budget / page_bytes ? budget / page_bytes : 1;

	pages = pages < most ? pages : most;
	pages = pages < LIST_PAGES ? pages : LIST_PAGES;
	call->list = job;
	if (call->opened->at) {
		call->bytes = pages * page_bytes;
		return;
	}
	while (call->count < pages && call->count < RANGES &&
	       (far = far_offset(job, job->page + call->count, page_bytes)) != UINT64_MAX) {
		call->near[call->count] =
		    (struct iovec){ job->near + wf_page_offset(job->list->near_index, job->page + call->count,
							       job->list->near_stride),
				    page_bytes };
		call->far[call->count] = (struct iovec){ (void *)(uintptr_t)(job->opened->base + far), page_bytes };
		call->count++;
	}
	call->bytes = call->count * page_bytes;
}

static void gather(struct wf_local *local, uint64_t budget, struct call *call)
{
	const struct wf_job *first = job_at(local, 0);
	uint64_t left = budget;

	call->line = first->line;
	call->opened = first->opened;
	call->read = first->read;
	call->count = 0;
	call->list = NULL;
	if (first->list) {
		gather_list(first, budget, call);
		return;
	}
	while (call->count < RANGES && call->count < local->jobs && left) {
		const struct wf_job *job = job_at(local, call->count);
		uint64_t bytes = job->left < left ? job->left : left;

		if (job->opened != call->opened || job->read != call->read || job->list)
			break;
		call->near[call->count] = (struct iovec){ job->near, bytes };
		call->far[call->count] = (struct iovec){ (void *)(uintptr_t)job->far, bytes };
		call->count++;
		left -= bytes;
	}
	call->bytes = budget - left;
}

/* Returns how many were copied: less than pages if one lies outside the region. With page_bytes a constant, a small page is a few
 * instructions. */
static inline __attribute__((always_inline)) uint64_t copy_pages(const struct wf_job *job, uint64_t pages,
								 uint64_t page_bytes)
{
	char *at = job->opened->at;
	uint64_t i = 0, far;

	for (; i < pages && (far = far_offset(job, job->page + i, page_bytes)) != UINT64_MAX; i++) {
		char *near = job->near + wf_page_offset(job->list->near_index, job->page + i, job->list->near_stride);

		if (job->read)
			memcpy(near, at + far, page_bytes);
		else
			memcpy(at + far, near, page_bytes);
	}
	return i;
}

static uint64_t copy_list(const struct call *call)
{
	uint64_t page_bytes = call->list->list->page_bytes, pages = call->bytes / page_bytes;

	return page_bytes *
	       (page_bytes == 64 ? copy_pages(call->list, pages, 64) : copy_pages(call->list, pages, page_bytes));
}

static void copy_mapped(const struct call *call)
{
	for (uint32_t i = 0; i < call->count; i++) {
		char *far = call->opened->at + ((uintptr_t)call->far[i].iov_base - call->opened->base);

		if (call->read)
			memcpy(call->near[i].iov_base, far, call->near[i].iov_len);
		else
			memcpy(far, call->near[i].iov_base, call->near[i].iov_len);
	}
}

/* Returns how many bytes were copied, which ends between two ranges if it is less than all; or a negative errno. */
static int64_t copy_by_kernel(const struct call *call)
{
	ssize_t got;

	if (!call->bytes)
		return 0;
	got = call->read ? process_vm_readv(call->line->pid, call->near, call->count, call->far, call->count, 0)
			 : process_vm_writev(call->line->pid, call->near, call->count, call->far, call->count, 0);
	return got < 0 ? -errno : got;
}

/* The owner of the memory either sees that we copy there, or we see that it took the memory back. */
static int64_t copy(const struct call *call)
{
	_Atomic uint64_t *copying = &call->line->pipe.shared->copying;
	int64_t copied = -EKEYREJECTED;

	atomic_store(copying, (uint64_t)call->opened->slot + 1);
	if (atomic_load(&call->line->board->life[call->opened->slot]) == call->opened->life) {
		copied = (int64_t)call->bytes;
		if (call->opened->at && call->list)
			copied = (int64_t)copy_list(call);
		else if (call->opened->at)
			copy_mapped(call);
		else
			copied = copy_by_kernel(call);
		if (call->opened->at)
			call->line->local->mapped_bytes += (uint64_t)copied;
	}
	atomic_store_explicit(copying, 0, memory_order_release);
	return copied;
}

int64_t wf_copies_now(struct wf_line *line, struct wf_opened *opened, const struct wf_far_ranges *ranges)
{
	struct call call = {
		.line = line, .opened = opened, .read = ranges->read, .count = ranges->count, .bytes = ranges->bytes
	};

	memcpy(call.near, ranges->near, ranges->count * sizeof(call.near[0]));
	memcpy(call.far, ranges->far, ranges->count * sizeof(call.far[0]));
	return copy(&call);
}

/* The same for a list, whose job has a context. */
static void account_list(struct wf_local *local, const struct call *call, uint64_t copied)
{
	struct wf_job *job = job_at(local, 0);

	if (!copied || copied < call->bytes) {
		fail_first(local, -EFAULT); /* a page lies outside, or either side's memory is not there */
		return;
	}
	job->page += copied / job->list->page_bytes;
	job->left -= copied;
	if (job->left || !end_first(local))
		put_last(local);
}

/* Takes what was copied off the first jobs. A job that is not over goes last, unless it is one part of an operation: the others must
 * not end before it. */
static void account(struct wf_local *local, const struct call *call, uint64_t copied)
{
	for (uint32_t i = 0; i < call->count; i++) {
		struct wf_job *job = job_at(local, 0);
		uint64_t bytes = call->near[i].iov_len;

		if (copied < bytes) {
			fail_first(local, -EFAULT); /* either side's memory is not there */
			return;
		}
		copied -= bytes;
		job->near += bytes;
		job->far += bytes;
		job->left -= bytes;
		if (job->left && !job->context)
			return; /* the last of the call, cut off by the budget */
		if (job->left || !end_first(local))
			put_last(local);
		if (call->line->state != WF_LINE_UP)
			return;
	}
}

/* Returns how much of the budget was used. */
static uint64_t make_call(struct wf_local *local, uint64_t budget)
{
	struct call call;
	int64_t copied;

	gather(local, budget, &call);
	copied = copy(&call);
	if (copied == -EKEYREJECTED) {
		fail_first(local, -EKEYREJECTED);
		return 1;
	}
	if (copied == -ESRCH) {
		wf_line_break(call.line, "the process has ended");
		wf_line_process_ended(call.line);
		return 1;
	}
	if (copied < 0) {
		fail_first(local, copied == -EPERM ? -EACCES : (int)copied);
		return 1;
	}
	if (call.list) {
		uint64_t pages = call.bytes / call.list->list->page_bytes;

		account_list(local, &call, (uint64_t)copied);
		return pages * PAGE_COST + call.bytes;
	}
	account(local, &call, (uint64_t)copied);
	return call.bytes ? call.bytes : 1;
}

WF_HOT void wf_local_go(struct wf_local *local)
{
	uint64_t budget = WF_SLICE_BYTES, used;
	uint32_t calls = 2 * WF_LOCAL_OPS / RANGES; /* bounded: immediates may find no room for long */

	while (local->jobs && budget && calls--) {
		used = make_call(local, budget);
		budget -= used < budget ? used : budget;
	}
	if (__builtin_expect(local->cargoes != 0, 0))
		wf_cargo_go(local);
}

uint64_t wf_local_mapped_bytes(const struct wf_local *local)
{
	return local->mapped_bytes;
}

/* ---- posting ---- */

WF_HOT int wf_local_begin(struct wf_local *local, const struct wf_local_run *run)
{
	struct wf_line *line = wf_line_of(local, run->target);
	int error;

	local->begun = NULL;
	if (!line)
		return -EHOSTUNREACH;
	error = wf_line_ready(line);
	if (!error)
		error = wf_opened_find(line, run->key, &local->begun_at);
	/* The descriptor said that it is the CPU's memory, its owner that it is a card's: one of them is wrong. */
	if (!error && local->begun_at->card && !run->cards)
		error = -EKEYREJECTED;
	if (!error)
		local->begun = line;
	return error;
}

bool wf_local_has_room(const struct wf_local *local, uint32_t copies)
{
	return local->jobs + copies <= WF_JOBS && local->posted < WF_LOCAL_OPS;
}

WF_HOT int wf_local_post(struct wf_local *local, const struct wf_local_run *run, const struct wf_local_copy *copy)
{
	const struct wf_opened *opened = local->begun_at;
	uint64_t offset = copy->remote - opened->base;

	if (local->jobs == WF_JOBS || local->posted == WF_LOCAL_OPS)
		return -EAGAIN;
	if (!(opened->access & (run->read ? WEFT_REMOTE_READ : WEFT_REMOTE_WRITE)))
		return -EACCES;
	if (!run->list && (offset > opened->bytes || copy->bytes > opened->bytes - offset))
		return -ERANGE;
	if (__builtin_expect(run->cards, 0) && (run->near || opened->card))
		return wf_cargo_post(local, run, copy);
	*job_at(local, local->jobs++) = (struct wf_job){ .line = local->begun,
							 .opened = local->begun_at,
							 .context = copy->context,
							 .near = copy->local,
							 .far = copy->remote,
							 .left = copy->bytes,
							 .list = run->list,
							 .page = copy->first,
							 .immediate = run->immediate,
							 .has_immediate = run->has_immediate && copy->context,
							 .read = run->read };
	local->begun_at->jobs++;
	local->posted += copy->context != NULL;
	return 0;
}
