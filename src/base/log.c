/* Formats one line for the application's log callback. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void wf_log(const struct wf_log *log, enum weft_log_level level, const char *format, ...)
{
	char text[512];
	va_list args;

	if (!log->fn)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log->fn(log->context, level, text);
}
