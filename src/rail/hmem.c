/*
 * NICs that read and write a card's memory themselves: libfabric's FI_HMEM. It is asked for when the rail opens, where the application
 * has the card's driver in the process by then: providers set up for cards what other processes need not pay for. A rail whose
 * provider does not offer it, or does not register a range, says why; the memory then passes through chunks (staged.c). Registering
 * runs beside the worker where the provider allows that.
 */
#include "device/device.h"
#include "rail/internal.h"

#include <errno.h>
#include <rdma/fi_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From libfabric 1.20 on; its headers are not needed. */
#define DMABUF_FLAG    (UINT64_C(1) << 40)
#define DMABUF_VERSION FI_VERSION(1, 20)

struct dmabuf {
	int fd;
	uint64_t offset;
	size_t len;
	void *base_addr;
};

/* A newer library reads fields that these headers do not have. */
struct attributes {
	struct fi_mr_attr known;
	uint64_t later[16];
};

/* ---- asking for it ---- */

/* What is asked for here alone: from 1.20 on descriptors are taken. */
static uint32_t version(void)
{
	uint32_t here = fi_version();

	return here < DMABUF_VERSION ? here : DMABUF_VERSION;
}

static bool is_same(const struct fi_info *info, const struct fi_info *other)
{
	return info->caps & FI_HMEM && info->domain_attr->name &&
	       !strcmp(info->domain_attr->name, other->domain_attr->name) && info->addr_format == other->addr_format;
}

/* The same NIC once more, with FI_HMEM; NULL: it is not offered, or there is no memory. */
static struct fi_info *find(const struct fi_info *info)
{
	struct fi_info *hints = fi_dupinfo(info), *list = NULL, *found = NULL;

	if (!hints)
		return NULL;
	hints->caps |= FI_HMEM;
	hints->tx_attr->caps = hints->rx_attr->caps = 0; /* they follow */
	hints->domain_attr->mr_mode |= FI_MR_HMEM;
	/* What this answer said of the provider's means is no demand on the other's. */
	hints->tx_attr->inject_size = hints->tx_attr->size = hints->rx_attr->size = 0;
	hints->handle = NULL;
	if (!fi_getinfo(version(), NULL, NULL, 0, hints, &list))
		for (struct fi_info *each = list; each && !found; each = each->next)
			if (is_same(each, info))
				found = fi_dupinfo(each);
	if (list)
		fi_freeinfo(list);
	fi_freeinfo(hints);
	return found;
}

void wf_rail_ask_hmem(struct wf_rail *rail)
{
	struct fi_info *found = NULL;

	if (rail->quirks->sockets || rail->quirks->shares_memory)
		atomic_store(&rail->no_hmem, "its provider copies with the CPU");
	else if (!rail->devices || !wf_devices_here())
		atomic_store(&rail->no_hmem, "the driver was not in the process when the engine opened");
	else if (!(found = find(rail->info)))
		atomic_store(&rail->no_hmem, "its provider does not offer FI_HMEM");
	if (!found)
		return;
	fi_freeinfo(rail->info);
	rail->info = found;
}

/* Some providers would pass what their card cannot reach through the CPU; that we do ourselves. */
void wf_rail_require_p2p(struct wf_rail *rail, struct fid_ep *ep)
{
	int need = FI_HMEM_P2P_REQUIRED, error;

	if (!(rail->info->caps & FI_HMEM))
		return;
	error = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &need, sizeof(need));
	if (error && error != -FI_ENOPROTOOPT && error != -FI_ENOSYS)
		atomic_store(&rail->no_hmem, "its provider does not reach cards peer to peer");
}

/* ---- registering ---- */

static int try_key(struct wf_rail *rail, struct attributes *attributes, uint64_t flags, struct fid_mr **ret_mr)
{
	int error = wf_rail_make_key(rail, &attributes->known.requested_key);

	if (!error)
		error = fi_mr_regattr(rail->domain, &attributes->known, flags, ret_mr);
	if (error || fi_mr_key(*ret_mr) != FI_KEY_NOTAVAIL)
		return error;
	fi_close(&(*ret_mr)->fid); /* for local use through the CPU: no */
	return -FI_EOPNOTSUPP;
}

static int try_range(struct wf_rail *rail, const struct wf_device_memory *device, struct attributes *attributes,
		     struct fid_mr **ret_mr)
{
	struct iovec range = { (void *)(uintptr_t)device->base, device->bytes };

	attributes->known.mr_iov = &range;
	return try_key(rail, attributes, 0, ret_mr);
}

static int try_descriptor(struct wf_rail *rail, const struct wf_device_memory *device, struct attributes *attributes,
			  struct fid_mr **ret_mr)
{
	struct dmabuf dmabuf;
	uint64_t base;
	int error = wf_device_descriptor(device, &dmabuf.fd, &base);

	if (error)
		return error;
	dmabuf.offset = device->base - base;
	dmabuf.len = device->bytes;
	dmabuf.base_addr = (void *)(uintptr_t)base;
	attributes->known.mr_iov = (const void *)&dmabuf; /* a union there */
	error = try_key(rail, attributes, DMABUF_FLAG, ret_mr);
	close(dmabuf.fd);
	return error;
}

/* A provider that knows cards chooses between its ways; one that knows only descriptors is asked after. */
static int try_both(struct wf_rail *rail, const struct wf_device_memory *device, uint32_t access,
		    struct fid_mr **ret_mr)
{
	struct attributes attributes = {
		.known = { .iov_count = 1, .access = wf_rail_rights(access), .iface = FI_HMEM_CUDA }
	};
	int error = wf_card_enter(device->card), other;

	attributes.known.device.cuda = wf_card_ordinal(device->card);
	if (error)
		return error;
	error = try_range(rail, device, &attributes, ret_mr);
	if (error && FI_VERSION_GE(rail->info->fabric_attr->api_version, DMABUF_VERSION)) {
		other = try_descriptor(rail, device, &attributes, ret_mr);
		error = other ? error : 0;
	}
	wf_card_leave(device->card);
	return error;
}

const char *wf_rail_no_hmem(const struct wf_rail *rail)
{
	if (rail->local)
		return "it copies between processes of this host";
	return atomic_load(&((struct wf_rail *)(uintptr_t)rail)->no_hmem);
}

int wf_rail_register_hmem(struct wf_rail *rail, const struct wf_device_memory *device, uint32_t access,
			  struct wf_rail_memory *ret_memory)
{
	struct fid_mr *mr;
	int error = wf_rail_no_hmem(rail) ? -EOPNOTSUPP : try_both(rail, device, access, &mr);

	if (error) {
		if (!wf_rail_no_hmem(rail))
			wf_log(rail->log, WEFT_LOG_INFO, "rail %s: registering %llu bytes of card %s: %s", rail->name,
			       (unsigned long long)device->bytes, wf_card_pci(device->card), fi_strerror(-error));
		return error;
	}
	ret_memory->mr = mr;
	ret_memory->desc = fi_mr_desc(mr);
	ret_memory->key = fi_mr_key(mr);
	ret_memory->base = rail->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? device->base : 0;
	ret_memory->card = device->card;
	wf_card_hears_nics(device->card, true);
	return 0;
}
