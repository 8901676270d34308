/*
 * Decides whether to poll for a while before sleeping, by learning whether polling paid off. Being woken costs more
 * than a round trip on a fast fabric, so polling pays where news comes soon. Where it never does (long transfers), or
 * where it cannot because the poller occupies the core that the news needs, polling is skipped, and tried again now and
 * then.
 *
 * For one thread, or for several that may share what they learn: the fields are atomic only for that.
 */
#ifndef WF_BASE_SPIN_H
#define WF_BASE_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WF_SPIN_MOST  8  /* failed polls before polling is skipped */
#define WF_SPIN_AGAIN 16 /* waits until polling is tried again */

struct wf_spin {
	_Atomic int lost;      /* polls that found nothing, minus those that found something */
	_Atomic uint32_t left; /* waits without a poll since the last one */
};

/* Call at the beginning of a wait. */
static inline bool wf_spin_worth_it(struct wf_spin *spin)
{
	uint32_t left = atomic_load_explicit(&spin->left, memory_order_relaxed);

	if (atomic_load_explicit(&spin->lost, memory_order_relaxed) < WF_SPIN_MOST)
		return true;
	atomic_store_explicit(&spin->left, left + 1 < WF_SPIN_AGAIN ? left + 1 : 0, memory_order_relaxed);
	return left + 1 >= WF_SPIN_AGAIN;
}

/* Call at the end of a wait that began with a poll. */
static inline void wf_spin_learn(struct wf_spin *spin, bool found)
{
	int lost = atomic_load_explicit(&spin->lost, memory_order_relaxed);

	lost = found ? (lost > WF_SPIN_MOST / 2 ? WF_SPIN_MOST / 2
			: lost > 0              ? lost - 1
						: 0)
		     : (lost < WF_SPIN_MOST ? lost + 1 : lost);
	atomic_store_explicit(&spin->lost, lost, memory_order_relaxed);
}
#endif
