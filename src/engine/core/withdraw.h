/*
 * Asking peers to leave a region before its keys die. Where RDMA is emulated, a target's provider that meets a dead key crashes or
 * leaves the access unanswered; over tcp a write that is being received goes on, whatever becomes of its key
 * (docs/decisions/15-withdraw.md). So the key must outlive the last access by it.
 */
#ifndef WF_ENGINE_WITHDRAW_H
#define WF_ENGINE_WITHDRAW_H

#include "weft.h"

struct weft_engine;
struct wf_inbound;

/* What a REVOKE message says, in its tag. */
enum wf_revoke {
	WF_REVOKE_DEAD, /* the keys are dead */
	WF_REVOKE_ASK,  /* they are to die: stop, and say whether anything of yours is in flight */
	WF_REVOKE_LEFT, /* nothing is, nor will be */
	WF_REVOKE_BUSY, /* something is: ask again */
};

/* Returns when no peer that answers uses the region any more, or after 10 s. At once where dead keys are refused. On an
 * application's thread. */
void wf_region_withdraw(struct weft_engine *engine, weft_region region);
/* A REVOKE has come. On the peer's home; frees it. */
void wf_revoke_arrived(struct wf_inbound *inbound);
#endif
