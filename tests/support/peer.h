/*
 * The test's control over peer processes, and the fixture that most tests use: an engine here, a peer process with a
 * region, and both connected. Every function here fails the test when something goes wrong; those with "try" in the
 * name return the status instead.
 */
#ifndef TEST_PEER_H
#define TEST_PEER_H

#include "support/command.h"
#include "support/side.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <sys/types.h>

#define BLOB 8192 /* more than any blob needs */

struct blob {
	size_t bytes;
	uint8_t data[BLOB];
};

struct peer {
	pid_t pid;
	int fd;
	struct blob address;
};

struct peer_event {
	int status;
	uint64_t tag, bytes, call;
	weft_peer peer;
	uint8_t *data; /* data of the last wait on any peer, and its length */
};

void peer_start(struct peer *peer, const struct weft_config *config);
void peer_stop(struct peer *peer); /* closes its engine; it must end well and in time */
void peer_kill(struct peer *peer); /* SIGKILL, and reaped; does nothing if it is not running */

int peer_try(struct peer *peer, struct command *command, const void *payload, struct answer *ret_answer);
uint64_t peer_do(struct peer *peer, struct command *command, const void *payload); /* value 0 */
#define peer_tell(peer, what, ...) peer_do(peer, &(struct command){ .code = what, .arg = { __VA_ARGS__ } }, NULL)

weft_peer peer_add(struct peer *peer, const struct blob *address);
/* Returns its number in the peer process; the descriptor goes to ret_blob unless that is NULL. */
void peer_blob(const struct answer *answer, struct blob *ret_blob); /* the last answer's payload */
uint64_t peer_region(struct peer *peer, uint64_t bytes, uint32_t access, struct blob *ret_blob);
void peer_fill(struct peer *peer, uint64_t region, uint64_t offset, uint64_t bytes, uint64_t seed);
void peer_check(struct peer *peer, uint64_t region, uint64_t offset, uint64_t bytes, uint64_t seed);
void peer_check_at(struct peer *peer, uint64_t region, uint64_t offset, uint64_t bytes, uint64_t seed, uint64_t start);
void peer_wait(struct peer *peer, enum weft_event_type type, uint64_t tag, struct peer_event *ret);
int peer_wait_try(struct peer *peer, enum weft_event_type type, uint64_t tag, uint64_t limit_ns,
		  struct peer_event *ret);
/* Sends a command now and takes its answer later, so that both sides can be busy at once. */
void peer_begin(struct peer *peer, struct command *command, const void *payload);
int peer_end(struct peer *peer, struct answer *ret_answer);

/* ---- this side ---- */

void address_of(weft_engine *engine, struct blob *ret_blob);
void export_of(weft_engine *engine, weft_region region, struct blob *ret_blob);
/* Waits for the end (or reply, or count) with this tag and returns its status. The event goes to ret unless that is
 * NULL. */
int end_of(struct side *side, uint64_t tag);
void wait_for_event(struct side *side, enum weft_event_type type, uint64_t tag, struct weft_event *ret);
/* Like assert_int_equal() for two statuses, with their texts. */
#define assert_status(got, expected) assert_status_at(got, expected, __FILE__, __LINE__)
void assert_status_at(int got, int expected, const char *file, int line);

struct pair {
	struct side here;
	struct peer there;
	weft_peer peer;         /* the peer, as seen here */
	weft_peer back;         /* this side, as seen there */
	uint64_t bytes;         /* of both regions */
	char *memory;           /* our memory */
	weft_region region;     /* our region; peers may read and write it */
	uint64_t number;        /* their region's number in the peer process */
	struct blob descriptor; /* descriptor of their region */
	weft_remote remote;     /* their region, imported */
};

void pair_open(struct pair *pair, const struct weft_config *here, const struct weft_config *there, uint64_t bytes);
void pair_close(struct pair *pair);
weft_remote import(struct side *side, weft_peer peer, const struct blob *descriptor);
/* Writes and waits for the end. */
int pair_write(struct pair *pair, uint64_t from, uint64_t to, uint64_t bytes);

/* cmocka's main with "shm", "tcp" or "tcp4" as argument, and the peer processes' main. */
typedef int (*run_fn)(void);
int test_main(int argc, char **argv, run_fn run);
#endif
