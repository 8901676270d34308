/*
 * Memory shared between processes of this host: a memfd, sealed at its size, so that neither side can make the other fault by
 * cutting it off. Any thread.
 */
#ifndef WF_LOCAL_SHARE_H
#define WF_LOCAL_SHARE_H

#include <stdbool.h>
#include <stddef.h>

struct wf_share {
	void *at; /* NULL: none */
	size_t bytes;
	int fd; /* -1: closed; the mapping stays */
};

/* Creates it, filled with zeros. With for_us, others can map it only for reading. Returns 0 or a negative errno. */
int wf_share_make(size_t bytes, bool for_us, struct wf_share *ret_share);
/* The same of huge pages of 2 MiB, a whole number of them, all reserved now. -ENOMEM: the host has too few. */
int wf_share_make_huge(size_t bytes, struct wf_share *ret_share);
/* Maps what a peer sent. -EPROTO: it is no sealed memfd of that size. The descriptor stays the caller's. */
int wf_share_map(int fd, size_t bytes, bool writable, void **ret_at);
/* Whether it is of huge pages. The process that shares them can take them away again, where the host has no others to put there, and then
 * touching them is fatal. */
bool wf_share_is_huge(int fd);
void wf_share_close(struct wf_share *share); /* unmaps it too */
#endif
