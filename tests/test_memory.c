/* Memory that an engine allocates: what it is, who may free it when, and that peers of this host map it. */
#include "support/fixture.h"
#include "support/peer.h"

#include <string.h>

const uint64_t pair_bytes = 1u << 20;

static void nonsense(void **state)
{
	weft_engine *engine = pair.here.engine;
	void *memory = NULL;

	assert_status(weft_memory_alloc(NULL, 1, NULL, &memory), -EINVAL);
	assert_status(weft_memory_alloc(engine, 1, NULL, NULL), -EINVAL);
	assert_status(weft_memory_alloc(engine, 0, NULL, &memory), -EINVAL);
	assert_status(weft_memory_alloc(engine, 1, "numa:", &memory), -EINVAL);
	assert_status(weft_memory_alloc(engine, 1, "numa:1x", &memory), -EINVAL);
	assert_status(weft_memory_alloc(engine, 1, "gpu", &memory), -EINVAL);
	assert_status(weft_memory_alloc(engine, UINT64_MAX, NULL, &memory), -ENOMEM);
	assert_null(memory);
	assert_status(weft_memory_free(engine, &memory), -ENOENT);
	assert_status(weft_memory_free(engine, NULL), -EINVAL);
}

static void comes_and_goes(void **state)
{
	static const uint64_t sizes[] = { 1, 4096, 5000, 2u << 20, (7u << 20) + 13 };
	weft_engine *engine = pair.here.engine;
	weft_region region;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t bytes = sizes[i];
		char *memory;

		assert_status(weft_memory_alloc(engine, bytes, i % 2 ? "numa:0" : NULL, (void **)&memory), 0);
		for (uint64_t at = 0; at < bytes; at++)
			assert_int_equal(memory[at], 0);
		memset(memory, 1, bytes);
		assert_status(
		    weft_region_register(engine, memory + bytes / 2, bytes - bytes / 2, WEFT_REMOTE_WRITE, &region), 0);
		assert_status(weft_memory_free(engine, memory), -EBUSY);
		assert_status(weft_region_close(engine, region), 0);
		if (bytes > 1)
			assert_status(weft_memory_free(engine, memory + 1), -ENOENT);
		assert_status(weft_memory_free(engine, memory), 0);
		assert_status(weft_memory_free(engine, memory), -ENOENT);
	}
}

/* Our allocated memory as the source, a part of it as the target of the peer's write, and theirs as the target of ours. */
static void carries(void **state)
{
	weft_engine *engine = pair.here.engine;
	weft_region plain = pair.region;
	char *memory;

	assert_status(weft_memory_alloc(engine, 1u << 20, NULL, (void **)&memory), 0);
	pattern_fill(memory, 1u << 20, 5, 0);
	assert_status(weft_region_register(engine, memory, 1u << 20, 0, &pair.region), 0);
	assert_status(pair_write(&pair, 100, 300, 900000), 0);
	peer_check_at(&pair.there, pair.number, 300, 900000, 5, 100);
	assert_status(weft_region_close(engine, pair.region), 0);
	pair.region = plain;
	assert_status(weft_memory_free(engine, memory), 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nonsense),
		cmocka_unit_test(comes_and_goes),
		cmocka_unit_test(carries),
	};

	return cmocka_run_group_tests_name("memory", tests, pair_setup, pair_teardown);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
