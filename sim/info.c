/*
 * fi_getinfo: one fi_info per NIC of the machine, filtered by the caller's hints. Set-up path, any thread.
 *
 * Every struct is allocated with slack: libfabric 2.x has longer fi_domain_attr and fi_ep_attr, and its
 * fi_dupinfo copies that much. prov_name stays NULL for the core to fill.
 */
#include "prov.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLACK 256

#define CAPS_TX (FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_SEND)
#define CAPS_RX (FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SOURCE)
#define CAPS    (CAPS_TX | CAPS_RX | FI_LOCAL_COMM | FI_REMOTE_COMM)

struct nic_attributes {
	struct fid_nic nic;
	struct config *config;
	int index;
	struct fi_device_attr device;
	struct fi_bus_attr bus;
	struct fi_link_attr link;
	char name[32], device_id[16], vendor_id[16], address[64];
};

static int nic_close(struct fid *fid)
{
	free(container_of(fid, struct nic_attributes, nic.fid));
	return 0;
}

static int nic_control(struct fid *fid, int command, void *argument);

static int nic_tostr(const struct fid *fid, char *buf, size_t len)
{
	const struct nic_attributes *a = container_of(fid, struct nic_attributes, nic.fid);
	size_t used = strnlen(buf, len); /* the core passes what it has printed up to now */

	snprintf(buf + used, len - used,
		 "    nic:\n        fi_device_attr:\n            name: %s\n            device_id: %s\n            "
		 "device_version: %s\n"
		 "            vendor_id: %s\n            driver: %s\n            firmware: %s\n"
		 "        fi_bus_attr:\n            bus_type: FI_BUS_PCI\n            fi_pci_attr:\n              "
		 "  domain_id: %u\n"
		 "                bus_id: %u\n                device_id: %u\n                function_id: %u\n"
		 "        fi_link_attr:\n            address: %s\n            mtu: %zu\n            speed: %zu\n"
		 "            state: FI_LINK_UP\n            network_type: %s\n",
		 a->device.name, a->device.device_id, a->device.device_version, a->device.vendor_id, a->device.driver,
		 a->device.firmware, a->bus.attr.pci.domain_id, a->bus.attr.pci.bus_id, a->bus.attr.pci.device_id,
		 a->bus.attr.pci.function_id, a->link.address, a->link.mtu, a->link.speed, a->link.network_type);
	return 0;
}

static struct fi_ops nic_ops = {
	.size = sizeof nic_ops,
	.close = nic_close,
	.bind = stub_bind,
	.control = nic_control,
	.ops_open = stub_ops_open,
	.tostr = nic_tostr,
};

void info_gid(const struct config *config, int nic, uint8_t gid[16])
{
	uint32_t hash = 2166136261u; /* FNV-1a of the host's name: the same host shows the same GIDs */

	for (const char *s = config->spec.host; *s; s++)
		hash = (hash ^ (uint8_t)*s) * 16777619u;
	memset(gid, 0, 16);
	gid[0] = 0xfe;
	gid[1] = 0x80;
	memcpy(gid + 8, &hash, sizeof hash);
	gid[12] = 0x5f;
	gid[15] = (uint8_t)nic;
}

static struct fid_nic *make_nic(const struct config *config, int index)
{
	const struct sim_spec *spec = &config->spec;
	const struct sim_machine *m = &spec->machine;
	struct nic_attributes *a = calloc(1, sizeof *a + SLACK);
	char text[INET6_ADDRSTRLEN] = "";
	uint8_t gid[16];

	if (!a)
		return NULL;
	info_gid(config, index, gid);
	inet_ntop(AF_INET6, gid, text, sizeof text);
	sim_machine_nic_name(m, index, a->name, sizeof a->name);
	snprintf(a->device_id, sizeof a->device_id, "0x%04x", m->nic_device);
	snprintf(a->vendor_id, sizeof a->vendor_id, "0x%04x", m->nic_vendor);
	snprintf(a->address, sizeof a->address, "%s-%s", spec->personality == SIM_VERBS ? "IB" : "EFA", text);
	a->device = (struct fi_device_attr){ a->name,      a->device_id,          (char *)m->nic_version,
					     a->vendor_id, (char *)m->nic_driver, (char *)"0.0.0.0" };
	a->bus.bus_type = FI_BUS_PCI;
	a->bus.attr.pci.bus_id = sim_machine_nic_bus(m, index);
	a->link = (struct fi_link_attr){ a->address, m->mtu, spec->rate_bps ? spec->rate_bps : m->rate_bps, FI_LINK_UP,
					 (char *)(spec->personality == SIM_VERBS ? "InfiniBand" : "Ethernet") };
	a->config = (struct config *)config;
	a->index = index;
	a->nic.fid.fclass = FI_CLASS_NIC;
	a->nic.fid.ops = &nic_ops;
	a->nic.device_attr = &a->device;
	a->nic.bus_attr = &a->bus;
	a->nic.link_attr = &a->link;
	return &a->nic;
}

static int nic_control(struct fid *fid, int command, void *argument)
{
	struct nic_attributes *a = container_of(fid, struct nic_attributes, nic.fid);
	struct fid_nic *copy;

	if (command != FI_DUP)
		return -FI_ENOSYS;
	copy = make_nic(a->config, a->index);
	if (!copy)
		return -FI_ENOMEM;
	*(struct fid **)argument = &copy->fid;
	return 0;
}

struct config *config_of_nic(const struct fid_nic *nic, int *ret_nic)
{
	const struct nic_attributes *a;

	if (!nic || nic->fid.ops != &nic_ops)
		return NULL;
	a = container_of(nic, struct nic_attributes, nic);
	*ret_nic = a->index;
	return a->config;
}

static void free_info(struct fi_info *info)
{
	while (info) {
		struct fi_info *next = info->next;

		free(info->src_addr);
		free(info->dest_addr);
		free(info->tx_attr);
		free(info->rx_attr);
		free(info->ep_attr);
		if (info->domain_attr)
			free(info->domain_attr->name);
		free(info->domain_attr);
		if (info->fabric_attr)
			free(info->fabric_attr->name);
		free(info->fabric_attr);
		if (info->nic)
			fi_close(&info->nic->fid);
		free(info);
		info = next;
	}
}

static struct fi_info *alloc_info(void)
{
	struct fi_info *info = calloc(1, sizeof *info + SLACK);

	if (!info)
		return NULL;
	info->tx_attr = calloc(1, sizeof *info->tx_attr + SLACK);
	info->rx_attr = calloc(1, sizeof *info->rx_attr + SLACK);
	info->ep_attr = calloc(1, sizeof *info->ep_attr + SLACK);
	info->domain_attr = calloc(1, sizeof *info->domain_attr + SLACK);
	info->fabric_attr = calloc(1, sizeof *info->fabric_attr + SLACK);
	if (info->tx_attr && info->rx_attr && info->ep_attr && info->domain_attr && info->fabric_attr)
		return info;
	free_info(info);
	return NULL;
}

static uint64_t order_of(const struct sim_spec *spec)
{
	switch (spec->personality) {
	case SIM_VERBS:
		return FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_WAS | FI_ORDER_SAW | FI_ORDER_SAS |
		       FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW;
	case SIM_EFA:
		return FI_ORDER_SAS;
	default:
		return 0;
	}
}

static int mr_mode_of(const struct sim_spec *spec)
{
	int mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

	return spec->personality == SIM_EFA ? mode : mode | FI_MR_LOCAL;
}

static void fill_queues(struct fi_info *info, const struct sim_spec *spec)
{
	const struct sim_machine *m = &spec->machine;

	info->tx_attr->caps = CAPS_TX;
	info->tx_attr->mode = info->mode;
	info->tx_attr->op_flags = FI_COMPLETION | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
	info->tx_attr->msg_order = order_of(spec);
	info->tx_attr->inject_size = m->inject_size;
	info->tx_attr->size = spec->tx;
	info->tx_attr->iov_limit = m->iov_limit;
	info->tx_attr->rma_iov_limit = 1;
	info->rx_attr->caps = CAPS_RX;
	info->rx_attr->mode = info->mode;
	info->rx_attr->op_flags = FI_COMPLETION;
	info->rx_attr->msg_order = order_of(spec);
	info->rx_attr->size = spec->rx;
	info->rx_attr->iov_limit = m->iov_limit;
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->protocol = spec->personality == SIM_VERBS ? FI_PROTO_RDMA_CM_IB_RC : FI_PROTO_EFA;
	info->ep_attr->protocol_version = spec->personality == SIM_VERBS ? 1 : 4;
	info->ep_attr->max_msg_size = m->max_msg_size;
	info->ep_attr->max_order_raw_size = info->ep_attr->max_order_war_size = info->ep_attr->max_order_waw_size =
	    spec->personality == SIM_VERBS ? m->max_msg_size : 8776;
	info->ep_attr->mem_tag_format = 0xaaaaaaaaaaaaaaaaull;
	info->ep_attr->tx_ctx_cnt = 1;
	info->ep_attr->rx_ctx_cnt = 1;
}

static void fill_domain(struct fi_info *info, const struct sim_spec *spec, const struct fi_info *hints)
{
	struct fi_domain_attr *d = info->domain_attr;
	const struct fi_domain_attr *h = hints ? hints->domain_attr : NULL;

	d->threading = h && h->threading ? h->threading : FI_THREAD_SAFE;
	d->control_progress = h && h->control_progress ? h->control_progress : FI_PROGRESS_AUTO;
	d->data_progress = h && h->data_progress ? h->data_progress : FI_PROGRESS_AUTO;
	d->resource_mgmt = FI_RM_ENABLED;
	d->av_type = FI_AV_TABLE;
	d->mr_mode = mr_mode_of(spec);
	if (spec->personality != SIM_VERBS && (!h || (h->mr_mode & FI_MR_HMEM)))
		d->mr_mode |= FI_MR_HMEM;
	d->mr_key_size = 4;
	d->cq_data_size = 4;
	d->cq_cnt = 512;
	d->ep_cnt = 256;
	d->tx_ctx_cnt = d->rx_ctx_cnt = 256;
	d->max_ep_tx_ctx = d->max_ep_rx_ctx = 1;
	d->mr_iov_limit = 1;
	d->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
	d->mr_cnt = WIRE_MR_SLOTS;
}

static struct fi_info *make_info(const struct config *config, int nic, const struct fi_info *hints)
{
	const struct sim_spec *spec = &config->spec;
	struct fi_info *info = alloc_info();
	struct wire_address *address;
	char name[64];

	if (!info)
		return NULL;
	info->caps = CAPS | (hints ? hints->caps & FI_HMEM : 0);
	if (spec->as_efa && hints && hints->caps) /* EFA reports no peer scopes that were not asked for */
		info->caps &= hints->caps | ~(uint64_t)(FI_LOCAL_COMM | FI_REMOTE_COMM);
	info->mode = spec->personality == SIM_EFA_DIRECT ? FI_CONTEXT2 : 0;
	info->addr_format = spec->personality == SIM_VERBS ? FI_ADDR_IB_UD : FI_ADDR_EFA;
	fill_queues(info, spec);
	fill_domain(info, spec, hints);
	info->nic = make_nic(config, nic);
	info->src_addr = address = calloc(1, sizeof *address);
	info->fabric_attr->name = strdup(spec->machine.fabric_name);
	info->fabric_attr->prov_version = FI_VERSION(1, 0);
	sim_machine_nic_name(&spec->machine, nic, name, sizeof name - 8);
	if (spec->personality != SIM_VERBS)
		strcat(name, "-rdm");
	info->domain_attr->name = strdup(name);
	if (!info->nic || !address || !info->fabric_attr->name || !info->domain_attr->name)
		goto fail;
	info_gid(config, nic, address->gid);
	info->src_addrlen = sizeof *address;
	if (hints && hints->dest_addr && hints->dest_addrlen == sizeof *address) {
		info->dest_addr = malloc(sizeof *address);
		if (!info->dest_addr)
			goto fail;
		memcpy(info->dest_addr, hints->dest_addr, sizeof *address);
		info->dest_addrlen = sizeof *address;
	}
	return info;
fail:
	free_info(info);
	return NULL;
}

static bool wants_other(uint64_t asked, uint64_t have)
{
	return (asked & ~have) != 0;
}

static bool attributes_match(const struct fi_info *hints, const struct fi_info *info)
{
	const struct fi_tx_attr *tx = hints->tx_attr;
	const struct fi_rx_attr *rx = hints->rx_attr;
	const struct fi_ep_attr *ep = hints->ep_attr;

	if (tx && (wants_other(tx->msg_order, info->tx_attr->msg_order) || tx->size > info->tx_attr->size ||
		   tx->inject_size > info->tx_attr->inject_size || tx->iov_limit > info->tx_attr->iov_limit ||
		   tx->rma_iov_limit > 1))
		return false;
	if (rx && (wants_other(rx->msg_order, info->rx_attr->msg_order) || rx->size > info->rx_attr->size ||
		   rx->iov_limit > info->rx_attr->iov_limit))
		return false;
	/* Anything but RDM must be refused, or the core stacks its utility providers on top of this one. */
	if (ep && ((ep->type && ep->type != FI_EP_RDM) || ep->max_msg_size > info->ep_attr->max_msg_size ||
		   (ep->protocol && ep->protocol != info->ep_attr->protocol)))
		return false;
	return true;
}

static bool names_match(const struct fi_info *hints, const struct fi_info *info)
{
	const struct fi_domain_attr *d = hints->domain_attr;
	const struct fi_fabric_attr *f = hints->fabric_attr;

	if (d && d->name && strcmp(d->name, info->domain_attr->name))
		return false;
	if (f && f->name && strcmp(f->name, info->fabric_attr->name))
		return false;
	if (hints->nic && hints->nic->device_attr && hints->nic->device_attr->name &&
	    strcmp(hints->nic->device_attr->name, info->nic->device_attr->name))
		return false;
	/* Compares only the GID: a source address names the NIC, the rest belongs to the endpoint. */
	return !hints->src_addr || hints->src_addrlen != sizeof(struct wire_address) ||
	       !memcmp(hints->src_addr, info->src_addr, 16);
}

static bool matches(const struct fi_info *hints, const struct fi_info *info)
{
	const struct fi_domain_attr *d = hints->domain_attr;
	int offered = d ? d->mr_mode : 0, needed = info->domain_attr->mr_mode & ~FI_MR_HMEM;

	if (wants_other(hints->caps, info->caps | FI_HMEM) || (info->mode & ~hints->mode))
		return false;
	if (hints->addr_format && hints->addr_format != info->addr_format)
		return false;
	/* Unspecified bits mean "tell me" only if there is no domain_attr at all. */
	if (d && (needed & ~offered))
		return false;
	if (d && (d->av_type == FI_AV_MAP || d->cq_data_size > 4 || d->mr_key_size > 8))
		return false;
	return attributes_match(hints, info) && names_match(hints, info);
}

/* Lists every matching NIC under one personality and advances the tail pointer. */
static int list_nics(const struct config *config, const struct fi_info *hints, struct fi_info ***tail)
{
	for (int nic = 0; nic < (int)config->spec.nics; nic++) {
		struct fi_info *info = make_info(config, nic, hints);

		if (!info)
			return -FI_ENOMEM;
		if (hints && !matches(hints, info)) {
			free_info(info);
			continue;
		}
		**tail = info;
		*tail = &info->next;
	}
	return 0;
}

int info_get(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
	     struct fi_info **ret_info)
{
	const struct config *config = config_current();
	struct fi_info *first = NULL, **tail = &first;
	int rc;

	*ret_info = NULL;
	if (!config)
		return -FI_ENODATA;
	rc = config->direct ? list_nics(config->direct, hints, &tail) : 0; /* EFA lists it first */
	if (!rc)
		rc = list_nics(config, hints, &tail);
	if (rc) {
		free_info(first);
		return rc;
	}
	if (!first)
		return -FI_ENODATA;
	*ret_info = first;
	return 0;
}
