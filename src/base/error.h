/* The one table of errors: code, text, what to do about it. Any thread. */
#ifndef WF_BASE_ERROR_H
#define WF_BASE_ERROR_H

const char *wf_error_text(int error); /* takes either sign */
const char *wf_error_hint(int error); /* NULL: nothing known */
#endif
