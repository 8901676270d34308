/*
 * Structures that cross the library's border and grow at their end (docs/decisions/13-abi-that-grows.md). The program says how
 * large its own are; here they become ours, and ours become its. Called by api.c and by queues, on application threads.
 */
#ifndef WF_BASE_SIZED_H
#define WF_BASE_SIZED_H

#include "weft.h"

#include <stddef.h>

#define WF_SIZED_MOST 4096 /* bytes: no program's structure is larger, however new its header */
#define WF_SIZED_ROOM 256  /* zeros after a structure of ours that a program reads in place: room for fields to come */

#define WF_END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* Release 0.1: no program was built with less. The fields named here never change. */
#define WF_LEAST_CONFIG      sizeof(size_t)
#define WF_LEAST_PEER_CONFIG WF_END_OF(struct weft_peer_config, user)
#define WF_LEAST_OP          WF_END_OF(struct weft_op, immediate)
#define WF_LEAST_WRITE       WF_END_OF(struct weft_write, bytes)
#define WF_LEAST_READ        WF_END_OF(struct weft_read, bytes)
#define WF_LEAST_WRITE_PAGES WF_END_OF(struct weft_write_pages, to_offset)
#define WF_LEAST_READ_PAGES  WF_END_OF(struct weft_read_pages, to_offset)
#define WF_LEAST_EVENT       WF_END_OF(struct weft_event, quiescent)

/* A program's structure as ours: what it lacks is 0, its size field is ours. -EINVAL: its size cannot be. -E2BIG: it sets a field
 * that we do not know. */
int wf_sized_read(void *to, size_t to_bytes, const void *from, size_t least);
/* Ours as a program's: what we do not know is 0 there. -EINVAL: its size cannot be. */
int wf_sized_write(void *to, size_t to_bytes, const void *from, size_t from_bytes);
#endif
