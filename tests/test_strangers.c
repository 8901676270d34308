/*
 * Strangers that connect to an engine's port over tcp and do not speak, or not as a peer does: they come and go, come
 * and stay, and stay while a rail is reset. They get no hold on the process: it gets its descriptors back, its peers
 * are served all the while, and new ones can connect while strangers hold on.
 */
#include "support/peer.h"
#include "support/rest.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES       (4u << 20)
#define PASSED      400
#define STAY        300
#define AT_A_PORT   8
#define SPARE       200 /* descriptors that the attacked process may still open */
#define RUSH        3000
#define SLOW        40
#define HALVES      10
#define DESCRIPTORS 4096 /* listeners have lower ones */

static struct pair pair;
static _Atomic uint32_t closed; /* connections, as this process's log says */
static int stranger[STAY + 64 * AT_A_PORT];
static in_port_t came_to[STAY + 64 * AT_A_PORT]; /* ports of the strangers that came here */

static int open_pair(void **state)
{
	pair_open(&pair, NULL, NULL, BYTES);
	return 0;
}

static void count_closed(void *context, enum weft_log_level level, const char *text)
{
	unsigned count;

	if (sscanf(text, "closed %u connections", &count) == 1)
		atomic_fetch_add(&closed, count);
}

static int open_counting_pair(void **state)
{
	struct weft_config config = side_config();

	config.log = count_closed;
	atomic_store(&closed, 0);
	pair_open(&pair, &config, NULL, BYTES);
	return 0;
}

static int close_pair(void **state)
{
	peer_kill(&pair.there);
	pair_close(&pair);
	return 0;
}

/* "127.0.0.1:4711" of the peer's first rail. */
static struct sockaddr_in door(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct weft_path_info info;
	char *colon;

	assert_status(weft_path_info(pair.here.engine, pair.peer, 0, 0, &info, sizeof(info)), 0);
	colon = strchr(info.address, ':');
	assert_non_null(colon);
	*colon = 0;
	assert_int_equal(inet_pton(AF_INET, info.address, &to.sin_addr), 1);
	to.sin_port = htons((uint16_t)atoi(colon + 1));
	return to;
}

static int come(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)to, sizeof(*to)), 0);
	return fd;
}

static uint64_t descriptors_there(void)
{
	struct answer answer;

	assert_status(peer_try(&pair.there, &(struct command){ .code = COMMAND_USAGE }, NULL, &answer), 0);
	return answer.value[1];
}

static void served(void)
{
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
}

/* Peers that are served meanwhile add only the few descriptors of late paths. */
static void only_its_own(uint64_t before)
{
	uint64_t deadline = now_ns() + LIMIT, now;

	do {
		served();
		now = descriptors_there();
	} while (now > before + 8 && now_ns() < deadline);
	if (now > before + 8)
		fail_msg("%llu descriptors, %llu before", (unsigned long long)now, (unsigned long long)before);
}

static void come_and_go(void **state)
{
	struct sockaddr_in to = door();
	uint64_t before;

	served();
	before = descriptors_there();
	for (int i = 0; i < PASSED; i++) {
		int fd = come(&to);

		if (i % 3 == 1)
			assert_int_equal(send(fd, "GET / HTTP/1.0\r\n\r\n", 1 + (size_t)i % 18, MSG_NOSIGNAL),
					 1 + i % 18);
		close(fd);
		if (i % 20 == 0)
			served();
	}
	only_its_own(before);
}

/* One byte, and later more: libfabric may read the first and never look again. Some leave, some go on for ever. */
static void speak_slowly(void **state)
{
	struct sockaddr_in to = door();
	uint64_t before, now, deadline;

	served();
	before = descriptors_there();
	for (int i = 0; i < SLOW; i++) {
		stranger[i] = come(&to);
		assert_int_equal(send(stranger[i], "x", 1, MSG_NOSIGNAL), 1);
	}
	usleep(50000);
	for (int i = 0; i < SLOW; i++) {
		(void)!send(stranger[i], "y", 1, MSG_NOSIGNAL);
		if (i % 2)
			close(stranger[i]);
	}
	deadline = now_ns() + LIMIT;
	do {
		served();
		for (int i = 0; i < SLOW; i += 2)
			(void)!send(stranger[i], "z", 1, MSG_NOSIGNAL);
		now = descriptors_there();
	} while (now > before + 8 && now_ns() < deadline);
	for (int i = 0; i < SLOW; i += 2)
		close(stranger[i]);
	if (now > before + 8)
		fail_msg("%llu descriptors, %llu before", (unsigned long long)now, (unsigned long long)before);
}

/* The first half of a proper request, and then nothing: waiting for the second half would take for ever. */
static void stop_half_way(void **state)
{
	static const uint8_t header[32] = { 3, 0, 0, 8 }; /* version, type, and the length of the rest */
	struct sockaddr_in to = door();

	served();
	for (int i = 0; i < HALVES; i++) {
		stranger[i] = come(&to);
		assert_int_equal(send(stranger[i], header, sizeof(header), MSG_NOSIGNAL), sizeof(header));
		served();
	}
	for (int i = 0; i < HALVES; i++)
		close(stranger[i]);
	served();
}

/* More than the process has descriptors for. */
static void come_and_stay(void **state)
{
	struct sockaddr_in to = door();
	uint64_t before;
	struct rlimit limit;
	struct weft_config config = side_config();
	struct weft_event event;
	struct side other;
	weft_peer peer;

	served();
	before = descriptors_there();
	assert_int_equal(prlimit(pair.there.pid, RLIMIT_NOFILE, NULL, &limit), 0);
	limit.rlim_cur = before + SPARE;
	assert_int_equal(prlimit(pair.there.pid, RLIMIT_NOFILE, &limit, NULL), 0);
	for (int i = 0; i < STAY; i++) {
		stranger[i] = come(&to);
		if (i % 20 == 0)
			served();
	}
	assert_status(side_open(&other, &config), 0);
	assert_status(weft_peer_add(other.engine, pair.there.address.data, pair.there.address.bytes, NULL, &peer), 0);
	assert_status(side_wait_peer(&other, WEFT_EVENT_PEER_UP, peer, LIMIT, &event), 0);
	weft_event_release(&event);
	only_its_own(before + 8);
	for (int i = 0; i < STAY; i++)
		close(stranger[i]);
	assert_status(side_close(&other), 0);
}

/* Returns the next listening descriptor of this process after this one; -1: none. */
static int next_listener(int fd, struct sockaddr_in *ret_name)
{
	while (++fd < DESCRIPTORS) {
		socklen_t bytes = sizeof(*ret_name), size = sizeof(int);
		int listens = 0;

		if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) && listens &&
		    !getsockname(fd, (struct sockaddr *)ret_name, &bytes) && ret_name->sin_family == AF_INET)
			return fd;
	}
	return -1;
}

/* Some at every port at which this process listens. */
static int come_here(void)
{
	struct sockaddr_in name;
	int count = 0;

	for (int fd = next_listener(2, &name); fd >= 0; fd = next_listener(fd, &name))
		for (int i = 0; i < AT_A_PORT; i++) {
			came_to[count] = name.sin_port;
			stranger[count++] = come(&name);
		}
	assert_true(count >= AT_A_PORT);
	return count;
}

static uint32_t not_accepted_yet(int listener)
{
	struct tcp_info info = { 0 };
	socklen_t bytes = sizeof(info);

	assert_int_equal(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
	return info.tcpi_unacked;
}

/* A rush large enough that libfabric loses some whose descriptors are thousands apart. Each is counted once. */
static void come_in_a_rush(void **state)
{
	struct rlimit limit, before_limit;
	struct sockaddr_in to;
	int listener, before;
	uint64_t deadline;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before_limit), 0);
	limit = before_limit;
	limit.rlim_cur = limit.rlim_max;
	if (limit.rlim_cur < RUSH + 1000)
		skip();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	served();
	before = open_fds();
	listener = next_listener(2, &to);
	assert_true(listener >= 0);
	for (int i = 0; i < RUSH; i++)
		close(come(&to));
	deadline = now_ns() + 2 * LIMIT;
	while ((not_accepted_yet(listener) || open_fds() > before + 8) && now_ns() < deadline)
		served();
	if (open_fds() > before + 8)
		fail_msg("%d descriptors, %d before", open_fds(), before);
	assert_in_range(atomic_load(&closed), 0, RUSH);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before_limit), 0);
}

static bool listens_at(in_port_t port)
{
	struct sockaddr_in name;
	int fd = next_listener(2, &name);

	while (fd >= 0 && name.sin_port != port)
		fd = next_listener(fd, &name);
	return fd >= 0;
}

static bool is_turned_away(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

/* Counts those that came to a port that is now closed. */
static int turned_away(int count, bool away)
{
	int found = 0;

	for (int i = 0; i < count; i++)
		found += !listens_at(came_to[i]) && is_turned_away(stranger[i]) == away;
	return found;
}

/* Uses them up, so that this process cannot open another. */
static int take_descriptors(int *taken, int room)
{
	struct rlimit limit;
	int count = 0;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	taken[count++] = dup(0);
	assert_true(taken[0] >= 0);
	limit.rlim_cur = (rlim_t)taken[0] + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	while (count < room && (taken[count] = dup(0)) >= 0)
		count++;
	assert_int_equal(errno, EMFILE);
	return count;
}

static void give_descriptors(const int *taken, int count, const struct rlimit *limit)
{
	assert_int_equal(setrlimit(RLIMIT_NOFILE, limit), 0);
	for (int i = 0; i < count; i++)
		close(taken[i]);
}

/* Waits until this process has accepted those that came, and libfabric knows them. */
static void wait_for_descriptors(int least)
{
	uint64_t until = now_ns() + LIMIT;

	while (open_fds() < least && now_ns() < until)
		usleep(1000);
	assert_true(open_fds() >= least);
}

/* The endpoint at which they wait is closed: libfabric must not keep them, and then they speak. Also when the
 * process can open nothing. */
static void stay(bool no_descriptors)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, BYTES };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 1, .timeout_ns = 100 * MS };
	struct weft_event event;
	struct rlimit limit;
	int taken[64], taken_count = 0, count, before;
	uint64_t until;

	served();
	before = open_fds();
	count = come_here();
	wait_for_descriptors(before + 2 * count);
	stop_at_rest(pair.there.pid);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (no_descriptors)
		taken_count = take_descriptors(taken, 64);
	for (; op.tag <= 8; op.tag++)
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	assert_status(side_wait(&pair.here, WEFT_EVENT_RAIL_UP, ANY_TAG, LIMIT, &event), 0);
	weft_event_release(&event);
	until = now_ns() + LIMIT;
	while (turned_away(count, true) < AT_A_PORT && now_ns() < until)
		usleep(1000);
	give_descriptors(taken, taken_count, &limit);
	assert_true(turned_away(count, true) >= AT_A_PORT);
	assert_int_equal(turned_away(count, false), 0);
	for (int i = 0; i < count; i++) {
		(void)!send(stranger[i], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
		close(stranger[i]);
	}
	for (uint64_t tag = 1; tag <= 8; tag++)
		end_of(&pair.here, tag);
	kill(pair.there.pid, SIGCONT);
	served();
}

static void stay_while_it_resets(void **state)
{
	stay(false);
}

static void stay_while_it_resets_without_descriptors(void **state)
{
	stay(true);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(come_and_go, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(speak_slowly, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(stop_half_way, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(come_and_stay, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(come_in_a_rush, open_counting_pair, close_pair),
		cmocka_unit_test_setup_teardown(stay_while_it_resets, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(stay_while_it_resets_without_descriptors, open_pair, close_pair),
	};

	return cmocka_run_group_tests_name("strangers", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
