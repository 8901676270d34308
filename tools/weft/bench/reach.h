/*
 * Where the peer's data connections arrive, and whether anything answers there: what a benchmark says while
 * no path opens. On the driver's only thread.
 */
#ifndef WEFT_TOOLS_BENCH_REACH_H
#define WEFT_TOOLS_BENCH_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { BENCH_REACH_MAX = 64 };

struct bench_place {
	struct sockaddr_storage at;
	socklen_t length;
	int error; /* of a connection: 0, ETIMEDOUT, ECONNREFUSED, … */
};

struct bench_reach {
	struct bench_place place[BENCH_REACH_MAX];
	uint32_t count; /* 0: the provider has no ports, or the blob is not one */
};

/* The addresses of an engine, from its blob. */
void bench_reach_read(struct bench_reach *reach, const void *blob, size_t bytes);
/* For a peer on another host: forgets addresses that this host has too, such as that of a container bridge, because a
 * connection to them ends here. Keeps all if there are no others. */
void bench_reach_drop_own(struct bench_reach *reach);
/* "10.0.0.1:20000, 10.0.0.2:20000 and 6 more". Returns text. */
char *bench_reach_list(const struct bench_reach *reach, char *text, size_t room);
/* Connects to each; takes limit_ns at most. */
void bench_reach_look(struct bench_reach *reach, uint64_t limit_ns);
/* What came of that, in one sentence for this side's user or, to_peer, for the peer's. ours is what the peer
 * connects to. */
void bench_reach_say(const struct bench_reach *reach, const struct bench_reach *ours, bool to_peer, char *text,
		     size_t room);

#endif
