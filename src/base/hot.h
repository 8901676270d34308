/*
 * WF_HOT marks the functions that every message passes through. The compiler places them side by side. Spread over the
 * library they displaced each other in the first-level instruction cache: 43 misses per call, 24 now
 * (docs/lab/performance-steps.md).
 */
#ifndef WF_BASE_HOT_H
#define WF_BASE_HOT_H

#define WF_HOT __attribute__((hot))
#endif
