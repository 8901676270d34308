/* Lists of immediates for group 0; counts.h says who fills and who reads them. Filled on the group's worker. */
#include "engine/move/counts.h"
#include "engine/core/engine.h"
#include "engine/move/completions.h"
#include "engine/ops/expect.h"

#include <errno.h>
#include <stdlib.h>

struct count {
	uint32_t immediate, count;
	uint32_t slot; /* that has its number */
};

struct wf_counts {
	struct wf_note note;
	_Atomic bool reading; /* group 0's; it clears it when it is through, which pairs with the group's look at it */
	uint32_t used, room, mask;
	struct count *entry;
	uint32_t *table; /* by hash, the next free slot where that is taken: number of an entry, from 1 on; 0: none */
};

uint32_t wf_immediate_slots(uint32_t count)
{
	uint32_t slots = 1;

	while (slots < 2 * count)
		slots *= 2;
	return slots;
}

int wf_counts_open(struct wf_group *group)
{
	/* The bound that counts.h gives, and the batch that goes beyond it. */
	uint32_t room = WF_EARLY + group->engine->settings.max_transfers + WF_COMPLETIONS;
	uint32_t slots = wf_immediate_slots(room);

	group->counts = calloc(2, sizeof(*group->counts));
	for (int i = 0; group->counts && i < 2; i++) {
		struct wf_counts *counts = &group->counts[i];

		wf_note_init(&counts->note, WF_NOTE_COUNTED, counts);
		counts->room = room;
		counts->mask = slots - 1;
		counts->entry = calloc(room, sizeof(*counts->entry));
		counts->table = calloc(slots, sizeof(*counts->table));
		if (!counts->entry || !counts->table)
			return -ENOMEM;
	}
	return group->counts ? 0 : -ENOMEM;
}

void wf_counts_close(struct wf_group *group)
{
	for (int i = 0; group->counts && i < 2; i++) {
		free(group->counts[i].entry);
		free(group->counts[i].table);
	}
	free(group->counts);
}

static struct wf_counts *filling(const struct wf_group *group)
{
	return &group->counts[group->counting];
}

static struct count *entry_of(struct wf_counts *counts, uint32_t immediate)
{
	uint32_t slot = wf_immediate_slot(immediate, counts->mask);
	struct count *entry;

	for (; counts->table[slot]; slot = (slot + 1) & counts->mask) {
		entry = &counts->entry[counts->table[slot] - 1];
		if (entry->immediate == immediate)
			return entry;
	}
	entry = &counts->entry[counts->used++];
	*entry = (struct count){ .immediate = immediate, .slot = slot };
	counts->table[slot] = counts->used;
	return entry;
}

static void empty(struct wf_counts *counts)
{
	while (counts->used)
		counts->table[counts->entry[--counts->used].slot] = 0;
}

void wf_counts_add(struct wf_group *group, uint32_t immediate)
{
	if (group->counts)
		entry_of(filling(group), immediate)->count++;
	else /* we are group 0 */
		wf_counted(group->engine, immediate, 1);
}

bool wf_counts_room(const struct wf_group *group, uint32_t count)
{
	return filling(group)->used + count <= filling(group)->room;
}

bool wf_counts_any(const struct wf_group *group)
{
	return filling(group)->used;
}

void wf_counts_tell(struct wf_group *group)
{
	struct wf_counts *counts = filling(group), *other = &group->counts[!group->counting];

	if (!counts->used || atomic_load_explicit(&other->reading, memory_order_acquire))
		return;
	empty(other);
	group->counting = !group->counting;
	atomic_store_explicit(&counts->reading, true, memory_order_relaxed); /* the note publishes it */
	wf_note_tell(group, &group->engine->group[0], &counts->note);
}

void wf_counts_arrived(struct weft_engine *engine, struct wf_counts *counts)
{
	for (uint32_t i = 0; i < counts->used; i++)
		wf_counted(engine, counts->entry[i].immediate, counts->entry[i].count);
	atomic_store_explicit(&counts->reading, false, memory_order_release);
}
