/* What a completion means: a piece that landed or failed, a frame that left or arrived, an immediate. On the group's worker. */
#ifndef WF_ENGINE_COMPLETIONS_H
#define WF_ENGINE_COMPLETIONS_H

#include "engine/move/group.h"

#define WF_COMPLETIONS 64 /* of a batch, at most */

/* False: none can be read before group 0 has taken the immediates that we have for it. */
bool wf_completions_may_read(const struct wf_group *group);
/* Reads one batch of the rail's completions, where it may, and acts on them: how many. */
int wf_completions_read(struct wf_group *group, struct wf_seat *seat);
#endif
