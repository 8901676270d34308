/*
 * Completion channels: a pipe that the ticker writes the address of a queue to when a queue that was armed has something to
 * read. Any thread.
 */
#include "card.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct channel {
	struct ibv_comp_channel base;
	int write_fd;
};

API struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *channel = calloc(1, sizeof *channel);
	int ends[2];

	if (!channel)
		return NULL;
	if (pipe2(ends, O_CLOEXEC)) {
		free(channel);
		return NULL;
	}
	channel->base.context = context;
	channel->base.fd = ends[0];
	channel->write_fd = ends[1];
	return &channel->base;
}

API int ibv_destroy_comp_channel(struct ibv_comp_channel *base)
{
	struct channel *channel = CONTAINER_OF(base, struct channel, base);

	close(channel->base.fd);
	close(channel->write_fd);
	free(channel);
	return 0;
}

/* With the card's lock. One event for each time it is armed. */
void cq_notify(struct completion_queue *cq)
{
	struct channel *channel = CONTAINER_OF(cq->base.channel, struct channel, base);
	ssize_t n;

	cq->armed = false;
	atomic_fetch_sub(&cq->card->busy, 1);
	do
		n = write(channel->write_fd, &cq, sizeof cq);
	while (n < 0 && errno == EINTR);
}

int cq_arm(struct ibv_cq *base, int solicited_only)
{
	struct completion_queue *cq = CONTAINER_OF((struct ibv_cq_ex *)base, struct completion_queue, base);

	if (!cq->base.channel)
		return EINVAL;
	pthread_mutex_lock(&cq->card->lock);
	if (!cq->armed) {
		cq->armed = true;
		atomic_fetch_add(&cq->card->busy, 1);
	}
	pthread_mutex_unlock(&cq->card->lock);
	ticker_wake();
	return 0;
}

API int ibv_get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **ret_cq, void **ret_context)
{
	struct completion_queue *cq;
	ssize_t n = read(base->fd, &cq, sizeof cq);

	if (n != (ssize_t)sizeof cq)
		return -1;
	*ret_cq = (struct ibv_cq *)&cq->base;
	*ret_context = cq->base.cq_context;
	return 0;
}

API void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
}
