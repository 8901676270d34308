/* Starts, commands and ends peer processes. They run this same program, with --peer and a socket. */
#include "support/peer.h"
#include "support/rest.h"

#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static uint8_t last_data[COMMAND_MAX];

static void spawn(struct peer *peer)
{
	posix_spawn_file_actions_t actions;
	char number[16];
	char *argv[] = { "test-peer", "--peer", number, NULL };
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	snprintf(number, sizeof(number), "%d", 200);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pair[1], 200); /* dup2 clears close-on-exec */
	assert_int_equal(posix_spawn(&peer->pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(pair[1]);
	peer->fd = pair[0];
}

void peer_begin(struct peer *peer, struct command *command, const void *payload)
{
	assert_int_equal(command_put(peer->fd, command, sizeof(*command), LIMIT), 0);
	assert_int_equal(command_put(peer->fd, payload, command->bytes, LIMIT), 0);
}

int peer_end(struct peer *peer, struct answer *ret_answer)
{
	int error = command_get(peer->fd, ret_answer, sizeof(*ret_answer), 3 * LIMIT);

	if (error)
		fail_msg("the peer process does not answer: %s", strerror(-error));
	assert_true(ret_answer->bytes <= sizeof(last_data));
	assert_int_equal(command_get(peer->fd, last_data, ret_answer->bytes, LIMIT), 0);
	return ret_answer->status;
}

int peer_try(struct peer *peer, struct command *command, const void *payload, struct answer *ret_answer)
{
	peer_begin(peer, command, payload);
	return peer_end(peer, ret_answer);
}

uint64_t peer_do(struct peer *peer, struct command *command, const void *payload)
{
	struct answer answer;
	int status = peer_try(peer, command, payload, &answer);

	if (status)
		fail_msg("the peer's command %u ended with %d: %s", command->code, status, weft_strerror(status));
	return answer.value[0];
}

void peer_blob(const struct answer *answer, struct blob *ret_blob)
{
	assert_true(answer->bytes && answer->bytes <= BLOB);
	ret_blob->bytes = answer->bytes;
	memcpy(ret_blob->data, last_data, answer->bytes);
}

void peer_start(struct peer *peer, const struct weft_config *config)
{
	uint8_t payload[sizeof(*config) + 1024];
	struct command command = { .code = COMMAND_OPEN };
	struct answer answer;
	int strings, status;

	spawn(peer);
	memcpy(payload, config, sizeof(*config));
	strings = snprintf((char *)payload + sizeof(*config), 1024, "%s%c%s", config->provider ? config->provider : "",
			   0, config->rails ? config->rails : "");
	command.bytes = (uint32_t)(sizeof(*config) + (size_t)strings + 1);
	status = peer_try(peer, &command, payload, &answer);
	assert_status(status, 0);
	peer_blob(&answer, &peer->address);
}

static int reap(struct peer *peer, uint64_t limit_ns)
{
	struct pollfd poller = { .fd = pidfd_open(peer->pid, 0), .events = POLLIN };
	int status = 0, ended = poll(&poller, 1, (int)(limit_ns / MS));

	if (ended != 1)
		kill(peer->pid, SIGKILL);
	waitpid(peer->pid, &status, 0);
	close(poller.fd);
	close(peer->fd);
	peer->pid = 0;
	if (ended != 1)
		fail_msg("the peer process did not end");
	return status;
}

void peer_stop(struct peer *peer)
{
	struct answer answer;
	int status = peer_try(peer, &(struct command){ .code = COMMAND_CLOSE }, NULL, &answer);

	assert_status(status, 0);
	shutdown(peer->fd, SHUT_WR);
	status = reap(peer, LIMIT);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("the peer process ended with status %#x", status);
}

/* libfabric's shared memory is named after the process and outlives a killed one. */
static void remove_leftovers(pid_t pid)
{
	char pattern[64];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "/dev/shm/%d:*", (int)pid);
	if (glob(pattern, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		unlink(found.gl_pathv[i]);
	globfree(&found);
}

void peer_kill(struct peer *peer)
{
	pid_t pid = peer->pid;

	if (!pid)
		return;
	stop_at_rest(pid);
	kill(pid, SIGKILL);
	reap(peer, LIMIT);
	remove_leftovers(pid);
}

weft_peer peer_add(struct peer *peer, const struct blob *address)
{
	return peer_do(peer, &(struct command){ .code = COMMAND_ADD, .bytes = (uint32_t)address->bytes },
		       address->data);
}

uint64_t peer_region(struct peer *peer, uint64_t bytes, uint32_t access, struct blob *ret_blob)
{
	struct answer answer;
	int status =
	    peer_try(peer, &(struct command){ .code = COMMAND_REGION, .arg = { bytes, access } }, NULL, &answer);

	assert_status(status, 0);
	if (ret_blob)
		peer_blob(&answer, ret_blob);
	return answer.value[0];
}

void peer_fill(struct peer *peer, uint64_t region, uint64_t offset, uint64_t bytes, uint64_t seed)
{
	peer_tell(peer, COMMAND_FILL, region, offset, bytes, seed, 0);
}

void peer_check_at(struct peer *peer, uint64_t region, uint64_t offset, uint64_t bytes, uint64_t seed, uint64_t start)
{
	uint64_t differs = peer_tell(peer, COMMAND_DIFFERS, region, offset, bytes, seed, start);

	if (differs != bytes)
		fail_msg("the peer's byte %llu of %llu at offset %llu is wrong", (unsigned long long)differs,
			 (unsigned long long)bytes, (unsigned long long)offset);
}

void peer_check(struct peer *peer, uint64_t region, uint64_t offset, uint64_t bytes, uint64_t seed)
{
	peer_check_at(peer, region, offset, bytes, seed, 0);
}

int peer_wait_try(struct peer *peer, enum weft_event_type type, uint64_t tag, uint64_t limit_ns, struct peer_event *ret)
{
	struct answer answer;
	struct command command = { .code = COMMAND_WAIT, .arg = { type, tag, limit_ns } };
	int error = peer_try(peer, &command, NULL, &answer);

	*ret = (struct peer_event){ (int)(int64_t)answer.value[0],
				    answer.value[1],
				    answer.value[2],
				    answer.value[4],
				    answer.value[3],
				    last_data };
	return error;
}

void peer_wait(struct peer *peer, enum weft_event_type type, uint64_t tag, struct peer_event *ret)
{
	int error = peer_wait_try(peer, type, tag, LIMIT, ret);

	if (error)
		fail_msg("no event %d with tag %llu at the peer: %d", type, (unsigned long long)tag, error);
}
