/* Every check of weft doctor on a made-up host: a folder with the few files the check reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../weft/doctor/doctor.h"

#include <weft.h>

static char root[64];
static struct doctor host;

/* Makes the folders a path needs; leaves the full path in full. */
static void prepare(const char *path, char full[DOCTOR_PATH])
{
	snprintf(full, DOCTOR_PATH, "%s%s", root, path);
	for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		if (mkdir(full, 0755) && errno != EEXIST)
			abort();
		*at = '/';
	}
}

static void put_bytes(const char *path, const void *bytes, size_t count)
{
	char full[DOCTOR_PATH];
	FILE *file;

	prepare(path, full);
	file = fopen(full, "w");
	if (!file || fwrite(bytes, 1, count, file) != count || fclose(file))
		abort();
}

static void put(const char *path, const char *text)
{
	put_bytes(path, text, strlen(text));
}

static void put_link(const char *path, const char *target)
{
	char full[DOCTOR_PATH];

	prepare(path, full);
	unlink(full);
	if (symlink(target, full))
		abort();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int set_up(void **state)
{
	strcpy(root, "/tmp/weft-doctor-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	host = (struct doctor){ .root = root };
	put("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
	return 0;
}

static int tear_down(void **state)
{
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const struct doctor_check *find_check(const char *id)
{
	const struct doctor_check *const tables[] = { doctor_rdma_checks, doctor_gpu_checks, doctor_card_checks,
						      doctor_host_checks };

	for (size_t t = 0; t < 4; t++)
		for (const struct doctor_check *check = tables[t]; check->id; check++)
			if (strcmp(check->id, id) == 0)
				return check;
	fail_msg("no check %s", id);
	return NULL;
}

/* The check must give this result and say this; what is not right must say how to mend it. */
static void expect(const char *id, enum doctor_result result, const char *says)
{
	struct doctor_finding finding = { 0 };

	find_check(id)->run(&host, &finding);
	if (finding.result != result || !strstr(finding.seen, says))
		fail_msg("%s: %d '%s' (mend: %s), expected %d '%s'", id, finding.result, finding.seen, finding.mend,
			 result, says);
	if (result == DOCTOR_BLOCKS || result == DOCTOR_WARN)
		assert_true(finding.mend[0] != '\0');
	if (result == DOCTOR_OK)
		assert_string_equal(finding.mend, "");
}

static void add_efa(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/driver", name);
	put_link(path, "../../../bus/pci/drivers/efa");
}

static void add_pci(const char *address, const char *class, const char *vendor, const char *device)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/class", address);
	put(path, class);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vendor", address);
	put(path, vendor);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/device", address);
	put(path, device);
}

static void add_gpu(void)
{
	add_pci("0000:53:00.0", "0x030200\n", "0x10de\n", "0x2330\n");
}

/* On a host with nothing, nothing may block and nothing may crash. */
static void bare_host(void **state)
{
	const struct doctor_check *const tables[] = { doctor_rdma_checks, doctor_gpu_checks, doctor_card_checks,
						      doctor_host_checks };

	for (size_t t = 0; t < 4; t++)
		for (const struct doctor_check *check = tables[t]; check->id; check++) {
			struct doctor_finding finding = { 0 };

			check->run(&host, &finding);
			assert_true(finding.result != DOCTOR_BLOCKS);
			assert_true(finding.seen[0] != '\0');
		}
}

static void rdma_device(void **state)
{
	expect("rdma-device", DOCTOR_WARN, "no NIC on PCI that could be one");
	host.require = DOCTOR_REQUIRE_EFA;
	expect("rdma-device", DOCTOR_BLOCKS, "no EFA device");
	add_pci("0000:4f:00.0", "0x020000\n", "0x1d0f\n", "0xefa1\n");
	expect("rdma-device", DOCTOR_BLOCKS, "module efa is not loaded");
	put("/sys/module/efa/refcnt", "0\n");
	expect("rdma-device", DOCTOR_BLOCKS, "has no driver bound");
	put_link("/sys/bus/pci/devices/0000:4f:00.0/driver", "../../drivers/efa");
	expect("rdma-device", DOCTOR_BLOCKS, "does not show it");
	add_efa("rdmap79s0");
	expect("rdma-device", DOCTOR_OK, "1: rdmap79s0");
	host.require = DOCTOR_REQUIRE_VERBS;
	expect("rdma-device", DOCTOR_BLOCKS, "no verbs device");
	put_link("/sys/class/infiniband/mlx5_0/device/driver", "../../../bus/pci/drivers/mlx5_core");
	expect("rdma-device", DOCTOR_OK, "1: mlx5_0");
	host.require = DOCTOR_REQUIRE_NOTHING;
	expect("rdma-device", DOCTOR_OK, "2: mlx5_0, rdmap79s0");
}

static void many_devices(void **state)
{
	char name[32];

	for (int i = 0; i < 32; i++) {
		snprintf(name, sizeof(name), "rdmap%ds0", 79 + i);
		add_efa(name);
	}
	expect("rdma-device", DOCTOR_OK, "32: rdmap79s0, rdmap80s0");
	expect("rdma-device", DOCTOR_OK, "and 26 more");
}

static void rdma_access(void **state)
{
	pid_t child;
	int status;

	expect("rdma-access", DOCTOR_NOT_APPLICABLE, "no RDMA device");
	add_efa("rdmap79s0");
	expect("rdma-access", DOCTOR_BLOCKS, "ib_uverbs is not loaded");
	put("/sys/module/ib_uverbs/refcnt", "1\n");
	expect("rdma-access", DOCTOR_BLOCKS, "no /dev/infiniband/uverbs*");
	put("/dev/infiniband/uverbs0", "");
	put("/dev/infiniband/rdma_cm", "");
	expect("rdma-access", DOCTOR_OK, "1 of /dev/infiniband/uverbs*");
	if (getuid() != 0)
		return;
	/* Root may open anything: ask as somebody else. */
	chmod(root, 0755);
	child = fork();
	if (child == 0) {
		struct doctor_finding finding = { 0 };

		if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
			_exit(2);
		find_check("rdma-access")->run(&host, &finding);
		_exit(finding.result == DOCTOR_BLOCKS && strstr(finding.seen, "may not open uverbs0") ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void verbs_receives(void **state)
{
	expect("verbs-receives", DOCTOR_NOT_APPLICABLE, "no verbs device");
	add_efa("rdmap79s0");
	expect("verbs-receives", DOCTOR_NOT_APPLICABLE, "no verbs device");
	put_link("/sys/class/infiniband/mlx5_0/device/driver", "../../../bus/pci/drivers/mlx5_core");
	expect("verbs-receives", DOCTOR_WARN, "may crash when one closes");
	host.shared_receives = true;
	expect("verbs-receives", DOCTOR_OK, "FI_OFI_RXM_USE_SRX=1");
}

static void nic_link(void **state)
{
	expect("nic-link", DOCTOR_NOT_APPLICABLE, "no RDMA device");
	put("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
	put("/sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n");
	put("/sys/class/infiniband/mlx5_1/ports/1/rate", "400 Gb/sec (4X NDR)\n");
	expect("nic-link", DOCTOR_OK, "2 up at 400 Gbit/s");
	put("/sys/class/infiniband/mlx5_1/ports/1/rate", "200 Gb/sec (4X HDR)\n");
	expect("nic-link", DOCTOR_WARN, "mlx5_1 200 Gbit/s");
	put("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
	expect("nic-link", DOCTOR_WARN, "mlx5_1 (1: DOWN)");
	put("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
	host.require = DOCTOR_REQUIRE_VERBS;
	expect("nic-link", DOCTOR_BLOCKS, "mlx5_0");
}

static void nic_pcie(void **state)
{
	expect("nic-pcie", DOCTOR_NOT_APPLICABLE, "no RDMA device");
	put("/sys/class/infiniband/mlx5_0/device/current_link_speed", "32.0 GT/s PCIe\n");
	put("/sys/class/infiniband/mlx5_0/device/max_link_speed", "32.0 GT/s PCIe\n");
	put("/sys/class/infiniband/mlx5_0/device/current_link_width", "16\n");
	put("/sys/class/infiniband/mlx5_0/device/max_link_width", "16\n");
	expect("nic-pcie", DOCTOR_OK, "1 at full");
	put("/sys/class/infiniband/mlx5_0/device/current_link_width", "8\n");
	expect("nic-pcie", DOCTOR_WARN, "mlx5_0 32 GT/s x8 of 32 GT/s x16");
	put("/sys/class/infiniband/mlx5_0/device/current_link_speed", "16.0 GT/s PCIe\n");
	expect("nic-pcie", DOCTOR_WARN, "16 GT/s");
	put("/sys/class/infiniband/mlx5_0/device/current_link_speed", "Unknown\n");
	expect("nic-pcie", DOCTOR_NOT_APPLICABLE, "");
}

static void nic_cores(void **state)
{
	expect("nic-cores", DOCTOR_NOT_APPLICABLE, "");
	put("/proc/self/status", "Name:\tweft\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n");
	put("/sys/class/infiniband/mlx5_0/device/local_cpulist", "0-47,96-143\n");
	put("/sys/class/infiniband/mlx5_0/device/numa_node", "0\n");
	expect("nic-cores", DOCTOR_OK, "CPUs 0-7");
	put("/sys/class/infiniband/mlx5_1/device/local_cpulist", "48-95,144-191\n");
	put("/sys/class/infiniband/mlx5_1/device/numa_node", "1\n");
	expect("nic-cores", DOCTOR_WARN, "mlx5_1 (NUMA node 1)");
	put("/proc/self/status", "Cpus_allowed_list:\t3,190\n");
	expect("nic-cores", DOCTOR_OK, "CPUs 3,190");
	put("/proc/self/status", "Cpus_allowed_list:\tjunk\n");
	expect("nic-cores", DOCTOR_WARN, "mlx5_0");
}

static void cuda(void **state)
{
	static const char cache[] = "libcuda.so.1\0/odd/place/libcuda.so.1";

	expect("cuda", DOCTOR_NOT_APPLICABLE, "no NVIDIA GPU");
	put("/usr/lib64/libcuda.so.535.54.03", "");
	put_link("/usr/lib64/libcuda.so.1", "libcuda.so.535.54.03");
	expect("cuda", DOCTOR_NOTE, "neither GPU nor driver");
	add_gpu();
	expect("cuda", DOCTOR_WARN, "driver is not loaded");
	put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun 6\n");
	expect("cuda", DOCTOR_WARN, "/dev/nvidiactl");
	put("/dev/nvidiactl", "");
	put("/dev/nvidia0", "");
	expect("cuda", DOCTOR_OK, "driver 535.54.03");
	put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Tue Jun 6\n");
	expect("cuda", DOCTOR_WARN, "libcuda is 535.54.03 but the loaded driver is 550.90.07");
	put_link("/usr/lib64/libcuda.so.1", "nowhere");
	expect("cuda", DOCTOR_WARN, "libcuda.so.1 is not found");
	put("/odd/place/libcuda.so.1", "");
	put_bytes("/etc/ld.so.cache", cache, sizeof(cache));
	expect("cuda", DOCTOR_OK, "/odd/place/libcuda.so.1");
}

static void gpu_memory(void **state)
{
	add_gpu();
	expect("gpu-memory", DOCTOR_NOT_APPLICABLE, "");
	add_efa("rdmap79s0");
	put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03\n");
	expect("gpu-memory", DOCTOR_WARN, "not the open one");
	put("/sys/module/nvidia_peermem/refcnt", "0\n");
	expect("gpu-memory", DOCTOR_OK, "peer memory");
	put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.54.03\n");
	expect("gpu-memory", DOCTOR_OK, "dmabuf");
	put("/proc/sys/kernel/osrelease", "5.4.0-1\n");
	expect("gpu-memory", DOCTOR_OK, "peer memory");
}

/* Which way a card's memory takes, and all that is missing for the best. */
static void card_memory(void **state)
{
	static struct doctor_cards cards;
	struct doctor_finding finding = { 0 };

	expect("card-memory", DOCTOR_NOT_APPLICABLE, "another host");
	host.cards = &cards;
	cards = (struct doctor_cards){ 0 };
	expect("card-memory", DOCTOR_NOT_APPLICABLE, "no card");
	add_gpu();
	strcpy(cards.why, "the driver finds none");
	expect("card-memory", DOCTOR_WARN, "the driver finds none");
	cards.total = cards.count = 1;
	cards.card[0] = (struct cmd_card_facts){ .name = "H200", .pci = "0000:53:00.0" };
	host.hmem = "";
	expect("card-memory", DOCTOR_NOTE,
	       "1 card: local between processes of this host; staged over NICs, not direct: ");
	expect("card-memory", DOCTOR_NOTE, "no RDMA device");
	add_efa("efa_0");
	expect("card-memory", DOCTOR_WARN, "the driver lets no NIC into the card");
	expect("card-memory", DOCTOR_WARN, "the NVIDIA driver has no dmabuf, and no peer memory module");
	expect("card-memory", DOCTOR_WARN, "offer no FI_HMEM");
	put("/proc/cpuinfo", "flags\t\t: fpu sse2 hypervisor lm\n");
	find_check("card-memory")->run(&host, &finding);
	assert_non_null(strstr(finding.mend, "the hypervisor must let"));
	cards.card[0].direct = cards.card[0].dmabuf = true;
	host.hmem = "efa";
	expect("card-memory", DOCTOR_WARN, "libfabric before 1.20 takes no dmabuf, and no peer memory module");
	host.libfabric = "1.20";
	put("/proc/sys/kernel/osrelease", "5.4.0\n");
	expect("card-memory", DOCTOR_WARN, "Linux before 5.12");
	put("/sys/module/nvidia_peermem/refcnt", "0\n");
#ifdef WEFT_REQUIRE_DIRECT
	expect("card-memory", DOCTOR_OK, "1 card: local between processes of this host; direct over NICs (efa)");
#else
	expect("card-memory", DOCTOR_WARN, "not direct: this release of weft does not do it yet");
#endif
	strcpy(cards.card[0].not_local, "cuIpcGetMemHandle says X");
	expect("card-memory", DOCTOR_WARN,
	       "not local: other processes of this host cannot open card 0000:53:00.0's memory");
	strcpy(cards.card[0].not_usable, "the card has no room");
	expect("card-memory", DOCTOR_WARN, "card 0000:53:00.0 (H200): the card has no room");
}

static void acs(void **state)
{
	unsigned char config[4096] = { 0 };

	add_gpu();
	add_efa("rdmap79s0");
	put("/sys/bus/pci/devices/0000:45:00.0/class", "0x060400\n");
	put_bytes("/sys/bus/pci/devices/0000:45:00.0/config", config, 64);
	expect("acs", DOCTOR_NOTE, "cannot be read");
	put_bytes("/sys/bus/pci/devices/0000:45:00.0/config", config, 4096);
	expect("acs", DOCTOR_OK, "no bridge");
	/* A first capability that points to ACS at 0x148, with request redirect on. */
	config[0x100] = 0x01;
	config[0x102] = 0x81;
	config[0x103] = 0x14;
	config[0x148] = 0x0d;
	config[0x14e] = 0x04;
	put_bytes("/sys/bus/pci/devices/0000:45:00.0/config", config, 4096);
	expect("acs", DOCTOR_WARN, "0000:45:00.0");
	config[0x148] = 0x01; /* a chain that never ends */
	config[0x14a] = 0x80;
	config[0x14b] = 0x14;
	put_bytes("/sys/bus/pci/devices/0000:45:00.0/config", config, 4096);
	expect("acs", DOCTOR_OK, "no bridge");
}

static void iommu(void **state)
{
	expect("iommu", DOCTOR_OK, "no IOMMU");
	put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz intel_iommu=on\n");
	put("/sys/class/iommu/dmar0/intel-iommu/version", "1:0\n");
	expect("iommu", DOCTOR_OK, "no RDMA device is affected");
	add_efa("rdmap79s0");
	expect("iommu", DOCTOR_WARN, "translates");
	put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz intel_iommu=on iommu=pt\n");
	expect("iommu", DOCTOR_OK, "passes through");
}

static void kernel(void **state)
{
	expect("kernel", DOCTOR_OK, "6.1.0-18-amd64");
	put("/proc/sys/kernel/osrelease", "5.4.0-1\n");
	expect("kernel", DOCTOR_OK, "5.4.0-1");
	host.require = DOCTOR_REQUIRE_EFA;
	expect("kernel", DOCTOR_WARN, "no dmabuf");
	put("/proc/sys/kernel/osrelease", "3.10.0\n");
	expect("kernel", DOCTOR_BLOCKS, "too old");
	put("/proc/sys/kernel/osrelease", "?\n");
	expect("kernel", DOCTOR_NOTE, "not known");
}

static void memlock(void **state)
{
	static const char few[] = "Limit                     Soft Limit           Hard Limit           Units\n"
				  "Max locked memory         65536                65536                bytes\n";

	put("/proc/self/limits", few);
	put("/proc/self/status", "CapEff:\t0000000000000000\n");
	expect("memlock", DOCTOR_OK, "enough without RDMA");
	add_efa("rdmap79s0");
	expect("memlock", DOCTOR_BLOCKS, "64 KiB");
	put("/proc/self/status", "CapEff:\t000001ffffffffff\n");
	expect("memlock", DOCTOR_OK, "CAP_IPC_LOCK");
	put("/proc/self/status", "CapEff:\t0000000000000000\n");
	put("/proc/self/limits", "Max locked memory         8589934592           8589934592           bytes\n");
	expect("memlock", DOCTOR_WARN, "8192 MiB");
	put("/proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\n");
	expect("memlock", DOCTOR_OK, "unlimited");
	put("/proc/self/limits", "nothing\n");
	expect("memlock", DOCTOR_NOTE, "not known");
}

static void huge_pages(void **state)
{
	expect("huge-pages", DOCTOR_NOT_APPLICABLE, "");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n");
	expect("huge-pages", DOCTOR_OK, "nothing here needs them");
	add_efa("rdmap79s0");
	expect("huge-pages", DOCTOR_NOTE, "none reserved");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "5128\n");
	expect("huge-pages", DOCTOR_NOTE, "all 5128 are taken");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n");
	expect("huge-pages", DOCTOR_OK, "100 of 5128 free");
}

static void fork_safety(void **state)
{
	expect("fork", DOCTOR_NOT_APPLICABLE, "");
	add_efa("rdmap79s0");
	expect("fork", DOCTOR_OK, "safe by itself");
	host.fork_safe = true;
	expect("fork", DOCTOR_NOTE, "yet a FORK_SAFE");
	put("/proc/sys/kernel/osrelease", "5.10.0\n");
	expect("fork", DOCTOR_NOTE, "RDMAV_FORK_SAFE");
	host.huge_pages_safe = true;
	expect("fork", DOCTOR_OK, "environment");
	host.fork_safe = false;
	expect("fork", DOCTOR_WARN, "corrupt");
}

static void governor(void **state)
{
	expect("governor", DOCTOR_NOT_APPLICABLE, "");
	put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
	put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
	expect("governor", DOCTOR_OK, "performance on 2 CPUs");
	put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
	expect("governor", DOCTOR_NOTE, "powersave on 1 of 2");
}

static void shm_left(void **state)
{
	expect("shm-left", DOCTOR_OK, "nothing");
	put("/dev/shm/4711:0:0", "x");
	put("/dev/shm/4712:0:1", "x");
	put("/dev/shm/4713:0", "x");
	put("/dev/shm/4714:0:0.lock", "x");
	put("/dev/shm/sem.a", "x");
	put("/proc/4712/comm", "weft\n");
	expect("shm-left", DOCTOR_WARN, "1 file of dead");
	put("/dev/shm/4715:1000:0", "x");
	expect("shm-left", DOCTOR_WARN, "2 files of dead");
}

static void shm(void **state)
{
	put("/proc/mounts", "proc /proc proc rw 0 0\n");
	expect("shm", DOCTOR_WARN, "not mounted");
	put("/proc/mounts", "shm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k 0 0\n");
	expect("shm", DOCTOR_WARN, "64 MiB");
	put("/proc/mounts", "tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n");
	put("/proc/meminfo", "MemTotal:        8388608 kB\n");
	expect("shm", DOCTOR_OK, "4096 MiB");
}

static void ptrace_scope(void **state)
{
	expect("ptrace", DOCTOR_OK, "");
	put("/proc/sys/kernel/yama/ptrace_scope", "0\n");
	expect("ptrace", DOCTOR_OK, "");
	put("/proc/sys/kernel/yama/ptrace_scope", "1\n");
	expect("ptrace", DOCTOR_NOTE, "ptrace_scope is 1");
	put("/proc/sys/kernel/yama/ptrace_scope", "3\n");
	expect("ptrace", DOCTOR_WARN, "ptrace_scope is 3");
}

static void libfabric_version(void **state)
{
	expect("libfabric", DOCTOR_NOT_APPLICABLE, "not known");
	host.libfabric = "1.17";
	expect("libfabric", DOCTOR_OK, "1.17");
	add_efa("rdmap79s0");
	expect("libfabric", DOCTOR_WARN, "old");
	host.libfabric = "2.1";
	expect("libfabric", DOCTOR_OK, "2.1");
	host.libfabric = "1.9";
	expect("libfabric", DOCTOR_BLOCKS, "too old");
	host.libfabric = "new";
	expect("libfabric", DOCTOR_NOT_APPLICABLE, "not known");
}

static void libfabric_copies(void **state)
{
	static const char cache[] =
	    "glibc-ld.so.cache1.1\0libfabric.so.1\0/usr/lib/libfabric.so.1\0libc.so.6\0/lib/libc.so.6";

	expect("libfabric-copies", DOCTOR_NOTE, "none of the usual");
	put("/usr/lib/libfabric.so.1.17.0", "x");
	put_link("/usr/lib/libfabric.so.1", "libfabric.so.1.17.0");
	put_bytes("/etc/ld.so.cache", cache, sizeof(cache));
	expect("libfabric-copies", DOCTOR_OK, "/usr/lib/libfabric.so.1");
	host.library_path = "/usr/lib:/nothing::";
	expect("libfabric-copies", DOCTOR_OK, "/usr/lib/libfabric.so.1");
	put("/opt/amazon/efa/lib/libfabric.so.1", "y");
	expect("libfabric-copies", DOCTOR_WARN, "2 copies of libfabric: /usr/lib/libfabric.so.1, /opt/amazon");
	host.library_path = ":/opt/amazon/efa/lib";
	expect("libfabric-copies", DOCTOR_WARN, "2 copies of libfabric: /opt/amazon");
}

#define on_a_host(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		on_a_host(bare_host),
		on_a_host(rdma_device),
		on_a_host(many_devices),
		on_a_host(rdma_access),
		on_a_host(verbs_receives),
		on_a_host(nic_link),
		on_a_host(nic_pcie),
		on_a_host(nic_cores),
		on_a_host(cuda),
		on_a_host(gpu_memory),
		on_a_host(card_memory),
		on_a_host(acs),
		on_a_host(iommu),
		on_a_host(kernel),
		on_a_host(memlock),
		on_a_host(huge_pages),
		on_a_host(fork_safety),
		on_a_host(governor),
		on_a_host(shm),
		on_a_host(shm_left),
		on_a_host(ptrace_scope),
		on_a_host(libfabric_version),
		on_a_host(libfabric_copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
