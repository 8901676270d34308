/*
 * Memory of cards (GPUs) on a fake driver: between two processes over the local rail, in every direction and kind; what is refused;
 * and cards that are slow, stuck or lost, peers that die, regions that are taken back in the middle of a copy. The CPU cannot touch
 * a card's memory here: a stray access crashes the test.
 */
#include "fake-cuda/fake.h"
#include "fake-cuda/peer.h"
#include "support/peer.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (4u << 20)
#define KINDS 2 /* FAKE_PLAIN and FAKE_VIRTUAL can be shared */

static const enum fake_kind kinds[KINDS] = { FAKE_PLAIN, FAKE_VIRTUAL };
static struct pair pair;

/* ---- the fixture ---- */

struct here {
	char *memory;
	weft_region region;
};

static uint64_t tags = 1000;

static int open_pair(void **state)
{
	pair_open(&pair, NULL, NULL, BYTES);
	return 0;
}

/* Whatever a test did, both engines close in time and leave nothing behind, and no call was wrong. */
static int close_pair(void **state)
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

static struct here card_here(enum fake_kind kind, uint64_t bytes)
{
	struct here here = { .memory = fake_cuda_alloc(0, bytes, kind) };

	assert_status(weft_region_register(pair.here.engine, here.memory, bytes, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ,
					   &here.region),
		      0);
	return here;
}

static void card_here_free(struct here *here)
{
	assert_status(weft_region_close(pair.here.engine, here->region), 0);
	fake_cuda_free(here->memory);
}

static weft_remote card_there(enum fake_kind kind, uint64_t bytes, uint64_t *ret_number)
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

static void fill_card(char *memory, uint64_t bytes, uint64_t seed)
{
	char *pattern = malloc(bytes);

	pattern_fill(pattern, bytes, seed, 0);
	fake_cuda_write(memory, pattern, bytes);
	free(pattern);
}

static void check_card(const char *memory, uint64_t bytes, uint64_t seed, uint64_t start)
{
	char *pattern = malloc(bytes);

	fake_cuda_read(memory, pattern, bytes);
	assert_int_equal(pattern_differs(pattern, bytes, seed, start), bytes);
	free(pattern);
}

static weft_transfer begin(weft_region from, weft_remote to, uint64_t bytes, uint64_t timeout_ns)
{
	struct weft_write write = { sizeof(write), from, 0, to, 0, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags, .timeout_ns = timeout_ns };
	weft_transfer transfer;

	assert_status(weft_write(pair.here.engine, &write, &op, &transfer), 0);
	return transfer;
}

static int write_to(weft_region from, uint64_t from_offset, weft_remote to, uint64_t to_offset, uint64_t bytes)
{
	struct weft_write write = { sizeof(write), from, from_offset, to, to_offset, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };
	int error = weft_write(pair.here.engine, &write, &op, NULL);

	return error ? error : end_of(&pair.here, op.tag);
}

static int read_from(weft_remote from, uint64_t from_offset, weft_region to, uint64_t to_offset, uint64_t bytes)
{
	struct weft_read read = { sizeof(read), from, from_offset, to, to_offset, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };
	int error = weft_read(pair.here.engine, &read, &op, NULL);

	return error ? error : end_of(&pair.here, op.tag);
}

/* ---- what is carried ---- */

static void cards_reach_each_other(void **state)
{
	for (int mine = 0; mine < KINDS; mine++)
		for (int theirs = 0; theirs < KINDS; theirs++) {
			struct here here = card_here(kinds[mine], BYTES);
			uint64_t number;
			weft_remote there = card_there(kinds[theirs], BYTES, &number);

			fill_card(here.memory, BYTES, 5);
			assert_status(write_to(here.region, 100, there, 300, BYTES - 300), 0);
			peer_check_at(&pair.there, number, 300, BYTES - 300, 5, 100);
			peer_fill(&pair.there, number, 0, BYTES, 6);
			assert_status(read_from(there, 7, here.region, 1000, BYTES - 2000), 0);
			check_card(here.memory + 1000, BYTES - 2000, 6, 7);
			assert_status(write_to(here.region, 0, there, 0, 0), 0);
			assert_status(weft_remote_close(pair.here.engine, there), 0);
			peer_tell(&pair.there, COMMAND_REGION_CLOSE, number);
			card_here_free(&here);
		}
}

static void cards_and_the_cpu(void **state)
{
	struct here here = card_here(FAKE_PLAIN, BYTES);
	uint64_t number;
	weft_remote there = card_there(FAKE_VIRTUAL, BYTES, &number);

	fill_card(here.memory, BYTES, 1);
	assert_status(write_to(here.region, 11, pair.remote, 22, BYTES - 22), 0);
	peer_check_at(&pair.there, pair.number, 22, BYTES - 22, 1, 11);
	peer_fill(&pair.there, pair.number, 0, BYTES, 2);
	assert_status(read_from(pair.remote, 33, here.region, 0, BYTES - 33), 0);
	check_card(here.memory, BYTES - 33, 2, 33);
	pattern_fill(pair.memory, BYTES, 3, 0);
	assert_status(write_to(pair.region, 5, there, 6, BYTES - 6), 0);
	peer_check_at(&pair.there, number, 6, BYTES - 6, 3, 5);
	peer_fill(&pair.there, number, 0, BYTES, 4);
	assert_status(read_from(there, 1, pair.region, 0, BYTES - 1), 0);
	assert_int_equal(pattern_differs(pair.memory, BYTES - 1, 4, 1), BYTES - 1);
	card_here_free(&here);
}

/* Pages of a size, from card to card and between either and the CPU, both ways. */
static void try_pages(struct here *here, weft_remote there, uint64_t number, uint64_t page, bool read)
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

static void pages_go_in_one_launch(void **state)
{
	static const uint64_t sizes[] = { 100, 4096, 65536, 1 << 20 };
	struct here here = card_here(FAKE_PLAIN, BYTES), host = { pair.memory, pair.region };
	uint64_t number, launches = fake_cuda_counts().launches;
	weft_remote there = card_there(FAKE_VIRTUAL, BYTES, &number);

	for (int i = 0; i < 4; i++)
		for (int read = 0; read < 2; read++) {
			try_pages(&here, there, number, sizes[i], read);
			try_pages(&here, pair.remote, pair.number, sizes[i], read);
			try_pages(&host, there, number, sizes[i], read);
		}
	if (getenv("FAKE_CUDA_NO_MODULE")) {
		assert_int_equal(fake_cuda_counts().launches, launches);
	} else if (fake_cuda_controls()) {
		launches = fake_cuda_counts().launches;
		try_pages(&here, there, number, 4096, false);
		/* One; a few more if a slow machine had it begin again; not 512. */
		assert_in_range(fake_cuda_counts().launches - launches, 1, 16);
	}
	card_here_free(&here);
}

/* Pages larger than a unit, many ranges to one peer, and a write that says so when all has landed. */
static void operations_of_every_kind(void **state)
{
	struct here here = card_here(FAKE_PLAIN, BYTES);
	uint64_t number;
	weft_remote there = card_there(FAKE_PLAIN, BYTES, &number);
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };
	struct weft_write parts[] = { { sizeof(parts[0]), here.region, 0, there, 5000, 3000 },
				      { sizeof(parts[0]), pair.region, 0, there, 100000, 200000 },
				      { sizeof(parts[0]), here.region, 0, pair.remote, 7, 1000 } };
	struct weft_write whole = { sizeof(whole), here.region, 0, there, 0, 70000 };
	struct peer_event event;

	pattern_fill(pair.memory, BYTES, 8, 0);
	fill_card(here.memory, BYTES, 9);
	assert_status(weft_scatter(pair.here.engine, parts, 3, &op, NULL), 0);
	assert_status(end_of(&pair.here, op.tag), 0);
	peer_check_at(&pair.there, number, 5000, 3000, 9, 0);
	peer_check_at(&pair.there, number, 100000, 200000, 8, 0);
	peer_check_at(&pair.there, pair.number, 7, 1000, 9, 0);
	op.notify = WEFT_NOTIFY_FENCED;
	op.notify_tag = 77;
	op.tag = ++tags;
	assert_status(weft_write(pair.here.engine, &whole, &op, NULL), 0);
	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 77, &event);
	peer_check_at(&pair.there, number, 0, 70000, 9, 0);
	assert_status(end_of(&pair.here, op.tag), 0);
	peer_tell(&pair.there, COMMAND_EXPECT, 123, 2, 78);
	op.notify = WEFT_NOTIFY_COUNTED;
	op.immediate = 123;
	for (int i = 0; i < 2; i++) {
		op.tag = ++tags;
		whole.to = i ? pair.remote : there;
		assert_status(weft_write(pair.here.engine, &whole, &op, NULL), 0);
		assert_status(end_of(&pair.here, op.tag), 0);
	}
	peer_wait(&pair.there, WEFT_EVENT_COUNTED, 78, &event);
	card_here_free(&here);
}

/* ---- what is refused ---- */

static void what_cannot_be_is_refused(void **state)
{
	weft_engine *engine = pair.here.engine;
	struct here here = card_here(FAKE_PLAIN, BYTES);
	struct weft_write write = { sizeof(write), here.region, 0, pair.remote, 0, 100 };
	struct weft_op op = {
		.size = sizeof(op), .queue = pair.here.queue, .flags = WEFT_CHECKSUM, .notify = WEFT_NOTIFY_FENCED
	};
	weft_region region;
	uint64_t number;
	weft_remote there;

	assert_status(weft_region_register(engine, here.memory, BYTES + 4096, 0, &region), -EINVAL);
	assert_status(weft_write(engine, &write, &op, NULL), -EOPNOTSUPP);
	fake_cuda_free(here.memory);
	assert_status(write_to(here.region, 0, pair.remote, 0, 100), -ESTALE);
	here.memory = fake_cuda_alloc(0, BYTES, FAKE_PLAIN); /* perhaps at the same place */
	assert_status(write_to(here.region, 0, pair.remote, 0, 100), -ESTALE);
	card_here_free(&here);
	/* A pool's memory is registered, but no other process can open it: the operation says so, and others go on. */
	there = card_there(FAKE_POOL, BYTES, &number);
	assert_status(write_to(pair.region, 0, there, 0, 100), -EREMOTEIO);
	here = card_here(FAKE_POOL, BYTES);
	fill_card(here.memory, BYTES, 4);
	assert_status(write_to(here.region, 0, pair.remote, 0, BYTES), 0);
	peer_check(&pair.there, pair.number, 0, BYTES, 4);
	card_here_free(&here);
}

/* Our end of operations passes through chunks. What peers do with a card's memory is in test_landing.c. */
static void over_nics(void **state)
{
	const struct transport *before = transport;
	struct here here = { .memory = fake_cuda_alloc(0, BYTES, FAKE_VIRTUAL) };
	struct weft_write_pages pages = {
		.size = sizeof(pages), .page_bytes = 1000, .count = 500, .from_stride = 1100
	};
	struct weft_op op = { .size = sizeof(op) };

	assert_true(transport_choose("tcp4"));
	pair_open(&pair, NULL, NULL, BYTES);
	transport = before;
	assert_status(weft_region_register(pair.here.engine, here.memory, BYTES, 0, &here.region), 0);
	fill_card(here.memory, BYTES, 1);
	assert_status(write_to(here.region, 11, pair.remote, 22, BYTES - 22), 0);
	peer_check_at(&pair.there, pair.number, 22, BYTES - 22, 1, 11);
	peer_fill(&pair.there, pair.number, 0, BYTES, 2);
	assert_status(read_from(pair.remote, 33, here.region, 0, BYTES - 33), 0);
	check_card(here.memory, BYTES - 33, 2, 33);
	pages.from = here.region;
	pages.to = pair.remote;
	op.queue = pair.here.queue;
	op.tag = ++tags;
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	assert_status(end_of(&pair.here, op.tag), 0);
	for (uint64_t i = 0; i < 500; i += 99)
		peer_check_at(&pair.there, pair.number, i * 1000, 1000, 2, 33 + i * 1100);
	assert_int_equal(fake_cuda_counts().pageable, 0);
	if (!fake_cuda_controls()) {
		card_here_free(&here);
		return;
	}
	/* A deadline while the card hangs; then all goes on. */
	fake_cuda_hold(true);
	begin(here.region, pair.remote, BYTES, 100 * MS);
	assert_status(end_of(&pair.here, tags), -ETIMEDOUT);
	fake_cuda_hold(false);
	assert_status(write_to(here.region, 0, pair.remote, 0, BYTES), 0);
	peer_check_at(&pair.there, pair.number, 0, BYTES - 33, 2, 33);
	/* A lost card ends its own operations only. */
	fake_cuda_lose(true);
	begin(here.region, pair.remote, BYTES, WEFT_FOREVER);
	assert_status(end_of(&pair.here, tags), -EIO);
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	fake_cuda_lose(false);
	assert_status(read_from(pair.remote, 0, here.region, 0, BYTES), 0);
	/* Revoked memory is still its owner's to use. */
	assert_status(weft_region_revoke(pair.here.engine, here.region), 0);
	assert_status(write_to(here.region, 0, pair.remote, 0, BYTES), 0);
	card_here_free(&here);
}

/* ---- what goes wrong ---- */

static void a_deadline_holds(void **state)
{
	struct here here = card_here(FAKE_PLAIN, BYTES);
	uint64_t number;
	weft_remote there = card_there(FAKE_PLAIN, BYTES, &number);
	struct weft_event event;

	assert_status(write_to(here.region, 0, there, 0, 4096), 0); /* all is open now */
	fake_cuda_hold(true);
	begin(here.region, there, BYTES, 100 * MS);
	wait_for_event(&pair.here, WEFT_EVENT_END, tags, &event);
	assert_status(event.status, -ETIMEDOUT);
	assert_false(event.quiescent); /* the card still has the copy */
	weft_event_release(&event);
	fake_cuda_hold(false);
	fill_card(here.memory, BYTES, 3);
	assert_status(write_to(here.region, 0, there, 0, BYTES), 0);
	peer_check(&pair.there, number, 0, BYTES, 3);
	card_here_free(&here);
}

static void a_cancel_holds(void **state)
{
	struct here here = card_here(FAKE_PLAIN, BYTES);
	weft_transfer transfer;

	assert_status(write_to(here.region, 0, pair.remote, 0, 4096), 0);
	fake_cuda_hold(true);
	transfer = begin(here.region, pair.remote, BYTES, WEFT_FOREVER);
	while (!fake_cuda_counts().waiting)
		sched_yield();
	assert_status(weft_transfer_cancel(pair.here.engine, transfer), 0);
	assert_status(end_of(&pair.here, tags), -ECANCELED);
	fake_cuda_hold(false);
	assert_status(write_to(here.region, 0, pair.remote, 0, BYTES), 0);
	card_here_free(&here);
}

static void a_lost_card_ends_operations(void **state)
{
	struct here here = card_here(FAKE_PLAIN, BYTES);
	uint64_t number;
	weft_remote there = card_there(FAKE_PLAIN, BYTES, &number);
	struct weft_event event;
	weft_region region;

	assert_status(write_to(here.region, 0, there, 0, 4096), 0);
	fake_cuda_hold(true);
	begin(here.region, there, BYTES, WEFT_FOREVER);
	while (!fake_cuda_counts().waiting)
		sched_yield();
	fake_cuda_lose(true);
	wait_for_event(&pair.here, WEFT_EVENT_END, tags, &event);
	assert_status(event.status, -EIO);
	assert_non_null(event.error);
	assert_non_null(strstr(event.error->text, "CUDA_ERROR_ECC_UNCORRECTABLE"));
	weft_event_release(&event);
	/* The CPU's memory is registered and moves as before; a card's is not registered. */
	assert_status(weft_region_register(pair.here.engine, pair.memory, BYTES, 0, &region), 0);
	assert_status(weft_region_close(pair.here.engine, region), 0);
	assert_status(weft_region_register(pair.here.engine, here.memory, BYTES, 0, &region), -EIO);
	pattern_fill(pair.memory, BYTES, 7, 0);
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	peer_check(&pair.there, pair.number, 0, BYTES, 7);
	fake_cuda_lose(false);
	fake_cuda_hold(false);
	card_here_free(&here);
}

/* Between cards no chunk is needed; elsewhere the operation says what is missing. Revoked memory is still its owner's to use. */
static void without_pinned_memory(void **state)
{
	struct weft_event event;
	struct here here;
	uint64_t number;
	weft_remote there;

	setenv("FAKE_CUDA_NO_PINNED", "1", 1);
	pair_open(&pair, NULL, NULL, BYTES);
	here = card_here(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	fill_card(here.memory, BYTES, 5);
	assert_status(write_to(here.region, 0, there, 0, BYTES), 0);
	try_pages(&here, there, number, 4096, false);
	assert_status(weft_region_revoke(pair.here.engine, here.region), 0);
	assert_status(write_to(here.region, 0, there, 0, BYTES), 0);
	begin(here.region, pair.remote, BYTES, WEFT_FOREVER);
	wait_for_event(&pair.here, WEFT_EVENT_END, tags, &event);
	assert_status(event.status, -EIO);
	assert_non_null(strstr(event.error->text, "pinned memory"));
	weft_event_release(&event);
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	card_here_free(&here);
	unsetenv("FAKE_CUDA_NO_PINNED");
}

/* A NIC through which it cannot pass is no reason to refuse it where the local rail takes it. */
static void without_pinned_memory_beside_nics(void **state)
{
	const struct transport *before = transport;
	struct weft_config config;
	struct here here;
	uint64_t number;
	weft_remote there;

	setenv("FAKE_CUDA_NO_PINNED", "1", 1);
	assert_true(transport_choose("tcp4"));
	config = side_config();
	config.flags = WEFT_WITH_LOCAL;
	pair_open(&pair, &config, &config, BYTES);
	transport = before;
	here = card_here(FAKE_PLAIN, BYTES);
	there = card_there(FAKE_PLAIN, BYTES, &number);
	fill_card(here.memory, BYTES, 6);
	assert_status(write_to(here.region, 0, there, 0, BYTES), 0);
	peer_check(&pair.there, number, 0, BYTES, 6);
	card_here_free(&here);
	unsetenv("FAKE_CUDA_NO_PINNED");
}

static void a_peer_dies_in_a_copy(void **state)
{
	struct here here = card_here(FAKE_PLAIN, BYTES);
	uint64_t number;
	weft_remote there = card_there(FAKE_PLAIN, BYTES, &number);
	struct weft_event event;

	assert_status(write_to(here.region, 0, there, 0, 4096), 0);
	fake_cuda_hold(true);
	begin(here.region, there, BYTES, WEFT_FOREVER);
	while (!fake_cuda_counts().waiting)
		sched_yield();
	peer_kill(&pair.there);
	wait_for_event(&pair.here, WEFT_EVENT_PEER_DOWN, ANY_TAG, &event);
	weft_event_release(&event);
	fake_cuda_hold(false);
	assert_status(end_of(&pair.here, tags), -EHOSTDOWN);
	card_here_free(&here);
}

/* The region is closed at the peer while our card copies there: its owner waits for the copy, or gives the line up. Then nothing
 * is left that could write there, and its memory is freed. */
static void a_region_goes_in_a_copy(void **state)
{
	struct here here = card_here(FAKE_PLAIN, BYTES);

	for (int revoke = 0; revoke < 2; revoke++) {
		uint64_t number;
		weft_remote there = card_there(FAKE_PLAIN, BYTES, &number);

		assert_status(write_to(here.region, 0, there, 0, 4096), 0);
		fake_cuda_slow(2000);
		for (int i = 0; i < 8; i++)
			begin(here.region, there, BYTES, WEFT_FOREVER);
		peer_tell(&pair.there, revoke ? COMMAND_REVOKE : COMMAND_REGION_CLOSE, number);
		for (int i = 7; i >= 0; i--)
			end_of(&pair.here, tags - (uint64_t)i); /* well or not: exactly once */
		fake_cuda_slow(0);
		assert_status(write_to(here.region, 0, there, 0, 4096) ? 1 : 0, 1);
		assert_status(weft_remote_close(pair.here.engine, there), 0);
	}
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	card_here_free(&here);
}

/* Closing while a card does not end its copies: in bounded time, and what the card uses stays. */
static void closing_does_not_wait_for_a_card(void **state)
{
	struct here here = card_here(FAKE_PLAIN, BYTES);
	uint64_t start;

	assert_status(write_to(here.region, 0, pair.remote, 0, 4096), 0);
	fake_cuda_hold(true);
	begin(here.region, pair.remote, BYTES, WEFT_FOREVER);
	while (!fake_cuda_counts().waiting)
		sched_yield();
	start = now_ns();
	peer_stop(&pair.there);
	assert_status(side_close(&pair.here), 0);
	assert_true(now_ns() - start < 60000 * MS);
	fake_cuda_hold(false);
	side_memory_free(pair.memory);
	fake_cuda_free(here.memory);
}

static int run(void)
{
	const struct CMUnitTest carried[] = {
		cmocka_unit_test_setup_teardown(cards_reach_each_other, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(cards_and_the_cpu, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(pages_go_in_one_launch, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(operations_of_every_kind, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, open_pair, close_pair),
		cmocka_unit_test_teardown(over_nics, close_pair),
	};
	const struct CMUnitTest failing[] = {
		cmocka_unit_test_setup_teardown(a_deadline_holds, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_cancel_holds, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_lost_card_ends_operations, open_pair, close_pair),
		cmocka_unit_test_teardown(without_pinned_memory, close_pair),
		cmocka_unit_test_teardown(without_pinned_memory_beside_nics, close_pair),
		cmocka_unit_test_setup_teardown(a_peer_dies_in_a_copy, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_region_goes_in_a_copy, open_pair, close_pair),
		cmocka_unit_test_setup(closing_does_not_wait_for_a_card, open_pair),
	};
	int failed = cmocka_run_group_tests_name("cards", carried, NULL, NULL);

	/* A real card, for tests/gpu/run, is not held, slowed or lost on request. */
	if (fake_cuda_controls())
		failed += cmocka_run_group_tests_name("cards that fail", failing, NULL, NULL);
	return failed;
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
