/*
 * Immediates that are counted, and who expects how many. Submitted on the caller's thread; counted on group 0.
 */
#ifndef WF_ENGINE_EXPECT_H
#define WF_ENGINE_EXPECT_H

#include "weft.h"
#include <stdint.h>

struct weft_engine;
struct wf_peer;
struct wf_transfer;

struct wf_expectation {
	weft_peer peer; /* 0: any */
	uint32_t immediate;
	uint64_t count;
};
int wf_submit_expect(struct weft_engine *engine, const struct wf_expectation *expectation, const struct weft_op *op,
		     weft_transfer *ret);

#define WF_EARLY 4096u /* different immediates remembered that nobody expects yet */
int wf_counters_open(struct weft_engine *engine);
void wf_counters_close(struct weft_engine *engine);
void wf_counted(struct weft_engine *engine, uint32_t immediate, uint64_t count); /* on group 0 */
void wf_expect_begin(struct wf_transfer *transfer);                              /* on group 0 */
void wf_expect_forget(struct wf_transfer *transfer);                             /* on group 0 */
/* The peer is down, removed, or its operations are cancelled: so end those that it is expected to write for. On group 0. */
void wf_expect_peer_gone(const struct wf_peer *peer, int why);
#endif
