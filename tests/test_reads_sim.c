/* On simulated NICs, with manual progress: paged reads, waiting for one operation, and what each pair of rails carried. */
#include "support/sims.h"

#include <errno.h>
#include <string.h>

#define BYTES (4u << 20)
#define PAGE  4096u
#define PAGES (BYTES / PAGE)

static struct sim here, there, *const both[] = { &here, &there };
static weft_peer peer;
static weft_remote remote;

static void open_both(const char *spec)
{
	struct weft_config config = sim_config();

	config.flags = WEFT_MANUAL_PROGRESS;
	sim_open(&here, "a", spec, &config, BYTES);
	sim_open(&there, "b", spec, &config, BYTES);
	peer = sim_add(&here, &there, &remote);
	SIMS_UNTIL(both, 2, sim_paths(&here, peer) == 2);
}

static void close_both(void)
{
	sim_close(&here);
	sim_close(&there);
}

static uint64_t read_by_path(uint32_t rail, uint32_t peer_rail)
{
	struct weft_path_info path;

	assert_int_equal(weft_path_info(here.engine, peer, rail, peer_rail, &path, sizeof(path)), 0);
	assert_int_equal(path.written_bytes, 0);
	return path.read_bytes;
}

static void read_all(const char *spec)
{
	static uint32_t from[PAGES];
	struct weft_read_pages pages = {
		.size = sizeof(pages), .page_bytes = PAGE, .count = PAGES, .from_index = from
	};
	struct weft_op op = { .size = sizeof(op), .flags = WEFT_KEEP_END, .timeout_ns = WEFT_FOREVER };
	uint64_t each[2] = { 0 };
	struct weft_event event;
	weft_transfer transfer;

	open_both(spec);
	pages.from = remote;
	pages.to = here.region;
	for (uint32_t i = 0; i < PAGES; i++)
		from[i] = (i * 7 + 3) % PAGES;
	pattern_fill(there.memory, BYTES, 9, 0);
	memset(here.memory, 0, BYTES);
	assert_int_equal(weft_read_pages(here.engine, &pages, &op, &transfer), 0);
	SIMS_UNTIL(both, 2, weft_transfer_wait(here.engine, transfer, 0, &event, sizeof(event)) != -ETIMEDOUT);
	assert_int_equal(event.status, 0);
	assert_int_equal(event.bytes, BYTES);
	weft_event_release(&event);
	for (uint32_t i = 0; i < PAGES; i++)
		assert_memory_equal(here.memory + i * PAGE, there.memory + from[i] * PAGE, PAGE);
	for (uint32_t rail = 0; rail < 2; rail++)
		each[rail] = read_by_path(rail, 0) + read_by_path(rail, 1);
	assert_true(each[0] && each[1]); /* both rails really did something, and all of it is known */
	assert_int_equal(each[0] + each[1], BYTES);
	close_both();
}

static void like_efa(void **state)
{
	read_all("p5en,nics=2");
}

static void like_verbs(void **state)
{
	read_all("verbs,nics=2");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(like_efa), cmocka_unit_test(like_verbs) };

	return cmocka_run_group_tests_name("reads on simulated NICs", tests, sims_set_up, sims_tear_down);
}
