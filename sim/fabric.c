/*
 * Fabric and event queue. The EQ carries internal errors only; it has a mutex of its own, since the thread
 * that reads it need not be the one that drives the NIC.
 */
#include "prov.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int fabric_close(struct fid *fid)
{
	struct fabric *fabric = container_of(fid, struct fabric, fid.fid);

	if (atomic_load(&fabric->refs))
		return -FI_EBUSY;
	free(fabric);
	return 0;
}

static int eq_close(struct fid *fid)
{
	struct event_queue *eq = container_of(fid, struct event_queue, fid.fid);

	if (atomic_load(&eq->refs))
		return -FI_EBUSY;
	atomic_fetch_sub(&eq->fabric->refs, 1);
	pthread_mutex_destroy(&eq->mutex);
	free(eq->errors);
	free(eq);
	return 0;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
	struct event_queue *eq = container_of(fid, struct event_queue, fid);
	ssize_t rc;

	pthread_mutex_lock(&eq->mutex);
	rc = eq->count ? -FI_EAVAIL : -FI_EAGAIN;
	pthread_mutex_unlock(&eq->mutex);
	return rc;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf, uint64_t flags)
{
	struct event_queue *eq = container_of(fid, struct event_queue, fid);
	ssize_t rc = -FI_EAGAIN;

	pthread_mutex_lock(&eq->mutex);
	if (eq->count) {
		buf->fid = eq->errors[0].fid;
		buf->context = eq->errors[0].context;
		buf->data = 0;
		buf->err = eq->errors[0].err;
		buf->prov_errno = eq->errors[0].prov_errno;
		if (!(flags & FI_PEEK)) {
			eq->count--;
			memmove(eq->errors, eq->errors + 1, eq->count * sizeof eq->errors[0]);
		}
		rc = sizeof *buf;
	}
	pthread_mutex_unlock(&eq->mutex);
	return rc;
}

static ssize_t eq_write(struct fid_eq *eq, uint32_t event, const void *buf, size_t len, uint64_t flags)
{
	return -FI_ENOSYS;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags)
{
	uint64_t end = timeout < 0 ? UINT64_MAX : sim_clock_ns() + (uint64_t)timeout * 1000000u;
	const struct timespec nap = { .tv_nsec = 100000 };
	ssize_t rc;

	while ((rc = eq_read(fid, event, buf, len, flags)) == -FI_EAGAIN && sim_clock_ns() < end)
		nanosleep(&nap, NULL);
	return rc;
}

static const char *eq_strerror(struct fid_eq *eq, int prov_errno, const void *err_data, char *buf, size_t len)
{
	const char *text = efa_text(prov_errno);

	if (buf && len)
		snprintf(buf, len, "%s", text);
	return text;
}

static struct fi_ops eq_fid_ops = {
	.size = sizeof eq_fid_ops,
	.close = eq_close,
	.bind = stub_bind,
	.control = stub_control,
	.ops_open = stub_ops_open,
};

static struct fi_ops_eq eq_ops = {
	.size = sizeof eq_ops,
	.read = eq_read,
	.readerr = eq_readerr,
	.write = eq_write,
	.sread = eq_sread,
	.strerror = eq_strerror,
};

static int eq_open(struct fid_fabric *fid, struct fi_eq_attr *attr, struct fid_eq **ret_eq, void *context)
{
	struct fabric *fabric = container_of(fid, struct fabric, fid);
	struct event_queue *eq = calloc(1, sizeof *eq);

	if (!eq)
		return -FI_ENOMEM;
	eq->fid.fid.fclass = FI_CLASS_EQ;
	eq->fid.fid.context = context;
	eq->fid.fid.ops = &eq_fid_ops;
	eq->fid.ops = &eq_ops;
	eq->fabric = fabric;
	pthread_mutex_init(&eq->mutex, NULL);
	atomic_fetch_add(&fabric->refs, 1);
	*ret_eq = &eq->fid;
	return 0;
}

void eq_report(struct event_queue *eq, struct fid *fid, int err, int prov_errno)
{
	pthread_mutex_lock(&eq->mutex);
	if (eq->count == eq->capacity) {
		size_t capacity = eq->capacity ? eq->capacity * 2 : 16;
		void *grown = realloc(eq->errors, capacity * sizeof eq->errors[0]);

		if (!grown)
			abort();
		eq->errors = grown;
		eq->capacity = capacity;
	}
	eq->errors[eq->count++] =
	    (struct fi_eq_err_entry){ .fid = fid, .context = fid->context, .err = err, .prov_errno = prov_errno };
	pthread_mutex_unlock(&eq->mutex);
}

static int no_passive(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context)
{
	return -FI_ENOSYS;
}

static int no_wait(struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **waitset)
{
	return -FI_ENOSYS;
}

static int no_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	return -FI_ENOSYS;
}

static struct fi_ops fabric_fid_ops = {
	.size = sizeof fabric_fid_ops,
	.close = fabric_close,
	.bind = stub_bind,
	.control = stub_control,
	.ops_open = stub_ops_open,
};

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof fabric_ops,
	.domain = domain_open,
	.passive_ep = no_passive,
	.eq_open = eq_open,
	.wait_open = no_wait,
	.trywait = no_trywait,
};

int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **ret_fabric, void *context)
{
	struct fabric *fabric = calloc(1, sizeof *fabric);

	if (!fabric)
		return -FI_ENOMEM;
	fabric->fid.fid.fclass = FI_CLASS_FABRIC;
	fabric->fid.fid.context = context;
	fabric->fid.fid.ops = &fabric_fid_ops;
	fabric->fid.ops = &fabric_ops;
	fabric->fid.api_version = attr->api_version;
	*ret_fabric = &fabric->fid;
	return 0;
}
