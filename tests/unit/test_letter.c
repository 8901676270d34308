/* Letters of the local rail: what is taken for one, and what is not. */
#include "local/letter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>

static void letters_are_checked(void **state)
{
	struct wf_letter letter = { .magic = WF_LETTER_MAGIC, .version = WF_LETTER_VERSION, .kind = WF_LETTER_OPENED };

	letter.bytes = 4096;
	letter.base = 65536;
	letter.life = 1;
	assert_true(wf_letter_check(&letter, sizeof(letter), 0));
	assert_false(wf_letter_check(&letter, sizeof(letter), 1));
	assert_false(wf_letter_check(&letter, sizeof(letter) - 1, 0));
	letter.base = UINT64_MAX - 100;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
	letter.base = 65536;
	letter.file_bytes = 8192;
	letter.offset = 4096;
	assert_true(wf_letter_check(&letter, sizeof(letter), 1));
	letter.offset = 4097;
	assert_false(wf_letter_check(&letter, sizeof(letter), 1));
	letter.file_bytes = 0;
	letter.status = 5;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
	letter.status = -5;
	assert_true(wf_letter_check(&letter, sizeof(letter), 0));
	letter.kind = 77;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
}

/* A letter about a card's memory: each part names itself, and brings what its way asks for. */
static void letters_of_cards_are_checked(void **state)
{
	const struct wf_letter good = { .magic = WF_LETTER_MAGIC,
					.version = WF_LETTER_VERSION,
					.kind = WF_LETTER_OPENED,
					.base = 65536,
					.bytes = 4096,
					.life = 1,
					.parts = 1,
					.part_bytes = 8192,
					.way = WF_WAY_IPC };
	struct wf_letter letter = good;

	assert_true(wf_letter_check(&letter, sizeof(letter), 0));
	assert_false(wf_letter_check(&letter, sizeof(letter), 1));
	letter.part = 1;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
	letter = good;
	letter.parts = 2;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0)); /* one handle is for one allocation */
	letter.way = WF_WAY_FILE;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
	assert_true(wf_letter_check(&letter, sizeof(letter), 1));
	letter.parts = WF_DEVICE_PARTS + 1;
	assert_false(wf_letter_check(&letter, sizeof(letter), 1));
	letter.parts = WF_DEVICE_PARTS;
	letter.part = WF_DEVICE_PARTS - 1;
	assert_true(wf_letter_check(&letter, sizeof(letter), 1));
	letter.part_bytes = 0;
	assert_false(wf_letter_check(&letter, sizeof(letter), 1));
	letter = good;
	letter.way = WF_WAY_NONE;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
	letter.way = 77;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
	letter = good;
	letter.offset = 8192; /* past its first part */
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
	letter = good;
	letter.file_bytes = 1 << 20; /* a file and a card's memory at once */
	assert_false(wf_letter_check(&letter, sizeof(letter), 1));
	letter = good;
	letter.parts = 0; /* the CPU's, and a way */
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
	letter = good;
	letter.status = -EOPNOTSUPP;
	letter.way = WF_WAY_FILE;
	assert_false(wf_letter_check(&letter, sizeof(letter), 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(letters_are_checked),
		cmocka_unit_test(letters_of_cards_are_checked),
	};

	return cmocka_run_group_tests_name("letter", tests, NULL, NULL);
}
