/*
 * One side asks, the other writes straight into its memory: RDMA WRITE, with immediate data to say "done".
 *
 *   build/journey/06-write [--provider NAME | --sim MACHINE] [--bytes N] [--gpu] [--listen PORT | --connect HOST:PORT]
 *
 * With --gpu the bytes come from a card's memory and go to one: directly where the NIC reaches it, else by way of the host's.
 */
#include "card.h"
#include "common.h"

/* guide: request */
/* What a writer must know of memory that is not its own. */
struct request {
	uint64_t base, key, bytes;
	uint32_t seed, number; /* which pattern is wanted, and the immediate that will say it is there */
};
/* guide end */

enum { CHUNK = 65536 };
static struct request letter; /* registered for itself: it travels by SEND and RECV */
static struct fi_context2 letter_context;

/* guide: place */
/* Where the bytes are: in the host's memory, or on a card. */
struct place {
	char *host;
	char *card;  /* NULL: none */
	bool direct; /* the NIC reads and writes the card's memory itself */
};

static struct place place_take(struct nic *nic, uint64_t bytes, bool gpu)
{
	struct place place = { .host = memory_take(bytes), .card = gpu ? card_take(bytes) : NULL };

	place.direct = gpu && nic_register_card(nic, place.card, bytes);
	if (!place.direct)
		nic_register(nic, place.host, bytes);
	return place;
}
/* guide end */

static uint32_t ask(struct nic *nic, const struct request *request, void *letter_desc, struct place *place)
{
	bool whole;

	/* guide: ask */
	letter = *request;
	POST(nic, fi_send(nic->ep, &letter, sizeof(letter), letter_desc, nic->peer, &letter_context));
	nic_await(nic, &nic->sent, 1);
	nic_await(nic, &nic->immediates, 1); /* nobody here received anything: the bytes are just there */
	/* guide end */
	if (nic->immediate != request->number)
		die("an immediate of %llu", (unsigned long long)nic->immediate);
	if (place->card && !place->direct)
		card_put(place->card, place->host, request->bytes);
	if (place->card) { /* nothing but what is on the card counts */
		memset(place->host, 0, request->bytes);
		card_get(place->host, place->card, request->bytes);
	}
	whole = pattern_holds(place->host, request->bytes, request->seed);
	printf("%llu bytes %s%s, told by immediate %llu\n", (unsigned long long)request->bytes,
	       whole ? "arrived whole" : "ARE NOT WHAT WAS ASKED FOR",
	       place->direct ? " on the card"
	       : place->card ? " on the card, by way of the host's memory"
			     : "",
	       (unsigned long long)nic->immediate);
	return whole ? 0 : 1;
}

static void write_all(struct nic *nic, const struct request *request, struct place *place)
{
	uint64_t chunks = (request->bytes + CHUNK - 1) / CHUNK, last = (chunks - 1) * CHUNK, start;
	struct fi_context2 *contexts = calloc(chunks, sizeof(*contexts));
	char *memory = place->direct ? place->card : place->host;

	if (!contexts)
		die("no memory");
	nic->remote_base = request->base; /* the letter says where and by which key */
	nic->remote_key = request->key;
	pattern_fill(place->host, request->bytes, request->seed);
	if (place->card) {
		card_put(place->card, place->host, request->bytes);
		memset(place->host, 0, request->bytes);
	}
	start = now_ns();
	if (place->card && !place->direct)
		card_get(place->host, place->card, request->bytes);
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
	struct fid_mr *letter_mr;
	struct place place;
	struct nic nic;
	int result = 0;

	if (request.bytes < 8 || request.bytes > UINT64_C(1) << 34)
		die("--bytes takes 8 to 16 GiB");
	pair.card = flag(argc, argv, "--gpu");
	if (pair.card)
		card_open();
	nic_open_first(&nic, &pair);
	place = place_take(&nic, request.bytes, pair.card);
	letter_mr = nic_register_more(&nic, &letter, sizeof(letter));
	if (nic.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		request.base = (uintptr_t)(place.direct ? place.card : place.host);
	request.key = fi_mr_key(nic.mr);
	if (!pair.starts)
		POST(&nic,
		     fi_recv(nic.ep, &letter, sizeof(letter), fi_mr_desc(letter_mr), FI_ADDR_UNSPEC, &letter_context));
	nic_introduce(&nic, &pair);
	if (pair.starts) {
		result = ask(&nic, &request, fi_mr_desc(letter_mr), &place);
	} else {
		nic_await(&nic, &nic.received, 1);
		if (letter.bytes != request.bytes)
			die("both sides need the same --bytes");
		write_all(&nic, &letter, &place);
	}
	pair_meet(&pair);
	fi_close(&letter_mr->fid);
	nic_close(&nic);
	return pair.starts ? pair_end(&pair) | result : 0;
}
