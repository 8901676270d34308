/* Operations that start by a word and end with one, and notifications that write one at the receiver. */
#include "support/peer.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (4u << 20)
#define PAGE  4096u
#define PAGES 64u
#define MANY  1000u
#define AWAY  (3u << 20) /* of both regions, for other operations */

enum kind { WRITE, READ, WRITE_PAGES, READ_PAGES, SCATTER, SEND, CALL, BARRIER, KINDS };

static struct pair pair;
static uint64_t word, end_word;

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

static void store(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static uint64_t load(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/* Ends with WEFT_KEEP_END are taken by ended(). */
static struct weft_op waiting_op(void)
{
	store(&word, 6);
	store(&end_word, 0);
	return (struct weft_op){ .size = sizeof(struct weft_op),
				 .flags = WEFT_KEEP_END,
				 .timeout_ns = WEFT_FOREVER,
				 .start_word = &word,
				 .start_value = 7,
				 .end_word = &end_word,
				 .end_value = 70 };
}

static int submit(enum kind kind, const struct weft_op *op, weft_transfer *ret)
{
	static uint32_t index[PAGES];
	weft_engine *engine = pair.here.engine;
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, PAGE * PAGES };
	struct weft_read read = { sizeof(read), pair.remote, 0, pair.region, 0, PAGE * PAGES };
	struct weft_write_pages out = { .size = sizeof(out), .page_bytes = PAGE, .count = PAGES, .from = pair.region };
	struct weft_read_pages in = { .size = sizeof(in), .page_bytes = PAGE, .count = PAGES, .from = pair.remote };
	struct weft_write parts[] = { write, write };
	int error;

	for (uint32_t i = 0; i < PAGES; i++)
		index[i] = i;
	out.to = pair.remote;
	out.from_index = out.to_index = index;
	in.to = pair.region;
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
		return weft_send(engine, pair.peer, 500, "word", 4, op, ret);
	case CALL:
		return weft_call(engine, pair.peer, 501, "word", 4, op, ret);
	default:
		return weft_barrier(engine, &pair.peer, 1, 502, op, ret);
	}
}

static bool reads(enum kind kind)
{
	return kind == READ || kind == READ_PAGES;
}

/* What the operation is to move is made only after it was submitted. */
static void make_source(enum kind kind, uint64_t seed)
{
	if (reads(kind))
		peer_fill(&pair.there, pair.number, 0, PAGE * PAGES, seed);
	else
		landed_fill(pair.memory, PAGE * PAGES, seed, 0);
}

static void fill_target(enum kind kind, uint64_t seed)
{
	if (reads(kind))
		landed_fill(pair.memory, PAGE * PAGES, seed, 0);
	else
		peer_fill(&pair.there, pair.number, 0, PAGE * PAGES, seed);
}

static void check_target(enum kind kind, uint64_t seed)
{
	if (reads(kind))
		assert_int_equal(landed_differs(pair.memory, PAGE * PAGES, seed, 0), PAGE * PAGES);
	else
		peer_check(&pair.there, pair.number, 0, PAGE * PAGES, seed);
}

/* The home has had turns since, and the peer has taken and answered something. */
static void let_time_pass(void)
{
	assert_status(pair_write(&pair, AWAY, AWAY, 100), 0);
}

static int ended(weft_transfer transfer)
{
	struct weft_event event;
	int error = weft_transfer_wait(pair.here.engine, transfer, LIMIT, &event, sizeof(event));

	assert_status(error, 0);
	weft_event_release(&event);
	return event.status;
}

static void has_not_ended(weft_transfer transfer)
{
	struct weft_event event;

	assert_status(weft_transfer_wait(pair.here.engine, transfer, 0, &event, sizeof(event)), -ETIMEDOUT);
	assert_true(load(&end_word) == 0);
}

static void until_word(const uint64_t *at, uint64_t value)
{
	uint64_t limit = now_ns() + LIMIT;

	while (load(at) != value) {
		assert_true(now_ns() < limit);
		sched_yield();
	}
}

/* ---- starting ---- */

static void peer_joins(enum kind kind, struct command *command)
{
	*command = (struct command){ .code = COMMAND_SERVE, .arg = { 1, 0, LIMIT } };
	if (kind == CALL)
		peer_begin(&pair.there, command, NULL);
	*command = (struct command){ .code = COMMAND_BARRIER, .bytes = sizeof(pair.back), .arg = { 502, 9 } };
	if (kind == BARRIER)
		peer_do(&pair.there, command, &pair.back);
}

static void peer_saw(enum kind kind)
{
	struct peer_event event;
	struct answer answer;

	if (kind == CALL)
		assert_status(peer_end(&pair.there, &answer), 0);
	if (kind == BARRIER)
		peer_wait(&pair.there, WEFT_EVENT_END, 9, &event);
	if (kind == SEND)
		peer_wait(&pair.there, WEFT_EVENT_MESSAGE, 500, &event);
}

static void every_kind_starts_by_its_word(void **state)
{
	for (enum kind kind = 0; kind < KINDS; kind++) {
		struct weft_op op = waiting_op();
		struct command command;
		weft_transfer transfer;

		fill_target(kind, 100 + kind);
		assert_status(submit(kind, &op, &transfer), 0);
		let_time_pass();
		has_not_ended(transfer);
		check_target(kind, 100 + kind);
		make_source(kind, 200 + kind);
		peer_joins(kind, &command);
		store(&word, 7);
		assert_status(ended(transfer), 0);
		assert_true(load(&end_word) == 70);
		if (kind < SEND)
			check_target(kind, 200 + kind);
		peer_saw(kind);
	}
}

static void one_that_is_there_already(void **state)
{
	for (enum kind kind = 0; kind <= SEND; kind++) {
		struct weft_op op = waiting_op();
		weft_transfer transfer;

		make_source(kind, 300 + kind);
		store(&word, 7 + kind);
		assert_status(submit(kind, &op, &transfer), 0);
		assert_status(ended(transfer), 0);
		assert_true(load(&end_word) == 70);
		if (kind < SEND)
			check_target(kind, 300 + kind);
		peer_saw(kind);
	}
}

/* The event may be nobody's: the end word alone says it. */
static void no_queue_is_needed(void **state)
{
	struct weft_op op = waiting_op();

	op.flags = 0;
	assert_status(submit(WRITE, &op, NULL), 0);
	store(&word, 7);
	until_word(&end_word, 70);
	op.start_word = NULL;
	op.end_value = 71;
	assert_status(submit(SCATTER, &op, NULL), 0);
	until_word(&end_word, 71);
	op.end_value = 72;
	assert_status(weft_scatter(pair.here.engine, NULL, 0, &op, NULL), 0);
	until_word(&end_word, 72);
}

/* One operation's end starts the next. */
static void one_after_the_other(void **state)
{
	static uint64_t chain[20];
	struct weft_op op = waiting_op();

	op.flags = 0;
	memset(chain, 0, sizeof(chain));
	op.start_value = op.end_value = 1;
	for (uint32_t i = 20; i-- > 1;) {
		op.start_word = &chain[i - 1];
		op.end_word = &chain[i];
		assert_status(submit(WRITE, &op, NULL), 0);
	}
	let_time_pass();
	assert_true(load(&chain[19]) == 0);
	store(&chain[0], 1);
	until_word(&chain[19], 1);
}

static void values_wrap_around(void **state)
{
	struct weft_op op = waiting_op();
	weft_transfer transfer;

	store(&word, UINT64_MAX - 1);
	op.start_value = 2;
	op.end_value = UINT64_MAX;
	assert_status(submit(WRITE, &op, &transfer), 0);
	let_time_pass();
	has_not_ended(transfer);
	store(&word, 1);
	let_time_pass();
	has_not_ended(transfer);
	store(&word, 3);
	assert_status(ended(transfer), 0);
	assert_true(load(&end_word) == UINT64_MAX);
	op.start_value = 4;
	op.timeout_ns = 1;
	assert_status(submit(WRITE, &op, &transfer), 0);
	assert_status(ended(transfer), -ETIMEDOUT);
	assert_true(load(&end_word) == WEFT_WORD_FAILED - 1);
	assert_true((int64_t)(load(&end_word) - op.end_value) > 0); /* a stream that waits for it goes on */
}

/* ---- many ---- */

static uint64_t seed = 1, many_end[MANY], many_word[MANY], value[MANY];

static void submit_many(uint64_t *(*word_of)(uint32_t), uint64_t (*value_of)(uint32_t))
{
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER, .end_value = 1 };

	for (uint32_t i = 0; i < MANY; i++) {
		struct weft_write write = { sizeof(write), pair.region, i * 64, pair.remote, i * 64, 64 };

		store(&many_end[i], 0);
		value[i] = op.start_value = value_of(i);
		op.start_word = word_of(i);
		op.end_word = &many_end[i];
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	}
	let_time_pass();
	for (uint32_t i = 0; i < MANY; i++)
		assert_true(load(&many_end[i]) == 0);
}

static uint64_t *the_word(uint32_t i)
{
	return &word;
}

static uint64_t *own_word(uint32_t i)
{
	return &many_word[i];
}

static uint64_t shuffled(uint32_t i)
{
	return 1 + (uint64_t)i * 7 % MANY;
}

static uint64_t one(uint32_t i)
{
	return 1;
}

static uint64_t anywhere(uint32_t i)
{
	uint64_t far = random_next(&seed) % (UINT64_C(1) << (i % 63 + 1));

	return far ? far : UINT64_C(1) << 63;
}

/* Exactly those whose value was reached end. */
static void step(uint64_t now)
{
	static bool was_reached[MANY];

	if (!now)
		memset(was_reached, 0, sizeof(was_reached));
	store(&word, now);
	for (uint32_t i = 0; i < MANY; i++)
		if ((int64_t)(now - value[i]) >= 0) {
			was_reached[i] = true;
			until_word(&many_end[i], 1);
		}
	let_time_pass();
	for (uint32_t i = 0; i < MANY; i++)
		assert_true(load(&many_end[i]) == was_reached[i]);
}

static void a_thousand_on_one_word(void **state)
{
	landed_fill(pair.memory, MANY * 64, 31, 0);
	store(&word, 0);
	submit_many(the_word, shuffled);
	for (uint64_t now = 0; now <= MANY; now += now < 10 ? 1 : 99)
		step(now);
	step(MANY);
	peer_check(&pair.there, pair.number, 0, MANY * 64, 31);
}

/* A word that jumps about, far around the circle and back. */
static void a_word_that_jumps(void **state)
{
	store(&word, 0);
	submit_many(the_word, anywhere);
	step(0);
	for (uint32_t i = 0; i < 40; i++)
		step(random_next(&seed) >> i % 60);
	step(1); /* from here twice around */
	for (int i = 0; i < 5; i++)
		step(load(&word) + (UINT64_C(1) << 62) + 12345);
	for (uint32_t i = 0; i < MANY; i++)
		assert_true(load(&many_end[i]) == 1);
}

static void a_thousand_words(void **state)
{
	landed_fill(pair.memory, MANY * 64, 32, 0);
	memset(many_word, 0, sizeof(many_word));
	submit_many(own_word, one);
	for (uint32_t i = 0; i < MANY; i++) {
		uint32_t at = (uint32_t)shuffled(i) - 1;

		store(&many_word[at], 1 + i % 3);
		if (i % 100 == 0 || i == MANY - 1)
			until_word(&many_end[at], 1);
	}
	for (uint32_t i = 0; i < MANY; i++)
		until_word(&many_end[i], 1);
	peer_check(&pair.there, pair.number, 0, MANY * 64, 32);
}

/* The smaller value first, and among equals the one that was submitted first. */
static void messages_start_in_order(void **state)
{
	static const uint64_t values[] = { 3, 1, 9, 2, 1, 3, 2, 1, 9, 1 };
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER, .start_word = &word };
	struct answer answer;
	char data[64];

	store(&word, 0);
	for (uint32_t i = 0; i < 10; i++) {
		uint64_t place = 0, tag;

		for (uint32_t j = 0; j < 10; j++)
			place += values[j] < values[i] || (values[j] == values[i] && j < i);
		tag = 600 + place;
		pattern_fill(data, sizeof(data), tag, 0);
		op.start_value = values[i];
		assert_status(weft_send(pair.here.engine, pair.peer, tag, data, sizeof(data), &op, NULL), 0);
	}
	let_time_pass();
	store(&word, 9);
	assert_status(
	    peer_try(&pair.there, &(struct command){ .code = COMMAND_DRAIN, .arg = { 600, 10, LIMIT } }, NULL, &answer),
	    0);
	assert_int_equal(answer.value[0], 10);
}

/* ---- ends that come first ---- */

static void check_unstarted(enum kind kind, weft_transfer transfer, int status)
{
	assert_status(ended(transfer), status);
	assert_true(load(&end_word) == 70 + WEFT_WORD_FAILED);
	store(&word, 7); /* too late */
	let_time_pass();
	if (kind < SEND)
		check_target(kind, 400 + kind);
}

static void the_deadline_comes_first(void **state)
{
	static const uint64_t timeouts[] = { 1, 20 * WEFT_MILLISECOND };

	for (int i = 0; i < 2; i++)
		for (enum kind kind = 0; kind < KINDS; kind++) {
			struct weft_op op = waiting_op();
			weft_transfer transfer;

			op.timeout_ns = timeouts[i];
			fill_target(kind, 400 + kind);
			make_source(kind, 500 + kind);
			assert_status(submit(kind, &op, &transfer), 0);
			check_unstarted(kind, transfer, -ETIMEDOUT);
		}
}

static void a_cancel_comes_first(void **state)
{
	for (int i = 0; i < 3; i++)
		for (enum kind kind = 0; kind < KINDS; kind++) {
			struct weft_op op = waiting_op();
			weft_transfer transfer;

			fill_target(kind, 400 + kind);
			make_source(kind, 500 + kind);
			assert_status(submit(kind, &op, &transfer), 0);
			if (i) /* else at once */
				let_time_pass();
			if (i < 2)
				assert_status(weft_transfer_cancel(pair.here.engine, transfer), 0);
			else
				assert_status(weft_peer_cancel(pair.here.engine, pair.peer), 0);
			check_unstarted(kind, transfer, -ECANCELED);
		}
}

/* A cancel or a deadline that races with the word: one of both ends each, once, and the word says which. */
static void racing(void **state)
{
	for (uint32_t i = 0; i < 300; i++) {
		struct weft_op op = waiting_op();
		weft_transfer transfer;
		int status;

		op.timeout_ns = i % 3 ? WEFT_FOREVER : (i + 1) * WEFT_MICROSECOND;
		assert_status(submit((enum kind)(i % SEND), &op, &transfer), 0);
		for (uint32_t spin = 0; spin < i % 50; spin++)
			sched_yield();
		store(&word, 7);
		if (i % 3 == 1)
			weft_transfer_cancel(pair.here.engine, transfer);
		status = ended(transfer);
		assert_true(!status || status == (i % 3 ? -ECANCELED : -ETIMEDOUT));
		assert_true(load(&end_word) == (status ? 70 + WEFT_WORD_FAILED : 70));
	}
}

static void all_kinds_wait(weft_transfer *transfers, uint64_t *ends)
{
	struct weft_op op = waiting_op();

	for (enum kind kind = 0; kind < KINDS; kind++) {
		ends[kind] = 0;
		op.end_word = &ends[kind];
		assert_status(submit(kind, &op, &transfers[kind]), 0);
	}
}

static void all_ended(const weft_transfer *transfers, const uint64_t *ends, int status)
{
	for (enum kind kind = 0; kind < KINDS; kind++) {
		assert_status(ended(transfers[kind]), status);
		assert_true(load(&ends[kind]) == 70 + WEFT_WORD_FAILED);
	}
	store(&word, 7);
}

static void the_peer_is_replaced(void **state)
{
	struct weft_config config = side_config();
	weft_transfer transfers[KINDS];
	uint64_t ends[KINDS];
	struct peer second;

	pair_open(&pair, NULL, NULL, BYTES);
	peer_start(&second, &config);
	all_kinds_wait(transfers, ends);
	assert_status(weft_peer_replace(pair.here.engine, pair.peer, second.address.data, second.address.bytes), 0);
	all_ended(transfers, ends, -EHOSTDOWN);
	peer_stop(&second);
	pair_close(&pair);
}

static void the_peer_is_removed(void **state)
{
	weft_transfer transfers[KINDS];
	uint64_t ends[KINDS];

	pair_open(&pair, NULL, NULL, BYTES);
	all_kinds_wait(transfers, ends);
	assert_status(weft_peer_remove(pair.here.engine, pair.peer), 0);
	all_ended(transfers, ends, -ECANCELED);
	pair_close(&pair);
}

static void the_peer_is_killed(void **state)
{
	struct weft_config config = side_config();
	weft_transfer transfers[KINDS];
	uint64_t ends[KINDS];

	config.heartbeat_ns = 50 * MS;
	config.peer_limit_ns = 2 * S;
	pair_open(&pair, &config, NULL, BYTES);
	all_kinds_wait(transfers, ends);
	peer_kill(&pair.there);
	all_ended(transfers, ends, -EHOSTDOWN);
	pair_close(&pair);
}

/* No event can be taken any more, but a stream that waits for an end word goes on. */
static void the_engine_closes(void **state)
{
	struct weft_op op;
	uint64_t ends[KINDS] = { 0 };

	pair_open(&pair, NULL, NULL, BYTES);
	op = waiting_op();
	op.flags = 0;
	for (enum kind kind = 0; kind < KINDS; kind++) {
		op.end_word = &ends[kind];
		assert_status(submit(kind, &op, NULL), 0);
	}
	fill_target(WRITE, 400);
	assert_status(side_close(&pair.here), 0);
	for (enum kind kind = 0; kind < KINDS; kind++)
		assert_true(load(&ends[kind]) == 70 + WEFT_WORD_FAILED);
	check_target(WRITE, 400);
	peer_stop(&pair.there);
	side_memory_free(pair.memory);
}

/* ---- what is refused ---- */

static void what_cannot_be(void **state)
{
	struct weft_op good = waiting_op(), op = good;
	weft_transfer transfer;

	op.start_word = (uint64_t *)((char *)&word + 1);
	assert_status(submit(WRITE, &op, &transfer), -EINVAL);
	op = good;
	op.end_word = (uint64_t *)((char *)&end_word + 4);
	assert_status(submit(SEND, &op, &transfer), -EINVAL);
	op = good;
	op.end_failed_value = 69; /* a stream would wait for ever */
	assert_status(submit(WRITE, &op, &transfer), -EINVAL);
	op.end_failed_value = 70 + (UINT64_C(1) << 63);
	assert_status(submit(WRITE, &op, &transfer), -EINVAL);
	op = good;
	op.notify_word = pair.remote;
	assert_status(submit(WRITE, &op, &transfer), -EINVAL);
	op.notify = WEFT_NOTIFY_COUNTED;
	if (strcmp(transport->provider, "shm") != 0)
		assert_status(submit(WRITE, &op, &transfer), -EINVAL);
	op.notify = WEFT_NOTIFY_FENCED;
	assert_status(submit(SEND, &op, &transfer), -EINVAL);
	op.notify_word_offset = 4;
	assert_status(submit(WRITE, &op, &transfer), -EINVAL);
	assert_status(weft_expect(pair.here.engine, 0, 1, 1, &good, &transfer), -EINVAL);
	assert_true(load(&end_word) == 0); /* nothing was started */
}

static void an_expectation_has_an_end_word(void **state)
{
	struct weft_op op = { .size = sizeof(op), .end_word = &end_word, .end_value = 5, .end_failed_value = 6 };

	store(&end_word, 0);
	assert_status(weft_expect(pair.here.engine, 0, 77, 0, &op, NULL), 0);
	until_word(&end_word, 5);
	op.timeout_ns = 1;
	assert_status(weft_expect(pair.here.engine, 0, 77, 1, &op, NULL), 0);
	until_word(&end_word, 6);
}

static void a_counted_write_waits(void **state)
{
	struct weft_op op = waiting_op();
	struct peer_event event;
	weft_transfer transfer;

	op.notify = WEFT_NOTIFY_COUNTED;
	op.immediate = 44;
	peer_tell(&pair.there, COMMAND_EXPECT, 44, PAGES, 45);
	assert_status(submit(WRITE_PAGES, &op, &transfer), 0);
	let_time_pass();
	has_not_ended(transfer);
	make_source(WRITE_PAGES, 46);
	store(&word, 7);
	peer_wait(&pair.there, WEFT_EVENT_COUNTED, 45, &event);
	check_target(WRITE_PAGES, 46);
	assert_status(ended(transfer), 0);
	assert_true(load(&end_word) == 70);
}

/* ---- words at the receiver ---- */

static uint64_t word_there(uint64_t offset)
{
	struct weft_read read = { sizeof(read), pair.remote, offset, pair.region, AWAY + PAGE, 8 };
	struct weft_op op = { .size = sizeof(op), .flags = WEFT_KEEP_END };
	weft_transfer transfer;
	uint64_t got;

	assert_status(weft_read(pair.here.engine, &read, &op, &transfer), 0);
	assert_status(ended(transfer), 0);
	memcpy(&got, pair.memory + AWAY + PAGE, sizeof(got));
	return got;
}

static struct weft_op notifying_op(uint64_t tag)
{
	return (struct weft_op){ .size = sizeof(struct weft_op),
				 .flags = WEFT_KEEP_END,
				 .notify = WEFT_NOTIFY_FENCED,
				 .notify_tag = tag,
				 .notify_payload = "payload",
				 .notify_bytes = 7,
				 .notify_word = pair.remote,
				 .notify_word_offset = AWAY + 8 * tag,
				 .notify_word_value = tag << 32 | 1 };
}

static void notifications_write_a_word(void **state)
{
	for (enum kind kind = 0; kind <= SCATTER; kind++)
		for (int checked = 0; checked < (reads(kind) ? 1 : 2); checked++) {
			uint64_t tag = 800 + 2 * kind + (unsigned int)checked;
			struct weft_op op = notifying_op(tag);
			struct peer_event event;
			weft_transfer transfer;

			make_source(kind, tag);
			op.flags |= checked ? WEFT_CHECKSUM : 0;
			assert_status(submit(kind, &op, &transfer), 0);
			peer_wait(&pair.there, WEFT_EVENT_NOTIFY, tag, &event);
			assert_int_equal(event.bytes, 7);
			assert_memory_equal(event.data, "payload", 7);
			assert_true(word_there(op.notify_word_offset) == op.notify_word_value);
			assert_status(ended(transfer), 0);
			check_target(kind, tag);
			assert_int_equal(peer_wait_try(&pair.there, WEFT_EVENT_NOTIFY, tag, 0, &event), -ETIME);
		}
}

/* The last of many is stored last. */
static void words_are_written_in_order(void **state)
{
	struct weft_op op = notifying_op(900);
	struct peer_event event;
	weft_transfer transfer;

	for (uint32_t i = 1; i <= 200; i++) {
		struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 8 };

		op.notify_word_value = i;
		assert_status(weft_write(pair.here.engine, &write, &op, &transfer), 0);
		peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 900, &event);
		assert_true(word_there(op.notify_word_offset) == i);
		assert_status(ended(transfer), 0);
	}
}

static void words_that_may_not_be(void **state)
{
	struct weft_op good = notifying_op(950), op = good;
	struct blob descriptor;
	struct peer_event event;
	weft_transfer transfer;
	uint64_t number;
	int status;

	op.notify_word_offset = BYTES;
	assert_status(submit(WRITE, &op, &transfer), -ERANGE);
	op.notify_word_offset = UINT64_MAX - 7;
	assert_status(submit(WRITE, &op, &transfer), -ERANGE);
	op = good;
	op.notify_word = pair.remote + 12345;
	assert_status(submit(WRITE, &op, &transfer), -ENOENT);
	assert_status(submit(SCATTER, &op, &transfer), -ENOENT);
	op = good;
	op.notify_word_offset = 0;
	number = peer_region(&pair.there, PAGE, WEFT_REMOTE_READ, &descriptor);
	op.notify_word = import(&pair.here, pair.peer, &descriptor);
	assert_status(submit(WRITE, &op, &transfer), -EACCES);
	peer_tell(&pair.there, COMMAND_REGION_CLOSE, number);
	/* Revoked, which we may or may not have heard of. */
	number = peer_region(&pair.there, PAGE, WEFT_REMOTE_WRITE, &descriptor);
	peer_fill(&pair.there, number, 0, PAGE, 5);
	op.notify_word = import(&pair.here, pair.peer, &descriptor);
	peer_tell(&pair.there, COMMAND_REVOKE, number);
	for (int checked = 0; checked < 2; checked++) {
		op.flags |= checked ? WEFT_CHECKSUM : 0;
		status = submit(WRITE, &op, &transfer);
		if (status)
			assert_status(status, -ESTALE);
		else
			assert_status(ended(transfer), -EREMOTEIO);
	}
	peer_check(&pair.there, number, 0, PAGE, 5);
	peer_tell(&pair.there, COMMAND_REGION_CLOSE, number);
	assert_int_equal(peer_wait_try(&pair.there, WEFT_EVENT_NOTIFY, 950, 0, &event), -ETIME);
	assert_status(submit(WRITE, &good, &transfer), 0);
	assert_status(ended(transfer), 0);
	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 950, &event);
}

/* The region that an operation waits to write to may go meanwhile: its owner does not wait for us, and nothing lands. */
static void what_waits_for_memory_that_goes(void **state)
{
	struct weft_op op = waiting_op();
	struct blob descriptor;
	weft_transfer transfer;
	uint64_t number = peer_region(&pair.there, PAGE, WEFT_REMOTE_WRITE, &descriptor);
	weft_remote remote = import(&pair.here, pair.peer, &descriptor);
	struct weft_write write = { sizeof(write), pair.region, 0, remote, 0, PAGE };
	int status;

	peer_fill(&pair.there, number, 0, PAGE, 6);
	assert_status(weft_write(pair.here.engine, &write, &op, &transfer), 0);
	assert_status(weft_region_close(pair.here.engine, pair.region), -EBUSY);
	let_time_pass();
	peer_tell(&pair.there, COMMAND_REVOKE, number);
	store(&word, 7);
	status = ended(transfer);
	assert_true(status == -ESTALE || status == -EREMOTEIO || status == -EIO);
	peer_check(&pair.there, number, 0, PAGE, 6);
}

static int run(void)
{
	const struct CMUnitTest together[] = {
		cmocka_unit_test(every_kind_starts_by_its_word),
		cmocka_unit_test(one_that_is_there_already),
		cmocka_unit_test(no_queue_is_needed),
		cmocka_unit_test(one_after_the_other),
		cmocka_unit_test(values_wrap_around),
		cmocka_unit_test(a_thousand_on_one_word),
		cmocka_unit_test(a_word_that_jumps),
		cmocka_unit_test(a_thousand_words),
		cmocka_unit_test(messages_start_in_order),
		cmocka_unit_test(the_deadline_comes_first),
		cmocka_unit_test(a_cancel_comes_first),
		cmocka_unit_test(racing),
		cmocka_unit_test(what_cannot_be),
		cmocka_unit_test(an_expectation_has_an_end_word),
		cmocka_unit_test(a_counted_write_waits),
		cmocka_unit_test(notifications_write_a_word),
		cmocka_unit_test(words_are_written_in_order),
		cmocka_unit_test(words_that_may_not_be),
		cmocka_unit_test(what_waits_for_memory_that_goes),
	};
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(the_peer_is_replaced),
		cmocka_unit_test(the_peer_is_removed),
		cmocka_unit_test(the_peer_is_killed),
		cmocka_unit_test(the_engine_closes),
	};
	int failed = cmocka_run_group_tests_name("words", together, open_pair, close_pair);

	return failed + cmocka_run_group_tests_name("words, the peer or the engine goes", alone, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
