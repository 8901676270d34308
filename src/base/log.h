/* The log callback. The library never prints: the function that decides an error logs it here, once. Any thread. */
#ifndef WF_BASE_LOG_H
#define WF_BASE_LOG_H

#include "weft.h"

#include <stdatomic.h>

/* The first error that was logged, for weft_engine_open() to return. Any thread may log it. */
struct wf_log_first {
	_Atomic int state; /* 0: none; 1: being written; 2: there. Its release pairs with the reader's acquire */
	char text[256];
};

struct wf_log {
	weft_log_fn fn; /* may be NULL */
	void *context;
	struct wf_log_first *first; /* may be NULL */
};

void wf_log(const struct wf_log *log, enum weft_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4), nonnull(1, 3)));
#endif
