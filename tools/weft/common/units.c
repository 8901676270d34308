/* Numbers with units, read strictly and written for people. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

struct unit {
	const char *name;
	uint64_t factor;
};

/* As dd and the IEC have it: K and KiB are 1024, KB is 1000. */
static const struct unit size_units[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "K", UINT64_C(1) << 10 },
	{ "M", UINT64_C(1) << 20 },
	{ "G", UINT64_C(1) << 30 },
	{ "T", UINT64_C(1) << 40 },
	{ "KiB", UINT64_C(1) << 10 },
	{ "MiB", UINT64_C(1) << 20 },
	{ "GiB", UINT64_C(1) << 30 },
	{ "TiB", UINT64_C(1) << 40 },
	{ "KB", 1000 },
	{ "MB", 1000000 },
	{ "GB", 1000000000 },
	{ "TB", UINT64_C(1000000000000) },
	{ NULL, 0 },
};

static const struct unit duration_units[] = {
	{ "", 1000000000 },
	{ "ns", 1 },
	{ "us", 1000 },
	{ "ms", 1000000 },
	{ "s", 1000000000 },
	{ "m", UINT64_C(60) * 1000000000 },
	{ "min", UINT64_C(60) * 1000000000 },
	{ "h", UINT64_C(3600) * 1000000000 },
	{ NULL, 0 },
};

static const struct unit no_units[] = { { "", 1 }, { NULL, 0 } };

static int find_factor(const struct unit *units, const char *name, uint64_t *ret_factor)
{
	for (const struct unit *unit = units; unit->name; unit++) {
		if (strcasecmp(unit->name, name) == 0) {
			*ret_factor = unit->factor;
			return 0;
		}
	}
	return -EINVAL;
}

/* Digits, perhaps a fraction, a unit, nothing else. A fraction must come out whole: 1.5K is 1536, 1.5 is
 * refused. */
static int parse(const struct unit *units, const char *text, uint64_t *ret_value)
{
	uint64_t whole = 0, fraction = 0, scale = 1, factor, value;
	const char *at = text;

	if (!isdigit((unsigned char)*at))
		return -EINVAL;
	for (; isdigit((unsigned char)*at); at++) {
		if (__builtin_mul_overflow(whole, 10, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*at - '0'), &whole))
			return -ERANGE;
	}
	if (*at == '.') {
		at++;
		if (!isdigit((unsigned char)*at))
			return -EINVAL;
		for (; isdigit((unsigned char)*at); at++) {
			if (scale >= 1000000)
				return -EINVAL;
			scale *= 10;
			fraction = fraction * 10 + (uint64_t)(*at - '0');
		}
	}
	if (find_factor(units, at, &factor) < 0)
		return -EINVAL;
	if (__builtin_mul_overflow(whole, factor, &value))
		return -ERANGE;
	if (fraction) {
		uint64_t part;
		if (__builtin_mul_overflow(fraction, factor, &part))
			return -ERANGE;
		if (part % scale != 0)
			return -EINVAL;
		if (__builtin_add_overflow(value, part / scale, &value))
			return -ERANGE;
	}
	*ret_value = value;
	return 0;
}

int cmd_parse_number(const char *text, uint64_t *ret_value)
{
	return parse(no_units, text, ret_value);
}

int cmd_parse_size(const char *text, uint64_t *ret_bytes)
{
	return parse(size_units, text, ret_bytes);
}

int cmd_parse_duration(const char *text, uint64_t *ret_ns)
{
	return parse(duration_units, text, ret_ns);
}

char *cmd_format_size(uint64_t bytes, char *text, size_t room)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	unsigned unit = 0;
	double value = (double)bytes;

	while (value >= 1024 && unit < sizeof names / sizeof names[0] - 1) {
		value /= 1024;
		unit++;
	}
	if (value == (double)(uint64_t)value)
		snprintf(text, room, "%.0f %s", value, names[unit]);
	else
		snprintf(text, room, "%.2f %s", value, names[unit]);
	return text;
}

char *cmd_format_duration(uint64_t ns, char *text, size_t room)
{
	static const struct unit units[] = { { "s", 1000000000 }, { "ms", 1000000 }, { "us", 1000 }, { "ns", 1 } };
	const struct unit *unit = units;

	while (unit->factor > 1 && ns < unit->factor)
		unit++;
	if (ns % unit->factor == 0)
		snprintf(text, room, "%llu %s", (unsigned long long)(ns / unit->factor), unit->name);
	else
		snprintf(text, room, "%.2f %s", (double)ns / (double)unit->factor, unit->name);
	return text;
}

/* Three digits in the largest of four units, each a thousand of the one before; the last may take more. */
static char *three_digits(double value, const char *const units[4], char *text, size_t room)
{
	unsigned unit = 0;

	while (value >= 999.5 && unit < 3) {
		value /= 1000;
		unit++;
	}
	/* What is counted in the smallest unit is whole. */
	int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
	snprintf(text, room, "%.*f%s", digits, value, units[unit]);
	return text;
}

char *cmd_format_latency(uint64_t ns, char *text, size_t room)
{
	return three_digits((double)ns, (const char *const[]){ " ns", " us", " ms", " s" }, text, room);
}

char *cmd_format_count(double count, char *text, size_t room)
{
	return three_digits(count, (const char *const[]){ "", " thousand", " million", " billion" }, text, room);
}
