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

struct wf_wire_region {
	uint64_t incarnation;
	uint64_t region; /* the exporter's handle */
	uint64_t proof;  /* known to those who have the descriptor: shows that a manifest comes from one of them */
	uint64_t bytes;
	uint32_t access;
	uint32_t count;
	struct {
		uint8_t rail;  /* index in the exporter's address */
		uint64_t key;
		uint64_t base; /* what offset 0 is called on that rail: an address, or 0 */
	} key[WF_MAX_RAILS];
};

/* 0, or -ENOBUFS with *bytes set to what is needed. */
int wf_blob_pack_address(const struct wf_wire_address *address, void *blob, size_t *bytes);
int wf_blob_pack_region(const struct wf_wire_region *region, void *blob, size_t *bytes);

/* -EPROTO: not such a blob or truncated; -EPROTONOSUPPORT: another version; -EBADMSG: damaged. */
int wf_blob_unpack_address(const void *blob, size_t bytes, struct wf_wire_address *ret_address);
int wf_blob_unpack_region(const void *blob, size_t bytes, struct wf_wire_region *ret_region);
#endif
