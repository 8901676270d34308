/* The other process of a small benchmark: an engine with a region that peers may write. It runs until it is told to
 * end. */
#ifndef BENCH_OTHER_H
#define BENCH_OTHER_H

#include "../tests/support/clock.h"
#include "weft.h"

#include <sys/types.h>

struct other {
	pid_t pid;
	int fd; /* closing it ends the process */
	size_t address_bytes, region_bytes;
	uint8_t address[8192], region[8192];
};

/* Forks, so call it before any engine is open here. Returns 0 or a negative errno. */
int other_start(struct other *other, const struct weft_config *config, uint64_t bytes);
/* Ends the other process. */
void other_stop(struct other *other);
/* Asks for the CPU time that it has used up to now. */
int other_cpu_ns(struct other *other, uint64_t *ret_ns);

/* Adds it as a peer, waits until it answers, and imports its region. */
int other_connect(struct other *other, weft_engine *engine, weft_queue *queue, weft_peer *ret_peer,
		  weft_remote *ret_remote);

#endif
