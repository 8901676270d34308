/* Addresses that no lane uses any more, until the rail's address vector can lose them. On the group's worker. */
#ifndef WF_ENGINE_RETIRE_H
#define WF_ENGINE_RETIRE_H

#include "engine/move/seat.h"

/* Once for each insertion. */
void wf_seat_retire(struct wf_seat *seat, enum wf_end end, const uint8_t *address, uint8_t bytes);
/* Housekeeping: removes those that nothing in flight was posted to. */
void wf_seat_remove_retired(struct wf_seat *seat);
#endif
