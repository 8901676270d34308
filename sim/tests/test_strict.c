/* Strict mode: each misuse stops the process with a message, in a child; proper use does not. */
#include "rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPEC "p5,strict=1,handshake=0,latency=5ms"

struct pair {
	struct rig a, b;
	fi_addr_t ab;
};

static void open_pair(struct pair *p, const char *spec)
{
	rig_open_spec(&p->a, spec);
	rig_open_spec(&p->b, spec);
	p->ab = rig_connect(&p->a, &p->b);
}

static void dangling_more(void)
{
	struct fi_cq_data_entry entry;
	struct pair p;

	open_pair(&p, SPEC);
	rig_write(&p.a, p.ab, &p.b, 8, 0, FI_MORE);
	fi_cq_read(p.a.cq, &entry, 1);
}

static void region_closed_in_flight(void)
{
	struct pair p;

	open_pair(&p, SPEC);
	rig_write(&p.a, p.ab, &p.b, 8, 0, 0);
	fi_close(&p.a.mr->fid);
}

static void context_in_flight_twice(void)
{
	struct pair p;

	open_pair(&p, SPEC);
	rig_write(&p.a, p.ab, &p.b, 8, 0, 0);
	rig_write(&p.a, p.ab, &p.b, 8, 0, 0);
}

static void context_overwritten(void)
{
	struct pair p;

	open_pair(&p, SPEC ",personality=efa-direct");
	rig_write(&p.a, p.ab, &p.b, 8, 0, 0);
	memset(&p.a.context[0], 0, sizeof p.a.context[0]);
	rig_expect(&p.a, NULL, &p.a.context[0]);
}

static void remote_key_of_another_nic(void)
{
	const struct rig_options second = { .spec = SPEC, .nic = 1, .threading = FI_THREAD_DOMAIN };
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error;
	struct pair p;
	struct rig c;

	open_pair(&p, SPEC);
	rig_open(&c, &second);
	fi_write(p.a.ep, p.a.memory, 8, fi_mr_desc(p.a.mr), p.ab, (uintptr_t)c.memory, rig_key(&c), NULL);
	rig_wait(&p.a, NULL, &entry, &error);
}

static void descriptor_of_another_nic(void)
{
	const struct rig_options second = { .spec = SPEC, .nic = 1, .threading = FI_THREAD_DOMAIN };
	struct pair p;
	struct rig c;

	open_pair(&p, SPEC);
	rig_open(&c, &second);
	fi_write(p.a.ep, c.memory, 8, fi_mr_desc(c.mr), p.ab, (uintptr_t)p.b.memory, rig_key(&p.b), NULL);
}

#define EFA SPEC ",as=efa"

static void more_before_one_landed(void)
{
	struct pair p;

	open_pair(&p, EFA);
	rig_write(&p.a, p.ab, &p.b, 8, 0, FI_MORE);
}

/* Nothing has landed at c: its write may be held back, and then does not ring for b's. */
static void more_before_a_newcomer(void)
{
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error;
	struct pair p;
	fi_addr_t ac;
	struct rig c;

	open_pair(&p, EFA);
	rig_open_spec(&c, EFA);
	ac = rig_connect(&p.a, &c);
	rig_write(&p.a, p.ab, &p.b, 8, 0, 0);
	rig_wait(&p.a, NULL, &entry, &error);
	rig_write(&p.a, p.ab, &p.b, 8, 0, FI_MORE);
	rig_write(&p.a, ac, &c, 8, 1, 0);
}

static struct rig shared;
static _Atomic int inside;

static void *reads(void *unused)
{
	uint64_t end = now_ns() + RIG_DEADLINE;
	struct fi_cq_data_entry entry;

	inside++;
	while (now_ns() < end)
		fi_cq_read(shared.cq, &entry, 1);
	return NULL;
}

static void two_threads(void)
{
	pthread_t thread;

	rig_open_spec(&shared, SPEC ",poll_ns=100000");
	if (!pthread_create(&thread, NULL, reads, NULL))
		reads(NULL);
}

static void misuse_stops(void **state)
{
	assert_true(rig_dies(dangling_more, "strict: CQ of NIC 0 read while 1 requests posted with FI_MORE"));
	assert_true(rig_dies(region_closed_in_flight, "strict: region with key"));
	assert_true(rig_dies(context_in_flight_twice, "posted again while still in flight"));
	assert_true(rig_dies(context_overwritten, "was written to while its request was in flight"));
	assert_true(rig_dies(remote_key_of_another_nic, "belongs to NIC 1 of the peer"));
	assert_true(rig_dies(descriptor_of_another_nic, "of NIC 1 used on NIC 0"));
	assert_true(rig_dies(more_before_one_landed, "FI_MORE to a peer with which nothing has completed"));
	assert_true(rig_dies(more_before_a_newcomer, "FI_MORE before a request that EFA 2.x may hold back"));
}

static void threads_stop(void **state)
{
	assert_true(rig_dies(two_threads, "in one domain at once under FI_THREAD_DOMAIN"));
}

static void proper_use_does_not(void **state)
{
	static const char *const specs[] = { SPEC, SPEC ",personality=efa-direct", "verbs,strict=1" };

	for (size_t s = 0; s < 3; s++) {
		struct pair p;

		open_pair(&p, specs[s]);
		for (int round = 0; round < 3; round++) {
			for (int i = 0; i < 8; i++)
				assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, i, i < 7 ? FI_MORE : 0), 0);
			for (int i = 0; i < 8; i++) {
				struct fi_cq_data_entry entry;
				struct fi_cq_err_entry error;

				assert_int_equal(rig_wait(&p.a, NULL, &entry, &error), 1);
			}
		}
		rig_close(&p.a);
		rig_close(&p.b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(misuse_stops),
		cmocka_unit_test(threads_stop),
		cmocka_unit_test(proper_use_does_not),
	};

	return cmocka_run_group_tests_name("strict", tests, NULL, NULL);
}
