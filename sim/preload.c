/*
 * Starts the program again with the modelled EFA card preloaded: the dynamic linker looks at LD_PRELOAD only when a program
 * starts. Called by wf_sim_setup(), on the main thread, before anything was printed or opened.
 */
#include "preload.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARD "libsimefa.so"

bool sim_preload_find(const char *dir, char *path, size_t bytes)
{
	/* In a build's folder, in an installation. */
	static const char *const places[] = { "%s/efa/" CARD, "%s/" CARD };

	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
		if ((size_t)snprintf(path, bytes, places[i], dir) < bytes && !access(path, R_OK))
			return true;
	return false;
}

/* The words of this process's command line, NULL at their end. They are kept until the program is replaced. */
static char **own_arguments(void)
{
	size_t bytes = 0, room = 0, count = 0, n;
	char *text = NULL, **words;
	FILE *file = fopen("/proc/self/cmdline", "re");

	if (!file)
		return NULL;
	do {
		char *more = realloc(text, room += 4096);

		if (!more) {
			fclose(file);
			free(text);
			return NULL;
		}
		text = more;
		n = fread(text + bytes, 1, room - bytes, file);
		bytes += n;
	} while (n);
	fclose(file);
	for (size_t i = 0; i < bytes; i++)
		count += !text[i];
	words = calloc(count + 1, sizeof *words);
	if (!words) {
		free(text);
		return NULL;
	}
	for (size_t i = 0, word = 0; i < bytes && word < count; i += strlen(text + i) + 1)
		words[word++] = text + i;
	return words;
}

int sim_preload_restart(const char *library)
{
	const char *given = getenv("LD_PRELOAD");
	char list[PATH_MAX + 4096], program[PATH_MAX];
	char **arguments;
	ssize_t n;

	if (given && strstr(given, CARD))
		return 0; /* it is this time */
	if ((size_t)snprintf(list, sizeof list, "%s%s%s", library, given && *given ? ":" : "", given ? given : "") >=
	    sizeof list)
		return -ENAMETOOLONG;
	arguments = own_arguments();
	n = readlink("/proc/self/exe", program, sizeof program - 1);
	if (!arguments || n <= 0)
		return -ENOENT;
	program[n] = 0;
	if (setenv("LD_PRELOAD", list, 1))
		return -errno;
	execv(program, arguments);
	return -errno;
}
