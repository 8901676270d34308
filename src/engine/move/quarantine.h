/*
 * Pieces and frames that failed on a rail. A provider may report the same failure again, and that report must not hit
 * something new that was posted in the same structure: they are free when housekeeping has run twice since. Only the structure
 * waits here; the units that a piece covered go on in another one. On the group's worker.
 */
#ifndef WF_ENGINE_QUARANTINE_H
#define WF_ENGINE_QUARANTINE_H

#include "engine/move/group.h"

void wf_quarantine_piece(struct wf_group *group, struct wf_piece *piece);
void wf_quarantine_frame(struct wf_group *group, struct wf_tx_frame *frame);
void wf_quarantine_age(struct wf_group *group); /* each time that housekeeping runs */
#endif
