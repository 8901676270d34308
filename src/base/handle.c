/* The handle tables; handle.h says why. Any thread. */
#include "base/handle.h"
#include "base/hot.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A slot's state: references, threads that walk past it, whether it is live, generation. Walkers keep the object too, but are
 * counted apart: who asks whether it is in use does not mean them. */
#define REFERENCES    UINT64_C(0x03ffffff)
#define WALKER        UINT64_C(0x04000000)
#define HELD          UINT64_C(0xffffffff) /* both */
#define LIVE          (UINT64_C(1) << 32)
#define GENERATION(s) ((s) >> 33)
#define FIRST_CHUNK   64u
#define GENERATIONS   UINT64_C(0x7fffffff)

static struct wf_handle_slot *slot_at(struct wf_handles *handles, uint32_t number)
{
	uint32_t index = number - 1, chunk = 0, size = FIRST_CHUNK;
	struct wf_handle_slot *slots;

	while (chunk < WF_HANDLE_CHUNKS && index >= size) {
		index -= size;
		size *= 2;
		chunk++;
	}
	if (chunk == WF_HANDLE_CHUNKS)
		return NULL;
	/* Pairs with the release in grow(). */
	slots = atomic_load_explicit(&handles->chunk[chunk], memory_order_acquire);
	return slots ? &slots[index] : NULL;
}

static struct wf_handle_slot *slot_of(struct wf_handles *handles, uint64_t handle)
{
	uint32_t number = (uint32_t)handle;

	return number ? slot_at(handles, number) : NULL;
}

static uint64_t make_handle(uint64_t generation, uint32_t number)
{
	return generation << 32 | number;
}

void wf_handles_init(struct wf_handles *handles, void (*release)(void *object))
{
	memset(handles, 0, sizeof(*handles));
	pthread_mutex_init(&handles->lock, NULL);
	handles->release = release;
}

void wf_handles_destroy(struct wf_handles *handles)
{
	for (int i = 0; i < WF_HANDLE_CHUNKS; i++)
		free(atomic_load(&handles->chunk[i]));
	pthread_mutex_destroy(&handles->lock);
}

/* Makes a slot that was never used before; the caller holds the lock. */
static uint32_t grow(struct wf_handles *handles)
{
	uint32_t number = handles->slots + 1;

	if (!slot_at(handles, number)) {
		uint32_t chunk = 0, size = FIRST_CHUNK;
		struct wf_handle_slot *slots;

		while (chunk < WF_HANDLE_CHUNKS && atomic_load(&handles->chunk[chunk])) {
			chunk++;
			size *= 2;
		}
		slots = chunk < WF_HANDLE_CHUNKS ? calloc(size, sizeof(*slots)) : NULL;
		if (!slots)
			return 0;
		atomic_store_explicit(&handles->chunk[chunk], slots, memory_order_release);
	}
	handles->slots = number;
	return number;
}

int wf_handle_add(struct wf_handles *handles, void *object, uint64_t *ret_handle)
{
	struct wf_handle_slot *slot;
	uint64_t generation;
	uint32_t number;

	pthread_mutex_lock(&handles->lock);
	number = handles->first_free;
	if (number)
		handles->first_free = slot_at(handles, number)->next_free;
	else
		number = grow(handles);
	pthread_mutex_unlock(&handles->lock);
	if (!number)
		return -ENOMEM;
	slot = slot_at(handles, number);
	generation = (GENERATION(atomic_load(&slot->state)) + 1) & GENERATIONS;
	slot->object = object;
	*ret_handle = make_handle(generation, number);
	/* Pairs with the acquire in get(): a live slot's object is set. */
	atomic_store_explicit(&slot->state, generation << 33 | LIVE | 1, memory_order_release);
	atomic_fetch_add_explicit(&handles->live, 1, memory_order_relaxed);
	return 0;
}

static bool matches(uint64_t state, uint64_t handle)
{
	return GENERATION(state) == handle >> 32 && (state & LIVE);
}

WF_HOT void *wf_handle_get(struct wf_handles *handles, uint64_t handle)
{
	struct wf_handle_slot *slot = slot_of(handles, handle);
	uint64_t state;

	if (!slot)
		return NULL;
	state = atomic_load_explicit(&slot->state, memory_order_relaxed);
	do {
		if (!matches(state, handle) || (state & REFERENCES) == REFERENCES)
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(&slot->state, &state, state + 1, memory_order_acquire,
							memory_order_relaxed));
	return slot->object;
}

WF_HOT void *wf_handle_peek(struct wf_handles *handles, uint64_t handle)
{
	struct wf_handle_slot *slot = slot_of(handles, handle);

	return slot && matches(atomic_load_explicit(&slot->state, memory_order_acquire), handle) ? slot->object : NULL;
}

WF_HOT void wf_handle_ref(struct wf_handles *handles, uint64_t handle)
{
	atomic_fetch_add_explicit(&slot_of(handles, handle)->state, 1, memory_order_relaxed);
}

/* kind: 1 or WALKER. */
WF_HOT static void let_go(struct wf_handles *handles, uint64_t handle, uint64_t kind)
{
	struct wf_handle_slot *slot = slot_of(handles, handle);
	/* acq_rel: everything that other threads did with the object happens before its release. */
	uint64_t state = atomic_fetch_sub_explicit(&slot->state, kind, memory_order_acq_rel);

	if ((state & HELD) != kind)
		return;
	handles->release(slot->object);
	pthread_mutex_lock(&handles->lock);
	slot->next_free = handles->first_free;
	handles->first_free = (uint32_t)handle;
	pthread_mutex_unlock(&handles->lock);
}

WF_HOT void wf_handle_put(struct wf_handles *handles, uint64_t handle)
{
	let_go(handles, handle, 1);
}

void *wf_handle_retire(struct wf_handles *handles, uint64_t handle)
{
	struct wf_handle_slot *slot = slot_of(handles, handle);
	uint64_t state;

	if (!slot)
		return NULL;
	state = atomic_load_explicit(&slot->state, memory_order_relaxed);
	do {
		if (!matches(state, handle))
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(&slot->state, &state, state & ~LIVE, memory_order_acq_rel,
							memory_order_relaxed));
	atomic_fetch_sub_explicit(&handles->live, 1, memory_order_relaxed);
	return slot->object;
}

void wf_handle_revive(struct wf_handles *handles, uint64_t handle)
{
	/* Its references kept the slot from anybody else. Pairs with the acquire in get(). */
	atomic_fetch_or_explicit(&slot_of(handles, handle)->state, LIVE, memory_order_release);
	atomic_fetch_add_explicit(&handles->live, 1, memory_order_relaxed);
}

int wf_handle_retire_idle(struct wf_handles *handles, uint64_t handle)
{
	struct wf_handle_slot *slot = slot_of(handles, handle);
	uint64_t state;

	if (!slot)
		return -ENOENT;
	state = atomic_load_explicit(&slot->state, memory_order_relaxed);
	do {
		if (!matches(state, handle))
			return -ENOENT;
		if ((state & REFERENCES) != 1)
			return -EBUSY;
	} while (!atomic_compare_exchange_weak_explicit(&slot->state, &state, state & ~LIVE, memory_order_acq_rel,
							memory_order_relaxed));
	atomic_fetch_sub_explicit(&handles->live, 1, memory_order_relaxed);
	return 0;
}

uint32_t wf_handle_references(struct wf_handles *handles, uint64_t handle)
{
	return (uint32_t)(atomic_load(&slot_of(handles, handle)->state) & REFERENCES);
}

/* Like get(), as a walker. While there is no room to count another one, somebody else's short visit is waited for. */
static void *visit(struct wf_handles *handles, uint64_t handle)
{
	struct wf_handle_slot *slot = slot_of(handles, handle);
	uint64_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);

	for (;;) {
		if (!matches(state, handle))
			return NULL;
		if ((state & HELD) >= HELD - REFERENCES) {
			sched_yield();
			state = atomic_load_explicit(&slot->state, memory_order_relaxed);
		} else if (atomic_compare_exchange_weak_explicit(&slot->state, &state, state + WALKER,
								 memory_order_acquire, memory_order_relaxed)) {
			return slot->object;
		}
	}
}

void wf_handles_each(struct wf_handles *handles, void (*fn)(void *object, void *context), void *context)
{
	uint32_t slots;

	pthread_mutex_lock(&handles->lock);
	slots = handles->slots;
	pthread_mutex_unlock(&handles->lock);
	for (uint32_t number = 1; number <= slots; number++) {
		uint64_t state = atomic_load_explicit(&slot_at(handles, number)->state, memory_order_relaxed);
		uint64_t handle = make_handle(GENERATION(state), number);
		void *object = visit(handles, handle);

		if (!object)
			continue;
		fn(object, context);
		let_go(handles, handle, WALKER);
	}
}

void wf_handles_purge(struct wf_handles *handles, void (*fn)(void *object))
{
	for (uint32_t number = 1; fn && number <= handles->slots; number++)
		if (atomic_load(&slot_at(handles, number)->state) & HELD)
			fn(slot_at(handles, number)->object);
	for (uint32_t number = 1; number <= handles->slots; number++) {
		struct wf_handle_slot *slot = slot_at(handles, number);

		if (!(atomic_load(&slot->state) & HELD))
			continue;
		atomic_store(&slot->state, 0);
		handles->release(slot->object);
	}
}
