/* What the small examples share and none is about: other processes, and blobs that travel by a socket. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* Another process, and a socket to it. */
struct other {
	int fd;
	pid_t pid;
};

/* Ends the program with a sentence where a call failed; else returns what it returned. */
int must(int result, const char *what);
/* Starts a process that runs main(fd, provider) and exits with what it returns. Before any engine is opened: engines do not survive a
 * fork. */
struct other start(int (*other_main)(int fd, const char *provider), const char *provider);
/* Its exit status; 1 when it was killed. */
int finish(struct other *other);

void give(int fd, const void *blob, size_t bytes);
size_t take(int fd, void *blob); /* at most WEFT_BLOB_MAX bytes */

/* An engine with the defaults but for the provider; over tcp on the loopback device. */
weft_engine *open_engine(const char *provider);
void give_address(int fd, weft_engine *engine);
void give_region(int fd, weft_engine *engine, weft_region region);
weft_peer take_peer(int fd, weft_engine *engine);
weft_remote take_remote(int fd, weft_engine *engine, weft_peer peer);

/* Waits for the next event of this type and hands it over; others are released. Ends the program after 30 s. */
void await(weft_queue *queue, enum weft_event_type type, struct weft_event *ret_event);

#endif
