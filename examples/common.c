/* The shared part of the small examples. The thread that calls it. */
#include "common.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int must(int result, const char *what)
{
	if (result >= 0)
		return result;
	fprintf(stderr, "%s: %s\n", what, weft_strerror(result));
	if (weft_error_hint(result))
		fprintf(stderr, "%s\n", weft_error_hint(result));
	exit(1);
}

struct other start(int (*other_main)(int fd, const char *provider), const char *provider)
{
	struct other other;
	pid_t parent = getpid();
	int fds[2];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) || (other.pid = fork()) < 0) {
		perror("a second process");
		exit(1);
	}
	other.fd = fds[!other.pid];
	close(fds[!!other.pid]);
	if (other.pid)
		return other;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	exit(getppid() == parent ? other_main(other.fd, provider) : 1);
}

int finish(struct other *other)
{
	int status;

	close(other->fd);
	if (waitpid(other->pid, &status, 0) != other->pid || !WIFEXITED(status))
		return 1;
	return WEXITSTATUS(status);
}

void give(int fd, const void *blob, size_t bytes)
{
	if (send(fd, &bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes) ||
	    (bytes && send(fd, blob, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)) {
		fprintf(stderr, "the other process is gone\n");
		exit(1);
	}
}

size_t take(int fd, void *blob)
{
	size_t bytes;

	if (recv(fd, &bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes) || bytes > WEFT_BLOB_MAX ||
	    (bytes && recv(fd, blob, bytes, MSG_WAITALL) != (ssize_t)bytes)) {
		fprintf(stderr, "the other process is gone\n");
		exit(1);
	}
	return bytes;
}

weft_engine *open_engine(const char *provider)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	struct weft_error error;
	weft_engine *engine;
	int result;

	config.provider = provider;
	if (!strcmp(provider, "tcp"))
		config.rails = "127.0.0.1";
	result = weft_engine_open(&config, &engine, &error, sizeof(error));
	if (result < 0)
		fprintf(stderr, "%s\n", error.text);
	must(result, "weft_engine_open");
	return engine;
}

void give_address(int fd, weft_engine *engine)
{
	char blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);

	must(weft_engine_address(engine, blob, &bytes), "weft_engine_address");
	give(fd, blob, bytes);
}

void give_region(int fd, weft_engine *engine, weft_region region)
{
	char blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);

	must(weft_region_export(engine, region, blob, &bytes), "weft_region_export");
	give(fd, blob, bytes);
}

weft_peer take_peer(int fd, weft_engine *engine)
{
	char blob[WEFT_BLOB_MAX];
	size_t bytes = take(fd, blob);
	weft_peer peer;

	must(weft_peer_add(engine, blob, bytes, NULL, &peer), "weft_peer_add");
	return peer;
}

weft_remote take_remote(int fd, weft_engine *engine, weft_peer peer)
{
	char blob[WEFT_BLOB_MAX];
	size_t bytes = take(fd, blob);
	weft_remote remote;

	must(weft_remote_import(engine, peer, blob, bytes, &remote), "weft_remote_import");
	return remote;
}

void await(weft_queue *queue, enum weft_event_type type, struct weft_event *ret_event)
{
	for (int waits = 0; waits < 30;) {
		struct weft_event event;
		int got = must(weft_queue_wait(queue, &event, sizeof(event), 1, WEFT_SECOND), "weft_queue_wait");

		waits += !got;
		if (got && event.type == type) {
			*ret_event = event;
			return;
		}
		if (got)
			weft_event_release(&event);
	}
	fprintf(stderr, "an event of type %d did not come in 30 s\n", (int)type);
	exit(1);
}
