/* The other process of a small benchmark; other.h has the shape. */
#include "other.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int put(int fd, const void *data, size_t bytes)
{
	return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes ? 0 : -EPIPE;
}

static int get(int fd, void *data, size_t bytes)
{
	return recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes ? 0 : -EPIPE;
}

struct hello {
	int status;
	size_t address_bytes, region_bytes;
};

static int open_side(const struct weft_config *config, uint64_t bytes, weft_engine **ret_engine, struct other *blobs)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	weft_region region;
	weft_queue *queue;
	int error;

	if (memory == MAP_FAILED)
		return -ENOMEM;
	blobs->address_bytes = sizeof(blobs->address);
	blobs->region_bytes = sizeof(blobs->region);
	if ((error = weft_engine_open(config, ret_engine, NULL, 0)) ||
	    (error = weft_queue_open(*ret_engine, WEFT_QUEUE_LISTEN, &queue)) ||
	    (error = weft_region_register(*ret_engine, memory, bytes, WEFT_REMOTE_WRITE, &region)) ||
	    (error = weft_engine_address(*ret_engine, blobs->address, &blobs->address_bytes)))
		return error;
	return weft_region_export(*ret_engine, region, blobs->region, &blobs->region_bytes);
}

static void serve(int fd, const struct weft_config *config, uint64_t bytes)
{
	static struct other blobs;
	weft_engine *engine = NULL;
	struct hello hello = { .status = open_side(config, bytes, &engine, &blobs) };
	char asked;

	hello.address_bytes = blobs.address_bytes;
	hello.region_bytes = blobs.region_bytes;
	if (!put(fd, &hello, sizeof(hello)) && !hello.status && !put(fd, blobs.address, blobs.address_bytes) &&
	    !put(fd, blobs.region, blobs.region_bytes))
		while (!get(fd, &asked, 1)) {
			uint64_t used = cpu_ns();

			put(fd, &used, sizeof(used));
		}
	weft_engine_close(engine);
}

int other_start(struct other *other, const struct weft_config *config, uint64_t bytes)
{
	struct hello hello;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	other->pid = fork();
	if (other->pid < 0)
		return -errno;
	if (!other->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		serve(pair[1], config, bytes);
		_exit(0);
	}
	close(pair[1]);
	other->fd = pair[0];
	if (get(other->fd, &hello, sizeof(hello)))
		return -EPIPE;
	if (hello.status)
		return hello.status;
	other->address_bytes = hello.address_bytes;
	other->region_bytes = hello.region_bytes;
	return get(other->fd, other->address, hello.address_bytes) || get(other->fd, other->region, hello.region_bytes)
		   ? -EPIPE
		   : 0;
}

void other_stop(struct other *other)
{
	shutdown(other->fd, SHUT_RDWR);
	waitpid(other->pid, NULL, 0);
	close(other->fd);
}

int other_cpu_ns(struct other *other, uint64_t *ret_ns)
{
	return put(other->fd, "?", 1) || get(other->fd, ret_ns, sizeof(*ret_ns)) ? -EPIPE : 0;
}

int other_connect(struct other *other, weft_engine *engine, weft_queue *queue, weft_peer *ret_peer,
		  weft_remote *ret_remote)
{
	uint64_t deadline = now_ns() + 10 * WEFT_SECOND;
	struct weft_event event;
	weft_peer peer;
	int error = weft_peer_add(engine, other->address, other->address_bytes, NULL, &peer);

	while (!error) {
		int got = weft_queue_wait(queue, &event, sizeof(event), 1, WEFT_SECOND);

		if (got < 0)
			return got;
		if (got && event.type == WEFT_EVENT_PEER_UP)
			break;
		if (got)
			weft_event_release(&event);
		if (now_ns() > deadline)
			error = -ETIMEDOUT;
	}
	if (!error)
		error = weft_remote_import(engine, peer, other->region, other->region_bytes, ret_remote);
	if (!error)
		*ret_peer = peer;
	return error;
}
