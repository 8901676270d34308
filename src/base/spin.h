/*
 * Whether to look for a while before sleeping, learned from whether looking paid off. Being woken costs more than a
 * round trip on a fast fabric, so where what we wait for comes soon a look is worth it. Where it never does (long
 * transfers), or where it cannot because we hold the core that it needs, the look is left out, and tried again now and
 * then.
 *
 * For one thread, or for several whose lessons may be mixed up: the fields are atomic for that alone.
 */
#ifndef WF_BASE_SPIN_H
#define WF_BASE_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WF_SPIN_MOST  8  /* looks that must fail before they are left out */
#define WF_SPIN_AGAIN 16 /* waits until one is tried again */

struct wf_spin {
	_Atomic int lost;      /* looks that found nothing, less those that did */
	_Atomic uint32_t left; /* waits without a look since the last one */
};

/* At the beginning of a wait. */
static inline bool wf_spin_worth_it(struct wf_spin *spin)
{
	uint32_t left = atomic_load_explicit(&spin->left, memory_order_relaxed);

	if (atomic_load_explicit(&spin->lost, memory_order_relaxed) < WF_SPIN_MOST)
		return true;
	atomic_store_explicit(&spin->left, left + 1 < WF_SPIN_AGAIN ? left + 1 : 0, memory_order_relaxed);
	return left + 1 >= WF_SPIN_AGAIN;
}

/* At the end of a wait that began with a look. */
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
