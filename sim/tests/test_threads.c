/* Threads: a shared domain under FI_THREAD_SAFE, domains that talk across threads, and closing under fire. */
#include "rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define WRITES 2000

static struct rig near, far;
static fi_addr_t to_far;
static _Atomic int completed, stop;
static _Atomic uint64_t far_key;

static void run(void *(*body)(void *), pthread_t *thread)
{
	assert_int_equal(pthread_create(thread, NULL, body, NULL), 0);
}

/* Posts its share and reads any completion, its own or not. Asserts work only on the main thread. */
static void *post_and_read(void *unused)
{
	uint64_t end = now_ns() + RIG_DEADLINE;
	struct fi_cq_data_entry entry[8];

	for (int posted = 0; posted < WRITES && now_ns() < end;) {
		ssize_t n;

		if (!fi_write(near.ep, near.memory, 64, NULL, to_far, (uintptr_t)far.memory, rig_key(&far), NULL))
			posted++;
		n = fi_cq_read(near.cq, entry, 8);
		if (n > 0)
			completed += (int)n;
	}
	return NULL;
}

static void one_domain_many_threads(void **state)
{
	const struct rig_options safe = { .spec = "p5,tx=64,latency=1us", .threading = FI_THREAD_SAFE };
	uint64_t end = now_ns() + RIG_DEADLINE;
	struct fi_cq_data_entry entry[8];
	pthread_t thread[4];

	rig_open(&near, &safe);
	rig_open(&far, &safe);
	to_far = rig_connect(&near, &far);
	completed = 0;
	for (int i = 0; i < 4; i++)
		run(post_and_read, &thread[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	while (completed < 4 * WRITES && now_ns() < end) {
		ssize_t n = fi_cq_read(near.cq, entry, 8);

		completed += n > 0 ? (int)n : 0;
	}
	assert_int_equal(completed, 4 * WRITES);
	rig_close(&near);
	rig_close(&far);
}

/* The far host's own thread: keeps receives posted and counts arrivals. */
static void *receive(void *unused)
{
	struct fi_cq_data_entry entry[8];
	uint64_t end = now_ns() + RIG_DEADLINE;
	int posted = 0;

	while (!stop && now_ns() < end) {
		ssize_t n;

		while (posted < 32 && !fi_recv(far.ep, far.memory, 64, NULL, FI_ADDR_UNSPEC, NULL))
			posted++;
		n = fi_cq_read(far.cq, entry, 8);
		for (ssize_t i = 0; i < n; i++) {
			posted -= (entry[i].flags & FI_RECV) != 0;
			completed++;
		}
	}
	return NULL;
}

static void two_domains_two_threads(void **state)
{
	uint64_t end = now_ns() + RIG_DEADLINE;
	struct fi_cq_data_entry entry[8];
	int posted = 0, done = 0;
	pthread_t thread;

	rig_open_spec(&near, "p5,latency=1us,rnr_retries=1000000");
	rig_open_spec(&far, "p5,latency=1us");
	to_far = rig_connect(&near, &far);
	completed = stop = 0;
	run(receive, &thread);
	while (done < WRITES && now_ns() < end) {
		ssize_t rc = -FI_EAGAIN, n;

		if (posted < WRITES && posted % 2)
			rc = rig_send(&near, to_far, 64, 0);
		else if (posted < WRITES)
			rc = rig_write(&near, to_far, &far, 64, 1, FI_REMOTE_CQ_DATA);
		posted += !rc;
		n = fi_cq_read(near.cq, entry, 8);
		assert_true(n > 0 || n == -FI_EAGAIN);
		done += n > 0 ? (int)n : 0;
	}
	assert_int_equal(done, WRITES);
	while (completed < WRITES && now_ns() < end)
		;
	assert_int_equal(completed, WRITES);
	stop = 1;
	pthread_join(thread, NULL);
	rig_close(&near);
	rig_close(&far);
}

/* Writes to the current key until told to stop; errors are fine, late bytes are not. */
static void *write_for_ever(void *unused)
{
	struct fi_cq_data_entry entry[8];
	struct fi_cq_err_entry error;
	uint64_t end = now_ns() + RIG_DEADLINE;

	memset(near.memory, 0xaa, 4096);
	while (!stop && now_ns() < end) {
		ssize_t n;

		(void)fi_write(near.ep, near.memory, 4096, NULL, to_far, (uintptr_t)far.memory, far_key, NULL);
		n = fi_cq_read(near.cq, entry, 8);
		if (n > 0)
			completed += (int)n;
		memset(&error, 0, sizeof error);
		if (n == -FI_EAVAIL)
			(void)fi_cq_readerr(near.cq, &error, 0);
	}
	return NULL;
}

static void region_closed_under_fire(void **state)
{
	uint64_t end = now_ns() + RIG_DEADLINE;
	pthread_t thread;

	rig_open_spec(&near, "null,copy=full");
	rig_open_spec(&far, "null");
	to_far = rig_connect(&near, &far);
	completed = stop = 0;
	far_key = rig_key(&far);
	run(write_for_ever, &thread);
	for (int round = 0; round < 200; round++) {
		int before = completed;
		struct fid_mr *mr;

		assert_int_equal(fi_mr_reg(far.domain, far.memory, 4096, FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL), 0);
		far_key = fi_mr_key(mr);
		while (completed == before && now_ns() < end)
			;
		if (round == 0) { /* the rig's own region covers the same memory and must go first */
			assert_int_equal(fi_close(&far.mr->fid), 0);
			far.mr = NULL;
		}
		assert_int_equal(fi_close(&mr->fid), 0);
		/* The memory may be reused from this instant: a late writer corrupts this (and ThreadSanitizer sees
		 * it). */
		memset(far.memory, round, 4096);
		for (int i = 0; i < 4096; i++)
			assert_int_equal(far.memory[i], (uint8_t)round);
	}
	stop = 1;
	pthread_join(thread, NULL);
	rig_close(&near);
	rig_close(&far);
}

static void *send_for_ever(void *unused)
{
	struct fi_cq_data_entry entry[8];
	struct fi_cq_err_entry error;
	uint64_t end = now_ns() + RIG_DEADLINE;

	while (!stop && now_ns() < end) {
		ssize_t n;

		(void)fi_send(near.ep, near.memory, 256, NULL, to_far, NULL);
		n = fi_cq_read(near.cq, entry, 8);
		if (n > 0)
			completed += (int)n;
		memset(&error, 0, sizeof error);
		if (n == -FI_EAVAIL)
			(void)fi_cq_readerr(near.cq, &error, 0);
	}
	return NULL;
}

static void endpoint_closed_under_fire(void **state)
{
	for (int round = 0; round < 10; round++) {
		uint64_t end = now_ns() + RIG_DEADLINE;
		struct fi_cq_data_entry entry[8];
		pthread_t thread;

		rig_open_spec(&near, "null,rnr=1us,rnr_retries=1000000");
		rig_open_spec(&far, "null");
		to_far = rig_connect(&near, &far);
		completed = stop = 0;
		memset(near.memory, 0xaa, 256);
		for (int i = 0; i < 500; i++)
			assert_int_equal(fi_recv(far.ep, far.memory, 256, NULL, FI_ADDR_UNSPEC, NULL), 0);
		run(send_for_ever, &thread);
		while (completed < 50 && now_ns() < end)
			(void)fi_cq_read(far.cq, entry, 8);
		assert_int_equal(fi_close(&far.ep->fid), 0);
		far.ep = NULL;
		memset(far.memory, 1, 256);
		for (int i = 0; i < 256; i++)
			assert_int_equal(far.memory[i], 1);
		stop = 1;
		pthread_join(thread, NULL);
		rig_close(&near);
		rig_close(&far);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_domain_many_threads),
		cmocka_unit_test(two_domains_two_threads),
		cmocka_unit_test(region_closed_under_fire),
		cmocka_unit_test(endpoint_closed_under_fire),
	};

	return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
