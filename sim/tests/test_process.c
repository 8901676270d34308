/* Two processes: data both ways, a peer that is killed, stopped or restarted, segments left behind. */
#include "../control.h"
#include "../wire.h"
#include "rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child reports: where its endpoint and memory are. */
struct card {
	uint8_t address[32];
	uint64_t base, key;
};

struct child {
	pid_t pid;
	int to, from; /* pipes */
	struct card card;
};

/* The child serves until its pipe closes: it reads its CQ, and answers each immediate n with n + 1. */
static void serve(int in, int out, const char *spec)
{
	struct card card = { 0 }, parent;
	struct fi_cq_data_entry entry;
	uint64_t end = now_ns() + 3 * RIG_DEADLINE;
	fi_addr_t back;
	struct rig rig;

	rig_open_spec(&rig, spec);
	signal(SIGTERM, SIG_DFL); /* libfabric's other providers catch it */
	memset(rig.memory, 0xc1, 65536);
	memcpy(card.address, rig.address, sizeof card.address);
	card.base = (uintptr_t)rig.memory;
	card.key = rig_key(&rig);
	if (write(out, &card, sizeof card) != sizeof card || read(in, &parent, sizeof parent) != sizeof parent)
		_exit(1);
	if (fi_av_insert(rig.av, parent.address, 1, &back, 0, NULL) != 1)
		_exit(1);
	while (now_ns() < end) {
		ssize_t n = fi_cq_read(rig.cq, &entry, 1);

		if (n == 1 && (entry.flags & FI_REMOTE_CQ_DATA))
			fi_writedata(rig.ep, rig.memory, 65536, fi_mr_desc(rig.mr), entry.data + 1, back, parent.base,
				     parent.key, NULL);
		if (getppid() == 1)
			break;
	}
	_exit(0);
}

static void start_child(struct child *child, const char *spec)
{
	int down[2], up[2];

	assert_int_equal(pipe(down), 0);
	assert_int_equal(pipe(up), 0);
	child->pid = fork();
	assert_true(child->pid >= 0);
	if (!child->pid) {
		close(down[1]);
		close(up[0]);
		serve(down[0], up[1], spec);
	}
	close(down[0]);
	close(up[1]);
	child->to = down[1];
	child->from = up[0];
	assert_int_equal(read(child->from, &child->card, sizeof child->card), sizeof child->card);
}

static void introduce(struct child *child, struct rig *rig)
{
	struct card card = { .base = (uintptr_t)rig->memory, .key = rig_key(rig) };

	memcpy(card.address, rig->address, sizeof card.address);
	assert_int_equal(write(child->to, &card, sizeof card), sizeof card);
}

static void end_child(struct child *child, int signal)
{
	int status;

	kill(child->pid, signal);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	close(child->to);
	close(child->from);
}

static ssize_t write_child(struct rig *rig, fi_addr_t to, struct child *child, size_t bytes, int slot, uint64_t data)
{
	return fi_writedata(rig->ep, rig->memory, bytes, fi_mr_desc(rig->mr), data, to, child->card.base,
			    child->card.key, &rig->context[slot]);
}

static fi_addr_t insert(struct rig *rig, struct child *child)
{
	fi_addr_t to;

	assert_int_equal(fi_av_insert(rig->av, child->card.address, 1, &to, 0, NULL), 1);
	return to;
}

static void both_ways(void **state)
{
	static const char *const specs[] = { "p5", "verbs", "p5,personality=efa-direct", "null,copy=full" };

	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct fi_cq_data_entry entry;
		struct fi_cq_err_entry error;
		struct child child;
		struct rig rig;
		fi_addr_t to;

		if (strstr(specs[i], "direct"))
			continue; /* the child's answer has no context storage */
		start_child(&child, specs[i]);
		rig_open_spec(&rig, specs[i]);
		introduce(&child, &rig);
		to = insert(&rig, &child);
		assert_int_equal(write_child(&rig, to, &child, 4096, 1, 41), 0);
		rig_expect(&rig, NULL, &rig.context[1]);
		assert_int_equal(rig_wait(&rig, NULL, &entry, &error), 1);
		assert_int_equal(entry.data, 42);
		assert_int_equal(rig.memory[65535], 0xc1); /* its bytes, in our memory */
		assert_int_equal(rig.memory[0], 0);        /* ours had landed there first */
		assert_int_equal(fi_read(rig.ep, rig.memory + 100000, 8192, fi_mr_desc(rig.mr), to, child.card.base,
					 child.card.key, &rig.context[2]),
				 0);
		rig_expect(&rig, NULL, &rig.context[2]);
		assert_int_equal(rig.memory[100000], 0);
		assert_int_equal(rig.memory[100000 + 8000], 0xc1);
		end_child(&child, SIGTERM);
		rig_close(&rig);
	}
}

static void killed_peer(void **state)
{
	struct child child;
	struct rig rig;
	fi_addr_t to;

	start_child(&child, "p5");
	rig_open_spec(&rig, "p5,unresponsive=50ms");
	introduce(&child, &rig);
	to = insert(&rig, &child);
	assert_int_equal(write_child(&rig, to, &child, 8, 0, 1), 0);
	rig_expect(&rig, NULL, &rig.context[0]);
	end_child(&child, SIGKILL);
	for (int i = 1; i < 4; i++)
		assert_int_equal(write_child(&rig, to, &child, 8, i, 1), 0);
	for (int i = 1; i < 4; i++) {
		struct fi_cq_data_entry entry;
		struct fi_cq_err_entry error;
		int got = rig_wait(&rig, NULL, &entry, &error);

		/* The answer to our first write may have come in before the child died. */
		if (got == 1 && (entry.flags & FI_REMOTE_CQ_DATA) && i--)
			continue;
		assert_int_equal(got, -FI_EAVAIL);
		assert_int_equal(error.prov_errno, 13);
		assert_int_equal(error.err, FI_ECONNABORTED);
	}
	rig_close(&rig);
}

static void killed_peer_that_never_answers(void **state)
{
	struct child child;
	struct rig rig;
	fi_addr_t to;

	start_child(&child, "p5,nics=1");
	rig_open_spec(&rig, "p5,unresponsive=never,copy=none");
	to = insert(&rig, &child);
	assert_int_equal(write_child(&rig, to, &child, 8, 0, 1), 0);
	rig_expect(&rig, NULL, &rig.context[0]);
	end_child(&child, SIGKILL);
	rig_expect_nothing(&rig, 2000000); /* until its death is noticed */
	assert_int_equal(write_child(&rig, to, &child, 8, 1, 1), 0);
	rig_expect_nothing(&rig, 20000000);
	rig_close(&rig); /* and closing does not wait for it */
}

static void stopped_peer(void **state)
{
	struct child child;
	struct rig rig;
	fi_addr_t to;

	start_child(&child, "p5");
	rig_open_spec(&rig, "p5");
	to = insert(&rig, &child);
	kill(child.pid, SIGSTOP);
	rig.memory[0] = 0x77;
	assert_int_equal(write_child(&rig, to, &child, 8, 0, 1), 0);
	rig_expect(&rig, NULL, &rig.context[0]); /* its NIC goes on working */
	assert_int_equal(fi_read(rig.ep, rig.memory + 64, 8, fi_mr_desc(rig.mr), to, child.card.base, child.card.key,
				 &rig.context[1]),
			 0);
	rig_expect(&rig, NULL, &rig.context[1]);
	assert_int_equal(rig.memory[64], 0x77);
	end_child(&child, SIGKILL);
	rig_close(&rig);
}

static int segments_of(pid_t pid)
{
	char prefix[64];
	struct dirent *entry;
	DIR *dir = opendir("/dev/shm");
	int n = 0;

	snprintf(prefix, sizeof prefix, "simfab-%u-%d-", (unsigned)geteuid(), (int)pid);
	while ((entry = readdir(dir)))
		n += !strncmp(entry->d_name, prefix, strlen(prefix));
	closedir(dir);
	return n;
}

static void open_and_close(void)
{
	struct rig rig;

	rig_open_spec(&rig, "p5");
	rig_close(&rig);
}

/* Simulates a sender that died between claiming an arrival and filling it. */
static void half_announced(void **state)
{
	char path[128];
	struct wire_endpoint *wire;
	struct wire_address address;
	struct rig a, b;
	uint64_t start;
	fi_addr_t ab;
	int fd;

	rig_open_spec(&a, "p5");
	rig_open_spec(&b, "p5");
	ab = rig_connect(&a, &b);
	memcpy(&address, b.address, sizeof address);
	snprintf(path, sizeof path, "/dev/shm/simfab-%u-%d-%08x", (unsigned)geteuid(), (int)address.pid, address.id);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	wire = mmap(NULL, sizeof *wire, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(wire, MAP_FAILED);
	atomic_fetch_add(&wire->arrival_tail, 1);
	assert_int_equal(rig_write(&a, ab, &b, 8, 0, FI_REMOTE_CQ_DATA), 0);
	rig_expect(&a, NULL, &a.context[0]);
	start = now_ns();
	rig_expect(&b, NULL, NULL);                 /* it is skipped, and the living sender is heard */
	assert_true(now_ns() - start >= 299000000); /* not before any living sender would have filled it */
	munmap(wire, sizeof *wire);
	close(fd);
	rig_close(&a);
	rig_close(&b);
}

static void segments(void **state)
{
	struct child child;
	int status, left;
	pid_t other;

	open_and_close();
	assert_int_equal(segments_of(getpid()), 0); /* closing removes ours */
	start_child(&child, "p5");
	assert_int_equal(segments_of(child.pid), 2);
	/* A process that starts leaves the segments of living processes alone. */
	other = fork();
	if (!other) {
		open_and_close();
		_exit(0);
	}
	assert_int_equal(waitpid(other, &status, 0), other);
	assert_int_equal(status, 0);
	assert_int_equal(segments_of(child.pid), 2);
	kill(child.pid, SIGKILL);
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	left = segments_of(child.pid); /* it could not clean up; another process that started meanwhile may have */
	assert_true(left == 2 || left == 0);
	other = fork();
	if (!other) {
		open_and_close();
		_exit(0);
	}
	assert_int_equal(waitpid(other, &status, 0), other);
	assert_int_equal(segments_of(child.pid), 0); /* the next process to start cleans up */
	close(child.to);
	close(child.from);
}

static void fault_from_another_process(void **state)
{
	char path[64], spec[128], error[256];
	struct sim_control *control = rig_control(path);
	struct child child;
	struct rig rig;
	fi_addr_t to;
	pid_t other;
	int status;

	snprintf(spec, sizeof spec, "p5,control=%s,name=far", path);
	start_child(&child, spec);
	snprintf(spec, sizeof spec, "p5,control=%s,name=near,unresponsive=never", path);
	rig_open_spec(&rig, spec);
	to = insert(&rig, &child);
	assert_int_equal(write_child(&rig, to, &child, 8, 0, 1), 0);
	rig_expect(&rig, NULL, &rig.context[0]);
	other = fork();
	if (!other)
		_exit(sim_control_set(control, "host=far,fault=dead", error, sizeof error) < 0);
	assert_int_equal(waitpid(other, &status, 0), other);
	assert_int_equal(status, 0);
	assert_int_equal(write_child(&rig, to, &child, 8, 1, 1), 0);
	rig_expect_nothing(&rig, 3000000);
	assert_int_equal(sim_control_clear(control, -1), 1);
	rig_expect(&rig, NULL, &rig.context[1]);
	end_child(&child, SIGTERM);
	rig_close(&rig);
	sim_control_close(control);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ways),
		cmocka_unit_test(killed_peer),
		cmocka_unit_test(killed_peer_that_never_answers),
		cmocka_unit_test(stopped_peer),
		cmocka_unit_test(half_announced),
		cmocka_unit_test(segments),
		cmocka_unit_test(fault_from_another_process),
	};

	return cmocka_run_group_tests_name("processes", tests, NULL, NULL);
}
