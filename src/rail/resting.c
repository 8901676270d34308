/*
 * Outgoing endpoints of libfabric's shm that are done with, but stay open for a while. Engines of one process do not map each
 * other's endpoints: the provider gives them the owner's own mapping. When that goes, a peer that has not looked at all it
 * was sent yet follows a pointer into nothing; or into the next endpoint, which the kernel likes to put in the same place,
 * and there it marks as done whatever has the old operation's number. So an endpoint that may have such a peer rests: nothing
 * is posted to it any more and what it completes is dropped, but its memory stays until its peers are through with it. Runs
 * on the worker that owns the rail. Peers of other processes have a mapping of their own.
 */
#include "base/time.h"
#include "rail/internal.h"

#include <pthread.h>
#include <stdlib.h>

#define MOST      32u /* at rest on one rail; each takes about a megabyte */
#define LOOKS     2000u
#define LOOK_NS   WF_MS
#define BATCH     64
#define LAST_LOOK 64 /* reads when there will be no other */

struct wf_resting {
	struct wf_endpoint end;
	struct wf_resting *next;
	uint64_t look_ns;
	uint32_t looks;
	bool readable; /* what it completes is still believed */
	bool left;     /* memory that its operations use is gone: they must not be moved on any more */
};

/* Endpoints left by rails that have closed. They stay reachable, and nothing else is done with them. */
static struct wf_resting *left_open;
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;

struct wf_endpoint *wf_resting_readable(struct wf_rail *rail)
{
	return rail->resting && rail->resting->readable ? &rail->resting->end : NULL;
}

void wf_resting_read(struct wf_rail *rail)
{
	if (rail->resting) /* only the newest can be readable */
		rail->resting->readable = false;
}

bool wf_resting_full(const struct wf_rail *rail)
{
	uint32_t count = 0;

	for (const struct wf_resting *resting = rail->resting; resting; resting = resting->next)
		count += !resting->left;
	return count >= MOST;
}

/* Moving a long write on touches the peer's memory, which is gone once the peer has closed. Nothing is posted to an address
 * without a user. */
static bool has_lost_a_peer(const struct wf_endpoint *end)
{
	for (uint32_t i = 0; i < end->addresses.count; i++) {
		const struct wf_address *entry = &end->addresses.entry[i];

		if (entry->references && wf_rail_in_process(entry->address, entry->bytes) &&
		    wf_rail_has_closed(entry->address, entry->bytes))
			return true;
	}
	return false;
}

/* Moves its operations on, and counts those that complete. Returns whether any did. */
static bool move_on(struct wf_resting *resting)
{
	struct fi_cq_data_entry entry[BATCH];
	struct fi_cq_err_entry failure = { 0 };
	ssize_t got;

	if (!resting->left)
		resting->left = has_lost_a_peer(&resting->end);
	if (resting->left || !resting->end.posted)
		return false;
	got = fi_cq_read(resting->end.cq, entry, BATCH);
	if (got == -FI_EAVAIL)
		got = fi_cq_readerr(resting->end.cq, &failure, 0);
	if (got <= 0)
		return false;
	resting->end.posted -= (uint32_t)got < resting->end.posted ? (uint32_t)got : resting->end.posted;
	return true;
}

static void settle(struct wf_resting *resting)
{
	for (int i = 0; resting->end.posted && i < LAST_LOOK && move_on(resting); i++)
		;
}

int wf_resting_begin(struct wf_rail *rail, struct wf_endpoint *end, bool readable)
{
	struct wf_resting *resting = calloc(1, sizeof(*resting));

	if (!resting)
		return -FI_ENOMEM;
	wf_resting_read(rail);
	resting->end = *end;
	resting->readable = readable;
	resting->next = rail->resting;
	rail->resting = resting;
	if (!readable)
		settle(resting);
	*end =
	    (struct wf_endpoint){ .addresses = { .most = end->addresses.most, .idle_most = end->addresses.idle_most } };
	return 0;
}

/* The provider copies to and from the memory of a long write or a read while it moves it on. */
void wf_resting_unregister(struct wf_rail *rail)
{
	for (struct wf_resting *resting = rail->resting; resting; resting = resting->next) {
		settle(resting);
		resting->left |= resting->end.posted > 0;
	}
}

static void give_up(struct wf_resting **at)
{
	struct wf_resting *resting = *at;

	*at = resting->next;
	wf_rail_close_end(&resting->end);
	wf_addresses_free(&resting->end.addresses);
	free(resting);
}

/* Frames and greetings complete before the peer has seen them: it has some time for those. Counted in looks, so that a process
 * that was stopped meanwhile does not take the pause for that time. */
void wf_resting_look(struct wf_rail *rail)
{
	struct wf_resting **at = &rail->resting;
	uint64_t now;

	if (__builtin_expect(!*at, 1))
		return;
	now = wf_now_ns();
	while (*at) {
		struct wf_resting *resting = *at;

		if (!resting->readable && now - resting->look_ns >= LOOK_NS) {
			resting->look_ns = now;
			resting->looks++;
			move_on(resting);
		}
		if (!resting->readable && !resting->end.posted && resting->looks >= LOOKS)
			give_up(at);
		else
			at = &resting->next;
	}
}

bool wf_resting_end(struct wf_rail *rail)
{
	bool all = true;

	wf_resting_read(rail);
	while (rail->resting) {
		struct wf_resting *resting = rail->resting;

		settle(resting);
		if (!resting->end.posted) {
			give_up(&rail->resting);
			continue;
		}
		all = false;
		rail->resting = resting->next;
		pthread_mutex_lock(&left_lock);
		resting->next = left_open;
		left_open = resting;
		pthread_mutex_unlock(&left_lock);
	}
	if (!all)
		wf_log(rail->log, WEFT_LOG_WARN, "rail %s: peers in this process still use it: it stays open",
		       rail->name);
	return all;
}
