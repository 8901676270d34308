/* The pipes of the local rail alone, and what a peer may put there. */
#include "local/pipe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

static struct wf_pipe_shared *make_pipe(struct wf_pipe_writer *writer, struct wf_pipe_reader *reader)
{
	struct wf_pipe_shared *shared = aligned_alloc(64, sizeof(*shared));

	assert_non_null(shared);
	memset(shared, 0, sizeof(*shared));
	*writer = (struct wf_pipe_writer){ .shared = shared };
	*reader = (struct wf_pipe_reader){ .shared = shared };
	return shared;
}

static void pipe_keeps_order(void **state)
{
	struct wf_pipe_writer writer;
	struct wf_pipe_reader reader;
	struct wf_pipe_shared *shared = make_pipe(&writer, &reader);
	static uint8_t out[WF_PIPE_RECORD], in[WF_PIPE_RECORD];
	uint64_t random = 1, put = 0, taken = 0;
	struct wf_record record;

	while (taken < 20000) {
		record = (struct wf_record){ .kind = WF_RECORD_FRAME };
		record.bytes = (uint16_t)(put * 7919 % (WF_PIPE_RECORD + 1));
		memset(out, (int)put, record.bytes);
		if (next_random(&random) % 3 && !wf_pipe_put(&writer, &record, out)) {
			put++;
			continue;
		}
		if (taken == put)
			continue;
		assert_int_equal(wf_pipe_look(&reader, &record), 1);
		assert_int_equal(record.bytes, taken * 7919 % (WF_PIPE_RECORD + 1));
		wf_pipe_take(&reader, &record, in);
		for (uint32_t i = 0; i < record.bytes; i++)
			assert_int_equal(in[i], (uint8_t)taken);
		taken++;
	}
	free(shared);
}

static void pipe_fills_up(void **state)
{
	struct wf_pipe_writer writer;
	struct wf_pipe_reader reader;
	struct wf_pipe_shared *shared = make_pipe(&writer, &reader);
	struct wf_record record = { .kind = WF_RECORD_IMMEDIATE };
	uint32_t put = 0;

	for (; !wf_pipe_put(&writer, &record, NULL); put++)
		record.immediate++;
	assert_int_equal(put, WF_PIPE_BYTES / sizeof(record));
	assert_true(wf_pipe_any(&reader));
	for (uint32_t i = 0; i < put; i++) {
		assert_int_equal(wf_pipe_look(&reader, &record), 1);
		assert_int_equal(record.immediate, i);
		wf_pipe_take(&reader, &record, NULL);
	}
	assert_int_equal(wf_pipe_look(&reader, &record), 0);
	assert_false(wf_pipe_any(&reader));
	assert_int_equal(wf_pipe_put(&writer, &record, NULL), 0);
	free(shared);
}

static int look_after(uint64_t written, struct wf_record record)
{
	struct wf_pipe_writer writer;
	struct wf_pipe_reader reader;
	struct wf_pipe_shared *shared = make_pipe(&writer, &reader);
	int got;

	memcpy(shared->ring, &record, sizeof(record));
	atomic_store(&shared->written, written);
	got = wf_pipe_look(&reader, &record);
	free(shared);
	return got;
}

static void pipe_checks_its_writer(void **state)
{
	assert_int_equal(look_after(16, (struct wf_record){ .kind = WF_RECORD_FRAME, .bytes = 8 }), 1);
	assert_int_equal(look_after(8, (struct wf_record){ .kind = WF_RECORD_FRAME, .bytes = 8 }), -EPROTO);
	assert_int_equal(look_after(WF_PIPE_BYTES + 8, (struct wf_record){ .kind = WF_RECORD_FRAME }), -EPROTO);
	assert_int_equal(look_after(UINT64_MAX - 7, (struct wf_record){ .kind = WF_RECORD_FRAME }), -EPROTO);
	assert_int_equal(look_after(9, (struct wf_record){ .kind = WF_RECORD_FRAME }), -EPROTO);
	assert_int_equal(look_after(8, (struct wf_record){ .kind = 3 }), -EPROTO);
	assert_int_equal(look_after(16, (struct wf_record){ .kind = WF_RECORD_IMMEDIATE, .bytes = 8 }), -EPROTO);
	assert_int_equal(look_after(WF_PIPE_BYTES, (struct wf_record){ .kind = WF_RECORD_FRAME, .bytes = 8200 }),
			 -EPROTO);
}

static void pipe_checks_its_reader(void **state)
{
	struct wf_pipe_writer writer;
	struct wf_pipe_reader reader;
	struct wf_pipe_shared *shared = make_pipe(&writer, &reader);
	struct wf_record record = { .kind = WF_RECORD_IMMEDIATE };

	while (!wf_pipe_put(&writer, &record, NULL))
		;
	atomic_store(&shared->read, WF_PIPE_BYTES + 8); /* more than was written */
	assert_int_equal(wf_pipe_put(&writer, &record, NULL), -EPROTO);
	free(shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pipe_keeps_order),
		cmocka_unit_test(pipe_fills_up),
		cmocka_unit_test(pipe_checks_its_writer),
		cmocka_unit_test(pipe_checks_its_reader),
	};

	return cmocka_run_group_tests_name("pipe", tests, NULL, NULL);
}
