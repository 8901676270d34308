/*
 * EFA as its provider really behaves, on simulated NICs with its name: two fabrics under one provider name, its own
 * shared memory, emulated writes, an address vector that counts nothing and forgets what is in flight. Engines in one
 * process, most of them without threads.
 */
#include "support/sims.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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
	struct weft_write write = { .size = sizeof(write), .from = a.region, .to = remote, .bytes = bytes };
	struct weft_op op = { .size = sizeof(op), .queue = a.queue, .timeout_ns = WEFT_FOREVER };

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

	assert_int_equal(weft_rail_info(sim->engine, 0, &info, sizeof(info)), 0);
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

/* efa-direct comes first in libfabric's list; weft takes it only when asked for. */
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
	assert_int_equal(weft_nic_each(&any, count_fabrics, found), 0);
	assert_int_equal(found[0], 1);
	assert_int_equal(found[1], 1);
}

/* Their addresses look alike, but neither understands the other. */
static void fabrics_do_not_meet(void **state)
{
	struct weft_config efa = manual("efa"), direct = manual("efa-direct");
	char blob[WEFT_BLOB_MAX];
	size_t bytes = sizeof(blob);
	weft_peer peer;

	sim_open(&a, "a", NICS, &efa, BYTES);
	sim_open(&b, "b", NICS, &direct, BYTES);
	assert_int_equal(weft_engine_address(b.engine, blob, &bytes), 0);
	assert_int_equal(weft_peer_add(a.engine, blob, bytes, NULL, &peer), -EHOSTUNREACH);
}

/* ---- shared memory inside EFA ---- */

/* The simulated NICs stop the process if it is used. */
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

/* The peer is told to look, because nothing else makes it: its own CPU puts the bytes in place. */
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

/* Our card can write, but the peer's cannot: its address says so. */
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

/* Cards that take 4 MiB at once, so that the memory of both ends has several parts: they overlap by REACH and begin
 * every STEP. */
#define SMALL ",mr_pages=1024"
enum { REACH = 1 << 20, STEP = 1023 * 4096 - REACH, LARGE = 5 * STEP + REACH };

static char *wanted; /* what b's memory should hold, and a's after a read */

static weft_peer open_parts(const char *nics_a, const char *nics_b, const char *provider, uint32_t paths,
			    weft_remote *ret_remote)
{
	struct weft_config config = manual(provider);
	weft_peer peer;

	if (sysconf(_SC_PAGESIZE) != 4096)
		skip(); /* the simulated NICs count pages of 4 KiB */
	sim_open(&a, "a", nics_a, &config, LARGE);
	sim_open(&b, "b", nics_b, &config, LARGE);
	for (size_t i = 0; i < LARGE / sizeof(uint64_t); i++) {
		((uint64_t *)a.memory)[i] = i * 0x9e3779b97f4a7c15;
		((uint64_t *)b.memory)[i] = ~i * 0xd1342543de82ef95;
	}
	free(wanted);
	wanted = malloc(LARGE);
	assert_non_null(wanted);
	memcpy(wanted, b.memory, LARGE);
	peer = sim_add(&a, &b, ret_remote);
	SIMS_UNTIL(both, 2, sim_paths(&a, peer) == paths);
	return peer;
}

static int close_parts(void **state)
{
	free(wanted);
	wanted = NULL;
	return close_two(state);
}

static void landed(void)
{
	assert_int_equal(end_of_write(), 0);
	assert_memory_equal(b.memory, wanted, LARGE);
}

static struct weft_op parts_op(void)
{
	return (struct weft_op){ .size = sizeof(struct weft_op), .queue = a.queue, .timeout_ns = WEFT_FOREVER };
}

static const struct weft_write ranges[] = {
	{ .size = sizeof(struct weft_write), .from_offset = 0, .to_offset = 0, .bytes = LARGE },
	{ .size = sizeof(struct weft_write), .from_offset = STEP - 7, .to_offset = STEP + REACH - 3, .bytes = 50 },
	{ .size = sizeof(struct weft_write), .from_offset = 2 * STEP - 1, .to_offset = 3 * STEP - 1, .bytes = REACH },
	{ .size = sizeof(struct weft_write),
	  .from_offset = 2 * STEP + REACH - 1,
	  .to_offset = 3,
	  .bytes = STEP + REACH + 1 },
	{ .size = sizeof(struct weft_write), .from_offset = 5, .to_offset = LARGE - 12345, .bytes = 12345 },
	{ .size = sizeof(struct weft_write), .from_offset = LARGE - 1, .to_offset = 4 * STEP - 1, .bytes = 1 },
	{ .size = sizeof(struct weft_write), .from_offset = LARGE, .to_offset = LARGE, .bytes = 0 },
};

static void write_ranges(weft_remote remote)
{
	struct weft_op op = parts_op(), checked = op;

	checked.flags = WEFT_CHECKSUM;
	checked.notify = WEFT_NOTIFY_FENCED;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		struct weft_write write = ranges[i];

		write.from = a.region;
		write.to = remote;
		memcpy(wanted + write.to_offset, a.memory + write.from_offset, write.bytes);
		assert_int_equal(weft_write(a.engine, &write, i % 2 ? &op : &checked, NULL), 0);
		landed();
	}
}

static void scatter_ranges(weft_remote remote)
{
	struct weft_write parts[64];
	struct weft_op op = parts_op();

	for (uint64_t i = 0; i < 64; i++) { /* apart at the target, and around every end of a part */
		parts[i] = (struct weft_write){
			sizeof(struct weft_write), a.region,      (i * 7 + 3) % 60 * (LARGE / 64), remote,
			i * (LARGE / 64),          LARGE / 64 - i
		};
		memcpy(wanted + parts[i].to_offset, a.memory + parts[i].from_offset, parts[i].bytes);
	}
	assert_int_equal(weft_scatter(a.engine, parts, 64, &op, NULL), 0);
	landed();
}

static void write_pages(weft_remote remote, uint64_t page, uint64_t stride, struct weft_op op)
{
	uint64_t count = LARGE / stride - 1;
	uint32_t *from = calloc(2 * count, sizeof(*from)), *to = from + count;
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = page,
					  .count = count,
					  .from = a.region,
					  .from_stride = stride,
					  .from_offset = 11,
					  .to = remote,
					  .to_stride = stride,
					  .to_offset = 77 };

	assert_non_null(from);
	for (int layout = 0; layout < 3; layout++) { /* four side by side, all apart, all side by side */
		for (uint64_t i = 0; i < count; i++) {
			from[i] = (uint32_t)((i * (layout == 1 ? 37 : 1) + count / 2) % count);
			to[i] = (uint32_t)(layout < 2 && i < (count & ~UINT64_C(7)) ? i ^ 4 : i);
			if (layout == 2)
				from[i] = (uint32_t)i;
			memcpy(wanted + 77 + to[i] * stride, a.memory + 11 + from[i] * stride, page);
		}
		pages.from_index = layout < 2 ? from : NULL;
		pages.to_index = layout < 2 ? to : NULL;
		assert_int_equal(weft_write_pages(a.engine, &pages, &op, NULL), 0);
		landed();
	}
	free(from);
}

static void write_all_pages(weft_remote remote)
{
	struct weft_op op = parts_op(), checked = op;

	checked.flags = WEFT_CHECKSUM;
	checked.notify = WEFT_NOTIFY_FENCED;
	write_pages(remote, 700, 700, op);
	write_pages(remote, 4096, 4096, checked);
	write_pages(remote, 65536, 65536 + 64, op);
	write_pages(remote, 1 << 20, 1 << 20, checked);
	write_pages(remote, 5 << 19, 5 << 19, op);
}

static void read_ranges(weft_remote remote)
{
	struct weft_op op = parts_op();

	memcpy(wanted, a.memory, LARGE);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		struct weft_read read = { sizeof(read),        remote,         ranges[i].from_offset, a.region,
					  ranges[i].to_offset, ranges[i].bytes };

		memcpy(wanted + read.to_offset, b.memory + read.from_offset, read.bytes);
		assert_int_equal(weft_read(a.engine, &read, &op, NULL), 0);
		assert_int_equal(end_of_write(), 0);
		assert_memory_equal(a.memory, wanted, LARGE);
	}
}

/* Either end in parts, or both, or over several rails; with local keys and without. Strict NICs stop the process on
 * another NIC's key, and refuse ranges that are not whole in the part of their key. */
static void moves_in_parts(void **state)
{
	static const struct {
		const char *a, *b, *provider;
		uint32_t paths;
	} cases[] = {
		{ NICS SMALL, NICS SMALL, "efa", 1 },
		{ NICS SMALL, NICS, "efa-direct", 1 },
		{ NICS, NICS SMALL, "efa-direct", 1 },
		{ "p5,nics=2,as=efa,handshake=0" SMALL, "p5,nics=2,as=efa,handshake=0,mr_pages=1500", "efa-direct", 2 },
	};
	weft_remote remote;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_parts(cases[i].a, cases[i].b, cases[i].provider, cases[i].paths, &remote);
		write_ranges(remote);
		scatter_ranges(remote);
		write_all_pages(remote);
		read_ranges(remote);
		sim_close(&a);
		sim_close(&b);
	}
}

/* One write, one immediate: at most as long as parts overlap, wherever it lies. */
static void counted_in_parts(void **state)
{
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER },
		       expect = { .size = sizeof(expect), .timeout_ns = WEFT_FOREVER };
	struct weft_write write = { .size = sizeof(write), .bytes = REACH };
	struct weft_write_pages pages = { .size = sizeof(pages), .page_bytes = REACH + 1, .count = 2 };
	struct weft_event event;
	weft_remote remote;

	open_parts(NICS SMALL, NICS SMALL, "efa", 1, &remote);
	op.queue = a.queue;
	pages.from = write.from = a.region;
	pages.to = write.to = remote;
	op.notify = WEFT_NOTIFY_COUNTED;
	op.immediate = 5;
	for (uint64_t offset = 0; offset <= LARGE - REACH; offset += STEP / 4) {
		write.from_offset = offset;
		write.to_offset = LARGE - REACH - offset;
		memcpy(wanted + write.to_offset, a.memory + offset, REACH);
		assert_int_equal(weft_write(a.engine, &write, &op, NULL), 0);
		landed();
	}
	expect.queue = b.queue;
	assert_int_equal(weft_expect(b.engine, 0, 5, 21, &expect, NULL), 0);
	sims_event(both, 2, b.queue, WEFT_EVENT_COUNTED, &event);
	assert_int_equal(event.status, 0);
	weft_event_release(&event);
	write.bytes = REACH + 1;
	write.from_offset = write.to_offset = 0;
	assert_int_equal(weft_write(a.engine, &write, &op, NULL), -EMSGSIZE);
	assert_int_equal(weft_scatter(a.engine, &write, 1, &op, NULL), -EMSGSIZE);
	assert_int_equal(weft_write_pages(a.engine, &pages, &op, NULL), -EMSGSIZE);
	assert_memory_equal(b.memory, wanted, LARGE);
}

/* A peer that has not heard of the revocation writes into each part: the NIC knows none of its keys any more. */
static void revoked_in_parts(void **state)
{
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER };
	struct weft_op counted = { .size = sizeof(counted), .timeout_ns = WEFT_FOREVER, .notify = WEFT_NOTIFY_COUNTED };
	struct weft_write whole = { .size = sizeof(whole), .bytes = LARGE };
	struct weft_event event;
	weft_remote remote;
	weft_peer back;

	open_parts(NICS, NICS SMALL, "efa-direct", 1, &remote);
	op.queue = a.queue;
	back = sim_add(&b, &a, &whole.to);
	SIMS_UNTIL(both, 2, sim_paths(&b, back) == 1);
	whole.from = b.region;
	assert_int_equal(weft_write(b.engine, &whole, &counted, NULL), -EMSGSIZE);
	assert_int_equal(weft_region_revoke(b.engine, b.region), 0);
	for (uint64_t i = 0; i < 5; i++) {
		struct weft_write write = { sizeof(write), a.region, 0, remote, i * STEP + REACH, 64 };

		assert_int_equal(weft_write(a.engine, &write, &op, NULL), 0);
	}
	for (int i = 0; i < 5; i++)
		assert_int_not_equal(end_of_write(), 0);
	assert_memory_equal(b.memory, wanted, LARGE);
	/* It is now registered in one piece, for its owner. */
	counted.queue = b.queue;
	assert_int_equal(weft_write(b.engine, &whole, &counted, NULL), 0);
	sims_event(both, 2, b.queue, WEFT_EVENT_END, &event);
	assert_int_equal(event.status, 0);
	weft_event_release(&event);
	assert_memory_equal(a.memory, b.memory, LARGE);
}

/* The card has pages for one more region: a page that the last one kept would be missing for the next. */
static void parts_are_given_back(void **state)
{
	const char *const nics = "p5,nics=2,as=efa,handshake=0,pages=13000" SMALL;
	weft_remote remote;
	weft_region region;
	char *memory;

	open_parts(nics, NICS SMALL, "efa", 2, &remote);
	memory = calloc(1, LARGE);
	assert_non_null(memory);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(weft_region_register(a.engine, memory, LARGE, WEFT_REMOTE_WRITE, &region), 0);
		if (i % 2)
			assert_int_equal(weft_region_revoke(a.engine, region), 0);
		assert_int_equal(weft_region_close(a.engine, region), 0);
	}
	/* In one piece, in parts of 16, 8 and 4 MiB, then the fourth of those; the other NIC has all of them. */
	for (int i = 0; i < 8; i++) {
		int fault = sim_fault("host=a,nic=%d,op=reg,after=6,count=1,fault=reg", i % 2);

		assert_int_equal(weft_region_register(a.engine, memory, LARGE, WEFT_REMOTE_WRITE, &region), -ENOMEM);
		assert_int_equal(sim_struck(fault), 1);
		sim_mend(fault);
	}
	assert_int_equal(weft_region_register(a.engine, memory, LARGE, WEFT_REMOTE_WRITE, &region), 0);
	sim_close(&a); /* with it */
	free(memory);
}

static char *map(uint64_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(memory != MAP_FAILED);
	return memory;
}

/* 1 Mi pages that peers may write to, and one more: across the real end of a part. */
static void pages_of_a_region(void **state)
{
	uint64_t most = UINT64_C(4096) << 20, bytes = most + 4096, at = most - (65 << 20);
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER };
	char blob[WEFT_BLOB_MAX], *memory = map(bytes);
	weft_region region, other;
	weft_remote remote;
	weft_peer peer;
	size_t size = sizeof(blob);

	peer = open_parts(NICS, NICS, "efa", 1, &remote);
	op.queue = a.queue;
	assert_int_equal(weft_region_register(b.engine, memory, most, WEFT_REMOTE_WRITE, &other), 0);
	assert_int_equal(weft_region_register(b.engine, memory, bytes, WEFT_REMOTE_READ, &other), 0);
	assert_int_equal(weft_region_register(b.engine, memory, bytes, WEFT_REMOTE_WRITE, &region), 0);
	assert_int_equal(weft_region_export(b.engine, region, blob, &size), 0);
	assert_int_equal(weft_remote_import(a.engine, peer, blob, size, &remote), 0);
	for (int i = 0; i < 2; i++) {
		struct weft_write write = { sizeof(write), a.region, 0, remote, i ? bytes - LARGE : at - LARGE / 2,
					    LARGE };

		assert_int_equal(weft_write(a.engine, &write, &op, NULL), 0);
		assert_int_equal(end_of_write(), 0);
		assert_memory_equal(memory + write.to_offset, a.memory, LARGE);
	}
	close_two(state);
	munmap(memory, bytes);
}

/* As many parts as a descriptor has room for, and one more. */
static void largest_descriptor(void **state)
{
	uint64_t most = 4074, bytes = most * STEP + REACH;
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER };
	char blob[WEFT_BLOB_MAX], *memory = map(bytes + 1);
	size_t size = sizeof(blob), small = 100;
	weft_region region;
	weft_remote remote;
	weft_peer peer;

	peer = open_parts(NICS SMALL, NICS SMALL, "efa", 1, &remote);
	op.queue = a.queue;
	assert_int_equal(weft_region_register(b.engine, memory, bytes + 1, WEFT_REMOTE_WRITE, &region), -EFBIG);
	assert_non_null(strstr(weft_error_hint(-EFBIG), "huge pages"));
	assert_int_equal(weft_region_register(b.engine, memory, bytes, WEFT_REMOTE_WRITE, &region), 0);
	assert_int_equal(weft_region_export(b.engine, region, blob, &small), -ENOBUFS);
	assert_in_range(small, WEFT_BLOB_MAX - 4, WEFT_BLOB_MAX);
	assert_int_equal(weft_region_export(b.engine, region, blob, &size), 0);
	assert_int_equal(size, small);
	assert_int_equal(weft_remote_import(a.engine, peer, blob, size - 1, &remote), -EPROTO);
	assert_int_equal(weft_remote_import(a.engine, peer, blob, size, &remote), 0);
	for (int i = 0; i < 2; i++) {
		struct weft_write write = { sizeof(write), a.region, 0, remote, i ? 0 : bytes - LARGE, LARGE };

		assert_int_equal(weft_write(a.engine, &write, &op, NULL), 0);
		assert_int_equal(end_of_write(), 0);
		assert_memory_equal(memory + write.to_offset, a.memory, LARGE);
	}
	close_two(state);
	munmap(memory, bytes + 1);
}

/* ---- doorbells ---- */

/* Writes and reads that a rail pulls in one turn: the writes are rung for before a read is posted. */
static void reads_behind_writes(void **state)
{
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER };
	struct weft_read read = { .size = sizeof(read), .bytes = 4096 };
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

/* A peer that is added again while its old lane still waits for a completion has the same address. The address stays
 * when the old lane is done: housekeeping passes several times while the new lane writes. */
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

/* The peer's rail gets a new address while writes to the old one are in flight: they come back with an error. */
static void address_changes_in_flight(void **state)
{
	struct weft_op op = { .size = sizeof(op), .timeout_ns = WEFT_FOREVER };
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
		cmocka_unit_test_teardown(moves_in_parts, close_parts),
		cmocka_unit_test_teardown(counted_in_parts, close_parts),
		cmocka_unit_test_teardown(revoked_in_parts, close_parts),
		cmocka_unit_test_teardown(parts_are_given_back, close_parts),
		cmocka_unit_test_teardown(pages_of_a_region, close_parts),
		cmocka_unit_test_teardown(largest_descriptor, close_parts),
		cmocka_unit_test_teardown(reads_behind_writes, close_two),
		cmocka_unit_test_teardown(added_again, close_two),
		cmocka_unit_test_teardown(address_changes_in_flight, close_two),
	};

	return cmocka_run_group_tests_name("efa", tests, sims_set_up, sims_tear_down);
}
