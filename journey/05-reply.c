/*
 * Both ways: a question, an answer, a thousand times, and how long one takes.
 *
 *   build/journey/05-reply [--provider NAME | --sim MACHINE] [--rounds N] [--listen PORT | --connect HOST:PORT]
 */
#include "common.h"

struct letter {
	uint64_t number;
	char text[56];
};

/* One piece of memory, registered once: the NIC reads and writes both. */
static struct {
	struct letter in, out;
} mail;
static struct fi_context2 in_context, out_context;

/* guide: post */
static void expect_letter(struct nic *nic)
{
	POST(nic, fi_recv(nic->ep, &mail.in, sizeof(mail.in), nic->desc, FI_ADDR_UNSPEC, &in_context));
}

static void post_letter(struct nic *nic, uint64_t number, const char *text)
{
	mail.out.number = number;
	snprintf(mail.out.text, sizeof(mail.out.text), "%s", text);
	POST(nic, fi_send(nic->ep, &mail.out, sizeof(mail.out), nic->desc, nic->peer, &out_context));
}
/* guide end */

static void ask(struct nic *nic, uint64_t rounds)
{
	uint64_t first = 0, start = now_ns();

	/* guide: ask */
	for (uint64_t i = 0; i < rounds; i++) {
		expect_letter(nic); /* before the question goes: the answer may be faster than we are */
		post_letter(nic, i, "what is the answer?");
		nic_await(nic, &nic->received, i + 1);
		nic_await(nic, &nic->sent, i + 1);
		if (mail.in.number != i)
			die("answer %llu to question %llu", (unsigned long long)mail.in.number, (unsigned long long)i);
		if (!i)
			first = now_ns() - start;
	}
	/* guide end */
	printf("the answer: %s\n", mail.in.text);
	printf("first round trip %.1f us, the others %.1f us on average\n", (double)first / 1e3,
	       rounds > 1 ? (double)(now_ns() - start - first) / 1e3 / (double)(rounds - 1) : 0);
}

static void answer(struct nic *nic, uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++) {
		uint64_t number;

		nic_await(nic, &nic->received, i + 1);
		number = mail.in.number;
		if (i + 1 < rounds)
			expect_letter(nic);
		post_letter(nic, number, "forty-two");
		nic_await(nic, &nic->sent, i + 1);
	}
}

int main(int argc, char **argv)
{
	struct pair pair = pair_start(&argc, argv);
	uint64_t rounds = option(argc, argv, "--rounds", 1000);
	struct nic nic;

	nic_open_first(&nic, &pair);
	nic_register(&nic, &mail, sizeof(mail));
	if (!pair.starts)
		expect_letter(&nic);
	nic_introduce(&nic, &pair);
	if (pair.starts)
		ask(&nic, rounds);
	else
		answer(&nic, rounds);
	pair_meet(&pair);
	nic_close(&nic);
	return pair.starts ? pair_end(&pair) : 0;
}
