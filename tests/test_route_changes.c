/*
 * What a change of the kernel's routes costs the worker, on a host where they change all the time. The test counts its
 * questions to the kernel and the sockets it opens for them, with many peers in a network namespace of its own. The
 * engine here has no threads, so that a turn of it is a call. Linked with --wrap, for the counted calls.
 *
 * 77: namespaces are not permitted here
 */
#include "engine/core/engine.h"
#include "engine/peer/peer.h"
#include "support/netns.h"
#include "support/peer.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINKS 4
#define PEERS 24

/* Most questions per turn: what pairing.c asks in one go, plus the rails of a peer whose last path exceeds that,
 * plus the listing of addresses. */
#define MOST (64 + LINKS + 1)

static const struct transport tcp = { "routes", "tcp", NULL, 1 };
static int here, there;
static struct side side, peer[PEERS];
static weft_peer handle[PEERS];

/* ---- counting ---- */

static bool counting; /* counts calls of this thread while it runs the engine here */
static _Thread_local bool ours;
static uint32_t questions, sockets, listings;
static enum mishap { NONE, REFUSED, TWICE } mishap; /* happens to the next question of this thread */

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
ssize_t __real_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags);
int __real_getifaddrs(struct ifaddrs **all);
int __wrap_getifaddrs(struct ifaddrs **all);

int __wrap_socket(int domain, int type, int protocol)
{
	sockets += ours && counting && domain == AF_NETLINK;
	return __real_socket(domain, type, protocol);
}

ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags)
{
	int domain = 0;
	socklen_t length = sizeof(domain);

	if (!ours || !counting || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) || domain != AF_NETLINK)
		return __real_send(fd, data, bytes, flags);
	questions++;
	if (mishap == REFUSED) {
		mishap = NONE;
		errno = ENOBUFS;
		return -1;
	}
	if (mishap == TWICE)
		__real_send(fd, data, bytes, flags);
	mishap = NONE;
	return __real_send(fd, data, bytes, flags);
}

int __wrap_getifaddrs(struct ifaddrs **all)
{
	listings += ours && counting;
	return __real_getifaddrs(all);
}

/* Returns how many questions it asked. */
static uint32_t turn(void)
{
	uint32_t before = questions;
	struct weft_event event;

	counting = true;
	assert_true(weft_engine_progress(side.engine) >= 0);
	counting = false;
	while (weft_queue_poll(side.queue, &event, sizeof(event), 1) > 0)
		weft_event_release(&event);
	return questions - before;
}

/* Makes a change that concerns no rail. */
static void change(void)
{
	static int number;

	netns_ip("link add pod%d type veth peer name eth%d", number, number);
	netns_ip("addr add 10.99.%d.1/24 dev pod%d", number, number);
	netns_ip("link set pod%d up", number);
	number++;
}

/* ---- links ---- */

static void wait_for_links(int netns)
{
	uint64_t deadline = now_ns() + LIMIT;
	uint32_t running = 0;

	netns_enter(netns);
	while (running != LINKS && now_ns() < deadline) {
		struct ifaddrs *all, *at;

		assert_int_equal(getifaddrs(&all), 0);
		for (running = 0, at = all; at; at = at->ifa_next)
			running += at->ifa_addr && at->ifa_addr->sa_family == AF_INET &&
				   (at->ifa_flags & IFF_RUNNING) && !(at->ifa_flags & IFF_LOOPBACK);
		freeifaddrs(all);
		usleep(1000);
	}
	assert_int_equal(running, LINKS);
}

/* here: a<i> 10.77.<i>.1 ======== 10.77.<i>.2 b<i> :there */
static void make_links(void)
{
	transport = &tcp;
	ours = true;
	there = netns_make();
	here = netns_make();
	for (int i = 0; i < LINKS; i++) {
		netns_ip("link add a%d type veth peer name b%d netns /proc/%d/fd/%d", i, i, (int)getpid(), there);
		netns_ip("addr add 10.77.%d.1/24 dev a%d", i, i);
		netns_ip("link set a%d up", i);
		netns_enter(there);
		netns_ip("addr add 10.77.%d.2/24 dev b%d", i, i);
		netns_ip("link set b%d up", i);
		netns_enter(here);
	}
	wait_for_links(there);
	wait_for_links(here);
}

/* ---- many peers ---- */

static struct weft_config small_config(const char *rails)
{
	struct weft_config config = side_config();

	config.rails = rails;
	config.message_frames = 8;
	config.max_workers = 1;
	return config;
}

static void open_here(uint64_t peer_limit_ns)
{
	struct weft_config config = small_config("a0,a1,a2,a3");

	config.flags = WEFT_MANUAL_PROGRESS;
	config.peer_limit_ns = peer_limit_ns;
	netns_enter(here);
	assert_status(side_open(&side, &config), 0);
}

static weft_peer add(struct side *other)
{
	struct blob address;
	weft_peer added;

	address_of(other->engine, &address);
	assert_status(weft_peer_add(side.engine, address.data, address.bytes, NULL, &added), 0);
	return added;
}

static void wait_for_paths(uint32_t paths)
{
	uint64_t deadline = now_ns() + LIMIT;
	uint32_t right = 0;

	while (right < PEERS && now_ns() < deadline) {
		struct weft_peer_info info;

		turn();
		for (right = 0; right < PEERS; right++) {
			assert_status(weft_peer_info(side.engine, handle[right], &info, sizeof(info)), 0);
			if (info.paths != paths)
				break;
		}
	}
	assert_int_equal(right, PEERS);
}

static int open_peers(void **state)
{
	struct weft_config config;

	make_links();
	config = small_config("b0,b1,b2,b3");
	netns_enter(there);
	for (int i = 0; i < PEERS; i++)
		assert_status(side_open(&peer[i], &config), 0);
	open_here(60 * S);
	for (int i = 0; i < PEERS; i++)
		handle[i] = add(&peer[i]);
	wait_for_paths(LINKS);
	return 0;
}

static int close_peers(void **state)
{
	assert_status(side_close(&side), 0);
	for (int i = 0; i < PEERS; i++)
		assert_status(side_close(&peer[i]), 0);
	return 0;
}

/* Every path is judged again, some in each turn, with existing means: no socket is opened for it, and devices are
 * listed once. */
static void some_in_each_turn(void **state)
{
	uint64_t deadline;
	uint32_t most = 0, asked = 0;

	/* Late announcements about the links from when they were made. */
	for (deadline = now_ns() + 3 * S; now_ns() < deadline;)
		turn();
	questions = sockets = listings = 0;
	change();
	for (deadline = now_ns() + LIMIT; questions < PEERS * LINKS && now_ns() < deadline;) {
		asked = turn();
		most = asked > most ? asked : most;
	}
	assert_true(questions >= PEERS * LINKS);
	if (most > MOST || sockets || listings)
		fail_msg("%u questions in a turn, %u sockets and %u listings of all devices", most, sockets, listings);
}

/* A change that concerns a rail reaches every peer, though it takes several turns. */
static void all_are_judged(void **state)
{
	struct weft_path_info info;

	netns_ip("route add 10.77.1.2/32 dev a0");
	wait_for_paths(LINKS - 1);
	assert_status(weft_path_info(side.engine, handle[0], 1, 1, &info, sizeof(info)), 0);
	assert_int_equal(info.state, WEFT_PATH_ELSEWHERE);
	assert_string_equal(info.by, "a0");
	netns_ip("route del 10.77.1.2/32 dev a0");
	wait_for_paths(LINKS);
}

/* A question that is not accepted, and an answer to an old question: the next one goes on a new socket, and the old
 * one is closed. */
static void another_socket(void **state)
{
	struct weft_path_info info;
	int before = open_fds();

	for (enum mishap what = REFUSED; what <= TWICE; what++) {
		mishap = what;
		for (uint32_t i = 0; i < LINKS; i++) {
			sockets = 0;
			counting = true;
			assert_status(weft_path_info(side.engine, handle[0], 0, i, &info, sizeof(info)), 0);
			counting = false;
			assert_int_equal(info.state, i ? WEFT_PATH_ELSEWHERE : WEFT_PATH_UP);
			assert_int_equal(info.by[1], '0' + (int)i);
			assert_int_equal(sockets, i == (what == TWICE));
		}
		assert_int_equal(mishap, NONE);
	}
	assert_int_equal(open_fds(), before);
}

/* ---- one that is gone ---- */

static weft_peer gone;

static const struct wf_path *path_to_gone(uint32_t place)
{
	struct wf_peer *object = wf_handle_get(&side.engine->peers, gone);
	const struct wf_path *path;

	assert_non_null(object);
	path = &object->lane[0]->path[place];
	wf_handle_put(&side.engine->peers, gone); /* the test removes it only at its end */
	return path;
}

/* Grows until it is full, and begins again only when the path is asked anew. */
static uint32_t hellos_to_gone(uint32_t place)
{
	return path_to_gone(place)->tries + path_to_gone(place)->refusals;
}

/* Hellos to it are rare by now, and earlier changes are known. */
static void wait_until_quiet(void)
{
	uint64_t deadline = now_ns() + LIMIT, quiet = now_ns() + 3 * S;
	uint32_t few = 0;

	while ((few < LINKS || now_ns() < quiet) && now_ns() < deadline) {
		turn();
		for (few = 0; few < LINKS && hellos_to_gone(few) >= 8; few++)
			;
	}
	assert_int_equal(few, LINKS);
}

/* Returns which of its paths said hello as if for the first time, one bit each, once all were judged and the wanted
 * ones are among them. */
static uint32_t begun_again(uint32_t wanted)
{
	uint64_t deadline = now_ns() + LIMIT;
	uint32_t again = 0, before[LINKS], judged = 0;

	for (uint32_t i = 0; i < LINKS; i++)
		before[i] = hellos_to_gone(i);
	for (questions = 0; (judged < LINKS || (again & wanted) != wanted) && now_ns() < deadline;) {
		turn();
		for (uint32_t i = 0; i < LINKS; i++)
			again |= (uint32_t)(hellos_to_gone(i) < before[i]) << i;
		judged = questions;
	}
	assert_true(judged >= LINKS);
	return again;
}

static void only_where_it_matters(void **state)
{
	struct weft_config config = small_config("b0,b1,b2,b3");
	struct weft_event event;

	netns_enter(there);
	assert_status(side_open(&peer[0], &config), 0);
	open_here(2 * S);
	gone = add(&peer[0]);
	assert_status(side_close(&peer[0]), 0);
	assert_status(side_wait_peer(&side, WEFT_EVENT_PEER_DOWN, gone, LIMIT, &event), 0);
	weft_event_release(&event);
	wait_until_quiet();
	change();
	assert_int_equal(begun_again(0), 0);
	wait_until_quiet();
	/* The far end of a link goes: its near end no longer runs, though its address and its routes stay. */
	netns_enter(there);
	netns_ip("link set b2 down");
	netns_enter(here);
	assert_int_equal(begun_again(1u << 2), 1u << 2);
	assert_status(side_close(&side), 0);
}

static int run(void)
{
	const struct CMUnitTest many[] = {
		cmocka_unit_test(some_in_each_turn),
		cmocka_unit_test(all_are_judged),
		cmocka_unit_test(another_socket),
	};
	const struct CMUnitTest one[] = { cmocka_unit_test(only_where_it_matters) };
	int failed;

	if (!netns_allowed())
		return 77;
	failed = cmocka_run_group_tests_name("route changes, many peers", many, open_peers, close_peers);
	return failed + cmocka_run_group_tests_name("route changes, one that is gone", one, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
