/* What the files of src/rail/ share. Nobody else includes it. */
#ifndef WF_RAIL_INTERNAL_H
#define WF_RAIL_INTERNAL_H

#include "rail/quirks.h"
#include "rail/rail.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

/* The interface we were written against. Newer libraries keep it; nothing newer is used unguarded. From 1.18 on efa takes
 * the version as the wish for real RDMA on every card that has it. */
#if FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION) >= FI_VERSION(1, 18)
#define WF_FI_VERSION FI_VERSION(1, 18)
#else
#define WF_FI_VERSION FI_VERSION(1, 14)
#endif

struct wf_rail {
	struct fi_info *info;
	const struct wf_quirks *quirks;
	const struct wf_log *log;
	char name[64];
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_eq *eq;
	uint64_t rma_flags; /* FI_DELIVERY_COMPLETE where it must be asked for */
	uint64_t immediate_flags; /* for writes that carry one */
	uint32_t receive_frames;
	bool unrung; /* the last post carried FI_MORE */
	bool needs_local;
	bool wait_fd; /* the CQ was opened with one */
	struct wf_rail_limits limits;
	struct wf_rail_error error;
	uint32_t kept; /* addresses that stay inserted, see quirks.c */
	struct {
		uint8_t bytes, address[64];
		uint64_t target;
	} *keep;
};

void wf_rail_note_error(struct wf_rail *rail, int provider_error, const char *text);
#endif
