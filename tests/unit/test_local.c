/* The local rail alone: shared memory, lines, copies, lists of pages, guests, sleep, and death. */
#include "base/time.h"
#include "local/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RECEIVES 64
#define SECONDS  10 /* only a failure takes this long */

static const struct wf_log quiet;

static uint64_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

/* ---- shared memory ---- */

static void shared_memory_is_checked(void **state)
{
	struct wf_share share;
	int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *at;

	assert_int_equal(ftruncate(loose, 4096), 0);
	assert_int_equal(wf_share_map(loose, 4096, false, &at), -EPROTO); /* it could be cut off */
	close(loose);
	assert_int_equal(wf_share_make(4096, true, &share), 0);
	assert_int_equal(wf_share_map(share.fd, 8192, false, &at), -EPROTO);
	assert_int_equal(wf_share_map(share.fd, 4096, true, &at), -EPERM); /* ours to write */
	assert_int_equal(wf_share_map(share.fd, 4096, false, &at), 0);
	*(int *)share.at = 42;
	assert_int_equal(*(int *)at, 42);
	assert_int_equal(ftruncate(share.fd, 0), -1);
	munmap(at, 4096);
	wf_share_close(&share);
}

/* ---- rails ---- */

struct rail {
	struct wf_local *local;
	uint8_t buffer[RECEIVES][WF_LOCAL_FRAME];
	uint64_t to; /* the other one */
};

struct two {
	struct rail a, b;
};

static void open_rail(struct rail *rail)
{
	memset(rail, 0, sizeof(*rail));
	assert_int_equal(wf_local_open(RECEIVES, &quiet, &rail->local), 0);
	assert_int_equal(wf_local_listen(rail->local), 0);
	for (int i = 0; i < RECEIVES; i++)
		assert_int_equal(wf_local_receive(rail->local, rail->buffer[i], rail->buffer[i], WF_LOCAL_FRAME), 0);
}

static void insert(struct rail *rail, const struct rail *other)
{
	uint8_t address[WF_LOCAL_ADDRESS];

	wf_local_address(other->local, address);
	assert_int_equal(wf_local_insert(rail->local, 0, address, sizeof(address), &rail->to), 0);
}

static int open_two(void **state)
{
	struct two *two = calloc(1, sizeof(*two));

	assert_non_null(two);
	open_rail(&two->a);
	open_rail(&two->b);
	insert(&two->a, &two->b);
	insert(&two->b, &two->a);
	*state = two;
	return 0;
}

static int close_two(void **state)
{
	struct two *two = *state;

	wf_local_close(two->a.local);
	wf_local_close(two->b.local);
	free(two);
	return 0;
}

/* Polls both, and returns how many ends the first had. */
static int poll_both(struct two *two, struct wf_local_end *ends, int max)
{
	struct wf_local_end others[8];

	wf_local_poll(two->b.local, others, 8);
	return wf_local_poll(two->a.local, ends, max);
}

static void send_from_a(struct two *two, const void *data, size_t bytes)
{
	time_t until = time(NULL) + SECONDS;
	struct wf_local_end end;
	int error;

	while ((error = wf_local_send(two->a.local, two->a.to, data, bytes)) == -EAGAIN && time(NULL) < until)
		poll_both(two, &end, 0);
	assert_int_equal(error, 0);
}

static void frames_arrive(void **state)
{
	struct two *two = *state;
	struct wf_local_end end[8];
	static uint8_t data[WF_LOCAL_FRAME];

	for (uint32_t i = 0; i < 1000; i++) {
		size_t bytes = i * 37 % (sizeof(data) + 1);

		memset(data, (int)i, bytes);
		send_from_a(two, data, bytes);
		assert_int_equal(wf_local_poll(two->b.local, end, 8), 1);
		assert_int_equal(end[0].bytes, bytes);
		assert_memory_equal(end[0].context, data, bytes);
		assert_int_equal(wf_local_receive(two->b.local, end[0].context, end[0].context, WF_LOCAL_FRAME), 0);
	}
}

/* Without a buffer to receive it in, a frame waits in the pipe, and its sender for room. */
static void frames_wait(void **state)
{
	struct two *two = *state;
	struct wf_local_end end[RECEIVES];
	static uint8_t data[WF_LOCAL_FRAME];
	int sent = 1, got = 0;

	send_from_a(two, data, sizeof(data));
	for (int i = 0; i < 1000; i++) {
		sent += !wf_local_send(two->a.local, two->a.to, data, sizeof(data));
		got += wf_local_poll(two->b.local, end, RECEIVES);
	}
	assert_int_equal(got, RECEIVES);
	assert_int_equal(sent, RECEIVES + WF_PIPE_BYTES / (WF_LOCAL_FRAME + sizeof(struct wf_record)));
	assert_int_equal(wf_local_send(two->a.local, two->a.to, data, sizeof(data)), -EAGAIN);
	assert_int_equal(wf_local_receive(two->b.local, two->b.buffer[0], two->b.buffer[0], WF_LOCAL_FRAME), 0);
	assert_int_equal(wf_local_poll(two->b.local, end, RECEIVES), 1);
	assert_int_equal(wf_local_send(two->a.local, two->a.to, data, sizeof(data)), 0);
}

/* Posts one copy by a, and returns the status of its end or of the post. */
static int copy_by_a(struct two *two, uint64_t key, const struct wf_local_copy *copy, bool read)
{
	struct wf_local_run run = { .target = two->a.to, .key = key, .read = read };
	time_t until = time(NULL) + SECONDS;
	struct wf_local_end end;
	int error, got = 0;

	while ((error = wf_local_begin(two->a.local, &run)) == -EAGAIN && time(NULL) < until)
		poll_both(two, &end, 0);
	if (!error)
		error = wf_local_post(two->a.local, &run, copy);
	if (error)
		return error;
	wf_local_go(two->a.local);
	while (!got && time(NULL) < until)
		got = poll_both(two, &end, 1);
	assert_int_equal(got, 1);
	assert_ptr_equal(end.context, copy->context);
	return end.status;
}

static void write_by_a(struct two *two, uint64_t key, void *to)
{
	struct wf_local_copy copy = { .context = two, .local = "x", .remote = (uintptr_t)to, .bytes = 1 };

	assert_int_equal(copy_by_a(two, key, &copy, false), 0);
}

static void copies_are_made(void **state)
{
	struct two *two = *state;
	static char from[3 * WF_SLICE_BYTES + 5], to[sizeof(from)];
	struct wf_local_copy copy = { .context = two, .local = from, .remote = (uintptr_t)to, .bytes = sizeof(from) };
	uint64_t key;

	memset(from, 7, sizeof(from));
	assert_int_equal(wf_local_register(two->b.local, to, sizeof(to), WEFT_REMOTE_WRITE, NULL, &key), 0);
	assert_int_equal(copy_by_a(two, key, &copy, false), 0);
	assert_memory_equal(from, to, sizeof(from));
	assert_int_equal(copy_by_a(two, key, &copy, true), -EACCES);
	assert_int_equal(copy_by_a(two, key ^ UINT64_C(1) << 40, &copy, false), -EKEYREJECTED);
	copy.remote++;
	assert_int_equal(copy_by_a(two, key, &copy, false), -ERANGE);
	copy.remote -= 2;
	assert_int_equal(copy_by_a(two, key, &copy, false), -ERANGE);
	copy.remote++;
	assert_true(wf_local_unregister(two->b.local, key));
	assert_int_equal(copy_by_a(two, key, &copy, false), -EKEYREJECTED);
}

/* A writer whose card copies shows the slot that it holds, in any place; its owner waits for that, and no longer than it must. */
static void holds_are_waited_for(void **state)
{
	struct two *two = *state;
	static char to[4096];
	uint64_t key;

	assert_int_equal(wf_local_register(two->b.local, to, sizeof(to), WEFT_REMOTE_WRITE, NULL, &key), 0);
	write_by_a(two, key, to); /* who was told of no memory is not waited for */
	atomic_store(&two->a.local->line[0]->pipe.shared->holding[WF_PIPE_HOLDS - 1], (key & 0xffff) + 2);
	assert_true(wf_local_unregister(two->b.local, key)); /* another slot's */
	assert_int_equal(wf_local_register(two->b.local, to, sizeof(to), WEFT_REMOTE_WRITE, NULL, &key), 0);
	atomic_store(&two->a.local->line[0]->pipe.shared->holding[WF_PIPE_HOLDS - 1], (key & 0xffff) + 1);
	assert_false(wf_local_unregister(two->b.local, key)); /* it never lets go: its line is closed */
}

/* A peer that names the parts of a card's memory wrongly gets nowhere: what it says is collected, and judged as a whole. */
static void parts_are_collected(void **state)
{
	struct two *two = *state;
	struct wf_local_run run = { .target = two->a.to, .key = 77, .cards = true };
	struct wf_devices *devices = wf_devices_make(&quiet);
	struct wf_letter letter = { .kind = WF_LETTER_OPENED,
				    .key = 77,
				    .base = 65536,
				    .bytes = 10000,
				    .life = 1,
				    .parts = 3,
				    .way = WF_WAY_FILE,
				    .part_bytes = 4096 };
	struct wf_line *line;
	time_t until = time(NULL) + SECONDS;
	int fd = open("/dev/null", O_RDONLY), error = -EAGAIN;

	wf_local_use_devices(two->a.local, devices);
	send_from_a(two, "x", 1);
	line = two->a.local->line[0];
	assert_int_equal(wf_local_begin(two->a.local, &run), -EAGAIN);
	letter.part = 1;
	wf_opened_answered(line, &letter, fd); /* not the one that was asked for */
	assert_int_equal(line->bucket[77 % WF_BUCKETS]->status, -EINPROGRESS);
	assert_null(line->bucket[77 % WF_BUCKETS]->offer);
	letter.part = 0;
	wf_opened_answered(line, &letter, fd);
	wf_opened_answered(line, &letter, fd); /* the same again */
	assert_int_equal(line->bucket[77 % WF_BUCKETS]->offer->count, 1);
	letter.part = 1;
	letter.bytes++; /* the region is another one suddenly */
	wf_opened_answered(line, &letter, fd);
	assert_int_equal(line->bucket[77 % WF_BUCKETS]->status, -EPROTO);
	assert_int_equal(wf_local_begin(two->a.local, &run), -EPROTO);
	letter.bytes--;
	assert_int_equal(wf_local_begin(two->a.local, &run), -EAGAIN);
	for (letter.part = 0; letter.part < 3; letter.part++)
		wf_opened_answered(line, &letter, fd);
	while ((error = wf_local_begin(two->a.local, &run)) == -EAGAIN && time(NULL) < until)
		sched_yield(); /* without a look at the letters, in which b says that it has no such key */
	assert_int_equal(error, -EOPNOTSUPP); /* they are no card's */
	close(fd);
	wf_local_close(two->a.local);
	wf_local_close(two->b.local);
	wf_devices_close(devices);
	open_rail(&two->a);
	open_rail(&two->b);
}

/* A set of parts that its owner never ends, or that nobody waits for any more, holds no descriptor and no mapping for long. */
static void what_nobody_waits_for_goes(void **state)
{
	struct two *two = *state;
	struct wf_local_run run = { .target = two->a.to, .key = 77, .cards = true };
	struct wf_devices *devices = wf_devices_make(&quiet);
	struct wf_letter letter = { .kind = WF_LETTER_OPENED,
				    .key = 77,
				    .base = 65536,
				    .bytes = 10000,
				    .life = 1,
				    .parts = 3,
				    .way = WF_WAY_FILE,
				    .part_bytes = 4096 };
	struct wf_opened **opened;
	time_t until = time(NULL) + SECONDS;
	int fd = open("/dev/null", O_RDONLY), held;

	wf_local_use_devices(two->a.local, devices);
	send_from_a(two, "x", 1);
	opened = &two->a.local->line[0]->bucket[77 % WF_BUCKETS];
	for (uint32_t parts = 1; parts <= 3; parts += 2) {
		assert_int_equal(wf_local_begin(two->a.local, &run), -EAGAIN);
		for (letter.part = 0; letter.part < parts; letter.part++)
			wf_opened_answered(two->a.local->line[0], &letter, fd);
		(*opened)->asked_ns = wf_now_ns();
		held = parts < 3 ? (*opened)->offer->part[0].fd : -1;
		wf_local_sweep(two->a.local);
		assert_non_null(*opened);
		(*opened)->asked_ns -= 10 * WF_S;
		do
			wf_local_sweep(two->a.local);
		while (*opened && time(NULL) < until); /* a thread opens the whole set */
		assert_null(*opened);
		while (held >= 0 && fcntl(held, F_GETFD) >= 0 && time(NULL) < until)
			sched_yield(); /* a thread closes what is no memory */
		assert_true(held < 0 || fcntl(held, F_GETFD) < 0);
	}
	while (wf_devices_opened(devices) && time(NULL) < until)
		sched_yield();
	assert_int_equal(wf_devices_opened(devices), 0);
	close(fd);
	wf_local_use_devices(two->a.local, NULL);
	wf_devices_close(devices);
}

/* Memory in a file that its owner shares is mapped. */
static void files_are_mapped(void **state)
{
	struct two *two = *state;
	struct wf_share share;
	struct wf_local_file file;
	static char from[100000], back[100000];
	struct wf_local_copy copy = { .context = two, .local = from, .bytes = sizeof(from) };
	uint64_t key;

	assert_int_equal(wf_share_make(1 << 20, false, &share), 0);
	file = (struct wf_local_file){ share.fd, 1 << 20, 4096 };
	copy.remote = (uintptr_t)share.at + 4096;
	memset(from, 9, sizeof(from));
	assert_int_equal(wf_local_register(two->b.local, (char *)share.at + 4096, 500000,
					   WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, &file, &key),
			 0);
	send_from_a(two, "x", 1);
	two->a.local->line[0]->copies = -EPERM; /* as if the kernel did not let us copy */
	assert_int_equal(copy_by_a(two, key, &copy, false), 0);
	assert_memory_equal((char *)share.at + 4096, from, sizeof(from));
	copy.local = back;
	assert_int_equal(copy_by_a(two, key, &copy, true), 0);
	assert_memory_equal(back, from, sizeof(from));
	assert_true(wf_local_unregister(two->b.local, key));
	assert_int_equal(copy_by_a(two, key, &copy, false), -EKEYREJECTED);
	wf_share_close(&share);
}

/* A writer that was stopped in the middle of a copy is waited for, but not for ever. */
static void stopped_writer(void **state)
{
	struct two *two = *state;
	static char memory[4096];
	struct wf_local_end end;
	struct wf_guest *guest;
	uint64_t key;

	assert_int_equal(wf_local_register(two->b.local, memory, sizeof(memory), WEFT_REMOTE_WRITE, NULL, &key), 0);
	write_by_a(two, key, memory);
	assert_int_equal(two->b.local->guests, 1);
	guest = two->b.local->guest[0];
	atomic_store(&guest->pipe.shared->copying, (key & 0xffff) + 1);
	assert_false(wf_local_unregister(two->b.local, key));
	for (int i = 0; i < 1000 && two->b.local->guests; i++)
		poll_both(two, &end, 1), wf_local_sweep(two->b.local);
	assert_int_equal(two->b.local->guests, 0);
}

static bool readable(const struct rail *rail, int timeout_ms)
{
	struct pollfd fd = { .fd = wf_local_wait_fd(rail->local), .events = POLLIN };

	return poll(&fd, 1, timeout_ms) > 0;
}

static void sleepers_are_woken(void **state)
{
	struct two *two = *state;
	struct wf_local_end end[4];

	send_from_a(two, "x", 1);
	while (wf_local_poll(two->b.local, end, 4) || wf_local_try_wait(two->b.local))
		;
	assert_false(readable(&two->b, 0));
	send_from_a(two, "y", 1);
	assert_true(readable(&two->b, SECONDS * 1000));
	assert_int_equal(wf_local_poll(two->b.local, end, 4), 1);
	/* A record that came just before keeps it awake. */
	send_from_a(two, "z", 1);
	assert_int_equal(wf_local_try_wait(two->b.local), -EAGAIN);
}

static void serve(int to_parent)
{
	struct rail rail;
	uint8_t address[WF_LOCAL_ADDRESS];
	struct wf_local_end end[4];

	open_rail(&rail);
	wf_local_address(rail.local, address);
	if (write(to_parent, address, sizeof(address)) != sizeof(address))
		_exit(1);
	for (;;)
		wf_local_poll(rail.local, end, 4);
}

/* Nothing but the rail's own descriptor tells: no deadline, no heartbeat. */
static void death_is_told(void **state)
{
	struct rail *rail = malloc(sizeof(*rail));
	uint8_t address[WF_LOCAL_ADDRESS];
	time_t until = time(NULL) + SECONDS;
	struct wf_local_end end;
	int pipes[2], error;
	pid_t child;

	assert_non_null(rail);
	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (!child)
		serve(pipes[1]);
	assert_int_equal(read(pipes[0], address, sizeof(address)), sizeof(address));
	open_rail(rail);
	assert_int_equal(wf_local_insert(rail->local, 0, address, sizeof(address), &rail->to), 0);
	while ((error = wf_local_send(rail->local, rail->to, "x", 1)) == -EAGAIN && time(NULL) < until)
		wf_local_poll(rail->local, &end, 1);
	assert_int_equal(error, 0);
	assert_int_equal(wf_local_try_wait(rail->local), 0);
	assert_false(readable(rail, 0));
	kill(child, SIGKILL);
	do
		assert_true(readable(rail, SECONDS * 1000));
	while (!wf_local_poll(rail->local, &end, 1) && time(NULL) < until);
	assert_null(end.context);
	assert_int_equal(end.status, -EHOSTDOWN);
	assert_int_equal(end.bytes, rail->to);
	assert_int_equal(wf_local_send(rail->local, rail->to, "x", 1), -EHOSTUNREACH);
	waitpid(child, NULL, 0);
	wf_local_close(rail->local);
	free(rail);
	close(pipes[0]);
	close(pipes[1]);
}

/* ---- lists of pages ---- */

enum { LIST_PAGES = 1500, LIST_STRIDE = 112 };

/* As copy_by_a(), pages from the second on. */
static int list_by_a(struct two *two, uint64_t key, const struct wf_page_list *list, char *near, char *far, bool read)
{
	struct wf_local_run run = { .target = two->a.to, .key = key, .read = read, .list = list };
	struct wf_local_copy copy = { two, near, (uintptr_t)far, (LIST_PAGES - 1) * list->page_bytes, 1 };
	time_t until = time(NULL) + SECONDS;
	struct wf_local_end end = { 0 };
	int error, got = 0;

	while ((error = wf_local_begin(two->a.local, &run)) == -EAGAIN && time(NULL) < until)
		poll_both(two, &end, 0);
	assert_int_equal(error, 0);
	error = wf_local_post(two->a.local, &run, &copy);
	if (error)
		return error;
	wf_local_go(two->a.local);
	while (!got && time(NULL) < until)
		got = poll_both(two, &end, 1);
	assert_int_equal(got, 1);
	assert_ptr_equal(end.context, two);
	return end.status;
}

/* Writes and reads pages of b's memory, which is mapped if it has a file, and compares each; then a page lies outside. */
static void try_lists(struct two *two, char *memory, const struct wf_local_file *file, uint64_t page_bytes)
{
	static char near[LIST_PAGES * LIST_STRIDE];
	static uint32_t near_index[LIST_PAGES], far_index[LIST_PAGES];
	const size_t bytes = sizeof(near);
	struct wf_page_list list = { near_index, far_index, LIST_STRIDE, LIST_STRIDE, page_bytes };
	uint64_t key, random = page_bytes;

	for (uint32_t i = 0; i < LIST_PAGES; i++) {
		near_index[i] = (i * 7 + 3) % LIST_PAGES;
		far_index[i] = (i * 11 + 5) % LIST_PAGES;
	}
	for (size_t i = 0; i < bytes; i++)
		near[i] = (char)next_random(&random);
	memset(memory, 0, bytes);
	assert_int_equal(
	    wf_local_register(two->b.local, memory, bytes, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, file, &key), 0);
	assert_int_equal(list_by_a(two, key, &list, near, memory, false), 0);
	for (uint32_t i = 0; i < LIST_PAGES; i++) {
		const char *page = memory + far_index[i] * LIST_STRIDE, none[LIST_STRIDE] = { 0 };

		assert_memory_equal(page, i ? near + near_index[i] * LIST_STRIDE : none, page_bytes);
		assert_memory_equal(page + page_bytes, none, LIST_STRIDE - page_bytes);
	}
	memset(near, 0, bytes);
	assert_int_equal(list_by_a(two, key, &list, near, memory, true), 0);
	for (uint32_t i = 1; i < LIST_PAGES; i++)
		assert_memory_equal(near + near_index[i] * LIST_STRIDE, memory + far_index[i] * LIST_STRIDE,
				    page_bytes);
	/* Before the region, behind it, and half of a page there; and as if it began before the region. */
	far_index[700] = LIST_PAGES;
	assert_int_equal(list_by_a(two, key, &list, near, memory, false), -EFAULT);
	far_index[700] = UINT32_MAX;
	assert_int_equal(list_by_a(two, key, &list, near, memory, false), -EFAULT);
	far_index[700] = LIST_PAGES - 1;
	assert_int_equal(list_by_a(two, key, &list, near, memory + LIST_STRIDE - page_bytes + 1, false), -EFAULT);
	assert_int_equal(list_by_a(two, key, &list, near, memory - 6 * LIST_STRIDE, false), -EFAULT);
	assert_true(wf_local_unregister(two->b.local, key));
}

static void lists_are_copied(void **state)
{
	static char copied[(LIST_PAGES + 2) * LIST_STRIDE];
	struct two *two = *state;
	struct wf_share share;
	const uint64_t sizes[] = { 1, 64, 96, LIST_STRIDE };

	assert_int_equal(wf_share_make((sizeof(copied) + 4095) & ~(size_t)4095, false, &share), 0);
	for (int i = 0; i < 4; i++) {
		struct wf_local_file file = { share.fd, share.bytes, 0 };
		uint64_t before = wf_local_mapped_bytes(two->a.local);

		try_lists(two, copied, NULL, sizes[i]);
		assert_int_equal(wf_local_mapped_bytes(two->a.local), before);
		try_lists(two, share.at, &file, sizes[i]);
		assert_true(wf_local_mapped_bytes(two->a.local) - before >= 2 * (LIST_PAGES - 1) * sizes[i]);
	}
	wf_share_close(&share);
}

/* ---- others of this host ---- */

static void connect_many(const struct wf_local *local, int count, int tell, int until)
{
	struct sockaddr_un name;
	socklen_t bytes = wf_local_socket_name(local->address, &name);
	char byte = 0;

	if (setresuid(65534, 65534, 65534))
		_exit(1);
	for (int i = 0; i < count; i++) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

		if (fd < 0 || connect(fd, (struct sockaddr *)&name, bytes))
			_exit(2);
	}
	_exit(write(tell, &byte, 1) != 1 || read(until, &byte, 1) != 0);
}

/* Any process of the host may connect. Those of another user get few of our descriptors. */
static void other_users_are_few(void **state)
{
	struct two *two = *state;
	struct wf_local *local = two->b.local;
	time_t until = time(NULL) + SECONDS;
	struct pollfd more = { .fd = local->listener, .events = POLLIN };
	int tell[2], end[2], status;
	pid_t child;
	char byte;

	if (geteuid())
		skip();
	assert_int_equal(pipe(tell) | pipe(end), 0);
	child = fork();
	if (!child) {
		close(end[1]);
		connect_many(local, 100, tell[1], end[0]);
	}
	close(tell[1]);
	assert_int_equal(read(tell[0], &byte, 1), 1);
	while (poll(&more, 1, 0) == 1 && time(NULL) < until)
		wf_local_poll(local, (struct wf_local_end[8]){ { 0 } }, 8);
	assert_int_equal(local->guests, 64);
	send_from_a(two, "one of ours", 12); /* still has a place */
	close(end[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	while (local->others && time(NULL) < until)
		wf_local_poll(local, (struct wf_local_end[8]){ { 0 } }, 8);
	assert_int_equal(local->others, 0);
	close(tell[0]);
	close(end[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_memory_is_checked),
		cmocka_unit_test_setup_teardown(frames_arrive, open_two, close_two),
		cmocka_unit_test_setup_teardown(frames_wait, open_two, close_two),
		cmocka_unit_test_setup_teardown(copies_are_made, open_two, close_two),
		cmocka_unit_test_setup_teardown(files_are_mapped, open_two, close_two),
		cmocka_unit_test_setup_teardown(holds_are_waited_for, open_two, close_two),
		cmocka_unit_test_setup_teardown(parts_are_collected, open_two, close_two),
		cmocka_unit_test_setup_teardown(what_nobody_waits_for_goes, open_two, close_two),
		cmocka_unit_test_setup_teardown(lists_are_copied, open_two, close_two),
		cmocka_unit_test_setup_teardown(other_users_are_few, open_two, close_two),
		cmocka_unit_test_setup_teardown(stopped_writer, open_two, close_two),
		cmocka_unit_test_setup_teardown(sleepers_are_woken, open_two, close_two),
		cmocka_unit_test(death_is_told),
	};

	return cmocka_run_group_tests_name("local", tests, NULL, NULL);
}
