/* Paged reads: by index at both ends, with strides and offsets, of pages that are cut and of pages that are coalesced. */
#include "support/peer.h"

#include <string.h>

#define BYTES (8u << 20)

static struct pair pair;

static int open_pair(void **state)
{
	pair_open(&pair, NULL, NULL, BYTES);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	return 0;
}

/* Each index once, in another order: seed and count have no common divisor. */
static void shuffle(uint32_t *index, uint32_t count, uint32_t seed)
{
	for (uint32_t i = 0; i < count; i++)
		index[i] = (uint32_t)((uint64_t)i * seed % count);
}

static uint64_t place(const uint32_t *index, uint64_t stride, uint64_t offset, uint64_t i)
{
	return offset + (index ? index[i] : i) * stride;
}

/* Reads, then looks at every page and at what lies around: the peer's memory is a pattern by position. */
static void read_and_check(struct weft_read_pages *pages, uint64_t seed)
{
	uint64_t from_stride = pages->from_stride ? pages->from_stride : pages->page_bytes;
	uint64_t to_stride = pages->to_stride ? pages->to_stride : pages->page_bytes;
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = seed };
	uint8_t *wanted = test_malloc(BYTES), *theirs = test_malloc(BYTES);
	struct weft_event event;

	pages->from = pair.remote;
	pages->to = pair.region;
	peer_fill(&pair.there, pair.number, 0, BYTES, seed);
	pattern_fill(theirs, BYTES, seed, 0);
	memset(pair.memory, 0x5a, BYTES);
	memset(wanted, 0x5a, BYTES);
	for (uint64_t i = 0; i < pages->count; i++)
		memcpy(wanted + place(pages->to_index, to_stride, pages->to_offset, i),
		       theirs + place(pages->from_index, from_stride, pages->from_offset, i), pages->page_bytes);
	assert_status(weft_read_pages(pair.here.engine, pages, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_END, seed, &event);
	assert_status(event.status, 0);
	assert_int_equal(event.bytes, pages->count * pages->page_bytes);
	weft_event_release(&event);
	assert_int_equal(memcmp(pair.memory, wanted, BYTES), 0);
	test_free(theirs);
	test_free(wanted);
}

static void by_index(void **state)
{
	static uint32_t from[500], to[500];
	struct weft_read_pages pages = {
		.size = sizeof(pages), .page_bytes = 4096, .count = 500, .from_index = from, .to_index = to
	};

	shuffle(from, 500, 7);
	shuffle(to, 500, 11);
	read_and_check(&pages, 1);
	pages.from_index = NULL;
	read_and_check(&pages, 2);
	pages.to_index = NULL; /* neighbours on both sides */
	read_and_check(&pages, 3);
}

static void strides_and_offsets(void **state)
{
	static uint32_t from[300];
	struct weft_read_pages pages = { .size = sizeof(pages),
					 .page_bytes = 777,
					 .count = 300,
					 .from_index = from,
					 .from_stride = 1000,
					 .from_offset = 13,
					 .to_stride = 2048,
					 .to_offset = 5 };

	shuffle(from, 300, 7);
	read_and_check(&pages, 4);
}

static void large_and_few(void **state)
{
	static uint32_t to[] = { 1, 0 };
	struct weft_read_pages pages = {
		.size = sizeof(pages), .page_bytes = (3u << 20) + 1, .count = 2, .to_index = to
	};

	read_and_check(&pages, 5);
	pages.count = 0;
	read_and_check(&pages, 6);
}

/* The peer learns of it, as of a read. */
static void fenced(void **state)
{
	struct weft_read_pages pages = {
		.size = sizeof(pages), .page_bytes = 4096, .count = 50, .from = pair.remote, .to = pair.region
	};
	struct weft_op op = {
		.size = sizeof(op), .queue = pair.here.queue, .tag = 7, .notify = WEFT_NOTIFY_FENCED, .notify_tag = 70
	};
	struct peer_event event;

	assert_status(weft_read_pages(pair.here.engine, &pages, &op, NULL), 0);
	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 70, &event);
	assert_status(end_of(&pair.here, 7), 0);
	op.notify = WEFT_NOTIFY_COUNTED;
	assert_status(weft_read_pages(pair.here.engine, &pages, &op, NULL), -EINVAL);
	op.notify = WEFT_NOTIFY_FENCED;
	op.flags = WEFT_CHECKSUM;
	assert_status(weft_read_pages(pair.here.engine, &pages, &op, NULL), -EINVAL);
}

static void refused(void **state)
{
	uint32_t far[] = { 0, BYTES / 4096 };
	struct weft_read_pages pages = {
		.size = sizeof(pages), .page_bytes = 4096, .count = 2, .from = pair.remote, .to = pair.region
	};
	struct blob descriptor;

	pages.from_index = far;
	assert_status(weft_read_pages(pair.here.engine, &pages, NULL, NULL), -ERANGE);
	pages.from_index = NULL;
	pages.to_index = far;
	assert_status(weft_read_pages(pair.here.engine, &pages, NULL, NULL), -ERANGE);
	pages.to_index = NULL;
	pages.to = 12345;
	assert_status(weft_read_pages(pair.here.engine, &pages, NULL, NULL), -ENOENT);
	peer_region(&pair.there, 8192, WEFT_REMOTE_WRITE, &descriptor);
	pages.to = pair.region;
	pages.from = import(&pair.here, pair.peer, &descriptor);
	assert_status(weft_read_pages(pair.here.engine, &pages, NULL, NULL), -EACCES);
	pages.size = 8;
	assert_status(weft_read_pages(pair.here.engine, &pages, NULL, NULL), -EINVAL);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_index),      cmocka_unit_test(strides_and_offsets),
		cmocka_unit_test(large_and_few), cmocka_unit_test(fenced),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests_name("read pages", tests, open_pair, close_pair);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
