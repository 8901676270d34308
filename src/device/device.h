/*
 * Memory of cards (GPUs): what an address is, handing memory to another process of this host, opening a peer's, and copies that a
 * card makes while nobody waits. For src/rail/ and src/local/, and for the engine's registration. The driver (cuda.h) is loaded
 * when a card's memory is first seen, and never on a host that shows us none. Any thread, but for a copier, which is one thread's.
 */
#ifndef WF_DEVICE_DEVICE_H
#define WF_DEVICE_DEVICE_H

#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_DEVICE_HANDLE 64u /* bytes of a handle that a peer opens */
#define WF_DEVICE_UUID   16u /* what names a card in every process, whatever its number there */
#define WF_DEVICE_PARTS                                                                                                \
	256u /* most allocations under one region: each costs a peer a letter and, a moment, a descriptor */
#define WF_DEVICE_CHUNK      (512u << 10) /* pinned memory between a card and who cannot reach it … */
#define WF_DEVICE_CHUNKS     16u          /* … and how many a card has */
#define WF_DEVICE_FLIGHTS    16u          /* most copies of a copier that are under way */
#define WF_DEVICE_LISTED     8192u        /* most pages of a list in one of them */
#define WF_DEVICE_NOT_CLOSED 3            /* seconds that closing waits for a driver that hangs in another thread */

struct wf_devices; /* what one engine knows of cards; counted, because threads that open memory hold it too */
struct wf_card;    /* one card: its context, its page kernel, its chunks. Lives as long as its wf_devices */
struct wf_copier;  /* a stream of copies of one thread */
struct wf_device_opened;

struct wf_devices *wf_devices_make(const struct wf_log *log); /* NULL: no memory. Loads nothing */
/* No more calls but those of wf_device_opened: waits a bounded time for threads that open or close memory, then leaves the rest
 * to the last of them. The log is not used any more. NULL is fine. */
void wf_devices_close(struct wf_devices *devices);
/* The share of a card's processors that a copy of pages may keep busy, in percent; 0: the default, all. */
void wf_devices_set_share(struct wf_devices *devices, uint32_t percent);

/* ---- what an address is (probe.c) ---- */

enum wf_device_kind {
	WF_DEVICE_HOST,    /* the CPU's, nothing special */
	WF_DEVICE_PINNED,  /* the CPU's, known to a card's driver */
	WF_DEVICE_MANAGED, /* moves between CPU and card by itself: the CPU may touch it */
	WF_DEVICE_CARD,    /* a card's: the CPU must not touch it */
};

/* How another process of this host gets at an allocation. */
enum wf_device_way {
	WF_WAY_NONE, /* not at all: a pool's memory, or the driver refuses */
	WF_WAY_IPC,  /* a handle of 64 bytes */
	WF_WAY_FILE, /* a descriptor */
};

struct wf_device_part {
	uint64_t base, bytes; /* of the whole allocation */
	uint64_t id;          /* no other allocation of this process ever has the same */
	enum wf_device_way way;
	uint8_t handle[WF_DEVICE_HANDLE]; /* IPC */
};

struct wf_device_memory {
	struct wf_devices *devices;
	struct wf_card *card;
	uint64_t base, bytes;
	bool foreign; /* made in a context that is not the card's primary one: the page kernel may not reach it */
	bool pool;    /* from a pool of the driver */
	bool dmabuf;  /* a NIC's driver could be handed a descriptor of it */
	uint32_t count;
	struct wf_device_part part[]; /* the allocations under it, in order */
};

/* What the range is. *ret_memory: what is to be known of a card's; NULL for every other kind. Costs a host pointer one look whether
 * the driver is in this process at all. -EINVAL: part of it is a card's and part is not, or is no allocation; -E2BIG: over
 * WF_DEVICE_PARTS allocations; -EIO: the driver fails; -ENOMEM. */
int wf_device_probe(struct wf_devices *devices, const void *base, uint64_t bytes, enum wf_device_kind *ret_kind,
		    struct wf_device_memory **ret_memory);
void wf_device_memory_free(struct wf_device_memory *memory); /* NULL is fine */
/* Whether the addresses still are the allocations that were probed: false if they were freed, and perhaps used again. */
bool wf_device_memory_same(const struct wf_device_memory *memory);
const char *wf_card_pci(const struct wf_card *card); /* "0000:53:00.0" */
const uint8_t *wf_card_uuid(const struct wf_card *card);
int wf_card_ordinal(const struct wf_card *card); /* the driver's number for it in this process */
/* Copies of it do not end: what they use is never freed, and the card not released. Any thread. */
void wf_card_abandon(struct wf_card *card);
/* Makes what a NIC wrote visible to the card's kernels, where the card needs that: call it when writes have landed. 0 or -EIO. */
int wf_card_flush(struct wf_card *card);

/* ---- handing memory over, and opening a peer's (share.c) ---- */

/* One part for a peer: fills in the handle, or returns a descriptor that is the caller's to close, -1 for none. */
int wf_device_export(const struct wf_device_memory *memory, uint32_t part, uint8_t ret_handle[WF_DEVICE_HANDLE],
		     int *ret_fd);

/* What a peer handed over. offset: of its region in the first part. */
struct wf_device_offer {
	enum wf_device_way way;
	uint8_t uuid[WF_DEVICE_UUID];
	uint64_t offset, bytes;
	uint32_t count;
	struct {
		uint64_t bytes;
		uint8_t handle[WF_DEVICE_HANDLE];
		int fd; /* -1: none */
	} part[WF_DEVICE_PARTS];
};
/* Opens it on a thread of its own, because a driver that starts takes long. The descriptors become the callee's even on failure;
 * the offer is copied. 0 or a negative errno. */
int wf_device_open(struct wf_devices *devices, const struct wf_device_offer *offer,
		   struct wf_device_opened **ret_opened);
/* Memory of this very process: nothing to be opened. */
int wf_device_open_here(struct wf_devices *devices, const struct wf_device_offer *offer, void *at,
			struct wf_device_opened **ret_opened);
/* -EINPROGRESS; 0: *ret_at is where the peer's region begins here; -ENODEV: no such card here; or why not. */
int wf_device_look(const struct wf_device_opened *opened, void **ret_at, struct wf_card **ret_card);
/* No copy uses it any more. Returns at once; NULL is fine. */
void wf_device_shut(struct wf_device_opened *opened);
uint32_t wf_devices_opened(struct wf_devices *devices); /* mappings of peers' memory that are not closed yet */

/* ---- copies (copier.c): one thread's ---- */

int wf_copier_open(struct wf_card *card, struct wf_copier **ret_copier);
void wf_copier_close(struct wf_copier *copier); /* what is under way goes on; NULL is fine */
/* A flight: copies whose end is looked for together. Returns its number, or -1: too many are under way. */
int wf_copier_take(struct wf_copier *copier);
void wf_copier_give(struct wf_copier *copier, int flight);
int wf_copier_copy(struct wf_copier *copier, void *to, const void *from, uint64_t bytes);
/* Page i: from + from_index[first + i] * from_stride, likewise to; an index that is NULL counts 0, 1, 2, … from first on. */
struct wf_device_pages {
	void *to;
	const void *from;
	const uint32_t *to_index, *from_index; /* read before the call returns */
	uint64_t to_stride, from_stride, page_bytes;
	uint64_t first, count; /* at most WF_DEVICE_LISTED */
	bool beside;           /* one end is not the card's own: few of its processors are enough */
	bool by_copies;        /* the page kernel does not reach both ends */
};
/* Once per flight at most. */
int wf_copier_pages(struct wf_copier *copier, int flight, const struct wf_device_pages *pages);
int wf_copier_launch(struct wf_copier *copier, int flight);  /* all copies since the last launch are the flight's */
int wf_copier_look(struct wf_copier *copier, int flight);    /* 0: over; -EAGAIN: not yet; or it has failed */
const char *wf_copier_error(const struct wf_copier *copier); /* the driver's name for what failed last */
/* Pinned memory of the card's, WF_DEVICE_CHUNK long. NULL: all are in use. Any thread. */
bool wf_card_has_chunks(const struct wf_card *card);                   /* false: there was no memory to pin */
void *wf_card_chunks(const struct wf_card *card, uint64_t *ret_bytes); /* all of them, for a NIC to register; or NULL */
void *wf_card_chunk_take(struct wf_card *card);
void wf_card_chunk_give(struct wf_card *card, void *chunk);
/* Pinned memory beside the chunks, which every card reaches. NULL: there is none. Takes long. */
void *wf_card_pin(struct wf_card *card, uint64_t bytes);
void wf_card_unpin(struct wf_card *card, void *memory); /* stays where copies of the card do not end */
#endif
