/* weft bench --mem: whose memory each side's is, and how a card's travelled. */
#include "bench.h"
#include "../common/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* "host", "cuda", "cuda:1". */
static int read_one(const char *word, uint32_t *ret_card)
{
	uint64_t number = 0;

	if (strcmp(word, "host") == 0) {
		*ret_card = 0;
		return 0;
	}
	if (strncmp(word, "cuda", 4) != 0 || (word[4] && word[4] != ':'))
		return -EINVAL;
	if (word[4] && (cmd_parse_number(word + 5, &number) < 0 || number >= BENCH_CARDS_MAX))
		return -EINVAL;
	*ret_card = (uint32_t)number + 1;
	return 0;
}

int bench_mem_read(const char *text, uint32_t ret_card[2])
{
	char copy[64] = "", *next = copy, *here, *there;
	int rc = strlen(text) < sizeof copy ? 0 : -EINVAL;

	if (rc == 0)
		strcpy(copy, text);
	here = strsep(&next, ",");
	there = next ? next : here;
	if (rc == 0)
		rc = read_one(here, &ret_card[0]);
	if (rc == 0)
		rc = read_one(there, &ret_card[1]);
	if (rc < 0)
		fprintf(
		    stderr,
		    "weft bench: --mem cannot be '%s': it takes host, cuda or cuda:N for both sides, or this side's "
		    "and the peer's: --mem cuda:0,host\n",
		    text);
	return rc;
}

char *bench_mem_text(uint32_t card, char text[BENCH_MEM_TEXT])
{
	if (card)
		snprintf(text, BENCH_MEM_TEXT, "cuda:%u", card - 1);
	else
		snprintf(text, BENCH_MEM_TEXT, "host");
	return text;
}

/* Before weft has NICs that reach cards, there is nothing to count. */
uint64_t bench_mem_direct(weft_engine *engine)
{
	uint64_t bytes = 0;
#ifdef WEFT_REQUIRE_DIRECT
	struct weft_engine_info info;
	struct weft_rail_info rail;

	if (weft_engine_info(engine, &info, sizeof(info)) < 0)
		return 0;
	for (uint32_t i = 0; i < info.rails; i++)
		bytes += weft_rail_info(engine, i, &rail, sizeof(rail)) < 0 ? 0 : rail.direct_bytes;
#endif
	return bytes;
}

const char *bench_mem_path(const struct bench_summary *summary, int side)
{
	uint64_t local = 0, nics = 0;

	for (uint32_t i = 0; i < summary->rails; i++)
		*(summary->rail[i].local ? &local : &nics) += summary->rail[i].bytes;
	if (!summary->options->params.card[side] || !summary->bytes)
		return NULL;
	if (local > nics)
		return "local";
	return summary->direct_bytes > nics / 2 ? "direct" : "staged";
}
