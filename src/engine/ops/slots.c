/* Pools of slots and the peers' shares of them: slots.h says what they are for. Any thread. */
#include "engine/ops/slots.h"
#include "base/hot.h"
#include "engine/core/control.h"
#include "engine/core/engine.h"
#include "engine/peer/peer.h"
#include "engine/ops/transfer.h"

#include <errno.h>
#include <stdlib.h>

#define SHARE_LEAST 16 /* of slots that one peer may hold, however few there are */

static void init_notes(struct wf_transfer *slot, uint32_t groups)
{
	wf_note_init(&slot->parts_done_note, WF_NOTE_PARTS_DONE, slot);
	wf_note_init(&slot->failed_note, WF_NOTE_FAILED, slot);
	for (uint32_t g = 0; g < groups; g++) {
		wf_note_init(&slot->part[g].start_note, WF_NOTE_PART, slot);
		wf_note_init(&slot->part[g].stop_note, WF_NOTE_PART_STOP, slot);
	}
}

/* What answers a peer has slots of its own, or two engines whose calls fill theirs would wait for each other's replies; with a share
 * on top that nobody gets who holds as much already. */
int wf_transfers_open(struct weft_engine *engine)
{
	struct wf_pool *const pools[] = { &engine->transfers, &engine->answers, &engine->internals };
	uint32_t most = engine->settings.max_transfers;
	const uint32_t counts[] = { most, most + wf_answers_share(engine), most };
	size_t bytes = sizeof(struct wf_transfer) + engine->groups * sizeof(struct wf_part);
	uint32_t number = 0;

	for (int p = 0; p < 3; p++) {
		int error = wf_pool_init(pools[p], counts[p], bytes);

		if (error)
			return error;
		for (uint32_t i = 0; i < pools[p]->count; i++) {
			struct wf_transfer *slot = wf_pool_at(pools[p], i);

			slot->engine = engine;
			slot->pool = pools[p];
			slot->id = slot->number = ++number;
			init_notes(slot, engine->groups);
			/* Generations start elsewhere in every engine, so that one's numbers mean nothing to another. */
			atomic_store(&slot->state, (engine->incarnation & 0x3fffffff) << 32 | WF_STOP_DONE);
		}
	}
	return 0;
}

uint32_t wf_transfer_slots(const struct weft_engine *engine)
{
	return engine->transfers.count + engine->answers.count + engine->internals.count;
}

struct wf_transfer *wf_transfer_at(const struct weft_engine *engine, uint32_t index)
{
	if (index < engine->transfers.count)
		return wf_pool_at(&engine->transfers, index);
	index -= engine->transfers.count;
	return index < engine->answers.count ? wf_pool_at(&engine->answers, index)
					     : wf_pool_at(&engine->internals, index - engine->answers.count);
}

void wf_transfers_close(struct weft_engine *engine)
{
	for (uint32_t i = 0; engine->internals.base && i < wf_transfer_slots(engine); i++) {
		struct wf_transfer *transfer = wf_transfer_at(engine, i);

		free(transfer->copy);
		free(transfer->manifest);
	}
	wf_pool_destroy(&engine->transfers);
	wf_pool_destroy(&engine->answers);
	wf_pool_destroy(&engine->internals);
}

/* ---- taking ---- */

WF_HOT struct wf_transfer *wf_transfer_reserve(struct wf_pool *pool)
{
	struct wf_transfer *transfer = wf_pool_take(pool);
	uint64_t generation;

	if (!transfer)
		return NULL;
	/* 31 bits, so that an id can be told from any small number and never is 0. */
	generation = ((atomic_load(&transfer->state) >> 32) + 1) << 32 & INT64_MAX;
	transfer->id = generation | transfer->number;
	wf_list_init(&transfer->message.link);
	transfer->message.over = wf_transfer_message_over;
	transfer->message.numbered = false;
	transfer->answers = NULL;
	return transfer;
}

/* With manual progress some may be out only because no turn has come since they ended. */
__attribute__((noinline)) static struct wf_transfer *reserve_ended(struct weft_engine *engine, struct wf_pool *pool)
{
	if (!wf_engine_is_manual(engine) || wf_engine_control(engine, wf_group_end_acked, NULL, NULL))
		return NULL;
	return wf_transfer_reserve(pool);
}

struct wf_transfer *wf_transfer_take_of(struct weft_engine *engine, struct wf_pool *pool, const struct weft_op *op)
{
	struct wf_transfer *transfer = wf_transfer_reserve(pool);

	if (!transfer && !(transfer = reserve_ended(engine, pool)))
		return NULL;
	wf_transfer_prepare(transfer, op);
	return transfer;
}

struct wf_transfer *wf_transfer_take(struct weft_engine *engine, const struct weft_op *op)
{
	return wf_transfer_take_of(engine, &engine->transfers, op);
}

/* ---- shares ---- */

uint32_t wf_answers_share(const struct weft_engine *engine)
{
	uint32_t share = engine->settings.max_transfers / 8;

	return share > SHARE_LEAST ? share : SHARE_LEAST;
}

static enum wf_answer answer_of(const struct wf_transfer *transfer)
{
	return transfer->kind == WF_REPLY ? WF_ANSWER_REPLY : WF_ANSWER_INTERNAL;
}

/* For all strangers together: a stranger that uses several names gets no more by it. */
static bool strangers_have_room(struct weft_engine *engine, enum wf_answer what)
{
	uint32_t most = engine->settings.max_transfers / 2;

	return atomic_load_explicit(&engine->strangers_answers[what], memory_order_relaxed) < (most ? most : 1);
}

/* A peer that the application named may use what there is, but for the last share when it has had one. Few peers hold enough
 * for anybody to count. */
static bool has_room(struct weft_engine *engine, enum wf_answer what, bool stranger, uint32_t held)
{
	if (stranger && !strangers_have_room(engine, what))
		return false;
	if (held < wf_answers_share(engine))
		return true;
	return !stranger && what == WF_ANSWER_REPLY && wf_pool_out(&engine->answers) <= engine->settings.max_transfers;
}

/* Counts that nothing else is ordered by: who reads one a moment late is off by one. */
WF_HOT int wf_answer_count(struct wf_transfer *transfer, struct wf_peer *peer)
{
	enum wf_answer what = answer_of(transfer);
	bool stranger = !atomic_load_explicit(&peer->added, memory_order_relaxed);
	uint32_t held = atomic_fetch_add_explicit(&peer->answers[what], 1, memory_order_relaxed);

	if (!has_room(transfer->engine, what, stranger, held)) {
		atomic_fetch_sub_explicit(&peer->answers[what], 1, memory_order_relaxed);
		return -EAGAIN;
	}
	if (stranger)
		atomic_fetch_add_explicit(&transfer->engine->strangers_answers[what], 1, memory_order_relaxed);
	transfer->answers = peer->answers;
	transfer->strangers = stranger;
	return 0;
}

WF_HOT void wf_answer_uncount(struct wf_transfer *transfer)
{
	enum wf_answer what = answer_of(transfer);

	if (!transfer->answers)
		return;
	atomic_fetch_sub_explicit(&transfer->answers[what], 1, memory_order_relaxed);
	if (transfer->strangers)
		atomic_fetch_sub_explicit(&transfer->engine->strangers_answers[what], 1, memory_order_relaxed);
	transfer->answers = NULL;
}

struct wf_transfer *wf_transfer_find(struct weft_engine *engine, weft_transfer id)
{
	uint32_t number = (uint32_t)id;
	struct wf_transfer *transfer;

	if (!number || number > wf_transfer_slots(engine))
		return NULL;
	transfer = wf_transfer_at(engine, number - 1);
	return atomic_load(&transfer->state) >> 32 == id >> 32 ? transfer : NULL;
}

static void *keep_room(struct weft_engine *engine, void **kept, size_t *room, size_t bytes)
{
	free(*kept);
	atomic_fetch_sub(&engine->copies_kept, *room);
	*room = 0;
	bytes = bytes < 256 ? 256 : bytes;
	*kept = malloc(bytes);
	if (!*kept)
		return NULL;
	*room = bytes;
	atomic_fetch_add(&engine->copies_kept, bytes);
	return *kept;
}

WF_HOT void *wf_transfer_copy_room(struct wf_transfer *transfer, size_t bytes)
{
	if (bytes <= transfer->copy_room && transfer->copy)
		return transfer->copy;
	return keep_room(transfer->engine, &transfer->copy, &transfer->copy_room, bytes);
}

void *wf_transfer_manifest_room(struct wf_transfer *transfer, size_t bytes)
{
	if (bytes <= transfer->manifest_room && transfer->manifest)
		return transfer->manifest;
	return keep_room(transfer->engine, &transfer->manifest, &transfer->manifest_room, bytes);
}
