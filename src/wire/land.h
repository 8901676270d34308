/*
 * What is said about landing: operations on a card's memory that no NIC of its owner reaches. They go by NICs to and from a room, an
 * ordinary region of its owner's, and the owner's card copies between the room and its memory. Each is the content of a message.
 * Everything read here comes from a peer and is checked before use. Pure functions, any thread.
 */
#ifndef WF_WIRE_LAND_H
#define WF_WIRE_LAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_LAND_HEADER 67u
#define WF_LAND_PAGES  2000u /* most in one, so that it is one frame */

enum wf_land_kind {
	WF_LAND_ASK = 1, /* a room, please: who asks knows this region. What was said of the last room is over */
	WF_LAND_ROOM,    /* the answer: status, or the room's descriptor */
	WF_LAND_MOVE, /* pages that lie side by side in the room, from at on: copy them to the region, or from there */
	WF_LAND_DONE, /* the answer: status */
	WF_LAND_LAST,
};

struct wf_land {
	uint8_t kind; /* enum wf_land_kind */
	bool read;    /* MOVE: from the region to the room */
	int status;   /* ROOM, DONE: 0 or a negative errno */
	/* MOVE to the region: when all is there this immediate arrives, as many times; 0: nobody is told */
	uint32_t immediate, immediates;
	uint64_t region, proof;         /* ASK, MOVE: the owner's handle, and what its descriptor says */
	uint64_t at;                    /* MOVE: offset in the room */
	uint64_t offset, stride, bytes; /* MOVE: of page 0 in the region; from page to page; of a page */
	uint32_t count;                 /* MOVE: of pages, at least one */
	const uint8_t *tail;            /* MOVE: the pages' numbers; NULL: 0, 1, 2, … ROOM: the descriptor */
	uint32_t tail_bytes;
};

static inline size_t wf_land_bytes(const struct wf_land *land)
{
	return WF_LAND_HEADER + land->tail_bytes;
}

/* Into a buffer of wf_land_bytes(). Numbers of pages are given in the host's order, as uint32_t; NULL: the tail as it is. */
void wf_land_pack(const struct wf_land *land, const uint32_t *pages, void *buffer);
/* Returns -EPROTO on any error. The result points into buffer. */
int wf_land_unpack(const void *buffer, size_t bytes, struct wf_land *ret_land);
/* MOVE: the number of page i, in the host's order. */
uint32_t wf_land_page(const struct wf_land *land, uint32_t i);
/* MOVE: whether all of it lies within a room and a region of these sizes. */
bool wf_land_fits(const struct wf_land *land, uint64_t room, uint64_t region);
#endif
