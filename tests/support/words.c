/* What the tests of words share; words.h says what. */
#include "support/words.h"

#include <sched.h>
#include <string.h>

uint64_t start_word, end_word;

void store(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

uint64_t load(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/* Ends with WEFT_KEEP_END are taken by ended(). */
struct weft_op waiting_op(void)
{
	store(&start_word, 6);
	store(&end_word, 0);
	return (struct weft_op){ .size = sizeof(struct weft_op),
				 .flags = WEFT_KEEP_END,
				 .timeout_ns = WEFT_FOREVER,
				 .start_word = &start_word,
				 .start_value = 7,
				 .end_word = &end_word,
				 .end_value = 70 };
}

int submit(struct pair *pair, enum kind kind, const struct weft_op *op, weft_transfer *ret)
{
	static uint32_t index[PAGES];
	weft_engine *engine = pair->here.engine;
	struct weft_write write = { sizeof(write), pair->region, 0, pair->remote, 0, PAGE * PAGES };
	struct weft_read read = { sizeof(read), pair->remote, 0, pair->region, 0, PAGE * PAGES };
	struct weft_write_pages out = { .size = sizeof(out), .page_bytes = PAGE, .count = PAGES, .from = pair->region };
	struct weft_read_pages in = { .size = sizeof(in), .page_bytes = PAGE, .count = PAGES, .from = pair->remote };
	struct weft_write parts[] = { write, write };
	int error;

	for (uint32_t i = 0; i < PAGES; i++)
		index[i] = i;
	out.to = pair->remote;
	out.from_index = out.to_index = index;
	in.to = pair->region;
	in.from_index = index;
	parts[0].bytes = parts[1].bytes = parts[1].from_offset = parts[1].to_offset = PAGE * PAGES / 2;
	switch (kind) {
	case WRITE:
		return weft_write(engine, &write, op, ret);
	case READ:
		return weft_read(engine, &read, op, ret);
	case WRITE_PAGES:
		error = weft_write_pages(engine, &out, op, ret);
		memset(index, 0xff, sizeof(index)); /* it was copied */
		return error;
	case READ_PAGES:
		return weft_read_pages(engine, &in, op, ret);
	case SCATTER:
		return weft_scatter(engine, parts, 2, op, ret);
	case SEND:
		return weft_send(engine, pair->peer, 500, "word", 4, op, ret);
	case CALL:
		return weft_call(engine, pair->peer, 501, "word", 4, op, ret);
	default:
		return weft_barrier(engine, &pair->peer, 1, 502, op, ret);
	}
}

bool reads(enum kind kind)
{
	return kind == READ || kind == READ_PAGES;
}

/* What the operation is to move is made only after it was submitted. */
void make_source(struct pair *pair, enum kind kind, uint64_t seed)
{
	if (reads(kind))
		peer_fill(&pair->there, pair->number, 0, PAGE * PAGES, seed);
	else
		landed_fill(pair->memory, PAGE * PAGES, seed, 0);
}

void fill_target(struct pair *pair, enum kind kind, uint64_t seed)
{
	if (reads(kind))
		landed_fill(pair->memory, PAGE * PAGES, seed, 0);
	else
		peer_fill(&pair->there, pair->number, 0, PAGE * PAGES, seed);
}

void check_target(struct pair *pair, enum kind kind, uint64_t seed)
{
	if (reads(kind))
		assert_int_equal(landed_differs(pair->memory, PAGE * PAGES, seed, 0), PAGE * PAGES);
	else
		peer_check(&pair->there, pair->number, 0, PAGE * PAGES, seed);
}

/* The home has had turns since, and the peer has taken and answered something. */
void let_time_pass(struct pair *pair)
{
	assert_status(pair_write(pair, AWAY, AWAY, 100), 0);
}

int ended(struct pair *pair, weft_transfer transfer)
{
	struct weft_event event;
	int error = weft_transfer_wait(pair->here.engine, transfer, LIMIT, &event, sizeof(event));

	assert_status(error, 0);
	weft_event_release(&event);
	return event.status;
}

void has_not_ended(struct pair *pair, weft_transfer transfer)
{
	struct weft_event event;

	assert_status(weft_transfer_wait(pair->here.engine, transfer, 0, &event, sizeof(event)), -ETIMEDOUT);
	assert_true(load(&end_word) == 0);
}

void until_word(const uint64_t *at, uint64_t value)
{
	uint64_t limit = now_ns() + LIMIT;

	while (load(at) != value) {
		assert_true(now_ns() < limit);
		sched_yield();
	}
}
