/*
 * What the tests of words share: an operation of each kind that waits for start_word to reach 7 and sets end_word to 70, between the
 * sides of a pair. Every function fails the test when something goes wrong.
 */
#ifndef TEST_WORDS_H
#define TEST_WORDS_H

#include "support/peer.h"

#define PAGE  4096u
#define PAGES 64u
#define AWAY  (3u << 20) /* of both regions, for other operations */

enum kind { WRITE, READ, WRITE_PAGES, READ_PAGES, SCATTER, SEND, CALL, BARRIER, KINDS };

extern uint64_t start_word, end_word;

void store(uint64_t *at, uint64_t value);
uint64_t load(const uint64_t *at);
void until_word(const uint64_t *at, uint64_t value);

/* Sets both words back; no deadline, and the end is kept for ended(). */
struct weft_op waiting_op(void);
/* Moves the first PAGES pages, or sends something small. */
int submit(struct pair *pair, enum kind kind, const struct weft_op *op, weft_transfer *ret);
bool reads(enum kind kind);
void make_source(struct pair *pair, enum kind kind, uint64_t seed);
void fill_target(struct pair *pair, enum kind kind, uint64_t seed);
void check_target(struct pair *pair, enum kind kind, uint64_t seed);
/* Returns when the home has had turns and the peer has taken and answered something. */
void let_time_pass(struct pair *pair);
int ended(struct pair *pair, weft_transfer transfer); /* waits for the end: its status */
void has_not_ended(struct pair *pair, weft_transfer transfer);
#endif
