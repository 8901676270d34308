/* The group's timer that looks for what no completion tells. On the group's worker. */
#ifndef WF_ENGINE_HOUSEKEEPING_H
#define WF_ENGINE_HOUSEKEEPING_H

#include "engine/move/group.h"

void wf_housekeeping_start(struct wf_group *group); /* runs until the worker stops */
#endif
