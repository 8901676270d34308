/*
 * The slots that transfers live in: two pools sized at open, for what the application asks for and for what answers peers. Any
 * thread.
 */
#include "base/hot.h"
#include "engine/engine.h"
#include "engine/transfer.h"

#include <stdlib.h>

/* What answers a peer has slots of its own, or two engines whose calls fill theirs would wait for each other's replies. */
int wf_transfers_open(struct weft_engine *engine)
{
	struct wf_pool *const pools[] = { &engine->transfers, &engine->answers };
	size_t bytes = sizeof(struct wf_transfer) + engine->groups * sizeof(struct wf_part);
	uint32_t number = 0;

	for (int p = 0; p < 2; p++) {
		int error = wf_pool_init(pools[p], engine->settings.max_transfers, bytes);

		if (error)
			return error;
		for (uint32_t i = 0; i < pools[p]->count; i++) {
			struct wf_transfer *slot = wf_pool_at(pools[p], i);

			slot->engine = engine;
			slot->pool = pools[p];
			slot->id = slot->number = ++number;
			/* Generations start elsewhere in every engine, so that one's numbers mean nothing to another. */
			atomic_store(&slot->state, (engine->incarnation & 0x3fffffff) << 32 | WF_STOP_DONE);
		}
	}
	return 0;
}

uint32_t wf_transfer_slots(const struct weft_engine *engine)
{
	return engine->transfers.count + engine->answers.count;
}

struct wf_transfer *wf_transfer_at(const struct weft_engine *engine, uint32_t index)
{
	return index < engine->transfers.count ? wf_pool_at(&engine->transfers, index) :
						 wf_pool_at(&engine->answers, index - engine->transfers.count);
}

void wf_transfers_close(struct weft_engine *engine)
{
	for (uint32_t i = 0; engine->answers.base && i < wf_transfer_slots(engine); i++) {
		struct wf_transfer *transfer = wf_transfer_at(engine, i);

		free(transfer->copy);
		free(transfer->manifest);
	}
	wf_pool_destroy(&engine->transfers);
	wf_pool_destroy(&engine->answers);
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
