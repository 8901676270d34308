/*
 * The fixture of tests in which a peer falls silent: an engine here, the peer in question, and a witness. Operations of
 * every kind are submitted to the peer; each must end once, by its deadline or the peer's limit, with the right cause.
 * All the while the test writes to the witness without a pause, and every one of those writes must be done: a silent
 * peer holds up nobody.
 */
#ifndef TEST_SILENT_H
#define TEST_SILENT_H

#include "support/peer.h"

#define HEARTBEAT  (100 * MS)
#define PEER_LIMIT (1000 * MS)
#define SHORT      (300 * MS) /* a deadline that comes before the peer's limit */
#define LONG       (60 * S)   /* and a deadline long after it */
#define OPERATIONS 32

enum operation_kind { OP_WRITE, OP_COUNTED, OP_READ, OP_SEND, OP_CALL, OP_BARRIER, OP_KINDS };

struct operation {
	enum operation_kind kind;
	uint64_t deadline_ns;
	bool ended;
	uint64_t ended_ns; /* when its end was seen */
	int status;
	char text[160]; /* the error's text */
	enum weft_scope scope;
};

struct silent {
	struct side here;
	weft_queue *ends, *witnessed;
	char *memory;
	weft_region region;
	struct peer other, witness;
	weft_peer other_peer, witness_peer;
	weft_remote other_remote, witness_remote;
	uint64_t other_number, witness_number;
	uint32_t other_flags; /* flags of its engine */
	struct operation operation[OPERATIONS];
	uint32_t operations;
	bool refuses;     /* its kernel says that it is dead, which may come before any deadline */
	uint64_t gone_ns; /* since when the other is silent; 0: it is not */
	uint64_t served;  /* writes to the witness that are done */
	bool serving;
};

struct weft_config silent_config(void);
void silent_open(struct silent *silent); /* the engine and the witness */
void silent_close(struct silent *silent);
/* Starts a process for `peer` with a region in it, and makes both known here: up when it returns. */
void silent_connect(struct silent *silent);
void silent_disconnect(struct silent *silent); /* the other peer, dead or alive */
/* Adds only the blobs of the other, whether it answers or not. */
void silent_add(struct silent *silent, const struct blob *address, const struct blob *descriptor);

/* Returns the blobs of a process that is gone. */
void silent_ghost(struct blob *ret_address, struct blob *ret_descriptor);
/* Adds such a peer: every operation ends by its deadline or the peer's limit, with the right cause. */
void silent_never_answers(struct silent *silent, const struct blob *address, const struct blob *descriptor);

/* Submits one operation of every kind to the other, all with the same deadline. An operation that is refused because
 * the peer is known to be down has ended with that. */
void silent_submit(struct silent *silent, uint64_t timeout_ns);
/* Serves the witness until every operation has ended, in time. */
void silent_drain(struct silent *silent);
/* Serves it until `deadline_ns`. */
void silent_serve_until(struct silent *silent, uint64_t deadline_ns);
/* Serves the witness until the other is up; then an operation of every kind is done, and the written bytes are
 * there. */
void silent_is_back(struct silent *silent);
/* Checks how the operations from..to ended: with `expected`, or done if `done` has its kind's bit. */
void silent_ended(struct silent *silent, uint32_t from, uint32_t to, int expected, uint32_t done);
/* The peer is told to be down for a reason. */
void silent_is_down(struct silent *silent);
#endif
