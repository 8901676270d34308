/* The nearest right word to a mistyped one: Damerau-Levenshtein (optimal string alignment) over short words.
 */
#include "suggest.h"

#include <limits.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 40 };

static unsigned smaller(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

unsigned cmd_suggest_distance(const char *a, const char *b)
{
	/* Three rows are all the recurrence looks back on: a swap of neighbours reaches two rows up. */
	unsigned row[3][LONGEST + 1];
	size_t a_length = strlen(a), b_length = strlen(b);
	if (a_length > LONGEST || b_length > LONGEST)
		return UINT_MAX;
	for (size_t j = 0; j <= b_length; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= a_length; i++) {
		unsigned *now = row[i % 3], *up = row[(i - 1) % 3], *up2 = row[(i + 1) % 3];
		now[0] = (unsigned)i;
		for (size_t j = 1; j <= b_length; j++) {
			now[j] = smaller(up[j] + 1, now[j - 1] + 1);
			now[j] = smaller(now[j], up[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = smaller(now[j], up2[j - 2] + 1);
		}
	}
	return row[a_length % 3][b_length];
}

void cmd_suggest_start(struct cmd_suggest *suggest, const char *typed)
{
	/* A third of the word wrong is a typing slip; more is another word. One slip is forgiven in any that
	 * is not shorter than three letters. */
	size_t length = strlen(typed);
	unsigned limit = length < 3 ? 0 : (unsigned)length / 3;
	*suggest = (struct cmd_suggest){ .typed = typed, .distance = smaller(limit, 4) + 1 };
}

void cmd_suggest_offer(struct cmd_suggest *suggest, const char *candidate)
{
	unsigned distance = cmd_suggest_distance(suggest->typed, candidate);
	if (strcasecmp(suggest->typed, candidate) == 0)
		distance = 0;
	/* What was begun but not finished ("dur" for "duration") is near, however long the rest is. */
	size_t typed = strlen(suggest->typed);
	if (typed >= 2 && strncmp(suggest->typed, candidate, typed) == 0)
		distance = smaller(distance, 1);
	if (distance < suggest->distance) {
		suggest->distance = distance;
		suggest->best = candidate;
	}
}
