/*
 * One engine with its queue, used by both the test and the peer process. Events that come before they are asked for are
 * kept, so that a test names what it waits for and loses nothing else.
 */
#ifndef TEST_SIDE_H
#define TEST_SIDE_H

#include "support/util.h"
#include "weft.h"

#define ANY_TAG UINT64_MAX

/* What the argument of the program chose: "shm", "tcp", "tcp4", "local", "mapped", "efa2", "verbs" or "verbs4". */
struct transport {
	const char *name, *provider, *rails;
	uint32_t count;
};
extern const struct transport *transport;
/* Memory for regions: the engine's own, which peers map, where the transport says so, or the C library's. Zeros. */
void *side_memory(weft_engine *engine, uint64_t bytes);
void side_memory_free(void *memory); /* after its engine was closed, which frees its own */
bool transport_choose(const char *name);
bool transport_is_one_sided(
    void); /* a write needs no help from the peer's process: one that is stopped is written to */

struct side {
	weft_engine *engine;
	weft_queue *queue;
	bool manual;
	struct weft_event *kept;
	uint32_t count, room;
};

/* The transport's provider and rails, with a peer limit that a busy machine does not reach. */
struct weft_config side_config(void);
int side_open(struct side *side, const struct weft_config *config);
int side_close(struct side *side); /* releases what was kept */

/* Returns the first event of the type with the tag, kept or coming: 0, -ETIME if the limit passes, or an error of
 * wait. */
int side_wait(struct side *side, enum weft_event_type type, uint64_t tag, uint64_t limit_ns, struct weft_event *ret);
/* Skips events of other peers. */
int side_wait_peer(struct side *side, enum weft_event_type type, weft_peer peer, uint64_t limit_ns,
		   struct weft_event *ret);
/* Keeps everything that is in the queue now. */
void side_gather(struct side *side);
#endif
