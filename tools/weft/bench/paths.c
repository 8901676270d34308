/* What a benchmark's rails reached of the peer, as notes of its report. tcp alone: there the kernel decides. */
#include "bench.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void note(struct bench_summary *summary, const char *format, ...)
{
	va_list list;

	if (summary->notes == BENCH_NOTES_MAX)
		return;
	va_start(list, format);
	vsnprintf(summary->note[summary->notes++], sizeof summary->note[0], format, list);
	va_end(list);
}

/* "10.0.0.2", "10.0.0.2:4711", "[fe80::1]:4711": its family, 0 for anything else. */
static int read_ip(const char *text, uint8_t *to)
{
	char copy[64];

	snprintf(copy, sizeof copy, "%s", text + (*text == '['));
	if (*text == '[' || strchr(text, ':') != strrchr(text, ':')) {
		copy[strcspn(copy, "]%")] = '\0';
		return inet_pton(AF_INET6, copy, to) == 1 ? AF_INET6 : 0;
	}
	copy[strcspn(copy, ":")] = '\0';
	return inet_pton(AF_INET, copy, to) == 1 ? AF_INET : 0;
}

static void say_why_idle(struct bench_summary *summary, const char *rail, const struct weft_path_info *why)
{
	if (why->state == WEFT_PATH_ELSEWHERE)
		note(summary, "%s carried nothing: the kernel sends to %s through %s", rail, why->address, why->by);
	else if (why->state == WEFT_PATH_SILENT)
		note(summary, "%s carried nothing: %s does not answer", rail, why->address);
	else if (why->state == WEFT_PATH_NO_ROUTE)
		note(summary, "%s carried nothing: no route leads from it to %s", rail, why->address);
}

/* What the kernel keeps within this host is an address of ours as well, even if another host has it too: its silence is
 * no news. */
static bool is_silent(const struct weft_path_info *path)
{
	return path->state == WEFT_PATH_SILENT && strcmp(path->by, "lo") != 0;
}

/* How many leading bits two addresses have in common; they may have ports. */
static int nearness(const char *one, const char *other)
{
	uint8_t a[16] = { 0 }, b[16] = { 0 };
	int family = read_ip(one, a), bits = 0;

	if (!family || family != read_ip(other, b))
		return 0;
	while (bits < 128 && !((a[bits / 8] ^ b[bits / 8]) >> (7 - bits % 8) & 1))
		bits++;
	return bits;
}

/* The best reason is about the address nearest to the rail's own, which the rail is there to reach; among
 * those an answer that may come weighs more than a route that is not there. 0: no reason. */
static int weight(const char *rail, const struct weft_path_info *path)
{
	int weight = is_silent(path)                      ? 3
		     : path->state == WEFT_PATH_ELSEWHERE ? 2
		     : path->state == WEFT_PATH_NO_ROUTE  ? 1
							  : 0;

	return weight ? 4 * nearness(rail, path->address) + weight : 0;
}

void bench_paths_note(struct bench_summary *summary, weft_engine *engine, weft_peer peer)
{
	struct weft_peer_info info;
	struct weft_path_info path;
	char silent[BENCH_RAILS_MAX][sizeof path.address] = { "" };
	bool answered[BENCH_RAILS_MAX] = { false }, said[BENCH_RAILS_MAX] = { false }, over_lo = false;

	summary->notes = 0;
	if (strcmp(summary->provider, "tcp") != 0 || weft_peer_info(engine, peer, &info, sizeof(info)) < 0)
		return;
	for (uint32_t i = 0; i < summary->rails; i++) {
		struct weft_path_info why = { .state = WEFT_PATH_UNUSED };
		struct weft_rail_info rail = { .address = "" };
		uint32_t named = 0;
		int most = 0;
		bool up = false;

		weft_rail_info(engine, i, &rail, sizeof(rail));
		for (uint32_t j = 0; j < info.rails && j < BENCH_RAILS_MAX; j++) {
			if (weft_path_info(engine, peer, i, j, &path, sizeof(path)) < 0)
				return;
			up |= path.state == WEFT_PATH_UP;
			answered[j] |= path.state == WEFT_PATH_UP || path.state == WEFT_PATH_ANSWERED;
			if (is_silent(&path))
				memcpy(silent[j], path.address, sizeof silent[j]);
			if (weight(rail.address, &path) > most) {
				most = weight(rail.address, &path);
				why = path;
				named = j;
			}
			over_lo |= path.state == WEFT_PATH_UP && strcmp(path.by, "lo") == 0 &&
				   strncmp(summary->rail[i].name, "127.", 4) != 0 &&
				   strcmp(summary->rail[i].name, "lo") != 0;
		}
		if (up || summary->rail[i].bytes)
			continue;
		say_why_idle(summary, summary->rail[i].name, &why);
		if (why.state == WEFT_PATH_SILENT)
			said[named] = true;
	}
	for (uint32_t j = 0; j < info.rails && j < BENCH_RAILS_MAX; j++) {
		if (silent[j][0] && !answered[j] && !said[j])
			note(summary, "%s of the peer never answered", silent[j]);
	}
	if (over_lo)
		note(summary, "both ends are on this host: the kernel carries this over lo, not over the NICs named");
}
