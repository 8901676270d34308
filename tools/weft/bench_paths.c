/* What a benchmark's rails reached of the peer, as notes of its report. tcp alone: there the kernel decides. */
#include "bench.h"

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

static void say_why_idle(struct bench_summary *summary, const char *rail, const struct weft_path_info *why)
{
	if (why->state == WEFT_PATH_ELSEWHERE)
		note(summary, "%s carried nothing: the kernel sends to %s by %s", rail, why->address, why->by);
	else if (why->state == WEFT_PATH_SILENT)
		note(summary, "%s carried nothing: %s does not answer", rail, why->address);
	else if (why->state == WEFT_PATH_NO_ROUTE)
		note(summary, "%s carried nothing: no route leads from it to %s", rail, why->address);
}

/* An answer that may come weighs more than a route that is not there. */
static int weight(enum weft_path_state state)
{
	return state == WEFT_PATH_SILENT ? 3 : state == WEFT_PATH_ELSEWHERE ? 2 : state == WEFT_PATH_NO_ROUTE ? 1 : 0;
}

void bench_paths_note(struct bench_summary *summary, weft_engine *engine, weft_peer peer)
{
	struct weft_peer_info info;
	struct weft_path_info path;
	char silent[BENCH_RAILS_MAX][sizeof path.address] = { "" };
	bool answered[BENCH_RAILS_MAX] = { false }, over_lo = false;

	summary->notes = 0;
	if (strcmp(summary->provider, "tcp") != 0 || weft_peer_info(engine, peer, &info) < 0)
		return;
	for (uint32_t i = 0; i < summary->rails; i++) {
		struct weft_path_info why = { .state = WEFT_PATH_UNUSED };
		bool up = false;

		for (uint32_t j = 0; j < info.rails && j < BENCH_RAILS_MAX; j++) {
			if (weft_path_info(engine, peer, i, j, &path) < 0)
				return;
			up |= path.state == WEFT_PATH_UP;
			answered[j] |= path.state == WEFT_PATH_UP || path.state == WEFT_PATH_ANSWERED;
			if (path.state == WEFT_PATH_SILENT)
				memcpy(silent[j], path.address, sizeof silent[j]);
			if (weight(path.state) > weight(why.state))
				why = path;
			over_lo |= path.state == WEFT_PATH_UP && strcmp(path.by, "lo") == 0 &&
				   strncmp(summary->rail[i].name, "127.", 4) != 0 &&
				   strcmp(summary->rail[i].name, "lo") != 0;
		}
		if (!up && !summary->rail[i].bytes)
			say_why_idle(summary, summary->rail[i].name, &why);
	}
	for (uint32_t j = 0; j < info.rails && j < BENCH_RAILS_MAX; j++) {
		if (silent[j][0] && !answered[j])
			note(summary, "%s of the peer never answered", silent[j]);
	}
	if (over_lo)
		note(summary, "both ends are on this host: the kernel carries this over lo, not over the NICs named");
}
