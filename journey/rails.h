/* One source for 09-rails to 15-lazy: which ideas are on, and what a worker owns. rails.c runs them, worker.c is the hot path. */
#ifndef JOURNEY_RAILS_H
#define JOURNEY_RAILS_H

#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>

/* guide: ideas */
struct ideas {
	bool warm_up; /* 10: every path has carried a write before the clock starts */
	bool threads; /* 11: a worker for each group of NICs, not one for all */
	bool pin;     /* 12: each worker stays on a core near its NICs */
	bool shard;   /* 13: a worker counts and chooses by itself; nothing is shared per page */
	bool batch;   /* 14: up to 16 writes per ring of the doorbell and per look at the completions */
	bool lazy;    /* 15: a write request exists only while it is on the NIC */
};
/* guide end */

enum { BATCH = 16, LIST = 1024 };

struct list;
/* A write request. Its first member is what the provider hands back when it has ended. */
struct request {
	struct fi_context2 context;
	struct page page;
	struct list *list; /* the list it was written down in; NULL for lazy ones */
};
/* Eager: a whole transfer, written down before its first write is posted. */
struct list {
	unsigned at, remaining;
	struct request request[LIST];
};

struct rail {
	struct nic nic;
	unsigned depth, in_flight;
	struct request *ready[BATCH]; /* chosen for this NIC, not yet accepted by it */
	unsigned ready_at, ready_count;
	struct request *slots, **free; /* lazy: as many requests as may be in flight */
	unsigned free_count;
};

/* guide: shared */
/* Without sharding all workers meet here, twice per page. */
struct shared {
	pthread_mutex_t lock;
	uint64_t next;
	_Atomic uint64_t done;
} __attribute__((aligned(64))); /* one cache line: it is where all of them want it, one at a time */
/* guide end */

/* guide: own */
struct worker {
	struct ideas ideas;
	const struct work *work;
	struct shared *shared;
	struct rail *rails;
	int count, index;
	unsigned core;
	uint64_t ms, end_ns, next, done, refused, cpu_ns;
	struct list *list; /* eager: being posted */
	int lists;         /* and how many are alive */
	pthread_barrier_t *start;
	pthread_t thread;
} __attribute__((aligned(128))); /* two lines: the processor fetches them in pairs */
/* guide end */

void worker_prepare(struct worker *worker, unsigned depth);
/* Posts and polls until end_ns has passed and everything has ended. */
void worker_run(struct worker *worker);
void worker_free(struct worker *worker);

#endif
