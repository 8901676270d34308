/* Cards alone, on the fake driver: what an address is, copies, lists of pages, and memory of other processes. */
#include "device/device.h"
#include "fake-cuda/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS 10 /* only a failure takes this long */
#define BYTES   (256u << 10)

static const struct wf_log quiet;

static int open_devices(void **state)
{
	*state = wf_devices_make(&quiet);
	return *state ? 0 : -1;
}

/* Whatever a test did, nothing is left of it. */
static int close_devices(void **state)
{
	struct fake_counts counts;

	wf_devices_close(*state);
	counts = fake_cuda_counts();
	assert_int_equal(counts.contexts, 0);
	assert_int_equal(counts.streams + counts.events + counts.modules + counts.pinned, 0);
	assert_int_equal(counts.opened + counts.handles, 0);
	assert_int_equal(counts.contextless, 0);
	assert_int_equal(counts.illegal, 0);
	assert_int_equal(counts.pageable, 0);
	assert_int_equal(fake_cuda_depth(), 0);
	return 0;
}

static struct wf_device_memory *probe(struct wf_devices *devices, void *at, uint64_t bytes)
{
	struct wf_device_memory *memory;
	enum wf_device_kind kind;

	assert_int_equal(wf_device_probe(devices, at, bytes, &kind, &memory), 0);
	assert_int_equal(kind, WF_DEVICE_CARD);
	assert_non_null(memory);
	return memory;
}

static void kinds_are_told_apart(void **state)
{
	static char host[100];
	static const enum fake_kind fakes[] = { FAKE_MANAGED, FAKE_PINNED };
	static const enum wf_device_kind kinds[] = { WF_DEVICE_MANAGED, WF_DEVICE_PINNED };
	struct wf_device_memory *memory;
	enum wf_device_kind kind;

	/* Before the application starts the driver, and without starting it. */
	assert_int_equal(wf_device_probe(*state, host, sizeof(host), &kind, &memory), 0);
	assert_int_equal(kind, WF_DEVICE_HOST);
	assert_null(memory);
	assert_int_equal(fake_cuda_counts().contexts, 0);
	for (int i = 0; i < 2; i++) {
		void *at = fake_cuda_alloc(0, BYTES, fakes[i]);

		assert_int_equal(wf_device_probe(*state, at, BYTES, &kind, &memory), 0);
		assert_int_equal(kind, kinds[i]);
		assert_null(memory);
		fake_cuda_free(at);
	}
	assert_int_equal(fake_cuda_counts().contexts, 0);
}

static void memory_is_described(void **state)
{
	char *at = fake_cuda_alloc(1, BYTES, FAKE_PLAIN), *other;
	struct wf_device_memory *memory = probe(*state, at + 100, 1000);

	assert_int_equal(memory->count, 1);
	assert_int_equal(memory->part[0].base, (uintptr_t)at);
	assert_int_equal(memory->part[0].bytes, BYTES);
	assert_int_equal(memory->part[0].way, WF_WAY_IPC);
	assert_int_equal(wf_card_ordinal(memory->card), 1);
	assert_string_equal(wf_card_pci(memory->card), "0000:64:00.0");
	assert_false(memory->foreign);
	assert_true(wf_device_memory_same(memory));
	fake_cuda_free(at);
	assert_false(wf_device_memory_same(memory));
	/* The next of this size gets the address of the last. */
	other = fake_cuda_alloc(1, BYTES, FAKE_PLAIN);
	assert_ptr_equal(other, at);
	assert_false(wf_device_memory_same(memory));
	wf_device_memory_free(memory);
	fake_cuda_free(other);

	other = fake_cuda_alloc(0, BYTES, FAKE_POOL);
	memory = probe(*state, other, BYTES);
	assert_int_equal(memory->part[0].way, WF_WAY_NONE);
	assert_true(memory->pool);
	wf_device_memory_free(memory);
	fake_cuda_free(other);

	other = fake_cuda_alloc(0, BYTES, FAKE_FOREIGN);
	memory = probe(*state, other, BYTES);
	assert_true(memory->foreign);
	wf_device_memory_free(memory);
	fake_cuda_free(other);
}

static void virtual_memory_has_parts(void **state)
{
	char *at = fake_cuda_alloc(0, 4 * FAKE_PART_BYTES, FAKE_VIRTUAL);
	struct wf_device_memory *memory = probe(*state, at + FAKE_PART_BYTES - 10, FAKE_PART_BYTES + 20);

	assert_int_equal(memory->count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(memory->part[i].base, (uintptr_t)at + i * FAKE_PART_BYTES);
		assert_int_equal(memory->part[i].way, WF_WAY_FILE);
	}
	wf_device_memory_free(memory);
	fake_cuda_free(at);
}

static void what_is_no_memory_is_refused(void **state)
{
	char *at = fake_cuda_alloc(0, BYTES, FAKE_PLAIN);
	struct wf_device_memory *memory;
	enum wf_device_kind kind;

	assert_int_equal(wf_device_probe(*state, at, BYTES + 8192, &kind, &memory), -EINVAL);
	fake_cuda_lose(true);
	assert_int_equal(wf_device_probe(*state, at, BYTES, &kind, &memory), -EIO);
	fake_cuda_lose(false);
	fake_cuda_free(at);
	at = fake_cuda_alloc(0, (WF_DEVICE_PARTS + 1) * FAKE_PART_BYTES, FAKE_VIRTUAL);
	assert_int_equal(wf_device_probe(*state, at, (WF_DEVICE_PARTS + 1) * FAKE_PART_BYTES, &kind, &memory), -E2BIG);
	memory = probe(*state, at, WF_DEVICE_PARTS * FAKE_PART_BYTES);
	assert_int_equal(memory->count, WF_DEVICE_PARTS);
	wf_device_memory_free(memory);
	fake_cuda_free(at);
}

/* ---- copies ---- */

static int wait_for(struct wf_copier *copier, int flight)
{
	time_t until = time(NULL) + SECONDS;
	int error;

	while ((error = wf_copier_look(copier, flight)) == -EAGAIN && time(NULL) < until)
		sched_yield();
	wf_copier_give(copier, flight);
	return error;
}

static void copies_are_made(void **state)
{
	char *a = fake_cuda_alloc(0, BYTES, FAKE_PLAIN), *b = fake_cuda_alloc(0, BYTES, FAKE_PLAIN);
	struct wf_device_memory *memory = probe(*state, a, BYTES);
	static char from[BYTES], to[BYTES];
	struct wf_copier *copier;
	int flight;
	char *chunk;

	for (uint32_t i = 0; i < BYTES; i++)
		from[i] = (char)(i * 7);
	assert_int_equal(wf_copier_open(memory->card, &copier), 0);
	chunk = wf_card_chunk_take(memory->card);
	assert_non_null(chunk);
	memcpy(chunk, from, BYTES);
	fake_cuda_hold(true);
	flight = wf_copier_take(copier);
	assert_int_equal(wf_copier_copy(copier, a, chunk, BYTES), 0);
	assert_int_equal(wf_copier_copy(copier, b + 5, a + 5, BYTES - 5), 0);
	assert_int_equal(wf_copier_launch(copier, flight), 0);
	assert_int_equal(wf_copier_look(copier, flight), -EAGAIN);
	fake_cuda_hold(false);
	assert_int_equal(wait_for(copier, flight), 0);
	fake_cuda_read(b + 5, to, BYTES - 5);
	assert_memory_equal(to, from + 5, BYTES - 5);
	wf_card_chunk_give(memory->card, chunk);
	wf_copier_close(copier);
	wf_device_memory_free(memory);
	fake_cuda_free(a);
	fake_cuda_free(b);
}

static void chunks_and_flights_are_bounded(void **state)
{
	char *a = fake_cuda_alloc(0, BYTES, FAKE_PLAIN);
	struct wf_device_memory *memory = probe(*state, a, BYTES);
	struct wf_copier *copier;
	void *chunk[WF_DEVICE_CHUNKS];

	assert_int_equal(wf_copier_open(memory->card, &copier), 0);
	for (uint32_t i = 0; i < WF_DEVICE_CHUNKS; i++) {
		assert_non_null(chunk[i] = wf_card_chunk_take(memory->card));
		for (uint32_t j = 0; j < i; j++)
			assert_ptr_not_equal(chunk[i], chunk[j]);
	}
	assert_null(wf_card_chunk_take(memory->card));
	wf_card_chunk_give(memory->card, chunk[3]);
	assert_ptr_equal(wf_card_chunk_take(memory->card), chunk[3]);
	for (uint32_t i = 0; i < WF_DEVICE_FLIGHTS; i++)
		assert_int_equal(wf_copier_take(copier), i);
	assert_int_equal(wf_copier_take(copier), -1);
	wf_copier_close(copier);
	wf_device_memory_free(memory);
	fake_cuda_free(a);
}

#define PAGES 100u

/* Every size of page, with and without lists, against a loop of the CPU. */
static void pages_are_copied(void **state)
{
	static const uint64_t sizes[] = { 1, 4, 100, 1024, 4096 + 16, 3 * 65536 + 32 };
	size_t room = 2 * PAGES * (3 * 65536 + 64);
	char *a = fake_cuda_alloc(0, room, FAKE_PLAIN), *b = fake_cuda_alloc(0, room, FAKE_PLAIN);
	char *from = malloc(room), *to = malloc(room), *expected = malloc(room);
	struct wf_device_memory *memory = probe(*state, a, room);
	uint32_t near[PAGES], far[PAGES];
	struct wf_copier *copier;

	assert_int_equal(wf_copier_open(memory->card, &copier), 0);
	for (size_t i = 0; i < room; i++)
		from[i] = (char)(i * 2654435761u >> 11);
	fake_cuda_write(a, from, room);
	for (uint32_t i = 0; i < PAGES; i++) {
		near[i] = i * 37 % (2 * PAGES - 1);
		far[i] = i * 61 % (2 * PAGES - 1);
	}
	for (int round = 0; round < 6 * 8; round++) {
		uint64_t bytes = sizes[round % 6], first = round % 3, count = round & 1 ? PAGES - first : 3;
		struct wf_device_pages pages = { .to = b,
						 .from = a,
						 .to_index = round & 2 ? near : NULL,
						 .from_index = round & 4 ? far : NULL,
						 .to_stride = bytes,
						 .from_stride = bytes + (bytes % 16 ? 3 : 16),
						 .page_bytes = bytes,
						 .first = first,
						 .count = count,
						 .beside = round & 8,
						 .by_copies = round > 40 };
		int flight = wf_copier_take(copier);

		memset(expected, round, room);
		fake_cuda_write(b, expected, room);
		for (uint64_t i = first; i < first + count; i++)
			memcpy(expected + (pages.to_index ? near[i] : i) * pages.to_stride,
			       from + (pages.from_index ? far[i] : i) * pages.from_stride, bytes);
		assert_int_equal(wf_copier_pages(copier, flight, &pages), 0);
		assert_int_equal(wf_copier_launch(copier, flight), 0);
		assert_int_equal(wait_for(copier, flight), 0);
		fake_cuda_read(b, to, room);
		assert_memory_equal(to, expected, room);
	}
	wf_copier_close(copier);
	wf_device_memory_free(memory);
	fake_cuda_free(a);
	fake_cuda_free(b);
	free(from);
	free(to);
	free(expected);
}

static void a_lost_card_is_an_error(void **state)
{
	char *a = fake_cuda_alloc(0, BYTES, FAKE_PLAIN);
	struct wf_device_memory *memory = probe(*state, a, BYTES);
	struct wf_copier *copier;
	int flight;

	assert_int_equal(wf_copier_open(memory->card, &copier), 0);
	flight = wf_copier_take(copier);
	fake_cuda_hold(true);
	assert_int_equal(wf_copier_copy(copier, a, a + 4096, 4096), 0);
	assert_int_equal(wf_copier_launch(copier, flight), 0);
	fake_cuda_lose(true);
	assert_int_equal(wf_copier_look(copier, flight), -EIO);
	assert_int_equal(wf_copier_copy(copier, a, a + 4096, 4096), -EIO);
	fake_cuda_lose(false);
	fake_cuda_hold(false);
	assert_int_equal(wait_for(copier, flight), 0);
	assert_int_equal(wf_copier_copy(copier, a + BYTES, a, 4096 * 1024), -EINVAL);
	wf_copier_close(copier);
	wf_device_memory_free(memory);
	fake_cuda_free(a);
}

/* ---- another process's ---- */

struct hand {
	struct wf_device_offer offer;
	uint32_t fds;
};

static void hand_over(int socket, const struct wf_device_memory *memory)
{
	struct hand hand = { .offer = { .way = memory->part[0].way,
					.offset = memory->base - memory->part[0].base,
					.bytes = memory->bytes,
					.count = memory->count } };

	memcpy(hand.offer.uuid, wf_card_uuid(memory->card), WF_DEVICE_UUID);
	for (uint32_t i = 0; i < memory->count; i++) {
		hand.offer.part[i].bytes = memory->part[i].bytes;
		assert_int_equal(wf_device_export(memory, i, hand.offer.part[i].handle, &hand.offer.part[i].fd), 0);
	}
	assert_int_equal(write(socket, &hand, sizeof(hand)), sizeof(hand));
	for (uint32_t i = 0; i < memory->count; i++) {
		union {
			struct cmsghdr header;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control = { .header = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
		struct iovec data = { "", 1 };
		struct msghdr message = {
			.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
		};

		if (hand.offer.part[i].fd < 0)
			continue;
		memcpy(CMSG_DATA(&control.header), &hand.offer.part[i].fd, sizeof(int));
		assert_int_equal(sendmsg(socket, &message, 0), 1);
		close(hand.offer.part[i].fd);
	}
}

static void take_over(int socket, struct wf_device_offer *ret_offer)
{
	struct hand hand;

	assert_int_equal(recv(socket, &hand, sizeof(hand), MSG_WAITALL), sizeof(hand));
	for (uint32_t i = 0; i < hand.offer.count; i++) {
		union {
			struct cmsghdr header;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control;
		char byte;
		struct iovec data = { &byte, 1 };
		struct msghdr message = {
			.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
		};

		if (hand.offer.part[i].fd < 0)
			continue;
		assert_int_equal(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
		memcpy(&hand.offer.part[i].fd, CMSG_DATA(&control.header), sizeof(int));
	}
	*ret_offer = hand.offer;
}

/* The owner: fills its memory, hands a part of it over, and stays until it is told to go. */
static int own(int socket, enum fake_kind kind)
{
	struct wf_devices *devices = wf_devices_make(&quiet);
	char *at = fake_cuda_alloc(1, 4 * FAKE_PART_BYTES, kind), byte;
	static char pattern[4 * FAKE_PART_BYTES];
	struct wf_device_memory *memory;
	enum wf_device_kind found;

	for (uint32_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (char)(i / 251);
	fake_cuda_write(at, pattern, sizeof(pattern));
	if (wf_device_probe(devices, at + 5000, sizeof(pattern) - 10000, &found, &memory))
		return 1;
	hand_over(socket, memory);
	return read(socket, &byte, 1) == 1 ? 0 : 1;
}

/* Mappings are closed by threads of their own. */
static void wait_for_mappings(struct wf_devices *devices, uint32_t count)
{
	time_t until = time(NULL) + SECONDS;

	while (wf_devices_opened(devices) != count && time(NULL) < until)
		sched_yield();
	assert_int_equal(wf_devices_opened(devices), count);
}

/* With no thread under way in the driver, whose lock the child would find taken. */
static int begin_owner(struct wf_devices *devices, enum fake_kind kind, pid_t *ret_owner)
{
	int pair[2];

	wait_for_mappings(devices, 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	*ret_owner = fork();
	if (!*ret_owner) {
		close(pair[0]);
		_exit(own(pair[1], kind));
	}
	close(pair[1]);
	return pair[0];
}

static int wait_open(const struct wf_device_opened *opened, void **ret_at, struct wf_card **ret_card)
{
	time_t until = time(NULL) + SECONDS;
	int error;

	while ((error = wf_device_look(opened, ret_at, ret_card)) == -EINPROGRESS && time(NULL) < until)
		sched_yield();
	return error;
}

static void another_process_is_reached(void **state)
{
	static const enum fake_kind kinds[] = { FAKE_PLAIN, FAKE_VIRTUAL };

	for (int i = 0; i < 2; i++) {
		struct wf_device_opened *opened, *again;
		struct wf_device_offer offer;
		struct wf_card *card;
		char bytes[1000];
		pid_t owner;
		int socket = begin_owner(*state, kinds[i], &owner), status;
		void *at;

		take_over(socket, &offer);
		assert_int_equal(wf_device_open(*state, &offer, &opened), 0);
		assert_int_equal(wait_open(opened, &at, &card), 0);
		assert_int_equal(wf_card_ordinal(card), 1);
		fake_cuda_read((char *)at + 65536, bytes, sizeof(bytes));
		for (uint32_t j = 0; j < sizeof(bytes); j++)
			assert_int_equal(bytes[j], (char)((j + 65536 + 5000) / 251));
		wait_for_mappings(*state, 1);
		if (kinds[i] == FAKE_PLAIN) { /* another region of the same allocation */
			assert_int_equal(wf_device_open(*state, &offer, &again), 0);
			assert_int_equal(wait_open(again, &at, &card), 0);
			wf_device_shut(again);
			fake_cuda_read((char *)at + 65536, bytes, sizeof(bytes));
		}
		wf_device_shut(opened);
		assert_int_equal(write(socket, "x", 1), 1);
		close(socket);
		assert_int_equal(waitpid(owner, &status, 0), owner);
		assert_int_equal(status, 0);
	}
}

/* What a peer says is checked: lengths, cards, handles; and one that is gone is an error. */
static void lies_are_refused(void **state)
{
	struct wf_device_opened *opened;
	struct wf_device_offer offer, lie;
	struct wf_card *card;
	pid_t owner;
	int socket = begin_owner(*state, FAKE_PLAIN, &owner);
	void *at;

	take_over(socket, &offer);
	lie = offer;
	lie.bytes += 10000;
	assert_int_equal(wf_device_open(*state, &lie, &opened), -EPROTO); /* beyond the part that it names */
	lie.part[0].bytes += 10000;
	assert_int_equal(wf_device_open(*state, &lie, &opened), 0);
	assert_int_equal(wait_open(opened, &at, &card), -EPROTO); /* the driver knows better */
	wf_device_shut(opened);
	lie = offer;
	lie.count = WF_DEVICE_PARTS + 1;
	assert_int_equal(wf_device_open(*state, &lie, &opened), -EPROTO);
	lie.count = 0;
	assert_int_equal(wf_device_open(*state, &lie, &opened), -EPROTO);
	lie = offer;
	lie.offset = UINT64_MAX - 5;
	assert_int_equal(wf_device_open(*state, &lie, &opened), -EPROTO);
	lie = offer;
	lie.uuid[3]++;
	assert_int_equal(wf_device_open(*state, &lie, &opened), 0);
	assert_int_equal(wait_open(opened, &at, &card), -ENODEV);
	wf_device_shut(opened);
	lie = offer;
	lie.part[0].handle[0]++;
	assert_int_equal(wf_device_open(*state, &lie, &opened), 0);
	assert_int_equal(wait_open(opened, &at, &card), -EINVAL);
	wf_device_shut(opened);
	lie = offer;
	lie.way = WF_WAY_FILE;
	lie.part[0].fd = dup(0); /* no card's */
	assert_int_equal(wf_device_open(*state, &lie, &opened), 0);
	assert_int_not_equal(wait_open(opened, &at, &card), 0);
	wf_device_shut(opened);
	assert_int_equal(write(socket, "x", 1), 1);
	close(socket);
	assert_int_equal(waitpid(owner, NULL, 0), owner);
	wait_for_mappings(*state, 0); /* what is mapped still can be opened again */
	assert_int_equal(wf_device_open(*state, &offer, &opened), 0);
	assert_int_equal(wait_open(opened, &at, &card), -EIO); /* its owner has ended */
	wf_device_shut(opened);
}

/* Given up while it is being opened. */
static void who_gives_up_leaves_nothing(void **state)
{
	for (int i = 0; i < 50; i++) {
		struct wf_device_opened *opened;
		struct wf_device_offer offer = { .way = WF_WAY_FILE, .bytes = 4096, .count = 1 };

		memset(offer.uuid, 0x40, sizeof(offer.uuid));
		offer.part[0].bytes = 4096;
		offer.part[0].fd = dup(0);
		assert_int_equal(wf_device_open(*state, &offer, &opened), 0);
		wf_device_shut(opened);
	}
}

static _Atomic int closed, late;

static void log_late(void *context, enum weft_log_level level, const char *text)
{
	late += closed;
}

/* A driver hangs in a thread that opens a peer's memory. Closing waits for a bounded time, the CPU's memory is probed meanwhile, and
 * the thread says nothing to a log that is gone. */
static void closing_does_not_wait_for_a_driver(void **state)
{
	static const struct wf_log log = { .fn = log_late };
	struct wf_devices *devices = wf_devices_make(&log);
	struct wf_device_offer offer = { .way = WF_WAY_FILE, .bytes = 4096, .count = 1 };
	void *pinned = fake_cuda_alloc(0, BYTES, FAKE_PINNED);
	int fd = dup(0);
	time_t until = time(NULL) + SECONDS;
	struct wf_device_opened *opened;
	struct wf_device_memory *memory;
	enum wf_device_kind kind;

	memset(offer.uuid, 0x40, sizeof(offer.uuid));
	offer.part[0].bytes = 4096;
	offer.part[0].fd = fd;
	closed = late = 0;
	fake_cuda_stall(true);
	assert_int_equal(wf_device_open(devices, &offer, &opened), 0);
	while (!fake_cuda_counts().stalled && time(NULL) < until)
		sched_yield();
	assert_int_equal(fake_cuda_counts().stalled, 1);
	assert_int_equal(wf_device_probe(devices, pinned, BYTES, &kind, &memory), 0);
	assert_int_equal(kind, WF_DEVICE_PINNED);
	wf_device_shut(opened);
	wf_devices_close(devices);
	closed = 1;
	fake_cuda_lose(true);
	fake_cuda_stall(false);
	until = time(NULL) + SECONDS;
	while (fcntl(fd, F_GETFD) >= 0 && time(NULL) < until) /* what it was given goes last */
		sched_yield();
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	fake_cuda_lose(false);
	assert_int_equal(late, 0);
	fake_cuda_free(pinned);
}

static void only_old_cards_are_flushed(void **state)
{
	char *a = fake_cuda_alloc(0, BYTES, FAKE_PLAIN);
	struct wf_device_memory *memory = probe(*state, a, BYTES);
	uint64_t flushes = fake_cuda_counts().flushes;

	assert_int_equal(wf_card_flush(memory->card), 0);
	assert_int_equal(fake_cuda_counts().flushes, flushes + (getenv("FAKE_CUDA_ORDERING") ? 1 : 0));
	wf_device_memory_free(memory);
	fake_cuda_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(kinds_are_told_apart, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(memory_is_described, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(virtual_memory_has_parts, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(what_is_no_memory_is_refused, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(copies_are_made, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(chunks_and_flights_are_bounded, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(pages_are_copied, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(a_lost_card_is_an_error, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(another_process_is_reached, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(lies_are_refused, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(who_gives_up_leaves_nothing, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(closing_does_not_wait_for_a_driver, open_devices, close_devices),
		cmocka_unit_test_setup_teardown(only_old_cards_are_flushed, open_devices, close_devices),
	};

	return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
