/* src/base: the ring and the queue under threads, the handle table, the pool, the heap, errors and deadlines. */
#include "base/error.h"
#include "base/handle.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mpsc.h"
#include "base/pool.h"
#include "base/ring.h"
#include "base/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT (20 * WF_S)

/* ---- ring ---- */

static void ring_alone(void **state)
{
	struct wf_ring ring;
	struct wf_item item = { { 1, 2, 3 } };

	assert_int_equal(wf_ring_init(&ring, 5), 0);
	assert_int_equal(ring.mask, 7);
	assert_false(wf_ring_pop(&ring, &item));
	for (uint64_t lap = 0; lap < 100; lap++) {
		for (uint64_t i = 0; i < 8; i++) {
			item.word[0] = lap * 8 + i;
			assert_true(wf_ring_push(&ring, &item));
		}
		assert_int_equal(wf_ring_count(&ring), 8);
		assert_false(wf_ring_push(&ring, &item));
		for (uint64_t i = 0; i < 8; i++) {
			assert_true(wf_ring_pop(&ring, &item));
			assert_int_equal(item.word[0], lap * 8 + i);
		}
		assert_false(wf_ring_pop(&ring, &item));
	}
	wf_ring_destroy(&ring);
}

#define PRODUCERS 3
#define EACH      20000

static struct wf_ring shared_ring;
static _Atomic uint64_t popped, failures;
static _Atomic uint8_t times[PRODUCERS * EACH];

static void *ring_push(void *arg)
{
	uint64_t me = (uintptr_t)arg, deadline = wf_now_ns() + LIMIT;

	for (uint64_t i = 0; i < EACH; i++) {
		uint64_t value = me * EACH + i;
		struct wf_item item = { { value, ~value, value * 3 } };

		while (!wf_ring_push(&shared_ring, &item) && wf_now_ns() < deadline)
			sched_yield();
	}
	return NULL;
}

static void *ring_pop(void *arg)
{
	uint64_t last[PRODUCERS] = { 0 }, deadline = wf_now_ns() + LIMIT;

	while (atomic_load(&popped) < PRODUCERS * EACH && wf_now_ns() < deadline) {
		struct wf_item item;
		uint64_t from;

		if (!wf_ring_pop(&shared_ring, &item)) {
			sched_yield();
			continue;
		}
		atomic_fetch_add(&popped, 1);
		from = item.word[0] / EACH;
		/* Whole, once, and each producer's items in the order pushed. */
		if (item.word[1] != ~item.word[0] || item.word[2] != item.word[0] * 3 || from >= PRODUCERS ||
		    item.word[0] % EACH + 1 <= last[from] || atomic_fetch_add(&times[item.word[0]], 1)) {
			atomic_fetch_add(&failures, 1);
			continue;
		}
		last[from] = item.word[0] % EACH + 1;
	}
	return NULL;
}

static void ring_threads(void **state)
{
	pthread_t producer[PRODUCERS], consumer;

	assert_int_equal(wf_ring_init(&shared_ring, 64), 0);
	for (uintptr_t i = 0; i < PRODUCERS; i++)
		pthread_create(&producer[i], NULL, ring_push, (void *)i);
	pthread_create(&consumer, NULL, ring_pop, NULL);
	for (int i = 0; i < PRODUCERS; i++)
		pthread_join(producer[i], NULL);
	pthread_join(consumer, NULL);
	assert_int_equal(atomic_load(&failures), 0);
	assert_int_equal(atomic_load(&popped), PRODUCERS * EACH);
	wf_ring_destroy(&shared_ring);
}

/* ---- queue ---- */

struct queued {
	struct wf_node node;
	uint64_t from, number;
};

static struct wf_mpsc queue;
static struct queued items[PRODUCERS][EACH];

static void *queue_push(void *arg)
{
	uint64_t me = (uintptr_t)arg;

	for (uint64_t i = 0; i < EACH; i++) {
		items[me][i].from = me;
		items[me][i].number = i;
		wf_mpsc_push(&queue, &items[me][i].node);
	}
	return NULL;
}

static void queue_threads(void **state)
{
	uint64_t next[PRODUCERS] = { 0 }, taken = 0, deadline = wf_now_ns() + LIMIT;
	pthread_t producer[PRODUCERS];

	wf_mpsc_init(&queue);
	assert_null(wf_mpsc_pop(&queue));
	assert_false(wf_mpsc_any(&queue));
	for (uintptr_t i = 0; i < PRODUCERS; i++)
		pthread_create(&producer[i], NULL, queue_push, (void *)i);
	while (taken < PRODUCERS * EACH && wf_now_ns() < deadline) {
		struct wf_node *node = wf_mpsc_pop(&queue);
		struct queued *item = (struct queued *)node;

		if (!node) {
			sched_yield();
			continue;
		}
		assert_int_equal(item->number, next[item->from]);
		next[item->from]++;
		taken++;
	}
	for (int i = 0; i < PRODUCERS; i++)
		pthread_join(producer[i], NULL);
	assert_int_equal(taken, PRODUCERS * EACH);
	assert_null(wf_mpsc_pop(&queue));
	assert_false(wf_mpsc_any(&queue));
	/* Two at once: the second still counts when the first is gone. */
	wf_mpsc_push(&queue, &items[0][0].node);
	wf_mpsc_push(&queue, &items[0][1].node);
	assert_true(wf_mpsc_any(&queue));
	assert_ptr_equal(wf_mpsc_pop(&queue), &items[0][0].node);
	assert_true(wf_mpsc_any(&queue));
	assert_ptr_equal(wf_mpsc_pop(&queue), &items[0][1].node);
	assert_false(wf_mpsc_any(&queue));
}

/* ---- handles ---- */

static _Atomic int released;

static void on_release(void *object)
{
	atomic_fetch_add(&released, 1);
}

static void handle_life(void **state)
{
	struct wf_handles handles;
	uint64_t first = 0, second = 0;
	int a, b;

	atomic_store(&released, 0);
	wf_handles_init(&handles, on_release);
	assert_null(wf_handle_get(&handles, 0));
	assert_null(wf_handle_get(&handles, UINT64_MAX));
	assert_int_equal(wf_handle_add(&handles, &a, &first), 0);
	assert_true(first != 0);
	assert_ptr_equal(wf_handle_get(&handles, first), &a);
	assert_int_equal(wf_handle_retire_idle(&handles, first), -EBUSY);
	wf_handle_put(&handles, first);
	assert_int_equal(wf_handle_retire_idle(&handles, first), 0);
	assert_int_equal(wf_handle_retire_idle(&handles, first), -ENOENT);
	assert_null(wf_handle_get(&handles, first));
	assert_null(wf_handle_retire(&handles, first));
	assert_int_equal(atomic_load(&released), 0);
	wf_handle_put(&handles, first);
	assert_int_equal(atomic_load(&released), 1);
	/* The slot's next user has another handle; the old one stays refused. */
	assert_int_equal(wf_handle_add(&handles, &b, &second), 0);
	assert_true(second != first);
	assert_null(wf_handle_get(&handles, first));
	assert_ptr_equal(wf_handle_retire(&handles, second), &b);
	assert_null(wf_handle_peek(&handles, second));
	wf_handle_revive(&handles, second);
	assert_ptr_equal(wf_handle_peek(&handles, second), &b);
	assert_int_equal(wf_handle_references(&handles, second), 1);
	assert_ptr_equal(wf_handle_retire(&handles, second), &b);
	wf_handle_put(&handles, second);
	assert_int_equal(atomic_load(&released), 2);
	wf_handles_destroy(&handles);
}

struct walk {
	struct wf_handles handles;
	uint64_t handle;
};

/* Meanwhile its owner finds that nobody uses it, and lets it go. */
static void close_visited(void *object, void *context)
{
	struct walk *walk = context;

	assert_int_equal(wf_handle_references(&walk->handles, walk->handle), 1);
	assert_int_equal(wf_handle_retire_idle(&walk->handles, walk->handle), 0);
	wf_handle_put(&walk->handles, walk->handle);
	assert_int_equal(atomic_load(&released), 0);
}

static void handle_visited(void **state)
{
	struct walk walk;
	int object;

	atomic_store(&released, 0);
	wf_handles_init(&walk.handles, on_release);
	assert_int_equal(wf_handle_add(&walk.handles, &object, &walk.handle), 0);
	wf_handles_each(&walk.handles, close_visited, &walk);
	assert_int_equal(atomic_load(&released), 1);
	assert_int_equal(wf_handle_add(&walk.handles, &object, &walk.handle), 0); /* in the same slot */
	assert_ptr_equal(wf_handle_retire(&walk.handles, walk.handle), &object);
	wf_handle_put(&walk.handles, walk.handle);
	assert_int_equal(atomic_load(&released), 2);
	wf_handles_destroy(&walk.handles);
}

static void count_one(void *object, void *context)
{
	++*(int *)context;
}

static void handle_many(void **state)
{
	enum { COUNT = 5000 };
	static uint64_t handle[COUNT];
	static int object[COUNT];
	struct wf_handles handles;
	int seen = 0;

	wf_handles_init(&handles, on_release);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(wf_handle_add(&handles, &object[i], &handle[i]), 0);
	for (int i = 0; i < COUNT; i++) {
		assert_ptr_equal(wf_handle_get(&handles, handle[i]), &object[i]);
		wf_handle_put(&handles, handle[i]);
	}
	for (int i = 0; i < COUNT; i += 2) {
		assert_ptr_equal(wf_handle_retire(&handles, handle[i]), &object[i]);
		wf_handle_put(&handles, handle[i]);
	}
	wf_handles_each(&handles, count_one, &seen);
	assert_int_equal(seen, COUNT / 2);
	for (int i = 1; i < COUNT; i += 2) {
		wf_handle_retire(&handles, handle[i]);
		wf_handle_put(&handles, handle[i]);
	}
	wf_handles_destroy(&handles);
}

/* Objects come and go while others look them up: every object found is alive, and each is released once. */
struct living {
	_Atomic int alive;
};
static struct wf_handles shared_handles;
static _Atomic uint64_t published;
static _Atomic int stop_looking;

static void living_release(void *object)
{
	if (!atomic_exchange(&((struct living *)object)->alive, 0))
		atomic_fetch_add(&failures, 1);
	atomic_fetch_add(&released, 1);
}

static void *look_up(void *arg)
{
	while (!atomic_load(&stop_looking)) {
		uint64_t handle = atomic_load(&published);
		struct living *object = wf_handle_get(&shared_handles, handle);

		if (!object)
			continue;
		if (!atomic_load(&object->alive))
			atomic_fetch_add(&failures, 1);
		wf_handle_put(&shared_handles, handle);
	}
	return NULL;
}

static void handle_threads(void **state)
{
	enum { COUNT = 5000 };
	static struct living object[COUNT];
	pthread_t thread[3];

	atomic_store(&failures, 0);
	atomic_store(&released, 0);
	wf_handles_init(&shared_handles, living_release);
	for (int i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, look_up, NULL);
	for (int i = 0; i < COUNT; i++) {
		uint64_t handle = 0;

		atomic_store(&object[i].alive, 1);
		assert_int_equal(wf_handle_add(&shared_handles, &object[i], &handle), 0);
		atomic_store(&published, handle);
		if (i % 16 == 0)
			sched_yield();
		assert_ptr_equal(wf_handle_retire(&shared_handles, handle), &object[i]);
		wf_handle_put(&shared_handles, handle);
	}
	atomic_store(&stop_looking, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(atomic_load(&failures), 0);
	assert_int_equal(atomic_load(&released), COUNT);
	wf_handles_destroy(&shared_handles);
}

/* ---- pool ---- */

static void pool(void **state)
{
	struct wf_pool objects;
	void *taken[33];

	assert_int_equal(wf_pool_init(&objects, 33, 100), 0);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 33; i++) {
			taken[i] = wf_pool_take(&objects);
			assert_non_null(taken[i]);
			assert_int_equal((uintptr_t)taken[i] % 64, 0);
			assert_ptr_equal(wf_pool_at(&objects, wf_pool_index(&objects, taken[i])), taken[i]);
			for (int j = 0; !round && j < 100; j++)
				assert_int_equal(((char *)taken[i])[j], 0);
			for (uint32_t j = 0; j < i; j++)
				assert_ptr_not_equal(taken[j], taken[i]);
			memset(taken[i], 0xff, 100);
		}
		assert_null(wf_pool_take(&objects));
		assert_int_equal(wf_pool_out(&objects), 33);
		for (uint32_t i = 0; i < 33; i++) {
			wf_pool_give(&objects, taken[i]);
			assert_int_equal(wf_pool_out(&objects), 32 - i);
		}
	}
	wf_pool_destroy(&objects);
}

/* ---- the rest ---- */

static void errors(void **state)
{
	static const int known[] = { EAGAIN,  EINVAL,    EBUSY,     ENOENT,      ESTALE,    ERANGE,
				     EACCES,  ETIMEDOUT, ECANCELED, EHOSTDOWN,   EPROTO,    EPROTONOSUPPORT,
				     EBADMSG, EMSGSIZE,  ENODEV,    ENOPROTOOPT, ESHUTDOWN, ENOBUFS };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		assert_true(strlen(wf_error_text(known[i])) > 3);
		assert_string_equal(wf_error_text(known[i]), wf_error_text(-known[i]));
	}
	assert_non_null(wf_error_text(0));
	assert_non_null(wf_error_text(123456));
	assert_non_null(wf_error_hint(-ENODEV));
	assert_null(wf_error_hint(0));
	assert_null(wf_error_hint(123456));
}

static void deadlines(void **state)
{
	assert_true(wf_deadline(5, 10) == 15);
	assert_true(wf_deadline(5, UINT64_MAX) == WF_NEVER);
	assert_true(wf_deadline(UINT64_MAX - 3, 3) == UINT64_MAX);
	assert_true(wf_deadline(UINT64_MAX - 3, 4) == WF_NEVER);
}

static void take_line(void *context, enum weft_log_level level, const char *text)
{
	snprintf(context, 64, "%d %s", level, text);
}

static void logging(void **state)
{
	char line[64] = "";
	struct wf_log log = { take_line, line, NULL }, none = { 0 };

	wf_log(&log, WEFT_LOG_WARN, "%s is %d", "it", 5);
	assert_string_equal(line, "1 it is 5");
	wf_log(&none, WEFT_LOG_ERROR, "%d", 1);
}

/* ---- heap ---- */

struct weight {
	uint64_t number;
	bool in;
	struct wf_heap_node node;
};

static uint64_t number_of(const struct wf_heap_node *node)
{
	return wf_container(node, struct weight, node)->number;
}

static bool lighter(const struct wf_heap_node *a, const struct wf_heap_node *b, uint64_t from)
{
	return number_of(a) - from < number_of(b) - from;
}

/* The first is always the lightest of those that are in, whatever is added and removed. */
static void heap(void **state)
{
	enum { COUNT = 400, ROUNDS = 20000 };
	static struct weight weights[COUNT];
	struct wf_heap_node *first = NULL;
	uint64_t seed = 1, from = UINT64_MAX - COUNT / 2, in = 0;

	for (uint64_t i = 0; i < COUNT; i++)
		weights[i].number = from + i * 7 % COUNT;
	for (int round = 0; round < ROUNDS; round++) {
		struct weight *weight;
		uint64_t least = COUNT;

		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		weight = &weights[(seed >> 33) % COUNT];
		if (round % 1000 == 999) { /* all out and in again */
			for (struct wf_heap_node *node = wf_heap_take_all(&first), *next; node; node = next, in--) {
				next = node->next;
				wf_container(node, struct weight, node)->in = false;
			}
			assert_int_equal(in, 0);
			assert_null(first);
		}
		if (weight->in)
			wf_heap_remove(&first, &weight->node, lighter, from);
		else
			wf_heap_add(&first, &weight->node, lighter, from);
		in += weight->in ? (uint64_t)-1 : 1;
		weight->in = !weight->in;
		for (uint64_t i = 0; i < COUNT; i++)
			if (weights[i].in && weights[i].number - from < least)
				least = weights[i].number - from;
		assert_true(first ? number_of(first) - from == least : least == COUNT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_alone),     cmocka_unit_test(ring_threads),   cmocka_unit_test(queue_threads),
		cmocka_unit_test(handle_life),    cmocka_unit_test(handle_visited), cmocka_unit_test(handle_many),
		cmocka_unit_test(handle_threads), cmocka_unit_test(pool),           cmocka_unit_test(errors),
		cmocka_unit_test(deadlines),      cmocka_unit_test(logging),        cmocka_unit_test(heap),
	};

	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
