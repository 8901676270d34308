/* The log callback. The library never prints: whoever decides an error says so here, once. Any thread. */
#ifndef WF_BASE_LOG_H
#define WF_BASE_LOG_H

#include "weft.h"

struct wf_log {
	weft_log_fn fn; /* may be NULL */
	void *context;
};

void wf_log(const struct wf_log *log, enum weft_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#endif
