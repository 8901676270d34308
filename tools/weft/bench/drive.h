/* What the files of the benchmark's driver share: meet.c finds the peer, drive.c does the rest.
 */
#ifndef WEFT_TOOLS_BENCH_DRIVE_H
#define WEFT_TOOLS_BENCH_DRIVE_H

#include "bench.h"
#include "load.h"

#define BENCH_ANSWER_NS (10 * WEFT_SECOND)

struct bench_driver {
	const struct bench_options *options;
	struct bench_params params;
	struct bench_summary *summary;
	struct cmd_transport transport;
	struct sockaddr_storage host; /* of the peer, when it is known by an address */
	struct cmd_control *control;
	struct bench_load load;
	pid_t child; /* 0: none */
	bool same_host;
};

/* Leave a sentence in the summary and return error. */
__attribute__((format(printf, 3, 4))) int bench_driver_fail(struct bench_driver *drive, int error, const char *format,
							    ...);
int bench_driver_fail_control(struct bench_driver *drive, int error); /* the connection has said why */

/* 0, or a negative errno with a sentence: a control connection to the host that was named; a process of our
 * own. */
int bench_meet_find(struct bench_driver *drive);
int bench_meet_start(struct bench_driver *drive);

#endif
