/*
 * Tests of cards' memory on the fake driver: a pair of engines in two processes, memory of cards at either, and what moves between
 * them. Built into each such test, because the peer's process needs the fake driver too.
 */
#ifndef TEST_CARDS_H
#define TEST_CARDS_H

#include "fake-cuda/fake.h"
#include "fake-cuda/peer.h"
#include "support/peer.h"

#define BYTES (4u << 20)

struct here {
	char *memory;
	weft_region region;
};

extern struct pair pair;
extern uint64_t tags; /* of operations: the last one's */

int open_pair(void **state);
/* Whatever a test did, both engines close in time and leave nothing behind, and no call was wrong. */
int close_pair(void **state);
struct here card_here(enum fake_kind kind, uint64_t bytes);
struct here card_here_only(enum fake_kind kind, uint64_t bytes); /* peers have no access */
void card_here_free(struct here *here);
weft_remote card_there(enum fake_kind kind, uint64_t bytes, uint64_t *ret_number);
void fill_card(char *memory, uint64_t bytes, uint64_t seed);
void check_card(const char *memory, uint64_t bytes, uint64_t seed, uint64_t start);
weft_transfer begin_write(weft_region from, weft_remote to, uint64_t bytes, uint64_t timeout_ns);
int write_to(weft_region from, uint64_t from_offset, weft_remote to, uint64_t to_offset, uint64_t bytes);
int read_from(weft_remote from, uint64_t from_offset, weft_region to, uint64_t to_offset, uint64_t bytes);
/* Pages of a size, from card to card and between either and the CPU, both ways. */
void try_pages(struct here *here, weft_remote there, uint64_t number, uint64_t page, bool read);
#endif
