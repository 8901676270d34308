/*
 * The scene of every attack: a victim, a friend that is an honest peer of it, and a stranger. Each attack opens it
 * anew. Every function fails the test when something goes wrong.
 */
#ifndef HOSTILE_WORLD_H
#define HOSTILE_WORLD_H

#include "hostile/raw.h"
#include "support/util.h"
#include "weft.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define WORLD_BYTES 65536u

struct actor {
	weft_engine *engine;
	weft_queue *queue;
	uint8_t address[WEFT_BLOB_MAX];
	size_t address_bytes;
};

struct world {
	struct actor victim, friend;
	char *open;   /* the victim's memory that peers may write and read; the friend has its descriptor */
	char *closed; /* memory that peers may only write */
	weft_region open_region, closed_region;
	char *source; /* the friend's */
	weft_region source_region;
	weft_peer friend_at_victim, victim_at_friend;
	weft_remote to_open, to_closed; /* the friend's */
	struct raw stranger;
	uint64_t tag;
};
extern struct world world;
extern _Atomic uint32_t world_warnings; /* lines that the engines have logged */

/* "tcp", "efa" or "verbs"; the latter two are simulated. Returns false for any other name. */
bool world_choose(const char *name);
bool world_is(const char *name);
struct weft_config world_config(const char *host);
/* The victim's configuration in the next world; reset by world_close(). */
extern struct weft_config world_victim;

int world_open(void **state);
int world_close(void **state);
void actor_open(struct actor *actor, const struct weft_config *config);

/* Returns the unpacked descriptor of a region of the victim's. */
struct wf_wire_region descriptor_of(weft_region region);
/* Checks that both regions still hold what they held when the world was opened. */
void memory_is_untouched(void);
/* The friend writes, reads, sends and calls, and all of it ends well. */
void friend_works(void);
/* Takes the victim's events, answering calls, until it has seen one of this type; returns false if none comes in
 * time. */
bool victim_sees(enum weft_event_type type, uint64_t limit_ns, struct weft_event *ret_event);
#endif
