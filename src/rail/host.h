/* The local rail, to the other files of src/rail/. Each function is the one of rail.h with the same name. */
#ifndef WF_RAIL_HOST_H
#define WF_RAIL_HOST_H

#include "local/local.h"
#include "rail/internal.h"

int wf_host_open(struct wf_rail *rail);
void wf_host_shut(struct wf_rail *rail, enum wf_end which);
int wf_host_reopen(struct wf_rail *rail);
int wf_host_address(struct wf_rail *rail, uint8_t *address, uint8_t *bytes);
int wf_host_insert(struct wf_rail *rail, enum wf_end end, const uint8_t *address, uint8_t bytes, uint64_t *ret_target);
int wf_host_register_device(struct wf_rail *rail, const struct wf_device_memory *device, uint32_t access,
			    struct wf_rail_memory *ret_memory);
int wf_host_register(struct wf_rail *rail, void *base, uint64_t bytes, uint32_t access,
		     struct wf_rail_memory *ret_memory);
void wf_host_unregister(struct wf_rail_memory *memory);
int wf_host_rma(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count, bool more,
		int *ret_error);
int wf_host_send(struct wf_rail *rail, const struct wf_outbound *out);
int wf_host_poll(struct wf_rail *rail, struct wf_completion *completions, int max);
#endif
