/*
 * Closing what other processes passed to us or may have: close() of a socket that lingers, or of a file whose server is the sender,
 * takes as long as the sender likes, and so does dropping a letter that holds the last reference to one. A worker never waits for
 * that: what is no plain memory is closed by a thread that lives only then. The rail's worker, and the rail's last user.
 */
#ifndef WF_LOCAL_CLOSER_H
#define WF_LOCAL_CLOSER_H

#include <stdbool.h>

struct wf_closer;

struct wf_closer *wf_closer_make(void); /* NULL: no memory */
/* Its threads, if any are held up, end when they can. NULL is fine. */
void wf_closer_leave(struct wf_closer *closer);
void wf_closer_close(struct wf_closer *closer, int fd); /* -1 is fine */
/* A socket of ours in which letters may lie unread. */
void wf_closer_shut(struct wf_closer *closer, int socket);
/* As many threads as there may be are held up, and more waits: take nothing from new senders. Starts one if one has ended. */
bool wf_closer_is_full(struct wf_closer *closer);
#endif
