/* The modelled EFA card as a preloaded library: where it is, and starting over with it. */
#ifndef SIM_PRELOAD_H
#define SIM_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

/* The library below the simulator's directory. False: this build has none. */
bool sim_preload_find(const char *dir, char *path, size_t bytes);

/* Returns 0 if this program was started with the library, a negative errno if that cannot be had; otherwise the program
 * starts over and this does not return. */
int sim_preload_restart(const char *library);

#endif
