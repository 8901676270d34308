/*
 * What weft asks of a provider beyond fi_getinfo's answer: the API version, changes to the offered fi_info, endpoint
 * options. Option numbers are part of libfabric's ABI, and a library that does not know one says so: nothing here
 * depends on the version of the headers. Runs on the worker that owns the rail; wf_fi_version() runs anywhere.
 */
#include "rail/internal.h"

#include <rdma/fi_ext.h>
#include <stdbool.h>

/* FI_OPT_EFA_EMULATED_WRITE, a bool, exists from 1.18 on. */
#define OPT_EFA_EMULATED_WRITE (FI_OPT_EFA_RNR_RETRY + 2)

/* A library behaves as the API version asks: for versions older than 1.18, efa turns RDMA off on its first two
 * generations of cards. The layout of structures depends on the linked symbols, not on this number. */
uint32_t wf_fi_version(void)
{
	uint32_t known = FI_VERSION(1, 18), here = fi_version();

	return here < known ? here : known;
}

static size_t at_most(size_t value, size_t limit)
{
	return value < limit ? value : limit;
}

void wf_rail_tame(struct wf_rail *rail)
{
	const struct wf_quirks *quirks = rail->quirks;
	struct fi_info *info = rail->info;

	if (quirks->own_shm)
		info->caps = (info->caps | FI_REMOTE_COMM) & ~(uint64_t)FI_LOCAL_COMM;
	if (quirks->receives) {
		size_t receives = rail->receive_frames > quirks->receives ? rail->receive_frames : quirks->receives;

		info->rx_attr->size = at_most(info->rx_attr->size, receives);
		info->tx_attr->size = at_most(info->tx_attr->size, WF_QUEUE_OPS_MAX);
	}
}

/* A library that does not know the option is 1.17 or older, which always emulates. */
static bool emulates(struct fid_ep *ep)
{
	bool emulated = true;
	size_t bytes = sizeof(emulated);

	return fi_getopt(&ep->fid, FI_OPT_ENDPOINT, OPT_EFA_EMULATED_WRITE, &emulated, &bytes) || emulated;
}

void wf_rail_ask(struct wf_rail *rail, struct fid_ep *ep)
{
	rail->limits.emulated = rail->quirks->emulates && emulates(ep);
	rail->limits.target_looks = rail->quirks->target_looks || rail->limits.emulated;
	/* What the peer's card has taken in lands when its provider comes to it, whatever became of our endpoint. */
	if (rail->limits.emulated)
		rail->limits.close_quiesces = false;
}
