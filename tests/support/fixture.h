/* One pair for all tests of a program. The program defines its size; cmocka calls the functions. */
#ifndef TEST_FIXTURE_H
#define TEST_FIXTURE_H

#include "support/peer.h"

extern struct pair pair;
extern const uint64_t pair_bytes;

int pair_setup(void **state);
int pair_teardown(void **state);

#endif
