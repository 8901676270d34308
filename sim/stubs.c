/*
 * Answers for everything that the simulated NICs do not do. libfabric's inline wrappers call through these tables
 * without checking for NULL, so every slot needs a function.
 */
#include "prov.h"

int stub_close(struct fid *fid)
{
	return -FI_ENOSYS;
}

int stub_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	return -FI_ENOSYS;
}

int stub_control(struct fid *fid, int command, void *argument)
{
	return -FI_ENOSYS;
}

int stub_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	return -FI_ENOSYS;
}

/* One function serves every slot whose result is an int or ssize_t: the x86-64 and AArch64 calling
 * conventions let a callee ignore its arguments. Casting keeps sixty near-copies out of this file. */
static ssize_t no_such(void)
{
	return -FI_ENOSYS;
}

#define NO(type, member) .member = (__typeof__(((type *)0)->member))(void (*)(void))no_such

struct fi_ops_tagged stub_tagged = {
	.size = sizeof stub_tagged,
	NO(struct fi_ops_tagged, recv),
	NO(struct fi_ops_tagged, recvv),
	NO(struct fi_ops_tagged, recvmsg),
	NO(struct fi_ops_tagged, send),
	NO(struct fi_ops_tagged, sendv),
	NO(struct fi_ops_tagged, sendmsg),
	NO(struct fi_ops_tagged, inject),
	NO(struct fi_ops_tagged, senddata),
	NO(struct fi_ops_tagged, injectdata),
};

struct fi_ops_atomic stub_atomic = {
	.size = sizeof stub_atomic,
	NO(struct fi_ops_atomic, write),
	NO(struct fi_ops_atomic, writev),
	NO(struct fi_ops_atomic, writemsg),
	NO(struct fi_ops_atomic, inject),
	NO(struct fi_ops_atomic, readwrite),
	NO(struct fi_ops_atomic, readwritev),
	NO(struct fi_ops_atomic, readwritemsg),
	NO(struct fi_ops_atomic, compwrite),
	NO(struct fi_ops_atomic, compwritev),
	NO(struct fi_ops_atomic, compwritemsg),
	NO(struct fi_ops_atomic, writevalid),
	NO(struct fi_ops_atomic, readwritevalid),
	NO(struct fi_ops_atomic, compwritevalid),
};

static int cm_getname(fid_t fid, void *addr, size_t *addrlen)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
	size_t room = *addrlen;

	if (fid->fclass != FI_CLASS_EP || !ep->wire)
		return -FI_EOPBADSTATE;
	*addrlen = sizeof ep->wire->address;
	if (room < sizeof ep->wire->address)
		return -FI_ETOOSMALL;
	__builtin_memcpy(addr, &ep->wire->address, sizeof ep->wire->address);
	return 0;
}

struct fi_ops_cm stub_cm = {
	.size = sizeof stub_cm,
	NO(struct fi_ops_cm, setname),
	.getname = cm_getname,
	NO(struct fi_ops_cm, getpeer),
	NO(struct fi_ops_cm, connect),
	NO(struct fi_ops_cm, listen),
	NO(struct fi_ops_cm, accept),
	NO(struct fi_ops_cm, reject),
	NO(struct fi_ops_cm, shutdown),
	NO(struct fi_ops_cm, join),
};
