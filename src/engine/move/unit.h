/*
 * From units to memory: where a unit of a transfer lies, at either end. Striping posts it and checksums hash it by what is said
 * here and nowhere else. Pure functions, in place for the loops that call them once per piece; any thread that may read the
 * transfer.
 */
#ifndef WF_ENGINE_UNIT_H
#define WF_ENGINE_UNIT_H

#include "base/pages.h"
#include "engine/ops/transfer.h"

/* Offsets from where the slice begins in each end's memory. */
struct wf_extent {
	uint64_t local, remote, bytes;
};

/* One unit, or several pages that lie side by side at both ends. */
static inline struct wf_extent wf_unit_extent(const struct wf_transfer *transfer, const struct wf_slice *slice,
					      uint64_t unit, uint64_t units)
{
	uint64_t page = unit, cut = 0, bytes = units * transfer->page_bytes;

	if (!transfer->paged) {
		uint64_t offset = (unit - slice->first_unit) * transfer->unit_bytes, left = slice->bytes - offset;

		return (struct wf_extent){ offset, offset, left < transfer->unit_bytes ? left : transfer->unit_bytes };
	}
	if (transfer->cuts > 1) {
		page = unit / transfer->cuts;
		cut = unit % transfer->cuts * transfer->unit_bytes;
		bytes = transfer->page_bytes - cut;
		bytes = bytes < transfer->unit_bytes ? bytes : transfer->unit_bytes;
	}
	return (struct wf_extent){ wf_page_offset(transfer->local_index, page, transfer->local_stride) + cut,
				   wf_page_offset(transfer->remote_index, page, transfer->remote_stride) + cut, bytes };
}

/* How many pages from first on, up to end, lie side by side at both ends and may go as one range. */
static inline uint64_t wf_units_adjacent(const struct wf_transfer *transfer, uint64_t first, uint64_t end)
{
	uint64_t most = transfer->most_adjacent < end - first ? transfer->most_adjacent : end - first, n = 1;
	uint64_t local = wf_page_number(transfer->local_index, first);
	uint64_t remote = wf_page_number(transfer->remote_index, first);

	while (n < most && wf_page_number(transfer->local_index, first + n) == local + n &&
	       wf_page_number(transfer->remote_index, first + n) == remote + n)
		n++;
	return n;
}

/* How many pages from first on, up to end, share one operation: as many ranges as it may have, each of adjacent pages. */
static inline uint64_t wf_units_gathered(const struct wf_transfer *transfer, uint64_t first, uint64_t end)
{
	uint64_t units = 0;

	for (uint32_t i = 0; i < transfer->ranges && first + units < end; i++)
		units += wf_units_adjacent(transfer, first + units, end);
	return units;
}

/* The slice that the unit lies in: the last that begins at or before it, for an empty one begins where its successor does.
 * *at is where the last search ended, and this one begins. */
static inline struct wf_slice *wf_slice_of(const struct wf_transfer *transfer, uint64_t unit, uint32_t *at)
{
	struct wf_slice *slice = transfer->slice;
	uint32_t low = *at, high = transfer->slices;

	if (transfer->paged)
		return slice;
	if (slice[low].first_unit > unit)
		low = 0;
	else if (low + 1 == high || slice[low + 1].first_unit > unit)
		return &slice[low];
	else if (low + 2 == high || slice[low + 2].first_unit > unit)
		return &slice[*at = low + 1];
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (slice[middle].first_unit <= unit)
			low = middle;
		else
			high = middle;
	}
	return &slice[*at = low];
}
#endif
