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
#include <sys/socket.h>

enum { CMD_RAILS_MAX = 64, CMD_RAILS_TEXT = 2048, CMD_PROVIDER_TEXT = 32 };

struct cmd_transport_options {
	const char *provider; /* NULL: choose */
	const char *rails;    /* a number, or names and addresses; NULL: all */
	const char *avoid;
	const char *groups; /* a file, for this side's engine */
	const char *ports;  /* that peers connect to; NULL: any */
	uint64_t workers;
	bool manual, verbose, quiet, no_local;
	bool same_host;               /* the peer is on this host */
	struct sockaddr_storage host; /* the peer's; of family AF_UNSPEC where it is not known */
	bool simulated;
};

extern const char *const cmd_provider_names[]; /* those people ask for */

/* The options of every subcommand that opens an engine, for its table: to is its cmd_transport_options. */
/* clang-format off */
#define CMD_TRANSPORT_OPTIONS(to)                                                                             \
	{ .name = "provider", .type = CMD_STRING, .value = &(to).provider, .argument = "NAME",                \
	  .choices = cmd_provider_names,                                                                      \
	  .help = "require this provider: efa, verbs, tcp, shm of libfabric, or local, between processes of " \
		  "one host (default: the best available)" },                                                  \
	{ .name = "no-local", .type = CMD_FLAG, .value = &(to).no_local,                                       \
	  .help = "do not use the local rail, over which processes of one host reach each other by default" },   \
	{ .name = "rails", .type = CMD_STRING, .value = &(to).rails, .argument = "N|NICS",                    \
	  .help = "at most N rails, or these NICs by name or address, comma separated (default: all)" },      \
	{ .name = "avoid", .type = CMD_STRING, .value = &(to).avoid, .argument = "NICS",                      \
	  .help = "do not use these NICs" },                                                                     \
	{ .name = "workers", .type = CMD_NUMBER, .value = &(to).workers, .argument = "N", .min = 1, .max = 1024, \
	  .help = "at most N worker threads on each side (default: one per group of rails)" },                   \
	{ .name = "groups", .type = CMD_STRING, .value = &(to).groups, .argument = "FILE",                    \
	  .help = "take the groups of this side's rails from FILE; 'weft topo --groups FILE' checks it" },              \
	{ .name = "ports", .type = CMD_STRING, .value = &(to).ports, .argument = "LOW-HIGH",                  \
	  .help = "the ports that peers connect to for data, for firewalls (default: any)" }
#define CMD_SIM_OPTION(sim)                                                                                   \
	{ .name = "sim", .type = CMD_STRING, .value = &(sim), .argument = "NAME[,KEY=VALUE...]",              \
	  .help = "use simulated NICs, such as p5; every result then says so" }
/* clang-format on */

struct cmd_transport {
	char provider[CMD_PROVIDER_TEXT]; /* "": the engine's choice */
	char rails[CMD_RAILS_TEXT];
	char avoid[CMD_RAILS_TEXT];
	uint32_t max_rails; /* 0: no limit */
	char why[160];      /* "both processes are on this host" */
};

/* Whether NICs of this provider are the simulator's. */
bool cmd_transport_is_simulated(const char *provider);
/* 0, or -EINVAL with a sentence in why. Looks only at the options; choosing looks at the host too. */
int cmd_transport_check(const struct cmd_transport_options *options, char *why, size_t room);
int cmd_transport_choose(const struct cmd_transport_options *options, struct cmd_transport *ret_transport, char *why,
			 size_t room);
/* transport_route.c: names max_rails NICs of tcp, those by which the kernel sends to options->host first. */
void cmd_transport_nearest(const struct cmd_transport_options *options, struct cmd_transport *transport);
/* Whether name is one of the comma separated words; list may be NULL. */
bool cmd_transport_lists(const char *list, const char *name);
/* The strings stay the transport's. */
void cmd_transport_config(const struct cmd_transport_options *options, const struct cmd_transport *transport,
			  struct weft_config *ret_config);
/* Opens, or leaves a sentence with what to do in why. */
int cmd_transport_open(const struct weft_config *config, weft_engine **ret_engine, char *why, size_t room);
/* Says on standard error which options had no effect on the engine that came of them; rails: how many it has. */
void cmd_transport_warn(const char *command, const struct cmd_transport_options *options, uint32_t rails);

/* What to do about it, in the command's words; NULL where there is nothing to say. */
const char *cmd_error_hint(int error);
/* "Connection refused; is the port right?": a code's text and its hint. */
char *cmd_describe_error(int error, char *text, size_t room);

/* Bytes a second times eight over all rails that are up; 0 when one of them is not known. */
uint64_t cmd_transport_line_bps(weft_engine *engine, uint32_t rails);

#endif
