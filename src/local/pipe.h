/*
 * A pipe: a ring of records in memory that two processes share, with one writer and one reader and no lock. Each side keeps its
 * own position in its own memory; of what the other side wrote nothing is used before it was copied out and checked. A record
 * shows when the writer's counter has moved past it, so a writer that dies leaves either all of it or nothing. The reader's
 * worker and the writer's worker.
 */
#ifndef WF_LOCAL_PIPE_H
#define WF_LOCAL_PIPE_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_PIPE_BYTES  65536u /* a power of two */
#define WF_PIPE_RECORD 8192u  /* most bytes in one record */
#define WF_PIPE_HOLDS  16u    /* most copies that a card makes for one line at a time */

/* In the shared memory. Positions only grow; the place in the ring is the position modulo its length. */
struct wf_pipe_shared {
	alignas(64) _Atomic uint64_t written; /* the writer's; release, pairs with the reader's acquire */
	alignas(64) _Atomic uint64_t read;    /* the reader's; release, pairs with the writer's acquire */
	/* The slot whose memory the writer copies to or from now, plus 1; 0: none. Sequentially consistent (memory.h). */
	alignas(64) _Atomic uint64_t copying;
	/* The same for copies that cards make and that take longer than a turn, each in a place of its own. */
	alignas(64) _Atomic uint64_t holding[WF_PIPE_HOLDS];
	alignas(64) uint8_t ring[WF_PIPE_BYTES];
};

enum wf_record_kind { WF_RECORD_FRAME = 1, WF_RECORD_IMMEDIATE = 2 };

/* Comes before the bytes of a record, which are padded to a multiple of 8. */
struct wf_record {
	uint16_t kind; /* enum wf_record_kind */
	uint16_t bytes;
	uint32_t immediate;
};

struct wf_pipe_writer {
	struct wf_pipe_shared *shared;
	uint64_t written, read; /* read: as of the last look */
};

struct wf_pipe_reader {
	struct wf_pipe_shared *shared;
	uint64_t written, read; /* written: as of the last look */
};

/* Returns 0, -EAGAIN if there is no room, or -EPROTO if the reader broke the rules. */
int wf_pipe_put(struct wf_pipe_writer *writer, const struct wf_record *record, const void *data);
/* Returns 1 and the next record's header, 0 if there is none, or -EPROTO if the writer broke the rules. */
int wf_pipe_look(struct wf_pipe_reader *reader, struct wf_record *ret_record);
/* Takes the record that wf_pipe_look() returned, and copies its bytes. */
void wf_pipe_take(struct wf_pipe_reader *reader, const struct wf_record *record, void *data);
/* Whether something was written that was not taken. Sequentially consistent, for a reader that is about to sleep. */
bool wf_pipe_any(const struct wf_pipe_reader *reader);
#endif
