/*
 * Topology files that a user names. hwloc ends the process on some broken ones, so the command reads a file in a child
 * process first. Called once per file, before this process has threads.
 */
#ifndef WEFT_TOOLS_TOPOLOGY_H
#define WEFT_TOOLS_TOPOLOGY_H

#include <stddef.h>

/* Returns 0 if hwloc reads the file and weft makes a plan of it, else a negative errno with a sentence in why. */
int cmd_topology_check(const char *path, char *why, size_t room);
/* Checks the file that WEFT_TOPOLOGY_XML names, if it does. Returns 0, or a negative errno after printing why. */
int cmd_topology_check_environment(const char *command);

#endif
