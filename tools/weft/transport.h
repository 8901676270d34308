/*
 * Which transport, which rails: turns --provider, --rails and --avoid into an engine's configuration, and
 * says why. Shared by the subcommands that open an engine.
 */
#ifndef WEFT_TOOLS_TRANSPORT_H
#define WEFT_TOOLS_TRANSPORT_H

#include <weft.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CMD_SIMULATED "simfab" /* the simulator's provider */

enum { CMD_RAILS_MAX = 64, CMD_RAILS_TEXT = 2048, CMD_PROVIDER_TEXT = 32 };

struct cmd_transport_options {
	const char *provider; /* NULL: choose */
	const char *rails;    /* a number, or names and addresses; NULL: all */
	const char *avoid;
	uint64_t workers;
	bool manual, verbose, quiet;
	bool same_host; /* the peer is on this host */
	bool simulated;
};

struct cmd_transport {
	char provider[CMD_PROVIDER_TEXT]; /* "": the engine's choice */
	char rails[CMD_RAILS_TEXT];
	char avoid[CMD_RAILS_TEXT];
	uint32_t max_rails; /* 0: no limit */
	char why[160];	    /* "shared memory: no RDMA NIC here" */
};

/* 0, or -EINVAL with a sentence in why. Looks only at the options; choosing looks at the host too. */
int cmd_transport_check(const struct cmd_transport_options *options, char *why, size_t room);
int cmd_transport_choose(const struct cmd_transport_options *options, struct cmd_transport *ret_transport,
			 char *why, size_t room);
/* The strings stay the transport's. */
void cmd_transport_config(const struct cmd_transport_options *options, const struct cmd_transport *transport,
			  struct weft_config *ret_config);
/* Opens, or leaves a sentence with what to do in why. */
int cmd_transport_open(const struct weft_config *config, weft_engine **ret_engine, char *why, size_t room);

/* "Connection refused; is the port right?": a code's text and its hint. */
char *cmd_describe_error(int error, char *text, size_t room);

/* Bytes a second times eight over all rails that are up; 0 when one of them is not known. */
uint64_t cmd_transport_line_bps(weft_engine *engine, uint32_t rails);

#endif
