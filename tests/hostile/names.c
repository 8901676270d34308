/* A name that nobody has added yet, taken by a stranger: what its real owner loses by that, and what the application mends. */
#include "hostile/attacks.h"
#include "hostile/world.h"

#include <pthread.h>
#include <time.h>

#define TRIALS 12

/* The owner of the name that is taken. */
static struct actor owner;
static struct wf_wire_address owners;

static void open_owner(void)
{
	struct weft_config config = world_config("owner");

	actor_open(&owner, &config);
	assert_int_equal(wf_blob_unpack_address(owner.address, owner.address_bytes, &owners), 0);
}

/* The stranger is the owner at the victim, its own endpoint first or last among what it says are its rails. */
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
	assert_true(raw_connect(&world.stranger, link)); /* whoever was never added is whoever it says */
}

static void say_hello(const struct raw_link *link, const struct wf_wire_address *as)
{
	struct wf_frame hello = raw_hello(&world.stranger, as);

	hello.token = link->token;
	hello.from_epoch = link->epoch;
	assert_true(raw_greet(&world.stranger, &hello, as));
}

static void close_owner(void)
{
	assert_int_equal(weft_close(owner.engine), 0);
	friend_works();
}

static void *add_owner(void *delay_ms)
{
	weft_peer peer;
	struct timespec delay = { 0, (long)(uintptr_t)delay_ms * 1000000 };

	nanosleep(&delay, NULL);
	return (void *)(uintptr_t)weft_peer_add(world.victim.engine, owner.address, owner.address_bytes, &peer);
}

/* While the application adds the owner, the stranger asks and asks: what is secret between the two must not come to it. */
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
				if (frame->call == owners.incarnation && /* not of the trial before */
				    (frame->kind == WF_FRAME_HELLO || frame->kind == WF_FRAME_WELCOME || frame->kind == WF_FRAME_CHALLENGE))
					assert_int_equal(frame->first, link.token);
		}
		assert_int_equal(pthread_join(adder, &status), 0);
		assert_null(status);
		close_owner();
	}
}
