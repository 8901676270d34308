/*
 * Reads completions in batches, including errors, and drains the event queue. A provider's oddities end here: error
 * entries with negative codes or without a context come out as plain completions. Runs on the worker that owns the
 * rail.
 */
#include "base/hot.h"
#include "base/list.h"
#include "rail/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64

/* The provider got its own part of the request, which it may write to. NULL stays NULL. */
static struct wf_wr *wr_of(void *context)
{
	return context ? wf_container(context, struct wf_wr, provider) : NULL;
}

static int read_error(struct wf_rail *rail, struct fid_cq *cq, struct wf_completion *completion)
{
	struct fi_cq_err_entry entry;
	ssize_t got;
	char text[128];

	/* err_data_size is an input: with a stale value the provider writes through a stale pointer. */
	memset(&entry, 0, sizeof(entry));
	got = fi_cq_readerr(cq, &entry, 0);
	if (got == -FI_EAGAIN)
		return 0;
	if (got < 0)
		return (int)got;
	snprintf(text, sizeof(text), "%s", fi_cq_strerror(cq, entry.prov_errno, entry.err_data, NULL, 0));
	if (!text[0] || !strcmp(text, "Success"))
		snprintf(text, sizeof(text), "%s", fi_strerror(abs(entry.err)));
	wf_rail_note_error(rail, entry.prov_errno ? entry.prov_errno : entry.err, text);
	memset(completion, 0, sizeof(*completion));
	/* A peer's failed access to our memory was not posted here, whatever the context field holds. */
	if (!(entry.flags & (FI_REMOTE_WRITE | FI_REMOTE_READ)) || (entry.flags & FI_RECV))
		completion->wr = wr_of(entry.op_context);
	completion->status = entry.err ? -abs(entry.err) : -EIO;
	return 1;
}

static void translate(const struct fi_cq_data_entry *entry, struct wf_completion *completion, ssize_t count)
{
	for (ssize_t i = 0; i < count; i++) {
		completion[i].wr = wr_of(entry[i].op_context);
		completion[i].status = 0;
		completion[i].bytes = entry[i].len;
		/* The immediate of a peer's write belongs to no work request of ours, whatever the context field
		 * holds. */
		if ((entry[i].flags & (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)) && !(entry[i].flags & FI_RECV)) {
			completion[i].wr = NULL;
			completion[i].immediate = (uint32_t)entry[i].data;
		}
	}
}

/* Detects a second report of the same failure. tcp writes both in one pass of its progress, so they are here
 * together. */
static bool is_repeated(struct wf_completion *completion)
{
	if (!completion->wr)
		return false;
	if (completion->wr->failed)
		return true;
	completion->wr->failed = 1;
	return false;
}

static void ended(uint32_t *posted, uint32_t count)
{
	if (posted)
		*posted -= count < *posted ? count : *posted;
}

/* Reads all pending failures before any of them is posted again, so that a repeated report can be told from a new
 * one. */
static int read_failures(struct wf_rail *rail, struct fid_cq *cq, uint32_t *posted)
{
	struct wf_failures *failures = &rail->failures;
	int got = 1;

	failures->next = failures->count = 0;
	atomic_fetch_or_explicit(&rail->odd, WF_ODD_FAILURES, memory_order_relaxed);
	while (got > 0 && failures->count < failures->room) {
		got = read_error(rail, cq, &failures->entry[failures->count]);
		if (got <= 0 || is_repeated(&failures->entry[failures->count]))
			continue;
		if (failures->entry[failures->count].wr)
			ended(posted, 1);
		failures->count++;
	}
	return got < 0 ? got : 0;
}

static int hand_failures_on(struct wf_failures *failures, struct wf_completion *completions, int max)
{
	int count = 0;

	while (count < max && failures->next < failures->count)
		completions[count++] = failures->entry[failures->next++];
	return count;
}

__attribute__((noinline)) static int read_failed(struct wf_rail *rail, struct fid_cq *cq, uint32_t *posted,
						 struct wf_completion *completions, int max, int why)
{
	int error = why == -FI_EAVAIL ? read_failures(rail, cq, posted) : why;

	if (!error)
		return hand_failures_on(&rail->failures, completions, max);
	wf_rail_note_error(rail, -error, fi_strerror(-error));
	return error;
}

/* posted: what the queue has not told of yet, to be counted down; NULL: nobody counts. In place, because most turns of a waiting
 * engine find nothing. */
static inline __attribute__((always_inline)) int read_queue(struct wf_rail *rail, struct fid_cq *cq, uint32_t *posted,
							    struct wf_completion *completions, int max)
{
	struct fi_cq_data_entry entry[BATCH];
	ssize_t got = fi_cq_read(cq, entry, (size_t)(max < BATCH ? max : BATCH));

	if (got == -FI_EAGAIN)
		return 0;
	if (got < 0)
		return read_failed(rail, cq, posted, completions, max, (int)got);
	ended(posted, (uint32_t)got);
	translate(entry, completions, got);
	return (int)got;
}

/* What the outgoing endpoint has completed, also before it was shut. */
WF_HOT static __attribute__((noinline)) int read_own(struct wf_rail *rail, struct wf_completion *completions, int max)
{
	struct wf_endpoint *open = &rail->end[WF_OUTGOING], *end = open->cq ? open : wf_resting_readable(rail);
	int got = end ? read_queue(rail, end->cq, &end->posted, completions, max) : 0;

	if (!got && end != open)
		wf_resting_read(rail);
	return got;
}

static inline __attribute__((always_inline)) int read_shared(struct wf_rail *rail, struct wf_completion *completions,
							     int max)
{
	return read_queue(rail, rail->cq, NULL, completions, max);
}

/* Each queue comes first every other time: a full one must not keep the other from being read. */
WF_HOT static __attribute__((noinline)) int read_both(struct wf_rail *rail, struct wf_completion *completions, int max)
{
	bool own_first = rail->own_first = !rail->own_first;
	int got, more;

	wf_resting_look(rail);
	got = own_first ? read_own(rail, completions, max) : read_shared(rail, completions, max);
	if (got < 0 || got == max || rail->failures.next < rail->failures.count)
		return got;
	more =
	    own_first ? read_shared(rail, completions + got, max - got) : read_own(rail, completions + got, max - got);
	if (more < 0)
		return got ? got : more; /* it is told again */
	return got + more;
}

static inline __attribute__((always_inline)) int poll_nic(struct wf_rail *rail, struct wf_completion *completions,
							  int max)
{
	return rail->quirks->shares_memory ? read_both(rail, completions, max) : read_shared(rail, completions, max);
}

static int poll_failures(struct wf_rail *rail, struct wf_completion *completions, int max)
{
	if (rail->failures.next < rail->failures.count)
		return hand_failures_on(&rail->failures, completions, max);
	atomic_fetch_and_explicit(&rail->odd, ~WF_ODD_FAILURES, memory_order_relaxed);
	return poll_nic(rail, completions, max);
}

static __attribute__((noinline)) int poll_odd(struct wf_rail *rail, struct wf_completion *completions, int max)
{
	/* Acquire: pairs with wf_staged_prepare(). */
	struct wf_staged *staged = atomic_load_explicit(&rail->staged, memory_order_acquire);
	int ended = staged ? wf_staged_advance(staged, completions, max) : 0, got;

	got = ended < max ? poll_failures(rail, completions + ended, max - ended) : 0;
	if (got < 0)
		return ended ? ended : got; /* it is told again */
	return ended + (staged ? wf_staged_filter(staged, completions + ended, got) : got);
}

WF_HOT int wf_rail_poll(struct wf_rail *rail, struct wf_completion *completions, int max)
{
	if (rail->local)
		return wf_host_poll(rail, completions, max);
	if (__builtin_expect(atomic_load_explicit(&rail->odd, memory_order_acquire) != 0, 0))
		return poll_odd(rail, completions, max);
	return poll_nic(rail, completions, max);
}

int wf_rail_poll_events(struct wf_rail *rail, enum wf_end end)
{
	struct fid_eq *eq = rail->end[end].eq;
	struct fi_eq_err_entry failure;
	uint8_t room[256];
	uint32_t event;
	ssize_t got;

	if (rail->local) {
		if (end == WF_PUBLISHED)
			wf_local_sweep(rail->local);
		return 0;
	}
	/* Bounded: a provider that always has more events must not hold the worker. */
	for (int i = 0; i < 64; i++) {
		got = fi_eq_read(eq, &event, room, sizeof(room), 0);
		if (got == -FI_EAGAIN || got == -FI_ENOSYS)
			return 0;
		if (got != -FI_EAVAIL)
			continue;
		memset(&failure, 0, sizeof(failure));
		if (fi_eq_readerr(eq, &failure, 0) < 0)
			return 0;
		wf_rail_note_error(rail, failure.prov_errno ? failure.prov_errno : failure.err,
				   fi_eq_strerror(eq, failure.prov_errno, failure.err_data, NULL, 0));
		return failure.err ? -abs(failure.err) : -EIO;
	}
	return 0;
}

int wf_rail_wait_fd(struct wf_rail *rail)
{
	int fd = -1;

	if (rail->local)
		return wf_local_wait_fd(rail->local);
	if (!rail->wait_fd || fi_control(&rail->cq->fid, FI_GETWAIT, &fd))
		return -1;
	return fd;
}

int wf_rail_try_wait(struct wf_rail *rail)
{
	struct wf_staged *staged;
	struct fid *fid;

	if (rail->local)
		return wf_local_try_wait(rail->local);
	staged = atomic_load_explicit(&rail->staged, memory_order_acquire);
	if (staged && wf_staged_is_busy(staged))
		return -EAGAIN;
	fid = &rail->cq->fid;
	return fi_trywait(rail->fabric, &fid, 1) ? -EAGAIN : 0;
}
