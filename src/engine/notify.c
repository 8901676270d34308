/*
 * Counted notifications: how often each immediate has arrived, and who expects how many. A table of fixed size, so that
 * a peer cannot make us allocate. Owned by group 0's worker; other groups tell it what they saw.
 */
#include "base/time.h"
#include "engine/engine.h"
#include "engine/transfer.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS 8192u /* immediates counted or expected at the same time, at most half of it */

struct counter {
	bool used;
	uint32_t immediate;
	uint64_t arrived;
	struct wf_transfer *expected; /* NULL: nobody asked yet */
};

struct wf_counters {
	uint32_t used;
	struct counter slot[SLOTS];
};

int wf_counters_open(struct weft_engine *engine)
{
	engine->counters = calloc(1, sizeof(*engine->counters));
	return engine->counters ? 0 : -ENOMEM;
}

void wf_counters_close(struct weft_engine *engine)
{
	free(engine->counters);
}

static uint32_t home_slot(uint32_t immediate)
{
	return immediate * UINT32_C(0x9e3779b1) >> 19; /* 13 bits */
}

/* NULL: not there and not made, because it was not asked for or the table is full. */
static struct counter *find(struct wf_counters *counters, uint32_t immediate, bool make)
{
	for (uint32_t i = home_slot(immediate);; i = (i + 1) % SLOTS) {
		struct counter *counter = &counters->slot[i];

		if (counter->used && counter->immediate == immediate)
			return counter;
		if (counter->used)
			continue;
		if (!make || counters->used >= SLOTS / 2)
			return NULL;
		*counter = (struct counter){ .used = true, .immediate = immediate };
		counters->used++;
		return counter;
	}
}

/* Frees a slot and moves what was pushed past it, so that probing still finds everything. */
static void forget(struct wf_counters *counters, struct counter *counter)
{
	uint32_t hole = (uint32_t)(counter - counters->slot), at = hole;

	counters->used--;
	counter->used = false;
	for (;;) {
		uint32_t wanted;

		at = (at + 1) % SLOTS;
		if (!counters->slot[at].used)
			return;
		wanted = home_slot(counters->slot[at].immediate);
		/* It may move into the hole when its own place is not between the hole and where it stands. */
		if ((at - wanted) % SLOTS >= (at - hole) % SLOTS) {
			counters->slot[hole] = counters->slot[at];
			counters->slot[at].used = false;
			hole = at;
		}
	}
}

static void settle(struct weft_engine *engine, struct counter *counter)
{
	struct wf_transfer *transfer = counter->expected;

	if (!transfer || counter->arrived < transfer->expected)
		return;
	counter->arrived -= transfer->expected;
	counter->expected = NULL;
	if (!counter->arrived)
		forget(engine->counters, counter);
	wf_transfer_end(transfer, 0);
}

void wf_counted(struct weft_engine *engine, uint32_t immediate, uint64_t count)
{
	struct counter *counter = find(engine->counters, immediate, true);

	if (!counter) {
		wf_log(&engine->log, WEFT_LOG_ERROR, "immediate %u is lost: more than %u are counted already", immediate,
		       SLOTS / 2);
		return;
	}
	counter->arrived += count;
	settle(engine, counter);
}

void wf_expect_begin(struct wf_transfer *transfer)
{
	struct weft_engine *engine = transfer->engine;
	struct counter *counter = find(engine->counters, transfer->immediate, true);

	if (!counter || counter->expected) {
		wf_transfer_end(transfer, counter ? -EBUSY : -ENOBUFS);
		return;
	}
	counter->expected = transfer;
	settle(engine, counter);
}

void wf_expect_forget(struct wf_transfer *transfer)
{
	struct wf_counters *counters = transfer->engine->counters;
	struct counter *counter = find(counters, transfer->immediate, false);

	if (!counter || counter->expected != transfer)
		return;
	counter->expected = NULL;
	if (!counter->arrived)
		forget(counters, counter);
}
