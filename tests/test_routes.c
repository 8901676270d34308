/*
 * What a rail over tcp reports is what its device carried, by the kernel's own counters, between two network namespaces
 * that the test makes: with one link per rail, with links that swallow everything, and with two links in one network,
 * where the kernel sends by one of them until rules say otherwise.
 *
 * 77: namespaces are not permitted here
 */
#include "support/netns.h"
#include "support/peer.h"

#include <ifaddrs.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES    (4u << 20)
#define WRITE_NS (500 * MS)

static const struct transport tcp = { "routes", "tcp", NULL, 1 };
static int here, there;
static struct side side;
static struct peer other;
static weft_peer handle;
static weft_region region;
static weft_remote remote;
static char memory[BYTES];

/* here: a<i> network<here_host> ======== network<there_host> b<i> :there */
static void link_up(int i, const char *network, int here_host, int there_host, int bits)
{
	netns_enter(here);
	netns_ip("link add a%d type veth peer name b%d netns /proc/%d/fd/%d", i, i, (int)getpid(), there);
	netns_ip("addr add %s%d/%d dev a%d %s", network, here_host, bits, i, bits > 32 ? "nodad" : "");
	netns_ip("link set a%d up", i);
	netns_enter(there);
	netns_ip("addr add %s%d/%d dev b%d %s", network, there_host, bits, i, bits > 32 ? "nodad" : "");
	netns_ip("link set b%d up", i);
	netns_enter(here);
}

static void connect_by(const char *ours, const char *theirs)
{
	struct weft_config config = side_config();
	struct weft_event event;
	struct blob descriptor, address;

	config.rails = theirs;
	netns_enter(there);
	peer_start(&other, &config);
	netns_enter(here);
	peer_region(&other, BYTES, WEFT_REMOTE_WRITE, &descriptor);
	config.rails = ours;
	assert_status(side_open(&side, &config), 0);
	assert_status(weft_region_register(side.engine, memory, BYTES, 0, &region), 0);
	address_of(side.engine, &address);
	assert_status(weft_peer_add(side.engine, other.address.data, other.address.bytes, NULL, &handle), 0);
	peer_add(&other, &address);
	assert_status(side_wait_peer(&side, WEFT_EVENT_PEER_UP, handle, LIMIT, &event), 0);
	weft_event_release(&event);
	remote = import(&side, handle, &descriptor);
}

static void disconnect(void)
{
	assert_status(side_close(&side), 0);
	peer_stop(&other);
}

static void wait_for_paths(uint32_t paths)
{
	uint64_t deadline = now_ns() + LIMIT;
	struct weft_peer_info info;

	do {
		assert_status(weft_peer_info(side.engine, handle, &info, sizeof(info)), 0);
		usleep(1000);
	} while (info.paths != paths && now_ns() < deadline);
	assert_int_equal(info.paths, paths);
}

/* The kernel counts in 32 bits here: only differences are meaningful. */
static uint32_t device_bytes(const char *name)
{
	struct ifaddrs *all, *at;
	uint32_t bytes = 0;

	assert_int_equal(getifaddrs(&all), 0);
	for (at = all; at; at = at->ifa_next)
		if (at->ifa_addr && at->ifa_addr->sa_family == AF_PACKET && !strcmp(at->ifa_name, name))
			bytes = ((struct rtnl_link_stats *)at->ifa_data)->tx_bytes;
	freeifaddrs(all);
	return bytes;
}

struct carried {
	char name[64];
	uint64_t reported; /* by the rail */
	uint32_t counted;  /* by the kernel */
};

static uint32_t look(struct carried *carried)
{
	struct weft_engine_info info;
	struct weft_rail_info rail;

	assert_status(weft_engine_info(side.engine, &info, sizeof(info)), 0);
	for (uint32_t i = 0; i < info.rails; i++) {
		assert_status(weft_rail_info(side.engine, i, &rail, sizeof(rail)), 0);
		snprintf(carried[i].name, sizeof(carried[i].name), "%s", rail.name);
		carried[i].reported = rail.bytes;
		carried[i].counted = device_bytes(rail.name);
	}
	return info.rails;
}

/* Writes for a while; then each rail's device has carried what the rail says, plus headers. */
static void write_and_compare(uint64_t for_ns, struct carried *ret_carried)
{
	struct weft_write write = { sizeof(write), region, 0, remote, 0, BYTES };
	struct weft_op op = { .size = sizeof(op), .queue = side.queue };
	struct carried before[8];
	uint32_t rails = look(before);
	uint64_t until = now_ns() + for_ns;

	while (now_ns() < until) {
		op.tag++;
		assert_status(weft_write(side.engine, &write, &op, NULL), 0);
		assert_status(end_of(&side, op.tag), 0);
	}
	look(ret_carried);
	for (uint32_t i = 0; i < rails; i++) {
		uint64_t reported = ret_carried[i].reported -= before[i].reported;
		uint32_t counted = ret_carried[i].counted -= before[i].counted;

		if (counted < (uint32_t)reported || counted > (uint32_t)(reported + reported / 8) + (1u << 20))
			fail_msg("%s reports %llu bytes, the kernel counted %u", ret_carried[i].name,
				 (unsigned long long)reported, counted);
	}
}

static void state_is(uint32_t rail, uint32_t peer_rail, enum weft_path_state state, const char *by)
{
	struct weft_path_info info;

	assert_status(weft_path_info(side.engine, handle, rail, peer_rail, &info, sizeof(info)), 0);
	assert_int_equal(info.state, state);
	assert_string_equal(info.by, by);
}

static void one_is_up(uint32_t rail, const char *by)
{
	struct weft_path_info info;
	uint32_t up = 0;

	for (uint32_t i = 0; i < 2; i++) {
		assert_status(weft_path_info(side.engine, handle, rail, i, &info, sizeof(info)), 0);
		assert_string_equal(info.by, by);
		up += info.state == WEFT_PATH_UP;
	}
	assert_int_equal(up, 1);
}

static void a_link_each(void **state)
{
	struct carried carried[8];

	connect_by("a0,a1,a2,a3", "b0,b1,b2,b3");
	wait_for_paths(4);
	write_and_compare(WRITE_NS, carried);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(carried[i].reported > 0);
	state_is(1, 1, WEFT_PATH_UP, "a1");
	state_is(1, 0, WEFT_PATH_ELSEWHERE, "a0");
	disconnect();
}

/* In another order, so that no rail's first guess is right. */
static void crossed(void **state)
{
	struct carried carried[8];

	connect_by("a0,a1,a2,a3", "b3,b2,b1,b0");
	wait_for_paths(4);
	write_and_compare(WRITE_NS, carried);
	disconnect();
}

/* Packets that leave by a2 and a3 are lost; packets that come in by them arrive. */
static void two_swallow(void **state)
{
	struct carried carried[8];

	for (int i = 2; i < 4; i++)
		netns_ip("neigh replace 10.77.%d.2 lladdr 02:00:00:00:00:99 dev a%d nud permanent", i, i);
	connect_by("a0,a1,a2,a3", "b0,b1,b2,b3");
	/* Long enough for a rail to try all rails of the peer. */
	write_and_compare(3 * WRITE_NS, carried);
	assert_true(carried[0].reported && carried[1].reported);
	assert_true(!carried[2].reported && !carried[3].reported);
	state_is(2, 2, WEFT_PATH_SILENT, "a2");
	state_is(2, 0, WEFT_PATH_ELSEWHERE, "a0");
	disconnect();
	for (int i = 2; i < 4; i++)
		netns_ip("neigh del 10.77.%d.2 dev a%d", i, i);
}

static void rule_for(int netns, const char *device, const char *source)
{
	netns_enter(netns);
	netns_ip("route add 10.78.0.0/24 dev %s table 100", device);
	netns_ip("rule add from %s table 100", source);
	netns_enter(here);
}

/* Rules give the second rail a route of its own, while the engines run. */
static void one_network(void **state)
{
	struct carried carried[8];

	connect_by("a4,a5", "b4,b5");
	write_and_compare(WRITE_NS, carried);
	assert_int_equal(carried[1].reported, 0);
	state_is(1, 1, WEFT_PATH_ELSEWHERE, "a4");
	rule_for(there, "b5", "10.78.0.3");
	rule_for(here, "a5", "10.78.0.11");
	wait_for_paths(2);
	write_and_compare(WRITE_NS, carried);
	assert_true(carried[0].reported && carried[1].reported);
	/* Without them it has none again. */
	netns_ip("rule del from 10.78.0.11 table 100");
	wait_for_paths(1);
	write_and_compare(WRITE_NS, carried);
	assert_int_equal(carried[1].reported, 0);
	disconnect();
}

static void version_six(void **state)
{
	struct carried carried[8];

	connect_by("a6,a7", "b6,b7");
	wait_for_paths(2);
	write_and_compare(WRITE_NS, carried);
	state_is(0, 0, WEFT_PATH_UP, "a6");
	state_is(0, 1, WEFT_PATH_ELSEWHERE, "a7");
	disconnect();
}

/* Two addresses of one host: the kernel needs no device for that, and says so. */
static void within_one_host(void **state)
{
	int far = there;

	there = here;
	connect_by("a0,a1", "a0,a1");
	wait_for_paths(2);
	one_is_up(0, "lo"); /* either is as good */
	disconnect();
	there = far;
}

/* libfabric lists running links; the kernel reports a new link as running a moment after it is up. */
static void wait_for_links(int netns, uint32_t links)
{
	uint64_t deadline = now_ns() + LIMIT;
	uint32_t running = 0;

	netns_enter(netns);
	while (running != links && now_ns() < deadline) {
		struct ifaddrs *all, *at;

		assert_int_equal(getifaddrs(&all), 0);
		for (running = 0, at = all; at; at = at->ifa_next)
			running += at->ifa_addr && at->ifa_addr->sa_family == AF_PACKET &&
				   (at->ifa_flags & IFF_RUNNING) && !(at->ifa_flags & IFF_LOOPBACK);
		freeifaddrs(all);
		usleep(1000);
	}
	assert_int_equal(running, links);
}

static int open_all(void **state)
{
	char network[16];

	transport = &tcp;
	there = netns_make();
	here = netns_make();
	for (int i = 0; i < 4; i++) {
		snprintf(network, sizeof(network), "10.77.%d.", i);
		link_up(i, network, 1, 2, 24);
	}
	link_up(4, "10.78.0.", 10, 2, 24);
	link_up(5, "10.78.0.", 11, 3, 24);
	link_up(6, "fd77:6::", 1, 2, 64);
	link_up(7, "fd77:7::", 1, 2, 64);
	wait_for_links(there, 8);
	wait_for_links(here, 8);
	return 0;
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_link_each), cmocka_unit_test(crossed),     cmocka_unit_test(two_swallow),
		cmocka_unit_test(one_network), cmocka_unit_test(version_six), cmocka_unit_test(within_one_host),
	};

	return netns_allowed() ? cmocka_run_group_tests_name("routes", tests, open_all, NULL) : 77;
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
