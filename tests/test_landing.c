/*
 * Operations on a card's memory in another process, over NICs: each end's bytes pass through its own pinned memory, and have landed when
 * the owner's card says so. On the fake driver, whose cards' memory the CPU cannot touch.
 */
#include "fake-cuda/fake.h"
#include "fake-cuda/peer.h"
#include "sim/setup.h"
#include "support/peer.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIMULATED "p5,rate=inf,copy=full,strict=1,"
#define BYTES     (9u << 19) /* more than a peer may have under way */

static struct transport simulated = { "sim", "simfab", NULL, 4 };
static uint32_t workers; /* as many groups of rails; 0: one */
static struct pair pair;
static uint64_t tags = 1000, number;
static weft_remote there; /* their card's */
static char *card;        /* ours */
static weft_region region;

/* ---- the fixture ---- */

static weft_remote card_there(uint64_t access)
{
	struct command command = { .code = COMMAND_REGION, .arg = { BYTES, access, FAKE_VIRTUAL + 1 } };
	struct answer answer;
	struct blob blob;

	assert_status(peer_try(&pair.there, &command, NULL, &answer), 0);
	number = answer.value[0];
	peer_blob(&answer, &blob);
	return import(&pair.here, pair.peer, &blob);
}

static struct weft_config plain_config(void)
{
	struct weft_config config = side_config();

	config.max_workers = workers;
	return config;
}

static void open_with(const struct weft_config *here, const struct weft_config *owner)
{
	const struct weft_config plain = plain_config();

	struct weft_engine_info info;

	pair_open(&pair, here ? here : &plain, owner ? owner : &plain, BYTES);
	assert_status(weft_engine_info(pair.here.engine, &info, sizeof(info)), 0);
	assert_int_equal(info.groups, workers ? workers : 1);
	card = fake_cuda_alloc(0, BYTES, FAKE_PLAIN);
	assert_status(weft_region_register(pair.here.engine, card, BYTES, 0, &region), 0);
	there = card_there(WEFT_REMOTE_WRITE | WEFT_REMOTE_READ);
}

static int open_pair(void **state)
{
	open_with(NULL, NULL);
	return 0;
}

/* Whatever a test did, both engines close in time and leave nothing behind, and no call was wrong. */
static int close_pair(void **state)
{
	fake_cuda_hold(false);
	if (pair.there.pid) {
		peer_tell(&pair.there, COMMAND_CARD, HOLD, 0);
		assert_int_equal(peer_tell(&pair.there, COMMAND_CARD, WRONG, 0), 0);
	}
	pair_close(&pair);
	fake_cuda_free(card);
	assert_int_equal(card_control(LEFT, 0), 0);
	assert_int_equal(card_control(WRONG, 0), 0);
	return 0;
}

static int kill_what_is_left(void **state)
{
	peer_kill(&pair.there);
	return 0;
}

static void fill(char *memory, uint64_t seed)
{
	char *pattern = malloc(BYTES);

	pattern_fill(pattern, BYTES, seed, 0);
	if (memory == card)
		fake_cuda_write(memory, pattern, BYTES);
	else
		memcpy(memory, pattern, BYTES);
	free(pattern);
}

static void check(const char *memory, uint64_t bytes, uint64_t seed, uint64_t start)
{
	char *copy = malloc(bytes);

	if (memory >= card && memory < card + BYTES)
		fake_cuda_read(memory, copy, bytes);
	else
		memcpy(copy, memory, bytes);
	assert_int_equal(pattern_differs(copy, bytes, seed, start), bytes);
	free(copy);
}

static weft_transfer begin(weft_region from, uint64_t from_offset, uint64_t to_offset, uint64_t bytes,
			   uint64_t timeout_ns)
{
	struct weft_write write = { sizeof(write), from, from_offset, there, to_offset, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags, .timeout_ns = timeout_ns };
	weft_transfer transfer;

	assert_status(weft_write(pair.here.engine, &write, &op, &transfer), 0);
	return transfer;
}

static int write_to(weft_region from, uint64_t from_offset, uint64_t to_offset, uint64_t bytes)
{
	begin(from, from_offset, to_offset, bytes, 0);
	return end_of(&pair.here, tags);
}

static int read_from(uint64_t from_offset, weft_region to, uint64_t to_offset, uint64_t bytes)
{
	struct weft_read read = { sizeof(read), there, from_offset, to, to_offset, bytes };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };

	assert_status(weft_read(pair.here.engine, &read, &op, NULL), 0);
	return end_of(&pair.here, op.tag);
}

/* ---- what is carried ---- */

static void writes_and_reads(void **state)
{
	const struct {
		char *memory;
		weft_region region;
	} near[] = { { pair.memory, pair.region }, { card, region } };

	for (int i = 0; i < 2; i++) {
		fill(near[i].memory, 1);
		assert_status(write_to(near[i].region, 100, 300, BYTES - 300), 0);
		peer_check_at(&pair.there, number, 300, BYTES - 300, 1, 100);
		peer_fill(&pair.there, number, 0, BYTES, 2);
		assert_status(read_from(7, near[i].region, 1000, BYTES - 2000), 0);
		check(near[i].memory + 1000, BYTES - 2000, 2, 7);
		assert_status(write_to(near[i].region, 0, 0, 0), 0);
		assert_status(write_to(near[i].region, 5, 6, 1), 0);
		peer_check_at(&pair.there, number, 6, 1, 1, 5);
	}
}

static void try_pages(char *memory, weft_region mine, uint64_t page, bool read)
{
	uint64_t count = BYTES / page / 2, most = 3000;
	uint32_t *near = calloc(count, sizeof(*near)), *far = calloc(count, sizeof(*far));
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };

	for (uint64_t i = 0; i < count; i++) {
		near[i] = (uint32_t)(i * 2 + i % 2);
		far[i] = (uint32_t)(2 * (count - 1 - i));
	}
	count = count < most ? count : most;
	fill(memory, page);
	peer_fill(&pair.there, number, 0, BYTES, page + 1);
	if (read) {
		struct weft_read_pages pages = { .size = sizeof(pages),
						 .page_bytes = page,
						 .count = count,
						 .from = there,
						 .from_index = far,
						 .to = mine,
						 .to_index = near };

		assert_status(weft_read_pages(pair.here.engine, &pages, &op, NULL), 0);
	} else {
		struct weft_write_pages pages = { .size = sizeof(pages),
						  .page_bytes = page,
						  .count = count,
						  .from = mine,
						  .from_index = near,
						  .to = there,
						  .to_index = far };

		assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	}
	assert_status(end_of(&pair.here, op.tag), 0);
	for (uint64_t i = 0; i < count; i += count / 8 ? count / 8 : 1)
		if (read)
			check(memory + near[i] * page, page, page + 1, far[i] * page);
		else
			peer_check_at(&pair.there, number, far[i] * page, page, page, near[i] * page);
	free(near);
	free(far);
}

static void pages_of_every_size(void **state)
{
	static const uint64_t sizes[] = { 1000, 65536, 1 << 20 };

	for (int i = 0; i < 3; i++)
		for (int read = 0; read < 2; read++) {
			try_pages(pair.memory, pair.region, sizes[i], read);
			try_pages(card, region, sizes[i], read);
		}
}

/* Without lists of pages, with strides: page 0, 1, 2, … at both ends. */
static void pages_in_order(void **state)
{
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = 3000,
					  .count = 500,
					  .from = pair.region,
					  .from_stride = 4000,
					  .from_offset = 8,
					  .to = there,
					  .to_stride = 3001,
					  .to_offset = 16 };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };

	fill(pair.memory, 4);
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	assert_status(end_of(&pair.here, op.tag), 0);
	for (uint64_t i = 0; i < 500; i += 71)
		peer_check_at(&pair.there, number, 16 + i * 3001, 3000, 4, 8 + i * 4000);
}

/* Ranges to a card and to the CPU's memory together; a write that says so when all has landed; and counted ones. */
static void operations_of_every_kind(void **state)
{
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = ++tags };
	struct weft_write parts[] = { { sizeof(parts[0]), region, 0, there, 5000, 700000 },
				      { sizeof(parts[0]), pair.region, 0, there, 1000000, 200000 },
				      { sizeof(parts[0]), region, 0, pair.remote, 7, 1000 } };
	struct weft_write whole = { sizeof(whole), region, 0, there, 0, 4 << 20 };
	struct weft_write_pages pages = {
		.size = sizeof(pages), .page_bytes = 1 << 16, .count = 20, .from = pair.region, .to = there
	};
	struct peer_event event;

	fill(pair.memory, 8);
	fill(card, 9);
	assert_status(weft_scatter(pair.here.engine, parts, 3, &op, NULL), 0);
	assert_status(end_of(&pair.here, op.tag), 0);
	peer_check_at(&pair.there, number, 5000, 700000, 9, 0);
	peer_check_at(&pair.there, number, 1000000, 200000, 8, 0);
	peer_check_at(&pair.there, pair.number, 7, 1000, 9, 0);
	op.notify = WEFT_NOTIFY_FENCED;
	op.notify_tag = 77;
	op.tag = ++tags;
	assert_status(weft_write(pair.here.engine, &whole, &op, NULL), 0);
	peer_wait(&pair.there, WEFT_EVENT_NOTIFY, 77, &event);
	peer_check_at(&pair.there, number, 0, whole.bytes, 9, 0);
	assert_status(end_of(&pair.here, op.tag), 0);
	peer_tell(&pair.there, COMMAND_EXPECT, 123, 22, 78);
	op.notify = WEFT_NOTIFY_COUNTED;
	op.immediate = 123;
	assert_status(weft_write(pair.here.engine, &whole, &op, NULL), -EMSGSIZE);
	for (int i = 0; i < 2; i++) {
		op.tag = ++tags;
		whole.bytes = i ? 0 : 300000;
		assert_status(weft_write(pair.here.engine, &whole, &op, NULL), 0);
		assert_status(end_of(&pair.here, op.tag), 0);
	}
	op.tag = ++tags;
	assert_status(weft_write_pages(pair.here.engine, &pages, &op, NULL), 0);
	peer_wait(&pair.there, WEFT_EVENT_COUNTED, 78, &event);
	peer_check_at(&pair.there, number, 0, 20 << 16, 8, 0);
	assert_status(end_of(&pair.here, op.tag), 0);
}

/* They do not overlap: nothing says which of two comes last. */
static void several_at_once(void **state)
{
	fill(pair.memory, 5);
	for (int i = 0; i < 24; i++)
		begin(pair.region, 0, (uint64_t)i * 190000, 190000 - (uint64_t)i, WEFT_FOREVER);
	for (int i = 23; i >= 0; i--)
		assert_status(end_of(&pair.here, tags - (uint64_t)i), 0);
	for (uint64_t i = 0; i < 24; i++)
		peer_check_at(&pair.there, number, i * 190000, 190000 - i, 5, 0);
}

/* ---- what goes wrong ---- */

static void what_cannot_be_is_refused(void **state)
{
	struct weft_op op = {
		.size = sizeof(op), .queue = pair.here.queue, .flags = WEFT_CHECKSUM, .notify = WEFT_NOTIFY_FENCED
	};
	struct weft_write write = { sizeof(write), pair.region, 0, there, 0, 100 };

	assert_status(weft_write(pair.here.engine, &write, &op, NULL), -EOPNOTSUPP);
	there = card_there(WEFT_REMOTE_READ);
	write.to = there;
	assert_status(weft_write(pair.here.engine, &write, NULL, NULL), -EACCES);
	assert_status(read_from(0, pair.region, 0, BYTES), 0);
}

/* Their card hangs with what has arrived: the end does not wait for it, and says that it may still land. Then all goes on. */
static void a_deadline_holds(void **state)
{
	struct weft_event event;

	assert_status(write_to(pair.region, 0, 0, 4096), 0);
	peer_tell(&pair.there, COMMAND_CARD, HOLD, 1);
	begin(pair.region, 0, 0, BYTES, 300 * MS);
	wait_for_event(&pair.here, WEFT_EVENT_END, tags, &event);
	assert_status(event.status, -ETIMEDOUT);
	assert_false(event.quiescent);
	weft_event_release(&event);
	peer_tell(&pair.there, COMMAND_CARD, HOLD, 0);
	fill(pair.memory, 6);
	assert_status(write_to(pair.region, 0, 0, BYTES), 0);
	peer_check(&pair.there, number, 0, BYTES, 6);
	assert_status(read_from(0, region, 0, BYTES), 0);
	check(card, BYTES, 6, 0);
}

/* Again and again, wherever the operation is: what was stopped never shows up in what comes later. */
static void a_cancel_holds(void **state)
{
	for (int i = 0; i < 6; i++) {
		weft_transfer transfer;

		fill(pair.memory, 20 + (uint64_t)i);
		transfer = begin(pair.region, 0, 0, BYTES, WEFT_FOREVER);
		for (int spins = 0; spins < i * 2000; spins++)
			sched_yield();
		weft_transfer_cancel(pair.here.engine, transfer); /* or it has ended already */
		end_of(&pair.here, tags);
		fill(pair.memory, 40 + (uint64_t)i);
		assert_status(write_to(pair.region, 0, 0, 1 << 20), 0);
		peer_check(&pair.there, number, 0, 1 << 20, 40 + (uint64_t)i);
	}
}

static void a_peer_dies_in_the_middle(void **state)
{
	struct weft_event event;

	assert_status(write_to(pair.region, 0, 0, 4096), 0);
	peer_tell(&pair.there, COMMAND_CARD, HOLD, 1);
	begin(pair.region, 0, 0, BYTES, WEFT_FOREVER);
	while (!peer_tell(&pair.there, COMMAND_CARD, WAITING, 0))
		sched_yield();
	peer_kill(&pair.there);
	wait_for_event(&pair.here, WEFT_EVENT_PEER_DOWN, ANY_TAG, &event);
	weft_event_release(&event);
	assert_status(end_of(&pair.here, tags), -EHOSTDOWN);
}

/* The region is closed or revoked at the owner while its card copies: whatever is under way ends, once, and nothing later gets there. */
static void a_region_goes_in_the_middle(void **state)
{
	for (int revoke = 0; revoke < 2; revoke++) {
		assert_status(write_to(pair.region, 0, 0, 4096), 0);
		peer_tell(&pair.there, COMMAND_CARD, SLOW, 2000);
		for (int i = 0; i < 4; i++)
			begin(pair.region, 0, 0, BYTES, WEFT_FOREVER);
		peer_tell(&pair.there, revoke ? COMMAND_REVOKE : COMMAND_REGION_CLOSE, number);
		for (int i = 3; i >= 0; i--)
			end_of(&pair.here, tags - (uint64_t)i);
		peer_tell(&pair.there, COMMAND_CARD, SLOW, 0);
		assert_status(weft_remote_close(pair.here.engine, there), 0);
		there = card_there(WEFT_REMOTE_WRITE | WEFT_REMOTE_READ);
		fill(pair.memory, 7);
		assert_status(write_to(pair.region, 0, 0, BYTES), 0);
		peer_check(&pair.there, number, 0, BYTES, 7);
	}
}

/* The owner's card fails: the operation says so, and the connection carries everything else. */
static void a_lost_card_ends_operations(void **state)
{
	assert_status(write_to(pair.region, 0, 0, 4096), 0);
	peer_tell(&pair.there, COMMAND_CARD, LOSE, 1);
	assert_int_not_equal(write_to(pair.region, 0, 0, BYTES), 0);
	assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	peer_tell(&pair.there, COMMAND_CARD, LOSE, 0);
	fill(pair.memory, 3);
	assert_status(write_to(pair.region, 0, 0, BYTES), 0);
	peer_check(&pair.there, number, 0, BYTES, 3);
}

/* What its card copies ends first: the memory is the application's again when close returns, and nothing of the card's is left behind. */
static void an_owner_closes_in_the_middle(void **state)
{
	struct answer answer;

	assert_status(write_to(pair.region, 0, 0, 4096), 0);
	peer_tell(&pair.there, COMMAND_CARD, SLOW, 6000);
	begin(pair.region, 0, 0, BYTES, WEFT_FOREVER);
	while (!peer_tell(&pair.there, COMMAND_CARD, WAITING, 0))
		sched_yield();
	assert_status(peer_try(&pair.there, &(struct command){ .code = COMMAND_CLOSE }, NULL, &answer), 0);
	assert_int_equal(peer_tell(&pair.there, COMMAND_CARD, LEFT, 0), 0);
	assert_int_equal(peer_tell(&pair.there, COMMAND_CARD, WRONG, 0), 0);
	assert_status(end_of(&pair.here, tags), -EHOSTDOWN);
	peer_kill(&pair.there);
}

/* Its operations end, and what the owner still copies for it ends by itself. */
static void a_writer_closes_in_the_middle(void **state)
{
	peer_tell(&pair.there, COMMAND_CARD, SLOW, 2000);
	for (int i = 0; i < 4; i++)
		begin(i % 2 ? region : pair.region, 0, 0, BYTES, WEFT_FOREVER);
	while (!peer_tell(&pair.there, COMMAND_CARD, WAITING, 0))
		sched_yield();
	assert_status(side_close(&pair.here), 0);
	side_memory_free(pair.memory);
	fake_cuda_free(card);
	assert_int_equal(card_control(LEFT, 0), 0);
	assert_int_equal(card_control(WRONG, 0), 0);
	peer_tell(&pair.there, COMMAND_CARD, SLOW, 0);
	while (peer_tell(&pair.there, COMMAND_CARD, WAITING, 0))
		sched_yield();
	peer_stop(&pair.there);
}

static void meet_again(void)
{
	struct weft_event event;
	struct blob ours;

	address_of(pair.here.engine, &ours);
	assert_status(
	    weft_peer_add(pair.here.engine, pair.there.address.data, pair.there.address.bytes, NULL, &pair.peer), 0);
	pair.back = peer_add(&pair.there, &ours);
	assert_status(side_wait_peer(&pair.here, WEFT_EVENT_PEER_UP, pair.peer, LIMIT, &event), 0);
	weft_event_release(&event);
	there = card_there(WEFT_REMOTE_WRITE | WEFT_REMOTE_READ);
}

/* By one end or the other, with legs in all their states: each operation ends once, and all goes on when they meet again. */
static void a_peer_is_removed_in_the_middle(void **state)
{
	for (int i = 0; i < 6; i++) {
		peer_tell(&pair.there, COMMAND_CARD, SLOW, 500);
		for (int k = 0; k < 4; k++)
			begin(k % 2 ? region : pair.region, 0, 0, BYTES, WEFT_FOREVER);
		for (int spins = 0; spins < i * 1000; spins++)
			sched_yield();
		if (i % 2)
			peer_tell(&pair.there, COMMAND_REMOVE, pair.back);
		assert_status(weft_peer_remove(pair.here.engine, pair.peer), 0);
		for (int k = 3; k >= 0; k--)
			end_of(&pair.here, tags - (uint64_t)k);
		if (!(i % 2))
			peer_tell(&pair.there, COMMAND_REMOVE, pair.back);
		assert_status(weft_remote_close(pair.here.engine, there), 0);
		peer_tell(&pair.there, COMMAND_CARD, SLOW, 0);
		meet_again();
		fill(pair.memory, 80 + (uint64_t)i);
		assert_status(write_to(pair.region, 0, 0, BYTES), 0);
		peer_check(&pair.there, number, 0, BYTES, 80 + (uint64_t)i);
	}
}

/* One end takes no message as long as a question, or as its answer with the room: the operation ends and says so. */
static void messages_that_do_not_fit_end_operations(void **state)
{
	for (int i = 0; i < 3; i++) {
		struct weft_config tight = plain_config();

		tight.max_message = i == 1 ? 80 : 16;
		open_with(i == 2 ? NULL : &tight, i == 2 ? &tight : NULL);
		for (int again = 0; again < 2; again++) {
			begin(pair.region, 0, 0, BYTES, WEFT_FOREVER);
			assert_status(end_of(&pair.here, tags), -EMSGSIZE);
		}
		assert_status(pair_write(&pair, 0, 0, BYTES), 0);
		close_pair(NULL);
	}
}

/* Each connection is lent a room. The last one's rests, three of them at most, and then gets new keys: the operation waits for that. */
static void rooms_are_lent_again(void **state)
{
	struct weft_config owner = plain_config();

	owner.peer_limit_ns = 4000 * MS;
	open_with(NULL, &owner);
	for (uint64_t i = 0; i < 6; i++) {
		fill(pair.memory, 60 + i);
		assert_status(write_to(pair.region, 0, 0, BYTES), 0);
		peer_check(&pair.there, number, 0, BYTES, 60 + i);
		assert_status(
		    weft_peer_replace(pair.here.engine, pair.peer, pair.there.address.data, pair.there.address.bytes),
		    0);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

static int run(void)
{
	const struct CMUnitTest tests[] = {
		TEST(writes_and_reads),
		TEST(pages_of_every_size),
		TEST(pages_in_order),
		TEST(operations_of_every_kind),
		TEST(several_at_once),
		TEST(what_cannot_be_is_refused),
		TEST(a_deadline_holds),
		TEST(a_cancel_holds),
		TEST(a_peer_dies_in_the_middle),
		TEST(a_region_goes_in_the_middle),
		TEST(a_lost_card_ends_operations),
		TEST(an_owner_closes_in_the_middle),
		cmocka_unit_test_setup_teardown(a_writer_closes_in_the_middle, open_pair, kill_what_is_left),
		TEST(a_peer_is_removed_in_the_middle),
		cmocka_unit_test_teardown(messages_that_do_not_fit_end_operations, kill_what_is_left),
		cmocka_unit_test_teardown(rooms_are_lent_again, close_pair),
	};

	return cmocka_run_group_tests_name("landing", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	char error[256];

	if (argc > 1 && (!strcmp(argv[1], "sim") || !strcmp(argv[1], "groups"))) {
		bool groups = !strcmp(argv[1], "groups");

		workers = groups ? 4 : 0;
		if (wf_sim_setup(groups ? SIMULATED "nics=16" : SIMULATED "nics=4", error, sizeof(error))) {
			fprintf(stderr, "%s\n", error);
			return 1;
		}
		simulated.count = groups ? 16 : 4;
		transport = &simulated;
		argc = 1;
	}
	return test_main(argc, argv, run);
}
