/* The other process of a small benchmark: an engine with a region that peers may write, until it is told to
 * end. */
#ifndef BENCH_OTHER_H
#define BENCH_OTHER_H

#include "weft.h"

#include <sys/types.h>

struct other {
	pid_t pid;
	int fd; /* closing it ends the process */
	size_t address_bytes, region_bytes;
	uint8_t address[8192], region[8192];
};

/* Call it before any engine is open here: it forks. 0 or a negative errno. */
int other_start(struct other *other, const struct weft_config *config, uint64_t bytes);
/* Ends it; how much processor time it used between the last two marks. */
void other_stop(struct other *other);
/* Asks it for the processor time it has used so far. */
int other_cpu_ns(struct other *other, uint64_t *ret_ns);

/* Adds it as a peer, waits until it answers, imports its region. */
int other_connect(struct other *other, weft_engine *engine, weft_queue *queue, weft_peer *ret_peer,
		  weft_remote *ret_remote);

uint64_t bench_now_ns(void);
uint64_t bench_cpu_ns(void); /* of this process, all threads */
#endif
