/*
 * Registered memory: a table in the NIC's segment, so that other processes' NICs can check keys. A key has 6 bits of
 * NIC, 8 of generation and 18 of slot: it is valid only on that NIC, and stale once closed. Any thread may register and
 * close, whatever the threading model, because real providers with slow registration allow that.
 */
#include "prov.h"

#include <stdlib.h>

#define PAGE_BITS         12
#define FI_MR_DMABUF_FLAG (1ull << 40) /* FI_MR_DMABUF, absent from 1.17's headers */

static int mr_close(struct fid *fid)
{
	struct region *region = container_of(fid, struct region, fid.fid);
	struct domain *dom = region->dom;
	struct wire_mr *mr = &dom->wire->mr[region->slot];

	if (dom->strict) {
		dom_visit(dom);
		strict_mr_close(dom, (uint32_t)region->fid.key);
		dom_leave(dom);
	}
	/* Sequentially consistent: pairs with guard_take, which counts itself in and then looks at the key. */
	atomic_store(&mr->key, 0);
	wire_retire(&mr->users);
	pthread_mutex_lock(&dom->mr_mutex);
	dom->mr_free[dom->mr_free_count++] = region->slot;
	dom->pages_used -= region->pages;
	pthread_mutex_unlock(&dom->mr_mutex);
	atomic_fetch_sub(&dom->refs, 1);
	free(region);
	return 0;
}

static int mr_control(struct fid *fid, int command, void *argument)
{
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static struct fi_ops mr_fid_ops = {
	.size = sizeof mr_fid_ops,
	.close = mr_close,
	.bind = stub_bind,
	.control = mr_control,
	.ops_open = stub_ops_open,
};

static int take_slot(struct domain *dom, uint32_t *ret_slot)
{
	if (!dom->mr_free) {
		dom->mr_free = malloc(WIRE_MR_SLOTS * sizeof *dom->mr_free);
		if (!dom->mr_free)
			return -FI_ENOMEM;
	}
	if (dom->mr_free_count)
		*ret_slot = dom->mr_free[--dom->mr_free_count];
	else if (dom->mr_next < WIRE_MR_SLOTS)
		*ret_slot = dom->mr_next++;
	else
		return -FI_ENOMEM;
	return 0;
}

static uint64_t pages_of(uint64_t base, uint64_t bytes)
{
	return bytes ? ((base + bytes - 1) >> PAGE_BITS) - (base >> PAGE_BITS) + 1 : 1;
}

static int register_region(struct domain *dom, uint64_t base, uint64_t bytes, uint64_t access, struct region *region)
{
	uint64_t pages = pages_of(base, bytes);
	struct wire_mr *mr;
	int rc;

	if (fault_active(dom) && (rc = fault_registration(dom)))
		return rc;
	if (dom->config->spec.personality != SIM_VERBS && (access & FI_REMOTE_WRITE) &&
	    pages > dom->config->spec.mr_pages)
		return -FI_EINVAL;
	if (dom->pages_used + pages > dom->config->spec.pages)
		return -FI_ENOMEM;
	rc = take_slot(dom, &region->slot);
	if (rc)
		return rc;
	/* As libfabric's efa does: memory registered for sending becomes readable for peers. */
	if (dom->config->spec.personality != SIM_VERBS && (access & FI_SEND))
		access |= FI_REMOTE_READ;
	mr = &dom->wire->mr[region->slot];
	dom->pages_used += pages;
	dom->mr_generation = dom->mr_generation % 255 + 1;
	region->pages = pages;
	region->fid.key = (uint32_t)dom->nic << 26 | dom->mr_generation << 18 | region->slot;
	/* The key travels as a pointer-sized descriptor: looked up, never dereferenced. */
	region->fid.mem_desc = (void *)(uintptr_t)region->fid.key;
	atomic_store_explicit(&mr->base, base, memory_order_relaxed);
	atomic_store_explicit(&mr->bytes, bytes, memory_order_relaxed);
	atomic_store_explicit(&mr->access, access, memory_order_relaxed);
	atomic_store(&mr->key, (uint32_t)region->fid.key);
	return 0;
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **ret_mr)
{
	struct domain *dom = container_of(fid, struct domain, fid.fid);
	struct region *region;
	uint64_t access = attr->access;
	int rc;

	if (attr->iov_count != 1 || !attr->mr_iov)
		return -FI_EINVAL;
	if (flags & FI_MR_DMABUF_FLAG)
		return -FI_EOPNOTSUPP; /* there is no device whose buffer it could be */
	if (!attr->mr_iov[0].iov_base || !attr->mr_iov[0].iov_len)
		return -FI_EINVAL; /* FI_MR_ALLOCATED: memory must exist behind it */
	region = calloc(1, sizeof *region);
	if (!region)
		return -FI_ENOMEM;
	if (attr->iface != FI_HMEM_SYSTEM)
		access |= MR_DEVICE;
	region->dom = dom;
	region->fid.fid.fclass = FI_CLASS_MR;
	region->fid.fid.context = attr->context;
	region->fid.fid.ops = &mr_fid_ops;
	if (fault_active(dom))
		fault_stall_registration(dom);
	pthread_mutex_lock(&dom->mr_mutex);
	rc = register_region(dom, (uint64_t)(uintptr_t)attr->mr_iov[0].iov_base, attr->mr_iov[0].iov_len, access,
			     region);
	if (!rc)
		atomic_fetch_add(&dom->refs, 1);
	pthread_mutex_unlock(&dom->mr_mutex);
	if (rc) {
		free(region);
		return rc;
	}
	*ret_mr = &region->fid;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
		   uint64_t requested_key, uint64_t flags, struct fid_mr **ret_mr, void *context)
{
	struct fi_mr_attr attr = { .mr_iov = iov, .iov_count = count, .access = access, .context = context };

	return mr_regattr(fid, &attr, flags, ret_mr);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
		  uint64_t requested_key, uint64_t flags, struct fid_mr **ret_mr, void *context)
{
	struct iovec iov = { (void *)buf, len };

	return mr_regv(fid, &iov, 1, access, offset, requested_key, flags, ret_mr, context);
}

struct fi_ops_mr mr_ops = {
	.size = sizeof mr_ops,
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};
