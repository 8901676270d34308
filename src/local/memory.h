/*
 * The memory that one rail offers to peers of this host: a table of regions, and the board, shared memory that peers may read, with
 * each slot's life. A writer announces the slot in its pipe, looks at the life, copies, and withdraws; the owner ends the life and
 * waits for those who announce it. Either the writer sees the end or the owner sees the writer. The table has a lock: application
 * threads register while the worker answers questions.
 */
#ifndef WF_LOCAL_MEMORY_H
#define WF_LOCAL_MEMORY_H

#include "local/letter.h"
#include "local/share.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WF_LOCAL_SLOTS 65536u

struct wf_board {
	alignas(64) _Atomic uint32_t asleep; /* its owner's worker sleeps, or is about to: ring its bell */
	alignas(64) _Atomic uint64_t life[WF_LOCAL_SLOTS]; /* 0: nothing is registered there */
};

/* A file that a region lies in, for peers to map. */
struct wf_local_file {
	int fd; /* -1: none */
	uint64_t bytes, offset;
};

struct wf_local_region {
	uint64_t key, base, bytes; /* bytes 0: the slot is free */
	uint32_t access;
	struct wf_local_file file;             /* the descriptor is the region's own */
	const struct wf_device_memory *device; /* a card's, not ours; NULL: the CPU's */
};

struct wf_local_memory {
	struct wf_share share;
	struct wf_board *board;
	pthread_mutex_t lock; /* the table's fields below */
	struct wf_local_region *region;
	uint32_t room, free; /* free: the first slot that may be */
	uint64_t lives;      /* how many there have been */
};

int wf_local_memory_open(struct wf_local_memory *memory);
void wf_local_memory_close(struct wf_local_memory *memory);
/* file may be NULL; its descriptor is duplicated. Returns 0, -ENOMEM or another negative errno. */
int wf_local_memory_add(struct wf_local_memory *memory, void *base, uint64_t bytes, uint32_t access,
			const struct wf_local_file *file, uint64_t *ret_key);
/* The same for a card's memory, which stays until the region's life has ended. */
int wf_local_memory_add_device(struct wf_local_memory *memory, const struct wf_device_memory *device, uint32_t access,
			       uint64_t *ret_key);
/* Ends the region's life. Writers may be in the middle of a copy still. Returns its slot. */
uint32_t wf_local_memory_end(struct wf_local_memory *memory, uint64_t key);
/* Fills in the answer to a question. Returns the descriptor to send with it, to be closed after that, or -1. */
int wf_local_memory_answer(struct wf_local_memory *memory, uint64_t key, uint32_t part, struct wf_letter *ret_letter);
#endif
