/*
 * Writes that share a doorbell, over a provider that may hold a write back until the peer's handshake has come and then posts it as
 * it came (EFA of libfabric 2.x): with FI_MORE nobody rings for it, and without it does not ring for those before it. The simulated
 * NICs stop the process where either could happen. Engines without threads on simulated NICs.
 */
#include "support/sims.h"

enum { BYTES = 1 << 20, PAGE = 4096, WRITES = 4 };

static struct sim a, b, c, *const all[] = { &a, &b, &c };
static weft_remote at_b, at_c;

static void open_three(const char *spec)
{
	struct weft_config config = sim_config();
	weft_peer to_b, to_c;

	config.provider = "efa";
	config.flags = WEFT_MANUAL_PROGRESS;
	config.rail_limit_ns = 1 * S;
	config.heartbeat_ns = 250 * MS;
	sim_open(&a, "a", spec, &config, BYTES);
	sim_open(&b, "b", spec, &config, BYTES);
	sim_open(&c, "c", spec, &config, BYTES);
	to_b = sim_add(&a, &b, &at_b);
	to_c = sim_add(&a, &c, &at_c);
	SIMS_UNTIL(all, 3, sim_paths(&a, to_b) == 1 && sim_paths(&a, to_c) == 1);
}

static int close_three(void **state)
{
	sim_mend(-1);
	sim_close(&a);
	sim_close(&b);
	sim_close(&c);
	return 0;
}

/* Nothing is posted before the next turn. */
static void begin_write(weft_remote to, uint64_t bytes)
{
	struct weft_write write = { .size = sizeof(write), .from = a.region, .to = to, .bytes = bytes };
	struct weft_op op = { .size = sizeof(op), .queue = a.queue, .timeout_ns = WEFT_FOREVER };

	assert_int_equal(weft_write(a.engine, &write, &op, NULL), 0);
}

static void end_writes(int writes)
{
	for (int i = 0; i < writes; i++) {
		struct weft_event event;

		sims_event(all, 3, a.queue, WEFT_EVENT_END, &event);
		assert_int_equal(event.status, 0);
		weft_event_release(&event);
	}
}

static void first_writes_ring_alone(void **state)
{
	open_three("p5,nics=1,as=efa");
	for (int i = 0; i < WRITES; i++)
		begin_write(at_b, PAGE);
	end_writes(WRITES);
}

/* b's writes share a doorbell, and c's, which come after them in the same turn, are its first. */
static void a_newcomer_rings_for_nobody(void **state)
{
	open_three("p5,nics=1,as=efa");
	begin_write(at_b, PAGE);
	end_writes(1);
	for (int i = 0; i < WRITES; i++)
		begin_write(at_b, PAGE);
	for (int i = 0; i < WRITES; i++)
		begin_write(at_c, PAGE);
	end_writes(2 * WRITES);
}

/* The endpoint is another one after a failure that closes it: the peer's handshake comes anew. */
static void a_reopened_endpoint_begins_anew(void **state)
{
	struct weft_rail_info rail;

	open_three("p5,nics=1,as=efa");
	begin_write(at_b, PAGE);
	end_writes(1);
	sim_fault("host=a,op=write,count=1,fault=drop");
	for (int i = 0; i < WRITES; i++)
		begin_write(at_b, PAGE);
	end_writes(WRITES);
	assert_int_equal(weft_rail_info(a.engine, 0, &rail, sizeof(rail)), 0);
	assert_true(rail.reopened);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(first_writes_ring_alone, close_three),
		cmocka_unit_test_teardown(a_newcomer_rings_for_nobody, close_three),
		cmocka_unit_test_teardown(a_reopened_endpoint_begins_anew, close_three),
	};

	return cmocka_run_group_tests_name("doorbells", tests, sims_set_up, sims_tear_down);
}
