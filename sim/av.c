/*
 * Address vectors. Inserting is O(1) and touches no file: a peer is looked up when something is first sent to it.
 * 10,000 peers take less than 2 MB.
 */
#include "prov.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t hash_of(const struct wire_address *address)
{
	uint64_t x = ((uint64_t)address->id << 32 | (uint32_t)address->pid) ^ address->qkey;

	x *= 0x9e3779b97f4a7c15ull;
	return (uint32_t)(x >> 32);
}

static uint32_t *bucket_of(struct vector *av, const struct wire_address *address)
{
	return &av->buckets[hash_of(address) & (av->bucket_count - 1)];
}

static int grow(struct vector *av)
{
	uint32_t capacity = av->capacity ? av->capacity * 2 : 64;
	struct peer *peers = realloc(av->peers, capacity * sizeof *peers);
	uint32_t *list, *buckets;

	if (!peers)
		return -FI_ENOMEM;
	memset(peers + av->capacity, 0, (capacity - av->capacity) * sizeof *peers);
	av->peers = peers;
	list = realloc(av->free_list, capacity * sizeof *list);
	if (!list)
		return -FI_ENOMEM;
	av->free_list = list;
	buckets = calloc(capacity, sizeof *buckets);
	if (!buckets)
		return -FI_ENOMEM;
	free(av->buckets);
	av->buckets = buckets;
	av->bucket_count = capacity;
	av->capacity = capacity;
	for (uint32_t i = 0; i < av->count; i++) {
		uint32_t *bucket;

		if (!av->peers[i].used)
			continue;
		bucket = bucket_of(av, &av->peers[i].address);
		av->peers[i].next_in_bucket = *bucket;
		*bucket = i + 1;
	}
	return 0;
}

static int insert_one(struct vector *av, const struct wire_address *address, fi_addr_t *ret_addr)
{
	struct peer *peer;
	uint32_t index, generation, *bucket;

	/* EFA recognises an address and counts no users: the first removal is for all that inserted it. */
	if (av->dom->config->spec.personality != SIM_VERBS) {
		*ret_addr = av_reverse(av, address);
		if (*ret_addr != FI_ADDR_NOTAVAIL)
			return 0;
	}
	if (av->free_count) {
		index = av->free_list[--av->free_count];
	} else {
		if (av->count == av->capacity && grow(av))
			return -FI_ENOMEM;
		index = av->count++;
	}
	peer = &av->peers[index];
	generation = peer->generation;
	memset(peer, 0, sizeof *peer);
	peer->generation = generation;
	peer->address = *address;
	peer->used = 1;
	bucket = bucket_of(av, address);
	peer->next_in_bucket = *bucket;
	*bucket = index + 1;
	*ret_addr = index;
	return 0;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *fi_addr, uint64_t flags,
		     void *context)
{
	struct vector *av = container_of(fid, struct vector, fid);
	const char *at = addr;
	size_t done = 0;

	dom_enter(av->dom, "fi_av_insert");
	for (size_t i = 0; i < count; i++, at += sizeof(struct wire_address)) {
		static const uint8_t nowhere[16];
		fi_addr_t handle = FI_ADDR_NOTAVAIL;
		struct wire_address address;
		int rc = -FI_EINVAL;

		memcpy(&address, at, sizeof address);
		if (memcmp(address.gid, nowhere, sizeof nowhere))
			rc = insert_one(av, &address, &handle);
		done += !rc;
		if (fi_addr)
			fi_addr[i] = handle;
		if (flags & FI_SYNC_ERR && context)
			((int *)context)[i] = -rc;
	}
	dom_leave(av->dom);
	return (int)done;
}

static void forget(struct vector *av, uint32_t index)
{
	struct peer *peer = &av->peers[index];
	uint32_t *at = bucket_of(av, &peer->address);

	while (*at != index + 1)
		at = &av->peers[*at - 1].next_in_bucket;
	*at = peer->next_in_bucket;
	wire_detach(peer->ep_map);
	wire_detach(peer->nic_map);
	peer->ep_map = peer->nic_map = NULL;
	peer->ep = NULL;
	peer->nic = NULL;
	peer->used = peer->landed = 0;
	peer->state = PEER_NEW;
	peer->generation++; /* requests in flight to it end with "unknown peer", or are forgotten */
}

static int av_remove(struct fid_av *fid, fi_addr_t *fi_addr, size_t count, uint64_t flags)
{
	struct vector *av = container_of(fid, struct vector, fid);
	int rc = 0;

	dom_enter(av->dom, "fi_av_remove");
	for (size_t i = 0; i < count; i++) {
		if (fi_addr[i] >= av->count || !av->peers[fi_addr[i]].used) {
			rc = -FI_EINVAL;
			continue;
		}
		forget(av, (uint32_t)fi_addr[i]);
		av->free_list[av->free_count++] = (uint32_t)fi_addr[i];
	}
	dom_leave(av->dom);
	return rc;
}

static int av_lookup(struct fid_av *fid, fi_addr_t fi_addr, void *addr, size_t *addrlen)
{
	struct vector *av = container_of(fid, struct vector, fid);
	size_t room = *addrlen;
	int rc = -FI_EINVAL;

	dom_enter(av->dom, "fi_av_lookup");
	if (fi_addr < av->count && av->peers[fi_addr].used) {
		*addrlen = sizeof(struct wire_address);
		memcpy(addr, &av->peers[fi_addr].address, room < *addrlen ? room : *addrlen);
		rc = 0;
	}
	dom_leave(av->dom);
	return rc;
}

static const char *av_straddr(struct fid_av *av, const void *addr, char *buf, size_t *len)
{
	char gid[INET6_ADDRSTRLEN] = "";
	struct wire_address address;
	int n;

	memcpy(&address, addr, sizeof address);
	inet_ntop(AF_INET6, address.gid, gid, sizeof gid);
	n = snprintf(buf, *len, "fi_addr_efa://[%s]:%u:%u", gid, address.qpn, address.qkey);
	*len = (size_t)n + 1;
	return buf;
}

static int av_close(struct fid *fid)
{
	struct vector *av = container_of(fid, struct vector, fid.fid);

	if (atomic_load(&av->refs))
		return -FI_EBUSY;
	dom_enter(av->dom, "fi_close of an address vector");
	for (uint32_t i = 0; i < av->count; i++) {
		wire_detach(av->peers[i].ep_map);
		wire_detach(av->peers[i].nic_map);
	}
	dom_leave(av->dom);
	atomic_fetch_sub(&av->dom->refs, 1);
	free(av->peers);
	free(av->free_list);
	free(av->buckets);
	free(av);
	return 0;
}

static ssize_t no_such(void)
{
	return -FI_ENOSYS;
}

#define NO(member) .member = (__typeof__(((struct fi_ops_av *)0)->member))(void (*)(void))no_such

static struct fi_ops av_fid_ops = {
	.size = sizeof av_fid_ops,
	.close = av_close,
	.bind = stub_bind,
	.control = stub_control,
	.ops_open = stub_ops_open,
};

static struct fi_ops_av av_ops = {
	.size = sizeof av_ops,
	.insert = av_insert,
	NO(insertsvc),
	NO(insertsym),
	.remove = av_remove,
	.lookup = av_lookup,
	.straddr = av_straddr,
	NO(av_set),
};

int av_open(struct fid_domain *fid, struct fi_av_attr *attr, struct fid_av **ret_av, void *context)
{
	struct domain *dom = container_of(fid, struct domain, fid);
	struct vector *av;

	if (attr->type == FI_AV_MAP)
		return -FI_EINVAL;
	av = calloc(1, sizeof *av);
	if (!av)
		return -FI_ENOMEM;
	if (grow(av)) {
		free(av->peers);
		free(av->free_list);
		free(av);
		return -FI_ENOMEM;
	}
	attr->type = FI_AV_TABLE;
	av->dom = dom;
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fid_ops;
	av->fid.ops = &av_ops;
	atomic_fetch_add(&dom->refs, 1);
	*ret_av = &av->fid;
	return 0;
}

/* Finds the peer's segments. Returns false if nobody lives at that address (any more). */
bool peer_resolve(struct peer *peer)
{
	if (peer->ep)
		return true;
	peer->ep_map = wire_attach(peer->address.pid, peer->address.id, WIRE_ENDPOINT);
	if (!peer->ep_map)
		return false;
	peer->ep = wire_memory(peer->ep_map);
	peer->nic_map = wire_attach(peer->address.pid, peer->ep->nic_id, WIRE_NIC);
	if (!peer->nic_map || peer->ep->address.qkey != peer->address.qkey) {
		wire_detach(peer->ep_map);
		wire_detach(peer->nic_map);
		peer->ep_map = peer->nic_map = NULL;
		peer->ep = NULL;
		return false;
	}
	peer->nic = wire_memory(peer->nic_map);
	peer->local = wire_is_local(peer->ep_map);
	peer->emulated = peer->nic->emulated != 0;
	return true;
}

fi_addr_t av_reverse(struct vector *av, const struct wire_address *address)
{
	for (uint32_t at = *bucket_of(av, address); at; at = av->peers[at - 1].next_in_bucket)
		if (!memcmp(&av->peers[at - 1].address, address, sizeof *address))
			return at - 1;
	return FI_ADDR_NOTAVAIL;
}
