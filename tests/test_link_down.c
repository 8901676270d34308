/*
 * A link that is down and comes back, and an address that swallows packets, over real TCP between two network
 * namespaces that the test makes. Nothing tells an application of either: every operation ends by its deadline with the
 * right cause, a witness on this side of the link is served all the while, and when the link is back the peer is found
 * again by itself.
 *
 * test_link_down [SECONDS]   how long the link is down, 20 by default; 77: namespaces are not permitted here
 */
#include "support/netns.h"
#include "support/silent.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct transport near_end = { "link", "tcp", "10.77.0.1", 1 };
static const struct transport far_end = { "link", "tcp", "10.77.0.2", 1 };
static const struct transport no_end = { "link", "tcp", "10.77.0.99", 1 };

static struct silent silent;
static int here, there;
static uint64_t outage_ns = 20 * S;

/* here: a0 10.77.0.1 ======== 10.77.0.2 b0 :there */
static void make_link(void)
{
	there = netns_make();
	here = netns_make();
	netns_ip("link add a0 type veth peer name b0 netns /proc/%d/fd/%d", (int)getpid(), there);
	netns_ip("addr add 10.77.0.1/24 dev a0");
	netns_ip("link set a0 up");
	netns_enter(there);
	netns_ip("addr add 10.77.0.2/24 dev b0");
	netns_ip("link set b0 up");
	netns_enter(here);
}

static int open_all(void **state)
{
	make_link();
	transport = &near_end;
	silent_open(&silent);
	return 0;
}

static int close_all(void **state)
{
	silent_close(&silent);
	return 0;
}

static void set_link(const char *state)
{
	netns_enter(there);
	netns_ip("link set b0 %s", state);
	netns_enter(here);
}

/* The peer lives on the other side of the link; its processes stay there. */
static void connect_across(void)
{
	netns_enter(there);
	transport = &far_end;
	silent_connect(&silent);
	transport = &near_end;
	netns_enter(here);
}

static void link_down(void **state)
{
	uint64_t until;

	connect_across();
	silent_is_back(&silent); /* something was carried, and the windows are as in use */
	set_link("down");
	silent.gone_ns = now_ns();
	until = silent.gone_ns + outage_ns;
	silent_submit(&silent, SHORT);
	silent_submit(&silent, LONG);
	silent_drain(&silent);
	silent_ended(&silent, 0, OP_KINDS, -ETIMEDOUT, 0);
	silent_ended(&silent, OP_KINDS, 2 * OP_KINDS, -EHOSTDOWN, 0);
	silent_is_down(&silent);
	/* Operations submitted from now on are refused at once. */
	silent.operations = 0;
	silent_submit(&silent, SHORT);
	silent_drain(&silent);
	silent_ended(&silent, 0, OP_KINDS, -EHOSTDOWN, 0);
	silent_serve_until(&silent, until);
	set_link("up");
	silent_is_back(&silent);
	silent_disconnect(&silent);
}

/* The address of a peer on a network that is not connected to ours. */
static void blobs_from_elsewhere(struct blob *ret_address, struct blob *ret_descriptor)
{
	int elsewhere = netns_make();

	netns_ip("link add d0 type veth peer name d1");
	netns_ip("addr add 10.77.0.99/24 dev d0");
	netns_ip("link set d0 up");
	netns_ip("link set d1 up");
	transport = &no_end;
	silent_ghost(ret_address, ret_descriptor);
	transport = &near_end;
	netns_enter(here);
	close(elsewhere);
}

/* Nobody refuses: packets to that address are lost. */
static void swallowed(void **state)
{
	struct blob address, descriptor;

	blobs_from_elsewhere(&address, &descriptor);
	netns_ip("neigh add 10.77.0.99 lladdr 02:00:00:00:00:99 dev a0 nud permanent");
	silent_never_answers(&silent, &address, &descriptor);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(swallowed),
		cmocka_unit_test(link_down),
	};

	return netns_allowed() ? cmocka_run_group_tests_name("link-down", tests, open_all, close_all) : 77;
}

int main(int argc, char **argv)
{
	if (argc == 2) {
		outage_ns = strtoull(argv[1], NULL, 0) * S;
		argc = 1;
	}
	return test_main(argc, argv, run);
}
