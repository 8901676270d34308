/*
 * The manifest of a transfer that is checked, or whose notification writes a word: where its bytes went in the receiver's
 * regions, the sum of the hashes of its units, and the word. It is the notification's message, and the receiver hashes what landed
 * before it tells anybody. One that only writes a word has no units. Each unit's
 * hash is seeded with its number, so that units that changed places do not cancel out. Everything read here comes from
 * a peer and is checked before use. Pure functions, any thread.
 */
#ifndef WF_WIRE_MANIFEST_H
#define WF_WIRE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_MANIFEST_UNIT    (1u << 20) /* largest unit, so that checking one never takes long */
#define WF_MANIFEST_PAYLOAD 64u

struct wf_manifest_range {
	uint64_t region; /* the receiver's handle */
	uint64_t proof;  /* from the region's descriptor: proves that the sender may write there */
	uint64_t offset, bytes;
};

/* Ranges, each cut into units of unit_bytes; or pages of one region, each one unit or cut in the same way. */
struct wf_manifest {
	uint64_t sum;
	uint64_t unit_bytes;
	const void *payload; /* the notification's own */
	uint32_t payload_bytes;
	bool paged;
	uint64_t count;                /* number of ranges or pages */
	uint64_t bytes;                /* total; unpacking computes it */
	struct wf_manifest_range page; /* PAGED: region, proof, offset of page 0, bytes of a page */
	uint64_t stride;
	/* Stored when all is well: 8 bytes at an offset that is a multiple of 8. Its bytes field is not on the wire. */
	bool has_word;
	struct wf_manifest_range word;
	uint64_t word_value;
	const void *list; /* ranges; or page numbers, NULL: 0, 1, 2, … In the bytes unpacked, or the caller's
			     when packing */
};

/* One unit of a manifest. */
struct wf_manifest_unit {
	uint64_t number;
	struct wf_manifest_range at;
};

/* Position of a walk over the units; zeroed means the first. */
struct wf_manifest_walk {
	uint64_t number, entry, done; /* units; ranges or pages; bytes of the current one */
};

size_t wf_manifest_bytes(const struct wf_manifest *manifest);
void wf_manifest_pack(const struct wf_manifest *manifest,
		      void *buffer); /* list: struct wf_manifest_range or uint32_t */
void wf_manifest_set_sum(void *buffer, uint64_t sum);
/* Returns -EPROTO on any error. The result points into buffer. */
int wf_manifest_unpack(const void *buffer, size_t bytes, struct wf_manifest *ret_manifest);
/* Returns false at the end. */
bool wf_manifest_next(const struct wf_manifest *manifest, struct wf_manifest_walk *walk,
		      struct wf_manifest_unit *ret_unit);

uint64_t wf_manifest_hash(const void *data, uint64_t bytes, uint64_t number);
#endif
