/* Formats one line for the application's log callback. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static void keep_first(struct wf_log_first *first, const char *text)
{
	int none = 0;

	if (!atomic_compare_exchange_strong(&first->state, &none, 1))
		return;
	snprintf(first->text, sizeof(first->text), "%.255s", text);
	atomic_store_explicit(&first->state, 2, memory_order_release);
}

void wf_log(const struct wf_log *log, enum weft_log_level level, const char *format, ...)
{
	bool kept = log->first && level == WEFT_LOG_ERROR;
	char text[512];
	va_list args;

	if (!log->fn && !kept)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (kept)
		keep_first(log->first, text);
	if (log->fn)
		log->fn(log->context, level, text);
}
