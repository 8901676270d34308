/* Reads files under a root that tests can replace, and keeps lists for people short. */
#include "doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool path_of(const struct doctor *doctor, char path[DOCTOR_PATH], const char *format, va_list args)
{
	int root = snprintf(path, DOCTOR_PATH, "%s", doctor->root);
	int rest;

	if (root < 0 || root >= DOCTOR_PATH)
		return false;
	rest = vsnprintf(path + root, (size_t)(DOCTOR_PATH - root), format, args);
	return rest >= 0 && rest < DOCTOR_PATH - root;
}

bool doctor_path(const struct doctor *doctor, char path[DOCTOR_PATH], const char *format, ...)
{
	va_list args;
	bool fits;

	va_start(args, format);
	fits = path_of(doctor, path, format, args);
	va_end(args);
	return fits;
}

static int read_path(const char *path, char *text, size_t bytes)
{
	/* Not to hang on a fifo in a borrowed root. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t got = 0;
	ssize_t n = 1;

	text[0] = '\0';
	if (fd < 0)
		return -errno;
	while (n > 0 && got + 1 < bytes) {
		n = read(fd, text + got, bytes - 1 - got);
		if (n < 0 && errno != EINTR)
			break;
		got += n > 0 ? (size_t)n : 0;
	}
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return (int)n;
	text[got] = '\0';
	while (got && (text[got - 1] == '\n' || text[got - 1] == ' '))
		text[--got] = '\0';
	return (int)got;
}

int doctor_read(const struct doctor *doctor, char *text, size_t bytes, const char *format, ...)
{
	char path[DOCTOR_PATH];
	va_list args;
	bool fits;

	va_start(args, format);
	fits = path_of(doctor, path, format, args);
	va_end(args);
	text[0] = '\0';
	return fits ? read_path(path, text, bytes) : -ENAMETOOLONG;
}

int doctor_read_number(const struct doctor *doctor, long *ret_number, const char *format, ...)
{
	char path[DOCTOR_PATH], text[64], *end;
	va_list args;
	bool fits;
	int rc;

	va_start(args, format);
	fits = path_of(doctor, path, format, args);
	va_end(args);
	rc = fits ? read_path(path, text, sizeof(text)) : -ENAMETOOLONG;
	if (rc < 0)
		return rc;
	*ret_number = strtol(text, &end, 0);
	return end == text ? -EINVAL : 0;
}

bool doctor_exists(const struct doctor *doctor, const char *format, ...)
{
	char path[DOCTOR_PATH];
	va_list args;
	bool fits;

	va_start(args, format);
	fits = path_of(doctor, path, format, args);
	va_end(args);
	return fits && access(path, F_OK) == 0;
}

void doctor_link(const struct doctor *doctor, char name[DOCTOR_NAME], const char *format, ...)
{
	char path[DOCTOR_PATH], target[PATH_MAX];
	const char *last;
	va_list args;
	bool fits;
	ssize_t n;

	va_start(args, format);
	fits = path_of(doctor, path, format, args);
	va_end(args);
	name[0] = '\0';
	n = fits ? readlink(path, target, sizeof(target) - 1) : -1;
	if (n <= 0)
		return;
	target[n] = '\0';
	last = strrchr(target, '/');
	snprintf(name, DOCTOR_NAME, "%.*s", DOCTOR_NAME - 1, last ? last + 1 : target);
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(a, b);
}

void doctor_list(const struct doctor *doctor, struct doctor_names *names, const char *format, ...)
{
	char path[DOCTOR_PATH];
	struct dirent *entry;
	va_list args;
	bool fits;
	DIR *dir;

	va_start(args, format);
	fits = path_of(doctor, path, format, args);
	va_end(args);
	names->count = 0;
	dir = fits ? opendir(path) : NULL;
	if (!dir)
		return;
	while (names->count < DOCTOR_NAMES && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && strlen(entry->d_name) < DOCTOR_NAME)
			strcpy(names->name[names->count++], entry->d_name);
	closedir(dir);
	qsort(names->name, names->count, DOCTOR_NAME, by_name);
}

unsigned char *doctor_load(const struct doctor *doctor, size_t limit, size_t *ret_bytes, const char *format, ...)
{
	char path[DOCTOR_PATH];
	unsigned char *data = NULL;
	va_list args;
	bool fits;
	FILE *file;

	va_start(args, format);
	fits = path_of(doctor, path, format, args);
	va_end(args);
	file = fits ? fopen(path, "re") : NULL;
	if (!file)
		return NULL;
	data = malloc(limit + 1);
	if (data) {
		*ret_bytes = fread(data, 1, limit, file);
		data[*ret_bytes] = 0;
	}
	fclose(file);
	return data;
}

void doctor_field(const struct doctor *doctor, const char *path, const char *key, char *value, size_t bytes)
{
	size_t length, key_bytes = strlen(key);
	unsigned char *text = doctor_load(doctor, 1 << 20, &length, "%s", path);
	char *rest = (char *)text, *line;

	value[0] = '\0';
	while ((line = strsep(&rest, "\n"))) {
		if (strncmp(line, key, key_bytes) != 0)
			continue;
		line += key_bytes;
		line += strspn(line, ": \t");
		snprintf(value, bytes, "%s", line);
		break;
	}
	free(text);
}

/* The cache is strings with zeros between; those that end in the name are all we want of it. */
void doctor_cached(const struct doctor *doctor, const char *name, void (*fn)(void *context, const char *path),
		   void *context)
{
	size_t bytes = 0, start = 0, name_bytes = strlen(name);
	unsigned char *cache = doctor_load(doctor, 16 << 20, &bytes, "/etc/ld.so.cache");

	for (size_t i = 0; cache && i < bytes; i++) {
		if (cache[i])
			continue;
		if (i - start > name_bytes && cache[start] == '/' &&
		    memcmp(&cache[i - name_bytes], name, name_bytes) == 0)
			fn(context, (const char *)&cache[start]);
		start = i + 1;
	}
	free(cache);
}

void doctor_say(struct doctor_finding *finding, enum doctor_result result, const char *mend, const char *format, ...)
{
	va_list args;

	finding->result = result;
	snprintf(finding->mend, sizeof(finding->mend), "%s", mend ? mend : "");
	va_start(args, format);
	vsnprintf(finding->seen, sizeof(finding->seen), format, args);
	va_end(args);
}

void doctor_add(struct doctor_items *items, const char *format, ...)
{
	size_t used = strlen(items->text);
	char item[128];
	va_list args;

	va_start(args, format);
	vsnprintf(item, sizeof(item), format, args);
	va_end(args);
	items->count++;
	/* Six tell the story; the rest is counted. */
	if (items->count <= 6 && used + strlen(item) + 3 < sizeof(items->text) - 24)
		snprintf(items->text + used, sizeof(items->text) - used, "%s%s", used ? ", " : "", item);
}

const char *doctor_items(struct doctor_items *items)
{
	size_t used = strlen(items->text);

	if (items->count > 6)
		snprintf(items->text + used, sizeof(items->text) - used, " and %zu more", items->count - 6);
	return items->text;
}

unsigned doctor_kernel(const struct doctor *doctor)
{
	unsigned major = 0, minor = 0;
	char text[128];

	if (doctor_read(doctor, text, sizeof(text), "/proc/sys/kernel/osrelease") <= 0 ||
	    sscanf(text, "%4u.%4u", &major, &minor) != 2 || minor > 999)
		return 0;
	return major * 1000 + minor;
}

bool doctor_has_rdma(const struct doctor *doctor)
{
	struct doctor_names names;

	doctor_list(doctor, &names, "/sys/class/infiniband");
	return names.count > 0;
}

bool doctor_has_efa(const struct doctor *doctor)
{
	struct doctor_names names;

	doctor_list(doctor, &names, "/sys/class/infiniband");
	for (size_t i = 0; i < names.count; i++) {
		char driver[DOCTOR_NAME];

		doctor_link(doctor, driver, "/sys/class/infiniband/%s/device/driver", names.name[i]);
		if (strcmp(driver, "efa") == 0)
			return true;
	}
	return false;
}

bool doctor_has_nvidia(const struct doctor *doctor)
{
	struct doctor_names names;

	doctor_list(doctor, &names, "/sys/bus/pci/devices");
	for (size_t i = 0; i < names.count; i++) {
		long vendor = 0, class = 0;

		if (!doctor_read_number(doctor, &vendor, "/sys/bus/pci/devices/%s/vendor", names.name[i]) &&
		    !doctor_read_number(doctor, &class, "/sys/bus/pci/devices/%s/class", names.name[i]) &&
		    vendor == 0x10de && class >> 16 == 0x03)
			return true;
	}
	return false;
}
