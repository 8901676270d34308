/*
 * weft info, shared by its files: info.c gathers, memory.c measures what an engine and its peers cost,
 * report.c prints.
 */
#ifndef WEFT_TOOLS_INFO_H
#define WEFT_TOOLS_INFO_H

#include "../common/transport.h"

enum { INFO_NICS_MAX = 512, INFO_RAILS_MAX = 256 };

struct info_nic {
	char name[64], provider[32], address[80], pci[16];
	uint64_t link_bps;
	bool usable;
};

struct info_memory {
	bool measured;
	bool has_local, local;    /* the engine has local rails; the peers were reached over one */
	uint64_t libfabric_bytes; /* resident, once it and its providers are loaded */
	uint64_t engine_bytes;    /* resident more, with the engine open and one peer up */
	uint64_t peers;           /* added after the first */
	double peer_bytes;        /* resident more, for each of those: the provider's connections included */
	double own_peer_bytes;    /* of that the engine's own, as it counts */
	char why_not[300];
};

struct info {
	struct cmd_transport_options options;
	struct cmd_transport transport;
	uint64_t extra_peers;
	bool json, simulated;
	struct info_nic nic[INFO_NICS_MAX];
	uint32_t nics;
	bool opened;
	struct weft_engine_info engine;
	uint32_t groups_found; /* before they were merged for want of cores */
	struct weft_rail_info rail[INFO_RAILS_MAX];
	uint32_t rails;
	struct weft_config config, effect; /* as given to weft_engine_open(), and with the defaults filled in */
	struct info_memory memory;
	char error[1000];
};

/* Opens the engine, fills engine, rail and memory; what failed is in error or memory.why_not. */
void info_measure(struct info *info);
/* The process of the peers: opens count engines, sends their addresses over fd, ends when it closes. Exit status.
 */
int info_peers_serve(int fd, const struct cmd_transport_options *options, uint64_t count);
uint64_t info_resident_bytes(void);

void info_report(const struct info *info);

#endif
