/* Hosts for tests: see rig.h. */
#include "rig.h"
#include "../control.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct fi_info *rig_hints(enum fi_threading threading)
{
	struct fi_info *hints = fi_allocinfo();

	assert_non_null(hints);
	hints->caps = FI_MSG | FI_RMA | FI_SOURCE;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM;
	hints->domain_attr->threading = threading;
	hints->fabric_attr->prov_name = strdup("simfab");
	return hints;
}

struct fi_info *rig_info(const char *spec, const struct fi_info *hints)
{
	struct fi_info *info = NULL;

	setenv("SIMFAB", spec, 1);
	return fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &info) ? NULL : info;
}

void rig_open(struct rig *rig, const struct rig_options *o)
{
	struct fi_info *hints = rig_hints(o->threading);
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_DATA, .size = o->cq_size };
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_NONE };
	struct fi_info *info;
	size_t bytes = sizeof rig->address;

	if (strstr(o->spec, "as=efa")) { /* in a process that has not used another name yet */
		free(hints->fabric_attr->prov_name);
		hints->fabric_attr->prov_name = strdup("efa");
		hints->fabric_attr->name = strdup("efa"); /* not efa-direct */
		hints->caps |= FI_REMOTE_COMM;
	}
	memset(rig, 0, sizeof *rig);
	rig->info = info = rig_info(o->spec, hints);
	fi_freeinfo(hints);
	assert_non_null(info);
	for (int i = 0; i < o->nic; i++)
		info = info->next;
	rig->memory = mmap(NULL, RIG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(rig->memory, MAP_FAILED);
	assert_int_equal(fi_fabric(info->fabric_attr, &rig->fabric, NULL), 0);
	assert_int_equal(fi_domain(rig->fabric, info, &rig->domain, NULL), 0);
	assert_int_equal(fi_cq_open(rig->domain, &cq, &rig->cq, NULL), 0);
	assert_int_equal(fi_av_open(rig->domain, &av, &rig->av, NULL), 0);
	assert_int_equal(fi_endpoint(rig->domain, info, &rig->ep, NULL), 0);
	assert_int_equal(fi_ep_bind(rig->ep, &rig->cq->fid, FI_TRANSMIT | FI_RECV | o->cq_flags), 0);
	assert_int_equal(fi_ep_bind(rig->ep, &rig->av->fid, 0), 0);
	if (!o->no_eq) {
		assert_int_equal(fi_eq_open(rig->fabric, &eq, &rig->eq, NULL), 0);
		assert_int_equal(fi_ep_bind(rig->ep, &rig->eq->fid, 0), 0);
	}
	assert_int_equal(fi_enable(rig->ep), 0);
	assert_int_equal(fi_mr_reg(rig->domain, rig->memory, RIG_BYTES,
				   FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0,
				   &rig->mr, NULL),
			 0);
	assert_int_equal(fi_getname(&rig->ep->fid, rig->address, &bytes), 0);
	assert_int_equal(bytes, 32);
}

void rig_open_spec(struct rig *rig, const char *spec)
{
	const struct rig_options options = { .spec = spec, .threading = FI_THREAD_DOMAIN };

	rig_open(rig, &options);
}

void rig_close(struct rig *rig)
{
	if (rig->ep)
		assert_int_equal(fi_close(&rig->ep->fid), 0);
	if (rig->mr)
		assert_int_equal(fi_close(&rig->mr->fid), 0);
	assert_int_equal(fi_close(&rig->av->fid), 0);
	assert_int_equal(fi_close(&rig->cq->fid), 0);
	if (rig->eq)
		assert_int_equal(fi_close(&rig->eq->fid), 0);
	assert_int_equal(fi_close(&rig->domain->fid), 0);
	assert_int_equal(fi_close(&rig->fabric->fid), 0);
	fi_freeinfo(rig->info);
	munmap(rig->memory, RIG_BYTES);
}

fi_addr_t rig_connect(struct rig *from, struct rig *to)
{
	fi_addr_t addr = FI_ADDR_NOTAVAIL;

	assert_int_equal(fi_av_insert(from->av, to->address, 1, &addr, 0, NULL), 1);
	return addr;
}

uint64_t rig_key(struct rig *rig)
{
	return fi_mr_key(rig->mr);
}

ssize_t rig_write(struct rig *from, fi_addr_t to, struct rig *target, size_t bytes, int slot, uint64_t flags)
{
	struct iovec iov = { from->memory, bytes };
	struct fi_rma_iov remote = { (uintptr_t)target->memory, bytes, rig_key(target) };
	void *desc = fi_mr_desc(from->mr);
	struct fi_msg_rma msg = { .msg_iov = &iov,
				  .desc = &desc,
				  .iov_count = 1,
				  .addr = to,
				  .rma_iov = &remote,
				  .rma_iov_count = 1,
				  .context = &from->context[slot],
				  .data = 0xfeed0000u + (unsigned)slot };

	return fi_writemsg(from->ep, &msg, flags);
}

ssize_t rig_send(struct rig *from, fi_addr_t to, size_t bytes, int slot)
{
	return fi_send(from->ep, from->memory, bytes, fi_mr_desc(from->mr), to, &from->context[slot]);
}

ssize_t rig_recv(struct rig *rig, size_t offset, size_t bytes, int slot)
{
	return fi_recv(rig->ep, rig->memory + offset, bytes, fi_mr_desc(rig->mr), FI_ADDR_UNSPEC, &rig->context[slot]);
}

static void drive(struct rig *other)
{
	if (other)
		assert_int_equal(fi_cq_read(other->cq, NULL, 0), -FI_EAGAIN);
}

int rig_wait(struct rig *rig, struct rig *other, struct fi_cq_data_entry *entry, struct fi_cq_err_entry *error)
{
	uint64_t end = now_ns() + RIG_DEADLINE;

	while (now_ns() < end) {
		ssize_t n = fi_cq_read(rig->cq, entry, 1);

		if (n == 1)
			return 1;
		if (n == -FI_EAVAIL) {
			memset(error, 0, sizeof *error);
			assert_int_equal(fi_cq_readerr(rig->cq, error, 0), 1);
			return -FI_EAVAIL;
		}
		assert_int_equal(n, -FI_EAGAIN);
		drive(other);
	}
	fail_msg("no completion before the deadline");
	return 0;
}

void rig_expect(struct rig *rig, struct rig *other, void *context)
{
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error;

	if (rig_wait(rig, other, &entry, &error) != 1)
		fail_msg("error %d (%d) instead of a completion", error.err, error.prov_errno);
	assert_ptr_equal(entry.op_context, context);
}

struct fi_cq_err_entry rig_expect_error(struct rig *rig, struct rig *other, int status)
{
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error;

	assert_int_equal(rig_wait(rig, other, &entry, &error), -FI_EAVAIL);
	assert_int_equal(error.prov_errno, status);
	assert_non_null(fi_cq_strerror(rig->cq, error.prov_errno, NULL, NULL, 0));
	return error;
}

void rig_expect_nothing(struct rig *rig, uint64_t ns)
{
	uint64_t now, end = now_ns() + ns;
	struct fi_cq_data_entry entry;

	/* Once more when the time is over: reading is progress, and a test that was delayed has made none. */
	do {
		now = now_ns();
		assert_int_equal(fi_cq_read(rig->cq, &entry, 1), -FI_EAGAIN);
	} while (now < end);
}

static void run_child(void (*body)(void), int fd)
{
	const struct rlimit no_core = { 0, 0 };

	setrlimit(RLIMIT_CORE, &no_core);
	alarm(30); /* ends it whatever happens */
	dup2(fd, STDERR_FILENO);
	body();
	_exit(0);
}

bool rig_dies(void (*body)(void), const char *message)
{
	char text[4096] = "";
	size_t used = 0;
	int pipes[2], status;
	pid_t child;
	ssize_t n;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		run_child(body, pipes[1]);
	close(pipes[1]);
	while ((n = read(pipes[0], text + used, sizeof text - 1 - used)) > 0)
		used += (size_t)n;
	close(pipes[0]);
	text[used] = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	/* Sanitizers turn SIGABRT into an exit of their own; only the message matters. */
	if ((WIFSIGNALED(status) || WEXITSTATUS(status)) && strstr(text, message))
		return true;
	print_error("child: status %#x, stderr: %s\n", status, text);
	return false;
}

struct sim_control *rig_control(char path[64])
{
	struct sim_control *control;

	snprintf(path, 64, "/tmp/simfab-test-%d", (int)getpid());
	unlink(path);
	assert_int_equal(sim_control_open(path, &control), 0);
	return control;
}
