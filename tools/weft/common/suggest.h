/* The nearest right word to a mistyped one. Used for subcommands, options and option values. */
#ifndef WEFT_TOOLS_SUGGEST_H
#define WEFT_TOOLS_SUGGEST_H

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b; long words count as far
 * apart. */
unsigned cmd_suggest_distance(const char *a, const char *b);

struct cmd_suggest {
	const char *typed;
	const char *best; /* NULL: nothing is near enough */
	unsigned distance;
};
void cmd_suggest_start(struct cmd_suggest *suggest, const char *typed);
void cmd_suggest_offer(struct cmd_suggest *suggest, const char *candidate);

#endif
