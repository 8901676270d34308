/* What a worker does for every page: choose it, post it, see it end. The hot path of 09 to 15; each worker on its own thread. */
#include "rails.h"

#include <sched.h>

/* guide: next */
static uint64_t next_number(struct worker *worker)
{
	uint64_t number;

	if (worker->ideas.shard)
		return worker->next++; /* 13: nobody else touches this line */
	pthread_mutex_lock(&worker->shared->lock);
	number = worker->shared->next++;
	pthread_mutex_unlock(&worker->shared->lock);
	return number;
}
/* guide end */

/* guide: eager */
/* The whole transfer as a list of requests: memory for all of them, touched twice, before the first byte moves. */
static void write_list(struct worker *worker)
{
	struct list *list = malloc(sizeof(*list));

	if (!list)
		die("no memory");
	list->at = 0;
	list->remaining = LIST;
	for (unsigned i = 0; i < LIST; i++) {
		list->request[i].page = work_page(worker->work, next_number(worker));
		list->request[i].list = list;
	}
	worker->list = list;
	worker->lists++;
}
/* guide end */

/* The next request for this NIC; NULL when there is none, or no room. */
static struct request *take(struct worker *worker, struct rail *rail, bool more)
{
	struct request *request;

	if (rail->in_flight + rail->ready_count >= rail->depth)
		return NULL;
	if (!worker->ideas.lazy) {
		if (!worker->list && more && worker->lists < 2)
			write_list(worker);
		if (!worker->list)
			return NULL;
		request = &worker->list->request[worker->list->at++];
		if (worker->list->at == LIST)
			worker->list = NULL;
		return request;
	}
	/* guide: lazy */
	if (!more || !rail->free_count)
		return NULL;
	request = rail->free[--rail->free_count]; /* 15: now, because the NIC has room now */
	request->page = work_page(worker->work, next_number(worker));
	return request;
	/* guide end */
}

/* guide: batch */
static void post(struct worker *worker, struct rail *rail, bool more)
{
	unsigned most = worker->ideas.batch ? BATCH : 1;

	if (rail->ready_at == rail->ready_count) {
		rail->ready_at = rail->ready_count = 0;
		while (rail->ready_count < most && (rail->ready[rail->ready_count] = take(worker, rail, more)))
			rail->ready_count++;
	}
	for (; rail->ready_at < rail->ready_count; rail->ready_at++, rail->in_flight++) {
		struct request *request = rail->ready[rail->ready_at];
		bool last = rail->ready_at + 1 == rail->ready_count; /* 14: only the last one rings the doorbell */
		ssize_t result = nic_write(&rail->nic, request->page.from, worker->work->page_bytes, request->page.to,
					   &request->context, last ? 0 : FI_MORE, 0);

		if (result == -FI_EAGAIN && !last) /* those before it wait for a ring: this one may be the last */
			result = nic_write(&rail->nic, request->page.from, worker->work->page_bytes, request->page.to,
					   &request->context, 0, 0);
		if (result == -FI_EAGAIN) {
			worker->refused++;
			return; /* stays in ready[]; completions first */
		}
		check((int)result, "fi_writemsg");
	}
}
/* guide end */

static void ended(struct worker *worker, struct rail *rail, struct request *request)
{
	rail->in_flight--;
	worker->done++;
	if (!worker->ideas.shard)
		atomic_fetch_add(&worker->shared->done, 1); /* the same line as the lock: it travels to this core */
	if (!request->list) {
		rail->free[rail->free_count++] = request;
	} else if (!--request->list->remaining) {
		free(request->list);
		worker->lists--;
	}
}

static void look(struct worker *worker, struct rail *rail)
{
	struct fi_cq_data_entry entry[BATCH];
	ssize_t count = fi_cq_read(rail->nic.cq, entry, BATCH);

	if (count == -FI_EAGAIN)
		return;
	if (count < 0)
		nic_fail(&rail->nic);
	for (ssize_t i = 0; i < count; i++)
		ended(worker, rail, entry[i].op_context);
}

static bool busy(const struct worker *worker)
{
	for (int i = 0; i < worker->count; i++)
		if (worker->rails[i].in_flight || worker->rails[i].ready_at < worker->rails[i].ready_count)
			return true;
	return worker->list != NULL;
}

void worker_run(struct worker *worker)
{
	uint64_t start = thread_cpu_ns(), give_up = worker->end_ns + PATIENCE_S * UINT64_C(1000000000), turn = 0;
	bool more = true;

	/* guide: turn */
	while (more || busy(worker)) {
		for (int i = 0; i < worker->count; i++) {
			post(worker, &worker->rails[i], more);
			look(worker, &worker->rails[i]);
		}
		if (turn++ % 16)
			continue; /* asking for the time is not free */
		more = more && now_ns() < worker->end_ns;
		if (!more && now_ns() > give_up)
			die("writes have not ended after %d s", PATIENCE_S);
	}
	/* guide end */
	worker->cpu_ns = thread_cpu_ns() - start;
}

void worker_prepare(struct worker *worker, unsigned depth)
{
	for (int i = 0; i < worker->count; i++) {
		struct rail *rail = &worker->rails[i];
		unsigned most = (unsigned)rail->nic.info->tx_attr->size;

		rail->depth = worker->ideas.lazy && depth < most ? depth : most;
		if (!worker->ideas.lazy)
			continue;
		rail->slots = calloc(rail->depth, sizeof(*rail->slots));
		rail->free = calloc(rail->depth, sizeof(*rail->free));
		if (!rail->slots || !rail->free)
			die("no memory");
		for (rail->free_count = 0; rail->free_count < rail->depth; rail->free_count++)
			rail->free[rail->free_count] = &rail->slots[rail->free_count];
	}
}

void worker_free(struct worker *worker)
{
	for (int i = 0; i < worker->count; i++) {
		free(worker->rails[i].slots);
		free(worker->rails[i].free);
	}
}
