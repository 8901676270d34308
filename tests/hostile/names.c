/* A stranger takes a name that nobody has added yet: what its real owner loses by that, and how the application
 * mends it. */
#include "hostile/attacks.h"
#include "hostile/world.h"

#include <pthread.h>
#include <time.h>

#define TRIALS 12

/* The owner of the taken name. */
static struct actor owner;
static struct wf_wire_address owners;

static void open_owner(void)
{
	struct weft_config config = world_config("owner");

	actor_open(&owner, &config);
	assert_int_equal(wf_blob_unpack_address(owner.address, owner.address_bytes, &owners), 0);
}

/* The stranger poses as the owner at the victim, with its own endpoint first or last among the rails it claims. */
static void take_the_name(struct raw_link *link, uint32_t rails, bool last)
{
	struct wf_wire_rail own = world.stranger.address.rail[world.stranger.from_rail];

	world.stranger.address = owners;
	world.stranger.address.revision += 1000;
	world.stranger.address.count = rails;
	world.stranger.from_rail = (uint8_t)(last ? rails - 1 : 0);
	for (uint32_t i = 0; i < rails; i++)
		world.stranger.address.rail[i] = i == world.stranger.from_rail ? own : owners.rail[0];
	world.stranger.address.rail[world.stranger.from_rail].serial += 7;
	assert_true(raw_connect(&world.stranger, link)); /* a peer that was never added may claim any name */
}

/* Nothing that comes to the stranger holds what another peer said: each frame carries the receiver's own secret. */
static void hears_only_itself(uint64_t for_ns)
{
	uint64_t limit = now_ns() + for_ns;
	struct wf_frame *frame;

	while (now_ns() < limit)
		if (raw_receive(&world.stranger, 10 * MS, &frame) && frame->kind != WF_FRAME_NUDGE)
			assert_true(frame->token == RAW_SECRET || !frame->token);
}

static void say_hello(const struct raw_link *link, const struct wf_wire_address *as)
{
	struct wf_frame hello = raw_hello(&world.stranger, as);

	hello.token = link->token;
	hello.from_epoch = link->epoch;
	raw_greet(&world.stranger, &hello, as); /* a full NIC refuses some */
}

static weft_peer add_victim(void)
{
	weft_peer victim;

	assert_int_equal(weft_peer_add(owner.engine, world.victim.address, world.victim.address_bytes, NULL, &victim),
			 0);
	return victim;
}

/* The application says who the owner is: what the owner sends gets there, whatever the stranger goes on saying. */
static void the_application_decides(const struct raw_link *link)
{
	struct wf_wire_address as = world.stranger.address;
	uint64_t limit = now_ns() + LIMIT;
	struct weft_event event;
	weft_peer peer;

	assert_int_equal(weft_peer_add(world.victim.engine, owner.address, owner.address_bytes, NULL, &peer), 0);
	for (uint32_t i = 0; i < 5; i++) {
		struct wf_frame hello;

		as.revision += 1000;
		hello = raw_hello(&world.stranger, &as);
		hello.token = link->token;
		hello.from_epoch = 0x10000000 + i;
		assert_true(raw_greet(&world.stranger, &hello, &as));
	}
	assert_int_equal(weft_send(world.victim.engine, peer, 99, "for the owner", 13, NULL, NULL), 0);
	do {
		assert_true(now_ns() < limit);
		hears_only_itself(MS);
		event.type = WEFT_EVENT_NONE;
		if (weft_queue_poll(owner.queue, &event, sizeof(event), 1) == 1)
			weft_event_release(&event);
	} while (event.type != WEFT_EVENT_MESSAGE);
	assert_int_equal(event.tag, 99);
}

static void close_owner(void)
{
	assert_int_equal(weft_engine_close(owner.engine), 0);
	friend_works();
}

/* The owner says hello to the victim, where its name is taken: its secret must not go to the stranger. */
void hear_what_the_owner_says(void **state)
{
	struct raw_link link = { 0 };

	open_owner();
	take_the_name(&link, 1, false);
	add_victim();
	hears_only_itself(S);
	the_application_decides(&link);
	close_owner();
}

/* The same, with an address that has both the owner's rail and the stranger's: the owner's answers must not be
 * passed on either. */
void share_the_owners_address(void **state)
{
	for (int last = 0; last < 2; last++) {
		struct raw_link link = { 0 };

		world.stranger.address.incarnation += (uint64_t)last;
		open_owner();
		take_the_name(&link, 2, last);
		add_victim();
		for (int i = 0; i < 10; i++) {
			say_hello(&link, &world.stranger.address);
			hears_only_itself(100 * MS);
		}
		the_application_decides(&link);
		close_owner();
	}
}

/* The stranger, proved at its own address, claims that it has moved to the owner's, and comes back when the owner
 * was there. */
void move_to_the_owners_address(void **state)
{
	struct wf_wire_address there;
	struct raw_link link = { 0 };

	open_owner();
	take_the_name(&link, 1, false);
	there = owners;
	there.revision = world.stranger.address.revision + 1;
	say_hello(&link, &there);
	add_victim();
	hears_only_itself(S);
	world.stranger.address.revision += 2;
	for (int i = 0; i < 10; i++) {
		say_hello(&link, &world.stranger.address);
		hears_only_itself(100 * MS);
	}
	the_application_decides(&link);
	close_owner();
}

/* The same blob, down to the revision: the application adds what the victim already has, but not from its owner. */
void be_added_in_the_owners_place(void **state)
{
	struct raw_link link = { 0 };

	open_owner();
	owners.revision -= 1001;
	take_the_name(&link, 1, false);
	owners.revision += 1001;
	say_hello(&link, &owners);
	hears_only_itself(300 * MS);
	world.stranger.address.revision += 1000;
	the_application_decides(&link);
	close_owner();
}

static void *add_owner(void *delay_ms)
{
	weft_peer peer;
	struct timespec delay = { 0, (long)(uintptr_t)delay_ms * 1000000 };

	nanosleep(&delay, NULL);
	return (void *)(uintptr_t)weft_peer_add(world.victim.engine, owner.address, owner.address_bytes, NULL, &peer);
}

/* While the application adds the owner, the stranger keeps asking: the secret between the two must not reach it. */
void ask_while_the_owner_is_added(void **state)
{
	for (uint32_t i = 0; i < TRIALS; i++) {
		struct raw_link link = { 0 };
		struct wf_frame *frame;
		pthread_t adder;
		uint64_t limit;
		void *status;

		open_owner();
		take_the_name(&link, 1, false);
		assert_int_equal(pthread_create(&adder, NULL, add_owner, (void *)(uintptr_t)(5 + i * 3)), 0);
		for (limit = now_ns() + 150 * MS; now_ns() < limit;) {
			say_hello(&link, &world.stranger.address);
			for (int j = 0; j < 4 && raw_receive(&world.stranger, 0, &frame); j++)
				if (wf_frame_is_greeting(frame->kind) &&
				    frame->greeting.sought == owners.incarnation) /* not of the trial before */
					assert_int_equal(frame->greeting.secret, link.token);
		}
		assert_int_equal(pthread_join(adder, &status), 0);
		assert_null(status);
		close_owner();
	}
}
