/* The doctor's checks of RDMA NICs: are there any, may we use them, do they run at their rate. */
#include "doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The NICs on PCI that could do RDMA, and what they need. */
static const struct kind {
	long vendor;
	long device, mask; /* of the device id */
	const char *name, *modules, *mend;
} kinds[] = {
	{ 0x1d0f, 0xefa0, 0xfff0, "EFA", "efa", "install the EFA driver (aws-efa-installer), then: modprobe efa" },
	{ 0x15b3, 0, 0, "NVIDIA/Mellanox", "mlx5_ib",
	  "modprobe mlx5_ib ib_uverbs (package rdma-core; older cards: mlx4_ib)" },
	{ 0x14e4, 0x1600, 0xfe00, "Broadcom", "bnxt_re", "modprobe bnxt_re ib_uverbs" },
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* The first PCI device that could do RDMA; NULL when there is none. */
static const struct kind *find_nic(const struct doctor *doctor, char ret_pci[DOCTOR_NAME])
{
	struct doctor_names names;

	doctor_list(doctor, &names, "/sys/bus/pci/devices");
	for (size_t i = 0; i < names.count; i++) {
		long vendor = 0, device = 0, class = 0;

		if (doctor_read_number(doctor, &vendor, "/sys/bus/pci/devices/%s/vendor", names.name[i]) ||
		    doctor_read_number(doctor, &device, "/sys/bus/pci/devices/%s/device", names.name[i]) ||
		    doctor_read_number(doctor, &class, "/sys/bus/pci/devices/%s/class", names.name[i]) ||
		    class >> 16 != 0x02)
			continue;
		for (size_t k = 0; k < KINDS; k++)
			if (vendor == kinds[k].vendor && (device & kinds[k].mask) == kinds[k].device) {
				strcpy(ret_pci, names.name[i]);
				return &kinds[k];
			}
	}
	return NULL;
}

static bool is_wanted(const struct doctor *doctor, const char *device)
{
	char driver[DOCTOR_NAME];

	doctor_link(doctor, driver, "/sys/class/infiniband/%s/device/driver", device);
	switch (doctor->require) {
	case DOCTOR_REQUIRE_EFA:
		return strcmp(driver, "efa") == 0;
	case DOCTOR_REQUIRE_VERBS:
		return strcmp(driver, "efa") != 0;
	default:
		return true;
	}
}

static void check_device(const struct doctor *doctor, struct doctor_finding *finding)
{
	enum doctor_result bad = doctor->require ? DOCTOR_BLOCKS : DOCTOR_WARN;
	const char *wanted = doctor->require == DOCTOR_REQUIRE_EFA     ? "EFA device"
			     : doctor->require == DOCTOR_REQUIRE_VERBS ? "verbs device"
								       : "RDMA device";
	struct doctor_items items = { 0 };
	struct doctor_names names;
	const struct kind *kind;
	char pci[DOCTOR_NAME], driver[DOCTOR_NAME];

	doctor_list(doctor, &names, "/sys/class/infiniband");
	for (size_t i = 0; i < names.count; i++)
		if (is_wanted(doctor, names.name[i]))
			doctor_add(&items, "%s", names.name[i]);
	if (items.count) {
		size_t count = items.count;

		doctor_say(finding, DOCTOR_OK, NULL, "%zu: %s", count, doctor_items(&items));
		return;
	}
	kind = find_nic(doctor, pci);
	if (!kind) {
		doctor_say(finding, bad,
			   "weft runs on tcp and shm here; for RDMA, attach an EFA or InfiniBand/RoCE NIC to "
			   "this host",
			   "no %s, and no NIC on PCI that could be one", wanted);
		return;
	}
	doctor_link(doctor, driver, "/sys/bus/pci/devices/%s/driver", pci);
	if (!doctor_exists(doctor, "/sys/module/%s", kind->modules))
		doctor_say(finding, bad, kind->mend, "no %s: %s NIC at %s, but module %s is not loaded", wanted,
			   kind->name, pci, kind->modules);
	else if (!*driver)
		doctor_say(finding, bad, "dmesg says why the driver refused it; or it is kept by vfio-pci for a guest",
			   "no %s: %s NIC at %s has no driver bound", wanted, kind->name, pci);
	else
		doctor_say(finding, bad, "dmesg says why; in a container, run it in the host's RDMA namespace",
			   "no %s: %s NIC at %s is bound to %s, but /sys/class/infiniband does not show it", wanted,
			   kind->name, pci, driver);
}

static void check_access(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct doctor_items refused = { 0 };
	struct doctor_names names;
	char path[DOCTOR_PATH];
	size_t found = 0;

	if (!doctor_has_rdma(doctor)) {
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "no RDMA device");
		return;
	}
	doctor_list(doctor, &names, "/dev/infiniband");
	for (size_t i = 0; i < names.count; i++) {
		if (strncmp(names.name[i], "uverbs", 6) != 0 ||
		    !doctor_path(doctor, path, "/dev/infiniband/%s", names.name[i]))
			continue;
		found++;
		if (access(path, R_OK | W_OK))
			doctor_add(&refused, "%s", names.name[i]);
	}
	if (!found && !doctor_exists(doctor, "/sys/module/ib_uverbs") &&
	    !doctor_exists(doctor, "/sys/class/infiniband_verbs"))
		doctor_say(finding, DOCTOR_BLOCKS, "modprobe ib_uverbs", "module ib_uverbs is not loaded");
	else if (!found)
		doctor_say(finding, DOCTOR_BLOCKS,
			   "in a container, pass them in: --device=/dev/infiniband (Kubernetes: the device plugin); "
			   "else start udev",
			   "there is no /dev/infiniband/uverbs*");
	else if (refused.count)
		doctor_say(finding, DOCTOR_BLOCKS,
			   "give them mode 0666 by a udev rule (rdma-core ships one), or join the group that "
			   "owns them",
			   "this user may not open %s in /dev/infiniband", doctor_items(&refused));
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%zu of /dev/infiniband/uverbs* can be opened", found);
}

static size_t count_verbs(const struct doctor *doctor)
{
	struct doctor_names names;
	size_t count = 0;

	doctor_list(doctor, &names, "/sys/class/infiniband");
	for (size_t i = 0; i < names.count; i++) {
		char driver[DOCTOR_NAME];

		doctor_link(doctor, driver, "/sys/class/infiniband/%s/device/driver", names.name[i]);
		count += strcmp(driver, "efa") != 0;
	}
	return count;
}

/* libfabric's layer above verbs has receive buffers per connection. Up to 2.6 it uses them after it has freed the connection; a
 * shared queue outlives its connections. docs/lab/verbs.md has the crash and the figures. */
static void check_receives(const struct doctor *doctor, struct doctor_finding *finding)
{
	if (!count_verbs(doctor))
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "no verbs device");
	else if (doctor->shared_receives)
		doctor_say(finding, DOCTOR_OK, NULL, "FI_OFI_RXM_USE_SRX=1");
	else
		doctor_say(finding, DOCTOR_WARN,
			   "export FI_OFI_RXM_USE_SRX=1 FI_OFI_RXM_MSG_RX_SIZE=512 where weft runs over verbs",
			   "receive buffers per connection: libfabric 1.17 to 2.6 may crash when one closes, and each "
			   "takes memory");
}

static double rate_of(const struct doctor *doctor, const char *device)
{
	char text[64];

	return doctor_read(doctor, text, sizeof(text), "/sys/class/infiniband/%s/ports/1/rate", device) > 0
		   ? strtod(text, NULL)
		   : 0;
}

static void check_link(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct doctor_items down = { 0 }, slow = { 0 };
	struct doctor_names names;
	double best = 0;

	doctor_list(doctor, &names, "/sys/class/infiniband");
	if (!names.count) {
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "no RDMA device");
		return;
	}
	for (size_t i = 0; i < names.count; i++) {
		double rate = rate_of(doctor, names.name[i]);

		best = rate > best ? rate : best;
	}
	for (size_t i = 0; i < names.count; i++) {
		char state[64];
		double rate = rate_of(doctor, names.name[i]);

		if (doctor_read(doctor, state, sizeof(state), "/sys/class/infiniband/%s/ports/1/state", names.name[i]) >
			0 &&
		    !strstr(state, "ACTIVE"))
			doctor_add(&down, "%s (%s)", names.name[i], state);
		else if (rate > 0 && rate < best)
			doctor_add(&slow, "%s %g Gbit/s", names.name[i], rate);
	}
	if (down.count) {
		bool all = down.count == names.count;

		doctor_say(finding, all && doctor->require ? DOCTOR_BLOCKS : DOCTOR_WARN,
			   "check cable, switch port and, on InfiniBand, the subnet manager; ip link set DEV "
			   "up for RoCE",
			   "down: %s", doctor_items(&down));
	} else if (slow.count) {
		doctor_say(finding, DOCTOR_WARN,
			   "if they are meant to be equal: check cable, transceiver and the switch port's speed",
			   "slower than the others' %g Gbit/s: %s", best, doctor_items(&slow));
	} else if (best > 0) {
		doctor_say(finding, DOCTOR_OK, NULL, "%zu up at %g Gbit/s", names.count, best);
	} else {
		doctor_say(finding, DOCTOR_OK, NULL, "%zu up", names.count);
	}
}

static void check_pcie(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct doctor_items reduced = { 0 };
	struct doctor_names names;
	size_t known = 0;

	doctor_list(doctor, &names, "/sys/class/infiniband");
	for (size_t i = 0; i < names.count; i++) {
		char speed[2][64], width[2][64];
		double now, most;
		long lanes, most_lanes;

		doctor_read(doctor, speed[0], 64, "/sys/class/infiniband/%s/device/current_link_speed", names.name[i]);
		doctor_read(doctor, speed[1], 64, "/sys/class/infiniband/%s/device/max_link_speed", names.name[i]);
		doctor_read(doctor, width[0], 64, "/sys/class/infiniband/%s/device/current_link_width", names.name[i]);
		doctor_read(doctor, width[1], 64, "/sys/class/infiniband/%s/device/max_link_width", names.name[i]);
		now = strtod(speed[0], NULL);
		most = strtod(speed[1], NULL);
		lanes = strtol(width[0], NULL, 10);
		most_lanes = strtol(width[1], NULL, 10);
		/* A virtual function says 0, 255 or Unknown: nothing to judge. */
		if (now <= 0 || most <= 0 || lanes <= 0 || most_lanes <= 0 || most_lanes > 32)
			continue;
		known++;
		if (now < most || lanes < most_lanes)
			doctor_add(&reduced, "%s %g GT/s x%ld of %g GT/s x%ld", names.name[i], now, lanes, most,
				   most_lanes);
	}
	if (!known)
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "no RDMA device reports its PCIe link");
	else if (reduced.count)
		doctor_say(finding, DOCTOR_WARN,
			   "reseat the card, use a slot with all lanes, or set the slot's generation in the "
			   "firmware",
			   "below what the card can do: %s", doctor_items(&reduced));
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%zu at full PCIe speed and width", known);
}

/* Both lists as in "0-3,8". */
static bool lists_meet(const char *a, const char *b)
{
	for (const char *x = a; *x; x += *x == ',') {
		char *end;
		unsigned long first = strtoul(x, &end, 10), last = first;

		if (end == x)
			return false;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (const char *y = b; *y; y += *y == ',') {
			char *y_end;
			unsigned long low = strtoul(y, &y_end, 10), high = low;

			if (y_end == y)
				return false;
			if (*y_end == '-')
				high = strtoul(y_end + 1, &y_end, 10);
			if (low <= last && first <= high)
				return true;
			y = y_end;
		}
		x = end;
	}
	return false;
}

static void check_cores(const struct doctor *doctor, struct doctor_finding *finding)
{
	struct doctor_items far = { 0 };
	struct doctor_names names;
	char allowed[1024], near[1024];
	size_t known = 0;

	doctor_field(doctor, "/proc/self/status", "Cpus_allowed_list", allowed, sizeof(allowed));
	doctor_list(doctor, &names, "/sys/class/infiniband");
	for (size_t i = 0; i < names.count; i++) {
		long node = -1;

		if (doctor_read(doctor, near, sizeof(near), "/sys/class/infiniband/%s/device/local_cpulist",
				names.name[i]) <= 0)
			continue;
		doctor_read_number(doctor, &node, "/sys/class/infiniband/%s/device/numa_node", names.name[i]);
		known++;
		if (!lists_meet(near, allowed))
			doctor_add(&far, "%s (NUMA node %ld)", names.name[i], node);
	}
	if (!known || !*allowed)
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "no RDMA device says which cores it is near");
	else if (far.count)
		doctor_say(finding, DOCTOR_WARN,
			   "widen the CPU mask (taskset, numactl, the container's cpuset) or use only near "
			   "NICs (rails)",
			   "this process may run on CPUs %.100s, none near %s", allowed, doctor_items(&far));
	else
		doctor_say(finding, DOCTOR_OK, NULL, "CPUs %.100s reach every NIC's NUMA node", allowed);
}

const struct doctor_check doctor_rdma_checks[] = {
	{ "rdma-device", "RDMA devices", check_device },
	{ "rdma-access", "permission to use them", check_access },
	{ "verbs-receives", "receive buffers over verbs", check_receives },
	{ "nic-link", "links and their rate", check_link },
	{ "nic-pcie", "PCIe speed and width", check_pcie },
	{ "nic-cores", "cores near the NICs", check_cores },
	{ 0 },
};
