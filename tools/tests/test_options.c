/* The command's pure parts: units, options, suggestions. */
#include "../weft/common/options.h"
#include "../weft/common/suggest.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 },
		{ "4096", 4096 },
		{ "64K", 65536 },
		{ "64k", 65536 },
		{ "64KiB", 65536 },
		{ "64KB", 64000 },
		{ "1M", 1 << 20 },
		{ "1GiB", 1 << 30 },
		{ "1.5K", 1536 },
		{ "0.5M", 1 << 19 },
		{ "2T", UINT64_C(2) << 40 },
		{ "7B", 7 },
		{ "18446744073709551615", UINT64_MAX },
	};
	static const char *const junk[] = { "",     " 1",  "1 ", "-1", "+1",  "K",     "1X",  "1KK",
					    "0x10", "1.5", "1.", ".5", "1.K", "1KiBs", "1e3", "nan" };
	static const char *const large[] = { "18446744073709551616", "99999999999999999999", "16777216T" };
	uint64_t value = 77;

	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		assert_int_equal(cmd_parse_size(good[i].text, &value), 0);
		assert_int_equal(value, good[i].bytes);
	}
	value = 77;
	for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++)
		assert_int_equal(cmd_parse_size(junk[i], &value), -EINVAL);
	for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
		assert_int_equal(cmd_parse_size(large[i], &value), -ERANGE);
	assert_int_equal(value, 77);
}

static void durations(void **state)
{
	uint64_t ns;
	assert_int_equal(cmd_parse_duration("500ms", &ns), 0);
	assert_int_equal(ns, 500000000);
	assert_int_equal(cmd_parse_duration("2s", &ns), 0);
	assert_int_equal(ns, 2000000000);
	assert_int_equal(cmd_parse_duration("3", &ns), 0);
	assert_int_equal(ns, 3000000000);
	assert_int_equal(cmd_parse_duration("1.5s", &ns), 0);
	assert_int_equal(ns, 1500000000);
	assert_int_equal(cmd_parse_duration("1m", &ns), 0);
	assert_int_equal(ns, 60000000000);
	assert_int_equal(cmd_parse_duration("0.5ns", &ns), -EINVAL);
	assert_int_equal(cmd_parse_duration("2 s", &ns), -EINVAL);
	assert_int_equal(cmd_parse_duration("10000000h", &ns), -ERANGE);
}

static void formats(void **state)
{
	char text[32];
	assert_string_equal(cmd_format_size(65536, text, sizeof text), "64 KiB");
	assert_string_equal(cmd_format_size(0, text, sizeof text), "0 B");
	assert_string_equal(cmd_format_size(1536, text, sizeof text), "1.50 KiB");
	assert_string_equal(cmd_format_duration(500000000, text, sizeof text), "500 ms");
	assert_string_equal(cmd_format_duration(0, text, sizeof text), "0 ns");
	assert_string_equal(cmd_format_duration(1500, text, sizeof text), "1.50 us");
}

static void measures(void **state)
{
	char text[32];
	assert_string_equal(cmd_format_latency(0, text, sizeof text), "0 ns");
	assert_string_equal(cmd_format_latency(850, text, sizeof text), "850 ns");
	assert_string_equal(cmd_format_latency(999, text, sizeof text), "999 ns");
	assert_string_equal(cmd_format_latency(1234, text, sizeof text), "1.23 us");
	assert_string_equal(cmd_format_latency(9996, text, sizeof text), "10.0 us");
	assert_string_equal(cmd_format_latency(45678901, text, sizeof text), "45.7 ms");
	assert_string_equal(cmd_format_latency(999600, text, sizeof text), "1.00 ms");
	assert_string_equal(cmd_format_latency(UINT64_C(12000000000), text, sizeof text), "12.0 s");
	assert_string_equal(cmd_format_count(213.4, text, sizeof text), "213");
	assert_string_equal(cmd_format_count(8012, text, sizeof text), "8.01 thousand");
	assert_string_equal(cmd_format_count(1.5e6, text, sizeof text), "1.50 million");
}

static void distances(void **state)
{
	assert_int_equal(cmd_suggest_distance("bench", "bench"), 0);
	assert_int_equal(cmd_suggest_distance("bnech", "bench"), 1); /* a swap is one slip */
	assert_int_equal(cmd_suggest_distance("benhc", "bench"), 1);
	assert_int_equal(cmd_suggest_distance("ben", "bench"), 2);
	assert_int_equal(cmd_suggest_distance("", "info"), 4);
	assert_int_equal(cmd_suggest_distance("kitten", "sitting"), 3);

	struct cmd_suggest suggest;
	cmd_suggest_start(&suggest, "duratoin");
	cmd_suggest_offer(&suggest, "depth");
	cmd_suggest_offer(&suggest, "duration");
	cmd_suggest_offer(&suggest, "region");
	assert_string_equal(suggest.best, "duration");
	cmd_suggest_start(&suggest, "xyzzy");
	cmd_suggest_offer(&suggest, "duration");
	assert_null(suggest.best);
	cmd_suggest_start(&suggest, "prov");
	cmd_suggest_offer(&suggest, "provider");
	assert_string_equal(suggest.best, "provider");
}

static bool quiet, size_given;
static uint64_t size, count, duration;
static const char *name, *listen_at;
static int op;
static const char *const ops[] = { "write", "read", NULL };
static const struct cmd_usage usage = { "test", "[OPTION]...", "A test.", NULL, NULL, NULL };
static const struct cmd_option options[] = {
	{ .name = "quiet", .type = CMD_FLAG, .value = &quiet, .help = "say less" },
	{ .name = "size",
	  .type = CMD_SIZE,
	  .value = &size,
	  .argument = "SIZE",
	  .help = "bytes",
	  .min = 1,
	  .max = 1 << 20,
	  .given = &size_given },
	{ .name = "count", .type = CMD_NUMBER, .value = &count, .argument = "N", .help = "how many" },
	{ .name = "duration", .type = CMD_DURATION, .value = &duration, .argument = "TIME", .help = "how long" },
	{ .name = "name", .type = CMD_STRING, .value = &name, .argument = "NAME", .help = "a name" },
	{ .name = "listen",
	  .type = CMD_STRING,
	  .value = &listen_at,
	  .argument = "PORT",
	  .help = "listen",
	  .optional = true },
	{ .name = "op", .type = CMD_CHOICE, .value = &op, .argument = "OP", .help = "which", .choices = ops },
	{ 0 },
};

static int parse(const char **operands, int max, int argc, ...)
{
	char *argv[16] = { "test" };
	va_list list;
	va_start(list, argc);
	for (int i = 1; i <= argc; i++)
		argv[i] = va_arg(list, char *);
	va_end(list);
	quiet = size_given = false;
	size = count = duration = 0;
	name = listen_at = NULL;
	op = 0;
	return cmd_options_parse(&usage, options, argc + 1, argv, operands, max);
}

static void accepts(void **state)
{
	const char *operand[2] = { NULL, NULL };
	assert_int_equal(parse(operand, 2, 0), 0);
	assert_int_equal(parse(operand, 2, 5, "--size", "64K", "--quiet", "--op=read", "host"), 0);
	assert_true(quiet);
	assert_true(size_given);
	assert_int_equal(size, 65536);
	assert_int_equal(op, 1);
	assert_string_equal(operand[0], "host");
	assert_int_equal(parse(operand, 2, 3, "--duration=2s", "--", "--size"), 0);
	assert_int_equal(duration, 2000000000);
	assert_string_equal(operand[0], "--size");
	assert_int_equal(parse(operand, 2, 2, "--listen", "--quiet"), 0);
	assert_string_equal(listen_at, "");
	assert_true(quiet);
	assert_int_equal(parse(operand, 2, 2, "--listen", "7471"), 0);
	assert_string_equal(listen_at, "7471");
}

static void refuses(void **state)
{
	const char *operand[1];
	assert_int_equal(parse(operand, 1, 2, "--size", "junk"), -1);
	assert_int_equal(parse(operand, 1, 2, "--size", "0"), -1);
	assert_int_equal(parse(operand, 1, 2, "--size", "2M"), -1);
	assert_int_equal(size, 0);
	assert_int_equal(parse(operand, 1, 1, "--size"), -1);
	assert_int_equal(parse(operand, 1, 2, "--size", "--quiet"), -1);
	assert_int_equal(parse(operand, 1, 2, "--count", "1K"), -1);
	assert_int_equal(parse(operand, 1, 2, "--op", "raed"), -1);
	assert_int_equal(parse(operand, 1, 1, "--quiet=yes"), -1);
	assert_int_equal(parse(operand, 1, 2, "--name", ""), -1);
	assert_int_equal(parse(operand, 1, 1, "--siez"), -1);
	assert_int_equal(parse(operand, 1, 1, "-q"), -1);
	assert_int_equal(parse(operand, 1, 2, "a", "b"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),    cmocka_unit_test(durations), cmocka_unit_test(formats),
		cmocka_unit_test(measures), cmocka_unit_test(distances), cmocka_unit_test(accepts),
		cmocka_unit_test(refuses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
