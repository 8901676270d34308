/* Each fault of the control file, set while the NICs run. */
#include "../control.h"
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_control *control;
static char path[64];

struct pair {
	struct rig a, b;
	fi_addr_t ab;
};

static void open_host(struct rig *rig, const char *name, const char *more, int nic)
{
	char spec[256];
	struct rig_options options = { .spec = spec, .nic = nic, .threading = FI_THREAD_DOMAIN };

	snprintf(spec, sizeof spec, "p5,control=%s,name=%s,handshake=0%s", path, name, more);
	rig_open(rig, &options);
}

static void open_pair(struct pair *p, const char *more)
{
	open_host(&p->a, "a", more, 0);
	open_host(&p->b, "b", more, 0);
	p->ab = rig_connect(&p->a, &p->b);
	/* Opens the path and waits until it is quiet. */
	assert_int_equal(rig_write(&p->a, p->ab, &p->b, 8, 63, 0), 0);
	rig_expect(&p->a, NULL, &p->a.context[63]);
}

static void close_pair(struct pair *p)
{
	rig_close(&p->a);
	rig_close(&p->b);
	assert_true(sim_control_clear(control, -1) >= 0);
}

static int set(const char *rule)
{
	char error[256];
	int number = sim_control_set(control, rule, error, sizeof error);

	if (number < 0)
		fail_msg("%s: %s", rule, error);
	return number;
}

static void clear(int number)
{
	assert_int_equal(sim_control_clear(control, number), 1);
}

static void error_status(void **state)
{
	static const struct {
		int status, err;
	} table[] = { { 1, FI_ECANCELED }, { 5, FI_EINVAL },        { 7, FI_EINVAL },       { 9, FI_ENOTCONN },
		      { 10, FI_ENORX },    { 13, FI_ECONNABORTED }, { 15, FI_EHOSTUNREACH } };
	struct pair p;

	open_pair(&p, "");
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct fi_cq_err_entry error;
		char rule[64];
		int number;

		snprintf(rule, sizeof rule, "op=write,count=1,fault=error:%d", table[i].status);
		number = set(rule);
		memset(p.b.memory, 0, 64);
		memset(p.a.memory, 1, 64);
		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 64, 4, 0), 0);
		error = rig_expect_error(&p.a, NULL, table[i].status);
		assert_int_equal(error.err, table[i].err);
		assert_ptr_equal(error.op_context, &p.a.context[4]);
		assert_int_equal(p.b.memory[0], 0); /* it did not land */
		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 64, 5, 0), 0);
		rig_expect(&p.a, NULL, &p.a.context[5]);
		clear(number);
	}
	close_pair(&p);
}

static void only_where_told(void **state)
{
	struct pair p;
	struct rig c;
	fi_addr_t ac;

	open_pair(&p, "");
	open_host(&c, "c", "", 0);
	ac = rig_connect(&p.a, &c);
	set("host=a,peer=b,nic=0,op=write,fault=error:15");
	assert_int_equal(rig_write(&p.a, ac, &c, 8, 0, 0), 0); /* another peer */
	rig_expect(&p.a, NULL, &p.a.context[0]);
	assert_int_equal(fi_read(p.a.ep, p.a.memory, 8, fi_mr_desc(p.a.mr), p.ab, (uintptr_t)p.b.memory, rig_key(&p.b),
				 &p.a.context[1]),
			 0); /* another operation */
	rig_expect(&p.a, NULL, &p.a.context[1]);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 2, 0), 0);
	rig_expect_error(&p.a, NULL, 15);
	sim_control_clear(control, -1);
	set("nic=1,fault=error:15"); /* another NIC */
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 3, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[3]);
	rig_close(&c);
	close_pair(&p);
}

static void after_n(void **state)
{
	struct pair p;

	open_pair(&p, "");
	set("op=write,after=3,count=1,fault=error:15");
	for (int i = 0; i < 5; i++) {
		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, i, 0), 0);
		if (i == 3)
			rig_expect_error(&p.a, NULL, 15);
		else
			rig_expect(&p.a, NULL, &p.a.context[i]);
	}
	close_pair(&p);
}

static void drop(void **state)
{
	struct pair p;

	open_pair(&p, "");
	set("count=1,fault=drop");
	p.a.memory[0] = 9;
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, FI_REMOTE_CQ_DATA), 0);
	rig_expect_nothing(&p.a, 3000000);
	rig_expect_nothing(&p.b, 1000);
	assert_int_equal(p.b.memory[0], 0);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 1, 0), 0); /* the next one is fine */
	rig_expect(&p.a, NULL, &p.a.context[1]);
	close_pair(&p);
}

static void delay(void **state)
{
	uint64_t start, posted, end = now_ns() + RIG_DEADLINE;
	struct fi_cq_data_entry first;
	struct fi_cq_err_entry error;
	struct pair p;

	open_pair(&p, "");
	do { /* until the second is posted before the first is due: the machine may be busy */
		int number = set("count=1,fault=delay:20ms");

		start = now_ns();
		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 1, 0), 0);
		posted = now_ns();
		assert_int_equal(rig_wait(&p.a, NULL, &first, &error), 1);
		rig_expect(&p.a, NULL, &p.a.context[first.op_context == &p.a.context[1] ? 0 : 1]);
		assert_true(now_ns() - start >= 20000000);
		clear(number);
	} while (posted - start >= 19000000 && now_ns() < end);
	assert_ptr_equal(first.op_context, &p.a.context[1]); /* overtakes */
	close_pair(&p);
}

static void duplicate(void **state)
{
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error;
	struct pair p;

	open_pair(&p, "");
	set("count=1,fault=dup");
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 2, FI_REMOTE_CQ_DATA), 0);
	rig_expect(&p.a, NULL, &p.a.context[2]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig_wait(&p.b, NULL, &entry, &error), 1);
		assert_int_equal(entry.data, 0xfeed0002u);
	}
	rig_expect_nothing(&p.b, 100000);
	close_pair(&p);
}

static void eagain(void **state)
{
	struct pair p;

	open_pair(&p, "");
	set("op=write,fault=eagain:5");
	for (int i = 0; i < 5; i++)
		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), -FI_EAGAIN);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	close_pair(&p);
}

static void refused(void **state)
{
	struct pair p;

	open_pair(&p, "");
	set("op=write,count=1,fault=refuse:107");
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), -FI_ENOTCONN);
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	close_pair(&p);
}

static void receiver_not_ready(void **state)
{
	struct pair p;

	open_pair(&p, ",rnr=10us,rnr_retries=5");
	set("op=send,count=1,fault=rnr:3");
	for (int i = 0; i < 3; i++)
		assert_int_equal(rig_recv(&p.b, 0, 8, i), 0);
	assert_int_equal(rig_send(&p.a, p.ab, 8, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]); /* after three back-offs */
	rig_expect(&p.b, NULL, &p.b.context[0]);
	sim_control_clear(control, -1);
	set("op=send,count=1,fault=rnr");
	assert_int_equal(rig_send(&p.a, p.ab, 8, 1), 0);
	assert_int_equal(rig_expect_error(&p.a, NULL, 10).err, FI_ENORX);
	close_pair(&p);
}

static void link_down_and_up(void **state)
{
	struct pair p;
	int number;

	open_pair(&p, ",unresponsive=never");
	number = set("host=b,nic=0,fault=down"); /* the far end's */
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	rig_expect_nothing(&p.a, 3000000);
	clear(number);
	rig_expect(&p.a, NULL, &p.a.context[0]); /* the link is back, and the write completes */
	number = set("host=a,nic=0,fault=down"); /* ours */
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 1, 0), 0);
	rig_expect_nothing(&p.a, 3000000);
	clear(number);
	rig_expect(&p.a, NULL, &p.a.context[1]);
	close_pair(&p);
	open_pair(&p, ",unresponsive=20ms");
	set("nic=0,fault=down");
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 2, 0), 0);
	assert_int_equal(rig_expect_error(&p.a, NULL, 13).err, FI_ECONNABORTED);
	close_pair(&p);
}

static void link_down_while_in_flight(void **state)
{
	struct pair p;

	open_pair(&p, ",latency=5ms,unresponsive=never");
	p.a.memory[0] = 3;
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	set("nic=0,fault=down");
	rig_expect_nothing(&p.a, 10000000);
	assert_int_equal(p.b.memory[0], 0);
	close_pair(&p);
}

/* Returns the shortest of three times for a megabyte, or of more until one is below `most`: the machine may be busy,
 * but is never faster than the model. */
static uint64_t time_of_write(struct pair *p, uint64_t most)
{
	uint64_t least = UINT64_MAX, end = now_ns() + RIG_DEADLINE;

	for (int n = 0; n < 3 || (least >= most && now_ns() < end); n++) {
		int i = n % 3;
		uint64_t start = now_ns(), took;

		assert_int_equal(rig_write(&p->a, p->ab, &p->b, RIG_BYTES, i, 0), 0);
		rig_expect(&p->a, NULL, &p->a.context[i]);
		took = now_ns() - start;
		if (took < least)
			least = took;
	}
	return least;
}

static void slow_link(void **state)
{
	struct pair p;
	int number;

	open_pair(&p, ",rate=8G,copy=none"); /* a megabyte takes a millisecond */
	assert_true(time_of_write(&p, UINT64_MAX) >= 1000000);
	number = set("host=b,nic=0,fault=slow:10");
	assert_true(time_of_write(&p, UINT64_MAX) >= 10000000);
	clear(number);
	assert_true(time_of_write(&p, 10000000) < 10000000);
	close_pair(&p);
}

static void dead_host(void **state)
{
	struct pair p;
	struct rig c;
	fi_addr_t ac;

	open_pair(&p, ",unresponsive=20ms");
	open_host(&c, "c", "", 0);
	ac = rig_connect(&p.a, &c);
	set("host=b,fault=dead");
	assert_int_equal(rig_write(&p.a, ac, &c, 8, 1, 0), 0); /* first, so that the other's end has its time too */
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[1]); /* other hosts live */
	rig_expect_error(&p.a, NULL, 13);
	rig_close(&c);
	close_pair(&p);
}

/* Entries as some providers make them: one that does not name its request, one with a negative code. */
static void odd_entries(void **state)
{
	struct fi_cq_err_entry error;
	struct pair p;

	open_pair(&p, "");
	set("count=1,fault=anonymous:9");
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	error = rig_expect_error(&p.a, NULL, 9);
	assert_null(error.op_context);
	assert_int_equal(error.err, FI_ENOTCONN);
	rig_expect_nothing(&p.a, 2000000);
	assert_true(sim_control_clear(control, -1) >= 0);
	set("count=1,fault=negative:9");
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 1, 0), 0);
	error = rig_expect_error(&p.a, NULL, 9);
	assert_ptr_equal(error.op_context, &p.a.context[1]);
	assert_int_equal(error.err, -FI_ENOTCONN);
	close_pair(&p);
}

static void overrun(void **state)
{
	uint64_t end = now_ns() + RIG_DEADLINE;
	struct pair p;

	open_pair(&p, "");
	set("count=1,fault=overrun");
	p.a.memory[0] = 8;
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	while (p.b.memory[0] != 8 && now_ns() < end)
		rig_expect_nothing(&p.a, 1000);
	assert_int_equal(p.b.memory[0], 8); /* it landed; only the completion was lost */
	rig_expect_nothing(&p.a, 2000000);
	close_pair(&p);
}

static void registration(void **state)
{
	struct fid_mr *mr;
	struct pair p;

	open_pair(&p, "");
	set("host=a,op=reg,count=2,fault=reg:12");
	assert_int_equal(fi_mr_reg(p.a.domain, p.a.memory, 64, FI_SEND, 0, 0, 0, &mr, NULL), -FI_ENOMEM);
	assert_int_equal(fi_mr_reg(p.a.domain, p.a.memory, 64, FI_SEND, 0, 0, 0, &mr, NULL), -FI_ENOMEM);
	assert_int_equal(fi_mr_reg(p.a.domain, p.a.memory, 64, FI_SEND, 0, 0, 0, &mr, NULL), 0);
	assert_int_equal(fi_close(&mr->fid), 0);
	close_pair(&p);
}

static void internal_to_the_eq(void **state)
{
	struct fi_eq_err_entry error = { 0 };
	struct fi_eq_entry entry;
	uint32_t event;
	struct pair p;

	open_pair(&p, "");
	assert_int_equal(fi_eq_read(p.a.eq, &event, &entry, sizeof entry, 0), -FI_EAGAIN);
	set("count=1,fault=internal");
	assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
	rig_expect(&p.a, NULL, &p.a.context[0]);
	assert_int_equal(fi_eq_read(p.a.eq, &event, &entry, sizeof entry, 0), -FI_EAVAIL);
	assert_int_equal(fi_eq_readerr(p.a.eq, &error, 0), sizeof error);
	assert_ptr_equal(error.fid, &p.a.ep->fid);
	assert_int_equal(error.err, FI_EIO);
	assert_non_null(strstr(fi_eq_strerror(p.a.eq, error.prov_errno, NULL, NULL, 0), "internal"));
	assert_int_equal(fi_eq_read(p.a.eq, &event, &entry, sizeof entry, 0), -FI_EAGAIN);
	close_pair(&p);
}

static void no_eq(void)
{
	char spec[128];
	const struct rig_options options = { .spec = spec, .threading = FI_THREAD_DOMAIN, .no_eq = true };
	struct rig a;

	snprintf(spec, sizeof spec, "p5,control=%s,handshake=0", path);
	rig_open(&a, &options);
	rig_write(&a, rig_connect(&a, &a), &a, 8, 0, 0);
	rig_expect(&a, NULL, &a.context[0]);
}

static void internal_without_an_eq(void **state)
{
	set("count=1,fault=internal");
	assert_true(rig_dies(no_eq, "no event queue bound"));
	sim_control_clear(control, -1);
}

/* Lists which of 100 requests fail under p=0.2: the same for the same seed, another set for another seed. */
static void strikes(const char *seed, char text[101])
{
	struct pair p;
	char more[64];

	snprintf(more, sizeof more, ",seed=%s,reorder=0", seed);
	open_pair(&p, more);
	set("op=write,p=0.2,fault=error:15");
	for (int i = 0; i < 100; i++) {
		struct fi_cq_data_entry entry;
		struct fi_cq_err_entry error;

		assert_int_equal(rig_write(&p.a, p.ab, &p.b, 8, 0, 0), 0);
		text[i] = rig_wait(&p.a, NULL, &entry, &error) == 1 ? '.' : 'x';
	}
	text[100] = 0;
	close_pair(&p);
}

static void replay(void **state)
{
	char first[101], again[101], other[101];

	strikes("5", first);
	strikes("5", again);
	strikes("6", other);
	assert_string_equal(first, again);
	assert_string_not_equal(first, other);
	assert_non_null(strchr(first, 'x'));
}

static int begin(void **state)
{
	control = rig_control(path);
	return 0;
}

static int end(void **state)
{
	sim_control_close(control);
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(error_status),
		cmocka_unit_test(only_where_told),
		cmocka_unit_test(after_n),
		cmocka_unit_test(drop),
		cmocka_unit_test(delay),
		cmocka_unit_test(duplicate),
		cmocka_unit_test(eagain),
		cmocka_unit_test(refused),
		cmocka_unit_test(receiver_not_ready),
		cmocka_unit_test(link_down_and_up),
		cmocka_unit_test(link_down_while_in_flight),
		cmocka_unit_test(slow_link),
		cmocka_unit_test(dead_host),
		cmocka_unit_test(odd_entries),
		cmocka_unit_test(overrun),
		cmocka_unit_test(registration),
		cmocka_unit_test(internal_to_the_eq),
		cmocka_unit_test(internal_without_an_eq),
		cmocka_unit_test(replay),
	};

	return cmocka_run_group_tests_name("faults", tests, begin, end);
}
