/*
 * Words: 64-bit numbers in the program's memory by which operations start and say that they have ended. What waits for a word is
 * begun already (transfer.c): it has its place among its peer's operations and its deadline, so whatever ends an operation ends
 * it. Its home looks at each word once per turn, whatever number of operations waits for it. A word of the receiver's, which a
 * notification stores there, is part of its manifest (verify.c).
 */
#ifndef WF_ENGINE_WORDS_H
#define WF_ENGINE_WORDS_H

#include "base/heap.h"
#include "weft.h"

#include <stdatomic.h>

struct weft_engine;
struct wf_group;
struct wf_manifest;
struct wf_slice;
struct wf_transfer;
struct wf_watched;

/* What an operation has of them: part of its transfer. */
struct wf_op_words {
	const _Atomic uint64_t *start; /* NULL: it starts at once */
	uint64_t start_value;
	_Atomic uint64_t *_Atomic end; /* NULL: none, or written already */
	uint64_t end_value, failed_value;
	bool waits;     /* for its start; the following are its home's */
	uint64_t order; /* of those that wait for one value */
	struct wf_heap_node node;
};

/* The words that a group looks at. Its worker's. */
struct wf_words {
	uint32_t count; /* different ones; 0: nothing waits */
	uint32_t next;  /* the one to look at first */
	uint32_t room, mask;
	uint64_t order;
	uint64_t moved_ns;       /* when one last changed, or something began to wait */
	struct wf_watched *word; /* the first count of them */
	uint32_t *table; /* by hash, the next free slot where that is taken: number of a word, from 1 on; 0: none */
};

int wf_words_open(struct wf_group *group, uint32_t most); /* most: operations that may wait at once */
void wf_words_close(struct wf_group *group);
uint64_t wf_words_bytes(const struct wf_group *group);

/* On the caller's thread. */
int wf_words_check(const struct weft_op *op);
void wf_words_take(struct wf_transfer *transfer, const struct weft_op *op);
/* Says in the manifest which word of the receiver's is to be written. One child of a scatter does, the others have none. */
int wf_words_name(struct wf_transfer *transfer, const struct weft_op *op, struct wf_manifest *manifest);
/* One of the peers written to is the word's. */
int wf_words_suit_scatter(struct weft_engine *engine, const struct weft_op *op, const struct wf_slice *slices,
			  uint32_t count);

/* On the transfer's home. */
bool wf_words_wait(struct wf_transfer *transfer);   /* false: its word was reached, it starts now */
void wf_words_forget(struct wf_transfer *transfer); /* it ends while it waits */
int wf_words_look(struct wf_group *group);          /* starts what waits no more: how many */
/* The last thing before its end is told; on the thread that ends it. */
void wf_words_end(struct wf_transfer *transfer, int status);
/* The engine closes: of operations that no worker ended, because it hangs or had no CPU in time. On the closing thread. */
void wf_words_end_left(struct weft_engine *engine);
#endif
