/* Paged writes: indices in any order, strides, offsets, pages of every size, many of them, checked page by page. */
#include "support/fixture.h"

#include <stdlib.h>
#include <string.h>

#define BYTES (48u << 20)

const uint64_t pair_bytes = BYTES;
static uint32_t from_index[100000], to_index[100000];

/* 0 to count - 1 in an order that the seed decides. */
static void shuffle(uint32_t *index, uint32_t count, uint64_t seed)
{
	for (uint32_t i = 0; i < count; i++)
		index[i] = i;
	for (uint32_t i = count; i > 1; i--) {
		uint32_t other = (uint32_t)(random_next(&seed) % i), kept = index[i - 1];

		index[i - 1] = index[other];
		index[other] = kept;
	}
}

static uint64_t page_from(const struct weft_write_pages *pages, uint64_t i)
{
	uint64_t stride = pages->from_stride ? pages->from_stride : pages->page_bytes;

	return pages->from_offset + (pages->from_index ? pages->from_index[i] : i) * stride;
}

static uint64_t page_to(const struct weft_write_pages *pages, uint64_t i)
{
	uint64_t stride = pages->to_stride ? pages->to_stride : pages->page_bytes;

	return pages->to_offset + (pages->to_index ? pages->to_index[i] : i) * stride;
}

/*
 * The expected contents of the peer's whole region are built here and compared there by pattern: the source is filled
 * so that page i of the request reads as part i of one pattern.
 */
static void write_and_check(struct weft_write_pages *pages, uint64_t seed)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = seed };
	struct weft_event event;

	pages->from = pair.region;
	pages->to = pair.remote;
	for (uint64_t i = 0; i < pages->count; i++)
		pattern_fill(pair.memory + page_from(pages, i), pages->page_bytes, seed, i * pages->page_bytes);
	assert_status(weft_write_pages(pair.here.engine, pages, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_END, seed, &event);
	assert_status(event.status, 0);
	assert_int_equal(event.bytes, pages->count * pages->page_bytes);
	weft_event_release(&event);
	for (uint64_t i = 0; i < pages->count; i++)
		peer_check_at(&pair.there, pair.number, page_to(pages, i), pages->page_bytes, seed,
			      i * pages->page_bytes);
}

static void random_indices(void **state)
{
	struct weft_write_pages pages = {
		.size = sizeof(pages), .page_bytes = 4096, .count = 500, .from_index = from_index, .to_index = to_index
	};

	shuffle(from_index, 500, 1);
	shuffle(to_index, 500, 2);
	write_and_check(&pages, 11);
}

/* Neither list begins or ends at an aligned address. */
static void long_lists(void **state)
{
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = 64,
					  .count = 8203,
					  .from_index = from_index + 3,
					  .to_index = to_index + 5 };

	shuffle(from_index + 3, (uint32_t)pages.count, 3);
	shuffle(to_index + 5, (uint32_t)pages.count, 4);
	write_and_check(&pages, 23);
}

static void one_side_in_order(void **state)
{
	struct weft_write_pages pages = {
		.size = sizeof(pages), .page_bytes = 1000, .count = 300, .to_index = to_index
	};

	shuffle(to_index, 300, 3);
	write_and_check(&pages, 12);
	pages = (struct weft_write_pages){
		.size = sizeof(struct weft_write_pages), .page_bytes = 1000, .count = 300, .from_index = from_index
	};
	shuffle(from_index, 300, 4);
	write_and_check(&pages, 13);
}

/* Bytes between the pages of the target stay unchanged. */
static void strides_and_offsets(void **state)
{
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = 777,
					  .count = 200,
					  .from_index = from_index,
					  .from_stride = 1024,
					  .from_offset = 333,
					  .to_index = to_index,
					  .to_stride = 2049,
					  .to_offset = 101 };

	shuffle(from_index, 200, 5);
	shuffle(to_index, 200, 6);
	peer_fill(&pair.there, pair.number, 0, 200 * 2049 + 101, 1414);
	write_and_check(&pages, 14);
	peer_check(&pair.there, pair.number, 0, 101, 1414);
	for (uint64_t i = 0; i + 1 < 200; i++) {
		uint64_t gap = 101 + i * 2049 + 777;

		peer_check_at(&pair.there, pair.number, gap, 2049 - 777, 1414, gap);
	}
}

static void no_pages(void **state)
{
	struct weft_write_pages pages = { .size = sizeof(pages), .page_bytes = 4096 };

	peer_fill(&pair.there, pair.number, 0, 4096, 15);
	write_and_check(&pages, 16);
	pages.page_bytes = 0;
	write_and_check(&pages, 17);
	peer_check(&pair.there, pair.number, 0, 4096, 15);
}

static void large_pages(void **state)
{
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = (3u << 20) + 5,
					  .count = 6,
					  .from_index = from_index,
					  .to_index = to_index };

	shuffle(from_index, 6, 7);
	shuffle(to_index, 6, 8);
	write_and_check(&pages, 18);
	pages.page_bytes = (1u << 20) + 1;
	pages.from_stride = 2u << 20;
	pages.to_stride = 3u << 20;
	write_and_check(&pages, 19);
}

/* Runs of neighbours on both sides: fewer writes than pages are posted, and nothing else changes. */
static void neighbours_coalesce(void **state)
{
	struct weft_write_pages pages = {
		.size = sizeof(pages), .page_bytes = 512, .count = 4096, .from_index = from_index, .to_index = to_index
	};
	uint64_t before = 0, after = 0;
	struct weft_rail_info info;

	for (uint32_t i = 0; i < 4096; i++) {
		from_index[i] = i;
		to_index[i] = i / 64 * 128 + i % 64; /* runs of 64, then a hole */
	}
	for (uint32_t i = 0; i < transport->count; i++) {
		assert_status(weft_rail_info(pair.here.engine, i, &info, sizeof(info)), 0);
		before += info.writes;
	}
	peer_fill(&pair.there, pair.number, 0, 64 * 128 * 512, 2020);
	write_and_check(&pages, 20);
	for (uint64_t run = 0; run < 64; run++) {
		uint64_t hole = (run * 128 + 64) * 512;

		peer_check_at(&pair.there, pair.number, hole, 64 * 512, 2020, hole);
	}
	for (uint32_t i = 0; i < transport->count; i++) {
		assert_status(weft_rail_info(pair.here.engine, i, &info, sizeof(info)), 0);
		after += info.writes;
	}
	assert_true(after - before >= 64 / 4); /* up to four runs share an operation where the provider allows it */
	assert_true(after - before < 1024);
}

/* The same target twice: both sources hold the same page, so either order is right. */
static void repeated_source(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 21 };
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = 2048,
					  .count = 64,
					  .from = pair.region,
					  .from_index = from_index,
					  .to = pair.remote };

	for (uint32_t i = 0; i < 64; i++)
		from_index[i] = 3;
	pattern_fill(pair.memory + 3 * 2048, 2048, 21, 0);
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	assert_status(end_of(&pair.here, 21), 0);
	for (uint64_t i = 0; i < 64; i++)
		peer_check(&pair.there, pair.number, i * 2048, 2048, 21);
}

static void ten_thousand(void **state)
{
	enum { COUNT = 10000, PAGE = 4096 };
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = PAGE,
					  .count = COUNT,
					  .from = pair.region,
					  .from_index = from_index,
					  .to = pair.remote,
					  .to_index = to_index };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 22 };

	/* The destination of page i decides its contents: the peer's memory is then one pattern, checked at once. */
	shuffle(from_index, COUNT, 9);
	shuffle(to_index, COUNT, 10);
	for (uint64_t i = 0; i < COUNT; i++)
		pattern_fill(pair.memory + (uint64_t)from_index[i] * PAGE, PAGE, 22, (uint64_t)to_index[i] * PAGE);
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	/* The caller may reuse the arrays at once. */
	memset(from_index, 0xff, sizeof(from_index));
	memset(to_index, 0xff, sizeof(to_index));
	assert_status(end_of(&pair.here, 22), 0);
	peer_check(&pair.there, pair.number, 0, (uint64_t)COUNT * PAGE, 22);
}

/* Several large requests at once take turns and do not mix. */
static void several_at_once(void **state)
{
	enum { REQUESTS = 6, COUNT = 1500, PAGE = 2048 };

	for (uint64_t r = 0; r < REQUESTS; r++) {
		uint64_t base = r * COUNT * PAGE;
		struct weft_write_pages pages = { .size = sizeof(pages),
						  .page_bytes = PAGE,
						  .count = COUNT,
						  .from = pair.region,
						  .from_index = from_index,
						  .from_offset = base,
						  .to = pair.remote,
						  .to_index = to_index,
						  .to_offset = base };
		struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 100 + r };

		shuffle(from_index, COUNT, 20 + r);
		shuffle(to_index, COUNT, 30 + r);
		for (uint64_t i = 0; i < COUNT; i++)
			pattern_fill(pair.memory + base + (uint64_t)from_index[i] * PAGE, PAGE, 23,
				     base + (uint64_t)to_index[i] * PAGE);
		assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	}
	for (uint64_t r = 0; r < REQUESTS; r++)
		assert_status(end_of(&pair.here, 100 + r), 0);
	peer_check(&pair.there, pair.number, 0, REQUESTS * COUNT * PAGE, 23);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_indices),      cmocka_unit_test(one_side_in_order),
		cmocka_unit_test(strides_and_offsets), cmocka_unit_test(no_pages),
		cmocka_unit_test(large_pages),         cmocka_unit_test(neighbours_coalesce),
		cmocka_unit_test(repeated_source),     cmocka_unit_test(ten_thousand),
		cmocka_unit_test(several_at_once),     cmocka_unit_test(long_lists),
	};

	return cmocka_run_group_tests_name("pages", tests, pair_setup, pair_teardown);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
