/* Operations that start by a word and end with one, one or thousands, and notifications that write one at the receiver. */
#include "support/words.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (4u << 20)
#define MANY  1000u

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

		fill_target(&pair, kind, 100 + kind);
		assert_status(submit(&pair, kind, &op, &transfer), 0);
		let_time_pass(&pair);
		has_not_ended(&pair, transfer);
		check_target(&pair, kind, 100 + kind);
		make_source(&pair, kind, 200 + kind);
		peer_joins(kind, &command);
		store(&start_word, 7);
		assert_status(ended(&pair, transfer), 0);
		assert_true(load(&end_word) == 70);
		if (kind < SEND)
			check_target(&pair, kind, 200 + kind);
		peer_saw(kind);
	}
}

static void one_that_is_there_already(void **state)
{
	for (enum kind kind = 0; kind <= SEND; kind++) {
		struct weft_op op = waiting_op();
		weft_transfer transfer;

		make_source(&pair, kind, 300 + kind);
		store(&start_word, 7 + kind);
		assert_status(submit(&pair, kind, &op, &transfer), 0);
		assert_status(ended(&pair, transfer), 0);
		assert_true(load(&end_word) == 70);
		if (kind < SEND)
			check_target(&pair, kind, 300 + kind);
		peer_saw(kind);
	}
}

/* The event may be nobody's: the end word alone says it. */
static void no_queue_is_needed(void **state)
{
	struct weft_op op = waiting_op();

	op.flags = 0;
	assert_status(submit(&pair, WRITE, &op, NULL), 0);
	store(&start_word, 7);
	until_word(&end_word, 70);
	op.start_word = NULL;
	op.end_value = 71;
	assert_status(submit(&pair, SCATTER, &op, NULL), 0);
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
		assert_status(submit(&pair, WRITE, &op, NULL), 0);
	}
	let_time_pass(&pair);
	assert_true(load(&chain[19]) == 0);
	store(&chain[0], 1);
	until_word(&chain[19], 1);
}

static void values_wrap_around(void **state)
{
	struct weft_op op = waiting_op();
	weft_transfer transfer;

	store(&start_word, UINT64_MAX - 1);
	op.start_value = 2;
	op.end_value = UINT64_MAX;
	assert_status(submit(&pair, WRITE, &op, &transfer), 0);
	let_time_pass(&pair);
	has_not_ended(&pair, transfer);
	store(&start_word, 1);
	let_time_pass(&pair);
	has_not_ended(&pair, transfer);
	store(&start_word, 3);
	assert_status(ended(&pair, transfer), 0);
	assert_true(load(&end_word) == UINT64_MAX);
	op.start_value = 4;
	op.timeout_ns = 1;
	assert_status(submit(&pair, WRITE, &op, &transfer), 0);
	assert_status(ended(&pair, transfer), -ETIMEDOUT);
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
	let_time_pass(&pair);
	for (uint32_t i = 0; i < MANY; i++)
		assert_true(load(&many_end[i]) == 0);
}

static uint64_t *the_word(uint32_t i)
{
	return &start_word;
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
	store(&start_word, now);
	for (uint32_t i = 0; i < MANY; i++)
		if ((int64_t)(now - value[i]) >= 0) {
			was_reached[i] = true;
			until_word(&many_end[i], 1);
		}
	let_time_pass(&pair);
	for (uint32_t i = 0; i < MANY; i++)
		assert_true(load(&many_end[i]) == was_reached[i]);
}

static void a_thousand_on_one_word(void **state)
{
	landed_fill(pair.memory, MANY * 64, 31, 0);
	store(&start_word, 0);
	submit_many(the_word, shuffled);
	for (uint64_t now = 0; now <= MANY; now += now < 10 ? 1 : 99)
		step(now);
	step(MANY);
	peer_check(&pair.there, pair.number, 0, MANY * 64, 31);
}

/* A word that jumps about, far around the circle and back. */
static void a_word_that_jumps(void **state)
{
	store(&start_word, 0);
	submit_many(the_word, anywhere);
	step(0);
	for (uint32_t bit = 62; bit > 30; bit -= 4) /* ever further back, which reaches the far side first */
		step((UINT64_C(1) << 63) + (UINT64_C(1) << bit));
	for (uint32_t i = 0; i < 40; i++)
		step(random_next(&seed) >> i % 60);
	step(1); /* from here twice around */
	for (int i = 0; i < 5; i++)
		step(load(&start_word) + (UINT64_C(1) << 62) + 12345);
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
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER, .start_word = &start_word };
	struct answer answer;
	char data[64];

	store(&start_word, 0);
	for (uint32_t i = 0; i < 10; i++) {
		uint64_t place = 0, tag;

		for (uint32_t j = 0; j < 10; j++)
			place += values[j] < values[i] || (values[j] == values[i] && j < i);
		tag = 600 + place;
		pattern_fill(data, sizeof(data), tag, 0);
		op.start_value = values[i];
		assert_status(weft_send(pair.here.engine, pair.peer, tag, data, sizeof(data), &op, NULL), 0);
	}
	let_time_pass(&pair);
	store(&start_word, 9);
	assert_status(
	    peer_try(&pair.there, &(struct command){ .code = COMMAND_DRAIN, .arg = { 600, 10, LIMIT } }, NULL, &answer),
	    0);
	assert_int_equal(answer.value[0], 10);
}

/* ---- what is refused ---- */

static void what_cannot_be(void **state)
{
	struct weft_op good = waiting_op(), op = good;
	weft_transfer transfer;

	op.start_word = (uint64_t *)((char *)&start_word + 1);
	assert_status(submit(&pair, WRITE, &op, &transfer), -EINVAL);
	op = good;
	op.end_word = (uint64_t *)((char *)&end_word + 4);
	assert_status(submit(&pair, SEND, &op, &transfer), -EINVAL);
	op = good;
	op.end_failed_value = 69; /* a stream would wait for ever */
	assert_status(submit(&pair, WRITE, &op, &transfer), -EINVAL);
	op.end_failed_value = 70 + (UINT64_C(1) << 63);
	assert_status(submit(&pair, WRITE, &op, &transfer), -EINVAL);
	op = good;
	op.notify_word = pair.remote;
	assert_status(submit(&pair, WRITE, &op, &transfer), -EINVAL);
	op.notify = WEFT_NOTIFY_COUNTED;
	if (strcmp(transport->provider, "shm") != 0)
		assert_status(submit(&pair, WRITE, &op, &transfer), -EINVAL);
	op.notify = WEFT_NOTIFY_FENCED;
	assert_status(submit(&pair, SEND, &op, &transfer), -EINVAL);
	op.notify_word_offset = 4;
	assert_status(submit(&pair, WRITE, &op, &transfer), -EINVAL);
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
	assert_status(submit(&pair, WRITE_PAGES, &op, &transfer), 0);
	let_time_pass(&pair);
	has_not_ended(&pair, transfer);
	make_source(&pair, WRITE_PAGES, 46);
	store(&start_word, 7);
	peer_wait(&pair.there, WEFT_EVENT_COUNTED, 45, &event);
	check_target(&pair, WRITE_PAGES, 46);
	assert_status(ended(&pair, transfer), 0);
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
	assert_status(ended(&pair, transfer), 0);
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

			make_source(&pair, kind, tag);
			op.flags |= checked ? WEFT_CHECKSUM : 0;
			assert_status(submit(&pair, kind, &op, &transfer), 0);
			peer_wait(&pair.there, WEFT_EVENT_NOTIFY, tag, &event);
			assert_int_equal(event.bytes, 7);
			assert_memory_equal(event.data, "payload", 7);
			assert_true(word_there(op.notify_word_offset) == op.notify_word_value);
			assert_status(ended(&pair, transfer), 0);
			check_target(&pair, kind, tag);
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
		assert_status(ended(&pair, transfer), 0);
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
	assert_status(submit(&pair, WRITE, &op, &transfer), -ERANGE);
	op.notify_word_offset = UINT64_MAX - 7;
	assert_status(submit(&pair, WRITE, &op, &transfer), -ERANGE);
	op = good;
	op.notify_word = pair.remote + 12345;
	assert_status(submit(&pair, WRITE, &op, &transfer), -ENOENT);
	assert_status(submit(&pair, SCATTER, &op, &transfer), -ENOENT);
	op = good;
	op.notify_word_offset = 0;
	number = peer_region(&pair.there, PAGE, WEFT_REMOTE_READ, &descriptor);
	op.notify_word = import(&pair.here, pair.peer, &descriptor);
	assert_status(submit(&pair, WRITE, &op, &transfer), -EACCES);
	peer_tell(&pair.there, COMMAND_REGION_CLOSE, number);
	/* Revoked, which we may or may not have heard of. */
	number = peer_region(&pair.there, PAGE, WEFT_REMOTE_WRITE, &descriptor);
	peer_fill(&pair.there, number, 0, PAGE, 5);
	op.notify_word = import(&pair.here, pair.peer, &descriptor);
	peer_tell(&pair.there, COMMAND_REVOKE, number);
	for (int checked = 0; checked < 2; checked++) {
		op.flags |= checked ? WEFT_CHECKSUM : 0;
		status = submit(&pair, WRITE, &op, &transfer);
		if (status)
			assert_status(status, -ESTALE);
		else
			assert_status(ended(&pair, transfer), -EREMOTEIO);
	}
	peer_check(&pair.there, number, 0, PAGE, 5);
	peer_tell(&pair.there, COMMAND_REGION_CLOSE, number);
	assert_int_equal(peer_wait_try(&pair.there, WEFT_EVENT_NOTIFY, 950, 0, &event), -ETIME);
	assert_status(submit(&pair, WRITE, &good, &transfer), 0);
	assert_status(ended(&pair, transfer), 0);
	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 950, &event);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_starts_by_its_word),
		cmocka_unit_test(one_that_is_there_already),
		cmocka_unit_test(no_queue_is_needed),
		cmocka_unit_test(one_after_the_other),
		cmocka_unit_test(values_wrap_around),
		cmocka_unit_test(a_thousand_on_one_word),
		cmocka_unit_test(a_word_that_jumps),
		cmocka_unit_test(a_thousand_words),
		cmocka_unit_test(messages_start_in_order),
		cmocka_unit_test(what_cannot_be),
		cmocka_unit_test(an_expectation_has_an_end_word),
		cmocka_unit_test(a_counted_write_waits),
		cmocka_unit_test(notifications_write_a_word),
		cmocka_unit_test(words_are_written_in_order),
		cmocka_unit_test(words_that_may_not_be),
	};

	return cmocka_run_group_tests_name("words", tests, open_pair, close_pair);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
