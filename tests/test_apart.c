/*
 * Peers of this host that the kernel keeps apart from us: another user's, in a pid namespace of their own, in a network namespace of
 * their own. What the kernel does not let us copy goes through mapped memory or over the NICs, and the log says why.
 */
#include "support/netns.h"
#include "support/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES (4u << 20)

static struct pair world;
static char said[1 << 16]; /* what our engine logged */
static int heard = -1;     /* what the peer wrote to its standard error */

static void note(void *context, enum weft_log_level level, const char *text)
{
	size_t used = strlen(said);

	if (used + strlen(text) + 2 < sizeof(said))
		snprintf(said + used, sizeof(said) - used, "%s\n", text);
}

static struct weft_config with_local(void)
{
	struct weft_config config = side_config();

	config.flags = WEFT_WITH_LOCAL;
	config.log = note;
	return config;
}

static uint64_t carried_by(const char *provider)
{
	struct weft_rail_info info;
	uint64_t bytes = 0;

	for (uint32_t i = 0; !weft_rail_info(world.here.engine, i, &info, sizeof(info)); i++)
		if (!strcmp(info.provider, provider))
			bytes += info.bytes;
	return bytes;
}

/* The peer's standard error goes to a file of its own, and its engine's log there. */
static void open_world(const struct transport *far, uint64_t paths)
{
	struct weft_config ours = with_local(), theirs = with_local();
	struct weft_peer_info info = { 0 };
	uint64_t limit = now_ns() + LIMIT;
	int before = dup(2);

	said[0] = 0;
	theirs.rails = far->rails;
	heard = memfd_create("heard", MFD_CLOEXEC);
	assert_true(heard >= 0 && before >= 0);
	setenv("TEST_LOG", "1", 1);
	assert_int_equal(dup2(heard, 2), 2);
	pair_open(&world, &ours, &theirs, BYTES);
	assert_int_equal(dup2(before, 2), 2);
	unsetenv("TEST_LOG");
	close(before);
	while (info.paths < paths && now_ns() < limit) {
		usleep(1000);
		assert_status(weft_peer_info(world.here.engine, world.peer, &info, sizeof(info)), 0);
	}
}

static void close_world(void)
{
	pair_close(&world);
	close(heard);
}

static bool peer_said(const char *text)
{
	static char all[1 << 18];
	ssize_t got = pread(heard, all, sizeof(all) - 1, 0);

	all[got > 0 ? got : 0] = 0;
	return strstr(all, text) != NULL;
}

static void write_goes_by(const char *by, const char *not_by, uint64_t seed)
{
	uint64_t carried = carried_by(by), other = carried_by(not_by);

	pattern_fill(world.memory, BYTES, seed, 0);
	assert_status(pair_write(&world, 0, 0, BYTES), 0);
	peer_check(&world.there, world.number, 0, BYTES, seed);
	assert_true(carried_by(by) - carried >= BYTES);
	assert_true(carried_by(not_by) - other < BYTES / 2); /* greetings, heartbeats */
}

/* The peer's own write to our memory arrives, whichever way it takes. */
static void peer_writes(uint64_t seed)
{
	struct command imported = { .code = COMMAND_IMPORT };
	struct peer_event event;
	struct blob descriptor;
	struct answer answer;

	export_of(world.here.engine, world.region, &descriptor);
	imported.arg[0] = world.back;
	imported.bytes = (uint32_t)descriptor.bytes;
	assert_status(peer_try(&world.there, &imported, descriptor.data, &answer), 0);
	peer_fill(&world.there, world.number, 0, BYTES, seed);
	peer_tell(&world.there, COMMAND_WRITE, world.number, 0, answer.value[0], 0, BYTES, 77, 0);
	peer_wait(&world.there, WEFT_EVENT_END, 77, &event);
	assert_status(event.status, 0);
	assert_int_equal(landed_differs(world.memory, BYTES, seed, 0), BYTES);
}

/* It may not copy to root's memory. Root may copy to its, but would depend on it: the call lasts until its memory is there. */
static void another_user(void **state)
{
	if (geteuid())
		skip();
	setenv("TEST_PEER_UID", "65534", 1);
	open_world(transport, 2);
	unsetenv("TEST_PEER_UID");
	write_goes_by("tcp", "local", 3);
	assert_non_null(strstr(said, "another user's"));
	peer_writes(4);
	assert_true(peer_said("Operation not permitted"));
	close_world();
}

/* Memory that weft allocated is mapped, also by another user. */
static void another_user_maps(void **state)
{
	if (geteuid())
		skip();
	setenv("TEST_PEER_UID", "65534", 1);
	setenv("TEST_ENGINES_MEMORY", "1", 1);
	open_world(transport, 2);
	unsetenv("TEST_PEER_UID");
	write_goes_by("local", "tcp", 5);
	peer_writes(6);
	close_world();
	unsetenv("TEST_ENGINES_MEMORY");
}

/* We see the peer and copy; it does not see us, and cannot name us to the kernel. */
static void another_pid_namespace(void **state)
{
	if (geteuid())
		skip();
	setenv("TEST_PEER_PIDNS", "1", 1);
	open_world(transport, 2);
	unsetenv("TEST_PEER_PIDNS");
	write_goes_by("local", "tcp", 7);
	peer_writes(8);
	assert_true(peer_said("of a pid namespace that we do not see"));
	close_world();
}

/* The name of its socket is known here, and nobody listens. */
static void another_network_namespace(void **state)
{
	static const struct transport near_end = { "link", "tcp", "10.78.0.1", 1 };
	static const struct transport far_end = { "link", "tcp", "10.78.0.2", 1 };
	const struct transport *before = transport;
	char path[64];
	int here, there;

	if (!netns_allowed())
		skip();
	there = netns_make();
	here = netns_make();
	netns_ip("link add a0 type veth peer name b0 netns /proc/%d/fd/%d", (int)getpid(), there);
	netns_ip("addr add 10.78.0.1/24 dev a0");
	netns_ip("link set a0 up");
	netns_enter(there);
	netns_ip("addr add 10.78.0.2/24 dev b0");
	netns_ip("link set b0 up");
	netns_enter(here);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), there);
	setenv("TEST_PEER_NETNS", path, 1);
	transport = &near_end;
	open_world(&far_end, 1);
	unsetenv("TEST_PEER_NETNS");
	write_goes_by("tcp", "local", 9);
	peer_writes(10);
	assert_non_null(strstr(said, "lives in another network namespace"));
	close_world();
	transport = before;
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_user),
		cmocka_unit_test(another_user_maps),
		cmocka_unit_test(another_pid_namespace),
		cmocka_unit_test(another_network_namespace),
	};

	return cmocka_run_group_tests_name("apart", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
