/* weft info's output, for people and as JSON. */
#include "info.h"
#include "../common/json.h"
#include "../common/options.h"

#include "engine/core/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

static const char *or_dash(const char *text)
{
	return text[0] ? text : "-";
}

static char *link_text(uint64_t bps, char *text, size_t room)
{
	if (bps)
		snprintf(text, room, "%.0f Gbit/s", (double)bps / 1e9);
	else
		snprintf(text, room, "-");
	return text;
}

static int wider(int width, const char *text)
{
	int length = (int)strlen(text);
	return length > width ? length : width;
}

/* Does EFA's first fabric offer this NIC too? weft takes that one. */
static bool has_better(const struct info *info, const struct info_nic *nic)
{
	bool better = false;

	for (uint32_t i = 0; i < info->nics && strcmp(nic->provider, "efa-direct") == 0; i++)
		better |= strcmp(info->nic[i].provider, "efa") == 0 && strcmp(info->nic[i].name, nic->name) == 0;
	return better;
}

static void print_nics(const struct info *info)
{
	char link[32];
	int name = 4, address = 7;

	printf("NICs%s\n", info->nics ? "" : ": none");
	for (uint32_t i = 0; i < info->nics; i++) {
		name = wider(name, info->nic[i].name);
		address = wider(address, info->nic[i].address);
	}
	if (info->nics)
		printf("  %-12s  %-*s  %-*s  %10s  %-12s  %s\n", "provider", name, "name", address, "address", "link",
		       "PCI", "used");
	for (uint32_t i = 0; i < info->nics; i++) {
		const struct info_nic *nic = &info->nic[i];
		printf("  %-12s  %-*s  %-*s  %10s  %-12s  %s%s\n", nic->provider, name, nic->name, address,
		       or_dash(nic->address), link_text(nic->link_bps, link, sizeof link), or_dash(nic->pci),
		       nic->usable && !has_better(info, nic) ? "by default" : "when named",
		       cmd_transport_is_simulated(nic->provider) ? ", simulated" : "");
	}
}

static char *size_or(uint64_t bytes, char *text, size_t room)
{
	/* A limit beyond any memory is none. */
	if (bytes >= UINT64_C(1) << 50)
		snprintf(text, room, "no limit");
	else
		cmd_format_size(bytes, text, room);
	return text;
}

static void print_rails(const struct info *info)
{
	char link[32], message[32], window[32], both[64];
	int name = 4, address = 7;
	uint32_t emulated = 0;

	for (uint32_t i = 0; i < info->rails; i++) {
		name = wider(name, info->rail[i].name);
		address = wider(address, info->rail[i].address);
	}
	printf("\nRails\n  %-*s  %-*s  %5s  %10s  %10s  %18s  %5s  %6s  %8s  %6s\n", name, "name", address, "address",
	       "group", "link", "largest op", "window", "queue", "inject", "delivery", "sleeps");
	for (uint32_t i = 0; i < info->rails; i++) {
		const struct weft_rail_info *rail = &info->rail[i];
		snprintf(both, sizeof both, "%s, %u ops", size_or(rail->window_bytes, window, sizeof window),
			 rail->window_ops);
		printf("  %-*s  %-*s  %5u  %10s  %10s  %18s  %5u  %6u  %8s  %6s\n", name, rail->name, address,
		       rail->address, rail->group, link_text(rail->link_bps, link, sizeof link),
		       size_or(rail->max_message, message, sizeof message), both, rail->queue_ops, rail->inject_bytes,
		       rail->delivery_complete ? "yes" : "no", rail->waits ? "yes" : "no");
		emulated += rail->emulated;
	}
	if (emulated)
		printf("  writes are emulated on %u of %u: they are sent as messages, and the peer's CPU copies them "
		       "into place\n",
		       emulated, info->rails);
}

static void print_setting(const char *name, uint64_t value, uint64_t given, const char *shown)
{
	char number[32];

	snprintf(number, sizeof number, "%" PRIu64, value);
	printf("  %-16s %s%s\n", name, shown ? shown : number, given ? "" : " (default)");
}

/* What is in effect; what weft_engine_open() was not given is a default. */
static void print_config(const struct info *info)
{
	const struct weft_config *given = &info->config, *config = &info->effect;
	const struct {
		const char *name;
		uint64_t value, given;
	} times[] = {
		{ "timeout", config->timeout_ns, given->timeout_ns },
		{ "heartbeat", config->heartbeat_ns, given->heartbeat_ns },
		{ "peer_limit", config->peer_limit_ns, given->peer_limit_ns },
		{ "rail_limit", config->rail_limit_ns, given->rail_limit_ns },
		{ "close_limit", config->close_limit_ns, given->close_limit_ns },
	};
	char text[32];

	puts("\nConfiguration in effect");
	printf("  %-16s %s\n", "provider", info->engine.provider);
	printf("  %-16s %s\n", "rails", given->rails ? given->rails : "all");
	printf("  %-16s %s\n", "avoid", given->avoid ? given->avoid : "none");
	print_setting("max_transfers", config->max_transfers, given->max_transfers, NULL);
	print_setting("message_frames", config->message_frames, given->message_frames, NULL);
	print_setting("max_message", config->max_message, given->max_message,
		      cmd_format_size(config->max_message, text, sizeof text));
	print_setting("peer_window", config->peer_window, given->peer_window,
		      cmd_format_size(config->peer_window, text, sizeof text));
	print_setting("piece_bytes", config->piece_bytes, given->piece_bytes,
		      config->piece_bytes ? cmd_format_size(config->piece_bytes, text, sizeof text) : "from the rails");
	for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
		snprintf(text, sizeof text, "%g s", (double)times[i].value / 1e9);
		print_setting(times[i].name, times[i].value, times[i].given, text);
	}
}

static void print_memory(const struct info *info)
{
	const struct info_memory *memory = &info->memory;
	char text[32], what[80];

	puts("\nMemory");
	printf("  %-50s %s\n", "libfabric and its providers, resident",
	       cmd_format_size(memory->libfabric_bytes, text, sizeof text));
	printf("  %-50s %s\n", "the engine's own pools and buffers, as it counts",
	       cmd_format_size(info->engine.memory_bytes, text, sizeof text));
	snprintf(what, sizeof what, "engine memory resident with %u rail%s and one peer", info->rails,
		 info->rails == 1 ? "" : "s");
	if (memory->measured)
		printf("  %-50s %s\n", what, cmd_format_size(memory->engine_bytes, text, sizeof text));
	if (memory->peers)
		printf("  %-50s %s\n", "each further peer, the engine's own",
		       cmd_format_size((uint64_t)memory->own_peer_bytes, text, sizeof text));
	if (memory->peers)
		printf("  %-50s %s (over %" PRIu64 ")\n", "each further peer, resident, with the provider's part",
		       cmd_format_size((uint64_t)memory->peer_bytes, text, sizeof text), memory->peers);
	if (memory->peers)
		printf("  %-50s %s\n", "those peers were reached over", memory->local ? "the local rail" : "NICs");
	if (memory->why_not[0])
		printf("  not measured further: %s\n", memory->why_not);
}

static void report_text(const struct info *info)
{
	struct utsname host = { .sysname = "" };

	uname(&host);
	printf("weft %s, libfabric %s, %s %s %s\n\n", weft_version(), or_dash(info->engine.libfabric), host.sysname,
	       host.release, host.machine);
	print_nics(info);
	if (!info->opened)
		return;
	printf("\nEngine%s\n  %s: %s\n  %u rail%s in %u group%s, %u worker%s\n", info->simulated ? " (simulated)" : "",
	       info->engine.provider, info->transport.why, info->engine.rails, info->engine.rails == 1 ? "" : "s",
	       info->engine.groups, info->engine.groups == 1 ? "" : "s", info->engine.workers,
	       info->engine.workers == 1 ? "" : "s");
	if (info->groups_found > info->engine.groups && info->options.workers)
		printf("  (--workers %u merges the %u groups of the topology)\n", (unsigned)info->options.workers,
		       info->groups_found);
	else if (info->groups_found > info->engine.groups)
		printf(
		    "  (the topology has %u groups, as 'weft topo' shows; each needs a worker, and this process has\n"
		    "  cores for %u besides the application: --workers %u keeps them apart)\n",
		    info->groups_found, wf_layout_most_workers(), info->groups_found);
	printf("  peers of this host are reached over %s\n", info->memory.has_local ? "the local rail" : "these too");
	print_rails(info);
	print_config(info);
	print_memory(info);
}

static void json_nics(const struct info *info, struct cmd_json *json)
{
	cmd_json_open(json, "nics", '[');
	for (uint32_t i = 0; i < info->nics; i++) {
		const struct info_nic *nic = &info->nic[i];
		cmd_json_open(json, NULL, '{');
		cmd_json_text(json, "provider", nic->provider);
		cmd_json_text(json, "name", nic->name);
		cmd_json_text(json, "address", nic->address);
		cmd_json_number(json, "link_bps", nic->link_bps);
		if (nic->pci[0])
			cmd_json_text(json, "pci", nic->pci);
		else
			cmd_json_null(json, "pci");
		cmd_json_bool(json, "usable", nic->usable);
		cmd_json_close(json, '}');
	}
	cmd_json_close(json, ']');
}

static void json_rails(const struct info *info, struct cmd_json *json)
{
	cmd_json_open(json, "rails", '[');
	for (uint32_t i = 0; i < info->rails; i++) {
		const struct weft_rail_info *rail = &info->rail[i];
		cmd_json_open(json, NULL, '{');
		cmd_json_text(json, "name", rail->name);
		cmd_json_text(json, "provider", rail->provider);
		cmd_json_text(json, "address", rail->address);
		cmd_json_text(json, "state", rail->state == WEFT_RAIL_UP ? "up" : "down");
		cmd_json_number(json, "group", rail->group);
		cmd_json_number(json, "link_bps", rail->link_bps);
		cmd_json_number(json, "max_message", rail->max_message);
		cmd_json_number(json, "window_bytes", rail->window_bytes);
		cmd_json_number(json, "window_ops", rail->window_ops);
		cmd_json_number(json, "queue_ops", rail->queue_ops);
		cmd_json_number(json, "inject_bytes", rail->inject_bytes);
		cmd_json_bool(json, "delivery_complete", rail->delivery_complete);
		cmd_json_bool(json, "waits", rail->waits);
		cmd_json_bool(json, "emulated", rail->emulated);
		cmd_json_close(json, '}');
	}
	cmd_json_close(json, ']');
}

static void json_memory(const struct info *info, struct cmd_json *json)
{
	const struct info_memory *memory = &info->memory;

	cmd_json_open(json, "memory", '{');
	cmd_json_number(json, "libfabric_resident_bytes", memory->libfabric_bytes);
	cmd_json_number(json, "engine_bytes", info->engine.memory_bytes);
	if (memory->measured)
		cmd_json_number(json, "engine_resident_bytes", memory->engine_bytes);
	else
		cmd_json_null(json, "engine_resident_bytes");
	cmd_json_number(json, "further_peers", memory->peers);
	if (memory->peers)
		cmd_json_bool(json, "peers_local", memory->local);
	if (memory->peers)
		cmd_json_real(json, "peer_own_bytes", memory->own_peer_bytes, 0);
	if (memory->peers)
		cmd_json_real(json, "peer_resident_bytes", memory->peer_bytes, 0);
	else
		cmd_json_null(json, "peer_resident_bytes");
	if (memory->why_not[0])
		cmd_json_text(json, "error", memory->why_not);
	cmd_json_close(json, '}');
}

static void json_config(const struct info *info, struct cmd_json *json)
{
	const struct weft_config *config = &info->effect;

	cmd_json_open(json, "config", '{');
	cmd_json_number(json, "max_transfers", config->max_transfers);
	cmd_json_number(json, "message_frames", config->message_frames);
	cmd_json_number(json, "max_message", config->max_message);
	cmd_json_number(json, "peer_window", config->peer_window);
	cmd_json_number(json, "piece_bytes", config->piece_bytes);
	cmd_json_number(json, "timeout_ns", config->timeout_ns);
	cmd_json_number(json, "heartbeat_ns", config->heartbeat_ns);
	cmd_json_number(json, "peer_limit_ns", config->peer_limit_ns);
	cmd_json_number(json, "rail_limit_ns", config->rail_limit_ns);
	cmd_json_number(json, "close_limit_ns", config->close_limit_ns);
	cmd_json_close(json, '}');
}

static void report_json(const struct info *info)
{
	struct cmd_json json;

	cmd_json_start(&json, stdout);
	cmd_json_open(&json, NULL, '{');
	cmd_json_text(&json, "weft", weft_version());
	cmd_json_text(&json, "libfabric", info->engine.libfabric);
	cmd_json_bool(&json, "simulated", info->simulated);
	json_nics(info, &json);
	if (info->opened) {
		cmd_json_text(&json, "provider", info->engine.provider);
		cmd_json_text(&json, "why", info->transport.why);
		cmd_json_number(&json, "groups", info->engine.groups);
		cmd_json_number(&json, "topology_groups", info->groups_found);
		cmd_json_number(&json, "workers", info->engine.workers);
		json_rails(info, &json);
		json_config(info, &json);
		json_memory(info, &json);
	}
	if (info->error[0])
		cmd_json_text(&json, "error", info->error);
	cmd_json_close(&json, '}');
	cmd_json_end(&json);
}

void info_report(const struct info *info)
{
	if (info->json)
		report_json(info);
	else
		report_text(info);
	fflush(stdout);
}
