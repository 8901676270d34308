/*
 * EFA as its provider really behaves, on simulated NICs that go by its name: two fabrics under one provider's name, its
 * own shared memory, writes that are emulated, an address vector that counts nothing and forgets what is in flight.
 * Engines in one process, most of them without threads.
 */
#include "support/sims.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 8 << 20 };

#define NICS "p5,nics=1,as=efa,handshake=0"

static struct sim a, b, *const both[] = { &a, &b };

static struct weft_config manual(const char *provider)
{
	struct weft_config config = sim_config();

	config.provider = provider;
	config.flags = WEFT_MANUAL_PROGRESS;
	config.max_transfers = 64;
	return config;
}

static void open_two(const char *spec_a, const char *spec_b, const char *provider)
{
	struct weft_config config = manual(provider);

	sim_open(&a, "a", spec_a, &config, BYTES);
	sim_open(&b, "b", spec_b, &config, BYTES);
}

static int close_two(void **state)
{
	sim_mend(-1);
	sim_close(&a);
	sim_close(&b);
	return 0;
}

static weft_peer meet(weft_remote *ret_remote)
{
	weft_peer peer = sim_add(&a, &b, ret_remote);

	SIMS_UNTIL(both, 2, sim_paths(&a, peer) == 1);
	return peer;
}

static void begin_write(weft_remote remote, uint64_t bytes)
{
	struct weft_write write = { .from = a.region, .to = remote, .bytes = bytes };
	struct weft_op op = { .queue = a.queue, .timeout_ns = WEFT_FOREVER };

	assert_int_equal(weft_write(a.engine, &write, &op, NULL), 0);
}

static int end_of_write(void)
{
	struct weft_event event;

	sims_event(both, 2, a.queue, WEFT_EVENT_END, &event);
	weft_event_release(&event);
	return event.status;
}

static struct weft_rail_info rail_of(const struct sim *sim)
{
	struct weft_rail_info info;

	assert_int_equal(weft_rail_info(sim->engine, 0, &info), 0);
	return info;
}

/* ---- fabrics ---- */

static int count_fabrics(void *context, const struct weft_nic *nic)
{
	uint32_t *found = context;

	found[0] += !strcmp(nic->provider, "efa");
	found[1] += !strcmp(nic->provider, "efa-direct");
	return 0;
}

/* efa-direct comes first in libfabric's list; it is taken when it is asked for. */
static void fabrics_have_names(void **state)
{
	static const char *const asked[] = { NULL, "efa", "efa-direct" };
	struct weft_config any = WEFT_CONFIG_INIT;
	uint32_t found[2] = { 0 };

	for (int i = 0; i < 3; i++) {
		struct weft_config config = manual(asked[i]);

		sim_open(&a, "a", NICS, &config, BYTES);
		assert_string_equal(rail_of(&a).provider, asked[i] ? asked[i] : "efa");
		assert_int_equal(rail_of(&a).inject_bytes, i < 2 ? 4096 : 32);
		sim_close(&a);
	}
	assert_int_equal(weft_nics(&any, count_fabrics, found), 0);
	assert_int_equal(found[0], 1);
	assert_int_equal(found[1], 1);
}

/* Their addresses look alike, and nothing one sends means anything to the other. */
static void fabrics_do_not_meet(void **state)
{
	struct weft_config efa = manual("efa"), direct = manual("efa-direct");
	char blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);
	weft_peer peer;

	sim_open(&a, "a", NICS, &efa, BYTES);
	sim_open(&b, "b", NICS, &direct, BYTES);
	assert_int_equal(weft_address(b.engine, blob, &bytes), 0);
	assert_int_equal(weft_peer_add(a.engine, blob, bytes, &peer), -EHOSTUNREACH);
}

/* ---- shared memory inside EFA ---- */

/* The simulated NICs stop the process if it were used. */
static void same_host(void **state)
{
	struct weft_config config = manual("efa");
	weft_remote remote;

	sim_open(&a, "host", NICS, &config, BYTES);
	sim_open(&b, "host", NICS, &config, BYTES);
	meet(&remote);
	begin_write(remote, BYTES);
	assert_int_equal(end_of_write(), 0);
}

/* ---- emulated writes ---- */

static uint64_t sends_while_writing(weft_remote remote)
{
	uint64_t before = rail_of(&a).sends;

	begin_write(remote, BYTES);
	assert_int_equal(end_of_write(), 0);
	return rail_of(&a).sends - before;
}

/* The peer is told to look, for nothing else does: its own CPU puts the bytes in place. */
static void emulated_writes_show(void **state)
{
	weft_remote remote;

	open_two(NICS ",emulated=1,rate=1G", NICS ",emulated=1,rate=1G", "efa");
	meet(&remote);
	assert_true(rail_of(&a).emulated);
	assert_true(rail_of(&a).delivery_complete);
	assert_true(sends_while_writing(remote) > 0);
}

static void real_writes_show(void **state)
{
	weft_remote remote;

	open_two(NICS, NICS, "efa");
	meet(&remote);
	assert_false(rail_of(&a).emulated);
}

/* The card can, but the peer's cannot: its address says so. */
static void one_end_is_enough(void **state)
{
	weft_remote remote;

	open_two(NICS ",rate=1G", NICS ",emulated=1,rate=1G", "efa");
	meet(&remote);
	assert_false(rail_of(&a).emulated);
	assert_true(sends_while_writing(remote) > 0);
}

/* EFA emulates on older cards for programs that ask for an older API than the library has. */
static void newest_api(void **state)
{
	struct weft_config config = manual("efa");

	sim_open(&a, "a", NICS ",rdma_api=1.17", &config, BYTES);
	assert_false(rail_of(&a).emulated);
}

/* ---- memory ---- */

/* 1 Mi pages that peers may write to, and one more. */
static void pages_of_a_region(void **state)
{
	struct weft_config config = manual("efa");
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), most = page << 20;
	char *memory;
	weft_region region;

	if (page != 4096)
		skip(); /* the simulated NICs count pages of 4 KiB */
	memory = mmap(NULL, most + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(memory != MAP_FAILED);
	sim_open(&a, "a", NICS, &config, BYTES);
	assert_int_equal(weft_region_register(a.engine, memory, most + page, WEFT_REMOTE_WRITE, &region), -EFBIG);
	assert_non_null(strstr(weft_error_hint(-EFBIG), "huge pages"));
	assert_int_equal(weft_region_register(a.engine, memory, most, WEFT_REMOTE_WRITE, &region), 0);
	assert_int_equal(weft_region_register(a.engine, memory, most + page, WEFT_REMOTE_READ, &region), 0);
	sim_close(&a);
	munmap(memory, most + page);
}

/* ---- doorbells ---- */

/* Writes and reads that a rail pulls in one turn: the writes are rung for before a read is posted. */
static void reads_behind_writes(void **state)
{
	struct weft_op op = { .timeout_ns = WEFT_FOREVER };
	struct weft_read read = { .bytes = 4096 };
	weft_remote remote;

	open_two(NICS, NICS, "efa");
	op.queue = a.queue;
	meet(&remote);
	read.from = remote;
	read.to = a.region;
	for (int i = 0; i < 8; i++) {
		begin_write(remote, 4096);
		assert_int_equal(weft_read(a.engine, &read, &op, NULL), 0);
	}
	for (int i = 0; i < 16; i++)
		assert_int_equal(end_of_write(), 0);
}

/* ---- the address vector ---- */

/* A peer that is added again while its old lane still waits for a completion has the same address, which stays when the
 * old lane is done: housekeeping passes several times while the new one writes. */
static void added_again(void **state)
{
	uint64_t enough_ns;
	weft_remote remote;
	weft_peer peer;
	int slow;

	open_two(NICS, NICS, "efa");
	peer = meet(&remote);
	slow = sim_fault("host=a,op=write,count=1,fault=delay:300ms");
	begin_write(remote, 4096);
	SIMS_UNTIL(both, 2, sim_struck(slow) == 1);
	assert_int_equal(weft_peer_remove(a.engine, peer), 0);
	meet(&remote);
	assert_int_not_equal(end_of_write(), 0);
	for (enough_ns = now_ns() + 500 * MS; now_ns() < enough_ns;) {
		begin_write(remote, 4096);
		assert_int_equal(end_of_write(), 0);
	}
}

/* The peer's rail has a new address while writes to the old one are in flight: they come back with an error, not never. */
static void address_changes_in_flight(void **state)
{
	struct weft_op op = { .timeout_ns = WEFT_FOREVER };
	weft_remote remote, unused;
	weft_peer peer, back;
	int slow;

	open_two(NICS, NICS, "efa");
	peer = meet(&remote);
	back = sim_add(&b, &a, &unused);
	slow = sim_fault("host=a,op=write,count=1,fault=delay:1s");
	begin_write(remote, 4096);
	SIMS_UNTIL(both, 2, sim_struck(slow) == 1);
	sim_fault("host=b,op=send,count=1,fault=internal"); /* resets b's rail */
	op.queue = b.queue;
	assert_int_equal(weft_send(b.engine, back, 0, "x", 1, &op, NULL), 0);
	SIMS_UNTIL(both, 2, rail_of(&b).reopened == 1);
	assert_int_equal(end_of_write(), 0);
	assert_int_equal(rail_of(&a).reopened, 0);
	assert_int_equal(sim_paths(&a, peer), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(fabrics_have_names, close_two),
		cmocka_unit_test_teardown(fabrics_do_not_meet, close_two),
		cmocka_unit_test_teardown(same_host, close_two),
		cmocka_unit_test_teardown(emulated_writes_show, close_two),
		cmocka_unit_test_teardown(real_writes_show, close_two),
		cmocka_unit_test_teardown(one_end_is_enough, close_two),
		cmocka_unit_test_teardown(newest_api, close_two),
		cmocka_unit_test_teardown(pages_of_a_region, close_two),
		cmocka_unit_test_teardown(reads_behind_writes, close_two),
		cmocka_unit_test_teardown(added_again, close_two),
		cmocka_unit_test_teardown(address_changes_in_flight, close_two),
	};

	return cmocka_run_group_tests_name("efa", tests, sims_set_up, sims_tear_down);
}
