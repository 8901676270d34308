/* config.ports: peers connect only to ports in the range, a used-up range is an error of its own, forbidden ports
 * are skipped, junk is refused. */
#include "support/peer.h"
#include "wire/blob.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PORTS = 3 };

/* Ports that nobody has now, below those that the system assigns by itself. */
static uint16_t free_range(char text[32])
{
	for (uint32_t base = 10000 + (uint32_t)getpid() * 13 % 20000, tries = 0; tries < 1000; tries++, base += PORTS) {
		bool all = base + PORTS < 32768;

		for (uint32_t i = 0; all && i < PORTS * 4; i++) {
			int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
			struct sockaddr_in at = { .sin_family = AF_INET,
						  .sin_port = htons((uint16_t)(base + i % PORTS)),
						  .sin_addr.s_addr = htonl(INADDR_LOOPBACK + i / PORTS) };

			all = !bind(fd, (struct sockaddr *)&at, sizeof(at));
			close(fd);
		}
		if (!all) {
			base = base + 2 * PORTS < 32768 ? base : 10000;
			continue;
		}
		snprintf(text, 32, "%u-%u", base, base + PORTS - 1);
		return (uint16_t)base;
	}
	fail_msg("no free ports");
	return 0;
}

static uint16_t port_of(const struct wf_wire_rail *rail)
{
	struct sockaddr_in address;

	assert_true(rail->address_bytes >= sizeof(address));
	memcpy(&address, rail->address, sizeof(address));
	assert_int_equal(address.sin_family, AF_INET);
	return ntohs(address.sin_port);
}

static void published_in_range(const struct blob *blob, uint16_t low)
{
	struct wf_wire_address address;

	assert_int_equal(wf_blob_unpack_address(blob->data, blob->bytes, &address), 0);
	assert_int_equal(address.count, transport->count);
	for (uint32_t i = 0; i < address.count; i++) {
		assert_true(port_of(&address.rail[i]) >= low);
		assert_true(port_of(&address.rail[i]) < low + PORTS);
	}
}

/* Both sides keep to the range and reach each other. */
static void in_range(void **state)
{
	struct weft_config config = side_config(), effective;
	struct weft_op op = { .size = sizeof(op), .tag = 1 };
	struct side side, other;
	struct weft_event event;
	struct blob ours, theirs;
	weft_peer peer;
	char range[32];
	uint16_t low = free_range(range);

	config.ports = range;
	assert_status(side_open(&side, &config), 0);
	assert_status(side_open(&other, &config), 0);
	effective.size = sizeof(effective);
	assert_status(weft_engine_config(side.engine, &effective, sizeof(effective)), 0);
	assert_string_equal(effective.ports, range);
	address_of(side.engine, &ours);
	address_of(other.engine, &theirs);
	published_in_range(&ours, low);
	published_in_range(&theirs, low);
	op.queue = side.queue;
	assert_status(weft_peer_add(side.engine, theirs.data, theirs.bytes, NULL, &peer), 0);
	assert_status(weft_send(side.engine, peer, 5, "through", 7, &op, NULL), 0);
	assert_status(end_of(&side, 1), 0);
	wait_for_event(&other, WEFT_EVENT_MESSAGE, 5, &event);
	weft_event_release(&event);
	assert_status(side_close(&side), 0);
	assert_status(side_close(&other), 0);
}

/* One engine per port of a rail's address; the port is free again when its engine closes. */
static void used_up(void **state)
{
	struct weft_config config = side_config();
	struct side side[PORTS], more;
	char range[32];

	free_range(range);
	config.ports = range;
	for (int i = 0; i < PORTS; i++)
		assert_status(side_open(&side[i], &config), 0);
	assert_status(side_open(&more, &config), -EADDRINUSE);
	assert_non_null(strstr(weft_strerror(-EADDRINUSE), "port"));
	assert_non_null(weft_error_hint(-EADDRINUSE));
	assert_status(side_close(&side[1]), 0);
	assert_status(side_open(&more, &config), 0);
	assert_status(side_close(&more), 0);
	assert_status(side_close(&side[0]), 0);
	assert_status(side_close(&side[2]), 0);
}

/* Sets whether this thread, and those it starts, may open ports that are reserved for the system. */
static void may_bind_reserved(bool may)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	uint32_t bit = 1u << CAP_NET_BIND_SERVICE;

	assert_int_equal(syscall(SYS_capget, &header, data), 0);
	data[0].effective = may ? data[0].effective | (data[0].permitted & bit) : data[0].effective & ~bit;
	assert_int_equal(syscall(SYS_capset, &header, data), 0);
}

static uint32_t first_unreserved(void)
{
	FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "r");
	uint32_t port = 1024;

	if (file) {
		if (fscanf(file, "%u", &port) != 1)
			port = 1024;
		fclose(file);
	}
	return port;
}

/* A range that begins with forbidden ports is used from the first permitted one. */
static void reserved(void **state)
{
	struct weft_config config = side_config();
	struct wf_wire_address address;
	uint32_t first = first_unreserved();
	struct side side;
	struct blob ours;
	char range[32];

	if (first < PORTS || first > 60000)
		skip();
	config.ports = range;
	may_bind_reserved(false);
	snprintf(range, sizeof(range), "%u-%u", first - 2, first + 100);
	assert_status(side_open(&side, &config), 0);
	address_of(side.engine, &ours);
	assert_int_equal(wf_blob_unpack_address(ours.data, ours.bytes, &address), 0);
	for (uint32_t i = 0; i < address.count; i++)
		assert_in_range(port_of(&address.rail[i]), first, first + 100);
	assert_status(side_close(&side), 0);
	snprintf(range, sizeof(range), "%u-%u", first - 2, first - 1);
	assert_status(side_open(&side, &config), -EACCES);
	may_bind_reserved(true);
}

static void nonsense(void **state)
{
	static const char *const wrong[] = { "",
					     "x",
					     "20000-",
					     "-20000",
					     "20100-20000",
					     "0",
					     "0-5",
					     "70000",
					     "1-65536",
					     "20000-20001-20002",
					     "20000 - 20001",
					     "99999999999999999999" };
	struct weft_config config = side_config();
	struct side side;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		config.ports = wrong[i];
		assert_status(side_open(&side, &config), -EINVAL);
	}
}

/* Transports without ports ignore the range. */
static void without_ports(void **state)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	weft_engine *engine;

	config.provider = "shm";
	config.ports = "20000-20001";
	assert_status(weft_engine_open(&config, &engine, NULL, 0), 0);
	assert_status(weft_engine_close(engine), 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_range), cmocka_unit_test(used_up),       cmocka_unit_test(reserved),
		cmocka_unit_test(nonsense), cmocka_unit_test(without_ports),
	};

	return cmocka_run_group_tests_name("ports", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
