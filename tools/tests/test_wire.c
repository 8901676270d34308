/* What comes over the control connection is a stranger's until it is checked: frames, fields and host names.
 */
#include "../weft/bench/bench.h"
#include "../weft/common/net.h"
#include "../weft/common/pack.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

static const struct bench_params good = {
	.op = BENCH_PAGES,
	.verify = true,
	.card = { 2, 0 },
	.slot_bytes = 65536,
	.pages = 64,
	.slots = 4096,
	.depth = 16,
	.seed = 1,
	.timeout_ns = SECOND,
	.rail_limit_ns = SECOND / 10,
	.peer_limit_ns = 2 * SECOND,
	.provider = "tcp",
	.rails = "4",
};

static void params_round_trip(void **state)
{
	uint8_t bytes[8192];
	struct bench_params back;
	int used = bench_params_pack(&good, bytes, sizeof bytes);

	assert_true(used > 0);
	assert_int_equal(bench_params_unpack(bytes, (size_t)used, &back), 0);
	assert_memory_equal(&back, &good, sizeof good);
	/* Every length but the right one is refused, and so is too little room. */
	for (int i = 0; i < used; i++) {
		assert_int_equal(bench_params_unpack(bytes, (size_t)i, &back), -EPROTO);
		assert_int_equal(bench_params_pack(&good, bytes + used, (size_t)i), -ENOBUFS);
	}
	assert_int_equal(bench_params_unpack(bytes, (size_t)used + 1, &back), -EPROTO);
}

static void refuse(struct bench_params params)
{
	uint8_t bytes[8192];
	struct bench_params back;
	int used = bench_params_pack(&params, bytes, sizeof bytes);
	assert_true(used > 0);
	assert_int_equal(bench_params_unpack(bytes, (size_t)used, &back), -EPROTO);
}

static void params_out_of_bounds(void **state)
{
	struct bench_params params = good;
#define WITH(member, is)                                                                                               \
	params = good;                                                                                                 \
	params.member = is;                                                                                            \
	refuse(params)
	WITH(op, BENCH_OPS);
	WITH(op, -1);
	WITH(card[0], BENCH_CARDS_MAX + 1);
	WITH(card[1], UINT32_MAX);
	WITH(slot_bytes, 0);
	WITH(pages, 0);
	WITH(pages, 5000); /* more than there are slots */
	WITH(slots, 0);
	WITH(slots, UINT64_C(1) << 32);
	WITH(slot_bytes, UINT64_MAX / 2); /* overflows */
	WITH(depth, 0);
	WITH(depth, UINT64_C(1) << 40);
	WITH(timeout_ns, 0);
	WITH(depth, 65); /* times its pages more than there are slots */
	params = good;
	memcpy(params.provider, "a\033[2J", 6); /* it may be printed */
	refuse(params);
	params = good;
	params.op = BENCH_SEND; /* of a card's memory */
	refuse(params);
	params.card[0] = 0;
	params.slot_bytes = BENCH_MESSAGE_MAX + 1;
	refuse(params);
}

static void summary_round_trip(void **state)
{
	static struct bench_summary summary, back;
	static uint8_t bytes[CMD_CONTROL_MAX];
	int used;

	summary.ops = 7;
	summary.direct_bytes = 5;
	summary.rails = 2;
	summary.have_result = true;
	summary.result.verdict.checked = 9;
	strcpy(summary.provider, "tcp");
	strcpy(summary.rail[1].name, "eth1");
	summary.rail[1].bytes = 11;
	cmd_histogram_reset(&summary.latency);
	for (uint64_t ns = 1; ns < UINT64_C(1) << 62; ns += ns / 100 + 1) /* every bucket */
		cmd_histogram_add(&summary.latency, ns);
	used = bench_summary_pack(&summary, bytes, sizeof bytes);
	assert_true(used > 0);
	assert_int_equal(bench_summary_unpack(bytes, (size_t)used, &back), 0);
	assert_int_equal(back.ops, 7);
	assert_int_equal(back.direct_bytes, 5);
	assert_int_equal(back.result.verdict.checked, 9);
	assert_string_equal(back.rail[1].name, "eth1");
	assert_memory_equal(&back.latency, &summary.latency, sizeof back.latency);
	for (int i = 0; i < used; i += i < 500 ? 1 : 997)
		assert_int_equal(bench_summary_unpack(bytes, (size_t)i, &back), -EPROTO);
	assert_int_equal(bench_summary_unpack(bytes, (size_t)used + 1, &back), -EPROTO);
}

static void random_bytes(void **state)
{
	static struct bench_summary summary;
	uint8_t bytes[512];
	struct bench_params params;
	struct bench_ready ready;
	struct bench_result result;

	srand(1);
	for (int round = 0; round < 200000; round++) {
		size_t length = (size_t)rand() % sizeof bytes;
		for (size_t i = 0; i < length; i++)
			bytes[i] = (uint8_t)(rand() % 4 ? 0 : rand());
		bench_params_unpack(bytes, length, &params);
		bench_ready_unpack(bytes, length, &ready);
		bench_result_unpack(bytes, length, &result);
		if (round % 16 == 0) /* it clears a histogram each time */
			bench_summary_unpack(bytes, length, &summary);
	}
}

static struct cmd_control left, right;

static int connect_pair(void **state)
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(cmd_control_open(&left, pair[0]), 0);
	assert_int_equal(cmd_control_open(&right, pair[1]), 0);
	return 0;
}

static int disconnect_pair(void **state)
{
	cmd_control_close(&left);
	cmd_control_close(&right);
	return 0;
}

static void frames(void **state)
{
	assert_int_equal(cmd_control_send(&left, CMD_FRAME_MAP, "abc", 3, SECOND), 0);
	assert_int_equal(cmd_control_expect(&right, CMD_FRAME_MAP, SECOND), 0);
	assert_int_equal(right.bytes, 3);
	assert_memory_equal(right.buffer, "abc", 3);
	assert_false(cmd_control_pending(&right));
	assert_int_equal(cmd_control_receive(&right, SECOND / 100), -ETIMEDOUT);
	assert_int_equal(cmd_control_send(&left, CMD_FRAME_MAP, right.buffer, CMD_CONTROL_MAX + 1, SECOND), -EMSGSIZE);
	cmd_control_send(&left, CMD_FRAME_STOP, NULL, 0, SECOND);
	assert_int_equal(cmd_control_expect(&right, CMD_FRAME_MAP, SECOND), -EPROTO);
	cmd_control_send_error(&left, -ENODEV, "no such thing");
	assert_int_equal(cmd_control_expect(&right, CMD_FRAME_MAP, SECOND), -ENODEV);
	assert_string_equal(right.error, "the peer says: no such thing");
	cmd_control_close(&left);
	assert_true(cmd_control_pending(&right));
	assert_int_equal(cmd_control_receive(&right, SECOND), -ECONNRESET);
}

static int raw(uint32_t magic, uint32_t version, uint32_t type, uint32_t length)
{
	uint8_t header[CMD_CONTROL_HEADER];
	struct cmd_pack pack;
	cmd_pack_start(&pack, header, sizeof header);
	cmd_pack_u32(&pack, magic);
	cmd_pack_u32(&pack, version);
	cmd_pack_u32(&pack, type);
	cmd_pack_u32(&pack, length);
	assert_int_equal(write(left.fd, header, sizeof header), sizeof header);
	return cmd_control_receive(&right, SECOND / 20);
}

static void malformed_frames(void **state)
{
	enum { MAGIC = 0x54464557 };
	assert_int_equal(raw(MAGIC, CMD_CONTROL_VERSION, CMD_FRAME_BYE, 0), 0);
	assert_int_equal(raw(MAGIC + 1, CMD_CONTROL_VERSION, CMD_FRAME_BYE, 0), -EPROTO);
	assert_int_equal(raw(MAGIC, CMD_CONTROL_VERSION + 1, CMD_FRAME_BYE, 0), -EPROTONOSUPPORT);
	assert_int_equal(raw(MAGIC, CMD_CONTROL_VERSION, 0, 0), -EPROTO);
	assert_int_equal(raw(MAGIC, CMD_CONTROL_VERSION, CMD_FRAME_LAST + 1, 0), -EPROTO);
	assert_int_equal(raw(MAGIC, CMD_CONTROL_VERSION, CMD_FRAME_MAP, CMD_CONTROL_MAX + 1), -EPROTO);
	assert_int_equal(raw(MAGIC, CMD_CONTROL_VERSION, CMD_FRAME_ERROR, 0), -EPROTO);
	assert_int_equal(raw(MAGIC, CMD_CONTROL_VERSION, CMD_FRAME_MAP, 10), -ETIMEDOUT); /* cut short */
}

static void host_names(void **state)
{
	static const struct {
		const char *text;
		bool bare_port;
		const char *host, *port; /* NULL: refused */
	} cases[] = {
		{ "host", false, "host", "7471" },
		{ "host:80", false, "host", "80" },
		{ "[::1]:80", false, "::1", "80" },
		{ "[fe80::1%eth0]", false, "fe80::1%eth0", "7471" },
		{ "fe80::1", false, "fe80::1", "7471" },
		{ "80", true, "", "80" },
		{ "", true, "", "7471" },
		{ ":80", true, "", "80" },
		{ "10.0.0.1:0", true, "10.0.0.1", "0" },
		{ "80", false, "80", "7471" },
		{ "", false, NULL, NULL },
		{ ":80", false, NULL, NULL },
		{ "host:", false, NULL, NULL },
		{ "host:-1", false, NULL, NULL },
		{ "host:http", false, NULL, NULL },
		{ "[::1", false, NULL, NULL },
		{ "[]", false, NULL, NULL },
		{ "[::1]80", false, NULL, NULL },
		{ "a b", false, NULL, NULL },
		{ "http://host", false, NULL, NULL },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cmd_net_address address;
		int rc = cmd_net_parse(cases[i].text, cases[i].bare_port, &address);
		assert_int_equal(rc, cases[i].host ? 0 : -EINVAL);
		if (rc == 0) {
			assert_string_equal(address.host, cases[i].host);
			assert_string_equal(address.port, cases[i].port);
		}
	}
	static const char *const too_high[] = { "65536", "host:65536", "host:99999999999999999999", "[::1]:99999" };
	for (size_t i = 0; i < sizeof too_high / sizeof too_high[0]; i++) {
		struct cmd_net_address address;
		assert_int_equal(cmd_net_parse(too_high[i], i == 0, &address), -ERANGE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(params_round_trip),
		cmocka_unit_test(params_out_of_bounds),
		cmocka_unit_test(summary_round_trip),
		cmocka_unit_test(random_bytes),
		cmocka_unit_test_setup_teardown(frames, connect_pair, disconnect_pair),
		cmocka_unit_test_setup_teardown(malformed_frames, connect_pair, disconnect_pair),
		cmocka_unit_test(host_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
