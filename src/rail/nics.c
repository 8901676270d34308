/*
 * Finds the NICs of this host: asks fi_getinfo for everything that offers reliable datagrams with messages and RMA,
 * keeps one entry per device, and applies what the user requires, lists or avoids. Any thread; opens nothing.
 */
#include "rail/internal.h"
#include "wire/blob.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_NICS 256

static struct fi_info *make_hints(const char *provider)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		return NULL;
	hints->caps = FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	/* Not FI_MR_ENDPOINT: memory must outlive the endpoints that are closed to take pieces back. */
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	if (provider && !(hints->fabric_attr->prov_name = strdup(provider))) {
		fi_freeinfo(hints);
		return NULL;
	}
	return hints;
}

static int query(const char *provider, const char *source, struct fi_info **ret_info)
{
	struct fi_info *hints = make_hints(provider);
	int error;

	if (!hints)
		return -ENOMEM;
	error = fi_getinfo(wf_fi_version(), source, NULL, source ? FI_SOURCE : 0, hints, ret_info);
	fi_freeinfo(hints);
	return error;
}

static void describe_address(const struct fi_info *info, char *text, size_t room)
{
	const struct sockaddr_in *v4 = info->src_addr;
	const struct sockaddr_in6 *v6 = info->src_addr;

	text[0] = 0;
	if (!info->src_addr)
		return;
	if (info->addr_format == FI_SOCKADDR_IN)
		inet_ntop(AF_INET, &v4->sin_addr, text, (socklen_t)room);
	else if (info->addr_format == FI_SOCKADDR_IN6)
		inet_ntop(AF_INET6, &v6->sin6_addr, text, (socklen_t)room);
	else if (info->addr_format == FI_ADDR_STR)
		snprintf(text, room, "%.*s", (int)info->src_addrlen, (const char *)info->src_addr);
	else if (info->nic && info->nic->link_attr && info->nic->link_attr->address)
		snprintf(text, room, "%s", info->nic->link_attr->address);
}

/* Link-local addresses need a scope, which the blob cannot carry. */
static bool address_travels(const struct fi_info *info)
{
	const struct sockaddr_in6 *v6 = info->src_addr;

	return !v6 || info->addr_format != FI_SOCKADDR_IN6 || !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

static bool is_loopback(const struct fi_info *info)
{
	const struct sockaddr_in *v4 = info->src_addr;
	const struct sockaddr_in6 *v6 = info->src_addr;

	if (!info->src_addr)
		return false;
	if (info->addr_format == FI_SOCKADDR_IN)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return info->addr_format == FI_SOCKADDR_IN6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static void place_on_bus(struct wf_nic *nic, const struct fid_nic *fid)
{
	if (!fid)
		return;
	if (fid->link_attr)
		nic->link_bps = fid->link_attr->speed;
	if (!fid->bus_attr || fid->bus_attr->bus_type != FI_BUS_PCI)
		return;
	nic->has_pci = true;
	nic->pci_domain = fid->bus_attr->attr.pci.domain_id;
	nic->pci_bus = fid->bus_attr->attr.pci.bus_id;
	nic->pci_device = fid->bus_attr->attr.pci.device_id;
	nic->pci_function = fid->bus_attr->attr.pci.function_id;
}

static void fill(struct wf_nic *nic, const struct fi_info *info)
{
	const struct wf_quirks *quirks = wf_quirks_of(info->fabric_attr->prov_name, info->fabric_attr->name);
	const char *device = info->nic && info->nic->device_attr ? info->nic->device_attr->name : NULL;

	memset(nic, 0, sizeof(*nic));
	snprintf(nic->name, sizeof(nic->name), "%s", device ? device : info->domain_attr->name);
	snprintf(nic->provider, sizeof(nic->provider), "%s",
		 quirks->name ? quirks->name : info->fabric_attr->prov_name);
	describe_address(info, nic->address, sizeof(nic->address));
	place_on_bus(nic, info->nic);
	nic->rank = quirks->rank;
	nic->by_default = quirks->by_default && !is_loopback(info);
}

/* Keeps one entry per provider and device: fi_getinfo lists a device again for every address and mode it has. The
 * first entry is the provider's own choice, and IPv4 comes before IPv6. */
static int collect(struct wf_nics *nics, struct fi_info *list)
{
	for (struct fi_info *info = list; info; info = info->next) {
		struct wf_nic nic;
		bool known = false;

		if (!info->fabric_attr->prov_name || !info->domain_attr->name || !address_travels(info) ||
		    wf_quirks_of(info->fabric_attr->prov_name, info->fabric_attr->name)->crashes)
			continue;
		fill(&nic, info);
		for (uint32_t i = 0; i < nics->count && !known; i++)
			known = !strcmp(nics->nic[i].provider, nic.provider) && !strcmp(nics->nic[i].name, nic.name);
		if (known || nics->count == MAX_NICS)
			continue;
		nic.info = fi_dupinfo(info);
		if (!nic.info)
			return -ENOMEM;
		nics->nic[nics->count++] = nic;
	}
	return 0;
}

void wf_nics_free(struct wf_nics *nics)
{
	for (uint32_t i = 0; i < nics->count; i++)
		fi_freeinfo(nics->nic[i].info);
	free(nics->nic);
	nics->nic = NULL;
	nics->count = 0;
}

/* Returns whether text is one of the comma-separated names. */
static bool listed(const char *names, const char *text)
{
	size_t length = strlen(text);

	while (names && *names) {
		size_t span = strcspn(names, ",");

		if (length && span == length && !memcmp(names, text, length))
			return true;
		names += span + (names[span] == ',');
	}
	return false;
}

static bool avoided(const struct weft_config *config, const struct wf_nic *nic)
{
	return listed(config->avoid, nic->name) || listed(config->avoid, nic->address);
}

/* Compares with weft's name and libfabric's. A fabric with a row of its own in quirks.c answers only to its own
 * name. */
static bool provider_wanted(const struct weft_config *config, const struct wf_nic *nic)
{
	const struct fi_fabric_attr *fabric = nic->info->fabric_attr;

	return !config->provider || !strcmp(config->provider, nic->provider) ||
	       (!strcmp(config->provider, fabric->prov_name) && !wf_quirks_of(fabric->prov_name, fabric->name)->fabric);
}

static void drop(struct wf_nics *nics, uint32_t index)
{
	fi_freeinfo(nics->nic[index].info);
	memmove(&nics->nic[index], &nics->nic[index + 1], (nics->count - index - 1) * sizeof(nics->nic[0]));
	nics->count--;
}

/* Returns whether the address is one of this host's. The kernel decides, because all 16 million loopback addresses
 * count. */
static bool is_local(const char *text)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	bool is_v4 = inet_pton(AF_INET, text, &v4.sin_addr) == 1;
	int fd;
	bool local;

	if (!is_v4 && inet_pton(AF_INET6, text, &v6.sin6_addr) != 1)
		return false;
	fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	local = fd >= 0 &&
		!bind(fd, is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6, is_v4 ? sizeof(v4) : sizeof(v6));
	if (fd >= 0)
		close(fd);
	return local;
}

/* fi_getinfo does not list addresses: this asks for an endpoint with that source. */
static int find_by_address(const struct weft_config *config, const char *address, struct wf_nics *nics)
{
	struct wf_nics found = { .nic = calloc(MAX_NICS, sizeof(struct wf_nic)) };
	struct fi_info *list = NULL;
	int best = -1, error;

	if (!found.nic)
		return -ENOMEM;
	error = query(NULL, address, &list);
	if (!error)
		error = collect(&found, list);
	if (list)
		fi_freeinfo(list);
	for (uint32_t i = 0; !error && i < found.count; i++)
		if (provider_wanted(config, &found.nic[i]) && (best < 0 || found.nic[i].rank < found.nic[best].rank))
			best = (int)i;
	if (best >= 0 && nics->count < MAX_NICS) {
		struct wf_nic *nic = &nics->nic[nics->count++];

		*nic = found.nic[best];
		nic->info = fi_dupinfo(found.nic[best].info);
		/* Without a device the address is the only name that tells two of them apart. */
		snprintf(nic->name, sizeof(nic->name), "%s", address);
		error = nic->info ? 0 : -ENOMEM;
	}
	wf_nics_free(&found);
	return error == -ENOMEM ? error : best >= 0 ? 0 : -ENODEV;
}

/* Takes the NICs named in config->rails out of all, in that order. */
static int take_listed(const struct weft_config *config, struct wf_nics *all, struct wf_nics *nics, char *error,
		       size_t room)
{
	const char *names = config->rails;

	while (*names && nics->count < MAX_NICS) {
		size_t span = strcspn(names, ",");
		char name[64];
		int best = -1, status = 0;

		snprintf(name, sizeof(name), "%.*s", (int)span, names);
		names += span + (names[span] == ',');
		for (uint32_t i = 0; i < all->count; i++)
			if (!strcmp(all->nic[i].name, name) && provider_wanted(config, &all->nic[i]) &&
			    (best < 0 || all->nic[i].rank < all->nic[best].rank))
				best = (int)i;
		if (listed(config->avoid, name))
			continue; /* avoiding takes precedence over listing */
		if (best >= 0) {
			nics->nic[nics->count++] = all->nic[best];
			all->nic[best].info = NULL;
			drop(all, (uint32_t)best);
		} else {
			status = is_local(name) ? find_by_address(config, name, nics) : -ENODEV;
		}
		if (status) {
			snprintf(error, room, "no NIC of this host has the name or address '%s'", name);
			return status;
		}
	}
	return 0;
}

/* Without a list: all NICs of the best provider. Loopback only if there is nothing else. */
static void take_best(const struct weft_config *config, struct wf_nics *all, struct wf_nics *nics)
{
	int rank = -1;
	bool spare = false; /* also take NICs that are not taken by default */

	for (int pass = 0; pass < 2 && rank < 0; pass++) {
		spare = pass == 1;
		for (uint32_t i = 0; i < all->count; i++) {
			const struct wf_nic *nic = &all->nic[i];

			if (provider_wanted(config, nic) && !avoided(config, nic) && (spare || nic->by_default) &&
			    (rank < 0 || nic->rank < rank))
				rank = nic->rank;
		}
	}
	for (uint32_t i = 0; rank >= 0 && i < all->count;) {
		const struct wf_nic *nic = &all->nic[i];

		if (nic->rank != rank || !provider_wanted(config, nic) || avoided(config, nic) ||
		    (!spare && !nic->by_default) || nics->count == MAX_NICS) {
			i++;
			continue;
		}
		nics->nic[nics->count++] = *nic;
		all->nic[i].info = NULL;
		drop(all, i);
	}
}

static int select_nics(const struct weft_config *config, struct wf_nics *all, struct wf_nics *nics, char *error,
		       size_t room)
{
	bool provider_known = false;
	int status = 0;

	for (uint32_t i = 0; i < all->count; i++)
		provider_known |= provider_wanted(config, &all->nic[i]);
	if (!provider_known && config->provider) {
		snprintf(error, room, "libfabric offers no provider '%s' with reliable datagrams and RMA on this host",
			 config->provider);
		return -ENOPROTOOPT;
	}
	if (config->rails && *config->rails)
		status = take_listed(config, all, nics, error, room);
	else
		take_best(config, all, nics);
	if (!status && !nics->count) {
		snprintf(error, room, "no NIC is left to use");
		return -ENODEV;
	}
	for (uint32_t i = 1; !status && i < nics->count; i++)
		if (strcmp(nics->nic[i].provider, nics->nic[0].provider)) {
			snprintf(error, room,
				 "%s is a NIC of '%s' and %s of '%s': an engine's rails are of one provider",
				 nics->nic[0].name, nics->nic[0].provider, nics->nic[i].name, nics->nic[i].provider);
			status = -EINVAL;
		}
	return status;
}

/* An engine without NICs: the local rail alone. */
static bool names_local(const struct weft_config *config)
{
	return config->provider ? !strcmp(config->provider, "local") : config->rails && !strcmp(config->rails, "local");
}

/* Needs nothing of libfabric. A rail per worker that was asked for: each copies. */
static int take_local(const struct weft_config *config, struct wf_nics *ret_nics, char *error, size_t room)
{
	uint32_t count = config->max_workers ? config->max_workers : 1;

	if (config->max_rails && count > config->max_rails)
		count = config->max_rails;
	if (count > WF_MAX_RAILS)
		count = WF_MAX_RAILS;
	if ((config->rails && *config->rails && !listed(config->rails, "local")) || listed(config->avoid, "local")) {
		snprintf(error, room, "the provider 'local' has no rail but 'local'");
		return -ENODEV;
	}
	snprintf(error, room, "this host has no local rail");
	return wf_nics_add_local(ret_nics, count, &(struct wf_log){ 0 }) ? -ENODEV : 0;
}

/* What config names, it requires: nothing goes another way unless that is asked for too. */
bool wf_nics_want_local(const struct weft_config *config)
{
	bool named = config->provider || (config->rails && *config->rails);

	return !(config->flags & WEFT_NO_LOCAL) && !listed(config->avoid, "local") &&
	       (!named || (config->flags & WEFT_WITH_LOCAL));
}

int wf_nics_find(const struct weft_config *config, bool selected, struct wf_nics *ret_nics, char *error,
		 size_t error_bytes)
{
	struct wf_nics all = { .nic = calloc(MAX_NICS, sizeof(struct wf_nic)) };
	struct wf_nics nics = { .nic = calloc(MAX_NICS, sizeof(struct wf_nic)) };
	struct fi_info *list = NULL;
	int status = -ENOMEM;

	snprintf(error, error_bytes, "out of memory");
	if (!all.nic || !nics.nic)
		goto out;
	if (selected && names_local(config)) {
		*ret_nics = (struct wf_nics){ 0 };
		status = take_local(config, ret_nics, error, error_bytes);
		goto out;
	}
	status = query(NULL, NULL, &list);
	if (!status)
		status = collect(&all, list);
	if (list)
		fi_freeinfo(list);
	if (status) {
		snprintf(error, error_bytes, "libfabric finds no provider with reliable datagrams and RMA: %s",
			 fi_strerror(-status));
		status = -ENODEV;
		goto out;
	}
	if (!selected) {
		free(nics.nic);
		status = wf_nics_add_local(&all, 1, &(struct wf_log){ 0 });
		if (!status)
			all.nic[all.count - 1].by_default = true;
		*ret_nics = all;
		return 0;
	}
	status = select_nics(config, &all, &nics, error, error_bytes);
	if (!status) {
		if (config->max_rails)
			while (nics.count > config->max_rails)
				drop(&nics, nics.count - 1);
		*ret_nics = nics;
		nics.nic = NULL;
		nics.count = 0;
	}
out:
	wf_nics_free(&all);
	wf_nics_free(&nics);
	return status;
}
