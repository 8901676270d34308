/*
 * memcpy: copies pages inside one process, in one thread: the most that the machine's memory allows. "cold" takes pages
 * at random from a region far larger than the caches; "warm" copies one page over and over.
 */
#include "fab.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "page-size", 1, 0, 'b' }, { "region", 1, 0, 'r' },
					       { "seconds", 1, 0, 't' },   { "warm", 0, 0, 'w' },
					       { "json", 0, 0, 'j' },      { 0 } };
	uint64_t bytes = 65536, region = 256u << 20, at = 0, pages = 0, start, ns;
	double seconds = 0.5;
	bool warm = false, json = false;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'b')
			bytes = strtoull(optarg, NULL, 0);
		else if (c == 'r')
			region = strtoull(optarg, NULL, 0);
		else if (c == 't')
			seconds = strtod(optarg, NULL);
		else if (c == 'w')
			warm = true;
		else if (c == 'j')
			json = true;
		else
			return 2;
	}
	if (!bytes || bytes > region || !(seconds > 0 && seconds < 3600))
		return 2;
	uint64_t slots = warm ? 1 : region / bytes;
	uint32_t *from = malloc(slots * sizeof *from), *to = malloc(slots * sizeof *to);
	char *memory = mmap(NULL, 2 * region, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!from || !to || memory == MAP_FAILED)
		fab_check(-FI_ENOMEM, "memory");
	madvise(memory, 2 * region, MADV_HUGEPAGE);
	memset(memory, 1, 2 * region);
	fab_shuffle(from, slots, 1);
	fab_shuffle(to, slots, 2);
	start = now_ns();
	do {
		for (int i = 0; i < 64; i++, pages++) {
			memcpy(memory + region + to[at] * bytes, memory + from[at] * bytes, bytes);
			__asm__ volatile("" ::: "memory");
			at = at + 1 < slots ? at + 1 : 0;
		}
		ns = now_ns() - start;
	} while ((double)ns < seconds * 1e9);
	printf(json ? "{\"tool\": \"memcpy\", \"page_size\": %llu, \"warm\": %s, \"gbps\": %.3f, \"mops\": "
		      "%.6f}\n"
		    : "memcpy of %llu bytes (warm: %s): %.3f Gbit/s, %.6f million pages/s\n",
	       (unsigned long long)bytes, warm ? "true" : "false", (double)(pages * bytes) * 8 / (double)ns,
	       (double)pages * 1e3 / (double)ns);
	return 0;
}
