/*
 * Network namespaces of the test's own, so that links can be cut without harm to anyone. A namespace belongs to a
 * thread: the caller moves between them, and everything it starts (processes, an engine's threads) stays where it was
 * started.
 */
#ifndef TEST_NETNS_H
#define TEST_NETNS_H

#include <stdbool.h>

/* Call it before the process has threads. Returns whether namespaces can be made here, and prints why not. */
bool netns_allowed(void);
int netns_make(void); /* makes a new one with its loopback up, enters it and returns its descriptor */
void netns_enter(int netns);
/* Runs `ip ...` in the caller's namespace; it must succeed. */
void netns_ip(const char *format, ...) __attribute__((format(printf, 1, 2)));
#endif
