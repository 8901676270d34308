/* The one table of errors: code, text, what to do about it. Any thread. */
#ifndef WF_BASE_ERROR_H
#define WF_BASE_ERROR_H

#include "weft.h"

const char *wf_error_text(int error); /* takes either sign */
const char *wf_error_hint(int error); /* NULL: no hint known */
/* Sets the hint for that status, and the text where nobody has said more. */
void wf_error_explain(struct weft_error *error, int status);
#endif
