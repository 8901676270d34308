/* Somebody else's name, guessed numbers, and many names: what a greeting can and cannot do. */
#include "engine/core/control.h"
#include "engine/core/engine.h"
#include "hostile/attacks.h"
#include "hostile/world.h"

#include <stdio.h>
#include <string.h>

static struct wf_wire_address address_of(const struct actor *actor)
{
	struct wf_wire_address address;

	assert_int_equal(wf_blob_unpack_address(actor->address, actor->address_bytes, &address), 0);
	return address;
}

/* No event says that the friend went, and its operations go on as if nothing had happened. */
static void nothing_happened(void)
{
	struct weft_event event;

	friend_works();
	while (weft_queue_poll(world.victim.queue, &event, sizeof(event), 1) == 1) {
		assert_true(event.type != WEFT_EVENT_PEER_DOWN && event.type != WEFT_EVENT_RAIL_DOWN);
		weft_event_release(&event);
	}
	friend_works();
}

/* The friend's address with the stranger's endpoint in it. */
static struct wf_wire_address stolen_name(void)
{
	struct wf_wire_address address = address_of(&world.friend);

	address.rail[0] = world.stranger.address.rail[0];
	address.revision += 1000;
	return address;
}

/* Right incarnation, a newer epoch, a newer address: the friend's sends must neither fail nor go elsewhere. */
void hello_in_the_friends_name(void **state)
{
	struct wf_wire_address as = stolen_name();
	struct wf_frame hello = raw_hello(&world.stranger, &as), *frame;

	for (uint32_t i = 0; i < 20; i++) {
		hello.from_epoch += 100000;
		hello.token = i % 3 ? random_next(&hello.greeting.secret) : 0;
		assert_true(raw_greet(&world.stranger, &hello, &as));
		friend_works();
	}
	/* The victim sends nothing to the address it claims. */
	while (raw_receive(&world.stranger, 200 * MS, &frame))
		assert_true(frame->kind != WF_FRAME_WELCOME && frame->kind != WF_FRAME_CHALLENGE);
	nothing_happened();
}

/* The same name, before the application has added the friend: the application's address counts. */
void steal_a_name_early(void **state)
{
	struct raw_link link = { 0 };
	struct weft_config config = world_config("later");
	struct actor later;
	struct wf_wire_address own = world.stranger.address;
	struct weft_event event;
	weft_peer peer;
	uint64_t limit = now_ns() + LIMIT;

	actor_open(&later, &config);
	world.stranger.address = address_of(&later);
	world.stranger.address.rail[0] = own.rail[0];
	world.stranger.address.revision += 1000;
	assert_true(raw_connect(&world.stranger, &link)); /* a peer that was never added may claim any name */
	assert_int_equal(weft_peer_add(world.victim.engine, later.address, later.address_bytes, NULL, &peer), 0);
	assert_int_equal(weft_send(world.victim.engine, peer, 99, "for later", 9, NULL, NULL), 0);
	do {
		assert_true(now_ns() < limit);
		event.type = WEFT_EVENT_NONE;
		if (weft_queue_poll(later.queue, &event, sizeof(event), 1) == 1)
			weft_event_release(&event);
	} while (event.type != WEFT_EVENT_MESSAGE);
	assert_int_equal(event.tag, 99);
	assert_int_equal(weft_engine_close(later.engine), 0);
	nothing_happened();
}

/* Every kind of frame in the friend's name, with numbers that are easily guessed: handles and epochs are small. */
void frames_in_the_friends_name(void **state)
{
	struct wf_wire_address as = address_of(&world.friend);
	struct raw_link link = { .handle = world.friend_at_victim };
	struct weft_event event;

	world.stranger.address.incarnation = as.incarnation;
	for (uint8_t kind = WF_FRAME_WELCOME; kind < WF_FRAME_LAST; kind++)
		for (uint32_t i = 0; i < 64; i++) {
			struct wf_frame frame = raw_frame(&world.stranger, &link, kind);

			/* The engines count from the low bits of their incarnations. */
			frame.from_epoch = (uint32_t)(as.incarnation & 0xffff) + 1 + i % 8;
			frame.to_epoch = (uint32_t)(world.stranger.theirs.incarnation & 0xffff) + 1 + i / 8;
			frame.type = WF_MESSAGE_SEND;
			frame.seq = frame.first = 1 + i % 3;
			frame.token = i;
			frame.tag = 666;
			frame.ack = i % 2;
			raw_send(&world.stranger, &frame, NULL); /* a full NIC refuses some */
		}
	nothing_happened();
	while (victim_sees(WEFT_EVENT_MESSAGE, 100 * MS, &event)) {
		assert_true(event.tag != 666);
		weft_event_release(&event);
	}
}

static uint64_t peers_of_the_victim(uint64_t *ret_bytes)
{
	struct weft_engine_info info;

	assert_int_equal(weft_engine_info(world.victim.engine, &info, sizeof(info)), 0);
	*ret_bytes = info.memory_bytes;
	return info.peers;
}

/* Thousands of names that never prove anything: no peer, no memory, no event. */
void thousands_of_names(void **state)
{
	struct wf_wire_address as = world.stranger.address;
	struct weft_event event;
	uint64_t before, after;
	uint64_t peers = peers_of_the_victim(&before);

	for (uint64_t i = 0; i < 3000; i++) {
		struct wf_frame hello;

		as.incarnation += 1 + i;
		hello = raw_hello(&world.stranger, &as);
		hello.greeting.secret += i;
		hello.token = i;
		raw_greet(&world.stranger, &hello, &as);
	}
	assert_int_equal(peers_of_the_victim(&after), peers);
	assert_true(after <= before);
	assert_false(victim_sees(WEFT_EVENT_PEER_UP, 0, &event));
	nothing_happened();
}

/* Names that do prove themselves: no more of them than the engine allows, and the friend does not count. */
int few_strangers(void **state)
{
	world_victim.max_strangers = 4;
	return world_open(state);
}

void more_names_than_allowed(void **state)
{
	uint64_t bytes, peers = peers_of_the_victim(&bytes);

	for (uint64_t i = 0; i < 6; i++) {
		struct raw_link link = { 0 };

		world.stranger.address.incarnation += 1 + i;
		world.stranger.patience = i < 4 ? LIMIT : 300 * MS;
		assert_int_equal(raw_connect(&world.stranger, &link), i < 4);
	}
	assert_int_equal(peers_of_the_victim(&bytes), peers + 4);
	nothing_happened();
}

static void nothing_but_strangers_left(void)
{
	struct weft_event event;

	while (victim_sees(WEFT_EVENT_PEER_DOWN, 100 * MS, &event)) {
		assert_true(event.peer != world.friend_at_victim);
		weft_event_release(&event);
	}
	friend_works();
}

/* Each visit leaves events for an application that does not read: their number is bounded. */
void come_and_go(void **state)
{
	struct weft_event event;
	uint32_t visits = 0;

	world.stranger.patience = S;
	while (visits < 60) {
		struct raw_link link = { 0 };
		struct wf_frame bye, *frame;

		world.stranger.address.incarnation++;
		if (!raw_connect(&world.stranger, &link))
			break;
		visits++;
		bye = raw_frame(&world.stranger, &link, WF_FRAME_BYE);
		assert_true(raw_send(&world.stranger, &bye, NULL));
		while (raw_receive(&world.stranger, S, &frame) && frame->kind != WF_FRAME_BYE)
			;
	}
	assert_in_range(visits, 1, 59);
	nothing_but_strangers_left();
	world.stranger.patience = LIMIT;
	assert_true(raw_connect(&world.stranger, &(struct raw_link){ 0 }));
	assert_true(victim_sees(WEFT_EVENT_PEER_UP, LIMIT, &event));
}

int refuse_unknown(void **state)
{
	world_victim.flags = WEFT_REFUSE_UNKNOWN;
	return world_open(state);
}

void knock_where_nobody_is_let_in(void **state)
{
	struct raw_link link = { 0 };
	uint64_t bytes, peers = peers_of_the_victim(&bytes);
	struct wf_frame *frame;

	world.stranger.patience = 300 * MS;
	assert_false(raw_connect(&world.stranger, &link));
	assert_false(raw_receive(&world.stranger, 0, &frame));
	assert_int_equal(peers_of_the_victim(&bytes), peers);
	nothing_happened();
}

/* Invalid addresses: of any length, of another format, the victim's own, and where nobody lives. */
void addresses_of_every_kind(void **state)
{
	uint64_t seed = 5;

	for (int i = 0; i < 400; i++) {
		struct wf_wire_address as = world.stranger.address;
		struct wf_wire_rail *rail = &as.rail[0];
		struct wf_frame hello;

		as.incarnation += (uint64_t)i + 1;
		switch (i % 5) {
		case 0:
			rail->address_bytes = (uint8_t)(1 + random_next(&seed) % WF_MAX_RAIL_ADDRESS);
			break;
		case 1:
			memset(rail->address, (int)random_next(&seed), sizeof(rail->address));
			rail->address_bytes = WF_MAX_RAIL_ADDRESS;
			break;
		case 2:
			rail->address_format = (uint32_t)random_next(&seed);
			break;
		case 3:
			*rail = world.stranger.theirs.rail[0];
			break;
		case 4:
			rail->address[2 + random_next(&seed) % 2] ^= (uint8_t)(1 + i); /* another port */
			break;
		}
		hello = raw_hello(&world.stranger, &as);
		hello.greeting.from_rail = (uint8_t)(i % 7 ? 0 : i);
		raw_greet(&world.stranger, &hello, &as);
	}
	nothing_happened();
}

/* Bytes that are no frame, or half of one. */
void noise(void **state)
{
	uint64_t seed = 1;
	uint8_t bytes[2048];

	for (int i = 0; i < 500; i++) {
		struct wf_frame frame = raw_hello(&world.stranger, &world.stranger.address);

		for (size_t j = 0; j < sizeof(bytes); j++)
			bytes[j] = (uint8_t)random_next(&seed);
		if (i % 2) { /* a good head on a body of noise */
			frame.kind = (uint8_t)(i % (WF_FRAME_LAST + 1));
			frame.type = (uint8_t)(i % (WF_MESSAGE_LAST + 1));
			frame.to_peer = world.friend_at_victim;
			frame.payload_bytes = (uint32_t)(i * 37);
			wf_frame_seal(&frame);
			memcpy(bytes, &frame, sizeof(frame));
		}
		raw_send_bytes(&world.stranger, bytes, 1 + random_next(&seed) % sizeof(bytes));
	}
	memory_is_untouched();
	nothing_happened();
}

static enum weft_path_state path_to(const struct raw_link *link)
{
	struct weft_path_info info;

	assert_int_equal(weft_path_info(world.victim.engine, link->handle, 0, 0, &info, sizeof(info)), 0);
	return info.state;
}

/* The answer to an earlier hello, which may come late, opens no path: only the answer to the current one does. */
void answer_another_question(void **state)
{
	struct raw_link link = { 0 };
	struct wf_frame *frame;
	uint64_t limit;

	world.stranger.misquote = 1;
	assert_true(raw_connect(&world.stranger, &link));
	raw_hear(&world.stranger, &link, 500 * MS, &frame);
	assert_true(path_to(&link) != WEFT_PATH_UP);
	world.stranger.misquote = 0;
	for (limit = now_ns() + LIMIT; path_to(&link) != WEFT_PATH_UP;) {
		raw_hear(&world.stranger, &link, 20 * MS, &frame);
		assert_true(now_ns() < limit);
	}
	nothing_happened();
}

static int read_pace(struct wf_group *group, void *ret_ns)
{
	*(uint64_t *)ret_ns = group->seat[0].pace.took_ns;
	return 0;
}

/* How long operations take on the victim's rail, as far as it knows: a cancel there waits accordingly. */
static uint64_t pace(void)
{
	static uint64_t took_ns;

	assert_int_equal(wf_engine_control(world.victim.engine, read_pace, NULL, &took_ns), 0);
	return took_ns;
}

/* The answer to a hello once more, long after: the rail must not look that slow. */
void answer_what_nobody_asked(void **state)
{
	struct wf_frame *frame, welcome, ping;
	struct raw_link link = { 0 };
	uint64_t before, limit;

	assert_true(raw_connect(&world.stranger, &link));
	for (limit = now_ns() + LIMIT; path_to(&link) != WEFT_PATH_UP; assert_true(now_ns() < limit))
		raw_hear(&world.stranger, &link, 20 * MS, &frame);
	raw_hear(&world.stranger, &link, 1500 * MS, &frame);
	before = pace();
	welcome = raw_hello(&world.stranger, &world.stranger.address);
	welcome.kind = WF_FRAME_WELCOME;
	welcome.from_epoch = link.epoch;
	welcome.to_epoch = link.their_epoch;
	welcome.to_peer = link.handle;
	welcome.token = link.token;
	assert_true(raw_greet(&world.stranger, &welcome, &world.stranger.address));
	ping = raw_frame(&world.stranger, &link, WF_FRAME_PING);
	assert_true(raw_send(&world.stranger, &ping, NULL));
	do
		assert_true(raw_receive(&world.stranger, LIMIT, &frame));
	while (frame->kind != WF_FRAME_PONG);
	assert_in_range(pace(), 0, before < S ? S : before);
	nothing_happened();
}

/* Questions from rails that it does not have, and grants of more than there is that nobody asked for. */
void grants_out_of_the_blue(void **state)
{
	struct raw_link link = { 0 };
	struct wf_frame *frame;

	assert_true(raw_connect(&world.stranger, &link));
	for (uint32_t i = 0; i < 512; i++) {
		struct wf_frame lie = raw_frame(&world.stranger, &link, i % 2 ? WF_FRAME_ASK : WF_FRAME_GRANT);

		lie.grant =
		    (struct wf_grant){ .question = i / 16, .immediates = UINT32_MAX, .from_rail = (uint8_t)(i / 2) };
		raw_send(&world.stranger, &lie, NULL); /* a full NIC refuses some */
		while (raw_receive(&world.stranger, 0, &frame))
			assert_true(frame->kind != WF_FRAME_GRANT || frame->token == RAW_SECRET);
	}
	nothing_happened();
}

/* The stranger lives elsewhere with each hello, 64 times over, and nowhere that can be reached. */
static void move(const struct raw_link *link, struct wf_wire_address *as)
{
	struct wf_frame hello;

	as->revision++;
	as->count = WF_MAX_RAILS;
	for (uint32_t i = 0; i < WF_MAX_RAILS; i++) {
		as->rail[i] = world.stranger.address.rail[0];
		as->rail[i].serial = as->revision;
		if (!world_is("tcp"))
			continue;
		memcpy(as->rail[i].address + 4, (uint8_t[]){ 224, 0, 0, 1 }, 4);
		as->rail[i].address[2] = (uint8_t)as->revision;
		as->rail[i].address[3] = (uint8_t)i;
	}
	hello = raw_hello(&world.stranger, as);
	hello.token = link->token;
	hello.from_epoch = link->epoch;
	raw_greet(&world.stranger, &hello, as); /* a full NIC refuses some */
}

static char *seen_at(const struct raw_link *link)
{
	static struct weft_path_info info;

	assert_int_equal(weft_path_info(world.victim.engine, link->handle, 0, 0, &info, sizeof(info)), 0);
	return info.address;
}

/* The victim looks at its new addresses now and then, not with each hello, and does not flood the log. */
void move_all_the_time(void **state)
{
	struct raw_link link = { 0 };
	struct wf_wire_address as = world.stranger.address;
	uint32_t warnings, moves = 0;
	char last[64] = "";
	struct wf_frame *frame;
	uint64_t since;

	assert_true(raw_connect(&world.stranger, &link));
	warnings = atomic_load(&world_warnings);
	since = now_ns();
	for (int i = 0; i < 100; i++) {
		move(&link, &as);
		while (raw_receive(&world.stranger, 5 * MS, &frame))
			; /* time to follow */
		moves += strcmp(last, seen_at(&link)) != 0;
		snprintf(last, sizeof(last), "%s", seen_at(&link));
	}
	/* One per second and a few at once; the first is where it was. Simulated addresses all look the same. */
	assert_in_range(moves, world_is("tcp"), 6 + (now_ns() - since) / S);
	assert_in_range(atomic_load(&world_warnings) - warnings, 0, 3);
	nothing_happened();
}
