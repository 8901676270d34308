/*
 * WF_HOT marks what every message passes through. The compiler lays these functions side by side: spread over the library
 * they displace each other in a core's first cache of instructions, which cost a call 43 misses where 24 are left
 * (docs/PERFORMANCE.md).
 */
#ifndef WF_BASE_HOT_H
#define WF_BASE_HOT_H

#define WF_HOT __attribute__((hot))
#endif
