/* The header of the torture test's messages, and the answer to a call: a function of its id. */
#ifndef TORTURE_MESSAGE_H
#define TORTURE_MESSAGE_H

#include <stdint.h>

struct message {
	uint64_t id, sequence, bytes;
	uint32_t from, generation;
};

int app_status(uint64_t id);
uint64_t reply_bytes(uint64_t id);
#endif
