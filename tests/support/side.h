/*
 * One engine with its queue, as both the test and the peer process use it. Events that come before they are
 * asked for are kept, so that a test names what it waits for and nothing else gets lost.
 */
#ifndef TEST_SIDE_H
#define TEST_SIDE_H

#include "support/util.h"
#include "weft.h"

#define ANY_TAG UINT64_MAX

/* What the argument of the program chose: "shm", "tcp" or "tcp4". */
struct transport {
	const char *name, *provider, *rails;
	uint32_t count;
};
extern const struct transport *transport;
bool transport_choose(const char *name);

struct side {
	weft_engine *engine;
	weft_queue *queue;
	bool manual;
	struct weft_event *kept;
	uint32_t count, room;
};

/* The transport's provider and rails, and a peer limit that a busy machine does not reach. */
struct weft_config side_config(void);
int side_open(struct side *side, const struct weft_config *config);
int side_close(struct side *side); /* releases what was kept */

/* The first event of the type with the tag, kept or coming: 0, -ETIME when the limit passes, or an error of
 * wait. */
int side_wait(struct side *side, enum weft_event_type type, uint64_t tag, uint64_t limit_ns, struct weft_event *ret);
/* One that is of another peer is passed over. */
int side_wait_peer(struct side *side, enum weft_event_type type, weft_peer peer, uint64_t limit_ns,
		   struct weft_event *ret);
/* Keeps everything that is there now. */
void side_gather(struct side *side);
#endif
