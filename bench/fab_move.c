/* The bare posting loop: everything here is on the measured path, so it does only what the provider needs. */
#include "fab.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPIN_NS UINT64_C(50000)

static void stop_on_error(struct fab_rail *rail, ssize_t rc)
{
	struct fi_cq_err_entry error;

	if (rc == -FI_EAVAIL) {
		memset(&error, 0, sizeof error);
		fi_cq_readerr(rail->cq, &error, 0);
		fprintf(stderr, "%s: an operation failed: %s\n", program_invocation_short_name,
			fi_cq_strerror(rail->cq, error.prov_errno, error.err_data, NULL, 0));
		exit(1);
	}
	fab_check(rc, "fi_cq_read");
}

/* What all writes of one turn of a rail share. Only addresses change from one to the next. */
struct post {
	struct iovec local[FAB_IOVS];
	struct fi_rma_iov remote[FAB_IOVS];
	void *desc[FAB_IOVS];
	struct fi_msg_rma message;
};

static inline void prepare(struct post *post, const struct fab_load *load, const struct fab_rail *rail)
{
	for (unsigned i = 0; i < load->iovs; i++) {
		post->local[i].iov_len = post->remote[i].len = load->page_bytes;
		post->remote[i].key = rail->key;
		post->desc[i] = rail->desc;
	}
	post->message = (struct fi_msg_rma){ .msg_iov = post->local,
					     .desc = post->desc,
					     .iov_count = load->iovs,
					     .rma_iov = post->remote,
					     .rma_iov_count = load->iovs,
					     .addr = rail->peer };
}

/* Posts one operation of n pages from `at` on. Returns 0 or libfabric's error. */
static inline ssize_t post_one(struct post *post, const struct fab_load *load, struct fab_rail *rail, uint64_t at,
			       unsigned n, uint64_t flags)
{
	size_t bytes = load->page_bytes;

	for (unsigned i = 0; i < n; i++, at = at + 1 < load->count ? at + 1 : 0) {
		post->local[i].iov_base = load->fab->memory + load->from[at] * bytes;
		post->remote[i].addr = rail->base + load->to[at] * bytes;
	}
	if (rail->idle)
		post->message.context = rail->idle[rail->idle_count - 1];
	return fi_writemsg(rail->ep, &post->message, flags);
}

static inline void fill(struct fab_load *load, struct fab_rail *rail)
{
	struct post post;
	unsigned room = load->depth - rail->in_flight, n = load->iovs, posted = 0;
	uint64_t at = load->next;

	/* Posts a full batch or nothing, unless the rail is about to run dry. */
	if ((room < load->batch && rail->in_flight > load->depth / 2) || !load->left)
		return;
	if (room > load->batch)
		room = load->batch;
	if (room > load->left / n)
		room = load->left < n ? 1 : (unsigned)(load->left / n);
	prepare(&post, load, rail);
	while (posted < room) {
		ssize_t rc = post_one(&post, load, rail, at, n, rail->flags | (posted + 1 < room ? FI_MORE : 0));

		if (__builtin_expect(rc != 0, 0)) {
			if (rc == -FI_EAGAIN)
				break;
			fab_check(rc, "fi_writemsg");
		}
		posted++;
		if (rail->idle)
			rail->idle_count--;
		at += n;
		if (at >= load->count)
			at -= load->count;
	}
	load->next = at;
	load->left -= load->left == UINT64_MAX ? 0 : load->left < posted * n ? load->left : posted * n;
	load->posted += posted * n;
	rail->in_flight += posted;
}

static inline uint64_t drain(struct fab_rail *rail)
{
	struct fi_cq_data_entry entry[FAB_BATCH];
	ssize_t got = fi_cq_read(rail->cq, entry, FAB_BATCH);

	if (got == -FI_EAGAIN)
		return 0;
	if (got < 0)
		stop_on_error(rail, got);
	for (ssize_t i = 0; rail->idle && i < got; i++)
		rail->idle[rail->idle_count++] = entry[i].op_context;
	rail->in_flight -= (unsigned)got;
	return (uint64_t)got;
}

uint64_t fab_turn(struct fab_load *load)
{
	struct fab *fab = load->fab;
	uint64_t done = 0;

	for (int i = 0; i < fab->rails; i++) {
		fill(load, &fab->rail[i]);
		done += drain(&fab->rail[i]);
	}
	return done;
}

bool fab_busy(const struct fab *fab)
{
	for (int i = 0; i < fab->rails; i++)
		if (fab->rail[i].in_flight)
			return true;
	return false;
}

void fab_warm(struct fab_load *load)
{
	uint64_t deadline = now_ns() + 10000000000u;
	struct fab_load one = *load;

	one.depth = one.batch = 1;
	for (int i = 0; i < load->fab->rails; i++) {
		struct fab_rail *rail = &load->fab->rail[i];

		one.left = 1;
		while (one.left || rail->in_flight) {
			fill(&one, rail);
			drain(rail);
			if (now_ns() > deadline)
				fab_check(-FI_ETIMEDOUT, "opening the path");
		}
	}
}

uint64_t fab_attend(struct fab *fab)
{
	struct fi_cq_data_entry entry[FAB_BATCH];
	uint64_t seen = 0;

	for (int i = 0; i < fab->rails; i++) {
		ssize_t got = fi_cq_read(fab->rail[i].cq, entry, FAB_BATCH);

		if (got > 0)
			seen += (uint64_t)got;
		else if (got != -FI_EAGAIN)
			stop_on_error(&fab->rail[i], got);
	}
	return seen;
}

void fab_rest(struct fab *fab, struct fab_idle *idle, bool nothing)
{
	uint64_t now;

	if (!nothing) {
		idle->turns = 0;
		return;
	}
	/* Spinning is fastest while both sides have a core; without one it starves the other side. */
	if (++idle->turns % 16)
		return;
	now = now_ns();
	if (idle->turns == 16)
		idle->since_ns = now;
	if (now - idle->since_ns < (idle->spin_ns ? idle->spin_ns : SPIN_NS))
		return;
	if (fab->wait_fd >= 0) {
		struct fid *fid = &fab->rail[0].cq->fid;
		struct pollfd ready = { .fd = fab->wait_fd, .events = POLLIN };

		if (!fi_trywait(fab->rail[0].fabric, &fid, 1))
			poll(&ready, 1, 1);
	} else {
		/* Naps grow with the quiet time: the target of one-sided writes has little to do and must not be in
		 * the way. */
		uint64_t quiet_us = (now - idle->since_ns) / 4000;

		usleep(quiet_us < 20 ? 20 : quiet_us > 1000 ? 1000 : (useconds_t)quiet_us);
	}
}

void fab_receive(struct fab *fab, unsigned slot)
{
	char *buffer = fab->messages + slot * FAB_MESSAGE;

	fab_check(fi_recv(fab->rail[0].ep, buffer, FAB_MESSAGE, fi_mr_desc(fab->message_mr), FI_ADDR_UNSPEC,
			  &fab->receive[slot]),
		  "fi_recv");
}

void fab_send(struct fab *fab, size_t bytes)
{
	struct fab_rail *rail = &fab->rail[0];
	uint64_t deadline = 0;
	ssize_t rc;

	while ((rc = fi_inject(rail->ep, fab->messages + FAB_RECEIVES * FAB_MESSAGE, bytes, rail->peer)) ==
	       -FI_EAGAIN) {
		fi_cq_read(rail->cq, NULL, 0); /* a provider that refuses a post needs progress */
		if (!deadline)
			deadline = now_ns() + 10000000000u;
		else if (now_ns() > deadline)
			fab_check(-FI_ETIMEDOUT, "sending");
	}
	fab_check(rc, "fi_inject");
}

int fab_arrived(struct fab *fab)
{
	struct fi_cq_data_entry entry;
	ssize_t got = fi_cq_read(fab->rail[0].cq, &entry, 1);

	if (got == -FI_EAGAIN)
		return -1;
	if (got < 0)
		stop_on_error(&fab->rail[0], got);
	if (!(entry.flags & FI_RECV))
		return -1;
	return (int)((struct fi_context2 *)entry.op_context - fab->receive);
}
