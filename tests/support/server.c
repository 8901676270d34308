/*
 * The peer process: an engine of its own that does what the test says, one command at a time, and dies with the test.
 * It checks nothing by itself; its observations go back in the answer.
 */
#include "support/command.h"
#include "support/side.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define REGIONS 64

struct server {
	int fd;
	struct side side;
	struct {
		weft_region region;
		char *memory;
		bool card;
	} region[REGIONS];
	uint32_t regions;
	bool quiet;
	struct command command;
	struct answer answer;
	uint8_t *payload, *reply;
};

typedef int (*handler)(struct server *server, const uint64_t *arg);

static int do_open(struct server *server, const uint64_t *arg)
{
	struct weft_config config;
	size_t bytes = COMMAND_MAX;
	int error;

	memcpy(&config, server->payload, sizeof(config));
	config.provider = (char *)server->payload + sizeof(config);
	config.rails = config.provider + strlen(config.provider) + 1;
	if (!*config.provider)
		config.provider = NULL;
	if (!*config.rails)
		config.rails = NULL;
	config.log = side_config().log; /* pointers of the other process are invalid here */
	error = side_open(&server->side, &config);
	if (!error)
		error = weft_engine_address(server->side.engine, server->reply, &bytes);
	server->answer.bytes = error ? 0 : (uint32_t)bytes;
	return error;
}

__attribute__((weak)) void *card_memory(uint64_t bytes, uint64_t kind);
__attribute__((weak)) void card_free(void *memory);
__attribute__((weak)) void card_copy(void *to, const void *from, uint64_t bytes);
__attribute__((weak)) uint64_t card_control(uint64_t what, uint64_t value);

static void free_memory(struct server *server, uint32_t number)
{
	if (server->region[number].card)
		card_free(server->region[number].memory);
	else
		side_memory_free(server->region[number].memory);
}

static int do_close(struct server *server, const uint64_t *arg)
{
	uint64_t start = now_ns();
	int error = side_close(&server->side);

	server->answer.value[0] = now_ns() - start;
	for (uint32_t i = 0; i < server->regions; i++)
		free_memory(server, i);
	server->regions = 0;
	return error;
}

static int do_add(struct server *server, const uint64_t *arg)
{
	return weft_peer_add(server->side.engine, server->payload, server->command.bytes, NULL,
			     &server->answer.value[0]);
}

static int do_remove(struct server *server, const uint64_t *arg)
{
	return weft_peer_remove(server->side.engine, arg[0]);
}

static int do_replace(struct server *server, const uint64_t *arg)
{
	return weft_peer_replace(server->side.engine, arg[0], server->payload, server->command.bytes);
}

static int do_region(struct server *server, const uint64_t *arg)
{
	uint32_t number = server->regions;
	size_t bytes = COMMAND_MAX;
	char *memory = number == REGIONS ? NULL
		       : arg[2]          ? card_memory(arg[0], arg[2] - 1)
					 : side_memory(server->side.engine, arg[0]);
	int error;

	if (!memory)
		return -ENOMEM;
	server->region[number].memory = memory;
	server->region[number].card = arg[2];
	server->regions++;
	error =
	    weft_region_register(server->side.engine, memory, arg[0], (uint32_t)arg[1], &server->region[number].region);
	if (!error && arg[1])
		error = weft_region_export(server->side.engine, server->region[number].region, server->reply, &bytes);
	server->answer.bytes = error || !arg[1] ? 0 : (uint32_t)bytes;
	server->answer.value[0] = number;
	return error;
}

static int do_region_close(struct server *server, const uint64_t *arg)
{
	return weft_region_close(server->side.engine, server->region[arg[0]].region);
}

static int do_revoke(struct server *server, const uint64_t *arg)
{
	return weft_region_revoke(server->side.engine, server->region[arg[0]].region);
}

static int do_fill(struct server *server, const uint64_t *arg)
{
	char *at = server->region[arg[0]].memory + arg[1];

	if (server->region[arg[0]].card) {
		if (arg[2] > COMMAND_MAX)
			return -E2BIG;
		landed_fill((char *)server->reply, arg[2], arg[3], arg[4]);
		card_copy(at, server->reply, arg[2]);
		return 0;
	}
	landed_fill(at, arg[2], arg[3], arg[4]);
	return 0;
}

static int do_differs(struct server *server, const uint64_t *arg)
{
	char *at = server->region[arg[0]].memory + arg[1];

	if (server->region[arg[0]].card) {
		if (arg[2] > COMMAND_MAX)
			return -E2BIG;
		card_copy(server->reply, at, arg[2]);
		at = (char *)server->reply;
	}
	server->answer.value[0] = landed_differs(at, arg[2], arg[3], arg[4]);
	return 0;
}

static int do_import(struct server *server, const uint64_t *arg)
{
	return weft_remote_import(server->side.engine, arg[0], server->payload, server->command.bytes,
				  &server->answer.value[0]);
}

static int do_write(struct server *server, const uint64_t *arg)
{
	struct weft_write write = { sizeof(write), server->region[arg[0]].region, arg[1], arg[2], arg[3], arg[4] };
	struct weft_op op = { .size = sizeof(op), .queue = server->side.queue, .tag = arg[5] };

	if (arg[6]) {
		op.notify = WEFT_NOTIFY_FENCED;
		op.notify_tag = arg[6];
	}
	return weft_write(server->side.engine, &write, &op, NULL);
}

static int do_send(struct server *server, const uint64_t *arg)
{
	struct weft_op op = { .size = sizeof(op), .queue = server->side.queue, .tag = arg[3] };

	pattern_fill(server->payload, arg[2], arg[1], 0);
	return weft_send(server->side.engine, arg[0], arg[1], server->payload, arg[2], &op, NULL);
}

static int do_wait(struct server *server, const uint64_t *arg)
{
	struct weft_event event;
	int error = side_wait(&server->side, (enum weft_event_type)arg[0], arg[1], arg[2], &event);
	uint64_t *value = server->answer.value;

	if (error)
		return error;
	value[0] = (uint64_t)(int64_t)event.status;
	value[1] = event.tag;
	value[2] = event.bytes;
	value[3] = event.peer;
	value[4] = event.call;
	if (event.data && event.bytes <= COMMAND_MAX) {
		memcpy(server->reply, event.data, event.bytes);
		server->answer.bytes = (uint32_t)event.bytes;
	}
	weft_event_release(&event);
	return 0;
}

static int do_drain(struct server *server, const uint64_t *arg)
{
	for (uint64_t i = 0; i < arg[1]; i++) {
		struct weft_event event;
		int error = side_wait(&server->side, WEFT_EVENT_MESSAGE, ANY_TAG, arg[2], &event);
		bool good = !error && event.tag == arg[0] + i &&
			    pattern_differs(event.data, event.bytes, event.tag, 0) == event.bytes;

		if (error)
			return error;
		weft_event_release(&event);
		if (!good)
			return 0;
		server->answer.value[0]++;
	}
	return 0;
}

static int do_serve(struct server *server, const uint64_t *arg)
{
	for (uint64_t i = 0; i < arg[0]; i++) {
		uint64_t deadline = now_ns() + arg[2];
		struct weft_event event;
		int error = side_wait(&server->side, WEFT_EVENT_CALL, ANY_TAG, arg[2], &event);

		if (error)
			return error;
		do {
			error = weft_reply(server->side.engine, event.peer, event.call, (int)(int64_t)arg[1],
					   event.data, event.bytes, NULL, NULL);
			if (error == -EAGAIN)
				side_gather(&server->side);
		} while (error == -EAGAIN && now_ns() < deadline);
		weft_event_release(&event);
		if (error)
			return error;
		server->answer.value[0]++;
	}
	return 0;
}

static int do_reply(struct server *server, const uint64_t *arg)
{
	struct weft_op op = { .size = sizeof(op), .queue = server->side.queue, .tag = arg[3] };

	return weft_reply(server->side.engine, arg[0], arg[1], (int)(int64_t)arg[2], server->payload,
			  server->command.bytes, op.tag ? &op : NULL, NULL);
}

static int do_expect(struct server *server, const uint64_t *arg)
{
	struct weft_op op = { .size = sizeof(op), .queue = server->side.queue, .tag = arg[2] };

	return weft_expect(server->side.engine, 0, (uint32_t)arg[0], arg[1], &op, NULL);
}

static int do_barrier(struct server *server, const uint64_t *arg)
{
	struct weft_op op = { .size = sizeof(op), .queue = server->side.queue, .tag = arg[1] };

	return weft_barrier(server->side.engine, (weft_peer *)server->payload,
			    server->command.bytes / (uint32_t)sizeof(weft_peer), arg[0], &op, NULL);
}

static int do_quiet(struct server *server, const uint64_t *arg)
{
	server->quiet = arg[0];
	return server->side.manual ? 0 : -EINVAL;
}

static int do_usage(struct server *server, const uint64_t *arg)
{
	side_gather(&server->side); /* events that nobody asked for are no leak of the engine's: throw them away */
	for (uint32_t i = 0; i < server->side.count; i++)
		weft_event_release(&server->side.kept[i]);
	server->side.count = 0;
	server->answer.value[0] = rss_bytes();
	server->answer.value[1] = (uint64_t)open_fds();
	return 0;
}

/* Defined in programs with their own allocator (test_alloc.c). */
__attribute__((weak)) void counting_start(void);
__attribute__((weak)) uint64_t counting_stop(uint64_t *ret_culprit);

static int do_counting(struct server *server, const uint64_t *arg)
{
	if (!counting_start || !counting_stop)
		return -ENOSYS;
	if (arg[0])
		counting_start();
	else
		server->answer.value[0] = counting_stop(&server->answer.value[1]);
	return 0;
}

static int do_card(struct server *server, const uint64_t *arg)
{
	server->answer.value[0] = card_control ? card_control(arg[0], arg[1]) : 0;
	return card_control ? 0 : -ENOSYS;
}

static int do_rounds(struct server *server, const uint64_t *arg)
{
	struct weft_write write = {
		.size = sizeof(write), .from = server->region[arg[1]].region, .to = arg[0], .bytes = arg[2]
	};

	for (uint64_t i = 0; i < arg[3]; i++) {
		struct weft_op op = { .size = sizeof(op), .queue = server->side.queue, .tag = UINT64_C(1) << 40 | i };
		struct weft_event event;
		int error = weft_write(server->side.engine, &write, &op, NULL);

		if (!error)
			error = side_wait(&server->side, WEFT_EVENT_END, op.tag, LIMIT, &event);
		if (error)
			return error;
		server->answer.value[0] += !event.status;
		weft_event_release(&event);
	}
	return 0;
}

static const handler handlers[] = {
	[COMMAND_OPEN] = do_open,
	[COMMAND_CLOSE] = do_close,
	[COMMAND_ADD] = do_add,
	[COMMAND_REMOVE] = do_remove,
	[COMMAND_REPLACE] = do_replace,
	[COMMAND_REGION] = do_region,
	[COMMAND_REGION_CLOSE] = do_region_close,
	[COMMAND_REVOKE] = do_revoke,
	[COMMAND_FILL] = do_fill,
	[COMMAND_DIFFERS] = do_differs,
	[COMMAND_IMPORT] = do_import,
	[COMMAND_WRITE] = do_write,
	[COMMAND_SEND] = do_send,
	[COMMAND_WAIT] = do_wait,
	[COMMAND_DRAIN] = do_drain,
	[COMMAND_SERVE] = do_serve,
	[COMMAND_REPLY] = do_reply,
	[COMMAND_EXPECT] = do_expect,
	[COMMAND_BARRIER] = do_barrier,
	[COMMAND_QUIET] = do_quiet,
	[COMMAND_CARD] = do_card,
	[COMMAND_ROUNDS] = do_rounds,
	[COMMAND_USAGE] = do_usage,
	[COMMAND_COUNTING] = do_counting,
};

/* A manual engine makes progress while there is no command, unless told to be quiet. */
static int next_command(struct server *server)
{
	struct pollfd poller = { .fd = server->fd, .events = POLLIN };
	bool driven = server->side.engine && server->side.manual && !server->quiet;
	int error;

	while (!poll(&poller, 1, driven ? 0 : -1))
		weft_engine_progress(server->side.engine);
	error = command_get(server->fd, &server->command, sizeof(server->command), LIMIT);
	if (!error && server->command.bytes > COMMAND_MAX)
		error = -EPROTO;
	return error ? error : command_get(server->fd, server->payload, server->command.bytes, LIMIT);
}

/* Where the environment wants the peer to live. In a pid namespace of its own it is the first process there, and who started it waits
 * for its end. */
static int go_apart(void)
{
	int status;
	pid_t child;

	if (getenv("TEST_PEER_NETNS") && setns(open(getenv("TEST_PEER_NETNS"), O_RDONLY | O_CLOEXEC), CLONE_NEWNET))
		return 1;
	if (!getenv("TEST_PEER_PIDNS"))
		return 0;
	if (unshare(CLONE_NEWPID) || (child = fork()) < 0)
		return 1;
	if (!child)
		return 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	_exit(waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int server_main(int fd)
{
	struct server server = { .fd = fd, .payload = malloc(COMMAND_MAX), .reply = malloc(COMMAND_MAX) };

	if (go_apart())
		return 1;
	if (getenv("TEST_PEER_UID") && setuid((uid_t)atoi(getenv("TEST_PEER_UID")))) /* as another user */
		return 1;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!server.payload || !server.reply)
		return 1;
	while (!next_command(&server)) {
		uint32_t code = server.command.code;

		memset(&server.answer, 0, sizeof(server.answer));
		server.answer.status = -ENOSYS;
		if (code < sizeof(handlers) / sizeof(handlers[0]) && handlers[code] &&
		    (server.side.engine || code == COMMAND_OPEN || code == COMMAND_CARD))
			server.answer.status = handlers[code](&server, server.command.arg);
		if (command_put(fd, &server.answer, sizeof(server.answer), LIMIT) ||
		    command_put(fd, server.reply, server.answer.bytes, LIMIT))
			break;
	}
	if (server.side.engine)
		do_close(&server, NULL);
	free(server.payload);
	free(server.reply);
	return 0;
}
