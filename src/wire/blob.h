/*
 * The two blobs that travel by the application's own means: an engine's address and a region's descriptor. Versioned,
 * checksummed, and read with every byte checked: they come from outside. Pure functions, any thread.
 */
#ifndef WF_WIRE_BLOB_H
#define WF_WIRE_BLOB_H

#include <stddef.h>
#include <stdint.h>

#define WF_MAX_RAILS        64
#define WF_MAX_RAIL_ADDRESS 64

struct wf_wire_rail {
	char provider[32]; /* as people and the config name it: "tcp", not "net" */
	char name[64];
	uint32_t address_format;
	uint8_t address_bytes;
	uint8_t address[WF_MAX_RAIL_ADDRESS];
	uint64_t link_bps;
	uint32_t serial; /* grows when the endpoint was opened anew, even under the same address */
	uint8_t looks;   /* 1: who writes to it tells it to look now and then, or the bytes wait */
};

struct wf_wire_address {
	uint64_t incarnation; /* one number for each engine ever opened */
	uint32_t revision;    /* grows each time a rail's address changes */
	uint32_t count;
	struct wf_wire_rail rail[WF_MAX_RAILS];
};

/* A region may be registered in tiles on a rail: tile t holds step + reach bytes from t * step on, the last one what is left. So
 * whatever is no longer than reach lies whole in the one that its offset says. */
#define WF_REACH_LEAST (1u << 20)
static inline uint32_t wf_tile_at(uint64_t offset, uint64_t step, uint32_t count)
{
	uint64_t at = offset / step;

	return at < count ? (uint32_t)at : count - 1;
}
/* How many there are of so many bytes; bytes > reach. */
static inline uint64_t wf_tiles_of(uint64_t bytes, uint64_t step, uint64_t reach)
{
	return (bytes - reach - 1) / step + 1;
}

struct wf_wire_region {
	uint64_t incarnation;
	uint64_t region; /* the exporter's handle */
	uint64_t proof;  /* known to those who have the descriptor: shows that a manifest comes from one of them */
	uint64_t bytes;
	uint32_t access;
	uint32_t count;
	uint32_t tiles; /* of all rails: how many keys there are beside this structure, in the order of its rails */
	struct {
		uint8_t rail;   /* index in the exporter's address */
		uint16_t tiles; /* 0: registered as one */
		uint64_t key;   /* when it is */
		uint64_t base;  /* what offset 0 is called on that rail: an address, or 0 */
		uint64_t step, reach;
	} key[WF_MAX_RAILS];
};

/* 0, or -ENOBUFS with *bytes set to what is needed. */
int wf_blob_pack_address(const struct wf_wire_address *address, void *blob, size_t *bytes);
int wf_blob_pack_region(const struct wf_wire_region *region, const uint64_t *tile_keys, void *blob, size_t *bytes);

/* -EPROTO: not such a blob or truncated; -EPROTONOSUPPORT: another version; -EBADMSG: damaged. */
int wf_blob_unpack_address(const void *blob, size_t bytes, struct wf_wire_address *ret_address);
int wf_blob_unpack_region(const void *blob, size_t bytes, struct wf_wire_region *ret_region);
/* Then the keys of its tiles, region->tiles of them. */
int wf_blob_unpack_tiles(const void *blob, size_t bytes, const struct wf_wire_region *region, uint64_t *ret_keys);
/* How many tiles a rail may have so that a descriptor of so many rails fits in so many bytes, when keys have 32 bits. */
uint32_t wf_blob_most_tiles(uint32_t rails, size_t bytes);
#endif
