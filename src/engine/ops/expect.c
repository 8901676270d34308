/*
 * Counted notifications: how often each immediate has arrived, and who expects how many. Everything is allocated at open, so
 * that a peer cannot make us allocate: an expectation always finds room, and of those that nobody expects the latest are
 * remembered. An immediate does not say whose it is, so peers cannot be given shares. Owned by group 0's worker; other groups
 * tell it what they saw.
 */
#include "engine/ops/expect.h"
#include "engine/core/engine.h"
#include "engine/move/counts.h"
#include "engine/peer/peer.h"
#include "engine/ops/transfer.h"

#include <errno.h>
#include <stdlib.h>

struct counter {
	struct wf_link link; /* counters->early while nobody expects it, else counters->idle or none */
	uint32_t immediate;
	uint64_t arrived;
	struct wf_transfer *expected; /* NULL: nobody asked yet */
};

struct wf_counters {
	struct wf_link early; /* the one that arrived longest ago first */
	struct wf_link idle;
	uint32_t early_count, mask, count;
	uint32_t bound;     /* expectations of one peer's writes */
	uint64_t forgotten; /* how often one was given up for another */
	struct counter *counter;
	uint32_t table[]; /* by hash, the next free slot where that is taken: number of a counter, from 1 on; 0: none */
};

int wf_counters_open(struct weft_engine *engine)
{
	uint32_t count = WF_EARLY + engine->settings.max_transfers, slots = wf_immediate_slots(count);
	struct wf_counters *counters;

	counters = calloc(1, sizeof(*counters) + slots * sizeof(counters->table[0]));
	if (!counters)
		return -ENOMEM;
	engine->counters = counters;
	counters->counter = calloc(count, sizeof(*counters->counter));
	if (!counters->counter)
		return -ENOMEM;
	counters->mask = slots - 1;
	counters->count = count;
	wf_list_init(&counters->early);
	wf_list_init(&counters->idle);
	for (uint32_t i = 0; i < count; i++)
		wf_list_append(&counters->idle, &counters->counter[i].link);
	return 0;
}

void wf_counters_close(struct weft_engine *engine)
{
	if (engine->counters)
		free(engine->counters->counter);
	free(engine->counters);
}

static struct counter *counter_in(struct wf_counters *counters, uint32_t slot)
{
	return &counters->counter[counters->table[slot] - 1];
}

/* Where it is, or where it would be: an empty slot. */
static uint32_t slot_of(struct wf_counters *counters, uint32_t immediate)
{
	uint32_t slot = wf_immediate_slot(immediate, counters->mask);

	while (counters->table[slot] && counter_in(counters, slot)->immediate != immediate)
		slot = (slot + 1) & counters->mask;
	return slot;
}

static struct counter *find(struct wf_counters *counters, uint32_t immediate)
{
	uint32_t slot = slot_of(counters, immediate);

	return counters->table[slot] ? counter_in(counters, slot) : NULL;
}

/* Frees its slot and moves what was pushed past it, so that probing still finds everything. */
static void forget(struct wf_counters *counters, struct counter *counter)
{
	uint32_t hole = slot_of(counters, counter->immediate), at = hole;

	counters->table[hole] = 0;
	for (at = (at + 1) & counters->mask; counters->table[at]; at = (at + 1) & counters->mask) {
		uint32_t wanted = wf_immediate_slot(counter_in(counters, at)->immediate, counters->mask);

		/* It may move into the hole when its own place is not between the hole and where it stands. */
		if (((at - wanted) & counters->mask) >= ((at - hole) & counters->mask)) {
			counters->table[hole] = counters->table[at];
			counters->table[at] = 0;
			hole = at;
		}
	}
	wf_list_remove(&counter->link);
	wf_list_append(&counters->idle, &counter->link);
}

static void forget_oldest(struct weft_engine *engine)
{
	struct wf_counters *counters = engine->counters;
	struct counter *oldest = wf_container(counters->early.next, struct counter, link);

	counters->early_count--;
	counters->forgotten++;
	/* Each time twice as many: a peer must not fill the log either. */
	if (!(counters->forgotten & (counters->forgotten - 1)))
		wf_log(&engine->log, WEFT_LOG_WARN,
		       "immediate %u, which came %llu times, is forgotten: nobody expects it, and %u others came since "
		       "(%llu so far)",
		       oldest->immediate, (unsigned long long)oldest->arrived, WF_EARLY,
		       (unsigned long long)counters->forgotten);
	forget(counters, oldest);
}

/* Nobody expects it (any more): the latest of those that are remembered. */
static void keep_early(struct weft_engine *engine, struct counter *counter)
{
	if (engine->counters->early_count == WF_EARLY)
		forget_oldest(engine);
	engine->counters->early_count++;
	wf_list_append(&engine->counters->early, &counter->link);
}

static void leave_early(struct wf_counters *counters, struct counter *counter)
{
	counters->early_count--;
	wf_list_remove(&counter->link);
}

/* There is one: expectations are transfers, and the early are bounded. */
static struct counter *make(struct wf_counters *counters, uint32_t immediate)
{
	struct counter *counter = wf_container(counters->idle.next, struct counter, link);

	wf_list_remove(&counter->link);
	*counter = (struct counter){ .immediate = immediate };
	wf_list_init(&counter->link);
	counters->table[slot_of(counters, immediate)] = (uint32_t)(counter - counters->counter) + 1;
	return counter;
}

static void expects_no_more(struct weft_engine *engine, struct counter *counter)
{
	engine->counters->bound -= counter->expected->peer_handle != 0;
	counter->expected = NULL;
	if (counter->arrived)
		keep_early(engine, counter);
	else
		forget(engine->counters, counter);
}

static void settle(struct weft_engine *engine, struct counter *counter)
{
	struct wf_transfer *transfer = counter->expected;

	if (counter->arrived < transfer->expected)
		return;
	counter->arrived -= transfer->expected;
	expects_no_more(engine, counter);
	wf_transfer_end(transfer, 0);
}

void wf_counted(struct weft_engine *engine, uint32_t immediate, uint64_t count)
{
	struct wf_counters *counters = engine->counters;
	struct counter *counter = find(counters, immediate);

	if (counter && counter->expected) {
		counter->arrived += count;
		settle(engine, counter);
		return;
	}
	if (counter)
		leave_early(counters, counter);
	else if (counters->early_count == WF_EARLY)
		forget_oldest(engine); /* before one is made: that may be the last */
	if (!counter)
		counter = make(counters, immediate);
	counter->arrived += count;
	keep_early(engine, counter);
}

/* A peer that went down before we came here is not going to tell us again. */
static int gone_already(struct weft_engine *engine, weft_peer handle)
{
	struct wf_peer *peer = wf_handle_get(&engine->peers, handle);
	bool down;

	if (!peer)
		return -ECANCELED;
	down = wf_peer_is_down(peer);
	wf_handle_put(&engine->peers, handle);
	return down ? -EHOSTDOWN : 0;
}

void wf_expect_begin(struct wf_transfer *transfer)
{
	struct weft_engine *engine = transfer->engine;
	struct counter *counter = find(engine->counters, transfer->immediate);
	int why = transfer->peer_handle ? gone_already(engine, transfer->peer_handle) : 0;

	if (!why && counter && counter->expected)
		why = -EBUSY;
	if (why) {
		wf_transfer_end(transfer, why);
		return;
	}
	if (counter)
		leave_early(engine->counters, counter);
	else
		counter = make(engine->counters, transfer->immediate);
	counter->expected = transfer;
	engine->counters->bound += transfer->peer_handle != 0;
	settle(engine, counter);
}

void wf_expect_forget(struct wf_transfer *transfer)
{
	struct counter *counter = find(transfer->engine->counters, transfer->immediate);

	if (counter && counter->expected == transfer)
		expects_no_more(transfer->engine, counter);
}

void wf_expect_peer_gone(const struct wf_peer *peer, int why)
{
	struct wf_counters *counters = peer->engine->counters;
	uint32_t life = atomic_load(&peer->gone_life);

	for (uint32_t i = 0; i < counters->count && counters->bound; i++) {
		struct wf_transfer *transfer = counters->counter[i].expected;

		if (transfer && transfer->peer_handle == peer->handle && (int32_t)(transfer->peer_life - life) <= 0 &&
		    wf_transfer_stop(transfer, why))
			wf_transfer_stopped(transfer);
	}
}
