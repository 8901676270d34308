/*
 * The two blobs that travel by the application's own means: an engine's address and a region's descriptor. They are
 * versioned and checksummed, and every byte is checked on reading, because they come from outside. Pure functions, any
 * thread.
 */
#ifndef WF_WIRE_BLOB_H
#define WF_WIRE_BLOB_H

#include <stddef.h>
#include <stdint.h>

#define WF_MAX_RAILS        64
#define WF_MAX_RAIL_ADDRESS 64

struct wf_wire_rail {
	char provider[32]; /* the name that people and the config use: "tcp", not "net" */
	char name[64];
	uint32_t address_format;
	uint8_t address_bytes;
	uint8_t address[WF_MAX_RAIL_ADDRESS];
	uint64_t link_bps;
	uint32_t serial; /* grows when the endpoint was opened anew, even under the same address */
	uint8_t looks;   /* 1: writers must remind the target to poll now and then, or the bytes wait */
};

struct wf_wire_address {
	uint64_t incarnation; /* unique to each engine ever opened */
	uint32_t revision;    /* grows each time a rail's address changes */
	uint32_t count;
	struct wf_wire_rail rail[WF_MAX_RAILS];
};

/* A region may be registered in tiles on a rail: tile t holds step + reach bytes from t * step on, the last one the
 * remainder. So any range no longer than reach lies whole in tile offset / step. */
#define WF_REACH_LEAST (1u << 20)
static inline uint32_t wf_tile_at(uint64_t offset, uint64_t step, uint32_t count)
{
	uint64_t at = offset / step;

	return at < count ? (uint32_t)at : count - 1;
}
/* Number of tiles for a region of bytes; bytes > reach. */
static inline uint64_t wf_tiles_of(uint64_t bytes, uint64_t step, uint64_t reach)
{
	return (bytes - reach - 1) / step + 1;
}

/* In a region's access, beside WEFT_REMOTE_*: it is a card's memory; and its owner copies what peers write to a room of its (land.h), so
 * that no rail needs a key. */
#define WF_WIRE_CARDS (1u << 8)
#define WF_WIRE_LANDS (1u << 9)

struct wf_wire_region {
	uint64_t incarnation;
	uint64_t region; /* the exporter's handle */
	uint64_t proof;  /* only holders of the descriptor know it: proves that a manifest comes from one of them */
	uint64_t bytes;
	uint32_t access;
	uint32_t count;
	uint32_t tiles; /* over all rails: number of keys beside this structure, in the order of its rails */
	struct {
		uint8_t rail;   /* index in the exporter's address */
		uint16_t tiles; /* 0: registered in one piece */
		uint64_t key;   /* the key, if so */
		uint64_t base;  /* the rail's name for offset 0: an address, or 0 */
		uint64_t step, reach;
	} key[WF_MAX_RAILS];
};

/* Returns 0, or -ENOBUFS with *bytes set to the size needed. */
int wf_blob_pack_address(const struct wf_wire_address *address, void *blob, size_t *bytes);
int wf_blob_pack_region(const struct wf_wire_region *region, const uint64_t *tile_keys, void *blob, size_t *bytes);

/* -EPROTO: no such blob, or truncated; -EPROTONOSUPPORT: another version; -EBADMSG: damaged. */
int wf_blob_unpack_address(const void *blob, size_t bytes, struct wf_wire_address *ret_address);
int wf_blob_unpack_region(const void *blob, size_t bytes, struct wf_wire_region *ret_region);
/* Then reads the keys of its tiles, region->tiles of them. */
int wf_blob_unpack_tiles(const void *blob, size_t bytes, const struct wf_wire_region *region, uint64_t *ret_keys);
/* Largest number of tiles per rail with which a descriptor of this many rails fits in bytes, if keys have 32 bits. */
uint32_t wf_blob_most_tiles(uint32_t rails, size_t bytes);
#endif
