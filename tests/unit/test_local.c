/* The local rail alone: pipes and what a peer may put there, letters, shared memory, lines, copies, sleep, and death. */
#include "local/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
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

/* ---- pipes ---- */

static struct wf_pipe_shared *make_pipe(struct wf_pipe_writer *writer, struct wf_pipe_reader *reader)
{
	struct wf_pipe_shared *shared = aligned_alloc(64, sizeof(*shared));

	assert_non_null(shared);
	memset(shared, 0, sizeof(*shared));
	*writer = (struct wf_pipe_writer){ .shared = shared };
	*reader = (struct wf_pipe_reader){ .shared = shared };
	return shared;
}

static void pipe_keeps_order(void **state)
{
	struct wf_pipe_writer writer;
	struct wf_pipe_reader reader;
	struct wf_pipe_shared *shared = make_pipe(&writer, &reader);
	static uint8_t out[WF_PIPE_RECORD], in[WF_PIPE_RECORD];
	uint64_t random = 1, put = 0, taken = 0;
	struct wf_record record;

	while (taken < 20000) {
		record = (struct wf_record){ .kind = WF_RECORD_FRAME };
		record.bytes = (uint16_t)(put * 7919 % (WF_PIPE_RECORD + 1));
		memset(out, (int)put, record.bytes);
		if (next_random(&random) % 3 && !wf_pipe_put(&writer, &record, out)) {
			put++;
			continue;
		}
		if (taken == put)
			continue;
		assert_int_equal(wf_pipe_look(&reader, &record), 1);
		assert_int_equal(record.bytes, taken * 7919 % (WF_PIPE_RECORD + 1));
		wf_pipe_take(&reader, &record, in);
		for (uint32_t i = 0; i < record.bytes; i++)
			assert_int_equal(in[i], (uint8_t)taken);
		taken++;
	}
	free(shared);
}

static void pipe_fills_up(void **state)
{
	struct wf_pipe_writer writer;
	struct wf_pipe_reader reader;
	struct wf_pipe_shared *shared = make_pipe(&writer, &reader);
	struct wf_record record = { .kind = WF_RECORD_IMMEDIATE };
	uint32_t put = 0;

	for (; !wf_pipe_put(&writer, &record, NULL); put++)
		record.immediate++;
	assert_int_equal(put, WF_PIPE_BYTES / sizeof(record));
	assert_true(wf_pipe_any(&reader));
	for (uint32_t i = 0; i < put; i++) {
		assert_int_equal(wf_pipe_look(&reader, &record), 1);
		assert_int_equal(record.immediate, i);
		wf_pipe_take(&reader, &record, NULL);
	}
	assert_int_equal(wf_pipe_look(&reader, &record), 0);
	assert_false(wf_pipe_any(&reader));
	assert_int_equal(wf_pipe_put(&writer, &record, NULL), 0);
	free(shared);
}

static int look_after(uint64_t written, struct wf_record record)
{
	struct wf_pipe_writer writer;
	struct wf_pipe_reader reader;
	struct wf_pipe_shared *shared = make_pipe(&writer, &reader);
	int got;

	memcpy(shared->ring, &record, sizeof(record));
	atomic_store(&shared->written, written);
	got = wf_pipe_look(&reader, &record);
	free(shared);
	return got;
}

static void pipe_checks_its_writer(void **state)
{
	assert_int_equal(look_after(16, (struct wf_record){ .kind = WF_RECORD_FRAME, .bytes = 8 }), 1);
	assert_int_equal(look_after(8, (struct wf_record){ .kind = WF_RECORD_FRAME, .bytes = 8 }), -EPROTO);
	assert_int_equal(look_after(WF_PIPE_BYTES + 8, (struct wf_record){ .kind = WF_RECORD_FRAME }), -EPROTO);
	assert_int_equal(look_after(UINT64_MAX - 7, (struct wf_record){ .kind = WF_RECORD_FRAME }), -EPROTO);
	assert_int_equal(look_after(9, (struct wf_record){ .kind = WF_RECORD_FRAME }), -EPROTO);
	assert_int_equal(look_after(8, (struct wf_record){ .kind = 3 }), -EPROTO);
	assert_int_equal(look_after(16, (struct wf_record){ .kind = WF_RECORD_IMMEDIATE, .bytes = 8 }), -EPROTO);
	assert_int_equal(look_after(WF_PIPE_BYTES, (struct wf_record){ .kind = WF_RECORD_FRAME, .bytes = 8200 }),
			 -EPROTO);
}

static void pipe_checks_its_reader(void **state)
{
	struct wf_pipe_writer writer;
	struct wf_pipe_reader reader;
	struct wf_pipe_shared *shared = make_pipe(&writer, &reader);
	struct wf_record record = { .kind = WF_RECORD_IMMEDIATE };

	while (!wf_pipe_put(&writer, &record, NULL))
		;
	atomic_store(&shared->read, WF_PIPE_BYTES + 8); /* more than was written */
	assert_int_equal(wf_pipe_put(&writer, &record, NULL), -EPROTO);
	free(shared);
}

/* ---- letters and shared memory ---- */

static void letters_are_checked(void **state)
{
	struct wf_letter letter = { .magic = WF_LETTER_MAGIC, .version = WF_LETTER_VERSION, .kind = WF_LETTER_OPENED };

	letter.bytes = 4096;
	letter.base = 65536;
	letter.life = 1;
	assert_true(wf_letter_check(&letter, sizeof(letter), 0));
	assert_false(wf_letter_check(&letter, sizeof(letter), 1));
	assert_false(wf_letter_check(&letter, sizeof(letter) - 1, 0));
	letter.base = UINT64_MAX - 100;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
	letter.base = 65536;
	letter.file_bytes = 8192;
	letter.offset = 4096;
	assert_true(wf_letter_check(&letter, sizeof(letter), 1));
	letter.offset = 4097;
	assert_false(wf_letter_check(&letter, sizeof(letter), 1));
	letter.file_bytes = 0;
	letter.status = 5;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
	letter.status = -5;
	assert_true(wf_letter_check(&letter, sizeof(letter), 0));
	letter.kind = 77;
	assert_false(wf_letter_check(&letter, sizeof(letter), 0));
}

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

static void copies_are_made(void **state)
{
	struct two *two = *state;
	static char from[3 * WF_SLICE_BYTES + 5], to[sizeof(from)];
	struct wf_local_copy copy = { two, from, (uintptr_t)to, sizeof(from) };
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

/* Memory in a file that its owner shares is mapped. */
static void files_are_mapped(void **state)
{
	struct two *two = *state;
	struct wf_share share;
	struct wf_local_file file;
	static char from[100000], back[100000];
	struct wf_local_copy copy = { two, from, 0, sizeof(from) };
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

	send_from_a(two, "x", 1);
	assert_int_equal(two->b.local->guests, 1);
	guest = two->b.local->guest[0];
	assert_int_equal(wf_local_register(two->b.local, memory, sizeof(memory), WEFT_REMOTE_WRITE, NULL, &key), 0);
	atomic_store(&guest->pipe.shared->copying, (key & 0xffff) + 1);
	assert_false(wf_local_unregister(two->b.local, key));
	for (int i = 0; i < 1000 && two->b.local->guests; i++) /* among them its one frame */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pipe_keeps_order),
		cmocka_unit_test(pipe_fills_up),
		cmocka_unit_test(pipe_checks_its_writer),
		cmocka_unit_test(pipe_checks_its_reader),
		cmocka_unit_test(letters_are_checked),
		cmocka_unit_test(shared_memory_is_checked),
		cmocka_unit_test_setup_teardown(frames_arrive, open_two, close_two),
		cmocka_unit_test_setup_teardown(frames_wait, open_two, close_two),
		cmocka_unit_test_setup_teardown(copies_are_made, open_two, close_two),
		cmocka_unit_test_setup_teardown(files_are_mapped, open_two, close_two),
		cmocka_unit_test_setup_teardown(stopped_writer, open_two, close_two),
		cmocka_unit_test_setup_teardown(sleepers_are_woken, open_two, close_two),
		cmocka_unit_test(death_is_told),
	};

	return cmocka_run_group_tests_name("local", tests, NULL, NULL);
}
