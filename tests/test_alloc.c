/*
 * weft does not allocate on the hot path after open and warm-up, in any operation and on either side. This program has
 * its own malloc and related functions, linked before the C library's. They count calls whose caller lies in
 * libweft.so; the program links the shared library so that the two can be told apart. libfabric's own allocations are
 * not counted.
 */
#include "support/peer.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGES 64
#define BYTES (PAGES * 4096u)
#define SLOTS 64 /* transfers that can be in flight */

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static uintptr_t weft_first, weft_last; /* the library's mapping */
static _Atomic int counting;
static _Atomic uint64_t allocations, frees;
static _Atomic uintptr_t culprit;

static void note(uintptr_t caller, _Atomic uint64_t *counter)
{
	if (!atomic_load_explicit(&counting, memory_order_relaxed) || caller < weft_first || caller >= weft_last)
		return;
	atomic_fetch_add(counter, 1);
	atomic_store(&culprit, caller);
}

#define CALLER ((uintptr_t)__builtin_return_address(0))

void *malloc(size_t bytes)
{
	note(CALLER, &allocations);
	return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	note(CALLER, &allocations);
	return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
	note(CALLER, &allocations);
	return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	note(CALLER, &allocations);
	return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
	note(CALLER, &allocations);
	*memory = __libc_memalign(alignment, bytes);
	return *memory ? 0 : ENOMEM;
}

void free(void *memory)
{
	note(CALLER, &frees);
	__libc_free(memory);
}

void counting_start(void);
uint64_t counting_stop(uint64_t *ret_culprit);

static int find_library(struct dl_phdr_info *info, size_t size, void *context)
{
	if (!info->dlpi_name || !strstr(info->dlpi_name, "libweft.so"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		if (!weft_first || first < weft_first)
			weft_first = first;
		if (first + info->dlpi_phdr[i].p_memsz > weft_last)
			weft_last = first + info->dlpi_phdr[i].p_memsz;
	}
	return 1;
}

static struct pair pair;

static int open_pair(void **state)
{
	struct weft_config config = side_config();

	dl_iterate_phdr(find_library, NULL);
	assert_true(weft_first != 0 && weft_last > weft_first);
	config.max_transfers = SLOTS;
	pair_open(&pair, &config, &config, BYTES);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	return 0;
}

/* The peer process runs this program too. */
void counting_start(void)
{
	if (!weft_first)
		dl_iterate_phdr(find_library, NULL);
	atomic_store(&allocations, 0);
	atomic_store(&frees, 0);
	atomic_store(&counting, 1);
}

uint64_t counting_stop(uint64_t *ret_culprit)
{
	atomic_store(&counting, 0);
	*ret_culprit = atomic_load(&culprit) - weft_first;
	return atomic_load(&allocations) + atomic_load(&frees);
}

static void start_counting(void)
{
	atomic_store(&allocations, 0);
	atomic_store(&frees, 0);
	atomic_store(&counting, 1);
}

static void nothing_was_counted(const char *what)
{
	Dl_info where;
	uintptr_t from = atomic_load(&culprit);

	atomic_store(&counting, 0);
	if (!atomic_load(&allocations) && !atomic_load(&frees))
		return;
	fail_msg("%s: %llu allocations, %llu frees; the last from libweft.so+%#lx (%s)", what,
		 (unsigned long long)atomic_load(&allocations), (unsigned long long)atomic_load(&frees),
		 (unsigned long)(from - weft_first),
		 dladdr((void *)from, &where) && where.dli_sname ? where.dli_sname : "static");
}

/* Keeps up to `most` writes under way, each with its pages in another order; takes ends by poll. */
static void write_pages(uint64_t rounds, uint64_t most, const struct weft_op *options)
{
	uint32_t from[PAGES], to[PAGES];
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = 4096,
					  .count = PAGES,
					  .from = pair.region,
					  .from_index = from,
					  .to = pair.remote,
					  .to_index = to };
	uint64_t begun = 0, ended = 0, deadline = now_ns() + 3 * LIMIT;

	while (ended < rounds) {
		struct weft_event event[16];
		int got;

		while (begun < rounds && begun - ended < most) {
			struct weft_op op = *options;

			for (uint32_t i = 0; i < PAGES; i++) {
				from[i] = (uint32_t)(i * 5 + begun) % PAGES;
				to[i] = (uint32_t)(i * 7 + begun) % PAGES;
			}
			got = weft_write_pages(pair.here.engine, &pages, &op, NULL);
			if (got == -EAGAIN) /* all are out, some still held by their messages */
				break;
			assert_status(got, 0);
			begun++;
		}
		got = weft_queue_poll(pair.here.queue, event, sizeof(*event), 16);
		for (int i = 0; i < got; i++) {
			assert_int_equal(event[i].type, WEFT_EVENT_END);
			assert_status(event[i].status, 0);
			weft_event_release(&event[i]);
			ended++;
		}
		assert_true(now_ns() < deadline);
	}
}

/* Shows that the counter counts: registering memory allocates. */
static void counter_counts(void **state)
{
	static char memory[4096];
	weft_region region;

	start_counting();
	assert_status(weft_region_register(pair.here.engine, memory, sizeof(memory), 0, &region), 0);
	assert_status(weft_region_close(pair.here.engine, region), 0);
	atomic_store(&counting, 0);
	assert_true(atomic_load(&allocations) >= 1);
	assert_true(atomic_load(&frees) >= 1);
}

/* 160 writes of 64 pages are more than ten thousand pages; every slot of the pool has been used before, and has room
 * for the indices. */
static void pages_and_polls(void **state)
{
	struct weft_op none = { .size = sizeof(none), .queue = pair.here.queue };

	write_pages(128, SLOTS, &none);
	start_counting();
	write_pages(160, 8, &none);
	nothing_was_counted("page writes");
}

static void fenced(void **state)
{
	struct weft_op notify = { .size = sizeof(notify),
				  .queue = pair.here.queue,
				  .notify = WEFT_NOTIFY_FENCED,
				  .notify_tag = 5,
				  .notify_payload = "word",
				  .notify_bytes = 4 };
	struct peer_event event;

	write_pages(128, SLOTS, &notify);
	for (int i = 0; i < 128; i++)
		peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 5, &event);
	start_counting();
	write_pages(160, 8, &notify);
	nothing_was_counted("page writes with a fenced notification");
	for (int i = 0; i < 160; i++)
		peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 5, &event);
}

static void write_one_by_one(int count)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 4096 };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 1 };
	struct weft_event event;

	for (int i = 0; i < count; i++) {
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
		assert_int_equal(weft_queue_wait(pair.here.queue, &event, sizeof(event), 1, LIMIT), 1);
		weft_event_release(&event);
	}
}

static void writes_and_waits(void **state)
{
	write_one_by_one(200);
	start_counting();
	write_one_by_one(2000);
	nothing_was_counted("single writes with a wait");
}

/* Small messages out and their replies in: calls to a peer that answers. */
static void messages(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = 1 };
	struct weft_event event;
	struct command serve = { .code = COMMAND_SERVE, .arg = { 700, 0, LIMIT } };
	struct answer answer;

	peer_begin(&pair.there, &serve, NULL);
	for (int i = 0; i < 700; i++) {
		if (i == 200)
			start_counting();
		assert_status(weft_call(pair.here.engine, pair.peer, 1, "question", 8, &op, NULL), 0);
		assert_int_equal(weft_queue_wait(pair.here.queue, &event, sizeof(event), 1, LIMIT), 1);
		assert_int_equal(event.type, WEFT_EVENT_REPLY);
		assert_memory_equal(event.data, "question", 8);
		weft_event_release(&event);
	}
	nothing_was_counted("small calls");
	assert_status(peer_end(&pair.there, &answer), 0);
}

/* ---- every operation, both sides ---- */

static void finish(uint64_t tag)
{
	assert_status(end_of(&pair.here, tag), 0);
}

static void one_write(uint64_t round)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 4096 };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = round };

	assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	finish(round);
}

static void one_read(uint64_t round)
{
	struct weft_read read = { sizeof(read), pair.remote, 0, pair.region, 0, 4096 };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = round };

	assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
	finish(round);
}

static void one_scatter(uint64_t round)
{
	struct weft_write parts[3] = { { sizeof(struct weft_write), pair.region, 0, pair.remote, 0, 4096 },
				       { sizeof(struct weft_write), pair.region, 4096, pair.remote, 8192, 100 },
				       { sizeof(struct weft_write), pair.region, 8192, pair.remote, 4096, 0 } };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = round };

	assert_status(weft_scatter(pair.here.engine, parts, 3, &op, NULL), 0);
	finish(round);
}

static void write_notified(uint64_t round, uint32_t flags)
{
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 10000 };
	struct weft_op op = { .size = sizeof(op),
			      .queue = pair.here.queue,
			      .tag = round,
			      .notify = WEFT_NOTIFY_FENCED,
			      .notify_tag = round,
			      .notify_payload = "word",
			      .notify_bytes = 4,
			      .flags = flags };
	struct peer_event event;

	assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	finish(round);
	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, round, &event);
}

static void one_fenced(uint64_t round)
{
	write_notified(round, 0);
}

static void one_checked(uint64_t round)
{
	write_notified(round, WEFT_CHECKSUM);
}

/* Enough writes that more grants must be asked for. */
static void counted(uint64_t round)
{
	enum { WRITES = 40 };
	struct weft_write write = { sizeof(write), pair.region, 0, pair.remote, 0, 64 };
	struct weft_op op = { .size = sizeof(op),
			      .queue = pair.here.queue,
			      .tag = round,
			      .notify = WEFT_NOTIFY_COUNTED,
			      .immediate = 7 };
	struct peer_event event;

	peer_tell(&pair.there, COMMAND_EXPECT, 7, WRITES, round);
	for (int i = 0; i < WRITES; i++)
		assert_status(weft_write(pair.here.engine, &write, &op, NULL), 0);
	for (int i = 0; i < WRITES; i++)
		finish(round);
	peer_wait(&pair.there, WEFT_EVENT_COUNTED, round, &event);
}

static void send_bytes(uint64_t round, uint64_t bytes)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = round };
	struct peer_event event;

	assert_status(weft_send(pair.here.engine, pair.peer, round, pair.memory, bytes, &op, NULL), 0);
	finish(round);
	peer_wait(&pair.there, WEFT_EVENT_MESSAGE, round, &event);
}

static void one_send(uint64_t round)
{
	send_bytes(round, 100);
}

static void one_frame(uint64_t round)
{
	send_bytes(round, 7000);
}

static void one_call(uint64_t round)
{
	struct command serve = { .code = COMMAND_SERVE, .arg = { 1, 0, LIMIT } };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = round };
	struct weft_event event;
	struct answer answer;

	peer_begin(&pair.there, &serve, NULL);
	assert_status(weft_call(pair.here.engine, pair.peer, 1, "question", 8, &op, NULL), 0);
	wait_for_event(&pair.here, WEFT_EVENT_REPLY, round, &event);
	assert_status(event.status, 0);
	weft_event_release(&event);
	assert_status(peer_end(&pair.there, &answer), 0);
}

static void one_barrier(uint64_t round)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = round };
	struct command enter = { .code = COMMAND_BARRIER, .bytes = sizeof(weft_peer), .arg = { round, round } };
	struct peer_event event;

	peer_do(&pair.there, &enter, &pair.back);
	assert_status(weft_barrier(pair.here.engine, &pair.peer, 1, round, &op, NULL), 0);
	finish(round);
	peer_wait(&pair.there, WEFT_EVENT_END, round, &event);
}

static const struct {
	const char *name;
	void (*once)(uint64_t round);
} operations[] = {
	{ "write", one_write },
	{ "read", one_read },
	{ "scatter", one_scatter },
	{ "fenced write", one_fenced },
	{ "checked write", one_checked },
	{ "counted writes", counted },
	{ "send", one_send },
	{ "send of a frame", one_frame },
	{ "call", one_call },
	{ "barrier", one_barrier },
};

/* A slot that is used for the first time may allocate. An operation that always allocates shows every time. */
static void both_sides(void **state)
{
	enum { ROUNDS = 60, TRIES = 4 };
	uint64_t round = 1 << 20;

	for (size_t o = 0; o < sizeof(operations) / sizeof(operations[0]); o++) {
		uint64_t here = 1, there = 1, from[2] = { 0 };

		for (int try = 0; try < TRIES && here + there; try++) {
			struct command stop = { .code = COMMAND_COUNTING };
			struct answer answer;

			for (int i = 0; i < ROUNDS; i++)
				operations[o].once(round++);
			peer_tell(&pair.there, COMMAND_COUNTING, 1);
			counting_start();
			for (int i = 0; i < ROUNDS; i++)
				operations[o].once(round++);
			here = counting_stop(&from[0]);
			assert_status(peer_try(&pair.there, &stop, NULL, &answer), 0);
			there = answer.value[0];
			from[1] = answer.value[1];
		}
		if (here + there)
			fail_msg("%s: %llu allocations and frees here (libweft.so+%#llx), %llu at the peer (+%#llx)",
				 operations[o].name, (unsigned long long)here, (unsigned long long)from[0],
				 (unsigned long long)there, (unsigned long long)from[1]);
	}
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counter_counts),   cmocka_unit_test(pages_and_polls), cmocka_unit_test(fenced),
		cmocka_unit_test(writes_and_waits), cmocka_unit_test(messages),        cmocka_unit_test(both_sides),
	};

	return cmocka_run_group_tests_name("no allocation on the hot path", tests, open_pair, close_pair);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
