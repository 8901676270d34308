/* A second process on this host, ended when this one ends, and the control connection to it. */
#ifndef WEFT_TOOLS_SPAWN_H
#define WEFT_TOOLS_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Runs this program with these words (NULL ends them) and the number of its end of the connection as the
 * last. */
enum { CMD_SPAWN_WORDS = 128 }; /* at most */
int cmd_spawn(const char *const *words, pid_t *ret_child, int *ret_fd);
/* Ends it if it has not ended by itself; a sentence when it did not end well, else "". */
void cmd_reap(pid_t child, bool ended_badly, char *why, size_t room);

#endif
