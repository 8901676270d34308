/*
 * Calls that take long or hang inside a provider: registrations and rails that reopen hold up nobody, requests that were
 * given up are undone when the worker comes back, and closing is bounded. Engines on simulated NICs; some limits are set
 * shorter inside the engine.
 */
#include "engine/core/engine.h"
#include "support/sims.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };

static struct sim here, there;
static weft_remote remote;
static weft_peer peer;

static int open_both(void **state)
{
	struct weft_config config = sim_config();

	sim_open(&here, "a", "p6-b200,nics=2", &config, BYTES);
	sim_open(&there, "b", "p6-b200,nics=2", &config, BYTES);
	peer = sim_add(&here, &there, &remote);
	return 0;
}

/* Both rails of an engine on one worker. */
static int open_on_one(uint64_t rail_limit_ns)
{
	struct weft_config config = sim_config();

	config.max_workers = 1;
	if (rail_limit_ns) {
		config.rail_limit_ns = rail_limit_ns;
		config.heartbeat_ns = rail_limit_ns / 4; /* a peer that is heard is not to blame for what is lost */
	}
	sim_open(&here, "a", "p6-b200,nics=2,strict=1", &config, BYTES);
	sim_open(&there, "b", "p6-b200,nics=2,strict=1", &config, BYTES);
	assert_int_equal(here.engine->groups, 1);
	assert_int_equal(here.engine->rails, 2);
	peer = sim_add(&here, &there, &remote);
	return 0;
}

static int open_both_on_one(void **state)
{
	return open_on_one(0);
}

static int open_both_impatient(void **state)
{
	return open_on_one(100 * MS);
}

static int close_both(void **state)
{
	sim_mend(-1);
	sim_close(&here);
	sim_close(&there);
	return 0;
}

static int begin_write(uint64_t tag, weft_region from)
{
	struct weft_write write = { .size = sizeof(write), .from = from, .to = remote, .bytes = 4096 };
	struct weft_op op = { .size = sizeof(op), .queue = here.queue, .tag = tag };

	return weft_write(here.engine, &write, &op, NULL);
}

static int end_of_write(uint64_t tag)
{
	uint64_t limit = now_ns() + LIMIT;
	struct weft_event event;

	while (now_ns() < limit)
		if (weft_queue_wait(here.queue, &event, sizeof(event), 1, LIMIT) == 1) {
			bool is_it = event.type == WEFT_EVENT_END && event.tag == tag;
			int status = event.status;

			weft_event_release(&event);
			if (is_it)
				return status;
		}
	fail_msg("a write did not end");
	return 0;
}

struct slow {
	char *memory;
	weft_region region;
	_Atomic int status; /* 1: under way */
};

static void *register_slowly(void *argument)
{
	struct slow *slow = argument;

	atomic_store(&slow->status,
		     weft_region_register(here.engine, slow->memory, BYTES, WEFT_REMOTE_READ, &slow->region));
	return NULL;
}

#define UNTIL(holds)                                                                                                   \
	do {                                                                                                           \
		uint64_t until_ns = now_ns() + LIMIT;                                                                  \
                                                                                                                       \
		while (!(holds)) {                                                                                     \
			sims_in_time(until_ns);                                                                        \
			usleep(1000);                                                                                  \
		}                                                                                                      \
	} while (0)

/* A very slow registration: operations end meanwhile, and the region works in the end. */
static void slow_registration(void **state)
{
	struct slow slow = { .memory = calloc(1, BYTES), .status = 1 };
	pthread_t thread;
	int fault;

	assert_non_null(slow.memory);
	assert_int_equal(begin_write(1, here.region), 0);
	assert_int_equal(end_of_write(1), 0);
	fault = sim_fault("host=a,op=reg,fault=stall:600s");
	assert_int_equal(pthread_create(&thread, NULL, register_slowly, &slow), 0);
	UNTIL(sim_struck(fault));
	for (uint64_t tag = 2; tag < 22; tag++) {
		assert_int_equal(begin_write(tag, here.region), 0);
		assert_int_equal(end_of_write(tag), 0);
	}
	assert_int_equal(atomic_load(&slow.status), 1);
	sim_mend(fault);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&slow.status), 0);
	assert_int_equal(begin_write(30, slow.region), 0);
	assert_int_equal(end_of_write(30), 0);
	assert_int_equal(weft_region_close(here.engine, slow.region), 0);
	free(slow.memory);
}

static void stall_worker(uint64_t tag)
{
	int fault = sim_fault("host=a,op=write,fault=stall:600s");

	assert_int_equal(begin_write(tag, here.region), 0);
	UNTIL(sim_struck(fault));
}

static bool is_undone(weft_region handle)
{
	struct wf_handle_slot *slots = atomic_load(&here.engine->regions.chunk[0]);

	return !(uint32_t)atomic_load(&slots[(uint32_t)handle - 1].state);
}

/* The worker hangs: the request says so in time, and is undone when the worker is back. */
static void given_up_and_undone(void **state)
{
	char *memory = calloc(1, BYTES);
	weft_region region = 0;

	assert_non_null(memory);
	assert_int_equal(begin_write(1, here.region), 0);
	assert_int_equal(end_of_write(1), 0);
	here.engine->settings.control_ns = 300 * MS;
	stall_worker(2);
	assert_int_equal(weft_region_register(here.engine, memory, BYTES, 0, &region), -ETIMEDOUT);
	assert_int_equal(region, 0);
	assert_int_equal(weft_region_revoke(here.engine, here.region), -EBUSY); /* the write uses it */
	sim_mend(-1);
	assert_int_equal(end_of_write(2), 0);
	UNTIL(is_undone(here.region + 1)); /* slots are given out in order */
	here.engine->settings.control_ns = LIMIT;
	assert_int_equal(weft_region_register(here.engine, memory, BYTES, 0, &region), 0);
	assert_int_equal(weft_region_close(here.engine, region), 0);
	free(memory);
}

static int threads(void)
{
	DIR *directory = opendir("/proc/self/task");
	int count = 0;

	assert_non_null(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void *close_here(void *argument)
{
	atomic_store((_Atomic int *)argument, weft_engine_close(here.engine));
	return NULL;
}

/* The worker never hears of it. */
static void begin_write_with_word(uint64_t *word)
{
	struct weft_write write = { .size = sizeof(write), .from = here.region, .to = remote, .bytes = 4096 };
	struct weft_op op = { .size = sizeof(op), .end_word = word, .end_value = 1 };

	assert_int_equal(weft_write(here.engine, &write, &op, NULL), 0);
}

static void bounded_close(void **state)
{
	_Atomic int status = 1;
	uint64_t word = 0;
	pthread_t thread;
	int before;

	assert_int_equal(begin_write(1, here.region), 0);
	assert_int_equal(end_of_write(1), 0);
	before = threads();
	here.engine->settings.close_ns = 300 * MS;
	stall_worker(2);
	begin_write_with_word(&word);
	assert_int_equal(pthread_create(&thread, NULL, close_here, &status), 0);
	UNTIL(atomic_load(&status) != 1);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&status), -ETIMEDOUT);
	assert_int_equal(word, 1 + WEFT_WORD_FAILED); /* who waits for it goes on */
	/* The thread is still in the post, and what it uses is still there; then it cleans up after itself. */
	assert_int_equal(threads(), before);
	sim_mend(-1);
	UNTIL(threads() == before - 1);
	here.engine = NULL;
#if defined(__SANITIZE_THREAD__)
	here.memory = NULL; /* nobody joined the thread, so it does not know that this may be freed now */
#endif
}

/* Rail 0 fails, and the call named op hangs while it is closed or reopened: that call's fault. */
static int hang_reopen(const char *op, uint64_t *tag)
{
	int hang = sim_fault("host=a,nic=0,op=%s,fault=stall:600s", op);
	int failure = sim_fault("host=a,nic=0,op=write,count=1,fault=internal");
	uint64_t until = now_ns() + LIMIT;

	while (!sim_struck(failure)) {
		sims_in_time(until);
		assert_int_equal(begin_write(++*tag, here.region), 0);
		assert_int_equal(end_of_write(*tag), 0);
	}
	UNTIL(sim_struck(hang));
	return hang;
}

/* However long it takes a rail to close and to open again, the other rail of the same worker goes on, and the rail comes back. */
static void slow_reopen(void **state)
{
	static const char *const calls[] = { "close", "open" };
	const struct wf_seat *seat = here.engine->seat[0];
	uint64_t tag = 0;

	assert_int_equal(begin_write(++tag, here.region), 0);
	assert_int_equal(end_of_write(tag), 0);
	for (uint64_t i = 0; i < 2; i++) {
		uint64_t writes;
		int hang;

		UNTIL(sim_paths(&here, peer) == 2);
		hang = hang_reopen(calls[i], &tag);
		writes = atomic_load(&seat->count.writes);
		for (int n = 0; n < 20; n++) {
			assert_int_equal(begin_write(++tag, here.region), 0);
			assert_int_equal(end_of_write(tag), 0);
		}
		/* All of that while it was still away, on the other rail. */
		assert_int_equal(sim_struck(hang), 1);
		assert_int_equal(atomic_load(&seat->up), 0);
		assert_int_equal(atomic_load(&seat->count.writes), writes);
		assert_int_equal(atomic_load(&seat->count.reopened), i);
		sim_mend(-1);
		UNTIL(atomic_load(&seat->count.reopened) == i + 1);
		UNTIL(atomic_load(&seat->up));
	}
}

/* A piece is lost, and the rail that it is on takes long to close: however long that is, the piece is not blamed for it, and
 * another rail carries it when the rail is closed. */
static void piece_on_a_hanging_rail(void **state)
{
	int hang = sim_fault("host=a,nic=0,op=close,fault=stall:600s");
	int loss = sim_fault("host=a,nic=0,op=write,count=1,fault=drop");
	uint64_t begun = 0, until = now_ns() + LIMIT;

	while (!sim_struck(loss)) {
		sims_in_time(until);
		if (begun < 500)
			assert_int_equal(begin_write(++begun, here.region), 0);
		usleep(1000);
	}
	UNTIL(sim_struck(hang));
	/* Housekeeping, every 25 ms, finds the piece there more often than a piece may fail. */
	for (until = now_ns() + S; now_ns() < until;)
		usleep(10000);
	sim_mend(-1);
	for (uint64_t ended = 0; ended < begun;) {
		struct weft_event event;

		assert_int_equal(weft_queue_wait(here.queue, &event, sizeof(event), 1, LIMIT), 1);
		if (event.type == WEFT_EVENT_END) {
			assert_int_equal(event.status, 0);
			ended++;
		}
		weft_event_release(&event);
	}
}

/* Closing the engine while a rail of its hangs in a close is bounded. */
static void bounded_close_of_a_hanging_rail(void **state)
{
	_Atomic int status = 1;
	uint64_t tag = 0;
	pthread_t thread;
	int before;

	assert_int_equal(begin_write(++tag, here.region), 0);
	assert_int_equal(end_of_write(tag), 0);
	UNTIL(sim_paths(&here, peer) == 2);
	before = threads();
	here.engine->settings.close_ns = 300 * MS;
	hang_reopen("close", &tag);
	assert_int_equal(pthread_create(&thread, NULL, close_here, &status), 0);
	UNTIL(atomic_load(&status) != 1);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&status), -ETIMEDOUT);
	/* The worker and the thread that closes the rail are left, and what they use; then they clean up behind themselves. */
	assert_int_equal(threads(), before + 1);
	sim_mend(-1);
	UNTIL(threads() == before - 1);
	here.engine = NULL;
#if defined(__SANITIZE_THREAD__)
	here.memory = NULL; /* nobody joined the thread, so it does not know that this may be freed now */
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(slow_registration, open_both, close_both),
		cmocka_unit_test_setup_teardown(given_up_and_undone, open_both, close_both),
		cmocka_unit_test_setup_teardown(bounded_close, open_both, close_both),
		cmocka_unit_test_setup_teardown(slow_reopen, open_both_on_one, close_both),
		cmocka_unit_test_setup_teardown(piece_on_a_hanging_rail, open_both_impatient, close_both),
		cmocka_unit_test_setup_teardown(bounded_close_of_a_hanging_rail, open_both_on_one, close_both),
	};

	return cmocka_run_group_tests_name("calls that take long inside a provider", tests, sims_set_up,
					   sims_tear_down);
}
