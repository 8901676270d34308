/* Chance, naps, and what the threads of the process do. Any thread. */
#include "torture.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

uint32_t random_below(struct random *random, uint32_t below)
{
	return below ? (uint32_t)((random_next(&random->state) >> 32) * below >> 32) : 0;
}

bool random_chance(struct random *random, uint32_t percent)
{
	return random_below(random, 100) < percent;
}

void list_threads(void)
{
	static const char *const files[] = { "schedstat", "syscall", "wchan" };
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/task");

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		fprintf(stderr, "  thread %s:", entry->d_name);
		for (int i = 0; i < 3; i++) {
			char path[80], text[128] = "";
			FILE *file;

			snprintf(path, sizeof(path), "/proc/self/task/%.20s/%s", entry->d_name, files[i]);
			file = fopen(path, "r");
			if (file && !fgets(text, sizeof(text), file))
				text[0] = 0;
			if (file)
				fclose(file);
			text[strcspn(text, "\n")] = 0;
			fprintf(stderr, " %s;", text);
		}
		fprintf(stderr, "\n");
	}
	if (dir)
		closedir(dir);
}

void nap_ms(uint32_t ms)
{
	struct timespec nap = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&nap, NULL);
}
