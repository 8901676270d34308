/*
 * End-to-end checksums, and notifications that write a word. The sender sums the hashes of its units as they land and
 * sends the sum with the notification; the receiver hashes its own memory, delivers the notification when the sums agree,
 * and answers with a verdict, which ends the sender's transfer. One that only writes a word is judged as it arrives. Parts
 * are summed by their groups' workers, everything else is done on the peer's home worker.
 */
#ifndef WF_ENGINE_VERIFY_H
#define WF_ENGINE_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

struct weft_op;
struct wf_group;
struct wf_inbound;
struct wf_peer;
struct wf_transfer;

/* sender */
int wf_manifest_make(struct wf_transfer *transfer,
		     const struct weft_op *op); /* on the caller's thread, when all else is set */
uint64_t wf_sum_units(const struct wf_transfer *transfer, uint64_t first, uint64_t units);
void wf_verdict_arrived(struct wf_inbound *inbound);

/* receiver */
void wf_manifest_arrived(struct wf_inbound *inbound);
int wf_verify_turn(struct wf_group *group);  /* a slice of the work, when there is some: how much happened */
void wf_verify_drop(struct wf_peer *peer);   /* its connection is over */
void wf_verify_free(struct wf_group *group); /* what is kept for the next; when its worker has stopped */
#endif
