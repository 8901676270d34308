/* The doctor's checks of GPUs: the driver, CUDA, the NIC's way into GPU memory, and what stands in it. */
#include "doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct search {
	const struct doctor *doctor;
	char *path;
};

static void keep_first(void *context, const char *path)
{
	struct search *search = context;

	if (!*search->path && doctor_exists(search->doctor, "%s", path))
		snprintf(search->path, DOCTOR_PATH, "%s", path);
}

/* Where libcuda.so.1 is, "" when nowhere usual. */
static void find_libcuda(const struct doctor *doctor, char path[DOCTOR_PATH])
{
	static const char *const folders[] = {
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",       "/usr/lib",
		"/usr/local/cuda/compat",    "/usr/local/nvidia/lib64",    "/usr/lib/wsl/lib", "/run/opengl-driver/lib"
	};
	struct search search = { .doctor = doctor, .path = path };
	char candidate[DOCTOR_PATH];

	path[0] = '\0';
	for (const char *at = doctor->library_path; at && *at; at += *at == ':') {
		size_t length = strcspn(at, ":");

		if (length && length < 256) {
			snprintf(candidate, sizeof(candidate), "%.*s/libcuda.so.1", (int)length, at);
			keep_first(&search, candidate);
		}
		at += length;
	}
	doctor_cached(doctor, "/libcuda.so.1", keep_first, &search);
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		snprintf(candidate, sizeof(candidate), "%s/libcuda.so.1", folders[i]);
		keep_first(&search, candidate);
	}
}

/* "535.54.03" of the kernel's driver, "" when it is not loaded. */
static void driver_version(const struct doctor *doctor, char version[DOCTOR_NAME])
{
	char text[512];
	const char *at;

	version[0] = '\0';
	if (doctor_read(doctor, text, sizeof(text), "/proc/driver/nvidia/version") <= 0)
		return;
	at = strpbrk(text, "0123456789");
	while (at) {
		size_t length = strspn(at, "0123456789.");

		if (memchr(at, '.', length)) {
			snprintf(version, DOCTOR_NAME, "%.*s", (int)(length < DOCTOR_NAME ? length : DOCTOR_NAME - 1),
				 at);
			return;
		}
		at = strpbrk(at + length, "0123456789");
	}
}

static void check_cuda(const struct doctor *doctor, struct doctor_finding *finding)
{
	char library[DOCTOR_PATH], driver[DOCTOR_NAME], target[DOCTOR_NAME];
	bool on_pci = doctor_has_nvidia(doctor);

	find_libcuda(doctor, library);
	driver_version(doctor, driver);
	if (!on_pci && !*driver && !*library) {
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "no NVIDIA GPU, no CUDA");
		return;
	}
	if (!on_pci && !*driver) {
		doctor_say(finding, DOCTOR_NOTE, "nothing, unless this host should have a GPU: then load its driver",
			   "%s is here but neither GPU nor driver: CUDA calls fail, host memory works", library);
		return;
	}
	if (!*driver) {
		doctor_say(finding, DOCTOR_WARN, "install the NVIDIA driver, then: modprobe nvidia",
			   "a GPU on PCI, but the NVIDIA driver is not loaded: GPU memory cannot be registered");
		return;
	}
	if (!doctor_exists(doctor, "/dev/nvidiactl") || !doctor_exists(doctor, "/dev/nvidia0")) {
		doctor_say(finding, DOCTOR_WARN, "run nvidia-smi once as root; in a container: --gpus all",
			   "driver %s is loaded but /dev/nvidiactl or /dev/nvidia0 is missing", driver);
		return;
	}
	if (!*library) {
		doctor_say(finding, DOCTOR_WARN,
			   "install the driver's user part (libcuda1); in a container, use the NVIDIA runtime",
			   "driver %s is loaded but libcuda.so.1 is not found", driver);
		return;
	}
	doctor_link(doctor, target, "%s", library);
	if (strncmp(target, "libcuda.so.", 11) == 0 && strchr(target + 11, '.') && strcmp(target + 11, driver) != 0) {
		doctor_say(finding, DOCTOR_WARN, "reboot or reload the driver so that both have the same version",
			   "libcuda is %s but the loaded driver is %s: cuInit may fail", target + 11, driver);
		return;
	}
	doctor_say(finding, DOCTOR_OK, NULL, "driver %s, %s", driver, library);
}

static void check_peer_memory(const struct doctor *doctor, struct doctor_finding *finding)
{
	char version[512];
	bool open_module, peermem, kernel = doctor_kernel(doctor) >= 5012;

	if (!doctor_has_nvidia(doctor) || !doctor_has_rdma(doctor)) {
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "needs a GPU and an RDMA device");
		return;
	}
	doctor_read(doctor, version, sizeof(version), "/proc/driver/nvidia/version");
	open_module = strstr(version, "Open Kernel Module") != NULL;
	peermem = doctor_exists(doctor, "/sys/module/nvidia_peermem") ||
		  doctor_exists(doctor, "/sys/module/nv_peer_mem") ||
		  doctor_exists(doctor, "/sys/module/efa_nv_peermem");
	if (kernel && open_module)
		doctor_say(finding, DOCTOR_OK, NULL, "dmabuf: kernel and open NVIDIA module have it%s",
			   peermem ? "; peer memory module loaded too" : "");
	else if (peermem)
		doctor_say(finding, DOCTOR_OK, NULL, "peer memory module is loaded");
	else
		doctor_say(finding, DOCTOR_WARN,
			   "modprobe nvidia_peermem; or use the open NVIDIA kernel modules on Linux 5.12 or "
			   "later (dmabuf)",
			   "the NIC has no way into GPU memory (%s, no peer memory module): it is staged "
			   "through the host",
			   !kernel ? "kernel before 5.12 has no dmabuf for RDMA"
				   : "the NVIDIA module is not the open one");
}

/* The ACS control word of a bridge: extended capability 13. -1 when it has none or may not be read. */
static int acs_control(const unsigned char *config, size_t bytes)
{
	size_t at = 0x100;

	for (int hops = 0; hops < 64 && at >= 0x100 && at + 8 <= bytes; hops++) {
		unsigned id = config[at] | (unsigned)config[at + 1] << 8;
		size_t next = config[at + 2] >> 4 | (size_t)config[at + 3] << 4;

		if (id == 0x000d)
			return config[at + 6] | config[at + 7] << 8;
		at = next;
	}
	return -1;
}

static void check_acs(const struct doctor *doctor, struct doctor_finding *finding)
{
	enum { REQUEST_REDIRECT = 0x04, COMPLETION_REDIRECT = 0x08 };
	struct doctor_items redirects = { 0 };
	struct doctor_names names;
	size_t readable = 0;

	if (!doctor_has_nvidia(doctor) || !doctor_has_rdma(doctor)) {
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "needs a GPU and an RDMA device");
		return;
	}
	doctor_list(doctor, &names, "/sys/bus/pci/devices");
	for (size_t i = 0; i < names.count; i++) {
		unsigned char *config;
		size_t bytes = 0;
		long class = 0;
		int control;

		if (doctor_read_number(doctor, &class, "/sys/bus/pci/devices/%s/class", names.name[i]) ||
		    class >> 8 != 0x0604)
			continue;
		config = doctor_load(doctor, 4096, &bytes, "/sys/bus/pci/devices/%s/config", names.name[i]);
		readable += config && bytes > 256;
		control = config ? acs_control(config, bytes) : -1;
		if (control >= 0 && control & (REQUEST_REDIRECT | COMPLETION_REDIRECT))
			doctor_add(&redirects, "%s", names.name[i]);
		free(config);
	}
	if (redirects.count)
		doctor_say(finding, DOCTOR_WARN,
			   "turn ACS off in the firmware, or boot with pci=disable_acs_redir=…, where no "
			   "guest needs isolation",
			   "ACS sends GPU-NIC traffic up to the root at %s", doctor_items(&redirects));
	else if (!readable)
		doctor_say(finding, DOCTOR_NOTE, "run weft doctor as root to see it",
			   "bridges' ACS cannot be read by this user");
	else
		doctor_say(finding, DOCTOR_OK, NULL, "no bridge redirects GPU-NIC traffic");
}

static void check_iommu(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct doctor_names units;
	char cmdline[4096];

	doctor_read(doctor, cmdline, sizeof(cmdline), "/proc/cmdline");
	doctor_list(doctor, &units, "/sys/class/iommu");
	if (!units.count)
		doctor_say(finding, DOCTOR_OK, NULL, "no IOMMU is on");
	else if (strstr(cmdline, "iommu=pt") || strstr(cmdline, "iommu.passthrough=1"))
		doctor_say(finding, DOCTOR_OK, NULL, "the IOMMU passes through (%zu unit%s)", units.count,
			   units.count == 1 ? "" : "s");
	else if (!doctor_has_rdma(doctor))
		doctor_say(finding, DOCTOR_OK, NULL, "the IOMMU translates; no RDMA device is affected");
	else
		doctor_say(finding, DOCTOR_WARN, "boot with iommu=pt (or off in the firmware) where no guest needs it",
			   "the IOMMU translates DMA: GPU-NIC traffic detours through the root, registration "
			   "costs more");
}

const struct doctor_check doctor_gpu_checks[] = {
	{ "cuda", "CUDA and the GPU driver", check_cuda },
	{ "gpu-memory", "the NIC's way into GPU memory", check_peer_memory },
	{ "acs", "PCIe access control", check_acs },
	{ "iommu", "IOMMU", check_iommu },
	{ 0 },
};
