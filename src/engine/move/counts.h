/*
 * Immediates that arrive at a group other than 0, on their way to group 0, which counts them (expect.c). Each group fills one
 * of two lists while group 0 reads the other, so nothing is allocated. Group 0 waits for nobody, so it reads soon, unless its
 * worker hangs in a call of its provider's. Then each group goes on until its list has as many different immediates as can be
 * expected and remembered together (max_transfers and WF_EARLY); an application that gets further has lost some already
 * (weft_expect()). At that point the group reads no more completions until group 0 is back: it does not know which
 * immediates are expected, and must not forget one that is.
 */
#ifndef WF_ENGINE_COUNTS_H
#define WF_ENGINE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

struct weft_engine;
struct wf_counts;
struct wf_group;

/* Tables by immediate: as many slots as count entries need, and the slot where to look first. */
uint32_t wf_immediate_slots(uint32_t count);
static inline uint32_t wf_immediate_slot(uint32_t immediate, uint32_t mask)
{
	return (uint32_t)(immediate * UINT64_C(0x9e3779b97f4a7c15) >> 32) & mask;
}

int wf_counts_open(struct wf_group *group);
void wf_counts_close(struct wf_group *group);
void wf_counts_add(struct wf_group *group, uint32_t immediate); /* one has arrived; there is room */
bool wf_counts_room(const struct wf_group *group, uint32_t count);
bool wf_counts_any(const struct wf_group *group); /* that group 0 was not told of */
void wf_counts_tell(struct wf_group *group);      /* of those, unless it still reads the last ones */
void wf_counts_arrived(struct weft_engine *engine, struct wf_counts *counts); /* on group 0 */
#endif
