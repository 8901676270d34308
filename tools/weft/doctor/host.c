/* The doctor's checks of the host: kernel, limits, memory, CPUs, libraries. */
#include "doctor.h"

#include "../common/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void check_kernel(const struct doctor *doctor, struct doctor_finding *finding)
{
	unsigned kernel = doctor_kernel(doctor);
	char text[128];

	doctor_read(doctor, text, sizeof(text), "/proc/sys/kernel/osrelease");
	if (!kernel)
		doctor_say(finding, DOCTOR_NOTE, NULL, "the kernel's version is not known");
	else if (kernel < 4014)
		doctor_say(finding, DOCTOR_BLOCKS, "install Linux 5.12 or later", "Linux %s: too old", text);
	else if (kernel < 5012 && (doctor_has_rdma(doctor) || doctor->require))
		doctor_say(finding, DOCTOR_WARN, "install Linux 5.12 or later",
			   "Linux %s: no dmabuf for RDMA, fork is unsafe", text);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "Linux %s", text);
}

static bool may_lock(const struct doctor *doctor)
{
	char text[64];

	doctor_field(doctor, "/proc/self/status", "CapEff", text, sizeof(text));
	return strtoull(text, NULL, 16) >> 14 & 1; /* CAP_IPC_LOCK */
}

static void check_memlock(const struct doctor *doctor, struct doctor_finding *finding)
{
	static const char mend[] = "ulimit -l unlimited; for good: 'memlock unlimited' in /etc/security/limits.conf, "
				   "LimitMEMLOCK=infinity in a unit, --ulimit memlock=-1 for a container";
	char text[128], *end;
	unsigned long long limit;

	doctor_field(doctor, "/proc/self/limits", "Max locked memory", text, sizeof(text));
	if (strncmp(text, "unlimited", 9) == 0) {
		doctor_say(finding, DOCTOR_OK, NULL, "unlimited");
		return;
	}
	limit = strtoull(text, &end, 10);
	if (end == text)
		doctor_say(finding, DOCTOR_NOTE, NULL, "the limit is not known");
	else if (may_lock(doctor))
		doctor_say(finding, DOCTOR_OK, NULL, "%llu KiB, but this process may pass it (CAP_IPC_LOCK)",
			   limit >> 10);
	else if (!doctor_has_rdma(doctor) && !doctor->require)
		doctor_say(finding, DOCTOR_OK, NULL, "%llu KiB: enough without RDMA", limit >> 10);
	else if (limit < 64ull << 20)
		doctor_say(finding, DOCTOR_BLOCKS, mend, "%llu KiB: registering memory fails", limit >> 10);
	else
		doctor_say(finding, DOCTOR_WARN, mend, "%llu MiB: registering more memory than that fails",
			   limit >> 20);
}

static void check_huge_pages(const struct doctor *doctor, struct doctor_finding *finding)
{
	static const char path[] = "/sys/kernel/mm/hugepages/hugepages-2048kB";
	long total = 0, available = 0;

	if (doctor_read_number(doctor, &total, "%s/nr_hugepages", path)) {
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "this kernel has no huge pages of 2 MiB");
		return;
	}
	doctor_read_number(doctor, &available, "%s/free_hugepages", path);
	if (!doctor_has_efa(doctor))
		doctor_say(finding, DOCTOR_OK, NULL, "%ld of %ld free; nothing here needs them", available, total);
	else if (!total)
		doctor_say(finding, DOCTOR_NOTE, "sysctl vm.nr_hugepages=5128 (libfabric's EFA buffers then use them)",
			   "none reserved");
	else if (!available)
		doctor_say(finding, DOCTOR_NOTE, "raise vm.nr_hugepages, or end the processes that hold them",
			   "all %ld are taken", total);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%ld of %ld free", available, total);
}

static void check_fork(const struct doctor *doctor, struct doctor_finding *finding)
{
	unsigned kernel = doctor_kernel(doctor);

	if (!doctor_has_rdma(doctor))
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "no RDMA device");
	else if (kernel >= 5013)
		doctor_say(finding, doctor->fork_safe ? DOCTOR_NOTE : DOCTOR_OK,
			   doctor->fork_safe ? "unset it: registration is slower with it" : NULL, "%s",
			   doctor->fork_safe ? "this kernel makes fork safe by itself, yet a FORK_SAFE variable is set"
					     : "this kernel makes fork safe by itself");
	else if (!doctor->fork_safe)
		doctor_say(finding, DOCTOR_WARN, "RDMAV_FORK_SAFE=1 in the environment, or Linux 5.13 or later",
			   "fork() (Python's subprocess does it) can corrupt registered memory");
	else if (!doctor->huge_pages_safe)
		doctor_say(finding, DOCTOR_NOTE, "set RDMAV_HUGEPAGES_SAFE=1 as well if memory is in huge pages",
			   "fork is made safe by RDMAV_FORK_SAFE");
	else
		doctor_say(finding, DOCTOR_OK, NULL, "fork is made safe by the environment");
}

static void check_governor(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct doctor_names names;
	size_t seen = 0, slow = 0;
	char governor[64], other[64] = "";

	doctor_list(doctor, &names, "/sys/devices/system/cpu");
	for (size_t i = 0; i < names.count; i++) {
		if (doctor_read(doctor, governor, sizeof(governor),
				"/sys/devices/system/cpu/%s/cpufreq/scaling_governor", names.name[i]) <= 0)
			continue;
		seen++;
		if (strcmp(governor, "performance") == 0)
			continue;
		slow++;
		snprintf(other, sizeof(other), "%s", governor);
	}
	if (!seen)
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL,
			   "the CPUs' frequency is not ours to set (a virtual machine?)");
	else if (slow)
		doctor_say(finding, DOCTOR_NOTE, "cpupower frequency-set -g performance",
			   "%s on %zu of %zu CPUs: a worker that wakes starts slowly", other, slow, seen);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "performance on %zu CPUs", seen);
}

/* What may be stored in /dev/shm: the mount's size=, else half of the memory. */
static uint64_t shm_bytes(const struct doctor *doctor, bool *ret_mounted)
{
	size_t length;
	char *text = (char *)doctor_load(doctor, 1 << 20, &length, "/proc/mounts"), *rest = text, *line;
	uint64_t bytes = 0;
	char total[64];

	*ret_mounted = false;
	while ((line = strsep(&rest, "\n"))) {
		char *at = strstr(line, " /dev/shm "), *size, *end;

		if (!at)
			continue;
		*ret_mounted = true;
		size = strstr(at, "size=");
		if (!size)
			break;
		bytes = strtoull(size + 5, &end, 10);
		bytes <<= *end == 'k' ? 10 : *end == 'm' ? 20 : *end == 'g' ? 30 : 0;
	}
	free(text);
	if (*ret_mounted && !bytes) {
		doctor_field(doctor, "/proc/meminfo", "MemTotal", total, sizeof(total));
		bytes = strtoull(total, NULL, 10) * 1024 / 2;
	}
	return bytes;
}

static void check_shm(const struct doctor *doctor, struct doctor_finding *finding)
{
	bool mounted;
	uint64_t bytes = shm_bytes(doctor, &mounted);

	if (!mounted)
		doctor_say(finding, DOCTOR_WARN, "mount -t tmpfs tmpfs /dev/shm",
			   "/dev/shm is not mounted: the shm transport fails");
	else if (bytes && bytes < 256ull << 20)
		doctor_say(finding, DOCTOR_WARN,
			   "--shm-size=1g for a container; else mount -o remount,size=1g /dev/shm",
			   "%" PRIu64 " MiB: the shm transport's queues of a few processes fill it", bytes >> 20);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%" PRIu64 " MiB", bytes >> 20);
}

/* "4711:0:0", as libfabric names what a process shares, and that process is no more. */
static bool is_left_over(const struct doctor *doctor, const char *name)
{
	unsigned pid, uid, endpoint;
	int length = 0;

	return sscanf(name, "%9u:%9u:%9u%n", &pid, &uid, &endpoint, &length) == 3 && !name[length] &&
	       !doctor_exists(doctor, "/proc/%u", pid);
}

static void check_shm_left(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct doctor_names names;
	char path[DOCTOR_PATH];
	uint64_t bytes = 0;
	size_t count = 0;
	struct stat st;

	doctor_list(doctor, &names, "/dev/shm");
	for (size_t i = 0; i < names.count; i++) {
		if (!is_left_over(doctor, names.name[i]))
			continue;
		count++;
		if (doctor_path(doctor, path, "/dev/shm/%s", names.name[i]) && !lstat(path, &st))
			bytes += (uint64_t)st.st_blocks * 512;
	}
	if (count)
		doctor_say(finding, DOCTOR_WARN,
			   "(cd /dev/shm && for f in [0-9]*:*:*; do test -e /proc/${f%%:*} || rm \"$f\"; done), "
			   "unless "
			   "processes of a container share this /dev/shm",
			   "%zu file%s of dead processes in /dev/shm, left by libfabric's shm, hold%s %" PRIu64
			   " MiB of memory",
			   count, count == 1 ? "" : "s", count == 1 ? "s" : "", bytes >> 20);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "nothing of dead processes in /dev/shm");
}

static void check_ptrace(const struct doctor *doctor, struct doctor_finding *finding)
{
	long scope = 0;

	if (doctor_read_number(doctor, &scope, "/proc/sys/kernel/yama/ptrace_scope") || scope == 0)
		doctor_say(finding, DOCTOR_OK, NULL, "processes of one user may copy to each other");
	else
		doctor_say(finding, scope > 1 ? DOCTOR_WARN : DOCTOR_NOTE, "sysctl kernel.yama.ptrace_scope=0",
			   "kernel.yama.ptrace_scope is %ld: shm cannot copy in one step and is slower for "
			   "large transfers",
			   scope);
}

struct copies {
	const struct doctor *doctor;
	struct doctor_items items;
	size_t count;
	struct {
		dev_t dev;
		ino_t ino;
	} seen[16];
};

static void count_copy(void *context, const char *path)
{
	struct copies *copies = context;
	char full[DOCTOR_PATH];
	struct stat st;

	if (!doctor_path(copies->doctor, full, "%s", path) || stat(full, &st))
		return;
	for (size_t i = 0; i < copies->count; i++)
		if (copies->seen[i].dev == st.st_dev && copies->seen[i].ino == st.st_ino)
			return;
	if (copies->count == sizeof(copies->seen) / sizeof(*copies->seen))
		return;
	copies->seen[copies->count].dev = st.st_dev;
	copies->seen[copies->count++].ino = st.st_ino;
	doctor_add(&copies->items, "%s", path);
}

static void count_in(struct copies *copies, const char *folder, size_t length)
{
	char path[DOCTOR_PATH];

	if (length && length < DOCTOR_PATH - 24) {
		snprintf(path, sizeof(path), "%.*s/libfabric.so.1", (int)length, folder);
		count_copy(copies, path);
	}
}

static void check_copies(const struct doctor *doctor, struct doctor_finding *finding)
{
	static const char *const folders[] = { "/opt/amazon/efa/lib", "/opt/amazon/efa/lib64", "/usr/local/lib" };
	struct copies copies = { .doctor = doctor };

	for (const char *at = doctor->library_path; at && *at; at += *at == ':') {
		count_in(&copies, at, strcspn(at, ":"));
		at += strcspn(at, ":");
	}
	doctor_cached(doctor, "/libfabric.so.1", count_copy, &copies);
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		count_in(&copies, folders[i], strlen(folders[i]));
	if (copies.count > 1)
		doctor_say(finding, DOCTOR_WARN,
			   "keep one, or put the folder of the right one first in LD_LIBRARY_PATH; ldd shows "
			   "which is loaded",
			   "%zu copies of libfabric: %s", copies.count, doctor_items(&copies.items));
	else if (copies.count)
		doctor_say(finding, DOCTOR_OK, NULL, "%s", doctor_items(&copies.items));
	else
		doctor_say(finding, DOCTOR_NOTE, NULL, "libfabric.so.1 is in none of the usual places");
}

static void check_libfabric(const struct doctor *doctor, struct doctor_finding *finding)
{
	unsigned major = 0, minor = 0;

	if (!doctor->libfabric || sscanf(doctor->libfabric, "%4u.%4u", &major, &minor) != 2) {
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "the version is not known");
		return;
	}
	if (major * 1000 + minor < 1014)
		doctor_say(finding, DOCTOR_BLOCKS, "install libfabric 1.17 or later", "libfabric %s: too old",
			   doctor->libfabric);
	else if (major * 1000 + minor < 1020 && (doctor_has_efa(doctor) || doctor->require == DOCTOR_REQUIRE_EFA))
		doctor_say(finding, DOCTOR_WARN,
			   "install the newest EFA software (aws-efa-installer), or libfabric 1.20 or later",
			   "libfabric %s: its EFA provider is old: no dmabuf, RDMA writes may be emulated",
			   doctor->libfabric);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "libfabric %s", doctor->libfabric);
}

static void check_topology(const struct doctor *doctor, struct doctor_finding *finding)
{
	char why[400];

	if (!doctor->topology)
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "WEFT_TOPOLOGY_XML is not set");
	else if (cmd_topology_check(doctor->topology, why, sizeof(why)))
		doctor_say(finding, DOCTOR_BLOCKS,
			   "save the topology again with lstopo, or unset WEFT_TOPOLOGY_XML: weft cannot open with it",
			   "%s", why);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%s: hwloc can read it", doctor->topology);
}

const struct doctor_check doctor_host_checks[] = {
	{ "kernel", "kernel", check_kernel },
	{ "memlock", "locked memory", check_memlock },
	{ "huge-pages", "huge pages", check_huge_pages },
	{ "fork", "fork", check_fork },
	{ "governor", "CPU frequency", check_governor },
	{ "shm", "shared memory", check_shm },
	{ "shm-left", "shared memory of dead processes", check_shm_left },
	{ "ptrace", "copying between processes", check_ptrace },
	{ "libfabric", "libfabric's version", check_libfabric },
	{ "libfabric-copies", "copies of libfabric", check_copies },
	{ "topology", "topology file", check_topology },
	{ 0 },
};
