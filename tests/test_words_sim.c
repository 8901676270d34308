/* Words with manual progress, on simulated NICs: two peers, expectations, and a receiver that takes no events. */
#include "base/time.h"
#include "engine/core/engine.h"
#include "support/sims.h"

#include <errno.h>
#include <string.h>

#define BYTES (64u << 10)

static struct sim here, there, third, *const all[] = { &here, &there, &third };
static weft_peer peer, other;
static weft_remote remote, far;
static uint64_t start_word, end_word;

static uint64_t load(const void *at)
{
	return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static int open_all(void **state)
{
	struct weft_config config = sim_config();

	config.flags = WEFT_MANUAL_PROGRESS;
	sim_open(&here, "a", "p5en,nics=2", &config, BYTES);
	sim_open(&there, "b", "p5en,nics=2", &config, BYTES);
	sim_open(&third, "c", "p5en,nics=2", &config, BYTES);
	peer = sim_add(&here, &there, &remote);
	other = sim_add(&here, &third, &far);
	SIMS_UNTIL(all, 3, sim_paths(&here, peer) == 2 && sim_paths(&here, other) == 2);
	store(&start_word, 0);
	store(&end_word, 0);
	return 0;
}

static int close_all(void **state)
{
	for (int i = 0; i < 3; i++)
		sim_close(all[i]);
	return 0;
}

static void turns(int count)
{
	for (int i = 0; i < count; i++)
		sims_turn(all, 3);
}

/* With manual progress a message goes out at once, but not before its word. */
static void a_message_waits(void **state)
{
	struct weft_op op = { .size = sizeof(op), .start_word = &start_word, .start_value = 1 };
	struct weft_event event;

	op.end_word = &end_word;
	op.end_value = 1;
	assert_int_equal(weft_send(here.engine, peer, 5, "late", 4, &op, NULL), 0);
	turns(1000);
	assert_int_equal(load(&end_word), 0);
	assert_int_equal(weft_send(here.engine, peer, 6, "early", 5, NULL, NULL), 0);
	sims_event(all, 3, there.queue, WEFT_EVENT_MESSAGE, &event);
	assert_int_equal(event.tag, 6);
	weft_event_release(&event);
	store(&start_word, 1);
	sims_event(all, 3, there.queue, WEFT_EVENT_MESSAGE, &event);
	assert_int_equal(event.tag, 5);
	weft_event_release(&event);
	SIMS_UNTIL(all, 3, load(&end_word) == 1);
}

/* What comes next may find the word reached before the worker has looked: then it starts all of them, and naps as if none had waited. */
static void the_last_to_come_starts_the_others(void **state)
{
	const struct wf_worker *worker = &here.engine->group[0].worker;
	struct weft_op op = { .size = sizeof(op), .start_word = &start_word, .end_word = &end_word };

	store(&end_word, 0);
	op.start_value = load(&start_word) + 1;
	op.end_value = 1;
	assert_int_equal(weft_send(here.engine, peer, 9, "waits", 5, &op, NULL), 0);
	turns(1);
	assert_true(worker->nap_most_ns != WF_NEVER);
	store(&start_word, op.start_value);
	op.end_value = 2;
	assert_int_equal(weft_send(here.engine, peer, 9, "comes", 5, &op, NULL), 0);
	SIMS_UNTIL(all, 3, load(&end_word) == 2);
	assert_true(worker->nap_most_ns == WF_NEVER);
	for (int i = 0; i < 2; i++) {
		struct weft_event event;

		sims_event(all, 3, there.queue, WEFT_EVENT_MESSAGE, &event);
		assert_int_equal(event.tag, 9);
		weft_event_release(&event);
	}
}

/* One that has not started yet takes no entry of the peer's away from one that has, or from one that comes when it was given up. */
static void a_barrier_that_waits_keeps_nobody_waiting(void **state)
{
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER, .start_word = &start_word };
	struct weft_op there_op = { .size = sizeof(op), .queue = there.queue, .timeout_ns = WEFT_FOREVER };
	weft_remote unused;
	weft_peer back = sim_add(&there, &here, &unused);
	weft_transfer waits;
	struct weft_event event;

	store(&end_word, 0);
	op.start_value = load(&start_word) + 1;
	op.end_word = &end_word;
	op.end_value = 1;
	assert_int_equal(weft_barrier(here.engine, &peer, 1, 77, &op, &waits), 0);
	assert_int_equal(weft_barrier(there.engine, &back, 1, 77, &there_op, NULL), 0);
	turns(1000);
	assert_int_equal(weft_transfer_cancel(here.engine, waits), 0);
	SIMS_UNTIL(all, 3, load(&end_word) == 1 + WEFT_WORD_FAILED);
	op.start_word = NULL;
	op.end_value = 2;
	store(&end_word, 0);
	assert_int_equal(weft_barrier(here.engine, &peer, 1, 77, &op, NULL), 0);
	SIMS_UNTIL(all, 3, load(&end_word) == 2);
	sims_event(all, 3, there.queue, WEFT_EVENT_END, &event);
	assert_int_equal(event.status, 0);
	weft_event_release(&event);
}

/* The caller gets its answer when the word has come. */
static void a_reply_waits(void **state)
{
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER, .start_word = &start_word };
	struct weft_event event;

	store(&end_word, 0);
	op.start_value = load(&start_word) + 1;
	op.end_word = &end_word;
	op.end_value = 5;
	assert_int_equal(
	    weft_call(here.engine, peer, 8, "?", 1, &(struct weft_op){ .size = sizeof(op), .queue = here.queue }, NULL),
	    0);
	sims_event(all, 3, there.queue, WEFT_EVENT_CALL, &event);
	assert_int_equal(weft_reply(there.engine, event.peer, event.call, 0, "!", 1, &op, NULL), 0);
	weft_event_release(&event);
	turns(1000);
	while (weft_queue_poll(here.queue, &event, sizeof(event), 1) == 1) { /* of its peers, perhaps */
		assert_int_not_equal(event.type, WEFT_EVENT_REPLY);
		weft_event_release(&event);
	}
	assert_int_equal(load(&end_word), 0);
	store(&start_word, op.start_value);
	sims_event(all, 3, here.queue, WEFT_EVENT_REPLY, &event);
	assert_int_equal(event.status, 0);
	weft_event_release(&event);
	SIMS_UNTIL(all, 3, load(&end_word) == 5);
}

/* A call ends as its reply says, and its end word too: by the time the reply can be taken. */
static void a_call_ends_as_its_reply(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = here.queue, .end_word = &end_word };
	struct weft_event event;

	for (uint32_t i = 0; i < 40; i++) {
		int status = i % 2 ? -EDOM : 0;

		weft_transfer transfer;

		op.flags = i % 4 < 2 ? 0 : WEFT_KEEP_END;
		op.queue = op.flags ? NULL : here.queue;
		op.end_value = 100 + i;
		assert_int_equal(weft_call(here.engine, peer, 7, "?", 1, &op, &transfer), 0);
		sims_event(all, 3, there.queue, WEFT_EVENT_CALL, &event);
		assert_int_equal(weft_reply(there.engine, event.peer, event.call, status, "!", 1, NULL, NULL), 0);
		weft_event_release(&event);
		if (op.flags)
			SIMS_UNTIL(all, 3,
				   weft_transfer_wait(here.engine, transfer, 0, &event, sizeof(event)) != -ETIMEDOUT);
		else
			sims_event(all, 3, here.queue, WEFT_EVENT_REPLY, &event);
		assert_int_equal(event.status, status);
		weft_event_release(&event);
		assert_true(load(&end_word) == 100 + i + (status ? WEFT_WORD_FAILED : 0));
	}
}

/* Both are told, and the peer whose remote it is gets the word. */
static void a_scatter_to_two_peers(void **state)
{
	struct weft_write parts[] = { { sizeof(struct weft_write), here.region, 0, far, 0, 100 },
				      { sizeof(struct weft_write), here.region, 0, remote, 0, 100 } };
	struct weft_op op = { .size = sizeof(op),
			      .notify = WEFT_NOTIFY_FENCED,
			      .start_word = &start_word,
			      .start_value = load(&start_word) + 1,
			      .end_word = &end_word,
			      .end_value = 2,
			      .notify_word = remote,
			      .notify_word_offset = 4096,
			      .notify_word_value = 77 };
	struct weft_event event;

	store(&end_word, 0);
	assert_int_equal(weft_scatter(here.engine, parts, 1, &op, NULL), -EINVAL); /* not of a peer that is named */
	op.flags = WEFT_CHECKSUM;
	assert_int_equal(weft_write(here.engine, &parts[0], &op, NULL), -EINVAL);
	assert_int_equal(weft_scatter(here.engine, parts, 2, &op, NULL), 0);
	turns(100);
	assert_int_equal(load(&end_word), 0);
	pattern_fill(here.memory, 100, 3, 0);
	store(&start_word, op.start_value);
	sims_event(all, 3, there.queue, WEFT_EVENT_NOTIFY, &event);
	weft_event_release(&event);
	assert_int_equal(load(there.memory + 4096), 77);
	sims_event(all, 3, third.queue, WEFT_EVENT_NOTIFY, &event);
	weft_event_release(&event);
	assert_int_equal(load(third.memory + 4096), 0);
	SIMS_UNTIL(all, 3, load(&end_word) == 2);
	assert_int_equal(pattern_differs(there.memory, 100, 3, 0), 100);
	assert_int_equal(pattern_differs(third.memory, 100, 3, 0), 100);
}

static void an_expectation_writes_its_word(void **state)
{
	struct weft_write write = { sizeof(write), here.region, 0, remote, 0, 64 };
	struct weft_op op = { .size = sizeof(op), .notify = WEFT_NOTIFY_COUNTED, .immediate = 9 };
	struct weft_op expect = { .size = sizeof(expect), .end_word = &end_word, .end_value = 10 };

	store(&end_word, 0);
	assert_int_equal(weft_expect(there.engine, 0, 9, 3, &expect, NULL), 0);
	for (int i = 0; i < 3; i++) {
		turns(100);
		assert_int_equal(load(&end_word), 0);
		assert_int_equal(weft_write(here.engine, &write, &op, NULL), 0);
	}
	SIMS_UNTIL(all, 3, load(&end_word) == 10);
	assert_int_equal(weft_engine_close(there.engine), 0); /* one that the engine's end ends */
	there.engine = NULL;
	expect.end_value = 20;
	assert_int_equal(weft_expect(here.engine, 0, 9, 3, &expect, NULL), 0);
	assert_int_equal(weft_engine_close(here.engine), 0);
	here.engine = NULL;
	assert_true(load(&end_word) == 20 + WEFT_WORD_FAILED);
}

/* A receiver that only looks at words never takes an event: its peers' window must not fill. */
static void nobody_listens(void **state)
{
	struct weft_config config = sim_config();
	struct weft_write write = { sizeof(write), here.region, 0, 0, 0, 8 };
	struct weft_op op = { .size = sizeof(op),
			      .timeout_ns = WEFT_FOREVER,
			      .notify = WEFT_NOTIFY_FENCED,
			      .end_word = &end_word,
			      .notify_word_offset = 64 };
	struct sim deaf = { .bytes = BYTES, .memory = third.memory }, *const both[] = { &here, &deaf };
	weft_queue *late;
	weft_peer to;

	config.flags = WEFT_MANUAL_PROGRESS;
	config.peer_window = 1 << 16; /* 8 frames */
	config.max_message = 1 << 13;
	assert_int_equal(weft_engine_open(&config, &deaf.engine, NULL, 0), 0);
	assert_int_equal(weft_region_register(deaf.engine, deaf.memory, BYTES, WEFT_REMOTE_WRITE, &deaf.region), 0);
	to = sim_add(&here, &deaf, &op.notify_word);
	assert_true(to != 0);
	write.to = op.notify_word;
	for (uint32_t i = 1; i <= 200; i++) {
		op.notify_word_value = op.end_value = 1000 + i;
		assert_int_equal(weft_write(here.engine, &write, &op, NULL), 0);
		SIMS_UNTIL(both, 2, load(&end_word) == op.end_value);
		assert_int_equal(load(deaf.memory + 64), op.end_value);
	}
	assert_int_equal(weft_queue_open(deaf.engine, WEFT_QUEUE_LISTEN, &late), 0);
	assert_int_equal(weft_engine_close(deaf.engine), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_waits),
		cmocka_unit_test(a_reply_waits),
		cmocka_unit_test(a_call_ends_as_its_reply),
		cmocka_unit_test(a_scatter_to_two_peers),
		cmocka_unit_test(the_last_to_come_starts_the_others),
		cmocka_unit_test(a_barrier_that_waits_keeps_nobody_waiting),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(an_expectation_writes_its_word),
	};
	int failed = sims_set_up(NULL);

	assert_int_equal(failed, 0);
	failed = cmocka_run_group_tests_name("words on simulated NICs", tests, open_all, close_all);
	sims_tear_down(NULL);
	return failed;
}
