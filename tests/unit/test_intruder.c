/*
 * The local rail's socket and rings in the hands of an enemy: any process of the host may connect, and the process that we
 * connect to may be one. None of it may hold the worker, keep it from sleeping, crash it, or make believe that something was written.
 */
#include "base/time.h"
#include "local/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RECEIVES 16
#define SECONDS  10  /* only a failure takes this long */
#define HANGS    120 /* seconds; a worker that an enemy holds up ends the test */

static const struct wf_log quiet;

struct scene {
	struct wf_local *local;
	uint8_t buffer[RECEIVES][WF_LOCAL_FRAME];
	int enemy; /* its socket */
	struct wf_share pipe;
};

static void open_rail(struct scene *scene)
{
	assert_int_equal(wf_local_open(RECEIVES, &quiet, &scene->local), 0);
	assert_int_equal(wf_local_listen(scene->local), 0);
	for (int i = 0; i < RECEIVES; i++)
		assert_int_equal(wf_local_receive(scene->local, scene->buffer[i], scene->buffer[i], WF_LOCAL_FRAME), 0);
}

static int open_scene(void **state)
{
	struct scene *scene = calloc(1, sizeof(*scene));

	assert_non_null(scene);
	scene->enemy = scene->pipe.fd = -1;
	open_rail(scene);
	*state = scene;
	alarm(HANGS);
	return 0;
}

static int close_scene(void **state)
{
	struct scene *scene = *state;

	wf_local_close(scene->local);
	if (scene->enemy >= 0)
		close(scene->enemy);
	wf_share_close(&scene->pipe);
	free(scene);
	alarm(0);
	return 0;
}

static int connect_to(const struct wf_local *local)
{
	struct sockaddr_un name;
	socklen_t bytes = wf_local_socket_name(local->address, &name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&name, bytes), 0);
	return fd;
}

/* With as many descriptors as a message takes, if need be. */
static int send_raw(int socket, const void *data, size_t bytes, const int *fds, uint32_t count)
{
	static union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(253 * sizeof(int))];
	} control;
	struct iovec iov = { (void *)(uintptr_t)data, bytes };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (count) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static int send_letter(int socket, enum wf_letter_kind kind, const int *fds, uint32_t count)
{
	struct wf_letter letter = { .magic = WF_LETTER_MAGIC, .version = WF_LETTER_VERSION, .kind = (uint16_t)kind };

	return send_raw(socket, &letter, sizeof(letter), fds, count);
}

static void look(struct scene *scene)
{
	struct wf_local_end ends[4];

	scene->local->slept = true; /* now, not at the next tick */
	wf_local_poll(scene->local, ends, 4);
}

static void await_guests(struct scene *scene, uint32_t guests)
{
	time_t until = time(NULL) + SECONDS;

	do
		look(scene);
	while (scene->local->guests != guests && time(NULL) < until);
	assert_int_equal(scene->local->guests, guests);
}

static void greet(struct scene *scene)
{
	time_t until = time(NULL) + SECONDS;

	if (!scene->pipe.at)
		assert_int_equal(wf_share_make(sizeof(struct wf_pipe_shared), false, &scene->pipe), 0);
	scene->enemy = connect_to(scene->local);
	assert_int_equal(send_letter(scene->enemy, WF_LETTER_HELLO, &scene->pipe.fd, 1), 0);
	while (!scene->local->guests || !scene->local->guest[0]->pipe.shared) {
		assert_true(time(NULL) < until);
		look(scene);
	}
}

static bool sleeps(struct scene *scene)
{
	time_t until = time(NULL) + SECONDS;

	do
		look(scene);
	while (wf_local_try_wait(scene->local) && time(NULL) < until);
	return !wf_local_try_wait(scene->local);
}

/* ---- descriptors ---- */

/* Closing its last descriptor takes an hour. */
static int lingering(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct linger hour = { 1, 3600 };
	socklen_t bytes = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
	static char data[65536];

	assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, bytes), 0);
	assert_true(accept(listener, NULL, NULL) >= 0); /* open until the program ends, and never read */
	while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
	close(listener);
	return fd;
}

/* The enemy's last descriptors are those in the letter. */
static void send_lingering(int socket, enum wf_letter_kind kind, uint32_t count)
{
	int fds[3];

	for (uint32_t i = 0; i < count; i++)
		fds[i] = lingering();
	assert_int_equal(send_letter(socket, kind, fds, count), 0);
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]);
}

/* In place of its pipe, and where nothing is to come. */
static void wrong_descriptors_hold_nobody_up(void **state)
{
	struct scene *scene = *state;

	for (uint32_t count = 1; count <= 3; count++) {
		int enemy = connect_to(scene->local);

		send_lingering(enemy, WF_LETTER_HELLO, count);
		await_guests(scene, 1);
		await_guests(scene, 0);
		close(enemy);
	}
	greet(scene);
	send_lingering(scene->enemy, WF_LETTER_RING, 1);
	await_guests(scene, 0);
	assert_true(sleeps(scene));
}

/* What nobody has read goes with the socket, and what has connected and was not accepted with the listener. An empty packet is not
 * the end. */
static void unread_descriptors_hold_nobody_up(void **state)
{
	struct scene *scene = *state;
	int late;

	greet(scene);
	late = connect_to(scene->local);
	assert_int_equal(send_letter(scene->enemy, WF_LETTER_RING, NULL, 0), 0);
	assert_int_equal(send_raw(scene->enemy, "", 0, NULL, 0), 0);
	send_lingering(scene->enemy, WF_LETTER_HELLO, 1);
	send_lingering(late, WF_LETTER_HELLO, 2);
	wf_local_close(scene->local);
	close(late);
	open_rail(memset(scene, 0, offsetof(struct scene, enemy)));
}

/* The process that we connect to may answer with the same. */
static void wrong_answers_hold_nobody_up(void **state)
{
	struct scene *scene = *state;
	struct wf_local *enemy, *honest = scene->local;
	uint8_t address[WF_LOCAL_ADDRESS];
	uint64_t to;
	int socket;

	assert_int_equal(wf_local_open(1, &quiet, &enemy), 0);
	assert_int_equal(wf_local_listen(enemy), 0);
	wf_local_address(enemy, address);
	assert_int_equal(wf_local_insert(honest, 0, address, sizeof(address), &to), 0);
	assert_int_equal(wf_local_send(honest, to, "x", 1), -EAGAIN);
	socket = accept(enemy->listener, NULL, NULL);
	assert_true(socket >= 0);
	send_lingering(socket, WF_LETTER_WELCOME, 1);
	send_lingering(socket, WF_LETTER_WELCOME, 2);
	look(scene);
	assert_int_equal(honest->line[0]->state, WF_LINE_CLOSED);
	close(socket);
	wf_local_close(enemy);
}

/* Thousands in one look, none of them a file of memory. More is not taken in than threads can close. */
static void descriptors_do_not_pile_up(void **state)
{
	struct scene *scene = *state;
	int fds[253], before = open("/dev/null", O_RDONLY), after, enemies[16];

	for (int i = 0; i < 253; i++)
		fds[i] = before;
	for (int i = 0; i < 16; i++) {
		enemies[i] = connect_to(scene->local);
		for (int j = 0; j < 20; j++)
			(void)send_raw(enemies[i], "?", 1, fds, 253); /* refused once too many are under way */
	}
	await_guests(scene, 0);
	for (int i = 0; i < 16; i++)
		close(enemies[i]);
	after = open("/dev/null", O_RDONLY);
	assert_true(after < before + 64);
	close(after);
	close(before);
	assert_true(sleeps(scene));
}

/* Memory that could be cut off, or is not as long as it must be, is not mapped, nor what is no memory. */
static void wrong_memory_is_not_mapped(void **state)
{
	struct scene *scene = *state;
	const size_t right = sizeof(struct wf_pipe_shared);
	const struct {
		size_t bytes;
		int seals;
	} file[] = { { right, 0 },
		     { right, F_SEAL_SHRINK },
		     { right, F_SEAL_GROW | F_SEAL_SEAL },
		     { right, F_SEAL_SHRINK | F_SEAL_GROW },
		     { right - 1, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL },
		     { 4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL },
		     { 0, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL },
		     { right + 4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL },
		     { right, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE } };

	for (size_t i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
		int fd = memfd_create("wrong", MFD_CLOEXEC | MFD_ALLOW_SEALING), enemy = connect_to(scene->local);

		assert_int_equal(ftruncate(fd, (off_t)file[i].bytes), 0);
		assert_int_equal(fcntl(fd, F_ADD_SEALS, file[i].seals), 0);
		assert_int_equal(send_letter(enemy, WF_LETTER_HELLO, &fd, 1), 0);
		await_guests(scene, 1);
		(void)ftruncate(fd, 0);
		await_guests(scene, 0);
		close(fd);
		close(enemy);
	}
}

/* ---- connections ---- */

/* They say nothing, or half of something, and go at the latest when their time is up. */
static void silent_ones_go(void **state)
{
	struct scene *scene = *state;
	struct wf_letter letter = { .magic = WF_LETTER_MAGIC, .version = WF_LETTER_VERSION, .kind = WF_LETTER_HELLO };
	int enemies[100];

	for (int i = 0; i < 100; i++) {
		enemies[i] = connect_to(scene->local);
		look(scene);
	}
	await_guests(scene, 100);
	assert_true(sleeps(scene));
	for (int i = 0; i < 50; i++)
		assert_int_equal(send_raw(enemies[i], &letter, (size_t)i, NULL, 0), 0);
	await_guests(scene, 50);
	wf_local_sweep(scene->local);
	assert_int_equal(scene->local->guests, 50);
	for (uint32_t i = 0; i < 50; i++)
		scene->local->guest[i]->since_ns -= 10 * WF_S;
	wf_local_sweep(scene->local);
	assert_int_equal(scene->local->guests, 0);
	assert_true(sleeps(scene));
	for (int i = 0; i < 100; i++)
		close(enemies[i]);
}

/* A process without descriptors cannot accept, and must not try for ever. When it has some again, it does. */
static void without_descriptors_it_sleeps(void **state)
{
	struct scene *scene = *state;
	struct rlimit limit, none;
	int enemy, free;

	enemy = connect_to(scene->local);
	free = open("/dev/null", O_RDONLY);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ (rlim_t)free, limit.rlim_max };
	close(free);
	while ((free = open("/dev/null", O_RDONLY)) >= 0 && (rlim_t)free < none.rlim_cur)
		; /* no gap is left below it */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_true(sleeps(scene));
	assert_int_equal(scene->local->guests, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	wf_local_sweep(scene->local);
	await_guests(scene, 1);
	close(free);
	close(enemy);
}

/* A child of ours that holds the same sockets must not keep us awake when their other side has gone. */
static void children_wake_nobody(void **state)
{
	struct scene *scene = *state;
	int held;

	greet(scene);
	held = dup(scene->local->guest[0]->socket); /* as after fork() */
	assert_true(held >= 0);
	close(scene->enemy);
	scene->enemy = -1;
	await_guests(scene, 0);
	assert_true(sleeps(scene));
	close(held);
}

/* ---- letters without end ---- */

static void letters_take_turns(void **state)
{
	struct scene *scene = *state;
	struct wf_local *enemy;
	struct wf_share board;
	struct wf_letter answer = { .magic = WF_LETTER_MAGIC,
				    .version = WF_LETTER_VERSION,
				    .kind = WF_LETTER_OPENED,
				    .status = -EKEYREJECTED };
	struct pollfd unread = { .events = POLLIN };
	uint8_t address[WF_LOCAL_ADDRESS];
	uint64_t to;
	int socket, sent = 0;

	assert_int_equal(wf_local_open(1, &quiet, &enemy), 0);
	assert_int_equal(wf_local_listen(enemy), 0);
	wf_local_address(enemy, address);
	assert_int_equal(wf_local_insert(scene->local, 0, address, sizeof(address), &to), 0);
	assert_int_equal(wf_local_send(scene->local, to, "x", 1), -EAGAIN);
	socket = accept4(enemy->listener, NULL, NULL, SOCK_NONBLOCK);
	assert_int_equal(wf_share_make(sizeof(struct wf_board), true, &board), 0);
	assert_int_equal(send_letter(socket, WF_LETTER_WELCOME, &board.fd, 1), 0);
	while (sent < 1000 && !send_raw(socket, &answer, sizeof(answer), NULL, 0))
		sent++;
	assert_true(sent > 100);
	look(scene);
	assert_int_equal(scene->local->line[0]->state, WF_LINE_UP);
	unread.fd = scene->local->line[0]->socket;
	assert_int_equal(poll(&unread, 1, 0), 1); /* the rest waits for the next look */
	assert_true(sleeps(scene));
	assert_int_equal(poll(&unread, 1, 0), 0);
	close(socket);
	wf_share_close(&board);
	wf_local_close(enemy);
}

/* ---- what a stranger may say in a pipe ---- */

static void put_immediate(struct scene *scene)
{
	struct wf_pipe_writer writer = { .shared = scene->pipe.at };
	struct wf_record record = { .kind = WF_RECORD_IMMEDIATE, .immediate = 7 };

	assert_int_equal(wf_pipe_put(&writer, &record, NULL), 0);
}

/* It says that something was written, and could have written nothing. */
static void strangers_count_nothing(void **state)
{
	struct scene *scene = *state;
	struct wf_local_end ends[4];
	time_t until = time(NULL) + SECONDS;

	greet(scene);
	put_immediate(scene);
	while (scene->local->guests && time(NULL) < until)
		assert_int_equal(wf_local_poll(scene->local, ends, 4), 0);
	assert_int_equal(scene->local->guests, 0);
}

static void ask(struct scene *scene, uint64_t key)
{
	struct wf_letter question = {
		.magic = WF_LETTER_MAGIC, .version = WF_LETTER_VERSION, .kind = WF_LETTER_OPEN, .key = key
	};

	assert_int_equal(send_raw(scene->enemy, &question, sizeof(question), NULL, 0), 0);
	look(scene);
}

/* Nor does the key of memory that it may only read let it. */
static void readers_count_nothing(void **state)
{
	struct scene *scene = *state;
	static char memory[4096];
	uint64_t key;

	greet(scene);
	assert_int_equal(wf_local_register(scene->local, memory, sizeof(memory), WEFT_REMOTE_READ, NULL, &key), 0);
	ask(scene, key);
	assert_int_equal(scene->local->guest[0]->rights, WEFT_REMOTE_READ);
	put_immediate(scene);
	await_guests(scene, 0);
	assert_true(wf_local_unregister(scene->local, key));
}

/* It pretends to copy to everything, and delays nobody who takes memory back. */
static void strangers_delay_nothing(void **state)
{
	struct scene *scene = *state;
	static char memory[4096];
	struct wf_pipe_shared *pipe;
	uint64_t key;

	greet(scene);
	pipe = scene->pipe.at;
	assert_int_equal(wf_local_register(scene->local, memory, sizeof(memory), WEFT_REMOTE_WRITE, NULL, &key), 0);
	atomic_store(&pipe->copying, (key & 0xffff) + 1);
	atomic_store(&pipe->holding[0], (key & 0xffff) + 1);
	ask(scene, key ^ UINT64_C(1) << 40);
	assert_true(wf_local_unregister(scene->local, key)); /* false: given up after a while */
	assert_int_equal(scene->local->guests, 1);
}

/* Another process changes counters and records while we read them. Whatever is handed out fits, and we go on or show it out. */
static void rewrite(struct wf_pipe_shared *pipe)
{
	uint64_t random = 1;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever becomes of the test */
	for (;;) {
		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		atomic_store(&pipe->written, random >> 62 ? random >> 47 & ~UINT64_C(7) : random);
		memset(pipe->ring + (random >> 33) % (WF_PIPE_BYTES - 64), (int)(random >> 50), random >> 58);
		atomic_store(&pipe->read, random >> 20);
		atomic_store(&pipe->copying, random >> 40);
	}
}

static bool has_hung_up(int socket)
{
	struct pollfd ended = { .fd = socket, .events = POLLRDHUP };

	return poll(&ended, 1, 0) == 1;
}

static void rings_change_while_they_are_read(void **state)
{
	struct scene *scene = *state;
	struct wf_pipe_shared *pipe;
	struct wf_local_end ends[4];
	uint32_t shown_out = 0, got = 0;
	time_t until = time(NULL) + 3 * SECONDS;
	pid_t child;

	assert_int_equal(wf_share_make(sizeof(*pipe), false, &scene->pipe), 0);
	pipe = scene->pipe.at;
	child = fork();
	if (!child)
		rewrite(pipe);
	for (int i = 0; (i < 2000 || shown_out < 10) && time(NULL) < until; i++) {
		if (scene->enemy < 0 || has_hung_up(scene->enemy)) {
			if (scene->enemy >= 0)
				close(scene->enemy);
			scene->enemy = connect_to(scene->local);
			assert_int_equal(send_letter(scene->enemy, WF_LETTER_HELLO, &scene->pipe.fd, 1), 0);
			shown_out++;
		}
		scene->local->slept = true;
		for (int j = wf_local_poll(scene->local, ends, 4); j-- > 0; got++) {
			assert_true(ends[j].bytes <= WF_LOCAL_FRAME);
			if (ends[j].context)
				assert_int_equal(
				    wf_local_receive(scene->local, ends[j].context, ends[j].context, WF_LOCAL_FRAME),
				    0);
		}
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_true(shown_out > 1);
}

/* ---- memory ---- */

/* Memory that peers may only read goes out with a descriptor that cannot write, and other users cannot open it anew. */
static void readers_get_no_more(void **state)
{
	struct scene *scene = *state;
	struct wf_share share;
	struct wf_local_file file;
	struct wf_letter letter;
	struct stat status;
	uint64_t key;
	int fd;

	assert_int_equal(wf_share_make(8192, false, &share), 0);
	assert_int_equal(fstat(share.fd, &status), 0);
	assert_int_equal(status.st_mode & 077, 0);
	file = (struct wf_local_file){ share.fd, 8192, 0 };
	assert_int_equal(wf_local_register(scene->local, share.at, 8192, WEFT_REMOTE_READ, &file, &key), 0);
	fd = wf_local_memory_answer(&scene->local->memory, key, 0, &letter);
	assert_true(fd >= 0);
	assert_ptr_equal(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(munmap(mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0), 8192), 0);
	close(fd);
	assert_true(wf_local_unregister(scene->local, key));
	assert_int_equal(wf_local_register(scene->local, share.at, 8192, WEFT_REMOTE_WRITE, &file, &key), 0);
	fd = wf_local_memory_answer(&scene->local->memory, key, 0, &letter);
	assert_int_equal(munmap(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), 8192), 0);
	close(fd);
	wf_share_close(&share);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(wrong_descriptors_hold_nobody_up, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(unread_descriptors_hold_nobody_up, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(wrong_answers_hold_nobody_up, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(descriptors_do_not_pile_up, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(wrong_memory_is_not_mapped, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(silent_ones_go, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(without_descriptors_it_sleeps, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(children_wake_nobody, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(letters_take_turns, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(strangers_count_nothing, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(readers_count_nothing, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(strangers_delay_nothing, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(rings_change_while_they_are_read, open_scene, close_scene),
		cmocka_unit_test_setup_teardown(readers_get_no_more, open_scene, close_scene),
	};

	return cmocka_run_group_tests_name("intruder", tests, NULL, NULL);
}
