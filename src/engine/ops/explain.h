/*
 * Why an operation failed, in words. On its home.
 */
#ifndef WF_ENGINE_EXPLAIN_H
#define WF_ENGINE_EXPLAIN_H

#include "weft.h"

struct wf_transfer;

void wf_transfer_describe(const struct wf_transfer *transfer, int status, struct weft_error *ret_error);
void wf_transfer_set_error(struct wf_transfer *transfer, const struct weft_error *error);
#endif
