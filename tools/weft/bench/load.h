/*
 * The load: keeps `depth` operations in flight until time, count, Ctrl-C or a failure ends it, then waits for
 * the last of them. An operation counts when its end arrives. Runs on the driver's only thread.
 */
#ifndef WEFT_TOOLS_BENCH_LOAD_H
#define WEFT_TOOLS_BENCH_LOAD_H

#include "bench.h"
#include "progress.h"
#include "reach.h"

#define BENCH_SILENCE_NS WEFT_SECOND /* waiting longer than this is explained */

struct bench_flight {
	uint64_t start_ns, number;
	uint32_t generation;
	bool busy;
};

struct bench_load {
	const struct bench_params *params;
	struct cmd_control *control;
	weft_engine *engine;
	weft_queue *queue;
	weft_peer peer;
	weft_region region; /* ours */
	weft_remote remote; /* the peer's */
	struct bench_memory memory;
	struct bench_progress progress;
	struct bench_faults *faults; /* NULL: none in this phase */
	struct bench_reach theirs, ours;

	struct cmd_slots slots; /* of the destination */
	uint32_t *map;          /* for each destination slot: what it should hold */
	struct bench_flight *flight;
	uint32_t *idle, idle_count; /* flights not in use */
	uint32_t *to, *from;        /* depth × pages: the slots each flight moves */
	struct weft_write *parts;   /* scatter */
	uint32_t idle_turns;        /* manual progress */
	uint64_t op_bytes, next_number, good_messages;

	/* of the phase that runs */
	uint64_t posted, ended, failed, bytes, start_ns, last_ns, alive_ns, looked_ns;
	uint64_t rails_down, rails_up; /* events */
	struct cmd_histogram *latency;
	struct cmd_verdict replies; /* what callers found in their replies */
	bool stopping, broken, peer_up;
	bool asked;     /* by the peer, to stop */
	bool lost;      /* the peer does not answer over any rail */
	bool unreached; /* and its ports were asked why */
	bool quiet;     /* does not say that it waits */
	bool deaf;      /* no end will ever arrive */
	char error[800];
};

int bench_load_open(struct bench_load *load);
void bench_load_close(struct bench_load *load);
/* 0, or a negative errno with load->error: no path to the peer within limit_ns. Says what it waits for if that is long. */
int bench_load_wait_peer(struct bench_load *load, uint64_t limit_ns);
/* Runs for duration_ns or max_ops (0: no limit), and drains. 0, or a negative errno with load->error. */
int bench_load_run(struct bench_load *load, uint64_t duration_ns, uint64_t max_ops);

#endif
