/*
 * Memory for regions, that peers of this host can map. On the caller's thread.
 */
#ifndef WF_ENGINE_MEMORY_H
#define WF_ENGINE_MEMORY_H

#include <stdint.h>

struct weft_engine;

/* near: NULL or "numa:N". */
int wf_memory_alloc(struct weft_engine *engine, uint64_t bytes, const char *near, void **ret_memory);
int wf_memory_free(struct weft_engine *engine, void *memory);
#endif
