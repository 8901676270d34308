/*
 * weft in a program that already has a loop: its queue is one more descriptor for epoll, beside a timer and a socket.
 *
 *   build/examples/epoll_loop [PROVIDER]
 */
#include "common.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { MESSAGES = 5 };

static int sender(int fd, const char *provider)
{
	weft_engine *engine = open_engine(provider);
	weft_queue *queue;
	weft_peer peer;
	char nothing[1];

	must(weft_queue_open(engine, 0, &queue), "weft_queue_open");
	peer = take_peer(fd, engine);
	for (uint64_t i = 0; i < MESSAGES; i++) {
		struct weft_op op = { .size = sizeof(op), .queue = queue, .timeout_ns = 20 * WEFT_SECOND };
		struct weft_event event;

		must(weft_send(engine, peer, i, "tick", 4, &op, NULL), "weft_send");
		await(queue, WEFT_EVENT_END, &event);
		must(event.status, "a message");
		weft_event_release(&event);
	}
	give(fd, "", 0); /* and one thing by the socket */
	take(fd, nothing);
	weft_engine_close(engine);
	return 0;
}

/* The descriptor stays readable while events wait: poll until there are none, or the next epoll_wait() returns at once. */
static int read_queue(weft_queue *queue)
{
	struct weft_event events[16];
	int messages = 0, got;

	while ((got = must(weft_queue_poll(queue, events, sizeof(events[0]), 16), "weft_queue_poll")) > 0)
		for (int i = 0; i < got; i++) {
			messages += events[i].type == WEFT_EVENT_MESSAGE;
			weft_event_release(&events[i]);
		}
	return messages;
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) {
		perror("epoll_ctl");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "tcp";
	struct other other = start(sender, provider);
	struct itimerspec soon = { .it_value.tv_nsec = 20000000 };
	int epoll = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	int messages = 0, timers = 0, letters = 0, waits = 0, queue_fd;
	weft_engine *engine = open_engine(provider);
	weft_queue *queue;
	uint64_t expirations;
	char nothing[WEFT_BLOB_MAX];

	must(weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue), "weft_queue_open");
	queue_fd = must(weft_queue_fd(queue), "weft_queue_fd");
	if (epoll < 0 || timer < 0 || timerfd_settime(timer, 0, &soon, NULL))
		return 1;
	watch(epoll, queue_fd);
	watch(epoll, timer);
	watch(epoll, other.fd);
	give_address(other.fd, engine);
	while ((messages < MESSAGES || !timers || !letters) && waits++ < 1000) {
		struct epoll_event ready[4];
		int count = epoll_wait(epoll, ready, 4, 30000);

		if (count <= 0 && errno != EINTR)
			break;
		for (int i = 0; i < count; i++) {
			if (ready[i].data.fd == queue_fd)
				messages += read_queue(queue);
			else if (ready[i].data.fd == timer)
				timers += read(timer, &expirations, sizeof(expirations)) > 0;
			else
				letters += !take(other.fd, nothing);
		}
	}
	printf("one loop: %d messages, %d timer, %d letter by the socket\n", messages, timers, letters);
	give(other.fd, "", 0);
	weft_engine_close(engine);
	close(epoll);
	close(timer);
	return finish(&other) || messages != MESSAGES || timers != 1 || letters != 1;
}
