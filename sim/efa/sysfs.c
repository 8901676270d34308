/*
 * The part of /sys that the provider reads about its devices, as a folder of this user in /dev/shm: which driver, which PCI
 * address, which ABI. Made once and left there (a few dozen links), so processes that start together do not take it from
 * each other. Called once per process.
 */
#include "card.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void sysfs_root(char *path, size_t bytes)
{
	snprintf(path, bytes, "/dev/shm/simefa-sys-%u", (unsigned)geteuid());
}

static int folder(const char *path)
{
	return mkdir(path, 0700) && errno != EEXIST ? -1 : 0;
}

static int below(const char *root, const char *name)
{
	char path[600];

	snprintf(path, sizeof path, "%s/%s", root, name);
	return folder(path);
}

/* Whole or not at all: another process may be reading it. */
static int abi_version(const char *root)
{
	char path[200], draft[240];
	FILE *file;
	int rc;

	snprintf(path, sizeof path, "%s/class/infiniband_verbs/abi_version", root);
	if (!access(path, R_OK))
		return 0;
	snprintf(draft, sizeof draft, "%s.%d", path, (int)getpid());
	file = fopen(draft, "we");
	if (!file)
		return -1;
	rc = fputs("6\n", file) < 0;
	rc |= fclose(file);
	return rc || rename(draft, path) ? -1 : 0;
}

/* Another machine may have left a device of this name with another address: the link is replaced in one step. */
static int point(const char *link, const char *to)
{
	char draft[700], old[600];
	ssize_t n = readlink(link, old, sizeof old - 1);

	if (n >= 0 && (size_t)n == strlen(to) && !memcmp(old, to, (size_t)n))
		return 0;
	snprintf(draft, sizeof draft, "%s.%d", link, (int)getpid());
	unlink(draft);
	return symlink(to, draft) || rename(draft, link) ? -1 : 0;
}

static int make_one(const char *root, const struct card_device *device)
{
	char path[400], link[600], driver[120];

	snprintf(path, sizeof path, "%s/devices/0000:%02x:00.0", root,
		 sim_machine_nic_bus(&model.spec.machine, device->nic));
	snprintf(driver, sizeof driver, "%s/drivers/efa", root);
	snprintf(link, sizeof link, "%s/driver", path);
	if (folder(path) || point(link, driver) || folder(device->base.ibdev_path))
		return -1;
	snprintf(link, sizeof link, "%s/device", device->base.ibdev_path);
	return point(link, path);
}

int sysfs_make(const struct card_device *devices, int count)
{
	static const char *const folders[] = { "class",   "class/infiniband", "class/infiniband_verbs",
					       "devices", "drivers",          "drivers/efa" };
	char root[80];
	int rc;

	sysfs_root(root, sizeof root);
	rc = folder(root);
	for (size_t i = 0; !rc && i < sizeof folders / sizeof folders[0]; i++)
		rc = below(root, folders[i]);
	if (!rc)
		rc = abi_version(root);
	for (int i = 0; !rc && i < count; i++)
		rc = make_one(root, &devices[i]);
	if (rc)
		card_say("cannot make %s: %s", root, strerror(errno));
	return rc;
}
