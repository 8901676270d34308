/* The fixture and what moves in tests of cards' memory; cards.h says for whom. */
#include "support/cards.h"

#include <stdlib.h>
#include <string.h>

struct pair pair;

/* ---- the fixture ---- */

uint64_t tags = 1000;

int open_pair(void **state)
{
	pair_open(&pair, NULL, NULL, BYTES);
	return 0;
}

/* Whatever a test did, both engines close in time and leave nothing behind, and no call was wrong. */
int close_pair(void **state)
{
	fake_cuda_hold(false);
	fake_cuda_slow(0);
	fake_cuda_lose(false);
	if (pair.there.pid)
		assert_int_equal(peer_tell(&pair.there, COMMAND_CARD, WRONG, 0), 0);
	pair_close(&pair);
	assert_int_equal(card_control(LEFT, 0), 0);
	assert_int_equal(card_control(WRONG, 0), 0);
	assert_int_equal(fake_cuda_depth(), 0);
	return 0;
}

static struct here make_here(enum fake_kind kind, uint64_t bytes, uint32_t access)
{
	struct here here = { .memory = fake_cuda_alloc(0, bytes, kind) };

	assert_status(weft_region_register(pair.here.engine, here.memory, bytes, access, &here.region), 0);
	return here;
}

struct here card_here(enum fake_kind kind, uint64_t bytes)
{
	return make_here(kind, bytes, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ);
}

struct here card_here_only(enum fake_kind kind, uint64_t bytes)
{
	return make_here(kind, bytes, 0);
}

void card_here_free(struct here *here)
{
	assert_status(weft_region_close(pair.here.engine, here->region), 0);
	fake_cuda_free(here->memory);
}

weft_remote card_there(enum fake_kind kind, uint64_t bytes, uint64_t *ret_number)
{
	struct command command = { .code = COMMAND_REGION,
				   .arg = { bytes, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, (uint64_t)kind + 1 } };
	struct answer answer;
	struct blob blob;

	assert_status(peer_try(&pair.there, &command, NULL, &answer), 0);
	*ret_number = answer.value[0];
	peer_blob(&answer, &blob);
	return import(&pair.here, pair.peer, &blob);
}

void fill_card(char *memory, uint64_t bytes, uint64_t seed)
{
	char *pattern = malloc(bytes);

	pattern_fill(pattern, bytes, seed, 0);
	fake_cuda_write(memory, pattern, bytes);
	free(pattern);
}

void check_card(const char *memory, uint64_t bytes, uint64_t seed, uint64_t start)
{
	char *pattern = malloc(bytes);

	fake_cuda_read(memory, pattern, bytes);
	assert_int_equal(pattern_differs(pattern, bytes, seed, start), bytes);
	free(pattern);
}

weft_transfer begin_write(weft_region from, weft_remote to, uint64_t bytes, uint64_t timeout_ns)
{
	struct weft_write write = { sizeof(write), from, 0, to, 0, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags, .timeout_ns = timeout_ns };
	weft_transfer transfer;

	assert_status(weft_write(pair.here.engine, &write, &op, &transfer), 0);
	return transfer;
}

int write_to(weft_region from, uint64_t from_offset, weft_remote to, uint64_t to_offset, uint64_t bytes)
{
	struct weft_write write = { sizeof(write), from, from_offset, to, to_offset, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };
	int error = weft_write(pair.here.engine, &write, &op, NULL);

	return error ? error : end_of(&pair.here, op.tag);
}

int read_from(weft_remote from, uint64_t from_offset, weft_region to, uint64_t to_offset, uint64_t bytes)
{
	struct weft_read read = { sizeof(read), from, from_offset, to, to_offset, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };
	int error = weft_read(pair.here.engine, &read, &op, NULL);

	return error ? error : end_of(&pair.here, op.tag);
}

/* Pages of a size, from card to card and between either and the CPU, both ways. */
void try_pages(struct here *here, weft_remote there, uint64_t number, uint64_t page, bool read)
{
	uint64_t count = BYTES / page / 2;
	uint32_t *near = calloc(count, sizeof(*near)), *far = calloc(count, sizeof(*far));
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };
	char *expected = malloc(page);
	bool card = here->memory != pair.memory;

	for (uint64_t i = 0; i < count; i++) {
		near[i] = (uint32_t)(i * 2 + i % 2);
		far[i] = (uint32_t)(2 * (count - 1 - i));
	}
	if (card)
		fill_card(here->memory, BYTES, page);
	else
		pattern_fill(here->memory, BYTES, page, 0);
	peer_fill(&pair.there, number, 0, BYTES, page + 1);
	if (read) {
		struct weft_read_pages pages = { .size = sizeof(pages),
						 .page_bytes = page,
						 .count = count,
						 .from = there,
						 .from_index = far,
						 .to = here->region,
						 .to_index = near };

		assert_status(weft_read_pages(pair.here.engine, &pages, &op, NULL), 0);
	} else {
		struct weft_write_pages pages = { .size = sizeof(pages),
						  .page_bytes = page,
						  .count = count,
						  .from = here->region,
						  .from_index = near,
						  .to = there,
						  .to_index = far };

		assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	}
	assert_status(end_of(&pair.here, op.tag), 0);
	for (uint64_t i = 0; i < count; i += count / 16 ? count / 16 : 1) {
		if (!read) {
			peer_check_at(&pair.there, number, far[i] * page, page, page, near[i] * page);
			continue;
		}
		if (card)
			fake_cuda_read(here->memory + near[i] * page, expected, page);
		else
			memcpy(expected, here->memory + near[i] * page, page);
		assert_int_equal(pattern_differs(expected, page, page + 1, far[i] * page), page);
	}
	free(near);
	free(far);
	free(expected);
}
