/*
 * Many writes in flight on one NIC: what one NIC can do, and how deep its queue must be for that.
 *
 *   build/journey/07-queue [--provider NAME | --sim MACHINE] [--depth N] [--page BYTES] [--ms N] [--listen PORT | --connect HOST:PORT]
 *
 * Without --depth it tries 1, 2, 4, ... 128.
 */
#include "bench.h"

struct queue {
	struct nic *nic;
	const struct work *work;
	struct fi_context2 *contexts; /* one per write that may be in flight */
	struct fi_context2 **free;    /* those not in use now */
	unsigned depth, free_count;
	uint64_t next, done, refused;
};

/* guide: fill */
/* Posts until as many writes as wanted are in flight, or the NIC takes no more. */
static void fill(struct queue *queue)
{
	struct nic *nic = queue->nic;

	while (queue->free_count) {
		struct fi_context2 *context = queue->free[queue->free_count - 1];
		struct page page = work_page(queue->work, queue->next);
		ssize_t result = nic_write(nic, page.from, queue->work->page_bytes, page.to, context, 0, 0);

		if (result == -FI_EAGAIN) {
			queue->refused++; /* its own queue is full: completions first */
			return;
		}
		check((int)result, "fi_write");
		queue->free_count--;
		queue->next++;
	}
}
/* guide end */

/* guide: drain */
static void drain(struct queue *queue)
{
	struct fi_cq_data_entry entry[64];
	ssize_t count = fi_cq_read(queue->nic->cq, entry, 64);

	if (count == -FI_EAGAIN)
		return;
	if (count < 0)
		nic_fail(queue->nic);
	for (ssize_t i = 0; i < count; i++)
		queue->free[queue->free_count++] = entry[i].op_context; /* may be used again from now on */
	queue->done += (uint64_t)count;
}
/* guide end */

static struct result measure(struct nic *nic, const struct work *work, unsigned depth, uint64_t ms)
{
	struct queue queue = { .nic = nic, .work = work, .depth = depth };
	struct result result = { .workers = 1, .nics = 1, .line_bps = nic_line(nic) };
	uint64_t start, cpu, end, give_up;

	queue.contexts = calloc(depth, sizeof(*queue.contexts));
	queue.free = calloc(depth, sizeof(*queue.free));
	if (!queue.contexts || !queue.free)
		die("no memory");
	for (queue.free_count = 0; queue.free_count < depth; queue.free_count++)
		queue.free[queue.free_count] = &queue.contexts[queue.free_count];
	start = now_ns();
	cpu = thread_cpu_ns();
	end = start + ms * 1000000;
	while (now_ns() < end) {
		fill(&queue);
		drain(&queue);
	}
	give_up = now_ns() + PATIENCE_S * UINT64_C(1000000000);
	while (queue.free_count < depth && now_ns() < give_up)
		drain(&queue);
	if (queue.free_count < depth)
		die("%u writes have not ended after %d s", depth - queue.free_count, PATIENCE_S);
	result.wall_s = (double)(now_ns() - start) / 1e9;
	result.cpu_s = (double)(thread_cpu_ns() - cpu) / 1e9;
	result.writes = queue.done;
	result.refused = queue.refused;
	result.page_bytes = work->page_bytes;
	free(queue.contexts);
	free(queue.free);
	return result;
}

int main(int argc, char **argv)
{
	struct pair pair = pair_start(&argc, argv);
	uint64_t depth = option(argc, argv, "--depth", 0), ms = option(argc, argv, "--ms", 200);
	struct work work = work_prepare(argc, argv, pair.starts);
	struct nic nic;
	int result = 0;

	nic_open_first(&nic, &pair);
	nic_register(&nic, work.memory, work.bytes);
	nic_introduce(&nic, &pair);
	if (!pair.starts) {
		target_serve(&pair, &nic, 1, &work);
	} else {
		struct result measured = measure(&nic, &work, 1, 20); /* first contact is no part of it */

		for (uint64_t i = depth ? depth : 1; i <= (depth ? depth : 128); i *= 2) {
			measured = measure(&nic, &work, (unsigned)i, ms);
			if (!flag(argc, argv, "--plain"))
				printf("%4llu in flight: %8.2f Gbit/s, %llu posts refused\n", (unsigned long long)i,
				       (double)measured.writes * (double)work.page_bytes * 8 / measured.wall_s / 1e9,
				       (unsigned long long)measured.refused);
		}
		result = target_judge(&pair, measured.writes);
		result_print(&measured, argc, argv);
	}
	nic_close(&nic);
	return pair.starts ? pair_end(&pair) | result : 0;
}
