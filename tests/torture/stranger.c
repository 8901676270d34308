/*
 * A stranger among the nodes. It speaks raw libfabric, knows what anybody may know, the nodes' addresses, and does harm
 * on a thread of its own while operations run: noise, forged greetings and frames in the nodes' names, writes and reads
 * with guessed keys, and proper connections on which it then lies. No operation may notice (HARMLESS).
 */
#include "torture.h"
#include "hostile/raw.h"

#include <string.h>

static struct raw raw;
static struct raw_link connection[NODES];
static uint32_t generation[NODES], revision[NODES]; /* of what we know about each node */
static fi_addr_t known[NODES];
static struct wf_wire_address address[NODES];
static struct random dice;

void stranger_open(void)
{
	struct weft_config config = WEFT_CONFIG_INIT;

	if (!(world.faults & 1u << FAULT_HOSTILE))
		return;
	dice.state = world.seed * 79 + 1;
	config.provider = world.simulated ? simulated_provider() : world.provider;
	if (!strcmp(world.provider, "tcp"))
		config.rails = "lo";
	name_host("stranger,strict=0"); /* it may misuse everything */
	raw_open(&raw, &config);
	raw.patience = 20 * WEFT_MILLISECOND;
}

void stranger_close(void)
{
	raw_close(&raw);
}

/* Returns false if nothing is known of it yet. */
static bool aim_at(uint32_t n)
{
	struct published *published = &world.node[n].published;
	static uint8_t blob[sizeof(published->address)];
	size_t bytes;
	bool news;

	pthread_mutex_lock(&world.lock);
	bytes = published->address_bytes;
	news = generation[n] != published->generation || revision[n] != published->revision;
	if (generation[n] != published->generation)
		connection[n] = (struct raw_link){ 0 };
	generation[n] = published->generation;
	revision[n] = published->revision;
	memcpy(blob, published->address, bytes);
	pthread_mutex_unlock(&world.lock);
	if (!bytes)
		return false;
	if (news) {
		if (address[n].count)
			raw_forget(&raw, known[n]);
		raw_aim(&raw, blob, bytes);
		known[n] = raw.victim;
		address[n] = raw.theirs;
	}
	raw.victim = known[n];
	raw.theirs = address[n];
	return true;
}

static uint64_t any_number(void)
{
	uint64_t number = random_next(&dice.state);

	return random_chance(&dice, 50)   ? number % 16
	       : random_chance(&dice, 50) ? number >> random_below(&dice, 64)
					  : -(number % 16);
}

/* A header with random numbers, except for those that get it past the first checks. */
static void make_up(struct wf_frame *frame)
{
	frame->kind = (uint8_t)(WF_FRAME_HELLO + random_below(&dice, WF_FRAME_LAST - WF_FRAME_HELLO));
	frame->type = (uint8_t)random_below(&dice, WF_MESSAGE_LAST + 1);
	frame->status = random_chance(&dice, 50) ? 0 : (int32_t)any_number();
	frame->seq = any_number();
	frame->first = random_chance(&dice, 70) ? frame->seq : any_number();
	frame->total = any_number();
	/* Only messages and greetings have one. */
	frame->payload_bytes =
	    frame->kind == WF_FRAME_MESSAGE || random_chance(&dice, 20) ? random_below(&dice, 64) : 0;
	if (random_chance(&dice, 70))
		frame->total = frame->payload_bytes;
	frame->subject = any_number();
	frame->ack = any_number();
	frame->credit = any_number();
	frame->tag = STRANGER_TAG; /* lets nodes recognise it, should it get in */
}

static void noise(uint32_t n)
{
	uint8_t bytes[256];

	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)random_next(&dice.state);
	raw_send_bytes(&raw, bytes, 1 + random_below(&dice, sizeof(bytes)));
}

/* In the name of another node, with our endpoint or with its own. */
static void forge_greeting(uint32_t n)
{
	uint32_t other = (n + 1 + random_below(&dice, world.nodes - 1)) % world.nodes;
	struct wf_wire_address as = address[other];
	struct wf_frame hello;

	if (!as.count)
		return;
	if (random_chance(&dice, 50))
		as.rail[0] = raw.address.rail[0];
	as.revision += random_below(&dice, 1000);
	hello = raw_hello(&raw, &as);
	hello.kind = random_chance(&dice, 50) ? WF_FRAME_HELLO : WF_FRAME_WELCOME;
	hello.from_epoch = (uint32_t)(as.incarnation & 0xffff) + random_below(&dice, 8);
	hello.to_epoch = (uint32_t)(raw.theirs.incarnation & 0xffff) + random_below(&dice, 8);
	hello.to_peer = any_number();
	hello.token = random_chance(&dice, 50) ? 0 : random_next(&dice.state);
	raw_greet(&raw, &hello, &as);
}

static void forge_frame(uint32_t n)
{
	uint32_t other = (n + 1 + random_below(&dice, world.nodes - 1)) % world.nodes;
	uint8_t payload[64] = { 0 };
	struct wf_frame frame = { .incarnation = address[other].incarnation };

	make_up(&frame);
	frame.to_peer = UINT64_C(0x100000000) * random_below(&dice, 8) + random_below(&dice, 16);
	frame.from_epoch = (uint32_t)(address[other].incarnation & 0xffff) + random_below(&dice, 8);
	frame.to_epoch = (uint32_t)(raw.theirs.incarnation & 0xffff) + random_below(&dice, 8);
	frame.token = any_number();
	raw_send(&raw, &frame, payload);
}

static void guess_key(uint32_t n)
{
	struct arena *arena = &world.node[n].arena[random_below(&dice, 2)];
	uint64_t at = (uint64_t)(uintptr_t)arena->base + random_below(&dice, ARENA / 2);
	uint64_t key = random_chance(&dice, 50)
			   ? random_next(&dice.state)
			   : UINT64_C(0x100000000) * random_below(&dice, 8) + random_below(&dice, 16);

	if (random_chance(&dice, 50))
		raw_write(&raw, key, at, 1 + random_below(&dice, 64));
	else
		raw_read(&raw, key, at, 1 + random_below(&dice, 64));
}

/* Connects as an honest peer would, under one of a few names. */
static void connect_to(uint32_t n)
{
	raw.address.incarnation = UINT64_C(0xbad0bad0bad0) + random_below(&dice, STRANGERS / 2);
	connection[n] = (struct raw_link){ .epoch = 1 + random_below(&dice, 1000) };
	if (!raw_connect(&raw, &connection[n]))
		connection[n] = (struct raw_link){ 0 };
}

static void lie(uint32_t n)
{
	uint8_t payload[64] = { 0 };
	struct wf_frame frame, *answer;

	if (!connection[n].handle) {
		connect_to(n);
		return;
	}
	for (uint32_t i = random_below(&dice, 8); i; i--) {
		frame = raw_frame(&raw, &connection[n], 0);
		make_up(&frame);
		raw_send(&raw, &frame, payload);
	}
	while (raw_receive(&raw, 0, &answer))
		;
	if (random_chance(&dice, 20))
		connection[n].handle = 0;
}

void *stranger(void *unused)
{
	static void (*const attack[])(uint32_t n) = { noise, forge_greeting, forge_frame, guess_key, lie };

	while (faults_run()) {
		uint32_t n = random_below(&dice, world.nodes);

		nap_ms(1 + random_below(&dice, 3));
		if (atomic_load(&world.phase) != PHASE_RUN || !aim_at(n))
			continue;
		attack[random_below(&dice, sizeof(attack) / sizeof(attack[0]))](n);
		atomic_fetch_add(&world.tally.attacks, 1);
	}
	return NULL;
}
