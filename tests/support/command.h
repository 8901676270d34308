/* What the test asks of a peer process over a socket: one command, one answer. */
#ifndef TEST_COMMAND_H
#define TEST_COMMAND_H

#include <stddef.h>
#include <stdint.h>

enum command_code {
	COMMAND_OPEN = 1, /* payload: struct weft_config, provider, rails → its address */
	COMMAND_CLOSE,    /* closes the engine → value: ns it took */
	COMMAND_ADD,      /* payload: address → value: handle */
	COMMAND_REMOVE,   /* peer */
	COMMAND_REPLACE,  /* peer; payload: address */
	COMMAND_REGION,   /* bytes, access, kind of a card's memory + 1 or 0 → value: number; payload: descriptor */
	COMMAND_REGION_CLOSE, /* number */
	COMMAND_REVOKE,       /* number */
	COMMAND_FILL,         /* number, offset, bytes, seed, start */
	COMMAND_DIFFERS,      /* number, offset, bytes, seed, start → value: first byte that differs */
	COMMAND_IMPORT,       /* peer; payload: descriptor → value: remote */
	COMMAND_WRITE,        /* number, offset, remote, offset, bytes, tag, notify tag (0: none) */
	COMMAND_SEND,         /* peer, receiver tag, bytes, tag: contents by seed = receiver tag */
	COMMAND_WAIT,         /* type, tag, limit → value: status, tag, bytes, peer, call; payload: data */
	COMMAND_DRAIN,        /* first tag, count, limit: messages in order with contents by seed = tag → value: how
			  many */
	COMMAND_SERVE,        /* count, status, limit: answers that many calls with their own data */
	COMMAND_REPLY,        /* peer, call, status, tag (0: no event at its end); payload: data */
	COMMAND_EXPECT,       /* immediate, count, tag */
	COMMAND_BARRIER,      /* id, tag; payload: peers */
	COMMAND_QUIET,        /* 1: makes no progress from now on (manual engine) until 0 */
	COMMAND_USAGE,        /* → values: resident bytes, open descriptors */
	COMMAND_COUNTING, /* 1: counts weft's allocations from now on; 0: → values: how many, where the last one was */
	COMMAND_CARD,     /* what, value: card_control() → value: its result */
	COMMAND_ROUNDS,   /* remote, number, bytes, rounds: writes one after the other → value: how many ended
			   well */
};

struct command {
	uint32_t code, bytes;
	uint64_t arg[8];
};

struct answer {
	int32_t status;
	uint32_t bytes;
	uint64_t value[8];
};

#define COMMAND_MAX (8u << 20)

/* Whole or not at all: returns 0, -ETIME if limit_ns passes, -EPIPE if the other side is gone. */
int command_put(int fd, const void *data, size_t bytes, uint64_t limit_ns);
int command_get(int fd, void *data, size_t bytes, uint64_t limit_ns);
int server_main(int fd); /* the peer process */

/* Defined in programs with a card (test_cards.c), for their peer processes too. */
void *card_memory(uint64_t bytes, uint64_t kind);
void card_free(void *memory);
void card_copy(void *to, const void *from, uint64_t bytes); /* either is a card's */
uint64_t card_control(uint64_t what, uint64_t value);
#endif
