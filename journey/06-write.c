/*
 * One side asks, the other writes straight into its memory: RDMA WRITE, with immediate data to say "done".
 *
 *   build/journey/06-write [--provider NAME | --sim MACHINE] [--bytes N] [--listen PORT | --connect HOST:PORT]
 */
#include "common.h"

/* guide: request */
/* What a writer must know of memory that is not its own. */
struct request {
	uint64_t base, key, bytes;
	uint32_t seed, number; /* which pattern is wanted, and the immediate that will say it is there */
};
/* guide end */

enum { CHUNK = 65536 };
static struct fi_context2 letter_context;

static uint32_t ask(struct nic *nic, const struct request *request, struct request *letter, const char *memory)
{
	/* guide: ask */
	*letter = *request;
	POST(nic, fi_send(nic->ep, letter, sizeof(*letter), nic->desc, nic->peer, &letter_context));
	nic_await(nic, &nic->sent, 1);
	nic_await(nic, &nic->immediates, 1); /* nobody here received anything: the bytes are just there */
	/* guide end */
	if (nic->immediate != request->number)
		die("an immediate of %llu", (unsigned long long)nic->immediate);
	printf("%llu bytes %s, told by immediate %llu\n", (unsigned long long)request->bytes,
	       pattern_holds(memory, request->bytes, request->seed) ? "arrived whole" : "ARE NOT WHAT WAS ASKED FOR",
	       (unsigned long long)nic->immediate);
	return pattern_holds(memory, request->bytes, request->seed) ? 0 : 1;
}

static void write_all(struct nic *nic, const struct request *request, char *memory)
{
	uint64_t chunks = (request->bytes + CHUNK - 1) / CHUNK, last = (chunks - 1) * CHUNK, start;
	struct fi_context2 *contexts = calloc(chunks, sizeof(*contexts));

	if (!contexts)
		die("no memory");
	nic->remote_base = request->base; /* the letter says where and by which key */
	nic->remote_key = request->key;
	pattern_fill(memory, request->bytes, request->seed);
	start = now_ns();
	/* guide: write */
	for (uint64_t i = 0; i + 1 < chunks; i++)
		POST(nic, nic_write(nic, memory + i * CHUNK, CHUNK, i * CHUNK, &contexts[i], 0, 0));
	/* Writes may land in any order: the one that tells must leave when all others have landed. */
	nic_await(nic, &nic->written, chunks - 1);
	POST(nic, nic_write(nic, memory + last, request->bytes - last, last, &contexts[chunks - 1], FI_REMOTE_CQ_DATA,
			    request->number));
	nic_await(nic, &nic->written, chunks);
	/* guide end */
	printf("wrote %llu bytes in %llu writes, %.2f Gbit/s\n", (unsigned long long)request->bytes,
	       (unsigned long long)chunks, (double)request->bytes * 8 / (double)(now_ns() - start));
	free(contexts);
}

int main(int argc, char **argv)
{
	struct pair pair = pair_start(&argc, argv);
	struct request request = { .bytes = option(argc, argv, "--bytes", 1 << 24), .seed = 7, .number = 42 };
	struct request *letter;
	struct nic nic;
	char *memory;
	int result = 0;

	if (request.bytes < 8 || request.bytes > UINT64_C(1) << 34)
		die("--bytes takes 8 to 16 GiB");
	nic_open_first(&nic, &pair);
	memory = memory_take(request.bytes + sizeof(*letter)); /* the request itself lies behind the data */
	letter = (struct request *)(void *)(memory + request.bytes / 8 * 8);
	nic_register(&nic, memory, request.bytes + sizeof(*letter));
	request.base = nic.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
	request.key = fi_mr_key(nic.mr);
	if (!pair.starts)
		POST(&nic, fi_recv(nic.ep, letter, sizeof(*letter), nic.desc, FI_ADDR_UNSPEC, &letter_context));
	nic_introduce(&nic, &pair);
	if (pair.starts) {
		result = ask(&nic, &request, letter, memory);
	} else {
		nic_await(&nic, &nic.received, 1);
		if (letter->bytes != request.bytes)
			die("both sides need the same --bytes");
		write_all(&nic, letter, memory);
	}
	pair_meet(&pair);
	nic_close(&nic);
	return pair.starts ? pair_end(&pair) | result : 0;
}
