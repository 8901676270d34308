/* What the benchmark's numbers and verdicts stand on: the histogram, slot contents, and the choice of slots.
 */
#include "../weft/bench/histogram.h"
#include "../weft/bench/pattern.h"
#include "../weft/bench/slots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void quantiles(void **state)
{
	static struct cmd_histogram histogram;
	cmd_histogram_reset(&histogram);
	assert_int_equal(cmd_histogram_quantile(&histogram, 0.5), 0);
	for (uint64_t i = 1; i <= 100000; i++)
		cmd_histogram_add(&histogram, i);
	for (int percent = 1; percent <= 100; percent++) {
		uint64_t exact = (uint64_t)percent * 1000, got = cmd_histogram_quantile(&histogram, percent / 100.0);
		assert_in_range(got, exact, exact + exact / 128 + 1);
	}
	assert_int_equal(histogram.smallest, 1);
	assert_int_equal(histogram.largest, 100000);
	assert_int_equal(cmd_histogram_quantile(&histogram, 1), 100000);
}

static void extremes(void **state)
{
	static struct cmd_histogram histogram;
	cmd_histogram_reset(&histogram);
	for (unsigned power = 0; power < 64; power++) {
		cmd_histogram_add(&histogram, UINT64_C(1) << power);
		cmd_histogram_add(&histogram, (UINT64_C(1) << power) - 1);
	}
	cmd_histogram_add(&histogram, UINT64_MAX);
	assert_int_equal(cmd_histogram_quantile(&histogram, 1), UINT64_MAX);
	assert_int_equal(cmd_histogram_quantile(&histogram, 0), 0);
	assert_int_equal(histogram.total, 129);
}

static void contents(void **state)
{
	enum { MOST = 200 };
	uint8_t a[MOST], b[MOST];
	for (uint64_t bytes = 0; bytes <= MOST; bytes++) {
		memset(a, 0xaa, sizeof a);
		cmd_pattern_fill(a, bytes, 1, 7);
		for (uint64_t i = bytes; i < MOST; i++)
			assert_int_equal(a[i], 0xaa); /* never past its end */
		assert_int_equal(cmd_pattern_check(a, bytes, 1, 7), bytes);
		for (uint64_t i = 0; i < bytes; i++) {
			a[i] ^= 1;
			assert_int_equal(cmd_pattern_check(a, bytes, 1, 7), i);
			a[i] ^= 1;
		}
	}
	/* Another slot and another seed give other bytes from the first word on. */
	cmd_pattern_fill(a, MOST, 1, 7);
	cmd_pattern_fill(b, MOST, 1, 8);
	assert_memory_not_equal(a, b, 8);
	cmd_pattern_fill(b, MOST, 2, 7);
	assert_memory_not_equal(a, b, 8);
}

/* What is filled and checked in parts is what is filled and checked at once. */
static void parts(void **state)
{
	enum { MOST = 203 };
	uint8_t whole[MOST], pieced[MOST];
	struct cmd_verdict verdict = { 0 };

	cmd_pattern_fill(whole, MOST, 3, 9);
	for (uint64_t part = 8; part < MOST; part += 8) {
		for (uint64_t at = 0; at < MOST; at += part)
			cmd_pattern_fill_part(pieced + at, at, part < MOST - at ? part : MOST - at, 3, 9);
		assert_memory_equal(pieced, whole, MOST);
		for (uint64_t at = 0; at < MOST; at += part)
			assert_true(cmd_pattern_verify_part(whole + at, at, part < MOST - at ? part : MOST - at, 3, 9,
							    1, &verdict));
	}
	assert_int_equal(verdict.checked, 0); /* that is the caller's */
	whole[170] ^= 2;
	assert_false(cmd_pattern_verify_part(whole + 160, 160, MOST - 160, 3, 9, 1, &verdict));
	assert_int_equal(verdict.wrong, 1);
	assert_int_equal(verdict.first_offset, 170);
	assert_int_equal(verdict.wanted ^ verdict.found, 2);
}

static void verdicts(void **state)
{
	enum { SLOT = 100, SLOTS = 8 };
	uint8_t memory[SLOT * SLOTS] = { 0 };
	uint32_t map[SLOTS];
	for (int i = 0; i < SLOTS; i++)
		map[i] = CMD_SLOT_UNTOUCHED;
	map[2] = 5;
	cmd_pattern_fill(memory + 2 * SLOT, SLOT, 9, 5);
	map[3] = CMD_SLOT_UNKNOWN;
	memory[3 * SLOT] = 1;

	struct cmd_verdict verdict = { 0 };
	cmd_pattern_verify(memory, SLOT, 9, map, 100, SLOTS, &verdict);
	assert_int_equal(verdict.checked, SLOTS - 1);
	assert_int_equal(verdict.unknown, 1);
	assert_int_equal(verdict.wrong, 0);

	memory[6 * SLOT + 99] = 3; /* nobody wrote there */
	memory[2 * SLOT + 50] ^= 0x10;
	verdict = (struct cmd_verdict){ 0 };
	cmd_pattern_verify(memory, SLOT, 9, map, 100, SLOTS, &verdict);
	assert_int_equal(verdict.wrong, 2);
	assert_int_equal(verdict.first_slot, 102);
	assert_int_equal(verdict.first_offset, 50);
	assert_int_equal(verdict.first_expected, 5);
	assert_int_equal(verdict.wanted ^ verdict.found, 0x10);
}

/* Lists of lengths that do not divide the total, so that every list crosses the ring's end now and then. */
static void picks(void **state)
{
	enum { TOTAL = 64, LISTS = 6, LENGTH = 7 };
	struct cmd_slots slots;
	uint32_t held[LISTS][LENGTH], source[LENGTH], sorted = 0;
	bool taken[TOTAL] = { false }, seen[TOTAL] = { false }, origin[TOTAL] = { false };

	assert_int_equal(cmd_slots_open(&slots, TOTAL, 42), 0);
	for (uint32_t i = 1; i < TOTAL; i++)
		sorted += slots.ring[i] > slots.ring[i - 1];
	assert_in_range(sorted, TOTAL / 4, TOTAL * 3 / 4);
	for (int round = 0; round < 100000; round++) {
		uint32_t *list = held[round * 5 % LISTS];

		for (int i = 0; round >= LISTS && i < LENGTH; i++)
			taken[list[i]] = false;
		if (round >= LISTS)
			cmd_slots_give(&slots, list, LENGTH);
		cmd_slots_take(&slots, list, LENGTH);
		cmd_slots_sources(&slots, source, LENGTH);
		for (int i = 0; i < LENGTH; i++) {
			assert_in_range(list[i], 0, TOTAL - 1);
			assert_false(taken[list[i]]);
			taken[list[i]] = seen[list[i]] = true;
			assert_in_range(source[i], 0, TOTAL - 1);
			origin[source[i]] = true;
		}
	}
	for (int i = 0; i < TOTAL; i++)
		assert_true(seen[i] && origin[i]);
	for (int i = 0; i < LISTS; i++)
		cmd_slots_give(&slots, held[i], LENGTH);
	assert_int_equal(slots.free, TOTAL);
	cmd_slots_close(&slots);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantiles), cmocka_unit_test(extremes), cmocka_unit_test(contents),
		cmocka_unit_test(parts),     cmocka_unit_test(verdicts), cmocka_unit_test(picks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
