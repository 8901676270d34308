/* Groups on known machines and on made-up ones: one test per rule of src/topo/rules.c and for the cores. */
#include "check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void p5(void **state)
{
	static const char *const expected[] = {
		"53:00.0 | rdmap79s0 rdmap80s0 rdmap81s0 rdmap82s0 | 0-11 | 1",
		"64:00.0 | rdmap96s0 rdmap97s0 rdmap98s0 rdmap99s0 | 12-23 | 12",
		"75:00.0 | rdmap113s0 rdmap114s0 rdmap115s0 rdmap116s0 | 24-35 | 24",
		"86:00.0 | rdmap130s0 rdmap131s0 rdmap132s0 rdmap133s0 | 36-47 | 36",
		"97:00.0 | rdmap147s0 rdmap148s0 rdmap149s0 rdmap150s0 | 48-59 | 48",
		"a8:00.0 | rdmap164s0 rdmap165s0 rdmap166s0 rdmap167s0 | 60-71 | 60",
		"b9:00.0 | rdmap181s0 rdmap182s0 rdmap183s0 rdmap184s0 | 72-83 | 72",
		"ca:00.0 | rdmap198s0 rdmap199s0 rdmap200s0 rdmap201s0 | 84-95 | 84",
	};
	struct planned planned;

	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", NULL, 0, NULL);
	assert_int_equal(planned.nic_count, 32);
	assert_int_equal(planned.plan->count, 8);
	assert_false(planned.plan->this_host);
	for (size_t i = 0; i < 8; i++) {
		check_group(&planned, i, expected[i]);
		assert_int_equal(planned.plan->groups[i].numa, i / 4);
		assert_int_equal(planned.plan->groups[i].memory, WF_TOPO_MEMORY_GPU);
	}
	check_plan_free(&planned);
}

/* The same for any order of the NICs, by address alone. */
static void p5_backwards(void **state)
{
	struct wf_topo_nic nics[32];
	struct planned planned, again;

	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", NULL, 0, NULL);
	for (size_t n = 0; n < 32; n++) {
		nics[n] = planned.nics[31 - n];
		nics[n].interface = NULL;
	}
	check_plan(&again, TOPOLOGY_DIR "/p5.xml", nics, 32, NULL);
	check_group(&again, 0, "53:00.0 | rdmap79s0 rdmap80s0 rdmap81s0 rdmap82s0 | 0-11 | 1");
	check_group(&again, 7, "ca:00.0 | rdmap198s0 rdmap199s0 rdmap200s0 rdmap201s0 | 84-95 | 84");
	check_plan_free(&again);
	check_plan_free(&planned);
}

static void p5_merged(void **state)
{
	struct wf_topo_options options = { .max_groups = 1 };
	struct planned planned;

	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", NULL, 0, &options);
	assert_int_equal(planned.plan->count, 1);
	assert_int_equal(planned.plan->groups[0].rail_count, 32);
	assert_int_equal(planned.plan->groups[0].gpu_count, 8);
	assert_int_equal(planned.plan->groups[0].core_count, 96);
	assert_int_equal(planned.plan->groups[0].worker, 1);
	assert_int_equal(planned.plan->groups[0].numa, -1);
	check_plan_free(&planned);

	options.max_groups = 2;
	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", NULL, 0, &options);
	assert_int_equal(planned.plan->count, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(planned.plan->groups[i].rail_count, 16);
		assert_int_equal(planned.plan->groups[i].numa, i);
		assert_int_equal(planned.plan->groups[i].core_count, 48);
	}
	check_plan_free(&planned);

	/* Three: one node whole, the other in halves; no group spans both. */
	options.max_groups = 3;
	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", NULL, 0, &options);
	assert_int_equal(planned.plan->count, 3);
	for (size_t i = 0; i < 3; i++)
		assert_true(planned.plan->groups[i].numa >= 0);
	check_plan_free(&planned);
}

static void check_family(const char *xml, size_t nics, size_t rails_a_group)
{
	struct planned planned;

	check_plan(&planned, xml, NULL, 0, NULL);
	assert_int_equal(planned.nic_count, nics);
	assert_int_equal(planned.plan->count, 8);
	for (size_t i = 0; i < 8; i++) {
		assert_int_equal(planned.plan->groups[i].gpu_count, 1);
		assert_int_equal(planned.plan->groups[i].rail_count, rails_a_group);
		assert_int_equal(planned.plan->groups[i].core_count, 12);
	}
	check_plan_free(&planned);
}

static void p5en(void **state)
{
	struct planned planned;

	check_family(TOPOLOGY_DIR "/p5en.xml", 16, 2);
	check_plan(&planned, TOPOLOGY_DIR "/p5en.xml", NULL, 0, NULL);
	check_group(&planned, 3, "86:00.0 | rdmap130s0 rdmap131s0 | 36-47 | 36");
	check_plan_free(&planned);
}

static void p6_b200(void **state)
{
	struct planned planned;

	check_family(TOPOLOGY_DIR "/p6-b200.xml", 8, 1);
	check_plan(&planned, TOPOLOGY_DIR "/p6-b200.xml", NULL, 0, NULL);
	check_group(&planned, 4, "97:00.0 | rdmap147s0 | 48-59 | 48");
	check_plan_free(&planned);
}

static void p6_b300(void **state)
{
	check_family(TOPOLOGY_DIR "/p6-b300.xml", 16, 2);
}

/* One socket, a screen, Wi-Fi, and interfaces that are nowhere: one group by NUMA node. */
static void laptop(void **state)
{
	const struct wf_topo_nic nics[] = { { .name = "docker0" },
					    { .name = "wlp2s0", .interface = "wlp2s0" },
					    { .name = "lo" } };
	struct machine machine;
	struct planned planned;

	machine_start(&machine, 1, 4, 2);
	machine_socket(&machine, 0);
	machine_root(&machine, 0, 2);
	machine_pci(&machine, 0, 0x0300, 0x8086, 0x9a49);
	machine_bridge(&machine, 0, 2, 2);
	machine_net(&machine, 2, "wlp2s0");
	machine_end(&machine);
	machine_end(&machine);
	machine_socket_end(&machine);
	check_plan(&planned, machine_finish(&machine), nics, 3, NULL);
	assert_int_equal(planned.plan->count, 1);
	check_group(&planned, 0, "| wlp2s0 docker0 lo | 0-3 | 1");
	assert_int_equal(planned.plan->groups[0].memory, WF_TOPO_MEMORY_NUMA);
	check_plan_free(&planned);
	machine_free(&machine);
}

/* Only nodes with NICs get a group, which has only that node's cores. */
static void nics_on_one_socket(void **state)
{
	struct machine machine;
	struct planned planned;

	machine_start(&machine, 2, 8, 1);
	machine_socket(&machine, 0);
	machine_socket_end(&machine);
	machine_socket(&machine, 1);
	machine_root(&machine, 0x80, 0x90);
	machine_nic(&machine, 0x81, "mlx5_0");
	machine_nic(&machine, 0x82, "mlx5_1");
	machine_end(&machine);
	machine_socket_end(&machine);
	check_plan(&planned, machine_finish(&machine), NULL, 0, NULL);
	assert_int_equal(planned.plan->count, 1);
	check_group(&planned, 0, "| mlx5_0 mlx5_1 | 8-15 | 8");
	assert_int_equal(planned.plan->groups[0].numa, 1);
	assert_int_equal(wf_topo_group_of_numa(planned.plan, 1), 0);
	assert_int_equal(wf_topo_group_of_numa(planned.plan, 0), -ENOENT);
	check_plan_free(&planned);
	machine_free(&machine);
}

/* The third GPU has no NIC under its switch and shares the one on its own socket. */
static void three_gpus_two_nics(void **state)
{
	struct machine machine;
	struct planned planned;

	machine_start(&machine, 2, 4, 1);
	for (int s = 0; s < 2; s++) {
		int base = 0x10 + s * 0x40;

		machine_socket(&machine, s);
		machine_root(&machine, base, base + 0x1f);
		machine_bridge(&machine, base, base + 1, base + 8);
		machine_gpu(&machine, base + 2);
		machine_nic(&machine, base + 3, s ? "mlx5_1" : "mlx5_0");
		machine_end(&machine);
		if (s) {
			machine_bridge(&machine, base, base + 9, base + 0x10);
			machine_gpu(&machine, base + 0xa);
			machine_end(&machine);
		}
		machine_end(&machine);
		machine_socket_end(&machine);
	}
	check_plan(&planned, machine_finish(&machine), NULL, 0, NULL);
	assert_int_equal(planned.plan->count, 2);
	check_group(&planned, 0, "12:00.0 | mlx5_0 | 0-3 | 1");
	check_group(&planned, 1, "52:00.0 5a:00.0 | mlx5_1 | 4-7 | 4");
	assert_int_equal(wf_topo_group_of_gpu(planned.topo, planned.plan, "5a:00.0"), 1);
	assert_int_equal(wf_topo_group_of_gpu(planned.topo, planned.plan, "99:00.0"), -ENOENT);
	check_plan_free(&planned);
	machine_free(&machine);
}

/* A GPU shares the NIC on its own root rather than take one from the other socket, which then helps both. */
static void near_before_far(void **state)
{
	struct machine machine;
	struct planned planned;

	machine_start(&machine, 2, 4, 1);
	machine_socket(&machine, 0);
	machine_root(&machine, 0x10, 0x1f);
	machine_nic(&machine, 0x11, "far");
	machine_end(&machine);
	machine_socket_end(&machine);
	machine_socket(&machine, 1);
	machine_root(&machine, 0x40, 0x5f);
	machine_bridge(&machine, 0x40, 0x41, 0x48);
	machine_gpu(&machine, 0x42);
	machine_nic(&machine, 0x43, "near");
	machine_end(&machine);
	machine_bridge(&machine, 0x40, 0x49, 0x4f);
	machine_gpu(&machine, 0x4a);
	machine_end(&machine);
	machine_end(&machine);
	machine_socket_end(&machine);
	check_plan(&planned, machine_finish(&machine), NULL, 0, NULL);
	assert_int_equal(planned.plan->count, 1);
	check_group(&planned, 0, "42:00.0 4a:00.0 | near far | 4-7 | 4");
	assert_string_equal(
	    planned.plan->groups[0].reason,
	    "1 NIC near GPUs 42:00.0, 4a:00.0: they meet at PCI switch 40:01.0; 1 NIC from further away; "
	    "a GPU without a NIC of its own shares them; 4 cores");
	check_plan_free(&planned);
	machine_free(&machine);
}

static void no_pci(void **state)
{
	const struct wf_topo_nic nics[] = { { .name = "eth0" },
					    { .name = "eth1", .has_pci = true, .pci = { .bus = 5 } } };
	struct machine machine;
	struct planned planned;

	machine_start(&machine, 2, 2, 1);
	machine_socket(&machine, 0);
	machine_socket_end(&machine);
	machine_socket(&machine, 1);
	machine_socket_end(&machine);
	check_plan(&planned, machine_finish(&machine), nics, 2, NULL);
	assert_int_equal(planned.plan->count, 1);
	check_group(&planned, 0, "| eth0 eth1 | 0-1 | 1");
	check_plan_free(&planned);
	check_plan(&planned, machine.path, NULL, 0, NULL);
	assert_int_equal(planned.nic_count, 0);
	assert_int_equal(planned.plan->count, 0);
	check_plan_free(&planned);
	machine_free(&machine);
}

/* Two CPUs of a p5: every worker shares the one that is not core 0, including those of the far socket. */
static void two_cores(void **state)
{
	const struct wf_topo_options options = { .allowed_cpus = "0-1" };
	struct planned planned;

	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", NULL, 0, &options);
	assert_int_equal(planned.plan->count, 8);
	for (size_t i = 0; i < 8; i++) {
		assert_int_equal(planned.plan->groups[i].core_count, 1);
		assert_int_equal(planned.plan->groups[i].worker, 1);
	}
	assert_non_null(strstr(planned.plan->groups[7].reason, "no core of its NUMA node is allowed"));
	check_plan_free(&planned);
}

static void one_core(void **state)
{
	const struct wf_topo_options options = { .allowed_cpus = "0" };
	struct planned planned;

	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", NULL, 0, &options);
	for (size_t i = 0; i < planned.plan->count; i++)
		assert_int_equal(planned.plan->groups[i].worker, 0);
	check_plan_free(&planned);
}

/* A core whose first thread is forbidden is used by its second; thread 96 of core 0 is core 0. */
static void second_threads(void **state)
{
	const struct wf_topo_options options = { .allowed_cpus = "96-191", .max_groups = 2 };
	struct planned planned;

	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", NULL, 0, &options);
	assert_int_equal(planned.plan->groups[0].core_count, 48);
	assert_int_equal(planned.plan->groups[0].cores[0], 96);
	assert_int_equal(planned.plan->groups[0].worker, 97);
	assert_int_equal(planned.plan->groups[1].worker, 144);
	check_plan_free(&planned);
}

static void bad_cpus(void **state)
{
	static const char *const bad[] = { "",     "a",  "1-",   "-1", "3-1", "0,,1", "0 1", "0-99999999999",
					   "1000", "0,", "65536" };
	struct wf_topo_plan *plan = NULL;
	const struct wf_topo_nic *nics;
	struct wf_topo *topo;
	char error[200];
	size_t count;

	assert_int_equal(wf_topo_open(TOPOLOGY_DIR "/p5.xml", &topo, error, sizeof(error)), 0);
	count = wf_topo_nics(topo, &nics);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct wf_topo_options options = { .allowed_cpus = bad[i] };

		error[0] = '\0';
		assert_int_equal(wf_topo_plan(topo, nics, count, &options, &plan, error, sizeof(error)), -EINVAL);
		assert_non_null(strstr(error, bad[i]));
		assert_null(plan);
		assert_int_equal(wf_topo_plan(topo, nics, count, &options, &plan, NULL, 0), -EINVAL);
	}
	wf_topo_close(topo);
}

/* GPUs and NICs that share only a socket: as many NICs as GPUs, so they are dealt out in PCI order. */
static void dealt(void **state)
{
	static const char *const names[] = { "n0", "n1", "n2", "n3" };
	struct machine machine;
	struct planned planned;

	machine_start(&machine, 1, 8, 1);
	machine_socket(&machine, 0);
	for (int g = 0; g < 2; g++) {
		machine_root(&machine, 0x10 + g * 16, 0x1f + g * 16);
		machine_gpu(&machine, 0x11 + g * 16);
		machine_end(&machine);
	}
	for (int n = 0; n < 4; n++) {
		machine_root(&machine, 0x40 + n * 16, 0x4f + n * 16);
		machine_nic(&machine, 0x41 + n * 16, names[n]);
		machine_end(&machine);
	}
	machine_socket_end(&machine);
	check_plan(&planned, machine_finish(&machine), NULL, 0, NULL);
	assert_int_equal(planned.plan->count, 2);
	check_group(&planned, 0, "11:00.0 | n0 n1 | 0-3 | 1");
	check_group(&planned, 1, "21:00.0 | n2 n3 | 4-7 | 4");
	check_plan_free(&planned);
	machine_free(&machine);
}

/* Under one switch both GPUs may use both NICs: one group. A NIC elsewhere on the socket joins the group with fewer
 * NICs, and one of unknown place the first. */
static void shared_switch_and_strays(void **state)
{
	const struct wf_topo_nic nics[] = {
		{ .name = "far", .has_pci = true, .pci = { .bus = 0x61 } },
		{ .name = "a1", .has_pci = true, .pci = { .bus = 0x15 } },
		{ .name = "a0", .has_pci = true, .pci = { .bus = 0x14 } },
		{ .name = "nowhere" },
		{ .name = "b0", .has_pci = true, .pci = { .bus = 0x33 } },
	};
	struct machine machine;
	struct planned planned;

	machine_start(&machine, 1, 4, 1);
	machine_socket(&machine, 0);
	machine_root(&machine, 0x10, 0x1f);
	machine_bridge(&machine, 0x10, 0x11, 0x1f);
	machine_gpu(&machine, 0x12);
	machine_gpu(&machine, 0x13);
	machine_nic(&machine, 0x14, "a0");
	machine_nic(&machine, 0x15, "a1");
	machine_end(&machine);
	machine_end(&machine);
	machine_root(&machine, 0x30, 0x3f);
	machine_bridge(&machine, 0x30, 0x31, 0x3f);
	machine_gpu(&machine, 0x32);
	machine_nic(&machine, 0x33, "b0");
	machine_end(&machine);
	machine_end(&machine);
	machine_root(&machine, 0x60, 0x6f);
	machine_nic(&machine, 0x61, "far");
	machine_end(&machine);
	machine_socket_end(&machine);
	check_plan(&planned, machine_finish(&machine), nics, 5, NULL);
	assert_int_equal(planned.plan->count, 2);
	check_group(&planned, 0, "12:00.0 13:00.0 | a0 a1 nowhere | 0-1 | 1");
	check_group(&planned, 1, "32:00.0 | b0 far | 2-3 | 2");
	check_plan_free(&planned);
	machine_free(&machine);
}

/* Simulated or namespaced NICs on a GPU host have no place at all: each GPU gets its share. */
static void unplaced_on_gpus(void **state)
{
	struct wf_topo_nic nics[16];
	char names[16][16];
	struct planned planned;

	for (int n = 0; n < 16; n++) {
		snprintf(names[n], sizeof(names[n]), "veth%d", n);
		nics[n] = (struct wf_topo_nic){ .name = names[n] };
	}
	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", nics, 16, NULL);
	assert_int_equal(planned.plan->count, 8);
	check_group(&planned, 5, "a8:00.0 | veth10 veth11 | 60-71 | 60");
	check_plan_free(&planned);
	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", nics, 3, NULL);
	assert_int_equal(planned.plan->count, 1);
	assert_int_equal(planned.plan->groups[0].gpu_count, 8);
	check_plan_free(&planned);
}

/* A BMC's screen, an NVSwitch and an integrated GPU do not count as GPUs. */
static void not_gpus(void **state)
{
	const struct wf_topo_gpu *gpus;
	struct machine machine;
	struct planned planned;

	machine_start(&machine, 1, 2, 1);
	machine_socket(&machine, 0);
	machine_root(&machine, 0, 0xf);
	machine_pci(&machine, 1, 0x0300, 0x1a03, 0x2000);
	machine_pci(&machine, 2, 0x0680, 0x10de, 0x22a3);
	machine_pci(&machine, 3, 0x0300, 0x8086, 0x9a49);
	machine_pci(&machine, 4, 0x0380, 0x1af4, 0x1050);
	machine_nic(&machine, 5, "mlx5_0");
	machine_end(&machine);
	machine_socket_end(&machine);
	check_plan(&planned, machine_finish(&machine), NULL, 0, NULL);
	assert_int_equal(wf_topo_gpus(planned.topo, &gpus), 0);
	assert_int_equal(planned.plan->groups[0].memory, WF_TOPO_MEMORY_NUMA);
	check_plan_free(&planned);
	machine_free(&machine);
}

static unsigned next_random(unsigned *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 16;
}

/* Any machine: check_plan() checks that every NIC has one owner and every worker is among its group's cores. */
static void any_machine(void **state)
{
	for (unsigned seed = 1; seed <= 150; seed++) {
		unsigned random = seed * 7919;
		struct machine machine;
		struct planned planned;
		struct wf_topo_options options = { .max_groups = next_random(&random) % 5 };
		int sockets = 1 + (int)(next_random(&random) % 3), bus = 1;
		char name[16];

		machine_start(&machine, sockets, 1 + (int)(next_random(&random) % 6),
			      1 + (int)(next_random(&random) % 2));
		for (int s = 0; s < sockets; s++) {
			machine_socket(&machine, s);
			for (unsigned root = next_random(&random) % 3; root > 0; root--) {
				machine_root(&machine, bus, bus + 15);
				machine_bridge(&machine, bus, bus + 1, bus + 15);
				for (unsigned g = next_random(&random) % 3; g > 0; g--)
					machine_gpu(&machine, bus + 2 + (int)g);
				for (unsigned n = next_random(&random) % 4; n > 0; n--) {
					snprintf(name, sizeof(name), "nic%d", bus + 8 + (int)n);
					machine_nic(&machine, bus + 8 + (int)n, name);
				}
				machine_end(&machine);
				machine_end(&machine);
				bus += 16;
			}
			machine_socket_end(&machine);
		}
		check_plan(&planned, machine_finish(&machine), NULL, 0, &options);
		if (options.max_groups)
			assert_true(planned.plan->count <= options.max_groups);
		check_plan_free(&planned);
		machine_free(&machine);
	}
}

static void this_host(void **state)
{
	const struct wf_topo_nic nic = { .name = "lo" };
	struct planned planned;

	check_plan(&planned, NULL, &nic, 1, NULL);
	assert_true(planned.plan->this_host);
	assert_true(planned.plan->groups[0].core_count > 0);
	check_plan_free(&planned);
}

static void pci_addresses(void **state)
{
	static const char *const bad[] = { "", "53", "53:00", "g3:00.0", "53:00.0 ", "53:00.", ":53:00.0", "a GPU" };
	struct planned planned;
	char text[WF_TOPO_PCI_BYTES];

	check_plan(&planned, TOPOLOGY_DIR "/p5.xml", NULL, 0, NULL);
	assert_int_equal(wf_topo_group_of_gpu(planned.topo, planned.plan, "64:00.0"), 1);
	assert_int_equal(wf_topo_group_of_gpu(planned.topo, planned.plan, "0000:64:00.0"), 1);
	assert_int_equal(wf_topo_group_of_gpu(planned.topo, planned.plan, "0001:64:00.0"), -ENOENT);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(wf_topo_group_of_gpu(planned.topo, planned.plan, bad[i]), -EINVAL);
	/* Without a topology there is no such GPU, but an address is still told from another word. */
	assert_int_equal(wf_topo_group_of_gpu(NULL, NULL, "64:00.0"), -ENOENT);
	assert_int_equal(wf_topo_group_of_gpu(NULL, NULL, "a GPU"), -EINVAL);
	check_plan_free(&planned);
	assert_string_equal(wf_topo_pci_text((struct wf_topo_pci){ 0, 0x4f, 0x1f, 7 }, text), "4f:1f.7");
	assert_string_equal(wf_topo_pci_text((struct wf_topo_pci){ 0x10001, 0xab, 0, 0 }, text), "10001:ab:00.0");
}

static void cpu_text(void **state)
{
	const uint32_t cpus[] = { 0, 1, 2, 5, 7, 8 };
	char text[32], small[6];

	assert_int_equal(wf_topo_cpus_text(cpus, 6, text, sizeof(text)), 9);
	assert_string_equal(text, "0-2,5,7-8");
	assert_int_equal(wf_topo_cpus_text(cpus, 6, small, sizeof(small)), 9);
	assert_string_equal(small, "0-2,5");
	assert_int_equal(wf_topo_cpus_text(cpus, 0, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	assert_int_equal(wf_topo_cpus_text(cpus, 6, NULL, 0), 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(p5),
		cmocka_unit_test(p5_backwards),
		cmocka_unit_test(p5_merged),
		cmocka_unit_test(p5en),
		cmocka_unit_test(p6_b200),
		cmocka_unit_test(p6_b300),
		cmocka_unit_test(laptop),
		cmocka_unit_test(nics_on_one_socket),
		cmocka_unit_test(three_gpus_two_nics),
		cmocka_unit_test(near_before_far),
		cmocka_unit_test(no_pci),
		cmocka_unit_test(two_cores),
		cmocka_unit_test(one_core),
		cmocka_unit_test(second_threads),
		cmocka_unit_test(bad_cpus),
		cmocka_unit_test(dealt),
		cmocka_unit_test(shared_switch_and_strays),
		cmocka_unit_test(unplaced_on_gpus),
		cmocka_unit_test(not_gpus),
		cmocka_unit_test(any_machine),
		cmocka_unit_test(this_host),
		cmocka_unit_test(pci_addresses),
		cmocka_unit_test(cpu_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
