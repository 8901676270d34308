/*
 * The local rail: what src/rail/ needs to reach processes of this host. It has an address, lines to other local rails, and guests,
 * the lines of others to it (docs/decisions/16-local-rail.md). Copies are made inside wf_local_post() and wf_local_poll(), a slice
 * at a time. The worker that owns the rail calls these functions, except wf_local_register() and wf_local_unregister(), which any
 * thread may.
 */
#ifndef WF_LOCAL_LOCAL_H
#define WF_LOCAL_LOCAL_H

#include "base/log.h"
#include "base/pages.h"
#include "device/device.h"
#include "local/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_LOCAL_ADDRESS 40u   /* bytes */
#define WF_LOCAL_OPS     1024u /* most operations that are posted and whose end was not read */
#define WF_LOCAL_FRAME   8192u
#define WF_LOCAL_ENDS    2 /* endpoints of a rail: each inserts addresses for itself */

struct wf_local;

/* Returns 0 or a negative errno. receives: the most frames that wf_local_receive() has to take. */
int wf_local_open(uint32_t receives, const struct wf_log *log, struct wf_local **ret_local);
void wf_local_close(struct wf_local *local); /* NULL is fine */
/* Before anything is registered or posted: cards whose memory it may reach. Without it, it reaches none. */
void wf_local_use_devices(struct wf_local *local, struct wf_devices *devices);
/* Listens under a new name. */
int wf_local_listen(struct wf_local *local);
/* Takes back what was posted, and forgets the addresses of that endpoint. False: a card did not end its copies in time, and may go
 * on. */
bool wf_local_take_back(struct wf_local *local, int end);
/* Stops listening; closes every line and guest, and forgets what was posted and received. */
void wf_local_leave(struct wf_local *local);
void wf_local_address(const struct wf_local *local, uint8_t ret_address[WF_LOCAL_ADDRESS]);
/* Whether the address is of this boot of this machine; whether anybody is there shows when something is sent. */
bool wf_local_is_here(const struct wf_local *local, const uint8_t *address, size_t bytes);

/* ---- peers' addresses ---- */
int wf_local_insert(struct wf_local *local, int end, const uint8_t *address, size_t bytes, uint64_t *ret_target);
void wf_local_remove(struct wf_local *local, int end, const uint8_t *address);
bool wf_local_has(const struct wf_local *local, int end, const uint8_t *address);

/* ---- frames ---- */
/* Returns 0; -EAGAIN: no room, or not connected yet; -EHOSTUNREACH: nobody listens there. */
int wf_local_send(struct wf_local *local, uint64_t target, const void *frame, size_t bytes);
/* Returns 0 or -EAGAIN: as many as were agreed on are waiting. */
int wf_local_receive(struct wf_local *local, void *context, void *buffer, size_t bytes);

/* ---- memory ---- */
int wf_local_register(struct wf_local *local, void *base, uint64_t bytes, uint32_t access,
		      const struct wf_local_file *file, uint64_t *ret_key);
/* A card's memory; it stays until wf_local_unregister(). */
int wf_local_register_device(struct wf_local *local, const struct wf_device_memory *device, uint32_t access,
			     uint64_t *ret_key);
/* Makes ready what copies of the card need, which takes a while. Any thread; failing does no harm. */
void wf_local_prepare_card(struct wf_local *local, struct wf_card *card);
/* Nobody writes there any more when it returns true. False: a process was stopped in the middle of a copy, and may finish a slice
 * of it when it continues. */
bool wf_local_unregister(struct wf_local *local, uint64_t key);

/* ---- copies ---- */
struct wf_local_run {
	uint64_t target, key;
	uint32_t immediate;
	bool has_immediate, read;
	bool cards;                          /* one end may be a card's memory; else it is refused */
	const struct wf_device_memory *near; /* our end, if it is a card's memory; NULL: the CPU's */
	const struct wf_page_list *list;     /* stays until the copies have ended; NULL: none are lists */
};
struct wf_local_copy {
	void *context; /* NULL: a part of the next one, whose end is not told */
	void *local;
	uint64_t remote, bytes;
	uint64_t first; /* of a list: bytes / page_bytes pages from this one on; local and remote are those of page 0 */
};
/* Readies the target's key. Returns 0, -EAGAIN while its owner is being asked, -EKEYREJECTED, -EACCES if the kernel does not let us
 * copy, -EOPNOTSUPP if no card here reaches it, or -EHOSTUNREACH. The result holds until the next other call. */
int wf_local_begin(struct wf_local *local, const struct wf_local_run *run);
bool wf_local_has_room(const struct wf_local *local, uint32_t copies); /* for one operation of that many */
/* Posts a copy of the run that was begun. Returns 0, -EAGAIN if too many are posted, -EACCES without the right, -ERANGE outside the region. */
int wf_local_post(struct wf_local *local, const struct wf_local_run *run, const struct wf_local_copy *copy);
void wf_local_go(struct wf_local *local);                     /* copies a slice of what was posted */
uint64_t wf_local_mapped_bytes(const struct wf_local *local); /* copied without the kernel, since it was opened */
uint64_t wf_local_card_bytes(const struct wf_local *local);   /* copied by cards. Any thread */
const char *wf_local_why(const struct wf_local *local);       /* what a card's driver said last; NULL: nothing */

/* ---- ends, and what arrived ---- */
struct wf_local_end {
	void *context; /* NULL: see status */
	/* context NULL: 0: an immediate arrived; -EHOSTDOWN: the process of the target has ended. Else -ENOTRECOVERABLE: a card
	 * failed, and the line is as good as before */
	int status;
	uint32_t immediate;
	uint64_t bytes; /* received; or the target */
};
int wf_local_poll(struct wf_local *local, struct wf_local_end *ends, int max);
void wf_local_sweep(struct wf_local *local); /* a few times per second: frees what is over */
int wf_local_wait_fd(const struct wf_local *local);
int wf_local_try_wait(struct wf_local *local); /* 0: sleeping is safe now; -EAGAIN: poll first */
#endif
