/* Pages of one size at two ends, as index lists name them: what a transfer hands to those who copy a whole list at once. */
#ifndef WF_BASE_PAGES_H
#define WF_BASE_PAGES_H

#include <stdint.h>

struct wf_page_list {
	const uint32_t *near_index, *far_index; /* NULL: 0, 1, 2, … */
	uint64_t near_stride, far_stride, page_bytes;
};

/* The number of page i: the i-th of the index, or i itself without one. */
static inline uint64_t wf_page_number(const uint32_t *index, uint64_t i)
{
	return index ? index[i] : i;
}

static inline uint64_t wf_page_offset(const uint32_t *index, uint64_t i, uint64_t stride)
{
	return wf_page_number(index, i) * stride;
}
#endif
