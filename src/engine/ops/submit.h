/*
 * Operations that move data: the caller's request is checked and copied into a transfer, which its home is told of. On the caller's
 * thread; never waits.
 */
#ifndef WF_ENGINE_SUBMIT_H
#define WF_ENGINE_SUBMIT_H

#include "weft.h"

struct weft_engine;

int wf_submit_write(struct weft_engine *engine, const struct weft_write *write, const struct weft_op *op,
		    weft_transfer *ret);
int wf_submit_read(struct weft_engine *engine, const struct weft_read *read, const struct weft_op *op,
		   weft_transfer *ret);
int wf_submit_write_pages(struct weft_engine *engine, const struct weft_write_pages *write, const struct weft_op *op,
			  weft_transfer *ret);
int wf_submit_read_pages(struct weft_engine *engine, const struct weft_read_pages *read, const struct weft_op *op,
			 weft_transfer *ret);

int wf_submit_cancel(struct weft_engine *engine, weft_transfer id);
#endif
